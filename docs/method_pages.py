"""The pages of the methods, made from their classes: problem, papers, parameters, and what they do on small problems.

Each method runs on every problem below when the site is built, so a page shows what the code does as it is now.
"""

from __future__ import annotations

import inspect
import io
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

import lowsparse as ls
from lowsparse.cli.methods import describe
from lowsparse.solvers import Solver
from lowsparse.solvers.parameters import parameters_of

RANK = 3
HOW = (
    "Found means a relative error of at most 0.001 (0.0125 with noise). The problems are solved when this site is "
    "built; but for series they are 200 x 150 matrices of rank 3. A method that must be told how many entries "
    "are wrong is told the truth, and a little more, as it asks for."
)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """A small problem whose solution is known, and the relative error up to which that counts as found."""

    what: str
    observed: Array
    truth: Array
    wrong: NDArray[np.bool_]  # among the observed entries
    rank: int = RANK
    limit: float = 1e-3

    def required(self, name: str) -> float:
        """What a parameter without a default is given: a little more than the truth, as the methods ask for."""
        if name == "outliers":
            return int(1.05 * self.wrong.sum())
        seen = ~np.isnan(self.observed)
        return 0.01 + max(float((self.wrong.sum(axis) / seen.sum(axis)).max()) for axis in (0, 1))


@dataclass(frozen=True)
class Run:
    """What a method made of a trial."""

    error: float
    status: str
    n_iter: int
    errors: list[float]  # after each iteration, of the first trial; else empty


def trial(
    what: str, *, observed: float = 0.5, wrong: float = 0.1, noise: float = 0.0, condition: float = 1.0, patch: int = 0
) -> Trial:
    """A random matrix, 200 x 150; with `patch` the errors are a block of one value."""
    rng = np.random.default_rng([11, len(what)])
    U, V = rng.standard_normal((200, RANK)), rng.standard_normal((RANK, 150))
    truth = U * np.geomspace(1, 1 / condition, RANK) @ V
    X = truth + noise * rng.standard_normal(truth.shape)
    bad = rng.random(X.shape) < (0 if patch else wrong)
    bad[:patch, :patch] = True
    X[bad] = 2.0 if patch else X[bad] + 3 * rng.standard_normal(bad.sum())
    X[rng.random(X.shape) >= observed] = np.nan
    return Trial(what, X, truth, bad & ~np.isnan(X), limit=0.0125 if noise else 1e-3)


def sinusoids() -> Trial:
    """Eight channels, 120 moments, two damped sinusoids that they share; ten moments missing in all channels."""
    rng, t = np.random.default_rng(12), np.arange(120)
    waves = [np.exp(-t / 90) * np.cos(f * t + p) for f, p in ((0.2, 0), (0.2, 1.5), (0.55, 0), (0.55, 1.5))]
    truth = rng.standard_normal((8, 4)) @ np.stack(waves)
    bad = rng.random(truth.shape) < 0.1
    X = np.where(bad, 5.0, truth)
    X[:, 50:60] = np.nan
    what = "eight series, two damped sinusoids, ten moments missing, a tenth wrong"
    return Trial(what, X, truth, bad & ~np.isnan(X), rank=4)


TRIALS = (
    trial("half observed, a tenth of it wrong"),
    trial("half observed, a third wrong", wrong=0.33),
    trial("an eighth observed, a twentieth wrong", observed=0.125, wrong=0.05),
    trial("half observed, a tenth wrong, noise of 3 %", noise=0.05),
    trial("half observed, a tenth wrong, condition number 50", condition=50),
    trial("half observed, a patch of one value", patch=50),
    trial("half observed, nothing wrong", wrong=0.0),
    trial("all observed, a tenth wrong", observed=1.0),
)


@cache  # for `mkdocs serve`, which builds after every edit
def method_pages() -> dict[str, str | bytes]:
    """The pages and their pictures, by path."""
    classes = [type(ls.solvers.from_name(name)) for name in ls.solvers.names()]
    default = type(ls.solvers.from_name("auto"))
    runs = {
        cls.name: [(each, attempt(cls, each, watched=not k)) for k, each in enumerate(trials_for(cls))]
        for cls in classes
    }
    by_default = {each.what: run for each, run in runs[default.name]}
    pages: dict[str, str | bytes] = {"method/index.md": overview(classes, runs)}
    for cls in classes:
        pages[f"method/{cls.name}.md"] = page(cls, runs[cls.name], by_default)
        pages[f"method/{cls.name}.svg"] = curve(cls.name, *runs[cls.name][0], by_default)
    return pages


def trials_for(cls: type[Solver]) -> list[Trial]:
    """The trials that a method can be given."""
    if cls.rank_of != "L":
        return [sinusoids()]
    return [each for each in TRIALS if not (cls.full and np.isnan(each.observed).any())]


