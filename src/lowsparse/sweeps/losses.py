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

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ..linalg.arrays import Float


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

LossFunction = Callable[[Float, Float, float, float], Float]  # of |e|, t = e²/c², c and p

VALUES: dict[Kind, LossFunction] = {  # ρ
    Kind.SQUARED: lambda a, t, c, p: 0.5 * a**2,
    Kind.L1: lambda a, t, c, p: a,
    Kind.HUBER: lambda a, t, c, p: np.where(a <= c, 0.5 * a**2, c * a - 0.5 * c**2),
    Kind.PSEUDO_HUBER: lambda a, t, c, p: c**2 * t / (np.sqrt(1 + t) + 1),
    Kind.CAUCHY: lambda a, t, c, p: 0.5 * c**2 * np.log1p(t),
    Kind.GEMAN_MCCLURE: lambda a, t, c, p: 0.5 * a**2 / (1 + t),
    Kind.WELSCH: lambda a, t, c, p: -0.5 * c**2 * np.expm1(-t),
    Kind.TUKEY: lambda a, t, c, p: c**2 / 6 * (s := np.minimum(t, 1.0)) * (3 - 3 * s + s**2),
    Kind.POWER: lambda a, t, c, p: c**2 / p * np.expm1(p / 2 * np.log1p(t)),
}
WEIGHTS: dict[Kind, LossFunction] = {  # w
    Kind.SQUARED: lambda a, t, c, p: np.ones_like(a),
    Kind.L1: lambda a, t, c, p: 1 / a,
    Kind.HUBER: lambda a, t, c, p: c / np.maximum(a, c),
    Kind.PSEUDO_HUBER: lambda a, t, c, p: 1 / np.sqrt(1 + t),
    Kind.CAUCHY: lambda a, t, c, p: 1 / (1 + t),
    Kind.GEMAN_MCCLURE: lambda a, t, c, p: (1 + t) ** -2,
    Kind.WELSCH: lambda a, t, c, p: np.exp(-t),
    Kind.TUKEY: lambda a, t, c, p: np.maximum(1 - t, 0.0) ** 2,
    Kind.POWER: lambda a, t, c, p: (1 + t) ** (p / 2 - 1),
}


@dataclass(frozen=True)
class Loss:
    """A loss with its scale c, and its exponent p if it is a power."""

    kind: Kind
    c: float = 1.0
    p: float = 1.0

    def value(self, e: Float) -> Float:
        """ρ(e)."""
        a = np.abs(e)
        return VALUES[self.kind](a, (a / self.c) ** 2, self.c, self.p)

    def slope(self, e: Float) -> Float:
        """ψ(e) = ρ'(e)."""
        if self.kind == Kind.L1:
            return np.sign(e)
        return e * self.weight(e)

    def weight(self, e: Float) -> Float:
        """w(e) = ψ(e) / e; that of l1 is infinite at 0."""
        a = np.abs(e)
        t = (a / self.c) ** 2
        with np.errstate(divide="ignore"):
            return WEIGHTS[self.kind](a, t, self.c, self.p)
