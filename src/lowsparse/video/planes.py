"""Arithmetic on the planes of a picture, some lines at a time, which stay in the cache."""

from __future__ import annotations

import numpy as np

from ..entries.pictures import Grey, doubled, levels
from ..sweeps import Float
from .sampling import Single

LINES = 32  # of a picture that are computed together


def far_from(values: Grey, expected: Grey, unit: Single) -> Single:
    """|values - expected| / unit."""
    far = values.astype(np.float32)
    far -= expected
    np.abs(far, out=far)
    far /= unit
    return far


def whole_levels(far: Single, unit: Single) -> Grey:
    """far · unit as integers from 0 to 255; far is that of pixels, or of blocks of 2 x 2."""
    found = np.empty(unit.shape, np.uint8)
    for k in range(0, unit.shape[-2], LINES):
        some = unit[..., k : k + LINES, :]
        if far.shape == unit.shape[-2:]:
            part = far[k : k + LINES]
        else:
            part = doubled(far[k // 2 : (k + LINES) // 2], (some.shape[-2], some.shape[-1]))
        found[..., k : k + LINES, :] = levels(np.floor(part * some))
    return found


def combined(v: Float, planes: Single, zero: int = 0) -> Grey:
    """Σ v_k planes_k + zero as integers from 0 to 255."""
    found = np.empty(planes.shape[1:], np.uint8)
    for k in range(0, planes.shape[-2], LINES):
        lines = np.s_[..., k : k + LINES, :]
        some = _combine(v, planes[lines])
        found[lines] = levels(some + np.float32(zero) if zero else some)
    return found


def _combine(v: Float, planes: Single) -> Single:
    """Σ v_k planes_k; `tensordot` is many times slower."""
    total: Single = np.float32(v[0]) * planes[0]
    for number, plane in zip(v[1:], planes[1:], strict=True):
        total += np.float32(number) * plane
    return total