def attempt(cls: type[Solver], given: Trial, *, watched: bool) -> Run:
    """Run a method on a trial; what it must be told of the outliers, it is told."""
    errors: list[float] = []

    def watch(progress: ls.Progress) -> None:
        errors.append(progress.lowrank().error(given.truth, relative=True))

    told = {name: given.required(name) for name in cls.needs}
    rank = None if cls.finds_rank else given.rank
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a method that diverges: its status says so
        result = ls.solve(given.observed, rank, method=cls(**told), callback=watch if watched else None)
    return Run(result.L.error(given.truth, relative=True), result.status.name, result.n_iter, errors)


def page(cls: type[Solver], runs: list[tuple[Trial, Run]], by_default: dict[str, Run]) -> str:
    """What the method solves, what it needs, its papers, its parameters, and how it does."""
    facts = describe(cls)
    told = ", ".join(f"{name}=0.1" for name in cls.needs)
    rank = "None" if cls.finds_rank else RANK
    parts = [
        f"# {cls.name}\n\n{facts['what']}",
        f"Choose it {facts['choose']}. Needs: {facts['needed']}.",
        f"```python\nresult = ls.solve(M, rank={rank}, method=ls.solvers.{cls.__name__}({told}))\n```",
        "## Papers\n\n" + "\n".join(f"- {paper}" for paper in cls.papers) if cls.papers else "",
        f"## The problem and the method\n\n{sys.modules[cls.__module__].__doc__}",
        *own_words(cls),
        parameter_table(cls),
        f"## How it does\n\n{verdict(runs)}\n\n{score_table(runs, by_default)}",
        f"![The relative error of {cls.name} and of the default over the iterations, on a logarithmic scale]"
        f"({cls.name}.svg)\n\nThe curve is that of “{runs[0][0].what}”.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def own_words(cls: type[Solver]) -> list[str]:
    """The paragraphs of the docstring of the class after its first line, without examples."""
    _, *paragraphs = (inspect.getdoc(cls) or "").split("\n\n")
    return [text for text in paragraphs if not text.lstrip().startswith(">>>")]


def parameter_table(cls: type[Solver]) -> str:
    """The parameters, their defaults and limits."""
    rows = [
        (f"`{name}`", "required" if p.required else f"`{p.default!r}`", f"{p.text}; {p.allowed}")
        for name, p in parameters_of(cls).items()
    ]
    return "## Parameters\n\n" + table(("", "default", "what it is"), rows) if rows else ""


def verdict(runs: list[tuple[Trial, Run]]) -> str:
    """Where L was found and where it was missed, in words."""
    found = [each.what for each, run in runs if run.error <= each.limit]
    missed = [each.what for each, run in runs if run.error > each.limit]
    said = [f"{what}: {'; '.join(where)}." for what, where in (("Finds L", found), ("Misses it", missed)) if where]
    return " ".join([*said, HOW])


def score_table(runs: list[tuple[Trial, Run]], by_default: dict[str, Run]) -> str:
    """The relative error on every trial, and that of the default."""
    rows = []
    for each, run in runs:
        best = f"{by_default[each.what].error:.1e}" if each.what in by_default else ""
        rows.append((each.what, f"{run.error:.1e}", run.status, run.n_iter, best))
    return table(("problem", "error", "status", "iterations", "error of the default"), rows)


def overview(classes: list[type[Solver]], runs: dict[str, list[tuple[Trial, Run]]]) -> str:
    """All methods: what they are, when to choose them, how many of the trials they solve."""
    rows = []
    for cls in classes:
        facts = describe(cls)
        found = sum(run.error <= each.limit for each, run in runs[cls.name])
        rows.append(
            (f"[{cls.name}]({cls.name}.md)", facts["what"], facts["needed"], f"{found} of {len(runs[cls.name])}")
        )
    text = (
        'The default, [ladder](ladder.md), needs the rank and nothing else; `rank="auto"` finds that too. The others '
        "are here to be compared with, each as its authors describe it, on the same compiled passes. Every page shows "
        "the problem that is solved, its papers, the parameters, and how the method does on small problems whose "
        "solution is known; the last column counts those it solves."
    )
    return f"# Methods\n\n{text}\n\n" + table(("method", "what it is", "needs", "solves"), rows) + "\n"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def curve(name: str, given: Trial, run: Run, by_default: dict[str, Run]) -> bytes:
    """The error over the iterations, of the method and of the default, as SVG; the same bytes for the same numbers."""
    with mpl.rc_context({"svg.hashsalt": name}):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        compared = {name: run}
        if given.what in by_default and by_default[given.what].errors:
            compared["ladder"] = by_default[given.what]
        traces: dict[str, dict[str, ArrayLike]] = {
            who: {"iteration": np.arange(1, one.n_iter + 1), "error": one.errors} for who, one in compared.items()
        }
        ls.plots.convergence(traces, x="iteration", ax=figure.subplots()).legend(frameon=False)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()
