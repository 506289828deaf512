"""The sweep over a matrix in pieces: each piece is swept where it is, and what they give is merged in a fixed order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

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
    Regressed,
    Robust,
    Rule,
    Swept,
)
from ...sweeps.losses import Loss
from .coefficients import Coefficients
from .formulas import (
    Columns,
    Entries,
    Fitted,
    Formula,
    Piece,
    PiecewiseMatrix,
    StoredNumbers,
)

__all__ = ["PiecewiseSweep"]


@dataclass(frozen=True, eq=False)
class Asked:
    """A method of the sweep of a piece, with what is the same for all pieces."""

    method: str
    first: tuple[Any, ...] = ()  # arguments before those of the piece,
    last: tuple[Any, ...] = ()  # and after

    def __call__(self, piece: Piece, *own: Any) -> tuple[Any, ...]:
        found = getattr(piece.sweep, self.method)(*self.first, *own, *self.last)
        match found:
            case Regressed():
                return found.V, found.inside, found.before.counts
            case Gradient():
                return found.value, found.U, found.V
        return (found,)


@dataclass(frozen=True, eq=False)
class SweepPiece:
    """`Sweep.sweep` of a piece: Vᵀ, G, V Vᵀ and the sums."""

    U: Float
    turn: Float | None
    options: Proximal

    def __call__(
        self, piece: Piece, S: NDArray[Any], S_out: NDArray[Any] | None, V_before: Float | None
    ) -> tuple[Any, ...]:
        return _parts(piece.sweep.sweep(self.U, S, S_out, self.options, _before(V_before, self.turn)))


def _before(V: Float | None, turn: Float | None) -> Previous | None:
    return None if V is None or turn is None else Previous(V.T, turn)


def _formula(V: Any) -> Formula:
    """The rows of Vᵀ that a piece needs: it may have them."""
    return V.formula if isinstance(V, Coefficients) else Columns(V.T)


def _parts(swept: Swept) -> tuple[Any, ...]:
    sums = np.array([swept.smooth_in, swept.smooth_out, swept.l1, swept.dS**2, swept.dV**2])
    return swept.V.T, swept.G, swept.VVt, sums


@dataclass(frozen=True, eq=False)
class AscendPiece:
    """`Sweep.ascend` of a piece."""

    U: Float
    beta: float
    next_beta: float

    def __call__(self, piece: Piece, C: Float, *four: NDArray[Any]) -> tuple[Any, ...]:
        now, out = Multiplier(*four[:2]), Multiplier(*four[2:])
        done = piece.sweep.ascend(self.U, C, now, out, self.beta, self.next_beta)
        return done.V, done.G, done.l1, done.infeasible**2


class PiecewiseSweep:
    """One pass over the columns of a matrix in pieces (see `lowsparse.sweeps.Sweep`)."""

    def __init__(self, M: PiecewiseMatrix, name: str) -> None:
        self.M, self.name, self.host = M, name, "auto"

    def _asked(self, merging: str, method: str, *own: Any, first: Any = (), last: Any = ()) -> Any:
        """What a method gives for all pieces; `merging` has a letter for each part of it: to be added, or joined."""
        formulas: list[Formula] = [x.formula if isinstance(x, Entries) else Columns(x) for x in own]
        merged = self.M.reduce_pieces(merging, Asked(method, first, last), *formulas)
        return merged if len(merging) > 1 else merged[0]

    def sweep(self, U: Float, S: Any, S_out: Any, options: Proximal, before: Previous | None = None) -> Swept:
        """The columns of each piece; f, its gradient and the other sums are those of all."""
        turn = None if before is None else before.turn
        V_before = Columns(None) if before is None else _formula(before.V)
        out = Columns(None) if S_out is None else S_out.formula
        writes: Any = () if S_out is None or options.rule == Rule.FIT else (out,)
        task = SweepPiece(U, turn, options)
        merged = self.M.reduce_pieces("^+++", task, S.formula, out, V_before, writes=writes)
        V: Any
        V, G, VVt, sums = merged
        smooth_in, smooth_out, l1, dS2, dV2 = sums.tolist()
        V = Coefficients(self.M, V, U.shape[1]) if isinstance(V, StoredNumbers) else V.T
        return Swept(V, G, G.T @ G, VVt, smooth_in, smooth_out, l1, math.sqrt(dS2), math.sqrt(dV2))

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regressed:
        """Each column."""
        found = self._asked("||+", "regress", V, first=(U,), last=(replace(options, of=self.M.nnz),))
        return Regressed(found[0], found[1], Magnitudes(found[2], options.unit))

    def residual(self, U: Float, V: Float) -> Any:
        """P_Ω(U Vᵀ) - x, when it is asked for."""
        return Entries(self.M, Fitted(U, V, True))

    def entries(self, U: Float, V: Float) -> Any:
        """P_Ω(U Vᵀ), when it is asked for."""
        return Entries(self.M, Fitted(U, V, False))

    def product(self, y: Any, V: Float) -> Float:
        """Sp(y) V."""
        total: Float = self._asked("+", "product", y, V)
        return total

    def product_transposed(self, y: Any, U: Float) -> Float:
        """Sp(y)ᵀ U."""
        total: Float = self._asked("|", "product_transposed", y, last=(U,))
        return total

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e) and both derivatives."""
        return Gradient(*self._asked("++|", "gradient", V, first=(U,), last=(loss,)))

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d²."""
        return float(self._asked("+", "curvature", V, B, first=(U,), last=(loss,)))

    def ascend(self, U: Float, C: Float, now: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """V, Z, Λ and the product with the new w."""
        four: list[Any] = [*now, *out]
        task = AscendPiece(U, beta, next_beta)
        V, G, l1, gap2 = self.M.reduce_pieces(
            "|+++",
            task,
            Columns(C),
            *(numbers.formula for numbers in four),
            writes=tuple(numbers.formula for numbers in four[2:]),
        )
        return Ascent(V, G, l1, math.sqrt(gap2))

    def grams(self, U: Float) -> Float:
        """U_jᵀ U_j of each column."""
        total: Float = self._asked("|", "grams", first=(U,))
        return total

    def kth_largest(self, y: Any, k: NDArray[np.int64]) -> Float:
        """The k-th largest |y| of each column."""
        total: Float = self._asked("|", "kth_largest", y, k)
        return total

    def gram_product(self, Q: Float) -> Float:
        """A Aᵀ Q."""
        total: Float = self._asked("+", "gram_product", first=(Q,))
        return total
