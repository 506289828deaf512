"""The sweep on a GPU: the kernels of ``kernels/``, launched through CuPy over the columns and over the rows.

The columns are gathered, solved and shrunk in one kernel; the gradient, a sum over rows, is a second pass over the
row-sorted copy. Nothing is scattered and no sum depends on the order in which threads run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import host, on_device
from ...sweeps import (
    Ascent,
    Float,
    Gradient,
    Magnitudes,
    Multiplier,
    Previous,
    Proximal,
    Regressed,
    Robust,
    Rule,
    Swept,
)
from ...sweeps.losses import Loss
from .launch import (
    NULL,
    SMALL,
    by_value,
    c_type,
    explain_out_of_memory,
    kernel,
    need_cupy,
    reason_unavailable,
    tall_gram,
    tall_retracted,
)

if TYPE_CHECKING:
    from .matrix import DeviceMatrix, Positions

__all__ = ["ColumnSweep", "reason_unavailable"]

NARROW = 32  # the widest factor of a kernel without normal equations
SHORT = 96  # entries of a line that a warp takes
WIDE = 1536  # entries from which on a block has 256 threads
PIECE = (2048, 16384)  # entries of the pieces of a long line: least and most,
PIECES = 1024  # or so many for the whole matrix
KEPT = 100_000  # bytes of shared memory for a line that is gathered once
STREAMED = 12_000  # for one that passes through
COUNTED = 2**16  # residuals that are counted by their magnitudes, at most twice that
LARGEST_ROOM = 220_000  # bytes of shared memory


@dataclass(frozen=True, eq=False)
class Launch:
    """Lines that are alike: how many threads take one of them, and which they are."""

    threads: int
    cut: bool
    lines: Any
    firsts: Any
    bases: Any
    many: int
    length: int  # of a piece
    longest: int  # line, or piece


def row_stride(r: int) -> int:
    """Doubles from one gathered row to the next (as in common.cuh).

    >>> [row_stride(r) for r in (1, 2, 4, 5, 6, 8)]
    [1, 2, 6, 5, 6, 10]
    """
    return r if r % 2 or r // 2 % 2 else r + 2


def packed(r: int) -> int:
    """Numbers in a triangle of an r x r matrix.

    >>> packed(3)
    6
    """
    return r * (r + 1) // 2


def launches(positions: Positions, kept: int) -> list[Launch]:
    """The lines by their lengths: those for a warp, for a block that keeps up to `kept` entries, for one that does not,
    and those in pieces.
    """
    if ("launches", kept) not in positions.made:
        positions.made["launches", kept] = _launches(positions, kept)
    found: list[Launch] = positions.made["launches", kept]
    return found


def _launches(positions: Positions, kept: int) -> list[Launch]:
    import cupy

    counts = positions.counts
    length = min(max(PIECE[0], int(counts.sum()) // PIECES), PIECE[1])
    most = int(counts.max(initial=0))
    all_short = most <= 2 * SHORT and counts.mean() <= SHORT  # one launch then, without a list
    short = most if all_short else SHORT
    bounds = [-1, short, max(min(kept, length), short), length]
    found = []
    for k, (low, high) in enumerate(pairwise(bounds)):
        lines = np.flatnonzero((counts > low) & (counts <= high)).astype(np.int32)
        if lines.size:
            longest = int(counts[lines].max())
            threads = (32, 256 if longest > WIDE else 128, 64)[k]
            where = NULL if lines.size == counts.size else cupy.asarray(lines)  # all of them in turn
            found.append(Launch(threads, False, where, NULL, NULL, lines.size, 0, longest))
    long = np.flatnonzero(counts > length)
    if long.size:
        pieces = -(-counts[long] // length)
        bases = np.repeat(np.cumsum(pieces) - pieces, pieces)
        own = np.repeat(long, pieces)
        firsts = cupy.asarray(positions.starts[own] + length * (np.arange(own.size) - bases))
        where = cupy.asarray(own, np.int32)
        found.append(Launch(256, True, where, firsts, cupy.asarray(bases, np.int32), own.size, length, length))
    return found


@dataclass(frozen=True, eq=False)
class Ready:
    """A kernel for lines that are alike, with all that does not change from one call to the next."""

    launch: Launch
    function: Any
    grid: tuple[int]
    block: tuple[int]
    memory: int  # bytes that are shared
    first: tuple[Any, ...]  # arguments
    scratch: tuple[Any, Any]  # what the pieces of lines leave for each other: their sums, and how many have arrived

    def __call__(self, *args: Any) -> None:
        """Launch it."""
        self.function(self.grid, self.block, (*self.first, *args), shared_mem=self.memory)

    def steps(self, many: int) -> list[tuple[np.int32, np.int32]]:
        """From which step to before which one a launch goes: all at once, but one by one with lines in pieces."""
        ends = range(many + 1) if self.launch.cut else (0, many)
        return [(np.int32(first), np.int32(last)) for first, last in pairwise(ends)]


class Runner:
    """Launches kernels over all lines of a matrix, those alike at once."""

    def __init__(self, M: DeviceMatrix) -> None:
        self.M = M
        self.type = c_type(M.dtype)

    def map_pieces(
        self, name: str, r: int, *, sums: int, keeps: int = 0, width: int = 0, once: bool = True, type_: str = ""
    ) -> list[Ready]:
        """The launches of a kernel with the template arguments <r, type, threads, cut>.

        `sums` numbers are summed up for a line, `keeps` more are kept; the gathered rows have `width` numbers (r). A
        kernel that sees a line once does not keep it.
        """
        type_ = type_ or self.type
        made, key = self.M.positions.made, (name, r, type_, once)
        if key not in made:
            words = row_stride(width or r) + 1
            kept = max(KEPT // (8 * words), SHORT) if not once else SHORT
            made[key] = [
                self._ready(name, r, type_, launch, kept, words, sums, keeps)
                for launch in launches(self.M.positions, kept)
            ]
        found: list[Ready] = made[key]
        return found

    def _ready(
        self, name: str, r: int, type_: str, launch: Launch, kept: int, words: int, sums: int, keeps: int
    ) -> Ready:
        threads = launch.threads
        block = 128 if threads == 32 else threads
        streamed = max(STREAMED // (8 * words) // threads, 1) * threads
        most = launch.longest if launch.longest <= kept else streamed
        room = ((threads // 32 + 1) * sums + keeps + 1) // 2 * 2
        memory = 8 * (block // threads) * (room + most * words + most % 2)
        function = kernel(f"{name}<{r},{type_},{threads},{'true' if launch.cut else 'false'}>")
        _allow(function, memory)
        counts = (np.int32(count) for count in (launch.many, launch.length, most))
        grid = (-(-launch.many // (block // threads)),)
        first = (launch.lines, launch.firsts, launch.bases, *counts)
        return Ready(launch, function, grid, (block,), memory, first, self._scratch(launch, sums))

    def over_general(self, name: str, r: int, *types: str) -> list[Ready]:
        """The launches of a kernel of general.cuh, for any rank: template arguments <types, threads, cut>.

        What the pieces leave for each other may be large, and is not kept: only how many have arrived is in `scratch`.
        """
        made, key = self.M.positions.made, (name, r, *types)
        if key not in made:
            made[key] = [self._ready_general(name, r, types, launch) for launch in launches(self.M.positions, SHORT)]
        found: list[Ready] = made[key]
        return found

    def _ready_general(self, name: str, r: int, types: tuple[str, ...], launch: Launch) -> Ready:
        threads = min(2 * launch.threads, 256)
        panel = 17 * threads + r // 4 * 4 + 4  # as GeneralRoom has it: rows and weights, v
        memory = 8 * (panel + packed(r) + 2 * r + 3)
        if memory > LARGEST_ROOM:
            raise ValueError(f"the rank {r} is too large for a GPU, whose normal equations take {memory} bytes there")
        function = kernel(f"{name}<{','.join((*types, str(threads), 'true' if launch.cut else 'false'))}>")
        _allow(function, memory)
        first = (np.int32(r), launch.lines, launch.firsts, launch.bases, np.int32(launch.many), np.int32(launch.length))
        return Ready(launch, function, (launch.many,), (threads,), memory, first, self._scratch(launch, 0))

    def _scratch(self, launch: Launch, sums: int) -> tuple[Any, Any]:
        if not launch.cut:
            return NULL, NULL
        import cupy

        return cupy.empty(launch.many * sums), cupy.zeros(launch.many, np.int32)


def _allow(function: Any, memory: int) -> None:
    """Let a kernel have that much shared memory."""
    if memory > 48_000 and function.max_dynamic_shared_size_bytes < memory:
        function.max_dynamic_shared_size_bytes = memory


class ColumnSweep:
    """One pass over the columns of a matrix on a GPU (see `lowsparse.sweeps.Sweep`)."""

    name, host = "cuda", "auto"

    def __init__(self, M: DeviceMatrix) -> None:
        self.cupy = need_cupy()
        self.M = M
        self.columns = Runner(M)

    @functools.cached_property
    def rows(self) -> Runner:
        """Over the row-sorted copy, which is made once."""
        return Runner(self.M.T)

    @functools.cached_property
    def room(self) -> Callable[[str, int], Any]:
        """Memory by name and size, to be written to and read within one sweep: it is there for the next one too."""
        empty = self.cupy.empty  # without the sweep, which holds what is made here
        return functools.cache(lambda name, size: empty(size))

    def _whole(self, A: Any) -> Any:
        """A on the device, row by row."""
        if on_device(A) and A.flags.c_contiguous and A.dtype == np.float64:
            return A
        return self.cupy.ascontiguousarray(self.cupy.asarray(A), dtype=np.float64)

    # ------------------------------------------------------------------ the proximal sweep

    def sweep(
        self, U: Float, S: NDArray[Any], S_out: NDArray[Any] | None, options: Proximal, before: Previous | None = None
    ) -> Swept:
        """Solve, shrink, solve again; then the gradient row by row."""
        rule, gamma, t_S, lambda2 = options.rule, options.gamma, options.t_S, options.lambda2
        if S_out is None and rule != Rule.FIT:
            raise ValueError("S_out is needed by every rule but FIT")
        r = U.shape[1]
        half = packed(r)
        U, S_new = self._whole(U), NULL if S_out is None else S_out
        again = rule == Rule.AMANPG and t_S == 1.0 and r <= SMALL  # S+ can be computed again from x, row by row
        both = self.room("both", 2 * self.M.shape[1] * r) if again else NULL
        rest = NULL if again or rule == Rule.FIT else self.cupy.empty(self.M.nnz)
        numbers = float(gamma), float(t_S), float(lambda2), np.int32(rule)
        V, sums = self._columns_swept(U, (S, S_new), both, rest, before, numbers)
        found = self.room("found", 2 * half + 6)  # V Vᵀ and the five sums, GᵀG and the misfit
        self._tall(V, sums, 5, found[: half + 5])
        of_columns = Coming(found[: half + 5])
        if rule == Rule.FIT:
            G, misfits = self.cupy.empty((0, r)), NULL
            found[half + 5 :] = 0.0
        elif again:
            G, misfits = self._gradient_again(U, both, gamma, lambda2, found)
        else:
            G = self._product(self.rows, rest, V, order=True, own=U, VVt=found, l2=lambda2)
            misfits = self.cupy.zeros(len(U))
        if len(G):
            self._tall(G, misfits, 1, found[half + 5 :])
        return LateSwept(r, V.T, G, of_columns(), found[half + 5 :])

    def _columns_swept(
        self, U: Any, S: tuple[Any, Any], both: Any, rest: Any, before: Previous | None, numbers: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        """The pass over the columns: V, and five sums of each column."""
        M, n, r = self.M, self.M.shape[1], U.shape[1]
        V, sums = self.cupy.empty((n, r)), self.room("sums", 5 * n)
        where, rule = (M.indptr, M.rows, M.values), numbers[3]
        last = 2 if rule == Rule.AMANPG and isinstance(both, np.intp) else 1
        V_before, turn = NULL, np.zeros((r, r))
        if before is not None:
            V_before, turn = self._whole(before.V.T), host(before.turn)
        if r <= SMALL:
            small = (*where, U, *S, V, both, rest, V_before, by_value(turn), *numbers)
            self._small_sweep(r, small, sums, last)
        else:
            prior = NULL if before is None else V_before @ self._whole(turn.T)
            self._general_sweep(r, (*where, U, *S, V, rest, prior, *numbers, sums, np.int64(n)), last)
        return V, sums

    def _general_sweep(self, r: int, args: tuple[Any, ...], last: int) -> None:
        for go in self.columns.over_general("sweep_general", r, self.columns.type):
            partial = self._left(go, packed(r) + r)
            factors = self._left(go, packed(r) + r, lines=2)  # a line in pieces has two at least
            for first, final in go.steps(last + 1):
                go(*args, first, np.int32(final - 1), partial, factors, go.scratch[1])

    def _left(self, go: Ready, size: int, lines: int = 1) -> Any:
        """Memory for what pieces leave for each other, so many numbers each (or every `lines` of them)."""
        if not go.launch.cut:
            return NULL
        numbers = -(-go.launch.many // lines) * size
        with explain_out_of_memory(8 * numbers, "what the pieces of long columns leave for each other"):
            return self.cupy.empty(numbers)

    def _small_sweep(self, r: int, args: tuple[Any, ...], sums: Any, last: int) -> None:
        normal = packed(r)
        keeps = normal + 2 * r
        for go in self.columns.map_pieces("sweep", r, sums=max(normal + r, r + 3), keeps=keeps, once=False):
            partial, tickets = go.scratch
            stored = self.cupy.empty(go.launch.many * (normal + r)) if go.launch.cut else NULL
            for first, final in go.steps(last + 1):
                go(*args, first, np.int32(final - 1), sums, np.int64(self.M.shape[1]), partial, stored, tickets)

    def _gradient_again(self, U: Any, both: Any, gamma: float, l2: float, VVt: Any) -> tuple[Any, Any]:
        T = self.M.T
        G, misfits = self.cupy.empty_like(U), self.room("misfits", len(U))
        r = U.shape[1]
        args = (T.indptr, T.rows, T.values, U, both, float(gamma), float(l2), VVt, G, misfits)
        for go in self.rows.map_pieces("gradient_rows", r, sums=r + 1, width=2 * r):
            go(*args, *go.scratch)
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

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regressed:
        """Regress each column on U robustly; all the turns of a column while its rows are at hand."""
        cupy, M, r = self.cupy, self.M, U.shape[1]
        n = M.shape[1]
        U, guess = self._whole(U), NULL if V is None else self._whole(V)
        fitted = cupy.empty((n, r))
        counted = cupy.zeros(n + 512, np.int64)  # inside, and the 1024 counts
        sampling = (1 << max(0, ((options.of or M.nnz) // COUNTED).bit_length() - 1)) - 1
        first_c = options.c if options.first_c is None or options.turns == 1 else options.first_c
        numbers = (
            np.int32(sampling),
            np.int32(options.kind),
            float(first_c),
            float((options.c / first_c) ** (1 / max(options.turns - 1, 1))),
            float(options.c),
            float(options.p),
            np.int32(options.turns),
            float(options.shrink),
            float(options.ridge),
            float(options.largest),
            float(options.bound),
            1.0 / options.unit,
        )
        args = (M.indptr, M.rows, M.values, np.int64(len(U)), U, guess, fitted, counted, counted[n:], *numbers)
        if r <= SMALL:
            sums = packed(r) + r + 2
            for go in self.columns.map_pieces("regress", r, sums=sums, keeps=r, once=options.turns == 1):
                for turns in go.steps(options.turns):
                    go(*args, *turns, *go.scratch)
        else:
            for go in self.columns.over_general("regress_general", r, self.columns.type):
                partial = self._left(go, packed(r) + r + 2)
                for turns in go.steps(options.turns):
                    go(*args, *turns, partial, go.scratch[1])
        return LateRegressed(fitted, counted, options.unit)

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
            A, own = self._whole(U[:, part]), self._whole(V[:, part])
            with explain_out_of_memory(8 * M.nnz, "a number for each entry"):
                out = self.cupy.empty(M.nnz)
            args = (M.indptr, M.rows, M.values, A, own, np.int32(minus and not first), out)
            for go in self.columns.map_pieces("entries", A.shape[1], sums=1):
                go(*args)
            total = out if total is None else total + out
        return total

    def product(self, y: Float, V: Float) -> Any:
        """Sp(y) V."""
        return self._product(self.rows, y, V, order=True)

    def product_transposed(self, y: Float, U: Float) -> Any:
        """Sp(y)ᵀ U."""
        return self._product(self.columns, y, U)

    def _product(
        self, over: Runner, y: Any, A: Any, *, order: bool = False, own: Any = None, VVt: Any = None, l2: float = 0.0
    ) -> Any:
        M, k = over.M, A.shape[1]
        y = self.cupy.ascontiguousarray(y)
        where = self.M.positions.turned[1] if order else NULL
        if k > SMALL and own is not None:
            full = _symmetric(host(VVt)[: k * (k + 1) // 2], k)
            return self._product(over, y, A, order=order) + l2 * own @ self.cupy.asarray(full)
        parts = []
        for first in range(0, k, NARROW):
            B = self._whole(A[:, first : first + NARROW])
            out = self.cupy.empty((M.shape[1], B.shape[1]))
            extra = (NULL,) * 2 if own is None else (own, VVt)
            args = (M.indptr, M.rows, y, where, B, *extra, float(l2), out)
            type_ = "double" if y.dtype == np.float64 else "float"
            for go in over.map_pieces("product", B.shape[1], sums=B.shape[1], type_=type_):
                go(*args, *go.scratch)
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
        U, V = self._whole(U), self._whole(V)
        values = self.cupy.empty(self.M.shape[1])
        by_column = self._slopes(self.columns, U, V, loss, values)
        by_row = self._slopes(self.rows, V, U, loss, NULL)
        return Gradient(float(values.sum()), by_row, by_column)

    def _slopes(self, over: Runner, A: Any, own: Any, loss: Loss, values: Any) -> Any:
        M, out = over.M, self.cupy.empty_like(own)
        kind = np.int32(loss.kind), float(loss.c), float(loss.p)
        args = (M.indptr, M.rows, M.values, A, own, *kind, out, values)
        for go in over.map_pieces("slopes", A.shape[1], sums=A.shape[1] + 1):
            go(*args, *go.scratch)
        return out

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d²."""
        if U.shape[1] > NARROW:
            return float((loss.weight(self.residual(U, V)) * self.entries(U, B) ** 2).sum())
        M, out = self.M, self.cupy.empty(self.M.shape[1])
        factors = (self._whole(factor) for factor in (U, V, B))
        args = (M.indptr, M.rows, M.values, *factors, np.int32(loss.kind), float(loss.c), float(loss.p), out)
        for go in self.columns.map_pieces("curvature", U.shape[1], sums=1):
            go(*args, *go.scratch)
        return float(out.sum())

    def ascend(self, U: Float, C: Float, now: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """The steps in V, Z and Λ, and the product for the step in U that follows."""
        V = self._whole(C) + self.product_transposed(now.w, U)
        e = self.residual(U, V)
        out.values[:] = np.clip(now.values + beta * e, -1.0, 1.0)
        gap = (out.values - now.values) / beta
        out.w[:] = -gap - out.values / next_beta
        return Ascent(V, self.product(out.w, V), float(np.abs(e).sum()), math.sqrt(float((gap * gap).sum())))

    # ------------------------------------------------------------------ what else is asked of columns

    def grams(self, U: Float) -> Any:
        """U_jᵀ U_j of each column."""
        M, r = self.M, U.shape[1]
        out = self.cupy.empty((M.shape[1], r, r))
        args = M.indptr, M.rows, self._whole(U), out
        for go in self.columns.over_general("grams", r):
            go(*args, self._left(go, packed(r)), go.scratch[1])
        return out

    def kth_largest(self, y: Float, k: NDArray[np.int64]) -> Any:
        """The k-th largest |y| of each column."""
        out, wanted = self.cupy.empty(self.M.shape[1]), self.cupy.asarray(k, np.int64)
        kernel("kth_largest<double>")((self.M.shape[1],), (256,), (self.M.indptr, self._whole(y), wanted, out))
        return out


class LateRegressed(Regressed):
    """A regression whose counts are on the device: they are waited for when they are asked for."""

    def __init__(self, V: Any, counted: Any, unit: float) -> None:
        self.__dict__.update(V=V, later=(counted, unit))

    def with_coefficients(self, V: Any) -> Regressed:
        """The same with other coefficients; nothing is waited for."""
        return LateRegressed(V, *self.__dict__["later"])

    def __getattr__(self, name: str) -> Any:
        if name not in ("inside", "before"):
            raise AttributeError(name)
        counted, unit = self.__dict__["later"]
        found, n = counted.get(), len(self.V)
        counts = found[n:].view(np.int32).astype(np.int64)
        self.__dict__.update(inside=found[:n], before=Magnitudes(counts, unit))
        return self.__dict__[name]


class LateSwept(Swept):
    """A sweep of which the second pass is still on its way: what it gives is waited for when it is asked for."""

    def __init__(self, r: int, V: Any, G: Any, of_columns: NDArray[np.float64], of_rows: Any) -> None:
        half = packed(r)
        smooth_in, rest_out, l1, dS2, dV2 = of_columns[half:].tolist()
        known = {"V": V, "G": G, "VVt": _symmetric(of_columns[:half], r), "smooth_in": smooth_in, "l1": l1}
        self.__dict__.update(known, dS=math.sqrt(dS2), dV=math.sqrt(dV2), later=(Coming(of_rows), rest_out, r))
        self.__dict__["of_rows"] = of_rows  # GᵀG and the misfit, on the device until the next sweep

    def retracted(self, U: Float, step: float) -> Any:
        """The next U, which is on its way before the processor has GᵀG; None above the ranks that have kernels."""
        whole = U.shape[1] <= SMALL and on_device(U) and U.flags.c_contiguous
        return tall_retracted(U, self.G, step, self.__dict__["of_rows"]) if whole else None

    def __getattr__(self, name: str) -> Any:
        if name not in ("GtG", "smooth_out"):
            raise AttributeError(name)
        of_rows, rest_out, r = self.__dict__["later"]
        found = of_rows()
        self.__dict__.update(GtG=_symmetric(found[:-1], r), smooth_out=rest_out + 0.5 * float(found[-1]))
        return self.__dict__[name]


class Coming:
    """A small array on its way to the host; it is waited for when it is asked for, or no longer wanted."""

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
        self.done.synchronize()  # its memory may be used again


@functools.cache
def _upper(r: int) -> NDArray[np.intp]:
    """Where the entries of a symmetric matrix are in its packed upper triangle."""
    place = np.empty((r, r), np.intp)
    upper = np.triu_indices(r)
    place[upper] = np.arange(upper[0].size)
    place.T[upper] = place[upper]
    return place


def _symmetric(packed: NDArray[np.float64], r: int) -> Float:
    """The matrix whose upper triangle, row by row, this is."""
    return packed[_upper(r)]
