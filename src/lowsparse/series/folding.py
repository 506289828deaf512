"""The low-rank part of series folded to periods x (moments of a period, series): what the day and the others say.

The lines Y (days) are Y = A Vᵀ + noise, and V has orthonormal columns. Missing entries are filled by the shrunk
singular value decomposition of the filled lines,

    Y ← U diag(s² / (s² + λ)) Uᵀ Y where it is missing, with Y = U diag(s) Vᵀ,

again and again. A line is then expected to be V a, with a the ridge regression of its readings on V, whose penalties
λ / s² are those of the shrinkage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dposv

from ..sweeps import Float
from .runs import Bool

FEW = 0.2  # readings of a line, relative to the usual number, that do not determine it
ITERATIONS, CHANGE = 8, 0.05  # at most; they end when what is filled changes by less, relative
FASTER = 1.3  # steps of what is filled, relative to the formula
FAINT, MOST = 0.1, 80  # components are kept if s² > FAINT λ, and so many at most
MANY = 2 * MOST  # lines, from which on components follow changes of the data by steps
CLIP = 3.0  # scales, at which a reading counts


@dataclass(frozen=True)
class Folding:
    """Lines of `length` moments; the first line begins `shift` moments before the data."""

    length: int
    shift: int = 0

    def fold(self, Z: Float) -> Float:
        """Lines x (moments of a line, series); NaN before and after the data.

        >>> Folding(2, 1).fold(np.array([[1.0], [2.0], [3.0]])).tolist()
        [[nan, 1.0], [2.0, 3.0]]
        """
        T, n = Z.shape
        lines = -(-(self.shift + T) // self.length)
        padded = np.full((lines * self.length, n), np.nan)
        padded[self.shift : self.shift + T] = Z
        return padded.reshape(lines, self.length * n)

    def unfold(self, lines: Float, shape: tuple[int, ...]) -> Float:
        """The moments x series of folded lines."""
        return lines.reshape(-1, shape[1])[self.shift : self.shift + shape[0]]

    def later(self, moments: int) -> Folding:
        """The folding of data that begin so many moments later."""
        return Folding(self.length, (self.shift + moments) % self.length)


@dataclass(frozen=True)
class Lines:
    """The low-rank part of folded series.

    >>> t = np.arange(24 * 30)[:, None]
    >>> Z = np.sin(2 * np.pi * t / 24 + np.arange(3)) * (1 + 0.5 * np.sin(t // 24))
    >>> gappy = Z.copy()
    >>> gappy[100:110, 1] = np.nan
    >>> lines = Lines.fit(gappy, Folding(24), 0.01, np.zeros_like(Z))
    >>> bool(np.abs(lines.expect(gappy) - Z).max() < 0.1)
    True
    """

    folding: Folding
    V: Float  # (moments of a line, series) x components
    penalties: Float  # λ / s²
    usual: float  # readings of a line

    @classmethod
    def fit(cls, Z: Float, folding: Folding, shrinkage: float, guess: Float) -> Lines:
        """Fit series Z, NaN where missing, from a first guess of what is missing.

        λ is the shrinkage times the mean square of the readings times the root of the number of entries.
        """
        lines = folding.fold(Z)
        counts = np.sum(~np.isnan(lines), axis=1)
        lines = lines[counts > 0]
        missing = np.isnan(lines)
        X = np.where(missing, folding.fold(guess)[counts > 0], lines)
        X[np.isnan(X)] = 0.0
        strength = shrinkage * float(np.nanmean(np.clip(Z, -CLIP, CLIP) ** 2)) * math.sqrt(X.size)
        gaps, values = np.flatnonzero(missing), X.reshape(-1)
        squares, U = _components(X)
        for _ in range(ITERATIONS):
            made = (U * (squares / (squares + strength))) @ (U.T @ X)
            steps = FASTER * (made.reshape(-1)[gaps] - values[gaps])
            values[gaps] += steps
            squares, U = _components(X, U)
            if np.linalg.norm(steps) <= CHANGE * np.linalg.norm(values[gaps]):
                break
        kept = squares > FAINT * strength
        V = (X.T @ U[:, kept]) / np.sqrt(squares[kept])
        return cls(folding, V, strength / squares[kept], float(np.median(counts[counts > 0])))

    def expect(self, Z: Float, first: int = 0) -> Float:
        """What each line's readings say of all its entries; NaN in lines with few readings.

        Z begins `first` moments after the data that were fitted.
        """
        folding = self.folding.later(first)
        lines = folding.fold(Z)
        read = ~np.isnan(lines)
        determined = np.flatnonzero(np.count_nonzero(read, axis=1) >= max(1.0, FEW * self.usual))
        products = np.where(read, lines, 0.0)[determined] @ self.V
        found = [self._coefficients(read[i], product) for i, product in zip(determined, products, strict=True)]
        expected = np.full(lines.shape, np.nan)
        expected[determined] = np.array(found).reshape(products.shape) @ self.V.T
        return folding.unfold(expected, Z.shape)

    def _coefficients(self, read: Bool, product: Float) -> Float:
        """(V_oᵀV_o + penalties)⁻¹ V_oᵀ y over what was read; V_oᵀV_o = I - V_mᵀV_m over what is missing."""
        mostly = 2 * np.count_nonzero(read) > len(read)
        few = self.V.take(np.flatnonzero(~read if mostly else read), axis=0)
        gram = few.T @ few
        system = np.diag(self.penalties + mostly) + (-gram if mostly else gram)
        _, found, failed = dposv(system, product)
        return np.asarray(np.linalg.solve(system, product) if failed else found)


def _components(X: Float, near: Float | None = None) -> tuple[Float, Float]:
    """The largest squares of singular values, and left singular vectors, by the Gram matrix of the smaller side.

    If there are many lines and X has changed little since vectors `near` were found, those in the span of X Xᵀ times
    these: in a third of the time.

    >>> rng = np.random.default_rng(1)
    >>> X, change = rng.standard_normal((MANY, 4)) @ rng.standard_normal((4, 300)), rng.standard_normal((MANY, 300))
    >>> near, exact = _components(X + 0.01 * change, _components(X)[1])[0], _components(X + 0.01 * change)[0]
    >>> bool(np.allclose(near[:4], exact[:4], rtol=1e-6)), near.shape == exact.shape
    (True, True)
    """
    if X.shape[0] > X.shape[1]:
        squares, V = np.linalg.eigh(X.T @ X)
        squares = np.maximum(squares[: -MOST - 1 : -1], np.finfo(float).tiny)
        return squares, X @ V[:, : -MOST - 1 : -1] / np.sqrt(squares)
    gram = X @ X.T
    if near is None or len(gram) < MANY:
        squares, U = np.linalg.eigh(gram)
    else:
        Q = np.linalg.qr(gram @ near)[0]
        squares, U = np.linalg.eigh(Q.T @ (gram @ Q))
        U = Q @ U
    return np.maximum(squares[: -MOST - 1 : -1], 0.0), U[:, : -MOST - 1 : -1]
