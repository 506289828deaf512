"""How far samples would be from a subspace if it had been fitted without them.

A fit follows each sample that has a say, the more, the fewer samples there are and the farther out it is along an axis.
So a wrong one may be as close as others are: the axis is its own. Without sample i, regression on the scores s of the
others (with a constant) would leave e/(1 - h) of it in place of e, where h is its leverage: features are regressed on
scores as in any linear model (Cook and Weisberg, Residuals and Influence in Regression, 1982). That turns the subspace,
and of the sample a part that was within it is off it.
"""

from __future__ import annotations

import numpy as np

from ..linalg.arrays import Flags
from ..sweeps import Float

LEAST = 1e-6  # 1 - h: of what a sample determines alone, its residual says nothing


def without_own_say(scores: Float, lengths: Float, shares: Float, kept: Flags) -> tuple[Float, Float]:
    """(lengths of the residuals, scores) of samples, those that are kept relative to a fit to the others.

    `shares` are those of the features that a sample has: with fewer it has less of a say. Here a third component is
    fitted where there are two, and the first sample, which is wrong, has it for itself.

    >>> rng = np.random.default_rng(1)
    >>> X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 60)) + 0.5 * rng.standard_normal((40, 60))
    >>> X[0] += 1.5 * rng.standard_normal(60)
    >>> def off(fitted):
    ...     axes = np.linalg.svd(fitted - fitted.mean(axis=0), full_matrices=False)[2][:3]
    ...     away = X - fitted.mean(axis=0)
    ...     return away @ axes.T, np.linalg.norm(away - away @ axes.T @ axes, axis=1)
    >>> scores, lengths = off(X)
    >>> found = without_own_say(scores, lengths, np.ones(40), np.ones(40, bool))[0]
    >>> [round(float(x), 1) for x in (lengths[0], found[0], off(X[1:])[1][0])]
    [1.0, 10.2, 12.5]
    """
    weights = kept * shares
    total = float(weights.sum())
    away = scores - weights @ scores / (total or 1.0)
    inverse = np.linalg.pinv((away * weights[:, None]).T @ away, hermitian=True)
    g = away @ inverse
    leverage = 1 / (total or 1.0) + np.sum(g * away, axis=1)
    in_full = 1 + (1 - shares) * leverage  # for the features that a sample has, it has its say in full, others in part
    g, leverage = g / in_full[:, None], leverage / in_full
    a = kept * lengths / np.maximum(1 - leverage, LEAST)
    turned = 1 + a * a * np.sum(g * g, axis=1)  # 1 / cos² of the angle to the subspace without the sample
    return np.where(kept, a / np.sqrt(turned), lengths), scores - (a * a / turned)[:, None] * g
