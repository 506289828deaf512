"""What can be installed today for the same problem, each where it applies: time, error and peak memory.

    python -m pip install tensorly qolmat rpca pyrpca scikit-learn
    python -m benchmarks.peers --size 500 --out results

Two problems, size x size, rank 5, a tenth of the observed entries wrong: all entries observed, and 60 % of them.
Everybody gets the same dense array, NaN where nothing is observed, in a process of its own, after a tiny problem (what
is loaded or compiled on first use is not counted). The memory is the most that process held, less what it held with the
data in it. A peer that is not installed is left out; one that takes longer than the limit is stopped.
Dense algebra on all threads suffers much from other work on the machine: run it on a quiet one, or set
OPENBLAS_NUM_THREADS=1.

Settings, chosen so that each gets below 1e-6 if it can: tolerances are 1e-7, and λ is 1 / sqrt(share observed * size),
as theory suggests.

- lowsparse: the default, and AManPGC; the rank is given, nothing else.
- tensorly's robust_pca: reg_E = 2 λ (it penalises the nuclear norm twice), mu_init = 1.25 / ‖X‖₂, tol = 1e-7 ‖X‖
  (its own is absolute), learning_rate 1.1 with everything observed, 1.03 otherwise (1.1 ends at 1e-2). With its own
  settings (reg_E = 1) it does not separate outliers at all.
- qolmat's RpcaPcp: lam = λ (its own ignores what is missing).
- qolmat's RpcaNoisy: the rank is given; tau = lam = a tenth of its own choice, mu = 1e-3, up to 3000 iterations. It is
  made for noise: its error is proportional to lam, and below this it takes much longer.
- rpca's RobustPCA: rank + 1 (it subtracts column means, spoilt by outliers), gamma = 0.9 (0.95 if size < 200) and 0.35
  times its own beta, as it does not converge here with its own. Complete data only.
- pyrpca's rpca_pcp_ialm: λ. Complete data only.
- scikit-learn's TruncatedSVD (of X / share observed, zeros where nothing is known) and IterativeImputer (incomplete
  data, size <= 200): not robust, for reference.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import lowsparse as ls
from lowsparse.cli.text import table
from lowsparse.support.files import write_csv

from .apart import Entrant, add_arguments, load, measured, quietly, row_of
from .shown import cell, error_against_seconds

RANK = 5
OUTLIERS = 0.1
OUTLIER_SIZE = 5.0  # the entries of L have a standard deviation of √5
PROBLEMS = {"complete": 1.0, "incomplete": 0.6}  # share observed
TOL = 1e-7  # of the peers, all of which compare it with something else than the error

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """What a contestant is given."""

    X: Float  # NaN where nothing is observed
    rank: int

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Where something is observed."""
        return ~np.isnan(self.X)

    @property
    def complete(self) -> bool:
        """Whether that is everywhere."""
        return bool(self.seen.all())

    @property
    def lam(self) -> float:
        """The weight of the ℓ1 norm against the nuclear norm."""
        return float(1 / np.sqrt(self.seen.mean() * max(self.X.shape)))


def lowsparse_default(data: Data) -> Float:
    return ls.solve(data.X, data.rank).L.to_dense()


def lowsparse_amanpgc(data: Data) -> Float:
    return ls.solve(data.X, data.rank, method="amanpgc").L.to_dense()


def tensorly_robust_pca(data: Data) -> Float:
    robust_pca = load("tensorly.decomposition").robust_pca
    X = np.nan_to_num(data.X)
    L: Float = robust_pca(
        X,
        mask=None if data.complete else data.seen,
        reg_E=2 * data.lam,
        mu_init=1.25 / np.linalg.norm(X, 2),
        learning_rate=1.1 if data.complete else 1.03,
        tol=TOL * np.linalg.norm(X),
        n_iter_max=5000,
        verbose=0,
    )[0]
    return L


def qolmat_pcp(data: Data) -> Float:
    solver = load("qolmat.imputations.rpca.rpca_pcp").RpcaPcp
    L: Float = solver(lam=data.lam, tolerance=TOL, verbose=False).decompose(data.X, data.seen)[0]
    return L


