"""Moments of a video as small pictures: the original, the background and the foreground, within a budget of bytes."""

from __future__ import annotations

import base64
import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Filmstrip", "Picture", "inline", "size"]

Picture = bytes | NDArray[np.uint8]  # encoded already, or grey (H, W), or red, green and blue (H, W, 3)

SIGNATURES = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png", b"RIFF": "image/webp"}
BASE64 = 4 / 3  # characters a byte
QUALITIES = (80, 70, 60, 50)  # of JPEG
ROOM = 0.75  # of the budget for pictures like the first: others may be larger
SAME = 3  # grey levels nobody sees the difference of


class Filmstrip:
    """Evenly spaced moments of a video, each as three pictures, that come one after the other and are thinned out.

    The frames numbered 0, k, 2k, ... are kept. Whenever there are too many, or too many bytes, every second one is
    dropped and k doubles: a video may be endless, and memory stays bounded.

    Parameters
    ----------
    expected
        How many frames there will be, if that is known: k, and the quality of the pictures, start so that they fit.
    most
        Moments at most.
    width
        Pixels across at most. Larger pictures are reduced by a whole factor.
    budget
        Bytes of all pictures in the page, where three bytes take four characters. Pictures without a visible change
        count once. One moment is kept in any case.

    Examples
    --------
    >>> film = Filmstrip(expected=100, most=30)
    >>> for t in range(100):
    ...     if film.wants(t):
    ...         frame = np.full((48, 64), 2 * t, np.uint8)
    ...         film.add(t, frame, background=frame, foreground=np.zeros((48, 64, 3), np.uint8))
    >>> film, film.numbers[:3]
    (Filmstrip(25 moments, one of 4 frames), [0, 4, 8])
    """

    def __init__(
        self,
        *,
        expected: int | None = None,
        most: int = 240,
        width: int = 480,
        budget: int = 6_000_000,
    ) -> None:
        for name, value in (("most", most), ("width", width), ("budget", budget)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        self.most, self.width, self.budget, self.expected = most, width, budget, expected
        self.every = max(1, -(-(expected or 0) // most))
        self.quality = 0  # of JPEG; chosen when the first frame comes
        self.numbers: list[int] = []
        self.moments: list[tuple[bytes, bytes, bytes]] = []
        self._last: list[tuple[NDArray[np.uint8], bytes] | None] = [None, None, None]

    def wants(self, number: int) -> bool:
        """Whether this frame would be kept; the pictures of others need not be made."""
        return number % self.every == 0

    def add(self, number: int, original: Picture, background: Picture, foreground: Picture) -> None:
        """Keep a frame if it is one of those wanted; the first frame has the number 0."""
        if self.numbers and number <= self.numbers[-1]:
            raise ValueError(f"frames come in their order: {number} came after {self.numbers[-1]}")
        if not self.wants(number):
            return
        self.quality = self.quality or self._affordable(original, background, foreground)
        first, second, third = (self._encoded(k, one) for k, one in enumerate((original, background, foreground)))
        self.numbers.append(number)
        self.moments.append((first, second, third))
        while len(self.numbers) > 1 and (len(self.numbers) > self.most or self.size > self.budget):
            self._thin()

    @property
    def size(self) -> int:
        """Characters of all pictures in the page."""
        different = {id(picture): len(picture) for moment in self.moments for picture in moment}
        return round(BASE64 * sum(different.values()))

    def _thin(self) -> None:
        self.every *= 2
        kept = [k for k, number in enumerate(self.numbers) if self.wants(number)] or [0]
        self.numbers = [self.numbers[k] for k in kept]
        self.moments = [self.moments[k] for k in kept]

    def _affordable(self, original: Picture, background: Picture, foreground: Picture) -> int:
        """The best quality with which the moments expected fit, if the background changes little."""
        moments = -(-(self.expected or self.most) // self.every)
        for quality in QUALITIES[:-1]:
            costs = [self._cost(one, quality) for one in (original, background, foreground)]
            if BASE64 * (moments * (costs[0] + costs[2]) + costs[1]) <= ROOM * self.budget:
                return quality
        return QUALITIES[-1]

    def _cost(self, picture: Picture, quality: int) -> int:
        return len(picture if isinstance(picture, bytes) else _jpeg(_reduced(picture, self.width), quality))

    def _encoded(self, pane: int, picture: Picture) -> bytes:
        if isinstance(picture, bytes):
            kind(picture)
            return picture
        small = _reduced(picture, self.width)
        last = self._last[pane]
        if last is not None and _alike(last[0], small):
            return last[1]
        encoded = _jpeg(small, self.quality)
        self._last[pane] = small, encoded
        return encoded

    def __repr__(self) -> str:
        spacing = f", one of {self.every} frames" if self.every > 1 else ""
        return f"Filmstrip({len(self.numbers)} moments{spacing})"


def kind(picture: bytes) -> str:
    """The media type of an encoded picture.

    >>> kind(b"\\xff\\xd8\\xff...")
    'image/jpeg'
    """
    for signature, name in SIGNATURES.items():
        if picture.startswith(signature):
            return name
    raise ValueError(f"pictures are JPEG, PNG or WebP; this one begins with {picture[:8]!r}")


def inline(picture: bytes) -> str:
    """An encoded picture as the address of itself.

    >>> inline(b"\\xff\\xd8\\xff")
    'data:image/jpeg;base64,/9j/'
    """
    return f"data:{kind(picture)};base64,{base64.b64encode(picture).decode('ascii')}"


def size(picture: bytes) -> tuple[int, int]:
    """Width and height of an encoded picture."""
    with _pillow().open(io.BytesIO(picture)) as opened:
        width, height = opened.size
    return width, height


def _jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    file = io.BytesIO()
    _pillow().fromarray(pixels).save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()


def _reduced(picture: Any, width: int) -> NDArray[np.uint8]:
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
        raise ValueError(f"a picture is (H, W) or (H, W, 3) of uint8, not {pixels.shape} of {pixels.dtype}")
    factor = -(-pixels.shape[1] // width)
    if factor == 1:
        return np.array(pixels)
    return np.asarray(_pillow().fromarray(np.ascontiguousarray(pixels)).reduce(factor))


def _alike(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    return one.shape == other.shape and int(np.abs(one.astype(np.int16) - other).max()) <= SAME


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError("pictures need Pillow: python -m pip install 'lowsparse[cli]'") from error
