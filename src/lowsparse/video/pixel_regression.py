"""Robust regression of blocks of pixels on coefficients v that are known for every frame.

With x_it value i of a block (four pixels and their colour) in frame t, and one weight for all values in a frame,

    b = argmin Σ_t w_t Σ_i (x_it - b_i · v_t)²,   w_t = 1 / (1 + mean_i (x_it - b_i · v_t)² / c_i²)²,

so that a pixel that is covered is covered in all colours. This is not the regression of `robust.regression`, whose
weights belong to single entries: it would take the colour of what covers a pixel for that of the background.

Arrays are values x blocks x samples (x), r x blocks x samples (v) and r x values x blocks (b), in single precision, of
NumPy or CuPy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..entries.pictures import NEUTRAL
from ..linalg.arrays import to_device_of
from ..robust.regression import EFFICIENT
from . import compiled
from .sampling import PixelSamples, Single

CANDIDATES, OTHERS = 12, 40  # samples that may be the typical one, and samples they are compared with
WIDTHS = 2.7, 10.0  # c / noise of blocks that are calm, and of restless ones:
CALM, RESTLESS = 0.2, 0.5  # share of the samples that differ from the ones before them
AGREES = 0.4  # mean of q² / (1 + q²) of a sample that agrees with most others
WIDE = np.float32(1.5)  # factor of c for the initial estimate
DARK = 0.05  # a frame of less brightness has no information
QUANTILE = 0.3  # of the residuals, for the noise: a pixel may be covered most of the time
FIRST_FITS, FITS = 2, 4  # regressions from the typical sample on, and with the noise that these leave


def fit_samples(x: Single, v: Single, level: Single) -> tuple[Single, Single]:
    """b (r x values x blocks) and noise (values x blocks) of x, given v and the level (values x 1) of the noise.

    The scale c_i of the loss is a factor times √(s_i s), s_i the noise of the value and s its level: with s_i alone
    what often covers a pixel would be taken for noise, with s alone a pixel on a waving tree would have no stable
    estimate. The factor is small where samples agree with the ones before them, so that who stands there for a while
    does not count; on leaves, which show now this, now that, it is large: b is in the middle of their looks.
    """
    b = initial_estimate(x, v, np.float32(EFFICIENT) * level)
    scale = np.sqrt(np.maximum(estimate_noise(x, v, b), level) * level)
    restless = np.clip((restlessness(x, v, b, np.float32(EFFICIENT) * level) - CALM) / (RESTLESS - CALM), 0, 1)
    factor = (WIDTHS[0] + (WIDTHS[1] - WIDTHS[0]) * restless).astype(np.float32, copy=False)
    b = regress(x, v, b, factor * scale, FITS)
    return b, estimate_noise(x, v, b)


def restlessness(x: Single, v: Single, b: Single, c: Single) -> Single:
    """How often the residuals of a block differ from the ones before them: a number from 0 to 1 for each block."""
    e = np.diff((x - np.einsum("rnk,rin->ink", v, b)) / c[..., None], axis=-1)
    q = (e * e).mean(axis=0) / 2
    q *= q
    return (q / (1 + q)).mean(axis=-1).astype(np.float32, copy=False)  # type: ignore[no-any-return]


def fit_samples_compiled(
    samples: PixelSamples,
    v: Single,
    level: tuple[float, float],
    tile: slice,
) -> tuple[Single, Single]:
    """The same for rank 1, of a tile of blocks; v has a number for each frame."""
    at = np.stack([v[one.offset[tile].astype(np.int64) + one.first] for one in samples.intervals])
    b, noise = compiled.fit_blocks(
        [one.values for one in samples.intervals],
        at,
        tile.start,
        _compared(len(samples)),
        level,
        (EFFICIENT, float(WIDE), AGREES, DARK, NEUTRAL, *WIDTHS, CALM, RESTLESS),
        (FIRST_FITS, FITS),
        _quantile(len(samples), 1),
    )
    return b[None], noise


def regress(x: Single, v: Single, b: Single, c: Single, n_reweight: int, power: int = 2) -> Single:
    """b of x on v by reweighted least squares, from an initial b on; the weights are to this power."""
    for _ in range(n_reweight):
        e = x - np.einsum("rnk,rin->ink", v, b)
        e /= c[..., None]
        e *= e
        w = (1 / (1 + e.mean(axis=0)) ** power).astype(np.float32, copy=False)
        b = _least_squares(x, v, w)
    return b


def _least_squares(x: Single, v: Single, w: Single) -> Single:
    """b with the least Σ w (x - v b)²."""
    wv = w * v
    right = np.einsum("rnk,ink->rin", wv, x)
    if len(v) == 1:
        b: Single = right / np.maximum(np.einsum("nk,nk->n", wv[0], v[0]), 1e-12)
        return b.astype(np.float32, copy=False)
    left = np.einsum("rnk,snk->nrs", wv, v).astype(np.float64)
    eye = to_device_of(np.eye(len(v)), v)
    left += 1e-9 * np.trace(left, axis1=1, axis2=2)[:, None, None] * eye + 1e-30 * eye
    b = np.linalg.solve(left, right.transpose(2, 0, 1).astype(np.float64))
    return b.transpose(1, 2, 0).astype(np.float32)


def initial_estimate(x: Single, v: Single, c: Single) -> Single:
    """b from the typical sample for rank 1; for higher ranks by regressions with decreasing c."""
    if len(v) == 1:
        bright = np.where(np.abs(v) < DARK, np.float32(DARK), v).astype(np.float32)
        b = typical_sample(x / bright, WIDE * c)[None]
        return regress(x, v, b, WIDE * c, FIRST_FITS)
    b = _least_squares(x, v, np.ones_like(x[0]))
    for factor in np.geomspace(64.0, 1.0, 10, dtype=np.float32):
        b = regress(x, v, b, factor * c, 1, power=1)
    return b


def typical_sample(x: Single, c: Single) -> Single:
    """The sample (values x blocks) of each block that agrees best with the others, or the first that agrees with most.

    The best has the least Σ q² / (1 + q²), q = mean (Δ/c)². Unlike the median, it finds a background that is seen more
    often than anything else, but less than half of the time.
    """
    candidates, others = _compared(x.shape[-1])
    scaled = x[..., to_device_of(others, x)] / c[..., None]
    least = np.full_like(x[0, :, 0], np.inf)
    best = x[..., 0].copy()
    blocks = to_device_of(np.arange(x.shape[1]), x)  # without a sample that agrees with most
    for k in candidates.tolist():
        e = scaled - (x[:, blocks, k] / c)[..., None]
        e *= e
        q = e.mean(axis=0)
        q *= q
        q /= 1 + q
        loss = q.mean(axis=-1)
        better = loss < least[blocks]
        best[:, blocks[better]] = x[:, blocks[better], k]
        least[blocks[better]] = loss[better]
        unsettled = loss > AGREES
        if not unsettled.all():
            blocks, scaled = blocks[unsettled], scaled[:, unsettled]
    return best


def _compared(samples: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which samples may be the typical one, and which they are compared with."""
    candidates, others = (np.unique(np.linspace(0, samples - 1, many).astype(int)) for many in (CANDIDATES, OTHERS))
    return candidates, others


def estimate_noise(x: Single, v: Single, b: Single) -> Single:
    """The standard deviation of each value of each block (values x blocks), from a quantile of its residuals."""
    e = np.abs(x - np.einsum("rnk,rin->ink", v, b))
    k, normal = _quantile(e.shape[-1], len(v))
    return (np.partition(e, k, axis=-1)[..., k] / normal).astype(np.float32, copy=False)


def _quantile(samples: int, rank: int) -> tuple[int, float]:
    """Which of the sorted residuals says the noise, and what it is beside the standard deviation of normal ones."""
    k = int(QUANTILE * samples)
    return k, float(ndtri(0.5 + 0.5 * (k + 0.5) / samples)) * math.sqrt(max(1 - rank / samples, 0.1))