def qolmat_noisy(data: Data) -> Float:
    solver = load("qolmat.imputations.rpca.rpca_noisy").RpcaNoisy
    weight = 0.1 / np.sqrt(max(data.X.shape))
    configured = solver(
        rank=data.rank, tau=weight, lam=weight, mu=1e-3, max_iterations=3000, tolerance=TOL, verbose=False
    )
    L: Float = configured.decompose(data.X, data.seen)[0]
    return L


def rpca_robust_pca(data: Data) -> Float:
    beta = 0.35 / (2 * data.X.size**0.25)
    solver = load("rpca").RobustPCA
    gamma = 0.9 if min(data.X.shape) >= 200 else 0.95
    fitted = solver(data.rank + 1, gamma=gamma, beta=beta, tol=TOL, max_iter=1000, verbose=False).fit(data.X)
    L: Float = fitted.low_rank_ + fitted.mean_
    return L


def pyrpca_ialm(data: Data) -> Float:
    L: Float = load("pyrpca").rpca_pcp_ialm(data.X, data.lam, tol=TOL, verbose=False)[0]
    return L


def sklearn_truncated_svd(data: Data) -> Float:
    svd = load("sklearn.decomposition").TruncatedSVD(data.rank, algorithm="arpack", random_state=1)
    L: Float = svd.inverse_transform(svd.fit_transform(np.nan_to_num(data.X) / data.seen.mean()))
    return L


def sklearn_iterative_imputer(data: Data) -> Float:
    load("sklearn.experimental.enable_iterative_imputer")
    L: Float = load("sklearn.impute").IterativeImputer(random_state=1).fit_transform(data.X)
    return L


@dataclass(frozen=True)
class Contestant(Entrant):
    """Somebody who takes part."""

    run: Callable[[Data], Float]
    problems: tuple[str, ...] = tuple(PROBLEMS)
    largest: int | None = None  # size


CONTESTANTS = {
    "default": Contestant(f"lowsparse ({ls.solvers.from_name('auto').name})", lowsparse_default),
    "amanpgc": Contestant("lowsparse (amanpgc)", lowsparse_amanpgc),
    "tensorly": Contestant(
        "tensorly robust_pca", tensorly_robust_pca, package="tensorly", module="tensorly.decomposition"
    ),
    "pcp": Contestant("qolmat RpcaPcp", qolmat_pcp, package="qolmat", module="qolmat.imputations.rpca.rpca_pcp"),
    "noisy": Contestant(
        "qolmat RpcaNoisy", qolmat_noisy, package="qolmat", module="qolmat.imputations.rpca.rpca_noisy"
    ),
    "rpca": Contestant("rpca RobustPCA", rpca_robust_pca, package="rpca", module="rpca", problems=("complete",)),
    "pyrpca": Contestant(
        "pyrpca rpca_pcp_ialm", pyrpca_ialm, package="pyrpca", module="pyrpca", problems=("complete",)
    ),
    "svd": Contestant(
        "TruncatedSVD (not robust)",
        sklearn_truncated_svd,
        package="scikit-learn",
        module="sklearn.decomposition",
    ),
    "imputer": Contestant(
        "IterativeImputer (not robust)",
        sklearn_iterative_imputer,
        package="scikit-learn",
        module="sklearn.impute",
        problems=("incomplete",),
        largest=200,
    ),
}


def dense(problem: ls.datasets.SyntheticProblem) -> Float:
    """The observed entries, NaN elsewhere."""
    X = np.full(problem.M.shape, np.nan)
    X[problem.M.rows, problem.M.columns_of_entries()] = problem.M.values
    return X


def make(size: int, density: float) -> ls.datasets.SyntheticProblem:
    """A problem of this size."""
    return ls.datasets.synthetic(
        size, size, rank=RANK, density=density, outliers=OUTLIERS, outlier_size=OUTLIER_SIZE, random_state=21
    )


