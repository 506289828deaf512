"""What is kept of a stream that has passed: sums that add up, fade and turn, and the subspace they tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ..robust.regression import EFFICIENT, WILD, Placement
from ..sweeps import Float
from ..sweeps.reference import cholesky, cholesky_solve

__all__ = ["Learnt", "Sums"]

HELD = 1e-14  # of the mean diagonal of A_i: what keeps U as it was where no sample tells


@dataclass(frozen=True)
class Sums:
    """What is kept of samples that have passed. All of it adds up, fades, and turns with the basis.

    >>> one = Sums.none(3, 2)
    >>> (one + one.faded(0.5)).samples
    0.0
    """

    A: Float  # m x r x r: Σ d w v vᵀ of each feature
    b: Float  # m x r: Σ d w v x
    energy: Float  # r x r: Σ d ω v vᵀ, where ω is the mean weight of the entries of a sample
    weight: float  # Σ d ω
    samples: float  # Σ d
    score: float  # Σ d log(unit / σ)

    @classmethod
    def none(cls, m: int, r: int) -> Sums:
        """No samples."""
        return cls(np.zeros((m, r, r)), np.zeros((m, r)), np.zeros((r, r)), 0.0, 0.0, 0.0)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def faded(self, factor: float) -> Sums:
        """Every sample counted this many times."""
        return Sums(*(factor * getattr(self, part.name) for part in fields(self)))

    def turned(self, R: Float) -> Sums:
        """The sums of R v."""
        return replace(self, A=R @ self.A @ R.T, b=self.b @ R.T, energy=R @ self.energy @ R.T)

    def widened(self, r: int) -> Sums:
        """The sums of r coefficients, those that are new being zero."""
        more = (0, r - len(self.energy))
        return replace(
            self,
            A=np.pad(self.A, ((0, 0), more, more)),
            b=np.pad(self.b, ((0, 0), more)),
            energy=np.pad(self.energy, (more, more)),
        )

    def without(self, features: NDArray[np.intp]) -> Sums:
        """Nothing remembered of these features."""
        A, b = self.A.copy(), self.b.copy()
        A[features], b[features] = 0.0, 0.0
        return replace(self, A=A, b=b)

    @property
    def spread(self) -> Float:
        """The mean of v vᵀ."""
        return self.energy / self.weight if self.weight else self.energy

    def rows(self, U: Float) -> Float:
        """A_i⁻¹ b_i of each feature; the row of U where no sample tells."""
        held = HELD * float(np.einsum("mkk->", self.A)) / self.b.size
        return cholesky_solve(cholesky(self.A + held * np.eye(U.shape[1])), self.b + held * U)


@dataclass(frozen=True)
class Learnt:
    """A subspace, and what it was learnt from.

    >>> learnt = Learnt(np.eye(3, 1), Sums.none(3, 1), unit=1.0, recent=(0.1, 0.3, 5.0))
    >>> learnt.noise, learnt.completed(2).U.shape
    (0.3, (3, 2))
    """

    U: Float  # m x r, orthonormal, the directions of most energy first
    sums: Sums
    unit: float  # the usual size of an entry
    recent: tuple[float, ...]  # σ of the last blocks

    @property
    def noise(self) -> float:
        """The standard deviation of the inliers: the median of the last blocks."""
        return sorted(self.recent)[(len(self.recent) - 1) // 2]

    @property
    def latest(self) -> float:
        """That of the last block."""
        return self.recent[-1]

    @property
    def singular_values(self) -> Float:
        """Of the samples without noise and outliers, descending; a sample of age a counts 2^(-a / half_life) times."""
        variances: Float = np.maximum(np.diag(self.sums.spread), 0.0)
        return np.sqrt(self.sums.samples * variances)

    @property
    def placement(self) -> Placement:
        """How samples are placed on the subspace: robustly, each by itself."""
        usual = math.sqrt(float(np.trace(self.sums.spread)))
        return Placement(self.U, EFFICIENT * self.noise, self.unit, WILD * usual or math.inf)

    def completed(self, r: int) -> Learnt:
        """With r directions; those that are new are any, and have no energy."""
        m, k = self.U.shape
        if k == r:
            return self
        Q = np.linalg.qr(np.hstack([self.U, np.eye(m, r)]))[0]
        return replace(self, U=np.hstack([self.U, Q[:, k:r]]), sums=self.sums.widened(r))
