"""How a background looks in a picture, from some thousand pixels: its coefficients, its curve of tones and its tint.

The coefficients come from the robust regression of the probed pixels on their b; where something large may be in front,
those near the usual ones are likelier than others. Then a tint is looked for, and a curve of tones (see `tint` and
`tone`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.pictures import Picture
from ..robust.regression import EFFICIENT, WILD, SubspaceRegression
from ..sweeps import Float, host_backend
from .light import NO_LIGHT
from .sampling import Single
from .tint import NO_TINT, TintProbe, tinted
from .tone import ToneProbe

PROBES = 4096  # pixels that determine v of a frame, for each rank
# Times the median noise, up to which a pixel may be one of these: the quieter half may all be behind something large,
# and then none of what is seen determines v.
QUIET = 1.5
TONED, TINTED = 1024, 2048  # of them determine the curve of tones, and the tint
EXPLAINED = 0.25  # of the probes: a frame with fewer gets the usual v
# Share of the probes below which something large may be in front: then v near the usual one is likelier than another,
# by which a dark object is taken for the background without light, unless that explains three times as many.
COVERED = 0.6


@dataclass(frozen=True)
class Probe:
    """Some of the calm pixels of a background.

    >>> rng = np.random.default_rng(1)
    >>> b = rng.uniform(40, 120, (1, 60, 80)).astype(np.float32)
    >>> one = np.ones(1)
    >>> probe = Probe.of(b, None, np.ones((60, 80), np.float32), 1.0, one, one, "numpy")
    >>> v, explained = probe.coefficients_of([Picture(np.rint(1.5 * b[0]).astype(np.uint8))])
    >>> round(float(v[0, 0]), 2), float(explained[0]) > 0.95
    (1.5, True)
    """

    pixels: NDArray[np.int32]
    regression: SubspaceRegression  # on an orthonormal basis of their b
    to_v: Float  # from coefficients on it
    near: Float  # the usual v on it
    usual: Float
    brightness: Float  # r numbers, of which the product with v is the brightness
    backend: str
    tone: ToneProbe
    tint: TintProbe | None  # none without colours

    @classmethod
    def of(
        cls,
        luma: Single,
        chroma: Single | None,
        noise: Single,
        level: float,
        usual: Float,
        brightness: Float,
        backend: str,
    ) -> Self:
        """Of the planes of a background, the noise of its pixels and that of most, and its usual v."""
        quiet = np.flatnonzero(noise.ravel() <= QUIET * np.median(noise)).astype(np.int32)
        rng = np.random.default_rng(0x70726F6265)
        pixels = np.sort(rng.permutation(quiet)[: PROBES * len(luma)])
        b = luma.reshape(len(luma), -1)[:, pixels].T.astype(np.float64)
        Q, R = np.linalg.qr(b)
        unit, near = float(np.median(np.abs(b @ usual))) or 1.0, R @ usual
        regression = SubspaceRegression(Q, EFFICIENT * level, unit, WILD * float(np.linalg.norm(near)) or math.inf)
        toned, colours = (pixels[:: max(1, pixels.size // many)] for many in (TONED, TINTED))
        tint = None if chroma is None else TintProbe.at(colours, luma, chroma)
        tone = ToneProbe.at(toned, luma)
        return cls(pixels, regression, np.linalg.pinv(R), near, usual, brightness, host_backend(backend), tone, tint)

    def coefficients_of(self, pictures: Sequence[Picture]) -> tuple[Float, Float]:
        """The coefficients, the curve of tones and the tint of each picture, and the share of the pixels that agree."""
        v, explained = self._light_of(pictures)
        if self.tint is None:
            tints = np.zeros((len(pictures), NO_TINT.size))
            v, explained = self._with_tones(pictures, v, explained)
        else:
            light = np.where((v @ self.brightness > NO_LIGHT)[:, None], v, self.usual)
            tints = np.stack([self.tint.fit(one, own) for one, own in zip(pictures, light, strict=True)])
            even = [tinted(one, -a) if a.any() else one for one, a in zip(pictures, tints, strict=True)]
            v, explained = self._with_tones(even, *(self._light_of(even) if tints.any() else (v, explained)))
        return np.concatenate([v, tints], axis=1), explained

    def _light_of(self, pictures: Sequence[Picture]) -> tuple[Float, Float]:
        """The r coefficients of each picture, and the share of the probed pixels that agree with them."""
        X = np.stack([picture.luma.ravel()[self.pixels] for picture in pictures], axis=1).astype(np.float32)
        M, regression = ObservedMatrix.from_dense(X), self.regression
        found, near = regression.coefficients(M, self.backend), regression.coefficients_near(self.near, M, self.backend)
        explained, near_explained = (
            (np.abs(regression.B @ C.T - X) <= regression.c).mean(axis=0) for C in (found, near)
        )
        covered = (explained < COVERED) & (near_explained > explained / 3)
        takes_near = covered | (near_explained > explained)
        v = np.where(takes_near[:, None], near, found) @ self.to_v.T
        explained = np.where(takes_near, near_explained, explained)
        v[explained < EXPLAINED] = self.usual
        return v, explained

    def _with_tones(self, pictures: Sequence[Picture], v: Float, explained: Float) -> tuple[Float, Float]:
        """The same, with the curves of tones of those pictures that have one of their own."""
        bright, c = np.maximum(v @ self.brightness, NO_LIGHT), self.regression.c
        even = v * (self.usual @ self.brightness / bright)[:, None]  # as it is, and as bright as usual
        found = [self.tone.fit(one.luma, light, base, c) for one, light, base in zip(pictures, v, even, strict=True)]
        tones, shares = np.stack([tone for tone, _ in found]), np.array([share for _, share in found])
        has_tone: NDArray[np.bool_] = np.any(tones != 0, axis=1)
        v, explained = np.where(has_tone[:, None], even, v), np.where(has_tone, shares, explained)
        return np.concatenate([v, tones], axis=1), explained
