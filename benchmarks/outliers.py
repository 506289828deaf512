"""Bad rows and bad cells: who finds the subspace of the good rows, in the simulation designs of robust statistics.

    python -m benchmarks.outliers --out results

The designs are those of MacroPCA (Hubert, Rousseeuw and Van den Bossche, Technometrics 2019). Rows are normal with mean
μ and covariance Σ. "alyz" has the eigenvectors of a random correlation matrix and the eigenvalues 30, 25, 20, 15, 10, 5
and then 0.098 down to 0.0015; "a09" is Σ_jk = (-0.9)^|j-k|, of which ten components leave a remainder of full rank; in
"lowrank" what they leave is noise of variance 0.01. Then a share of the cells is replaced by μ_j + γ √Σ_jj ("cells"),
of the rows by draws from N(μ + γ v, Σ/1.5), with v the first eigenvector that is not fitted ("rows") or a direction of
its own for each row ("spread"), or half as many of either ("both").

The truth is the projection of the rows, as they were before, on μ and the first eigenvectors. The error is the mean
square of what a method fits minus the truth, over the good rows and all columns. Everybody is given the right number of
components. ROBPCA and MacroPCA are run if Rscript is found with rrcov or cellWise; "oracle" is plain PCA of the good
rows by alternating least squares on the good cells, which nobody can know.

    python -m benchmarks.outliers --stored 1000000x1000

fits a table that is never in memory as a whole, with a tenth of bad rows, a twentieth of bad cells and a fifth missing.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import subspace_angles
from sklearn.covariance import MinCovDet
from sklearn.decomposition import PCA

import lowsparse as ls
from lowsparse.cli.text import table
from lowsparse.support.files import write_csv

from .shown import cell

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SIZES = ((100, 200), (400, 50), (1000, 1000))
KINDS: dict[str, tuple[float, ...]] = {
    "clean": (0.0,),
    "cells": (4.0, 8.0, 20.0),
    "rows": (15.0, 40.0),
    "spread": (15.0, 40.0),
    "both": (10.0, 20.0),
}
RANKS = {"alyz": 6, "a09": 10, "lowrank": 10}
PASSES = 30  # of the oracle
SEED = 1903  # of the data; no method sees it


@dataclass(frozen=True)
class Design:
    """A covariance, a size, and what is spoilt and how far."""

    covariance: str
    shape: tuple[int, int]
    kind: str
    distance: float
    missing: float
    share: float = 0.2

    @property
    def rank(self) -> int:
        """The number of components that is fitted."""
        return RANKS[self.covariance]

    @property
    def name(self) -> str:
        """In words."""
        holes = f", {self.missing:.0%} missing" if self.missing else ""
        return f"{self.covariance} {self.shape[0]} x {self.shape[1]}, {self.kind} {self.distance:g}{holes}"


@dataclass(frozen=True)
class Sample:
    """A draw of a design."""

    X: Floats  # with NaN
    truth: Floats
    axes: Floats  # d x k
    bad_rows: Flags
    bad_cells: Flags  # in good rows

    @classmethod
    def draw(cls, design: Design, seed: int) -> Sample:
        """The same for the same seed."""
        rng = np.random.default_rng([SEED, seed])
        (n, d), k, share = design.shape, design.rank, design.share
        sizes, axes = _eigen(design.covariance, d, rng)
        mean = 3 * rng.standard_normal(d)
        clean = rng.standard_normal((n, d)) * np.sqrt(sizes) @ axes.T
        truth = mean + clean @ axes[:, :k] @ axes[:, :k].T
        of_rows = {"rows": share, "spread": share, "both": share / 2}.get(design.kind, 0.0)
        of_cells = {"cells": share, "both": share / 2}.get(design.kind, 0.0)
        bad_rows = rng.permutation(n) < round(of_rows * n)
        bad_cells = (rng.random((n, d)) < of_cells) & ~bad_rows[:, None]
        away = np.tile(axes[:, k], (n, 1))
        if design.kind == "spread":
            away = rng.standard_normal((n, d))
            away /= np.linalg.norm(away, axis=1, keepdims=True)
        X = mean + np.where(bad_rows[:, None], clean / np.sqrt(1.5) + design.distance * away, clean)
        spread = np.sqrt(axes**2 @ sizes)
        X[bad_cells] = (mean + design.distance * spread + np.zeros((n, d)))[bad_cells]
        X[rng.random((n, d)) < design.missing] = np.nan
        return cls(X, truth, axes[:, :k], bad_rows, bad_cells & ~np.isnan(X))


def _eigen(covariance: str, d: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Eigenvalues, descending, and eigenvectors."""
    if covariance == "alyz":
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        A = Q * np.linspace(1, 100, d) @ Q.T
        spread = np.sqrt(np.diag(A))
        axes = np.linalg.eigh(A / np.outer(spread, spread))[1][:, ::-1]
        return np.r_[30.0, 25.0, 20.0, 15.0, 10.0, 5.0, np.linspace(0.098, 0.0015, d - 6)], axes
    lag = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    sizes, axes = np.linalg.eigh((-0.9) ** lag)
    sizes, axes = sizes[::-1].copy(), axes[:, ::-1]
    if covariance == "lowrank":
        sizes[RANKS[covariance] :] = 0.01
    return sizes, axes


