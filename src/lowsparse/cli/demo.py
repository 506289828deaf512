"""`lowsparse demo`: the background of a street, from 10 % of the pixels of a video in the package."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from .footage import VideoJob, process_video
from .output import Force, Json, Output, Quiet

SAMPLE = "vtest.mp4"
OBSERVE = 0.1
FOLDER = "lowsparse-demo"
NOTES = (
    "the video is an excerpt of vtest.avi, a sample of OpenCV (Apache License 2.0)",
    "for your own video: lowsparse video FILE",
)


def demo(
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path(FOLDER),
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Separate a short sample video into background and foreground.

    Nothing is downloaded: the video comes with the package. The output is that of `lowsparse video`: the background,
    the foreground, and a report to open in a browser.

    \b
      lowsparse demo
      lowsparse demo --out elsewhere --force
    """
    with resources.as_file(resources.files("lowsparse").joinpath("data", SAMPLE)) as sample:
        settings = {"rank": 1, "observe": OBSERVE}
        job = VideoJob(source=str(sample), out=out, name=SAMPLE, force=force, settings=settings, notes=NOTES)
        process_video(job, Output(quiet=quiet, json=json))
