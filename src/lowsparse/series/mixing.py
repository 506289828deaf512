"""The mixture of several predictions: weights that sum to 1, by how far the next reading is, from what was kept aside.

With predictions F (entries x predictions) and truths y, the weights w minimise Σ |y - F w| plus a ridge that draws them
to prior weights: those of a class of entries to those of its group of classes, these to those of all, and these to
equal ones. The ridge on the step from the best prediction to another is relative to how far these are apart: a bad
prediction does no harm by being there. The sum of magnitudes is minimised by reweighted least squares, with the
magnitudes smoothed below half a robust scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..linalg.scale import robust_scale
from ..sweeps import Float

DAMPING = 30.0  # the ridge, in entries
ITERATIONS = 12
FAR = 6.0  # robust scales, beyond which an error may be of the reading
FEW = 10  # entries of a class that has the weights of all


@dataclass(frozen=True)
class Mixture:
    """Weights of predictions for each class of entries.

    >>> F = np.array([[1.0, 3.0], [2.0, 0.0], [5.0, 9.0]] * 20)
    >>> mixture = Mixture.fit(F, F[:, 0], np.zeros(60, int))
    >>> mixture.weights[0].round(1).tolist()
    [1.0, 0.0]
    """

    usual: Float  # of all classes
    weights: dict[int, Float]  # by class

    @classmethod
    def fit(cls, F: Float, y: Float, classes: NDArray[np.intp], group: int = 1) -> Mixture:
        """Fit the weights of each class; so many consecutive classes are a group."""
        usual = _fit_weights(F, y, np.full(F.shape[1], 1.0 / F.shape[1]))
        of_groups = _fit_each(F, y, classes // group, {}, usual)
        priors = {int(k): of_groups[int(k) // group] for k in np.unique(classes)}
        return cls(usual, _fit_each(F, y, classes, priors, usual))

    def predict(self, F: Float, classes: NDArray[np.intp]) -> Float:
        """The mixed prediction; a class that was not fitted has the weights of all."""
        mixed = F @ self.usual
        for k in np.unique(classes):
            weights = self.weights.get(int(k), self.usual)
            mixed[classes == k] = F[classes == k] @ weights
        return mixed


def _fit_each(
    F: Float, y: Float, classes: NDArray[np.intp], priors: dict[int, Float], usual: Float
) -> dict[int, Float]:
    """The weights of each class; its prior ones if it has few entries."""
    found = {}
    for k in map(int, np.unique(classes)):
        inside, prior = classes == k, priors.get(k, usual)
        found[k] = _fit_weights(F[inside], y[inside], prior) if inside.sum() >= FEW else prior
    return found


def _fit_weights(F: Float, y: Float, prior: Float) -> Float:
    """w with Σ w = 1: the prior, plus steps from the best prediction to each other one."""
    m = F.shape[1]
    if m == 1 or not len(y):
        return prior
    best = int(np.argmin(np.mean(np.abs(y[:, None] - F), axis=0)))
    others = np.delete(np.arange(m), best)
    G, rest = F[:, others] - F[:, [best]], y - F @ prior
    step = np.zeros(m - 1)
    for _ in range(ITERATIONS):
        e = np.abs(rest - G @ step)
        scale = robust_scale(e)
        if scale == 0:
            break
        weight = scale / np.maximum(e, 0.5 * scale) * (e < FAR * scale)
        A = (G.T * weight) @ G
        ridge = DAMPING * np.diag(A) / max(float(weight.sum()), 1.0)
        step = np.linalg.solve(A + np.diag(ridge + 1e-12), (G.T * weight) @ rest)
    weights = prior.copy()
    weights[others] += step
    weights[best] -= step.sum()
    return weights