def in_this_process(contestant: Contestant, folder: Path, limit: float) -> dict[str, float | None]:
    """Seconds, error and bytes of one contestant on the problem in the folder."""
    contestant.load()
    X, truth = np.load(folder / "X.npy"), ls.LowRank(np.load(folder / "U.npy"), np.load(folder / "V.npy"))
    data = Data(X, truth.rank)
    with quietly():
        contestant.run(Data(dense(make(30, data.seen.mean())), RANK))
        L, taken = measured(lambda: contestant.run(data), limit)
    error = truth.error(L) / truth.norm() if np.isfinite(L).all() else float("inf")
    return {**taken, "error": error}


def describe(problem: str, rows: list[dict[str, Any]]) -> str:
    """The table of one problem."""
    first = rows[0]
    body = [
        [
            row["label"],
            row["version"],
            cell(row["seconds"], ".3f"),
            cell(row["over_default"], ".1f"),
            cell(row["error"], ".1e"),
            cell(row["bytes"], ".1f", 1e6),
            row["remark"],
        ]
        for row in rows
    ]
    shares = f"{PROBLEMS[problem]:.0%} observed, {OUTLIERS:.0%} of it wrong"
    title = f"{problem}: {first['size']} x {first['size']}, rank {RANK}, {shares}"
    return title + "\n" + table(["", "version", "s", "/ default", "error", "MB", ""], body, left=(0, 1, 6))


def figure(rows: list[dict[str, Any]]) -> Figure:
    """Error against seconds, a panel for every problem."""
    panels = {
        f"{density:.0%} observed": [row for row in rows if row["problem"] == problem]
        for problem, density in PROBLEMS.items()
    }
    size = rows[0]["size"]
    title = f"{size} × {size}, rank {RANK}, {OUTLIERS:.0%} outliers"
    return error_against_seconds(
        panels, CONTESTANTS, title=title, y_name="relative error", size=(9.6, 4.2), same_y=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="What else can be installed.")
    parser.add_argument("--size", type=int, help="rows and columns (default: 500)")
    parser.add_argument("--limit", type=float, help="seconds for each (default: 120)")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), help="default: all")
    parser.add_argument("--quick", action="store_true", help="as --size 100 --limit 3, if not given")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for peers.csv and peers.png")
    add_arguments(parser, CONTESTANTS)
    given = parser.parse_args()
    limit = given.limit if given.limit is not None else (3.0 if given.quick else 120.0)
    if given.one:
        print(json.dumps(in_this_process(CONTESTANTS[given.one], given.at, limit)), flush=True)
        return
    size = given.size if given.size is not None else (100 if given.quick else 500)
    if size < 2 * RANK or not limit > 0:
        parser.error(f"--size must be {2 * RANK} or more, and --limit positive")
    wanted = {name: contestant for name, contestant in CONTESTANTS.items() if name in given.contestants}
    for package in dict.fromkeys(c.package for c in wanted.values() if not c.version):
        print(f"not installed: pip install {package}")
    rows: list[dict[str, Any]] = []
    for problem, density in PROBLEMS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            made = make(size, density)
            for part, array in (("X", dense(made)), ("U", made.L.U), ("V", made.L.V)):
                np.save(folder / f"{part}.npy", array)
            found: list[dict[str, Any]] = []
            for key, contestant in wanted.items():
                if problem not in contestant.problems or not contestant.version:
                    continue
                row: dict[str, Any] = {
                    "problem": problem,
                    "size": size,
                    "contestant": key,
                    "label": contestant.label,
                    "version": contestant.version,
                }
                if contestant.largest is not None and size > contestant.largest:
                    row |= {"seconds": None, "error": None, "bytes": None, "remark": f"size <= {contestant.largest}"}
                else:
                    row |= row_of("peers", key, folder, limit)
                found.append(row)
        if not found:
            continue
        own = next((row["seconds"] for row in found if row["contestant"] == "default"), None)
        for row in found:
            row["over_default"] = row["seconds"] / own if own and row["seconds"] else None
        print(describe(problem, found) + "\n", flush=True)
        rows += found
    if not rows:
        parser.error("nobody to measure: see above what to install")
    write_csv(given.out / "peers.csv", rows)
    figure(rows).savefig(given.out / "peers.png")
    print(f"picture and numbers: {given.out}")


if __name__ == "__main__":
    main()
