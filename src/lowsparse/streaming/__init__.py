"""Robust PCA of a stream of samples with holes and gross errors, in bounded memory.

A sample is a column x of m features, known on Ω. Given the subspace U (m x r), it is regressed on U robustly, which
gives its coefficients v; its entries have the weights w = 1 / (1 + (e/c)²) of the Cauchy loss of their residuals e,
with c = 2.385 σ. Given v and w, each feature is a problem of weighted least squares, and all that is needed of the past
are its normal equations, m r² numbers, whatever the length of the stream:

    u_i = A_i⁻¹ b_i,   A_i = Σ_j d_j w_ij v_j v_jᵀ,   b_i = Σ_j d_j w_ij v_j x_ij,

where d_j = 2^(-age / half_life) forgets. There is no step to choose.

Samples are processed in blocks, each large enough to determine a subspace by itself (`PER_FEATURE` entries for each
feature), so it does not matter how they are batched. Within a block the two regressions alternate, with σ following the
residuals; the past enters by its sums. When U becomes U R⁻¹, v becomes R v, and A_i becomes R A_i Rᵀ. The
usual size of v is known as well: Σ d v vᵀ makes a prior, without which samples that do not determine a direction would
get wild coefficients in it.

The first block is solved by `lowsparse.solve`. So is a block that the subspace explains poorly, and the 4th, 8th, 16th
and so on: a solution that explains it better is a rival, and is updated along with the current estimate from then on.
Each block adds Σ d log(size of the entries / σ) to the score of either; scores fade like samples do, and the higher one
is the current estimate. In this way a wrong start is corrected, and a scene that has gone is forgotten after about a
half-life; an interlude of strange samples is not followed. See `Rival` for when it need not wait so long.

With 500 samples of 120 features, rank 4, 30 % missing and 10 % outliers of size 8, the largest angle to the truth after
one pass is 1e-10 (median of 20 streams), 1e-3 with GRASTA (`solvers.tracking`). With noise of 0.1 it is 7.2e-3 and
2.7e-2, and 7.0e-3 if `lowsparse.solve` gets all samples at once. GRASTA takes a third to a thirtieth of the time.

Y. Chi, Y. C. Eldar, R. Calderbank: PETRELS: parallel subspace estimation and tracking by recursive least squares from
partial observations. IEEE Transactions on Signal Processing 61(23), 2013: these sums, without robustness.
"""

from .stream import Stream
from .sums import Estimate, Sums

__all__ = ["Estimate", "Stream", "Sums"]
