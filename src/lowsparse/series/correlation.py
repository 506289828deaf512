"""The autocorrelation of series with gaps: robust, and a correlation function (its spectrum is not negative)."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from ..linalg.scale import CONSISTENT
from ..sweeps import Float
from .runs import Index

TAIL = 0.9  # share of the numbers of a column whose largest one its spread follows
CLIP = 3.0  # spreads, at which a number counts
FEW = 2.0  # pairs of readings; an autocorrelation of fewer tends to 0
LEAST_LAG, PERIODS = 200, 4  # lags up to this number, and this many of the longest period
LONG = 1000  # numbers of a column, from which on a partition is faster than to sort them
BLOCK = 1 << 16  # numbers that are transformed together: they stay in the cache
NOISE = 1e-3  # share of the variance that is independent from moment to moment, at least


def column_scales(R: Float) -> Float:
    """The robust scale of each column about 0: that of half of it, or of all of it if half of it is 0; 1 if all is.

    >>> column_scales(np.array([[1.0, 0.0], [-1.0, 0.0], [np.nan, 0.0]])).round(2).tolist()
    [1.48, 1.0]
    """
    magnitudes, count = _magnitudes(R)
    (half,) = _of_ranks(magnitudes, _middle(count))
    return _scales(half, magnitudes, count)


def column_medians(R: Float) -> Float:
    """The median of each column, NaN left out; NaN if nothing else is there.

    >>> column_medians(np.array([[1.0, 5.0], [3.0, np.nan], [2.0, 9.0]])).tolist()
    [2.0, 7.0]
    """
    count = np.count_nonzero(~np.isnan(R), axis=0)
    below, above = _of_ranks(np.array(R.T), _middle(count), count // 2 * (count > 0))
    return np.asarray((below + above) / 2)


def column_spreads(R: Float, share: float = TAIL) -> Float:
    """As `column_scales`, but at least that of nine tenths of the column: what is usual in series with heavy tails.

    >>> column_spreads(np.arange(-100.0, 101.0)[:, None] ** 3).round(-4).tolist()
    [440000.0]
    """
    magnitudes, count = _magnitudes(R)
    half, largest = _of_ranks(magnitudes, _middle(count), (share * np.maximum(count - 1, 0)).astype(np.intp))
    tail = largest / NormalDist().inv_cdf((1 + share) / 2)
    return np.asarray(np.fmax(_scales(half, magnitudes, count), tail))


def spread(x: Float, share: float = TAIL) -> float:
    """As `column_spreads`, of one column of numbers without NaN.

    >>> round(spread(np.arange(-100.0, 101.0) ** 3), -4)
    440000.0
    """
    if not x.size:
        return 1.0
    magnitudes, middle, last = np.abs(x), (len(x) - 1) // 2, int(share * (len(x) - 1))
    magnitudes.partition(middle)
    half = CONSISTENT * float(magnitudes[middle])
    above = magnitudes[middle:]
    above.partition(last - middle)
    tail = float(magnitudes[last]) / NormalDist().inv_cdf((1 + share) / 2)
    return max(half or float(np.mean(magnitudes)) or 1.0, tail)


def _magnitudes(R: Float) -> tuple[Float, Index]:
    """The magnitudes of each column, as a row; and how many are known."""
    magnitudes = np.abs(R.T, order="C")
    return magnitudes, np.count_nonzero(~np.isnan(magnitudes), axis=1)


def _middle(count: Index) -> Index:
    """The rank of the median among so many numbers, the lower one of two."""
    return np.maximum(count - 1, 0) // 2


def _of_ranks(lines: Float, *ranks: Index) -> list[Float]:
    """The number of each row that has a rank, for each of the ranks, NaN last; the rows are put in another order."""
    if lines.shape[1] < LONG:
        lines.sort(axis=1)
    else:
        for line, *own in zip(lines, *ranks, strict=True):
            first = 0
            for rank in sorted(set(own)):
                line[first:].partition(rank - first)
                first = rank + 1
    return [lines[np.arange(len(lines)), rank] for rank in ranks]


def _scales(half: Float, magnitudes: Float, count: Index) -> Float:
    scale = CONSISTENT * half
    flat = ~(scale > 0)
    with np.errstate(over="ignore"):
        scale[flat] = np.nansum(magnitudes[flat], axis=1) / np.maximum(count[flat], 1)
    return np.where((count > 0) & (scale > 0), scale, 1.0)


def largest_lag(moments: int, periods: tuple[int, ...]) -> int:
    """The largest lag at which correlations are estimated."""
    return max(1, min(moments - 1, max(LEAST_LAG, PERIODS * max(periods, default=0))))


def count_pairs(known: NDArray[np.bool_], lags: int) -> Float:
    """How many pairs of numbers of each column are 0, ..., `lags` moments apart.

    >>> count_pairs(np.array([[True], [False], [True], [True]]), 2).round().ravel().tolist()
    [3.0, 1.0, 1.0]
    """
    return np.maximum(_sums(known.astype(np.float64), lags), 0.0)


def autocorrelation(R: Float, lags: int, spreads: Float | None = None, pairs: Float | None = None) -> Float:
    """Correlations at lags 0, ..., `lags` of each column of R, whose numbers are about 0; NaN is missing.

    r(h) = (Σ x_t x_{t+h} / pairs) / (Σ x_t² / readings), of x clipped at three spreads; at a lag without any pair, what
    is between those beside it. The sums over all lags are products of Fourier transforms. What makes the spectrum
    negative is cut off. Spreads of the columns, and numbers of pairs by `count_pairs`, are given if they are known.

    >>> x = np.sin(np.arange(400) / 4)[:, None]
    >>> bool(autocorrelation(x, 50)[25, 0] > 0.9)  # the period is 8π = 25.1
    True
    """
    known = ~np.isnan(R)
    bound = CLIP * (column_spreads(R) if spreads is None else spreads)
    x = np.where(known, np.clip(R, -bound, bound), 0.0)
    pairs = count_pairs(known, lags) if pairs is None else pairs
    r = _sums(x, lags) / np.maximum(pairs, 1.0)
    r = r * pairs / (pairs + FEW)
    variance = np.where(r[0] > 0, r[0], 1.0)
    return _with_spectrum(_between_known_lags(r / variance, pairs > 0.5))


def _sums(x: Float, lags: int) -> Float:
    """Σ_t x_t x_{t+h} of each column for all lags h."""
    size = next_fast_len(len(x) + lags, real=True)
    sums = np.empty((x.shape[1], lags + 1))
    some = max(1, BLOCK // size)
    for first in range(0, x.shape[1], some):
        transformed = rfft(np.ascontiguousarray(x.T[first : first + some]), size)
        sums[first : first + some] = irfft(transformed.real**2 + transformed.imag**2, size)[:, : lags + 1]
    return sums.T


def _between_known_lags(r: Float, known: NDArray[np.bool_]) -> Float:
    """Straight lines over lags without any pair of readings, as where every other moment was read; 0 after the last."""
    for j in np.flatnonzero(~known.all(axis=0) & known.any(axis=0)):
        lags = np.flatnonzero(known[:, j])
        r[:, j] = np.interp(np.arange(len(r)), lags, r[lags, j], right=0.0)
    return r


def _with_spectrum(r: Float) -> Float:
    """The correlations without the negative part of their spectrum, with some independent noise."""
    even = np.concatenate([r, r[-2:0:-1]])
    spectrum = np.maximum(rfft(even, axis=0).real, 0.0)
    r = irfft(spectrum, len(even), axis=0)[: len(r)]
    r = r / np.where(r[0] > 0, r[0], 1.0)
    r[1:] *= 1.0 - NOISE
    return np.asarray(r)
