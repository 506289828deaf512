"""Tables that are not of low rank: an estimator of scikit-learn predicts what is missing, without the gross errors.

In a table of some hundred rows and a few columns that depend on each other along curves, low rank finds gross errors
well enough but predicts poorly. So its flags are kept, and another estimator is trained on what is not flagged. Which
of both predicts better is found out by entries kept aside.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..entries.observed import ObservedMatrix
from ..imputation.model import Imputation
from ..robust.holdout import clip_errors, error_bound
from ..sweeps import Float
from ..validation import holdout

HELD_OUT = 0.1  # share of the entries


@dataclass(frozen=True)
class Comparison:
    """Mean errors of entries kept aside, in units of each feature's spread, large ones clipped."""

    low_rank: float
    refined: float

    @property
    def note(self) -> str:
        """In words."""
        better = self.refined < self.low_rank
        said = "low rank does not fit this table: it is refined" if better else "it is not refined: low rank is better"
        errors = f"{self.refined:.3g} spreads by the refining estimator, {self.low_rank:.3g} by low rank"
        return f"entries kept aside are predicted with a mean error of {errors}; {said}"


def as_imputer(estimator: Any) -> Any:
    """A fresh imputer: a copy of the estimator, or an IterativeImputer around it if it is a regressor."""
    if hasattr(estimator, "transform"):
        return clone(estimator)
    if not hasattr(estimator, "predict"):
        kind = type(estimator).__name__
        raise TypeError(
            f"refine must be a regressor or an imputer of scikit-learn, such as IterativeImputer(), not {kind}"
        )
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    return IterativeImputer(estimator=clone(estimator), random_state=0)


def train(imputer: Any, table: NDArray[Any]) -> NDArray[Any]:
    """Fit an imputer to a table and fill it, without warnings that rounds were too few.

    With trees, rounds hardly ever come to rest; entries kept aside judge the result.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(imputer.fit_transform(table))


def without_errors(given: NDArray[Any], fitted: Float, model: Imputation) -> NDArray[Any]:
    """The table with NaN for what a low-rank model takes for gross errors."""
    return np.where(model.prediction.is_wrong(given, fitted), np.nan, given)


def compare(M: ObservedMatrix, fit: Callable[[ObservedMatrix], Imputation], estimator: Any) -> Comparison:
    """How well low rank and a refining estimator predict entries kept aside. `fit` gives the low-rank model."""
    split = holdout(M, HELD_OUT, random_state=0)
    model = fit(split.M)
    fitted = model.lowrank().to_dense()
    given = np.full(M.shape, np.nan)
    given[split.M.rows, split.M.columns_of_entries()] = split.M.values
    known = ~np.isnan(given).all(axis=0)
    refined = fitted.copy()
    refined[:, known] = train(as_imputer(estimator), without_errors(given, fitted, model)[:, known])
    unit, at = model.preparation.scale[split.columns], (split.rows, split.columns)
    bound = error_bound(split.values / unit - model.preparation.level[split.columns])
    errors = (float(np.mean(clip_errors((found[at] - split.values) / unit, bound))) for found in (fitted, refined))
    return Comparison(*errors)
