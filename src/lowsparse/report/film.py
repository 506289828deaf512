"""Small pictures of a video at evenly spaced times, within a budget of bytes."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.checks import check_count
from ..support.optional import import_optional

Pixels = NDArray[np.uint8]  # grey (H, W) or RGB (H, W, 3)

BASE64 = 4 / 3  # characters per byte
QUALITIES = (80, 70, 60, 50)  # of JPEG
ROOM = 0.75  # share of the budget for pictures like the first, as others may be larger
SAME = 3  # grey levels of invisible differences


class Filmstrip:
    """Original, background and foreground of evenly spaced frames, added in order.

    The frames numbered 0, k, 2k, ... are kept. Whenever there are more than `most`, or more characters in the page than
    the `budget`, every second one is dropped and k doubles, so that memory stays bounded for endless videos; one frame
    is always kept, and pictures without a visible change count once. The number of `expected` frames, if known, sets
    the first k, and the quality of the pictures; those wider than `width` pixels are reduced by a whole factor.
    """

    def __init__(
        self, *, expected: int | None = None, most: int = 240, width: int = 480, budget: int = 6_000_000
    ) -> None:
        self.most, self.width = check_count("most", most), check_count("width", width)
        self.budget, self.expected = check_count("budget", budget), expected
        self.every = max(1, -(-(expected or 0) // most))
        self.quality = 0  # of JPEG; chosen when the first frame comes
        self.numbers: list[int] = []
        self.moments: list[tuple[bytes, bytes, bytes]] = []
        self._last: list[tuple[NDArray[np.uint8], bytes] | None] = [None, None, None]

    def wants(self, number: int) -> bool:
        """Whether this frame would be kept."""
        return number % self.every == 0

    def add(self, number: int, original: Pixels, background: Pixels, foreground: Pixels) -> None:
        """Add a frame, numbered from 0, if it is wanted."""
        if self.numbers and number <= self.numbers[-1]:
            raise ValueError(f"frames must be added in order: {number} came after {self.numbers[-1]}")
        if not self.wants(number):
            return
        self.quality = self.quality or self._best_quality(original, background, foreground)
        first, second, third = (self._encoded(k, one) for k, one in enumerate((original, background, foreground)))
        self.numbers.append(number)
        self.moments.append((first, second, third))
        while len(self.numbers) > 1 and (len(self.numbers) > self.most or self.size > self.budget):
            self._thin()

    @property
    def size(self) -> int:
        """The size of all pictures in the page, in characters."""
        different = {id(picture): len(picture) for moment in self.moments for picture in moment}
        return round(BASE64 * sum(different.values()))

    def stretch(self, aspect: float) -> None:
        """Show pixels with this width by their height, if that is not 1: the longer side of the two grows."""
        if aspect == 1:
            return
        stretched = {
            picture: _stretched(picture, aspect, self.quality) for moment in self.moments for picture in moment
        }
        self.moments = [(stretched[one], stretched[two], stretched[three]) for one, two, three in self.moments]

    def _thin(self) -> None:
        self.every *= 2
        kept = [k for k, number in enumerate(self.numbers) if self.wants(number)] or [0]
        self.numbers = [self.numbers[k] for k in kept]
        self.moments = [self.moments[k] for k in kept]

    def _best_quality(self, *pictures: Pixels) -> int:
        """The best JPEG quality that fits the budget, if the background changes little."""
        moments = -(-(self.expected or self.most) // self.every)
        for quality in QUALITIES[:-1]:
            original, background, foreground = (len(_jpeg(_reduced(one, self.width), quality)) for one in pictures)
            if BASE64 * (moments * (original + foreground) + background) <= ROOM * self.budget:
                return quality
        return QUALITIES[-1]

    def _encoded(self, pane: int, picture: Pixels) -> bytes:
        small = _reduced(picture, self.width)
        last = self._last[pane]
        if last is not None and _alike(last[0], small):
            return last[1]
        encoded = _jpeg(small, self.quality)
        self._last[pane] = small, encoded
        return encoded


def inline(picture: bytes) -> str:
    """A PNG or JPEG file as a data URL."""
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode('ascii')}"


def size(picture: bytes) -> tuple[int, int]:
    """Width and height of an encoded picture."""
    with pillow().open(io.BytesIO(picture)) as opened:
        width, height = opened.size
    return width, height


def _stretched(picture: bytes, aspect: float, quality: int) -> bytes:
    with pillow().open(io.BytesIO(picture)) as opened:
        width, height = opened.size
        shape = round(width * max(aspect, 1.0)), round(height * max(1 / aspect, 1.0))
        return _jpeg(np.asarray(opened.resize(shape)), quality)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The content of a PNG file."""
    file = io.BytesIO()
    pillow().fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def _jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    file = io.BytesIO()
    pillow().fromarray(pixels).save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()


def _reduced(picture: Pixels, width: int) -> NDArray[np.uint8]:
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
        raise ValueError(f"a picture must be (H, W) or (H, W, 3) of uint8, not {pixels.shape} of {pixels.dtype}")
    factor = -(-pixels.shape[1] // width)
    if factor == 1:
        return np.array(pixels)
    return np.asarray(pillow().fromarray(np.ascontiguousarray(pixels)).reduce(factor))


def _alike(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    return one.shape == other.shape and int(np.abs(one.astype(np.int16) - other).max()) <= SAME


def pillow() -> Any:
    """The module of pictures of Pillow, or an error that names the extra."""
    return import_optional("PIL.Image", "cli", "pictures")
