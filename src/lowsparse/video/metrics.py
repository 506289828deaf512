"""Errors of an estimated background and scores of a foreground mask, as in the benchmarks of the field.

The errors of a background compare two pictures of the same shape with grey levels from 0 to 255; of several, (T, H, W),
the mean is taken. CQM alone compares colours. These six are those of SBI and SBMnet, with their threshold of 20 levels.

L. Maddalena, A. Petrosino: Towards benchmarking scene background initialization. ICIAP workshops, 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from ..entries.pictures import REC601
from ..sweeps import Float

THRESHOLD = 20.0  # grey levels: a pixel that is farther off is an error
CROSS = ndimage.generate_binary_structure(2, 1)  # a pixel and its four neighbours
SCALES = np.array([0.0448, 0.2856, 0.3001, 0.2363, 0.1333])  # weights of MS-SSIM, the finest first
WINDOW = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
WINDOW /= WINDOW.sum()
RODS, CONES = 0.9449, 0.0551  # shares of the receptors of the eye: weights of CQM


def age(found: ArrayLike, truth: ArrayLike) -> float:
    """Average grey-level error: the mean of |found - truth|, from 0 (equal) to 255.

    >>> age([[10, 20], [30, 40]], [[10, 24], [30, 40]])
    1.0
    """
    return _mean(lambda error: float(error.mean()), found, truth)


def peps(found: ArrayLike, truth: ArrayLike, threshold: float = THRESHOLD) -> float:
    """Share of error pixels: those with |found - truth| > threshold, from 0 to 1.

    >>> peps([[10, 20], [30, 40]], [[10, 60], [50, 40]])  # 20 levels are not yet an error
    0.25
    """
    return _mean(lambda error: float(np.mean(error > threshold)), found, truth)


def pceps(found: ArrayLike, truth: ArrayLike, threshold: float = THRESHOLD) -> float:
    """Share of clustered error pixels: error pixels all of whose four neighbours are error pixels too, from 0 to 1.

    They show what the eye sees, a blob left behind; single wrong pixels do not count. At the border, the neighbours
    inside the picture decide.

    >>> truth = np.zeros((5, 5))
    >>> blob = truth.copy()
    >>> blob[1:4, 1:4] = 100.0  # nine error pixels, of which only the middle one has no other neighbours
    >>> pceps(blob, truth)
    0.04
    """

    def share(error: Float) -> float:
        return float(np.mean(ndimage.binary_erosion(error > threshold, CROSS, border_value=1)))

    return _mean(share, found, truth)


def psnr(found: ArrayLike, truth: ArrayLike) -> float:
    """Peak signal-to-noise ratio in decibels: 10 log10(255² / mean (found - truth)²); infinite if they are equal.

    >>> round(psnr([[0.0, 0.0]], [[0.0, 255.0]]), 6)  # a mean square error of 255² / 2
    3.0103
    """

    def decibels(error: Float) -> float:
        mean_square = float(np.mean(error**2))
        return 10 * math.log10(255.0**2 / mean_square) if mean_square else math.inf

    return _mean(decibels, found, truth)


def ms_ssim(found: ArrayLike, truth: ArrayLike) -> float:
    """Multi-scale structural similarity: l · Π cs_k^w_k over five scales, at most 1 (equal).

    With the means μ, variances and covariance σ of both pictures in a Gaussian window of 11 x 11 pixels (σ = 1.5),
    l = (2 μ μ' + C₁) / (μ² + μ'² + C₁) counts on the coarsest scale, and cs = (2 σ_12 + C₂) / (σ_1² + σ_2² + C₂) on
    all; C₁ = 2.55² and C₂ = 7.65². From scale to scale blocks of 2 x 2 pixels become their mean. Pictures with a side
    of fewer than 176 pixels have fewer scales, with larger weights.

    Z. Wang, E. P. Simoncelli, A. C. Bovik: Multiscale structural similarity for image quality assessment. Asilomar
    Conference on Signals, Systems and Computers, 2003.

    >>> picture = np.add.outer(np.arange(200.0), np.zeros(200))
    >>> ms_ssim(picture, picture), round(ms_ssim(picture, picture[::-1]), 4)
    (1.0, 0.0)
    """
    one, other = _pictures(found, truth)
    return sum(_similarity(a, b) for a, b in zip(one, other, strict=True)) / len(one)


def _similarity(one: Float, other: Float) -> float:
    if min(one.shape) < WINDOW.size:
        raise ValueError(f"MS-SSIM needs pictures of {WINDOW.size} x {WINDOW.size} pixels or more, not {one.shape}")
    scales = min(len(SCALES), 1 + int(math.log2(min(one.shape) / WINDOW.size)))
    weights = SCALES[:scales] * (SCALES.sum() / SCALES[:scales].sum())
    product = 1.0
    for k in range(scales):
        luminance, structure = _luminance_and_structure(one, other)
        last = k == scales - 1
        product *= max(float(np.mean(luminance * structure if last else structure)), 0.0) ** weights[k]
        one, other = _halved(one), _halved(other)
    return float(product)


def _luminance_and_structure(one: Float, other: Float) -> tuple[Float, Float]:
    def smooth(a: Float) -> Float:
        blurred = ndimage.correlate1d(ndimage.correlate1d(a, WINDOW, axis=0), WINDOW, axis=1)
        return np.asarray(blurred[5:-5, 5:-5], dtype=np.float64)

    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    mu, nu = smooth(one), smooth(other)
    covariance = smooth(one * other) - mu * nu
    variances = smooth(one**2) - mu**2 + smooth(other**2) - nu**2
    return (2 * mu * nu + c1) / (mu**2 + nu**2 + c1), (2 * covariance + c2) / (variances + c2)


def _halved(a: Float) -> Float:
    even = np.pad(a, [(0, size % 2) for size in a.shape], mode="edge")
    return (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4


def cqm(found: ArrayLike, truth: ArrayLike) -> float:
    """Colour image quality measure in decibels: 0.9449 PSNR(Y) + 0.0551 (PSNR(U) + PSNR(V)) / 2; infinite if equal.

    Of (H, W, 3) red, green and blue: Y = (R + 2 G + B) / 4 rounded down, U = R - G, V = B - G. The weights are the
    shares of the rods and the cones among the receptors of the eye. One plane without an error makes it infinite.

    Y. Yalman, İ. Ertürk: A new color image quality measure based on YUV transformation and PSNR for human vision
    system. Turkish Journal of Electrical Engineering and Computer Sciences 21(2), 2013.

    >>> truth = np.full((4, 4, 3), 100.0)
    >>> round(cqm(truth + [4, 0, 4], truth), 2)  # errors of 2, 4 and 4
    41.78
    """
    one, other = _pair(found, truth)
    if one.ndim != 3 or one.shape[2] != 3:
        raise ValueError(f"CQM compares pictures in colour, (H, W, 3), not {one.shape}")
    y, u, v = (psnr(a, b) for a, b in zip(_yuv(one), _yuv(other), strict=True))
    return RODS * y + CONES * (u + v) / 2


def _yuv(rgb: Float) -> tuple[Float, Float, Float]:
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    return np.floor((red + 2 * green + blue) / 4), red - green, blue - green


def f1(found: ArrayLike, truth: ArrayLike) -> float:
    """F-measure of a mask, 2 tp / (2 tp + fp + fn): from 0 (nothing in common) to 1 (equal, also if both are empty).

    >>> f1([[True, True, False]], [[True, False, False]])
    0.6666666666666666
    """
    one, other = np.asarray(found), np.asarray(truth)
    if one.dtype != bool or other.dtype != bool:
        raise TypeError(f"masks are boolean, not {one.dtype} and {other.dtype}")
    if one.shape != other.shape:
        raise ValueError(f"the masks have different shapes: {one.shape} and {other.shape}")
    total = int(one.sum() + other.sum())
    return 2 * int(np.sum(one & other)) / total if total else 1.0


def best_f1(distance: ArrayLike, truth: ArrayLike) -> tuple[float, float]:
    """The largest F-measure of the masks ``distance > threshold``, and that threshold, halfway between two distances.

    >>> best_f1([[0.1, 0.2, 0.7, 0.3]], [[False, True, True, False]])
    (0.8, 0.15000000000000002)
    """
    far, true = np.asarray(distance, dtype=np.float64).ravel(), np.asarray(truth)
    if true.dtype != bool:
        raise TypeError(f"masks are boolean, not {true.dtype}")
    if np.shape(distance) != true.shape:
        raise ValueError(f"the distances and the mask have different shapes: {np.shape(distance)} and {true.shape}")
    if not true.any():
        return 1.0, float(far.max(initial=0.0))  # nothing is to be found
    order = np.argsort(-far, kind="stable")
    far, hits = far[order], np.cumsum(true.ravel()[order])
    scores = 2 * hits / (np.arange(1, far.size + 1) + hits[-1])
    ends = np.append(far[1:] < far[:-1], True)  # a threshold cannot part equal distances
    best = int(np.argmax(np.where(ends, scores, -1.0)))
    below = far[best + 1] if best + 1 < far.size else 0.0
    return float(scores[best]), float(far[best] + below) / 2


def background_metrics(found: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """The first four errors of a background, by name.

    >>> background_metrics([[10.0, 20.0], [30.0, 40.0]], [[10.0, 20.0], [30.0, 40.0]])
    {'age': 0.0, 'peps': 0.0, 'pceps': 0.0, 'psnr': inf}
    """
    return {measure.__name__: measure(found, truth) for measure in (age, peps, pceps, psnr)}


def scene_metrics(found: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """All six errors of a background by name, of two pictures in colour, (H, W, 3), or in grey, then without CQM.

    All but CQM compare the grey levels 0.299 R + 0.587 G + 0.114 B.

    >>> white = np.full((20, 30, 3), 255.0)
    >>> {name: round(value, 3) for name, value in scene_metrics(white - 25.5, white).items()}
    {'age': 25.5, 'peps': 1.0, 'pceps': 1.0, 'psnr': 20.0, 'ms_ssim': 0.994, 'cqm': inf}
    """
    one, other = (np.asarray(a, dtype=np.float64) for a in (found, truth))
    grey = [a @ REC601 if a.ndim == 3 else a for a in (one, other)]
    measures = {**background_metrics(*grey), "ms_ssim": ms_ssim(*grey)}
    return {**measures, "cqm": cqm(one, other)} if one.ndim == other.ndim == 3 else measures


def _mean(measure: Callable[[Float], float], found: ArrayLike, truth: ArrayLike) -> float:
    """The mean over the pictures of a measure of |found - truth|."""
    one, other = _pictures(found, truth)
    return sum(measure(error) for error in np.abs(one - other)) / len(one)


def _pictures(found: ArrayLike, truth: ArrayLike) -> tuple[Float, Float]:
    """Both as (T, H, W)."""
    one, other = _pair(found, truth)
    if one.ndim not in (2, 3) or not one.size:
        raise ValueError(f"a picture is (H, W) and several are (T, H, W), not {one.shape}")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise ValueError("the pictures hold NaN or infinite numbers")
    return one.reshape(-1, *one.shape[-2:]), other.reshape(-1, *other.shape[-2:])


def _pair(found: ArrayLike, truth: ArrayLike) -> tuple[Float, Float]:
    one, other = np.asarray(found, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if one.shape != other.shape:
        raise ValueError(f"the pictures have different shapes: {one.shape} and {other.shape}")
    return one, other
