"""`lowsparse video` against a plain transcode of the same file, and its masks against those of the median.

    python -m benchmarks.video --data ../shared/data

Time: the whole process, from vtest.avi to films and report, and a process that decodes the file with PyAV and encodes
it with libx264 as it is set by default; in turns, the medians count, and the memory is the most a process held.
Masks: the best F1 over all thresholds, from 10 % of the pixels, and of the distance to the median of all frames at each
pixel, as it is or smoothed by a median filter like ours, whichever is better. Scenes are the `.npz` files with masks
(`gt`, `gt_frame_id`), and synthetic ones whose masks are known.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

import lowsparse as ls
from lowsparse.cli.text import table
from lowsparse.video import metrics

DATA = Path(__file__).resolve().parents[1] / "../shared/data"
FILM = "vtest.avi"
OPTIONS = ("--rank", "1", "--observe", "0.1")
BOUNDS = {"video": (2.5, 1500.0), "video --stream": (float("inf"), 500.0)}  # times the transcode, megabytes
TRANSCODE = """
import sys
import av
with av.open(sys.argv[1]) as source, av.open(sys.argv[2], "w") as target:
    film = source.streams.video[0]
    out = target.add_stream("libx264", rate=film.average_rate)
    out.width, out.height, out.pix_fmt = film.width, film.height, "yuv420p"
    for frame in source.decode(film):
        target.mux(out.encode(frame))
    target.mux(out.encode())
"""

Measured = tuple[float, float]  # seconds, megabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with vtest.avi and scenes with masks")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, whose median counts; 0: masks only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.repeat and (options.data / FILM).exists():
            print(times(options.data / FILM, Path(folder), options.repeat), end="\n\n")
        elif options.repeat:
            print(f"there is no {options.data / FILM}: no times\n")
        print(masks(scenes(options.data, Path(folder)), Path(folder)))


# ---------------------------------------------------------------------- time and memory


def times(film: Path, folder: Path, repeat: int) -> str:
    """A table of seconds and megabytes."""
    lowsparse = [sys.executable, "-m", "lowsparse", "video", str(film), *OPTIONS, "--quiet", "--force"]
    commands = {
        "transcode": [sys.executable, "-c", TRANSCODE, str(film), str(folder / "transcoded.mp4")],
        "video": [*lowsparse, "--out", str(folder / "out")],
        "video --stream": [*lowsparse, "--out", str(folder / "stream"), "--stream"],
    }
    runs: dict[str, list[Measured]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            runs[name].append(measured(command))
    seconds = {name: statistics.median(one for one, _ in found) for name, found in runs.items()}
    rows = []
    for name, found in runs.items():
        ratio, memory = seconds[name] / seconds["transcode"], max(one for _, one in found)
        most, room = BOUNDS.get(name, (float("inf"), float("inf")))
        verdict = "" if name not in BOUNDS else "met" if ratio <= most and memory <= room else "MISSED"
        rows.append([name, f"{seconds[name]:.1f}", f"{ratio:.2f}", f"{memory:.0f}", verdict])
    return table(["command", "seconds", "ratio", "MB", "bound"], rows, left=(0, 4))


def measured(command: list[str]) -> Measured:
    """How long a process takes, and the most memory it holds."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
    return time.perf_counter() - began, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


# ---------------------------------------------------------------------- masks


def scenes(data: Path, folder: Path) -> Iterator[Path]:
    """Archives with frames and masks."""
    for path in sorted(data.glob("*.npz")):
        with np.load(path) as arrays:
            if {"frames", "gt", "gt_frame_id"} <= set(arrays.files):
                yield path
    for seed in (1, 2):
        clip = ls.datasets.moving_blocks(150, 96, 128, random_state=seed)
        shown = np.arange(10, 150, 20)
        gt = 255 * clip.moving[shown].astype(np.uint8)
        path = folder / f"synthetic-{seed}.npz"
        np.savez(path, frames=clip.frames, frame_id=np.arange(150), gt=gt, gt_frame_id=shown)
        yield path


def masks(paths: Iterator[Path], folder: Path) -> str:
    """A table of F1 scores."""
    rows = []
    for path in paths:
        ours, theirs = of_lowsparse(path, folder / path.stem), of_median(path)
        verdict = "met" if ours["best_f1"] >= theirs else "MISSED"
        rows.append([path.stem, f"{ours['best_f1']:.3f}", f"{ours['f1']:.3f}", f"{theirs:.3f}", verdict])
    return table(
        ["scene", "best F1, from 10 %", "F1 as it is set", "best F1, median of all", "bound"], rows, left=(0, 4)
    )


def of_lowsparse(path: Path, out: Path) -> dict[str, float]:
    """Our scores, from the command."""
    options = [*OPTIONS, "--truth", str(path), "--out", str(out), "--json", "--quiet"]
    command = [sys.executable, "-m", "lowsparse", "video", str(path), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout)["scores"])


def of_median(path: Path) -> float:
    """The best F1 of |frame - median over time|, smoothed or not."""
    with np.load(path) as arrays:
        frames, labels, gt = arrays["frames"], arrays["frame_id"].tolist(), arrays["gt"] > 127
        shown = frames[[labels.index(label) for label in arrays["gt_frame_id"]]]
    far: NDArray[Any] = np.abs(shown - np.median(frames, axis=0))
    smooth = np.stack([ndimage.median_filter(one, 3, mode="nearest") for one in far])
    return max(metrics.best_f1(one, gt)[0] for one in (far, smooth))


if __name__ == "__main__":
    main()
