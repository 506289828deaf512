"""The sweep on a GPU: the kernels of ``kernels/``, launched through CuPy over the columns and over the rows.

One kernel solves and shrinks the columns; the gradient, a sum over rows, is a second pass over the row-sorted copy.
Nothing is scattered, and no sum depends on the order in which threads run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import SMALL, host, on_device
from ...sweeps import (
    Ascent,
    Float,
    Gradient,
    Magnitudes,
    Multiplier,
    Previous,
    Proximal,
    Regression,
    Robust,
    Rule,
    SweepResult,
)
from ...sweeps.losses import Loss
from .launch import NULL, by_value, c_type, explain_out_of_memory, kernel, need_cupy, tall_gram, tall_retracted
from .lines import LineKernel, LineKernels, packed

if TYPE_CHECKING:
    from .matrix import DeviceMatrix

NARROW = 32  # columns of the widest factor for a kernel without normal equations
COUNTED = 2**16  # residuals in the sample of magnitudes, at most twice that


class ColumnSweep:
    """One pass over the columns of a matrix on a GPU (see `lowsparse.sweeps.Sweep`)."""

    name, host = "cuda", "auto"

    def __init__(self, M: DeviceMatrix) -> None:
        self.cupy = need_cupy()
        self.M = M
        self.columns = LineKernels(M)

    @functools.cached_property
    def rows(self) -> LineKernels:
        """The columns of the row-sorted copy, which is made once."""
        return LineKernels(self.M.T)

    @functools.cached_property
    def buffer(self) -> Callable[[str, int], Any]:
        """Memory by name and size, for use within one sweep; the next one gets the same."""
        empty = self.cupy.empty  # a reference to the sweep in the cache would be a cycle
        return functools.cache(lambda name, size: empty(size))

    def _on_device(self, A: Any) -> Any:
        """A on the device, C-contiguous and float64."""
        if on_device(A) and A.flags.c_contiguous and A.dtype == np.float64:
            return A
        return self.cupy.ascontiguousarray(self.cupy.asarray(A), dtype=np.float64)

    # ------------------------------------------------------------------ the proximal sweep

    def sweep(
        self, U: Float, S: NDArray[Any], S_out: NDArray[Any] | None, options: Proximal, previous: Previous | None = None
    ) -> SweepResult:
        """Solve, shrink, solve again; then the gradient row by row."""
        rule, gamma, t_S, lambda2 = options.rule, options.gamma, options.t_S, options.lambda2
        if S_out is None and rule != Rule.FIT:
            raise ValueError("S_out is needed by every rule but FIT")
        r = U.shape[1]
        half = packed(r)
        U, S_new = self._on_device(U), NULL if S_out is None else S_out
        recompute = rule == Rule.AMANPG and t_S == 1.0 and r <= SMALL  # the pass over rows computes S+ from x again
        both = self.buffer("both", 2 * self.M.shape[1] * r) if recompute else NULL
        rest = NULL if recompute or rule == Rule.FIT else self.cupy.empty(self.M.nnz)
        numbers = float(gamma), float(t_S), float(lambda2), np.int32(rule)
        V, sums = self._sweep_columns(U, (S, S_new), both, rest, previous, numbers)
        found = self.buffer("found", 2 * half + 6)  # V Vᵀ and the five sums, GᵀG and the misfit
        self._tall(V, sums, 5, found[: half + 5])
        column_sums = PendingCopy(found[: half + 5])
        if rule == Rule.FIT:
            G, misfits = self.cupy.empty((0, r)), NULL
            found[half + 5 :] = 0.0
        elif recompute:
            G, misfits = self._recomputed_gradient(U, both, gamma, lambda2, found)
        else:
            G = self._product(self.rows, rest, V, order=True, own=U, VVt=found, l2=lambda2)
            misfits = self.cupy.zeros(len(U))
        if len(G):
            self._tall(G, misfits, 1, found[half + 5 :])
        return PendingSweepResult(r, V.T, G, column_sums(), found[half + 5 :])

    def _sweep_columns(
        self, U: Any, S: tuple[Any, Any], both: Any, rest: Any, previous: Previous | None, numbers: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        """The pass over the columns: V, and five sums of each column."""
        M, n, r = self.M, self.M.shape[1], U.shape[1]
        V, sums = self.cupy.empty((n, r)), self.buffer("sums", 5 * n)
        entries, rule = (M.indptr, M.rows, M.values), numbers[3]
        last = 2 if rule == Rule.AMANPG and isinstance(both, np.intp) else 1
        V_previous, rotation = NULL, np.zeros((r, r))
        if previous is not None:
            V_previous, rotation = self._on_device(previous.V.T), host(previous.rotation)
        if r <= SMALL:
            small = (*entries, U, *S, V, both, rest, V_previous, by_value(rotation), *numbers)
            self._small_sweep(r, small, sums, last)
        else:
            prior = NULL if previous is None else V_previous @ self._on_device(rotation.T)
            self._general_sweep(r, (*entries, U, *S, V, rest, prior, *numbers, sums, np.int64(n)), last)
        return V, sums

    def _general_sweep(self, r: int, args: tuple[Any, ...], last: int) -> None:
        for run in self.columns.prepare_general("sweep_general", r, self.columns.type):
            partial = self._partial(run, packed(r) + r)
            factors = self._partial(run, packed(r) + r, lines=2)  # a line in pieces has two at least
            for first, final in run.steps(last + 1):
                run(*args, first, np.int32(final - 1), partial, factors, run.scratch[1])

    def _partial(self, run: LineKernel, size: int, lines: int = 1) -> Any:
        """Memory for the partial results of pieces, `size` numbers each (or for every `lines` of them)."""
        if not run.group.cut:
            return NULL
        numbers = -(-run.group.count // lines) * size
        with explain_out_of_memory(8 * numbers, "a buffer for long columns"):
            return self.cupy.empty(numbers)

    def _small_sweep(self, r: int, args: tuple[Any, ...], sums: Any, last: int) -> None:
        normal = packed(r)
        keeps = normal + 2 * r
        for run in self.columns.prepare("sweep", r, sums=max(normal + r, r + 3), keeps=keeps, once=False):
            partial, tickets = run.scratch
            stored = self.cupy.empty(run.group.count * (normal + r)) if run.group.cut else NULL
            for first, final in run.steps(last + 1):
                run(*args, first, np.int32(final - 1), sums, np.int64(self.M.shape[1]), partial, stored, tickets)

    def _recomputed_gradient(self, U: Any, both: Any, gamma: float, l2: float, VVt: Any) -> tuple[Any, Any]:
        T = self.M.T
        G, misfits = self.cupy.empty_like(U), self.buffer("misfits", len(U))
        r = U.shape[1]
        args = (T.indptr, T.rows, T.values, U, both, float(gamma), float(l2), VVt, G, misfits)
        for run in self.rows.prepare("gradient_rows", r, sums=r + 1, width=2 * r):
            run(*args, *run.scratch)
        return G, misfits

    def _tall(self, A: Any, columns: Any, extra: int, out: Any) -> None:
        """The packed AᵀA and the sums of `extra` columns, into `out`."""
        r = A.shape[1]
        if r <= SMALL:
            tall_gram(A, columns, extra, out)
        else:
            out[:-extra] = (A.T @ A)[np.triu_indices(r)]
            out[-extra:] = columns.reshape(extra, -1).sum(axis=1)

    # ------------------------------------------------------------------ regression

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regression:
        """Regress each column robustly on U; all fits of a column while its rows are in shared memory."""
        cupy, M, r = self.cupy, self.M, U.shape[1]
        n = M.shape[1]
        U, guess = self._on_device(U), NULL if V is None else self._on_device(V)
        fitted = cupy.empty((n, r))
        counted = cupy.zeros(n + 512, np.int64)  # inside, and the 1024 counts
        sampling = (1 << max(0, ((options.total_entries or M.nnz) // COUNTED).bit_length() - 1)) - 1
        first_c = options.c if options.first_c is None or options.n_reweight == 1 else options.first_c
        numbers = (
            np.int32(sampling),
            np.int32(options.kind),
            float(first_c),
            float((options.c / first_c) ** (1 / max(options.n_reweight - 1, 1))),
            float(options.c),
            float(options.p),
            np.int32(options.n_reweight),
            float(options.shrink),
            float(options.ridge),
            float(options.largest),
            float(options.bound),
            1.0 / options.unit,
        )
        args = (M.indptr, M.rows, M.values, np.int64(len(U)), U, guess, fitted, counted, counted[n:], *numbers)
        if r <= SMALL:
            sums = packed(r) + r + 2
            for run in self.columns.prepare("regress", r, sums=sums, keeps=r, once=options.n_reweight == 1):
                for step in run.steps(options.n_reweight):
                    run(*args, *step, *run.scratch)
        else:
            for run in self.columns.prepare_general("regress_general", r, self.columns.type):
                partial = self._partial(run, packed(r) + r + 2)
                for step in run.steps(options.n_reweight):
                    run(*args, *step, partial, run.scratch[1])
        return PendingRegression(fitted, counted, options.unit)

    # ------------------------------------------------------------------ residuals and products

    def residual(self, U: Float, V: Float) -> Any:
        """P_Ω(U Vᵀ) - x."""
        return self._entries(U, V, minus=True)

    def entries(self, U: Float, V: Float) -> Any:
        """P_Ω(U Vᵀ)."""
        return self._entries(U, V, minus=False)

    def _entries(self, U: Any, V: Any, minus: bool) -> Any:
        M, total = self.M, None
        for first in range(0, U.shape[1], NARROW):
            part = slice(first, first + NARROW)
            A, own = self._on_device(U[:, part]), self._on_device(V[:, part])
            with explain_out_of_memory(8 * M.nnz, "a number for each entry"):
                out = self.cupy.empty(M.nnz)
            args = (M.indptr, M.rows, M.values, A, own, np.int32(minus and not first), out)
            for run in self.columns.prepare("entries", A.shape[1], sums=1):
                run(*args)
            total = out if total is None else total + out
        return total

    def product(self, y: Float, V: Float) -> Any:
        """Sp(y) V."""
        return self._product(self.rows, y, V, order=True)

    def product_transposed(self, y: Float, U: Float) -> Any:
        """Sp(y)ᵀ U."""
        return self._product(self.columns, y, U)

    def _product(
        self,
        over: LineKernels,
        y: Any,
        A: Any,
        *,
        order: bool = False,
        own: Any = None,
        VVt: Any = None,
        l2: float = 0.0,
    ) -> Any:
        M, k = over.M, A.shape[1]
        y = self.cupy.ascontiguousarray(y)
        permutation = self.M.positions.transposed[1] if order else NULL
        if k > SMALL and own is not None:
            full = _symmetric(host(VVt)[: k * (k + 1) // 2], k)
            return self._product(over, y, A, order=order) + l2 * own @ self.cupy.asarray(full)
        parts = []
        for first in range(0, k, NARROW):
            B = self._on_device(A[:, first : first + NARROW])
            out = self.cupy.empty((M.shape[1], B.shape[1]))
            extra = (NULL,) * 2 if own is None else (own, VVt)
            args = (M.indptr, M.rows, y, permutation, B, *extra, float(l2), out)
            type_ = c_type(y.dtype)
            for run in over.prepare("product", B.shape[1], sums=B.shape[1], type_=type_):
                run(*args, *run.scratch)
            parts.append(out)
        return parts[0] if len(parts) == 1 else self.cupy.hstack(parts)

    def gram_product(self, Q: Float) -> Any:
        """Return A Aᵀ Q: over the columns, then over the rows."""
        P = self._product(self.columns, self.M.values, Q)
        return self._product(self.rows, self.M.T.values, P)

    # ------------------------------------------------------------------ losses

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e) and both derivatives: a pass over the columns, and one over the rows."""
        if U.shape[1] > NARROW:
            e = self.residual(U, V)
            y = loss.slope(e)
            return Gradient(float(loss.value(e).sum()), self.product(y, V), self.product_transposed(y, U))
        U, V = self._on_device(U), self._on_device(V)
        values = self.cupy.empty(self.M.shape[1])
        by_column = self._slopes(self.columns, U, V, loss, values)
        by_row = self._slopes(self.rows, V, U, loss, NULL)
        return Gradient(float(values.sum()), by_row, by_column)

    def _slopes(self, over: LineKernels, A: Any, own: Any, loss: Loss, values: Any) -> Any:
        M, out = over.M, self.cupy.empty_like(own)
        kind = np.int32(loss.kind), float(loss.c), float(loss.p)
        args = (M.indptr, M.rows, M.values, A, own, *kind, out, values)
        for run in over.prepare("slopes", A.shape[1], sums=A.shape[1] + 1):
            run(*args, *run.scratch)
        return out

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d²."""
        if U.shape[1] > NARROW:
            return float((loss.weight(self.residual(U, V)) * self.entries(U, B) ** 2).sum())
        M, out = self.M, self.cupy.empty(self.M.shape[1])
        factors = (self._on_device(factor) for factor in (U, V, B))
        args = (M.indptr, M.rows, M.values, *factors, np.int32(loss.kind), float(loss.c), float(loss.p), out)
        for run in self.columns.prepare("curvature", U.shape[1], sums=1):
            run(*args, *run.scratch)
        return float(out.sum())

    def ascend(self, U: Float, C: Float, current: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """The steps in V, Z and Λ, and the product for the step in U that follows."""
        V = self._on_device(C) + self.product_transposed(current.w, U)
        e = self.residual(U, V)
        out.values[:] = np.clip(current.values + beta * e, -1.0, 1.0)
        gap = (out.values - current.values) / beta
        out.w[:] = -gap - out.values / next_beta
        return Ascent(V, self.product(out.w, V), float(np.abs(e).sum()), math.sqrt(float((gap * gap).sum())))

    # ------------------------------------------------------------------ statistics of columns

    def grams(self, U: Float) -> Any:
        """U_jᵀ U_j of each column."""
        M, r = self.M, U.shape[1]
        out = self.cupy.empty((M.shape[1], r, r))
        args = M.indptr, M.rows, self._on_device(U), out
        for run in self.columns.prepare_general("grams", r):
            run(*args, self._partial(run, packed(r)), run.scratch[1])
        return out

    def kth_largest(self, y: Float, k: NDArray[np.int64]) -> Any:
        """The k-th largest |y| of each column."""
        out, wanted = self.cupy.empty(self.M.shape[1]), self.cupy.asarray(k, np.int64)
        kernel("kth_largest<double>")((self.M.shape[1],), (256,), (self.M.indptr, self._on_device(y), wanted, out))
        return out


class PendingRegression(Regression):
    """A regression whose counts are still on the device: reading them waits."""

    def __init__(self, V: Any, counted: Any, unit: float) -> None:
        self.__dict__.update(V=V, pending=(counted, unit))

    def with_coefficients(self, V: Any) -> Regression:
        """The same with other coefficients, without waiting."""
        return PendingRegression(V, *self.__dict__["pending"])

    def __getattr__(self, name: str) -> Any:
        if name not in ("inside", "magnitudes"):
            raise AttributeError(name)
        counted, unit = self.__dict__["pending"]
        found, n = counted.get(), len(self.V)
        counts = found[n:].view(np.int32).astype(np.int64)
        self.__dict__.update(inside=found[:n], magnitudes=Magnitudes(counts, unit))
        return self.__dict__[name]


class PendingSweepResult(SweepResult):
    """A sweep whose pass over the rows still runs: reading its sums waits."""

    def __init__(self, r: int, V: Any, G: Any, column_sums: NDArray[np.float64], row_sums: Any) -> None:
        half = packed(r)
        smooth_in, rest_out, l1, dS2, dV2 = column_sums[half:].tolist()
        known = {"V": V, "G": G, "VVt": _symmetric(column_sums[:half], r), "smooth_in": smooth_in, "l1": l1}
        pending = PendingCopy(row_sums), rest_out, r
        self.__dict__.update(known, dS=math.sqrt(dS2), dV=math.sqrt(dV2), pending=pending)
        self.__dict__["row_sums"] = row_sums  # GᵀG and the misfit, on the device until the next sweep

    def retracted(self, U: Float, step: float) -> Any:
        """The next U, computed without waiting for GᵀG; None above the ranks that have kernels."""
        if U.shape[1] > SMALL or not on_device(U) or not U.flags.c_contiguous:
            return None
        return tall_retracted(U, self.G, step, self.__dict__["row_sums"])

    def __getattr__(self, name: str) -> Any:
        if name not in ("GtG", "smooth_out"):
            raise AttributeError(name)
        row_sums, rest_out, r = self.__dict__["pending"]
        found = row_sums()
        self.__dict__.update(GtG=_symmetric(found[:-1], r), smooth_out=rest_out + 0.5 * float(found[-1]))
        return self.__dict__[name]


class PendingCopy:
    """A small array that is being copied to the host; reading it waits, and so does deleting it."""

    def __init__(self, A: Any) -> None:
        import cupy
        import cupyx

        self.to: NDArray[np.float64] = cupyx.empty_pinned(A.shape, A.dtype)
        A.get(out=self.to, blocking=False)
        self.done = cupy.cuda.Event(disable_timing=True)
        self.done.record()

    def __call__(self) -> NDArray[np.float64]:
        """The array."""
        self.done.synchronize()
        return self.to.copy()

    def __del__(self) -> None:
        self.done.synchronize()  # the copy ends before its memory is freed


@functools.cache
def _upper(r: int) -> NDArray[np.intp]:
    """Where the entries of a symmetric matrix are in its packed upper triangle."""
    position = np.empty((r, r), np.intp)
    upper = np.triu_indices(r)
    position[upper] = np.arange(upper[0].size)
    position.T[upper] = position[upper]
    return position


def _symmetric(packed: NDArray[np.float64], r: int) -> Float:
    """The matrix whose upper triangle, row by row, this is."""
    return packed[_upper(r)]
