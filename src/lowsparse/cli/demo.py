"""`lowsparse demo`: the background of a street, from a tenth of the pixels of a video that comes with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from .again import command_again
from .footage import Job, process
from .output import Force, Json, Quiet, Voice

__all__ = ["demo"]

SAMPLE = "vtest.mp4"
OBSERVE = 0.1
FOLDER = "lowsparse-demo"
NOTES = (
    "the video is an excerpt of vtest.avi, a sample of OpenCV (Apache License 2.0)",
    "the same for a video of your own: lowsparse video FILE",
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for all that is written.")] = Path(FOLDER),
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """See it work: the background of a street from 10 % of the pixels.

    The video is short and comes with the package; nothing is downloaded. What is written is what `lowsparse video`
    writes: the background, what is in front of it, and a report to open in a browser.
    """
    with resources.as_file(resources.files("lowsparse").joinpath("data", SAMPLE)) as sample:
        job = Job(
            source=str(sample),
            out=out,
            name=SAMPLE,
            command=command_again(),
            force=force,
            settings={"rank": 1, "observe": OBSERVE},
            notes=NOTES,
        )
        process(job, Voice(quiet=quiet, json=json))
