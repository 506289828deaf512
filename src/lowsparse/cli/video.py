"""`lowsparse video`: the background of a video, and what is in front of it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from .. import sweeps
from ..video.background import THRESHOLD
from ..video.pictures import Region
from .again import command_again, without_passwords
from .failure import require
from .footage import NAMES, Job, process
from .output import Force, Json, Quiet, Voice

__all__ = ["video"]

SUFFIX = "-lowsparse"


def video(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="A video file; a folder of pictures, or a pattern in quotes ('shots/*.png'); a .npy or .npz array "
            "(frames, height, width[, 3]); the address of a camera or stream (rtsp://...); or - for standard input.",
        ),
    ],
    rank: Annotated[
        int,
        typer.Option(help="Of the background. 1 follows the brightness; more also lights that are switched."),
    ] = 1,
    observe: Annotated[
        float | None,
        typer.Option(
            help="Share of the pixels of each frame to look at: 0.1 is 10 %. [default: 80 looks at each pixel, but "
            "at least 0.1; with --stream 0.1]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help=f"Folder for all that is written. [default: IN{SUFFIX}]")] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Follow the scene instead of learning one background from the whole video: frames are read once, in "
            "bounded memory, new scenes are noticed. Ctrl-C ends the stream, and keeps what has been found so far.",
        ),
    ] = False,
    grey: Annotated[bool, typer.Option("--grey", "--gray", help="Leave the colours out; it is faster.")] = False,
    region: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="Only this part of the picture: left, top, width, height.")
    ] = None,
    start: Annotated[int, typer.Option(help="The first frame to read, counted from 0.")] = 0,
    stop: Annotated[int | None, typer.Option(help="The frame before which to end. [default: at the end]")] = None,
    every: Annotated[int, typer.Option(help="Read one of so many frames.")] = 1,
    shrink: Annotated[int, typer.Option(help="Make pictures smaller: blocks of so many pixels become one.")] = 1,
    threshold: Annotated[
        float, typer.Option(help="How much a pixel must differ to be in front. Less finds more, also noise.")
    ] = THRESHOLD,
    clean: Annotated[
        int, typer.Option(help="Radius in pixels within which most must be in front as well; 0 leaves specks.")
    ] = 1,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="What to compare with: a folder of masks (numbered as their frames), an .npz with masks (gt, "
            "gt_frame_id), or a picture of the clean background."
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            help=f"Where the background is solved: auto, {', '.join(sweeps.BACKENDS)} (a GPU).",
            autocompletion=lambda: _backends(),
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Of the choice of pixels.")] = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the background of a video, and what is in front of it.

    A random share of the pixels is looked at, and the background is the low-rank part of what was seen. Written are
    the background (background.png, background.mp4), what is in front of it (mask.mp4, cutout.mp4), and report.html, a
    page with a player. Frames that cannot be read are skipped and counted.

    \b
    lowsparse video street.avi --observe 0.1
    lowsparse video 'shots/*.png' --grey --out street
    lowsparse video rtsp://camera/live --stream --every 5
    """
    for name, value in (("--rank", rank), ("--every", every), ("--shrink", shrink)):
        require(value >= 1, f"{name} must be 1 or more, not {value}")
    for name, value in (("--start", start), ("--seed", seed)):
        require(value >= 0, f"{name} must be 0 or more, not {value}")
    require(observe is None or 0 < observe <= 1, f"--observe must be a share above 0 and up to 1, not {observe}")
    require(stop is None or stop > start, f"--stop must be more than --start, {start}, not {stop}")
    require(0 < threshold < math.inf, f"--threshold must be a number above 0, not {threshold:g}")
    require(0 <= clean <= 20, f"--clean must be a number of pixels from 0 to 20, not {clean}")
    require(backend in _backends(), f"--backend must be one of {', '.join(_backends())}, not {backend}")
    out = out or Path(name_of(source) + SUFFIX)
    own = [str(out / name) for name in NAMES if Path(source).exists() and _same(Path(source), out / name)]
    require(not own, f"{source} would be overwritten by the result: choose another --out")
    settings = {
        "rank": rank,
        "observe": observe,
        "colour": not grey,
        "region": _region(region),
        "start": start,
        "stop": stop,
        "every": every,
        "shrink": shrink,
        "threshold": threshold,
        "clean": clean,
        "truth": truth,
        "random_state": seed,
        "backend": backend,
    }
    job = Job(
        source=source,
        out=out,
        name=without_passwords(Path(source).name if Path(source).exists() else source),
        command=command_again(),
        stream=stream,
        force=force,
        settings=settings,
    )
    process(job, Voice(quiet=quiet, json=json))


def name_of(source: str) -> str:
    """What to call the result of a source.

    >>> [name_of(one) for one in ("films/a.avi", "shots/in*.png", "rtsp://me:secret@cam-2/live", "rtsp://cam-2/", "-")]
    ['a', 'shots', 'live', 'cam-2', 'video']
    """
    if "://" in source:
        parts = urlsplit(source)
        name = Path(parts.path).stem or parts.hostname or ""
        return re.sub(r"[^\w.-]+", "-", name) or "video"
    path = Path(source)
    if not path.exists() and re.search(r"[*?\[]", source):
        path = path.parent
    name = path.resolve().name if path.is_dir() else path.stem
    return name.lstrip("-") or "video"


def _region(text: str | None) -> Region | None:
    """
    >>> _region("10,20,300,200")
    (10, 20, 300, 200)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    good = len(parts) == 4 and all(re.fullmatch(r"\d{1,6}", part) for part in parts)
    require(good, f"--region must be X,Y,W,H, four whole numbers of pixels, not {text}")
    x, y, width, height = map(int, parts)
    require(width > 0 and height > 0, f"--region must have a width and a height above 0, not {text}")
    return x, y, width, height


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


def _backends() -> list[str]:
    return ["auto", *sweeps.BACKENDS]
