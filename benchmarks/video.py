"""`lowsparse video` against a plain transcode of the same file, and its masks against those of others.

    python -m benchmarks.video --out results

Time: the whole process, from vtest.avi to films and report, and a process that decodes the file with PyAV and encodes
it with libx264 as it is set by default; in turns, the medians count, and the memory is the most a process held.
Masks: F1 over all frames but the first tenth, in which others learn, on the scenes of `benchmarks.scenes`, for the
methods of `benchmarks.subtractors`; those of OpenCV need the package opencv-contrib-python-headless, SuBSENSE needs
pybgs, which is compiled and wants OpenCV's C++ headers (Debian's libopencv-dev). The last line has the time of
processors that each method took for all scenes, relative to ours. These clips are small and short, and ours learns of
each first: `--speed 300` times the methods on so many frames of vtest.avi, halved and as they are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lowsparse.cli.text import table
from lowsparse.entries.frames import Frames
from lowsparse.support.files import write_csv
from lowsparse.video import metrics

from .realdata import FOLDER
from .scenes import FILM, Mask, Scene, Sources, available, make
from .subtractors import SUBTRACTORS, missing

LEARNING = 10  # the first of so many parts of a clip is not judged
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
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder with the research data, if they are at hand")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, whose median counts; 0: masks only")
    parser.add_argument("--scenes", nargs="*", metavar="SCENE", help="only these (none: times only)")
    parser.add_argument("--methods", nargs="+", choices=list(SUBTRACTORS), help="only these")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the scenes; means are shown")
    parser.add_argument("--speed", type=int, default=0, metavar="FRAMES", help="time so many frames of vtest.avi, too")
    parser.add_argument("--out", type=Path, help="folder for video.csv")
    options = parser.parse_args()
    sources = Sources.of(options.data)
    names = available(sources) if options.scenes is None else options.scenes
    unknown = sorted(set(names) - set(available(sources)))
    if unknown:
        parser.error(f"no scene {unknown[0]!r} here; there are {', '.join(available(sources))}")
    if options.repeat and (options.data / FILM).exists():
        with tempfile.TemporaryDirectory() as folder:
            print(times(options.data / FILM, Path(folder), options.repeat), end="\n\n")
    elif options.repeat:
        print(f"there is no {options.data / FILM}: no times\n")
    absent = missing()
    for package, names_of in absent.items():
        print(f"without {', '.join(names_of)}: install {package}\n")
    methods = [name for name in options.methods or SUBTRACTORS if not any(name in of for of in absent.values())]
    if options.speed and (options.data / FILM).exists():
        print(speeds(options.data / FILM, options.speed, methods), end="\n\n")
    rows = list(scores(names, sources, options.seeds, methods))
    if rows:
        print(summary(rows, methods))
        if options.out is not None:
            write_csv(options.out / "video.csv", rows, digits=4)


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


def speeds(film: Path, n_frames: int, methods: Sequence[str]) -> str:
    """A table of the time of processors of each method, in milliseconds per frame, without decoding."""
    whole = np.stack([one.picture.rgb() for one in islice(Frames(film), n_frames)])
    lines = []
    for frames in (whole[:, ::2, ::2], whole):
        clip = Scene(film.name, np.ascontiguousarray(frames), np.zeros((0, *frames.shape[1:3]), bool), np.empty(0, int))
        took = []
        for method in methods:
            began = time.process_time()
            SUBTRACTORS[method](clip)
            took.append(1000 * (time.process_time() - began) / len(frames))
        lines.append([f"{frames.shape[2]} x {frames.shape[1]}", *(f"{one:.1f}" for one in took)])
    return table([f"ms, {len(whole)} frames", *methods], lines, left=(0,))


# ---------------------------------------------------------------------- masks


def scores(
    names: Sequence[str], sources: Sources, seeds: Sequence[int], methods: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """A row for each scene, seed and method: F1, and seconds."""
    for seed in seeds:
        for name in names:
            scene = make(name, sources, seed)
            for method in methods:
                began = time.process_time()
                masks = SUBTRACTORS[method](scene)
                seconds = time.process_time() - began
                yield {"scene": name, "seed": seed, "method": method, "f1": f1(masks, scene), "seconds": seconds}


def f1(masks: Mask, scene: Scene) -> float:
    """F1 of the masks of a clip, over all frames with a truth but the first tenth of the clip."""
    judged = scene.at >= len(scene.frames) // LEARNING
    return metrics.f1(masks[scene.at[judged]], scene.moving[judged])


def summary(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> str:
    """The mean F1 of each method on each scene and on all, and its time."""
    names = list(dict.fromkeys(row["scene"] for row in rows))

    def mean(key: str, method: str, name: str | None = None) -> float:
        return float(np.mean([row[key] for row in rows if row["method"] == method and name in (None, row["scene"])]))

    lines = [[name, *(f"{mean('f1', method, name):.2f}" for method in methods)] for name in names]
    lines.append(["mean", *(f"{mean('f1', method):.3f}" for method in methods)])
    own = mean("seconds", methods[0])
    lines.append(["time", *(f"{mean('seconds', method) / own:.2f}" for method in methods)])
    return table(["F1", *methods], lines, left=(0,))


if __name__ == "__main__":
    main()