# ---------------------------------------------------------------------- who takes part


@dataclass(frozen=True)
class Fit:
    """What a method says of a sample."""

    fitted: Floats
    axes: Floats  # d x k
    bad_rows: Flags | None = None
    bad_cells: Flags | None = None
    seconds: float | None = None  # without the start of another program


Method = Callable[[Sample, int], Fit | None]  # None: the method cannot do this


def own(sample: Sample, k: int, rows: str | None = "robust") -> Fit:
    pca = ls.RobustPCA(k, rows=rows, random_state=7).fit(sample.X)
    assert pca.mean_ is not None
    wrong = pca.cell_outliers_.toarray() != 0
    return Fit(pca.mean_ + pca.result_.L.to_dense(), pca.components_.T, pca.row_outliers_.off, wrong)


def plain(sample: Sample, k: int) -> Fit:
    """PCA, with the medians of the columns for missing cells."""
    X = np.where(np.isnan(sample.X), np.nanmedian(sample.X, axis=0), sample.X)
    pca = PCA(k, svd_solver="full").fit(X)
    return Fit(pca.inverse_transform(pca.transform(X)), pca.components_.T)


def pcp(sample: Sample, k: int) -> Fit:
    """Principal component pursuit about the medians; its L cut to the rank."""
    centre = np.nanmedian(sample.X, axis=0)
    result = ls.solve(sample.X - centre, None, method="convex", random_state=7)
    left, sizes, right = np.linalg.svd(result.L.to_dense(), full_matrices=False)
    return Fit(centre + left[:, :k] * sizes[:k] @ right[:k], right[:k].T)


def mcd(sample: Sample, k: int) -> Fit | None:
    """The axes of the minimum covariance determinant; it needs complete rows, and far more of them than columns."""
    n, d = sample.X.shape
    if np.isnan(sample.X).any() or n < 5 * d:
        return None
    found = MinCovDet(random_state=7).fit(sample.X)
    axes = np.linalg.eigh(found.covariance_)[1][:, -k:]
    fitted = found.location_ + (sample.X - found.location_) @ axes @ axes.T
    return Fit(fitted, axes)


def oracle(sample: Sample, k: int) -> Fit:
    """Alternating least squares on the good cells of the good rows, begun at the truth."""
    good = ~np.isnan(sample.X) & ~sample.bad_cells
    rows = ~sample.bad_rows
    filled = np.where(good, sample.X, sample.truth)
    fitted = sample.truth
    for _ in range(1 if good[rows].all() else PASSES):
        centre = filled[rows].mean(axis=0)
        axes = np.linalg.svd(filled[rows] - centre, full_matrices=False)[2][:k].T
        fitted = centre + (filled - centre) @ axes @ axes.T
        filled = np.where(good, sample.X, fitted)
    return Fit(fitted, axes)


