"""Subspaces from streams, one pass: how far from the truth, how fast, and in how much memory.

    python -m pip install hyperspy scikit-learn
    python -m benchmarks.streaming --out results

Samples come in batches of 50, frames in batches of 20. Everybody runs in a process of its own, after a tiny stream
(what is loaded or compiled on first use is not counted), and gets the same dense batches, NaN where nothing is
observed; what it takes to turn them into what somebody wants is counted. The memory is the most that process held, less
what it held with all the data in it. Who is not installed is left out; who takes longer than the limit is stopped.
Dense algebra on all threads suffers much from other work on the machine: run it on a quiet one, or set
OPENBLAS_NUM_THREADS=1.

Streams: standard normal factors, a tenth of the observed entries wrong by normal numbers of standard deviation 8, in
several sizes; in "change" the second half is of another subspace, and what comes out is compared with that one. The
measure is the largest principal angle to the truth. "video": grey frames with half of the pixels hidden; each frame is
placed robustly on the subspace in the end, for all in the same way, and the measure is the mean absolute error of the
hidden pixels in grey levels, people who walk by included. It is left out where there are no videos.

- lowsparse: `lowsparse.streaming.Stream`; the rank is given, and for "change" a half-life of 100 samples.
- GRASTA: `lowsparse.solvers.tracking.SubspaceTracker` with mu_max = 15, from a random start.
- hyperspy's ORPCA: needs complete data, so the median of the feature in the batch stands in for what is missing. Of its
  methods and a grid of its parameters the best on another stream of the first kind were taken: closed form, lambda1 =
  lambda2 = 0.75 times the median distance of an entry from the median of its feature, in the first batch. Its own (0.1
  and 1) are in units of the data.
- scikit-learn's IncrementalPCA: not robust, for reference; completed in the same way. Its mean counts as a component
  for the video, and is left out of the others, where the truth has none.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import lowsparse as ls
from lowsparse.cli.text import table
from lowsparse.robust.regression import EFFICIENT, SubspaceRegression
from lowsparse.solvers.tracking import Rules, SubspaceTracker
from lowsparse.streaming import Stream
from lowsparse.support.files import write_csv

from .apart import Entrant, add_arguments, load, measured, quietly, row_of
from .realdata import FOLDER
from .shown import cell, error_against_seconds

OUTLIERS, OUTLIER_SIZE = 0.1, 8.0
GREY_NOISE = 4.0  # levels: what is farther off is not of the background, when a frame is placed

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A stream to be made."""

    samples: int
    features: int
    rank: int
    missing: float
    noise: float = 0.0
    change: bool = False
    video: str = ""  # file
    batch: int = 50

    def shrunk(self, factor: int) -> Kind:
        """A small one of the same kind."""
        return replace(self, samples=max(self.samples // factor, 150), features=max(self.features // factor, 40))


STREAMS = {
    "exact": Kind(500, 120, 4, 0.3),
    "noisy": Kind(500, 120, 4, 0.3, 0.1),
    "complete": Kind(500, 120, 4, 0.0, 0.1),
    "long": Kind(20_000, 200, 5, 0.5, 0.1),
    "wide": Kind(1000, 5000, 5, 0.5, 0.1),
    "change": Kind(1200, 120, 4, 0.3, 0.1, change=True),
    "video": Kind(0, 0, 3, 0.5, video="i2r_escalator200.npz", batch=20),
}


@dataclass(frozen=True)
class Data:
    """A stream that has been made."""

    X: NDArray[Any]  # a row for each sample, NaN where nothing is observed
    truth: NDArray[Any]  # features x rank, in the end; of a video, the frames
    rank: int
    batch: int
    half_life: float | None
    video: bool

    def batches(self) -> Iterator[NDArray[Any]]:
        """Some rows after the other."""
        for first in range(0, len(self.X), self.batch):
            yield self.X[first : first + self.batch]

    def completed(self) -> Iterator[Float]:
        """The same, with the median of the feature in the batch for what is missing; 0 where that is all of it."""
        for X in self.batches():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of features that are missing altogether
                usual = np.nan_to_num(np.nanmedian(X, axis=0))
            yield np.where(np.isnan(X), usual, X).astype(np.float64)


def make(kind: Kind, folder: Path) -> Data:
    """Draw the samples, or read the frames."""
    rng = np.random.default_rng(33)
    if kind.video:
        frames = np.load(folder / kind.video)["frames"]
        truth = frames.reshape(len(frames), -1).astype(np.float32)
        X = np.where(rng.random(truth.shape) < kind.missing, np.nan, truth).astype(np.float32)
        return Data(X, truth, kind.rank, kind.batch, None, video=True)
    scenes = [rng.standard_normal((kind.features, kind.rank)) for _ in range(2 if kind.change else 1)]
    parts = np.array_split(rng.standard_normal((kind.samples, kind.rank)), len(scenes))
    X = np.vstack([V @ scene.T for V, scene in zip(parts, scenes, strict=True)])
    X += kind.noise * rng.standard_normal(X.shape)
    wrong = rng.random(X.shape) < OUTLIERS
    X[wrong] += OUTLIER_SIZE * rng.standard_normal(np.count_nonzero(wrong))
    X[rng.random(X.shape) < kind.missing] = np.nan
    return Data(X, scenes[-1], kind.rank, kind.batch, 100.0 if kind.change else None, video=False)


def error(data: Data, U: Float) -> float:
    """The largest angle from the truth to U (orthonormal); of a video, grey levels where pixels are hidden."""
    if not np.isfinite(U).all():
        return math.inf
    if not data.video:
        Q = np.linalg.qr(data.truth)[0]
        return math.asin(min(1.0, float(np.linalg.norm(Q - U @ (U.T @ Q), 2))))
    regression = SubspaceRegression(U, EFFICIENT * GREY_NOISE, float(np.nanmedian(np.abs(data.X))))
    total, hidden = 0.0, 0
    for first in range(0, len(data.X), data.batch):
        X, truth = data.X[first : first + data.batch], data.truth[first : first + data.batch]
        V = regression.coefficients(ls.ObservedMatrix.from_dense(X.T))
        unseen = np.isnan(X)
        total += float(np.abs(V @ U.T - truth)[unseen].sum())
        hidden += int(np.count_nonzero(unseen))
    return total / hidden


# ---------------------------------------------------------------------- who takes part


def ours(data: Data) -> Float:
    stream = Stream(data.X.shape[1], data.rank, half_life=data.half_life)
    for X in data.batches():
        stream.push(ls.ObservedMatrix.from_dense(X.T))
    return stream.U


def grasta(data: Data) -> Float:
    start = np.random.default_rng(12).standard_normal((data.X.shape[1], data.rank))
    tracker = SubspaceTracker(start, Rules(mu_max=15.0))
    for X in data.batches():
        tracker.run(ls.ObservedMatrix.from_dense(X.T))
    return tracker.U


def orpca(data: Data) -> Float:
    first = next(data.batches())
    weight = 0.75 * float(np.nanmedian(np.abs(first - np.nanmedian(first, axis=0))))
    learner = load("hyperspy.learn._rpca").ORPCA(
        data.rank, method="CF", lambda1=weight, lambda2=weight, training_samples=min(10, data.batch), random_state=1
    )
    for X in data.completed():
        learner.partial_fit(X)
    Q: Float = np.linalg.qr(learner.components_.T)[0]
    return Q


def incremental_pca(data: Data) -> Float:
    mean_too = int(data.video)
    learner = load("sklearn.decomposition").IncrementalPCA(data.rank - mean_too)
    for X in data.completed():
        if len(X) >= data.rank:
            learner.partial_fit(X)
    columns = [learner.mean_[:, None]] * mean_too + [learner.components_.T]
    Q: Float = np.linalg.qr(np.hstack(columns))[0]
    return Q


@dataclass(frozen=True)
class Contestant(Entrant):
    """Somebody who takes part."""

    run: Callable[[Data], Float]


CONTESTANTS = {
    "ours": Contestant("lowsparse", ours),
    "grasta": Contestant("lowsparse GRASTA", grasta),
    "orpca": Contestant("hyperspy ORPCA", orpca, package="hyperspy", module="hyperspy.learn._rpca"),
    "pca": Contestant(
        "IncrementalPCA (not robust)",
        incremental_pca,
        package="scikit-learn",
        module="sklearn.decomposition",
    ),
}


# ---------------------------------------------------------------------- measuring


def save(data: Data, folder: Path) -> None:
    """For the processes that measure."""
    about = {name: value for name, value in asdict(data).items() if name not in ("X", "truth")}
    (folder / "about.json").write_text(json.dumps(about))
    np.save(folder / "X.npy", data.X)
    np.save(folder / "truth.npy", data.truth)


def saved(folder: Path) -> Data:
    """What was saved."""
    about = json.loads((folder / "about.json").read_text())
    return Data(np.load(folder / "X.npy"), np.load(folder / "truth.npy"), **about)


def in_this_process(contestant: Contestant, folder: Path, limit: float) -> dict[str, float | None]:
    """Seconds, error and bytes of one contestant on the stream in the folder."""
    contestant.load()
    data = saved(folder)
    with quietly():
        contestant.run(make(Kind(150, 30, 2, 0.0, 0.1), folder))
        U, taken = measured(lambda: contestant.run(data), limit)
        return {**taken, "error": error(data, U)}


def of_stream(name: str, data: Data, wanted: dict[str, Contestant], limit: float) -> list[dict[str, Any]]:
    """Run everybody; one row for each."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        save(data, Path(place))
        for key, contestant in wanted.items():
            rows.append(
                {
                    "stream": name,
                    "samples": data.X.shape[0],
                    "features": data.X.shape[1],
                    "rank": data.rank,
                    "missing": float(np.isnan(data.X).mean()),
                    "contestant": key,
                    "label": contestant.label,
                    "version": contestant.version,
                    **row_of("streaming", key, Path(place), limit),
                }
            )
    own = next((row for row in rows if row["contestant"] == "ours"), None)
    for row in rows:
        for part in ("seconds", "error", "bytes"):
            both = own is not None and own[part] and row[part] is not None
            row[f"{part}_over_ours"] = row[part] / own[part] if own is not None and both else None
    return rows


def describe(rows: list[dict[str, Any]], video: bool) -> str:
    """The table of one stream."""
    first = rows[0]
    body = [
        [
            row["label"],
            row["version"],
            cell(row["error"], ".2f" if video else ".1e"),
            cell(row["error_over_ours"], ".3g"),
            cell(row["seconds"], ".3f"),
            cell(row["seconds_over_ours"], ".2f"),
            cell(row["bytes"], ".1f", 1e6),
            cell(row["bytes_over_ours"], ".2f"),
            row["remark"],
        ]
        for row in rows
    ]
    title = (
        f"{first['stream']}: {first['samples']} samples of {first['features']} features, rank {first['rank']}, "
        f"{first['missing']:.0%} missing"
    )
    header = ["", "version", "grey levels" if video else "angle", "/ ours", "s", "/ ours", "MB", "/ ours", ""]
    return title + "\n" + table(header, body, left=(0, 1, 8))


def figure(rows: list[dict[str, Any]]) -> Figure:
    """Error against seconds, a panel for every stream."""
    names = dict.fromkeys(row["stream"] for row in rows)
    return error_against_seconds(
        {name: [row for row in rows if row["stream"] == name] for name in names},
        CONTESTANTS,
        title="One pass over streams",
        y_name="angle to the truth (video: grey levels)",
        size=(2.4 * max(len(names), 2), 3.4),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description="Subspaces from streams.")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS), help="default: all")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), help="default: all")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each (default: 120)")
    parser.add_argument("--quick", action="store_true", help="small streams: to see that it runs")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the videos (default: ../shared/data)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for streaming.csv and streaming.png")
    add_arguments(parser, CONTESTANTS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(in_this_process(CONTESTANTS[given.one], given.at, given.limit)), flush=True)
        return
    if not given.limit > 0:
        parser.error("--limit must be positive")
    wanted = {
        name: CONTESTANTS[name] for name in CONTESTANTS if name in given.contestants and CONTESTANTS[name].version
    }
    for package in dict.fromkeys(CONTESTANTS[name].package for name in given.contestants if name not in wanted):
        print(f"not installed: pip install {package}")
    rows: list[dict[str, Any]] = []
    for name in (name for name in STREAMS if name in given.streams):
        kind = STREAMS[name]
        if kind.video and (given.quick or not (given.data / kind.video).exists()):
            print(f"{name}: left out" + ("" if given.quick else f", {given.data / kind.video} is not there"))
            continue
        data = make(
            kind.shrunk(10 if kind.samples > 1200 or kind.features > 400 else 3) if given.quick else kind, given.data
        )
        found = of_stream(name, data, wanted, given.limit)
        print(describe(found, data.video) + "\n", flush=True)
        rows += found
    if not rows:
        parser.error("nobody to measure: see above what is missing")
    write_csv(given.out / "streaming.csv", rows)
    figure(rows).savefig(given.out / "streaming.png")
    print(f"picture and numbers: {given.out}")


if __name__ == "__main__":
    main()
