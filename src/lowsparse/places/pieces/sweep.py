"""The sweep over a matrix in pieces: each piece is swept where it is, and the results are merged in a fixed order."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
from .coefficients import Coefficients
from .formulas import Computed, Entries, Formula, HeldNumbers, Piece, as_entries, per_column

if TYPE_CHECKING:
    from .matrix import MatrixInPieces

# ---------------------------------------------------------------------- functions of a piece; they can be pickled


def _run_method(
    method: str, first: tuple[Any, ...], last: tuple[Any, ...], piece: Piece, *own: NDArray[Any]
) -> tuple[Any, ...]:
    """A method of the sweep of a piece; its arguments are `first`, those of the piece, and `last`."""
    result = getattr(piece.sweep, method)(*first, *own, *last)
    match result:
        case Regression():
            return result.V, result.inside, result.magnitudes.counts
        case Gradient():
            return result.value, result.U, result.V
    return (result,)


def _sweep(
    U: Float,
    rotation: Float | None,
    options: Proximal,
    piece: Piece,
    S: NDArray[Any],
    S_out: NDArray[Any] | None,
    V_previous: Float | None,
) -> tuple[Any, ...]:
    """`Sweep.sweep` of a piece: Vᵀ, G, V Vᵀ and the sums."""
    previous = None if V_previous is None or rotation is None else Previous(V_previous.T, rotation)
    swept = piece.sweep.sweep(U, S, S_out, options, previous)
    sums = np.array([swept.smooth_in, swept.smooth_out, swept.l1, swept.dS**2, swept.dV**2])
    return swept.V.T, swept.G, swept.VVt, sums


def _ascend(
    U: Float, beta: float, next_beta: float, piece: Piece, C: Float, *multipliers: NDArray[Any]
) -> tuple[Any, ...]:
    """`Sweep.ascend` of a piece, given both arrays of `current` and of `out`."""
    current, out = Multiplier(*multipliers[:2]), Multiplier(*multipliers[2:])
    ascent = piece.sweep.ascend(U, C, current, out, beta, next_beta)
    return ascent.V, ascent.G, ascent.l1, ascent.infeasible**2


def _fitted(piece: Piece, method: str, U: Float, V: Float) -> NDArray[Any]:
    """`Sweep.residual` or `Sweep.entries` of a piece."""
    e: NDArray[Any] = getattr(piece.sweep, method)(U, V)
    return e


class PiecewiseSweep:
    """One pass over the columns of a matrix in pieces (see `lowsparse.sweeps.Sweep`)."""

    def __init__(self, M: MatrixInPieces, name: str) -> None:
        self.M, self.name, self.host = M, name, "auto"

    def _merged(
        self, merging: str, method: str, *own: Any, first: tuple[Any, ...] = (), last: tuple[Any, ...] = ()
    ) -> tuple[Any, ...]:
        """What a method gives for all pieces; `own` are the arguments with numbers per entry or per column."""
        formulas = [x.formula if isinstance(x, Entries) else per_column(x) for x in own]
        return self.M.reduce_pieces(merging, partial(_run_method, method, first, last), *formulas)

    def _merged_array(self, *args: Any, **options: Any) -> Float:
        """The same of a method that gives one array."""
        array: Float
        (array,) = self._merged(*args, **options)
        return array

    def sweep(self, U: Float, S: Any, S_out: Any, options: Proximal, previous: Previous | None = None) -> SweepResult:
        """Sweep each piece; f, its gradient and the other sums are those of all pieces."""
        rotation = None if previous is None else previous.rotation
        V_previous = per_column(None) if previous is None else _rows_of(previous.V)
        out: Any = per_column(None) if S_out is None else S_out.formula
        writes = () if S_out is None or options.rule == Rule.FIT else (out,)
        task = partial(_sweep, U, rotation, options)
        found, G, VVt, sums = self.M.reduce_pieces("^+++", task, S.formula, out, V_previous, writes=writes)
        smooth_in, smooth_out, l1, dS2, dV2 = sums.tolist()
        V: Any = Coefficients(self.M, found, U.shape[1]) if isinstance(found, HeldNumbers) else found.T
        return SweepResult(V, G, G.T @ G, VVt, smooth_in, smooth_out, l1, math.sqrt(dS2), math.sqrt(dV2))

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regression:
        """Regress each column on U robustly."""
        options = replace(options, total_entries=self.M.nnz)
        fitted, inside, counts = self._merged("||+", "regress", V, first=(U,), last=(options,))
        return Regression(fitted, inside, Magnitudes(counts, options.unit))

    def residual(self, U: Float, V: Float) -> Any:
        """P_Ω(U Vᵀ) - x, as a formula."""
        return Entries(self.M, Computed(_fitted, ("residual", U), (V,)))

    def entries(self, U: Float, V: Float) -> Any:
        """P_Ω(U Vᵀ), as a formula."""
        return Entries(self.M, Computed(_fitted, ("entries", U), (V,)))

    def product(self, y: Any, V: Float) -> Float:
        """Sp(y) V."""
        return self._merged_array("+", "product", y, V)

    def product_transposed(self, y: Any, U: Float) -> Float:
        """Sp(y)ᵀ U."""
        return self._merged_array("|", "product_transposed", y, last=(U,))

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e) and both derivatives."""
        return Gradient(*self._merged("++|", "gradient", V, first=(U,), last=(loss,)))

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d²."""
        return float(self._merged_array("+", "curvature", V, B, first=(U,), last=(loss,)))

    def ascend(self, U: Float, C: Float, current: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """V, Z, Λ and the product with the new w."""
        read = (as_entries(numbers).formula for numbers in current)
        written: Any = tuple(as_entries(numbers).formula for numbers in out)
        task = partial(_ascend, U, beta, next_beta)
        V, G, l1, gap2 = self.M.reduce_pieces("|+++", task, per_column(C), *read, *written, writes=written)
        return Ascent(V, G, l1, math.sqrt(gap2))

    def grams(self, U: Float) -> Float:
        """U_jᵀ U_j of each column."""
        return self._merged_array("|", "grams", first=(U,))

    def kth_largest(self, y: Any, k: NDArray[np.int64]) -> Float:
        """The k-th largest |y| of each column."""
        return self._merged_array("|", "kth_largest", y, k)

    def gram_product(self, Q: Float) -> Float:
        """A Aᵀ Q."""
        return self._merged_array("+", "gram_product", first=(Q,))


def _rows_of(V: Any) -> Formula:
    """The rows of Vᵀ that belong to a piece, which may hold them itself."""
    return V.formula if isinstance(V, Coefficients) else per_column(V.T)
