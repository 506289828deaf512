"""Many samples: the fit is learnt from some of them, drawn at random, and a few passes over all make it precise.

What is hard, to find the subspace, the level of the noise, and who is wrong as a whole, some thousand samples decide as
well as a million. What a million add is precision: that of the MM-estimate, which a few regressions of all features and
samples in turn reach from there, and a judgement of every sample.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import PartialMatrix
from ..sweeps import host_backend
from .affine import AffineFit, subtract
from .refinement import refine_further, regress_samples
from .rows import JudgedFit, axes_of

SOME = 5000  # samples, at least
ENTRIES = 1000  # of a feature among them, in the mean
MANY = 4  # times as many samples as are drawn, from which on it is worth while


def choose_samples(M: PartialMatrix) -> NDArray[np.intp] | None:
    """Some of the samples, ascending, from which a fit to all can be learnt; None if there are not many more.

    >>> from lowsparse import ObservedMatrix
    >>> [choose_samples(ObservedMatrix.from_dense(np.ones((n, 2)))) is None for n in (10_000, 100_000)]
    [True, False]
    """
    n = M.shape[0]
    wanted = max(SOME, int(ENTRIES / M.density))
    if n < MANY * wanted or wanted * M.nnz > n * M.largest_part:
        return None
    return np.sort(np.random.default_rng(0x736F6D65).choice(n, wanted, replace=False))


def extend(found: JudgedFit, M: PartialMatrix, backend: str, *, move: bool) -> JudgedFit:
    """The fit to all samples M from one to some of them; with a mean that moves, if it may."""
    fit, noise, kept = found.fit, found.fit.result.noise, found.kept
    part, _, components = axes_of(fit.result.L, kept)
    centred, samples = M, M.T
    if fit.mean is not None:
        centred = subtract(M, M.spread_over_columns(fit.mean))
        samples = subtract(samples, samples.spread_over_rows(fit.mean))
    start = AffineFit(np.zeros(M.shape[1]), part, components, noise, fit.n_iter)
    scores = regress_samples(samples, start, kept, found.model.unit, host_backend(backend))
    kept = ~found.model.measure(centred, scores).off
    start = replace(start, scores=scores)
    refined = refine_further(centred, samples, start, kept, centred=move, backend=backend, coarse=fit.coarse)
    if move and fit.mean is not None:
        centred = subtract(M, M.spread_over_columns(fit.mean + refined.mean))
    passes = refined.n_iter - fit.n_iter
    note = (
        f"learnt from {len(part):,} of {len(kept):,} rows, to which other notes on the fit refer, and refined by "
        f"{passes} passes over all"
    )
    result = replace(
        fit.result, notes=(note, *fit.result.notes), backend=centred.open_sweep(host_backend(backend)).name
    )
    return replace(fit, result=result).with_fit(refined, centred, backend).judge(kept)
