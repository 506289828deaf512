"""`lowsparse video`: separate a video into background and foreground."""

import math
import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from ..entries.pictures import Region
from ..places.decide import available
from ..support.addresses import shown_address
from ..video.background import THRESHOLD
from ..video.tracking import ABSORB
from ..video.views import FILMS, VIEWS, parse_film
from .failure import require
from .footage import VideoJob, process_video
from .output import Force, Json, Output, Quiet

SUFFIX = "-lowsparse"
BACKENDS = ["auto", *available()]
DEFAULT_FILMS = ",".join(FILMS)


def video(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="A video file; a folder of pictures, or a quoted pattern ('shots/*.png'); a .npy or .npz array "
            "(frames, height, width[, 3]); the URL of a camera or stream (rtsp://...); or - for standard input.",
        ),
    ],
    rank: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rank of the background: 1 follows the brightness, more also lights that are switched. [default: 1, "
            "or 2 if light changes in a part of the picture; with --stream not for switched ones]",
        ),
    ] = None,
    observe: Annotated[
        float | None,
        typer.Option(
            help="Fraction of the pixels of each frame to use: 0.1 is 10 %. [default: 80 samples per pixel, but at "
            "least 0.1; with --stream 0.1]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help=f"Output folder. [default: IN{SUFFIX}]")] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Follow the scene instead of learning one background from the whole video: frames are read once, in "
            "bounded memory, and new scenes are detected. Ctrl-C ends the stream and keeps the results so far.",
        ),
    ] = False,
    absorb: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --stream: what stays in front that long becomes background; 0: as soon as it can, inf: never. "
            f"[default: {ABSORB:g}]",
        ),
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", "--gray", help="Ignore colours; faster.")] = False,
    region: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="Use only this part of the picture: left, top, width, height.")
    ] = None,
    start: Annotated[int, typer.Option(min=0, help="First frame to read, counted from 0.")] = 0,
    stop: Annotated[int | None, typer.Option(help="Frame before which to stop. [default: the end]")] = None,
    every: Annotated[int, typer.Option(min=1, help="Read only every n-th frame.")] = 1,
    shrink: Annotated[
        int, typer.Option(min=1, help="Reduce pictures by this factor: blocks of pixels become one.")
    ] = 1,
    fps: Annotated[
        float | None,
        typer.Option(
            help="Frames per second, for pictures and arrays, or instead of a video's own times. [default: 25]"
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="How much a foreground pixel must differ. Lower values find more, also noise.")
    ] = THRESHOLD,
    clean: Annotated[
        int,
        typer.Option(
            min=0, max=20, help="Radius in pixels within which most must be foreground as well; 0 keeps specks."
        ),
    ] = 1,
    stabilise: Annotated[
        bool,
        typer.Option(
            "--stabilise",
            "--stabilize",
            help="Undo the shaking of the camera in the films. It never disturbs the masks.",
        ),
    ] = False,
    films: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help=f"What to film: {', '.join(VIEWS)}, or none. Each is an MP4; mask.mkv is without loss (FFV1), as are "
            "the pictures in a folder of mask.png.",
        ),
    ] = DEFAULT_FILMS,
    tracks: Annotated[
        bool,
        typer.Option("--tracks", help="Write boxes and tracks of objects: tracks.csv, and tracks.json as in COCO."),
    ] = False,
    audio: Annotated[bool, typer.Option("--audio", help="Keep the sound of a video file in the films.")] = False,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Ground truth to compare with: a folder of masks (numbered as their frames), an .npz with masks (gt, "
            "gt_frame_id), or a picture of the clean background."
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            help=f"Where the background is solved: {', '.join(BACKENDS)} (a GPU).", autocompletion=lambda: BACKENDS
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the choice of pixels.")] = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Separate a video into background and foreground.

    The background is the low-rank part of a random sample of the pixels. The output folder holds the background
    (background.png), the foreground (mask.mp4, cutout.mp4, or what --films asks for), and report.html, a page with a
    player. Damaged frames are skipped and counted.

    \b
      lowsparse video street.avi --observe 0.1
      lowsparse video 'shots/*.png' --grey --out street
      lowsparse video rtsp://camera/live --stream --every 5
    """
    require(observe is None or 0 < observe <= 1, f"--observe must be a share above 0 and up to 1, not {observe}")
    require(stop is None or stop > start, f"--stop must be more than --start, {start}, not {stop}")
    require(0 < threshold < math.inf, f"--threshold must be a number above 0, not {threshold:g}")
    require(backend in BACKENDS, f"--backend must be one of {', '.join(BACKENDS)}, not {backend}")
    require(fps is None or 0 < fps < math.inf, f"--fps must be a number above 0, not {fps}")
    require(fps is None or not audio, "--audio and --fps do not go together: sound has the pace of the video")
    require(absorb is None or stream, "--absorb is for a background that follows the scene: give --stream as well")
    require(absorb is None or absorb >= 0, f"--absorb must be a number of seconds, 0 or more, not {absorb}")
    settings: dict[str, Any] = {
        "rank": rank,
        "observe": observe,
        "absorb": ABSORB if absorb is None else absorb,
        "colour": not grey,
        "region": _region(region),
        "start": start,
        "stop": stop,
        "every": every,
        "shrink": shrink,
        "fps": fps,
        "threshold": threshold,
        "clean": clean,
        "stabilise": stabilise,
        "films": _films(films),
        "tracks": tracks,
        "audio": audio,
        "truth": truth,
        "random_state": seed,
        "backend": backend,
    }
    path, out = Path(source), out or Path(name_of(source) + SUFFIX)
    name = path.name if path.exists() else shown_address(source)
    job = VideoJob(source=source, out=out, name=name, stream=stream, force=force, settings=settings)
    own = [name for name in job.outputs if path.exists() and (out / name).exists() and path.samefile(out / name)]
    require(not own, f"{source} would be overwritten by the result: choose another --out")
    process_video(job, Output(quiet=quiet, json=json))


def name_of(source: str) -> str:
    """A name for the output of a source.

    >>> [name_of(one) for one in ("films/a.avi", "shots/in*.png", "rtsp://me:secret@cam-2/live", "rtsp://cam-2/", "-")]
    ['a', 'shots', 'live', 'cam-2', 'video']
    """
    if "://" in source:
        parts = urlsplit(shown_address(source))
        name = Path(parts.path).stem or parts.hostname or ""
        return re.sub(r"[^\w.-]+", "-", name) or "video"
    path = Path(source)
    if not path.exists() and re.search(r"[*?\[]", source):
        path = path.parent
    name = path.resolve().name if path.is_dir() else path.stem
    return name.lstrip("-") or "video"


def _films(text: str) -> tuple[str, ...]:
    films = () if text.strip() == "none" else tuple(part.strip() for part in text.split(","))
    for film in films:
        try:
            parse_film(film)
        except ValueError as error:
            require(False, f"--films: {error}")
    return films


def _region(text: str | None) -> Region | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    valid = len(parts) == 4 and all(re.fullmatch(r"\d{1,6}", part) for part in parts)
    require(valid, f"--region must be X,Y,W,H, four whole numbers of pixels, not {text}")
    x, y, width, height = map(int, parts)
    require(width > 0 and height > 0, f"--region must have a width and a height above 0, not {text}")
    return x, y, width, height
