"""Losses: what a residual costs, how hard it pulls, and what weight least squares would have to give it.

Every loss is even and grows with |e|. With the slope ψ = ρ', the weight is w(e) = ψ(e) / e, so that a stationary point
of Σ ρ(e) is one of Σ w e², the weights held fixed: the ground of iteratively reweighted least squares.

===============  ===========================  ========================  =======================
loss             ρ(e)                         ψ(e)                      w(e)
===============  ===========================  ========================  =======================
squared          e²/2                         e                         1
l1               |e|                          sign e                    1/|e|
huber            e²/2, then c|e| - c²/2       clip(e, ±c)               min(1, c/|e|)
pseudo_huber     c² (√(1 + e²/c²) - 1)        e (1 + e²/c²)^-½          (1 + e²/c²)^-½
cauchy           c²/2 log(1 + e²/c²)          e / (1 + e²/c²)           1 / (1 + e²/c²)
geman_mcclure    e²/2 / (1 + e²/c²)           e (1 + e²/c²)^-2          (1 + e²/c²)^-2
welsch           c²/2 (1 - exp(-e²/c²))       e exp(-e²/c²)             exp(-e²/c²)
tukey            c²/6 (1 - (1 - e²/c²)³)      e (1 - e²/c²)², then 0    (1 - e²/c²)², then 0
power            c²/p ((1 + e²/c²)^½p - 1)     e (1 + e²/c²)^(½p - 1)    (1 + e²/c²)^(½p - 1)
===============  ===========================  ========================  =======================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


class Kind(IntEnum):
    """Which loss; the numbers are those of the compiled core."""

    SQUARED = 0
    L1 = 1
    HUBER = 2
    PSEUDO_HUBER = 3
    CAUCHY = 4
    GEMAN_MCCLURE = 5
    WELSCH = 6
    TUKEY = 7
    POWER = 8


# c in standard deviations of normal noise at which the estimate keeps 95 % of the efficiency of least squares
# (pseudo_huber has Huber's, and a little more)
EFFICIENT = {
    Kind.HUBER: 1.345,
    Kind.PSEUDO_HUBER: 1.345,
    Kind.CAUCHY: 2.385,
    Kind.GEMAN_MCCLURE: 3.787,
    Kind.WELSCH: 2.985,
    Kind.TUKEY: 4.685,
}


@dataclass(frozen=True)
class Loss:
    """A loss with its scale c, and its exponent p if it is a power.

    >>> Loss(Kind.HUBER, c=1.0).value(np.array([0.5, 3.0])).tolist()
    [0.125, 2.5]
    >>> Loss(Kind.HUBER, c=1.0).weight(np.array([0.5, 4.0])).tolist()
    [1.0, 0.25]
    """

    kind: Kind
    c: float = 1.0
    p: float = 1.0

    def value(self, e: Float) -> Float:
        """ρ(e)."""
        c, a = self.c, np.abs(e)
        t = (a / c) ** 2
        match self.kind:
            case Kind.SQUARED:
                return 0.5 * e**2
            case Kind.L1:
                return a
            case Kind.HUBER:
                return np.where(a <= c, 0.5 * e**2, c * a - 0.5 * c**2)
            case Kind.PSEUDO_HUBER:
                return np.asarray(c**2 * t / (np.sqrt(1 + t) + 1), dtype=np.float64)
            case Kind.CAUCHY:
                return 0.5 * c**2 * np.log1p(t)
            case Kind.GEMAN_MCCLURE:
                return 0.5 * e**2 / (1 + t)
            case Kind.WELSCH:
                return -0.5 * c**2 * np.expm1(-t)
            case Kind.TUKEY:
                t = np.minimum(t, 1.0)
                return c**2 / 6 * t * (3 - 3 * t + t**2)
            case Kind.POWER:
                return np.asarray(c**2 / self.p * np.expm1(self.p / 2 * np.log1p(t)), dtype=np.float64)

    def slope(self, e: Float) -> Float:
        """ψ(e) = ρ'(e)."""
        if self.kind == Kind.L1:
            return np.sign(e)
        return e * self.weight(e)

    def weight(self, e: Float) -> Float:
        """w(e) = ψ(e) / e; that of l1 is infinite at 0."""
        c, a = self.c, np.abs(e)
        t = (a / c) ** 2
        match self.kind:
            case Kind.SQUARED:
                return np.ones_like(e)
            case Kind.L1:
                with np.errstate(divide="ignore"):
                    return 1 / a
            case Kind.HUBER:
                return c / np.maximum(a, c)
            case Kind.PSEUDO_HUBER:
                return 1 / np.sqrt(1 + t)
            case Kind.CAUCHY:
                return 1 / (1 + t)
            case Kind.GEMAN_MCCLURE:
                return (1 + t) ** -2
            case Kind.WELSCH:
                return np.exp(-t)
            case Kind.TUKEY:
                return np.maximum(1 - t, 0.0) ** 2
            case Kind.POWER:
                return np.asarray((1 + t) ** (self.p / 2 - 1), dtype=np.float64)