def in_r(method: str, package: str, sample: Sample, k: int) -> Fit | None:
    if not has_r(package) or (method == "robpca" and np.isnan(sample.X).any()):
        return None
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder, "X.csv"), sample.X, delimiter=",", fmt="%.10g")
        script = Path(__file__).with_suffix(".R")
        command = ["Rscript", str(script), method, str(Path(folder, "X.csv")), str(k), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        fitted = np.loadtxt(Path(folder, "fitted.csv"), delimiter=",")
        bad = np.zeros(len(fitted), bool)
        bad[np.loadtxt(Path(folder, "rows.csv"), dtype=int, ndmin=1) - 1] = True
    axes = np.linalg.svd(fitted - fitted.mean(axis=0))[2][:k].T
    return Fit(fitted, axes, bad, None, float(done.stdout))


@functools.cache
def has_r(package: str) -> bool:
    """Whether Rscript is found, and the package with it."""
    if shutil.which("Rscript") is None:
        return False
    asked = ["Rscript", "-e", f'quit(status = !requireNamespace("{package}", quietly = TRUE))']
    return subprocess.run(asked, capture_output=True).returncode == 0


METHODS: dict[str, Method] = {
    "lowsparse": own,
    "cells alone": functools.partial(own, rows=None),
    "plain PCA": plain,
    "PCP": pcp,
    "MCD": mcd,
    "ROBPCA": functools.partial(in_r, "robpca", "rrcov"),
    "MacroPCA": functools.partial(in_r, "macropca", "cellWise"),
    "oracle": oracle,
}
NOT_COMPARED = ("lowsparse", "cells alone", "oracle")  # when the best of the others is sought


# ---------------------------------------------------------------------- what is measured


def measure(method: Method, sample: Sample, k: int) -> dict[str, float | None] | None:
    """The error, the largest angle in degrees, what was flagged rightly, and the seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        fit = method(sample, k)
        seconds = time.perf_counter() - began
    if fit is None:
        return None
    good = ~sample.bad_rows
    in_good = sample.bad_cells[good], None if fit.bad_cells is None else fit.bad_cells[good]
    return {
        "error": float(np.mean((fit.fitted - sample.truth)[good] ** 2)),
        "angle": float(np.degrees(subspace_angles(fit.axes, sample.axes).max())),
        **_shares("row", sample.bad_rows, fit.bad_rows),
        **_shares("cell", *in_good),
        "seconds": seconds if fit.seconds is None else fit.seconds,
    }


def _shares(name: str, bad: Flags, flagged: Flags | None) -> dict[str, float | None]:
    """Precision and recall; None if nothing is flagged, or nothing is bad."""
    if flagged is None:
        return {f"{name}_precision": None, f"{name}_recall": None}
    right, bad_count, flagged_count = (np.count_nonzero(x) for x in (bad & flagged, bad, flagged))
    return {
        f"{name}_precision": right / flagged_count if flagged_count else None,
        f"{name}_recall": right / bad_count if bad_count else None,
    }


def median(lines: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """Over the draws."""
    known = {key: [line[key] for line in lines if line[key] is not None] for key in lines[0]}
    return {key: float(np.median(np.array(values, float))) if values else None for key, values in known.items()}


def run(design: Design, methods: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each method that can do it."""
    lines: dict[str, list[dict[str, float | None]]] = {name: [] for name in methods}
    for seed in seeds:
        sample = Sample.draw(design, seed)
        for name in methods:
            if (found := measure(METHODS[name], sample, design.rank)) is not None:
                lines[name].append(found)
    rows: list[dict[str, Any]] = [
        {"design": design.name, "method": name, **median(found)} for name, found in lines.items() if found
    ]
    best = min((row["error"] for row in rows if row["method"] not in NOT_COMPARED), default=None)
    for row in rows:
        yield row | {"over_best": None if best is None else row["error"] / best}


# ---------------------------------------------------------------------- larger than memory


def block(shape: tuple[int, int], axes: Floats, number: int) -> tuple[Floats, Flags]:
    """Some rows of a large table, with NaN, and which of them are bad."""
    rng = np.random.default_rng([SEED, 1, number])
    (n, d), k = shape, axes.shape[1] - 1
    bad = rng.random(n) < 0.1
    X = 3 + rng.standard_normal((n, k)) * np.linspace(6, 3, k) @ axes[:, :k].T + 0.2 * rng.standard_normal((n, d))
    X[bad] += 15 * axes[:, k]
    X[rng.random((n, d)) < 0.05] += 5.0
    X[rng.random((n, d)) < 0.2] = np.nan
    return X, bad


def stored(shape: tuple[int, int], k: int = 6, rows: int = 10_000) -> str:
    """What comes of a fit from disk: the angle, the bad rows, and the time."""
    import dask.array as da

    (n, d), rng = shape, np.random.default_rng([SEED, 0])
    axes = np.linalg.qr(rng.standard_normal((d, k + 1)))[0]
    sizes = [min(rows, n - first) for first in range(0, n, rows)]
    blank = da.zeros(shape, chunks=(tuple(sizes), d))
    X = blank.map_blocks(lambda x, block_id: block(x.shape, axes, block_id[0])[0], dtype=float)
    bad = np.concatenate([block((size, d), axes, number)[1] for number, size in enumerate(sizes)])
    began = time.perf_counter()
    pca = ls.RobustPCA(k, random_state=7).fit(X)
    seconds = time.perf_counter() - began
    found, rate = pca.row_outliers_.off, pca.result_.M.nnz / seconds / 1e6
    recall = (found & bad).sum() / bad.sum()
    angle = float(np.degrees(subspace_angles(pca.components_.T, axes[:, :k]).max()))
    return (
        f"{n} x {d} on {pca.result_.backend}: angle {angle:.3f} degrees, {recall:.1%} of the bad "
        f"rows found, {(found & ~bad).sum()} others; {seconds:.0f} s, {rate:.3f} million entries a second"
    )


def describe(rows: Sequence[dict[str, Any]]) -> str:
    header = ["", "error", "/ best other", "angle", "rows: prec.", "recall", "cells: prec.", "recall", "s"]
    keys = ("row_precision", "row_recall", "cell_precision", "cell_recall")
    body = [
        [
            row["method"],
            cell(row["error"], ".4f"),
            cell(row["over_best"], ".2f"),
            cell(row["angle"], ".1f"),
            *(cell(row[key], ".2f") for key in keys),
            cell(row["seconds"], ".2f"),
        ]
        for row in rows
    ]
    return f"{rows[0]['design']}\n" + table(header, body, left=(0,))


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How often our error is the smallest, and how large it is at most, relative to the best of the others."""
    ratios = np.array([r["over_best"] for r in rows if r["method"] == "lowsparse" and r["over_best"] is not None])
    if not ratios.size:
        return "nothing to compare with"
    return (
        f"lowsparse over the best of the others: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, "
        f"largest {ratios.max():.2f}; at most 1.5 in {np.count_nonzero(ratios <= 1.5)} of {ratios.size} designs"
    )


def designs(given: argparse.Namespace) -> Iterator[Design]:
    for shape in given.sizes:
        for covariance in given.covariances:
            for kind in given.kinds:
                for distance in KINDS[kind]:
                    for missing in given.missing:
                        yield Design(covariance, shape, kind, distance, missing, given.share)


def _size(text: str) -> tuple[int, int]:
    n, _, d = text.partition("x")
    return int(n), int(d)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outliers", description="Bad rows and bad cells.")
    parser.add_argument("--sizes", nargs="+", type=_size, default=SIZES, help="such as 100x200")
    parser.add_argument("--covariances", nargs="+", choices=RANKS, default=tuple(RANKS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=tuple(KINDS))
    parser.add_argument("--missing", nargs="+", type=float, default=(0.0, 0.2), help="shares (default: 0 0.2)")
    parser.add_argument("--share", type=float, default=0.2, help="of bad cells or rows (default: 0.2)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    parser.add_argument("--seeds", type=int, default=5, help="draws (default: 5)")
    parser.add_argument("--first", type=int, default=1, help="the first seed: those below 100 were used to tune")
    parser.add_argument("--stored", type=_size, help="a table from disk instead, such as 1000000x1000")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for outliers.csv")
    return parser.parse_args()


def main() -> None:
    given = parse()
    if given.stored is not None:
        print(stored(given.stored))
        return
    for name, package in (("ROBPCA", "rrcov"), ("MacroPCA", "cellWise")):
        if name in given.methods and not has_r(package):
            print(f"{name} is left out: there is no Rscript with {package}")
    seeds = range(given.first, given.first + given.seeds)
    rows: list[dict[str, Any]] = []
    for design in designs(given):
        found = list(run(design, given.methods, seeds))
        print(describe(found) + "\n", flush=True)
        rows += found
    print(summary(rows))
    write_csv(given.out / "outliers.csv", rows)
    print(f"numbers: {given.out}")


if __name__ == "__main__":
    main()
