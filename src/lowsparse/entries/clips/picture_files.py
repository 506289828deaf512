"""Frames that are picture files, in the order of the numbers in their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .media import MediaReader, import_av
from .reader import LazyFrame, NoVideoError, Reader

PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


class PictureReader(Reader):
    """Picture files, each a frame."""

    def __init__(self, paths: list[Path], colour: bool) -> None:
        import_av()  # raises here, not at the first frame
        self.paths, self.colour, self.length = sorted(paths, key=_natural_order), colour, len(paths)

    def __iter__(self) -> Iterator[LazyFrame | None]:
        for t, path in enumerate(self.paths):
            try:
                lazy = next(iter(MediaReader(str(path), self.colour)), None)
            except NoVideoError:
                lazy = None
            yield None if lazy is None else LazyFrame(frame_label(path, t), None, lazy.picture)


def frame_label(path: Path, default: int) -> int:
    """The last number in the name of a file.

    >>> frame_label(Path("cam2-in000123.png"), 0), frame_label(Path("shot.png"), 7)
    (123, 7)
    """
    numbers = re.findall(r"\d+", path.stem)
    return int(numbers[-1]) if numbers else default


def _natural_order(path: Path) -> list[str | int]:
    """The sort key by which frame2 comes before frame10: the name, split into text and numbers."""
    return [int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", path.name))]
