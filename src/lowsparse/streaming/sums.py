"""What is kept of the past of a stream: sums of its samples, and the subspace that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ..robust.regression import EFFICIENT, WILD, SubspaceRegression
from ..sweeps import Float
from ..sweeps.reference import cholesky, cholesky_solve

HELD = 1e-14  # of the mean diagonal of A_i: keeps U unchanged where there are no samples


@dataclass(frozen=True)
class Sums:
    """Sums over the samples seen so far, with weights d, w, ω and coefficients v."""

    A: Float  # m x r x r: Σ d w v vᵀ of each feature
    b: Float  # m x r: Σ d w v x
    energy: Float  # r x r: Σ d ω v vᵀ, where ω is the mean weight of the entries of a sample
    weight: float  # Σ d ω
    samples: float  # Σ d
    score: float  # Σ d log(unit / σ)

    @classmethod
    def zero(cls, m: int, r: int) -> Sums:
        """The sums of no samples."""
        return cls(np.zeros((m, r, r)), np.zeros((m, r)), np.zeros((r, r)), 0.0, 0.0, 0.0)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def scaled(self, factor: float) -> Sums:
        """The sums with every sample counted this many times."""
        return Sums(*(factor * getattr(self, part.name) for part in fields(self)))

    def transformed(self, R: Float) -> Sums:
        """The sums of R v."""
        return replace(self, A=R @ self.A @ R.T, b=self.b @ R.T, energy=R @ self.energy @ R.T)

    def padded(self, r: int) -> Sums:
        """The sums of r coefficients, the new ones being zero."""
        more = (0, r - len(self.energy))
        return replace(
            self,
            A=np.pad(self.A, ((0, 0), more, more)),
            b=np.pad(self.b, ((0, 0), more)),
            energy=np.pad(self.energy, (more, more)),
        )

    def without(self, features: NDArray[np.intp]) -> Sums:
        """The sums with nothing about these features."""
        A, b = self.A.copy(), self.b.copy()
        A[features], b[features] = 0.0, 0.0
        return replace(self, A=A, b=b)

    @property
    def spread(self) -> Float:
        """The mean of v vᵀ."""
        return self.energy / self.weight if self.weight else self.energy

    def solve(self, U: Float) -> Float:
        """u_i = A_i⁻¹ b_i of each feature; the row of U in directions without samples."""
        held = HELD * float(np.einsum("mkk->", self.A)) / self.b.size
        return cholesky_solve(cholesky(self.A + held * np.eye(U.shape[1])), self.b + held * U)


@dataclass(frozen=True)
class Estimate:
    """A subspace, and the sums that it was estimated from."""

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
        """The standard deviation of the inliers of the last block."""
        return self.recent[-1]

    @property
    def singular_values(self) -> Float:
        """Of the samples without noise and outliers, descending; a sample of age a counts 2^(-a / half_life) times."""
        variances: Float = np.maximum(np.diag(self.sums.spread), 0.0)
        return np.sqrt(self.sums.samples * variances)

    @property
    def regression(self) -> SubspaceRegression:
        """Robust regression of new samples on the subspace."""
        usual = math.sqrt(float(np.trace(self.sums.spread)))
        return SubspaceRegression(self.U, EFFICIENT * self.noise, self.unit, WILD * usual or math.inf)

    def completed(self, r: int) -> Estimate:
        """With r directions, the new ones arbitrary and without energy."""
        m, k = self.U.shape
        if k == r:
            return self
        Q = np.linalg.qr(np.hstack([self.U, np.eye(m, r)]))[0]
        return replace(self, U=np.hstack([self.U, Q[:, k:r]]), sums=self.sums.padded(r))
