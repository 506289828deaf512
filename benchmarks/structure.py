"""Holes and errors with structure: who finds L, who misses it, and who says "converged" and is wrong.

    python -m benchmarks.structure --problems 600 --jobs 2 --out results
    python -m benchmarks.structure --quick

`benchmarks.structured` makes the problems: every kind of hole with every kind of error in turn, drawn anew, and factors
of L of some kind. All methods get the same ones with the true rank, and none of them the seed of the data. Of each
answer, on what can be found of L:

- found: its relative error is at most 10⁻³, or three times what noise makes of a fit to the entries that are right;
- missed: it is farther off, although the truth explains at least as many of the observed entries, to within 1 %;
- other: it is farther off, and explains more of them than the truth: the errors are as good a matrix of this rank;
- behind: it is farther off, and the truth explains at least 1 % more of the entries;
- wrong: it says "converged" and is behind;
- unsaid: it is found, and does not say "converged".

Only problems count whose truth explains more than half of the entries. Constants of the default method were chosen on
problems of the kinds that are marked with a star, with other seeds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import lowsparse as ls
from lowsparse import plots
from lowsparse.cli.text import table
from lowsparse.support.files import write_csv

from .contenders import DEFAULT, contenders
from .phase import FIXED, workers
from .structured import ERRORS, FACTORS, HOLES, TUNED_ERRORS, TUNED_HOLES, StructuredProblem, draw_problem

SEED = 17  # of the data
FOUND = 1e-3  # relative error, and
NOISE = 3.0  # in units of the error that noise makes
MORE = 0.01  # share of the entries that the truth must explain beyond an answer
MAX_ITER = 500
OUTCOMES = ("found", "missed", "other")


@dataclass(frozen=True)
class Answer:
    """What one method made of one problem."""

    hole: str
    error: str
    factors: str
    method: str
    outcome: str  # one of OUTCOMES
    converged: bool
    behind: bool  # off, although the truth explains more
    off: float  # relative error
    seconds: float
    about: str

    @property
    def wrong(self) -> bool:
        """Whether it said "converged" and is inexcusably off."""
        return self.converged and self.behind

    @property
    def unsaid(self) -> bool:
        """Whether it was found without saying so."""
        return self.outcome == "found" and not self.converged


def judge(problem: StructuredProblem, result: ls.Result) -> tuple[str, bool, float]:
    """The outcome, whether the truth explains more, and the relative error, on what can be found."""
    truth, at = problem.L.to_dense(), problem.determined
    size = float(np.linalg.norm(truth[at]))
    off = float(np.linalg.norm((result.L.to_dense() - truth)[at])) / size
    expected = problem.expected * np.sqrt(np.count_nonzero(at)) / size
    if off <= max(FOUND, NOISE * expected):
        return "found", False, off
    behind = float(problem.right.mean()) - problem.explained(result.L)
    return "missed" if behind >= -MORE else "other", behind >= MORE, off


def attempt(seed: list[int], hole: str, error: str, factors: str, methods: Sequence[str], largest: int) -> list[Answer]:
    """All methods on one problem; none if it cannot be found."""
    problem = draw_problem(seed, hole, error, factors=factors, largest=largest)
    if not problem.findable:
        return []
    answers = []
    for method in methods:
        began = time.perf_counter()
        result = ls.solve(problem.M, problem.rank, method=method, max_iter=MAX_ITER)
        seconds = time.perf_counter() - began
        outcome, behind, off = judge(problem, result)
        said = outcome, result.converged, behind, off, seconds
        answers.append(Answer(hole, error, factors, method, *said, problem.about))
    return answers


def run(
    count: int,
    methods: Sequence[str],
    jobs: int,
    largest: int,
    kinds: Sequence[tuple[str, str]],
    seed: int = SEED,
    factors: Sequence[str] = tuple(FACTORS),
) -> list[Answer]:
    """Answers to so many problems, the kinds of holes and errors in turn, those of factors at random."""
    order = np.random.default_rng(seed).permutation(len(kinds))
    chosen = [kinds[order[k % len(kinds)]] for k in range(count)]
    seeds = [[seed, k] for k in range(count)]
    drawn = [str(one) for one in np.random.default_rng([seed, count]).choice(factors, count)]
    arguments = (seeds, *zip(*chosen, strict=True), drawn, [tuple(methods)] * count, [largest] * count)
    with workers(jobs) as pool:
        done: Iterable[list[Answer]] = (pool.map if pool else map)(attempt, *arguments)
        return [answer for answers in done for answer in answers]


def counted(answers: Sequence[Answer]) -> list[str]:
    """Problems, found, missed, other, behind, converged, wrong among these, unsaid, seconds."""
    tally = [sum(a.outcome == outcome for a in answers) for outcome in OUTCOMES]
    behind, unsaid = sum(a.behind for a in answers), sum(a.unsaid for a in answers)
    converged, wrong = sum(a.converged for a in answers), sum(a.wrong for a in answers)
    share = f" ({100 * wrong / converged:.2f} %)" if converged else ""
    counts = len(answers), *tally, behind, converged
    return [*map(str, counts), f"{wrong}{share}", str(unsaid), f"{_seconds(answers):.3g}"]


def _seconds(answers: Sequence[Answer]) -> float:
    return float(np.mean([a.seconds for a in answers])) if answers else float("nan")


HEADER = ["problems", *OUTCOMES, "behind", "converged", "of it wrong", "unsaid", "s (mean)"]


def describe(answers: Sequence[Answer]) -> str:
    """A line for every method, then one of the default for every kind of hole and of error."""
    methods = list(dict.fromkeys(a.method for a in answers))
    lines = [[method, *counted([a for a in answers if a.method == method])] for method in methods]
    text = ["all kinds\n" + table(["method", *HEADER], lines)]
    own = [a for a in answers if a.method == methods[0]]
    kinds_of: tuple[tuple[str, Iterable[str], Sequence[str]], ...] = (
        ("hole", HOLES, TUNED_HOLES),
        ("error", ERRORS, TUNED_ERRORS),
        ("factors", FACTORS, ()),
    )
    for what, kinds, tuned in kinds_of:
        rows = [
            [kind + ("*" if kind in tuned else ""), *counted([a for a in own if getattr(a, what) == kind])]
            for kind in kinds
        ]
        text.append(f"{methods[0]}, by kind of {what}\n" + table([what, *HEADER], rows))
    groups = {
        "seen while tuning": [a for a in own if a.hole in TUNED_HOLES and a.error in TUNED_ERRORS],
        "not seen": [a for a in own if a.hole not in TUNED_HOLES or a.error not in TUNED_ERRORS],
    }
    rows = [[name, *counted(group)] for name, group in groups.items()]
    text.append(f"{methods[0]}, by whether both kinds were\n" + table(["kinds", *HEADER], rows))
    return "\n\n".join(text)


def figure(answers: Sequence[Answer]) -> Figure:
    """Heat maps for every method: the share found, and above it how many said "converged" and were wrong."""
    methods = list(dict.fromkeys(a.method for a in answers))
    picture = Figure(figsize=(11.5, 0.42 * len(methods) + 3.4), dpi=140, layout="constrained")
    axes = picture.subplots(1, 2, width_ratios=(len(HOLES), len(ERRORS)), sharey=True)
    for ax, (what, kinds) in zip(axes, (("hole", list(HOLES)), ("error", list(ERRORS))), strict=True):
        shares = np.full((len(methods), len(kinds)), np.nan)
        for (row, method), (column, kind) in product(enumerate(methods), enumerate(kinds)):
            some = [a for a in answers if a.method == method and getattr(a, what) == kind]
            if some:
                shares[row, column] = np.mean([a.outcome == "found" for a in some])
                wrong = sum(a.wrong for a in some)
                if wrong:
                    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
                    ax.text(column, row, str(wrong), ha="center", va="center", color="#b00020", fontsize=8, bbox=box)
        image = ax.imshow(shares, vmin=0, vmax=1, cmap="Greys_r", aspect="auto")
        ax.set_xticks(range(len(kinds)), kinds, rotation=45, ha="right", fontsize=8)
        ax.set_title(f"kind of {what}", fontsize=9)
    labels = [(plots.STYLES.get(method) or (method,))[0] for method in methods]
    axes[0].set_yticks(range(len(methods)), labels, fontsize=8)
    picture.colorbar(image, ax=list(axes), label="share found", fraction=0.03)
    picture.suptitle('Found; in red, how many said "converged" and were wrong', x=0.014, ha="left", fontsize=12)
    return picture


def main() -> None:
    able = contenders()
    own = [name for name in able if name not in FIXED]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.structure", description="Holes and errors with structure."
    )
    parser.add_argument("--methods", nargs="+", default=own, choices=able, help="default: all but those with a fixed γ")
    parser.add_argument("--problems", type=int, default=408, help="how many (default: 408, two of each pair of kinds)")
    parser.add_argument("--largest", type=int, default=400, help="rows and columns, at most (default: 400)")
    parser.add_argument(
        "--factors",
        nargs="+",
        choices=list(FACTORS),
        default=list(FACTORS),
        help="kinds of factors of L (default: all)",
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the problems (default: {SEED})")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each (default: 1, all threads)")
    parser.add_argument("--quick", action="store_true", help="few small problems: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for structure.csv and structure.png")
    given = parser.parse_args()
    if given.problems < 1 or given.jobs < 1 or given.largest < 40 or given.seed < 0:
        parser.error("--problems and --jobs must be 1 or more, --largest 40 or more, --seed 0 or more")
    count, largest = (12, 80) if given.quick else (given.problems, given.largest)
    methods = [DEFAULT, *(name for name in dict.fromkeys(given.methods) if name != DEFAULT)]
    print(f"lowsparse {ls.__version__}; {count} problems; the default is {DEFAULT}\n", flush=True)
    answers = run(count, methods, given.jobs, largest, list(product(HOLES, ERRORS)), given.seed, given.factors)
    print(describe(answers))
    write_csv(given.out / "structure.csv", [vars(answer) for answer in answers])
    figure(answers).savefig(given.out / "structure.png")
    print(f"\npicture and numbers: {given.out}")


if __name__ == "__main__":
    main()
