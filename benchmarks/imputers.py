"""Who can fill the holes of a table that also has gross errors, and with which settings.

Everybody gets a table with NaN where nothing is known, and gives it back full. Who has nothing to choose settings by
gets a few to choose from (`settings`): each is tried on the table less a tenth of its entries, and the one with the
smallest mean absolute error there is taken; gross errors among that tenth harm everybody alike.

What most methods need beforehand they are given, the same for all of them (`levels`): sensors are centred at their
median and scaled by their range between the 10 % and 90 % quantiles, ratings are centred at damped averages of the user
and the item, the usual baseline. Only lowsparse and the median get the table as it is.

- lowsparse: RobustImputer(rank="auto"), nothing else.
- qolmat's RpcaPcp: lam = 1.5 / √(longer side). Of 0.5, 0.7, 1, 1.5, 2, 3 and 4 in place of 1.5 this predicts best on
  the sensor sets; its own, 1, is worse by a tenth to a third. Scaled as above or, as its own imputer does, by mean and
  standard deviation, whichever predicts better. It stops where it does by itself, after 100 to 500 iterations with an
  SVD of the whole table in each: more than 10 minutes for ratings, where it is left out unless asked for.
- qolmat's RpcaNoisy: it needs the size σ of the noise: tau = σ √(entries per line of the longer side) and lam = 2 σ, as
  theory suggests, with σ = 0.05, 0.1 or 0.2 of the spread, 0.8 for ratings; scaled either way; rank at most 30.
  mu = 1e-3, because with its own, 1e-2, it takes thousands of iterations to leave its start (linear interpolation,
  spikes and all); 300 iterations, 100 for ratings. Its own tau = lam = 1 / √(longer side) predicts worse than the
  median.
- tensorly's robust_pca: reg_E = 3 / √(entries per line of the longer side), for the reason given for RpcaPcp (it
  penalises the nuclear norm twice), mu_init = 1.25 / ‖X‖₂, learning_rate 1.1, tol = 1e-4 ‖X‖. Scaled, and left out for
  ratings, as RpcaPcp: each of its 70 to 100 iterations has two SVDs.
- scikit-learn's KNNImputer: 5 or 20 neighbours, 20 or 60 for ratings, weighted by distance. IterativeImputer: Bayesian
  ridge regression, its own choice, on the 20 most correlated columns (10, and one round, for ratings). SimpleImputer:
  the median of the column.
- soft-impute: the singular values of the filled table are shrunk by λ, until it changes no more (Mazumder, Hastie and
  Tibshirani 2010); λ = 0.5, 0.25, 0.12, 0.06 or 0.03 of the largest. Hard-impute: all but the first 1, 2, 4, 8 or 16
  are set to zero instead. Both are written here, with NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

import lowsparse as ls

from .apart import Entrant, load

__all__ = ["IMPUTERS", "Imputer", "completed", "levels"]

KEPT_ASIDE = 0.1  # to choose settings by
DAMPING = 5  # ratings that an average starts with
QUANTILE, NORMAL_RANGE = 0.1, 2.563  # between this quantile and its opposite, in standard deviations
ITERATIONS = 300
SEVERAL_SVDS = 3e6  # cells of a table that can be decomposed some hundred times in a few minutes

Float = NDArray[np.float64]


def levels(X: Float, ratings: bool, how: str = "robust") -> tuple[Float, Float]:
    """What to subtract from the table, and what to divide it by then."""
    if ratings:
        return _offsets(X), np.full(X.shape[1], np.nanstd(X))
    if how == "robust":
        centre = np.nanmedian(X, axis=0)
        spread = np.diff(np.nanquantile(X, [QUANTILE, 1 - QUANTILE], axis=0), axis=0)[0] / NORMAL_RANGE
    else:
        centre, spread = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    return centre, np.where(spread > 0, spread, 1.0)


def _offsets(X: Float) -> Float:
    """The mean, plus what a user and an item deviate from it; few ratings do not say much about that."""
    seen = ~np.isnan(X)
    mean = float(np.nanmean(X))
    R = np.where(seen, X - mean, 0.0)
    item = np.zeros(X.shape[1])
    for _ in range(10):
        user = (R - seen * item).sum(axis=1, keepdims=True) / (seen.sum(axis=1, keepdims=True) + DAMPING)
        item = (R - seen * user).sum(axis=0) / (seen.sum(axis=0) + DAMPING)
    return np.asarray(mean + user + item)


def _levelled(X: Float, ratings: bool, fill: Callable[[Float], Float], how: str = "robust") -> Float:
    centre, spread = levels(X, ratings, how)
    return centre + spread * fill((X - centre) / spread)


def lowsparse_imputer(X: Float, ratings: bool, setting: None) -> Float:
    filled: Float = ls.RobustImputer(rank="auto").fit_transform(X)
    return filled


def qolmat_pcp(X: Float, ratings: bool, how: str) -> Float:
    solver = load("qolmat.imputations.rpca.rpca_pcp").RpcaPcp
    model = solver(lam=1.5 / np.sqrt(max(X.shape)), verbose=False)
    return _levelled(X, ratings, lambda Z: model.decompose(Z, ~np.isnan(Z))[0], how)


def qolmat_noisy(X: Float, ratings: bool, setting: tuple[float, str]) -> Float:
    noise, how = setting
    solver = load("qolmat.imputations.rpca.rpca_noisy").RpcaNoisy
    model = solver(
        rank=min(30, *X.shape),
        tau=noise * np.sqrt(_entries_per_line(X)),
        lam=2 * noise,
        mu=1e-3,
        max_iterations=100 if ratings else ITERATIONS,
        tolerance=1e-3,
        verbose=False,
    )
    return _levelled(X, ratings, lambda Z: model.decompose(Z, ~np.isnan(Z))[0], how)


def tensorly_robust_pca(X: Float, ratings: bool, how: str) -> Float:
    robust_pca = load("tensorly.decomposition").robust_pca

    def fill(Z: Float) -> Float:
        full = np.nan_to_num(Z)
        L: Float = robust_pca(
            full,
            mask=~np.isnan(Z),
            reg_E=3 / np.sqrt(_entries_per_line(Z)),
            mu_init=1.25 / np.linalg.norm(full, 2),
            learning_rate=1.1,
            tol=1e-4 * np.linalg.norm(full),
            n_iter_max=ITERATIONS,
            verbose=0,
        )[0]
        return L

    return _levelled(X, ratings, fill, how)


def _entries_per_line(X: Float) -> float:
    return float(np.mean(~np.isnan(X)) * max(X.shape))


def sklearn_knn(X: Float, ratings: bool, neighbours: int) -> Float:
    imputer = load("sklearn.impute").KNNImputer
    return _levelled(
        X, ratings, imputer(n_neighbors=neighbours, weights="distance", keep_empty_features=True).fit_transform
    )


def sklearn_iterative(X: Float, ratings: bool, setting: None) -> Float:
    load("sklearn.experimental.enable_iterative_imputer")
    imputer = load("sklearn.impute").IterativeImputer
    nearest, rounds = (10, 1) if ratings else (20, 10)
    return _levelled(X, ratings, imputer(n_nearest_features=nearest, max_iter=rounds, random_state=1).fit_transform)


def sklearn_median(X: Float, ratings: bool, setting: None) -> Float:
    filled: Float = load("sklearn.impute").SimpleImputer(strategy="median").fit_transform(X)
    return filled


def soft_impute(X: Float, ratings: bool, share: float) -> Float:
    return _levelled(X, ratings, lambda Z: completed(Z, rank=50, share=share))


def hard_impute(X: Float, ratings: bool, rank: int) -> Float:
    return _levelled(X, ratings, lambda Z: completed(Z, rank=rank, share=0.0))


def completed(Z: Float, *, rank: int, share: float) -> Float:
    """L = the first singular triples of Z with its holes filled from L, their values less λ.

    Every iteration takes one step of the subspace iteration for them from those of the last one.
    """
    seen = ~np.isnan(Z)
    rank = min(rank, *Z.shape)
    L = np.zeros(Z.shape)
    V = np.linalg.qr(np.random.default_rng(1).standard_normal((Z.shape[1], rank)))[0].T
    lam = share * svds(np.nan_to_num(Z), 1, v0=np.ones(min(Z.shape)), return_singular_vectors=False)[0]
    for _ in range(ITERATIONS):
        full = np.where(seen, Z, L)
        Q = np.linalg.qr(full @ V.T)[0]
        W, s, V = np.linalg.svd(Q.T @ full, full_matrices=False)
        before, L = L, (Q @ W * np.maximum(s - lam, 0.0)) @ V
        if np.linalg.norm(L - before) <= 1e-4 * np.linalg.norm(L):
            break
    return L


@dataclass(frozen=True)
class Imputer(Entrant):
    """Somebody who takes part."""

    fill: Callable[[Float, bool, Any], Float]  # table, whether it has ratings, setting
    settings: tuple[Any, ...] = (None,)  # to choose from
    rating_settings: tuple[Any, ...] = ()  # for ratings, if they are others
    robust: bool = False
    largest: float = np.inf  # cells of a table that is not hopeless

    def choose(self, X: Float, ratings: bool, seconds: float) -> tuple[Any, int]:
        """The setting that predicts best what is held out, and how many were tried within these seconds."""
        settings = self.rating_settings if ratings and self.rating_settings else self.settings
        if len(settings) == 1:
            return settings[0], 1
        i, j = np.nonzero(~np.isnan(X))
        aside = np.random.default_rng(2).permutation(len(i))[: int(KEPT_ASIDE * len(i))]
        i, j = i[aside], j[aside]
        rest, spread = X.copy(), levels(X, ratings)[1]
        rest[i, j] = np.nan
        errors: list[float] = []
        began = time.perf_counter()
        for setting in settings:
            if errors and time.perf_counter() - began > seconds * len(errors) / (len(errors) + 1):
                break
            filled = self.fill(rest, ratings, setting)
            errors.append(float(np.mean(np.abs(filled[i, j] - X[i, j]) / spread[j])))
        return settings[int(np.argmin(errors))], len(errors)


_SCALINGS = ("robust", "plain")
IMPUTERS = {
    "lowsparse": Imputer("lowsparse RobustImputer", lowsparse_imputer, robust=True),
    "pcp": Imputer(
        "qolmat RpcaPcp",
        qolmat_pcp,
        _SCALINGS,
        ("robust",),
        robust=True,
        largest=SEVERAL_SVDS,
        package="qolmat",
        module="qolmat.imputations.rpca.rpca_pcp",
    ),
    "noisy": Imputer(
        "qolmat RpcaNoisy",
        qolmat_noisy,
        ((0.1, "robust"), (0.05, "plain"), (0.05, "robust"), (0.2, "robust")),
        ((0.8, "robust"),),
        robust=True,
        package="qolmat",
        module="qolmat.imputations.rpca.rpca_noisy",
    ),
    "tensorly": Imputer(
        "tensorly robust_pca",
        tensorly_robust_pca,
        _SCALINGS,
        ("robust",),
        robust=True,
        largest=SEVERAL_SVDS,
        package="tensorly",
        module="tensorly.decomposition",
    ),
    "knn": Imputer("KNNImputer", sklearn_knn, (5, 20), (20, 60), package="scikit-learn", module="sklearn.impute"),
    "iterative": Imputer("IterativeImputer", sklearn_iterative, package="scikit-learn", module="sklearn.impute"),
    "median": Imputer("SimpleImputer(median)", sklearn_median, package="scikit-learn", module="sklearn.impute"),
    "soft": Imputer("soft-impute", soft_impute, (0.5, 0.25, 0.12, 0.06, 0.03), package="numpy"),
    "hard": Imputer("hard-impute", hard_impute, (1, 2, 4, 8, 16), package="numpy"),
}
