"""The mixture of several predictions: weights from what was kept aside, by how far the next reading is and by series.

With predictions F (entries x predictions) and truths y, the weights w ≥ 0, Σ w = 1, minimise Σ |y - F w| plus a ridge
that draws them to prior weights: those of a class of entries to those of its group of classes, these to those of all,
and these to equal ones, of which predictions that say the same have one together. Then every series mixes what its
classes mix with the single predictions, drawn to the former.

The ridge on the step from the best prediction to another is relative to how far these are apart: a bad prediction does
no harm by being there. It counts the N pieces, not entries: the errors of a run, or of a day that nobody read, go
together. It falls with N²: fewer pieces than there are predictions say nothing of the weights, and mislead.

The sum of magnitudes is minimised by reweighted least squares, with the magnitudes smoothed below half a robust scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

from ..linalg.scale import CONSISTENT, median
from ..sweeps import Float

DAMPING, DAMPING_OWN = 10.0, 100.0  # pieces; the ridge is (DAMPING / N)² of a class, and DAMPING_OWN / N of a series
APART = 0.5  # errors between predictions that are two; below they are the more one the closer they are
ITERATIONS, CHANGE = 8, 0.003  # at most; they end when no weight changes by more
FAR = 6.0  # robust scales, beyond which an error may be of the reading
ENOUGH = 10_000  # entries for the weights of all and of a group of classes
FEW = 10  # entries of a class that has the weights of all
SUM = 1e3  # weight of the equation Σ w = 1, relative to the others

Index = NDArray[np.intp]


@dataclass(frozen=True)
class Mixture:
    """Weights of predictions for each class of entries, and for each series.

    >>> F = np.array([[1.0, 3.0], [2.0, 0.0], [5.0, 9.0]] * 20)
    >>> none = np.zeros(60, int)
    >>> mixture = Mixture.fit(F, F[:, 0], none, none)
    >>> mixture.weights[0].round(1).tolist()
    [1.0, 0.0]
    """

    usual: Float  # of all classes
    weights: dict[int, Float]  # by class
    own: dict[int, Float]  # by series: of the mixture of the class, and of the predictions

    @classmethod
    def fit(
        cls,
        F: Float,
        y: Float,
        classes: Index,
        series: Index,
        group: int = 1,
        pieces: Index | None = None,
        fallbacks: int = 0,
    ) -> Mixture:
        """Fit the weights; `group` consecutive classes are a group; entries of a piece go together, if they are given.

        The last predictions are fallbacks, as many as said: without evidence they have no weight.
        """
        m = F.shape[1]
        pieces = np.arange(len(y)) if pieces is None else pieces
        some = slice(None, None, -(-len(y) // ENOUGH) or 1)
        prior = np.zeros(m)
        prior[: m - fallbacks] = _equal_weights(F[some, : m - fallbacks], y[some])
        usual = _fit_weights(F[some], y[some], prior, _ridge(pieces[some]))
        of_groups = _fit_each(F[some], y[some], classes[some] // group, pieces[some], {}, usual, _ridge)
        priors = {int(k): of_groups.get(int(k) // group, usual) for k in np.unique(classes)}
        mixture = cls(usual, _fit_each(F, y, classes, pieces, priors, usual, _ridge), {})
        with_mixed = np.column_stack([mixture.predict(F, classes, series), F])
        first = np.eye(m + 1)[0]
        return cls(usual, mixture.weights, _fit_each(with_mixed, y, series, pieces, {}, first, _ridge_of_series))

    def predict(self, F: Float, classes: Index, series: Index) -> Float:
        """The mixed prediction; a class that was not fitted has the weights of all."""
        mixed = F @ self.usual
        for inside, k in _parts(classes):
            mixed[inside] = F[inside] @ self.weights.get(k, self.usual)
        for inside, j in _parts(series) if self.own else ():
            if j in self.own:
                mixed[inside] = self.own[j][0] * mixed[inside] + F[inside] @ self.own[j][1:]
        return mixed


def _parts(labels: Index) -> list[tuple[Index, int]]:
    """The positions of each label, and the label."""
    order = np.argsort(labels, kind="stable")
    found, first = np.unique(labels[order], return_index=True)
    return list(zip(np.split(order, first[1:]), map(int, found), strict=True)) if labels.size else []


def _equal_weights(F: Float, y: Float) -> Float:
    """Equal weights of predictions, of which those that say the same have one together.

    >>> y = np.array([1.0, -1.0, 1.0, -1.0])
    >>> _equal_weights(np.column_stack([0 * y, 0 * y, 2 * y]), y).round(2).tolist()
    [0.25, 0.25, 0.5]
    """
    m = F.shape[1]
    if not len(y):
        return np.full(m, 1.0 / m)
    errors = np.abs(y[:, None] - F).mean(axis=0)
    apart = np.array([np.abs(F - f[:, None]).mean(axis=0) for f in F.T])
    bound = APART * np.minimum(errors[:, None], errors)
    unlike = np.where(apart > 0, 1.0, 0.0)
    np.divide(apart, bound, out=unlike, where=apart < bound)
    shares = 1.0 / (1.0 - unlike).sum(axis=1)
    return np.asarray(shares / shares.sum())


def _ridge(pieces: Index) -> float:
    """Of a class, relative to the sums of squares."""
    return (DAMPING / max(1, len(np.unique(pieces)))) ** 2


def _ridge_of_series(pieces: Index) -> float:
    return DAMPING_OWN / max(1, len(np.unique(pieces)))


def _fit_each(
    F: Float,
    y: Float,
    labels: Index,
    pieces: Index,
    priors: dict[int, Float],
    usual: Float,
    ridge: Callable[[Index], float],
) -> dict[int, Float]:
    """The weights of each label; its prior ones if it has few entries."""
    found = {}
    for inside, k in _parts(labels):
        found[k] = prior = priors.get(k, usual)
        if inside.size >= FEW:
            found[k] = _fit_weights(F[inside], y[inside], prior, ridge(pieces[inside]))
    return found


def _fit_weights(F: Float, y: Float, prior: Float, ridge: float) -> Float:
    """w ≥ 0 with Σ w = 1, drawn to the prior; the ridge is on steps from the best prediction to each other one."""
    m = F.shape[1]
    if m == 1 or not len(y):
        return prior
    best = int(np.argmin(np.abs(y[:, None] - F).sum(axis=0)))
    others = np.flatnonzero(np.arange(m) != best)
    G, rest = F[:, others] - F[:, [best]], y - F @ prior
    weights, diagonal = prior, np.arange(m - 1)
    for _ in range(ITERATIONS):
        e = np.abs(y - F @ weights)
        scale = CONSISTENT * median(e)
        if scale == 0:
            break
        weight = scale / np.maximum(e, 0.5 * scale) * (e < FAR * scale)
        weighted = G * weight[:, None]
        A = weighted.T @ G
        A[diagonal, diagonal] *= 1.0 + ridge * len(y) / max(float(weight.sum()), 1.0)
        A[diagonal, diagonal] += 1e-12
        before, weights = weights, np.zeros(m)
        weights[others] = _least(A, rest @ weighted, prior[others])
        weights[best] = max(1.0 - weights.sum(), 0.0)
        if np.abs(weights - before).max() <= CHANGE:
            break
    return weights


def _least(A: Float, b: Float, prior: Float) -> Float:
    """The least of (w - prior)ᵀ A (w - prior) - 2 bᵀ (w - prior) over w ≥ 0 with Σ w ≤ 1."""
    from scipy.optimize import lsq_linear, nnls  # not before it is needed: it takes 16 MB

    m = len(b)
    C = np.linalg.cholesky(A)
    equations, right = np.zeros((m + 1, m + 1)), np.zeros(m + 1)  # the last unknown is 1 - Σ w
    equations[:m, :m], right[:m] = C.T, prior @ C + dtrtrs(C, b, lower=1)[0]
    equations[m] = right[m] = SUM * math.sqrt(A.trace())
    try:
        w = nnls(equations, right)[0]
    except (np.linalg.LinAlgError, RuntimeError):  # predictions that are almost the same, before SciPy 1.15
        w = lsq_linear(equations, right, (0.0, np.inf), method="bvls").x
    return np.asarray(w[:m] / w.sum())
