"""Parts of the data: a block of rows and columns to learn a subspace from, with entries held out; and samples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.protocol import HeldOut, PartialMatrix, Resident
from ..linalg.arrays import host, to_device_of
from ..sweeps import Float
from .core import dense_core
from .growth import take_block

PER_LINE = (25, 10)  # (a, b): a line of the block has about a + b rank entries, or all it has
# A block of a matrix with more than LARGE entries has at least ENTRIES: in fewer, wrong ones are easily fitted, and the
# attempts that this takes to find out cost more than a larger block.
ENTRIES, LARGE = 9000, 100_000
IN_CORE = (10, 10)  # as PER_LINE, of a core (see `core`); it is looked for in blocks with more than CORE_FROM entries
CORE_FROM = 50_000
HELD_OUT = (0.03, 0.1)  # least and largest share of the entries that are held out,
N_HELD_OUT = (2000, 20_000)  # between these numbers


@dataclass(frozen=True)
class Sketch:
    """A block of rows and columns: `M` to fit, and the entries held out."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    M: Resident
    held: HeldOut  # by rows and columns of M
    strip: Resident  # all rows of these columns
    is_core: bool = False  # lines with few entries were left out

    def held_residual(self, U: Float, V: Float) -> Float:
        """U Vᵀ - x at the held-out entries; U has a row for each row of the block, V for each column."""
        product = np.einsum("kr,kr->k", U[to_device_of(self.held.rows, U)], V[to_device_of(self.held.columns, V)])
        return np.asarray(host(product) - self.held.values, dtype=np.float64)


def draw(
    M: PartialMatrix, rank: int, rng: np.random.Generator, *, min_entries: int = 500, block_factor: float = 1.0
) -> Sketch:
    """Draw a block from which a matrix of this rank can be learnt.

    All but the poorest of its lines have `PER_LINE` entries, times `block_factor`, or all that they have in M; lines
    with few entries are left out if the others have a core. If the block has fewer than `min_entries` entries, none is
    held out.
    """
    m, n = M.shape
    wanted = block_factor * (PER_LINE[0] + PER_LINE[1] * rank)
    columns = _limit_to_memory(M, _choose(n, M.row_counts, rank, wanted, rng), rng)
    strip = M.take_columns(columns)
    assert strip is not None  # there are enough of them
    least = ENTRIES / strip.nnz if M.nnz > LARGE else 0.0
    rows = _choose(m, strip.column_counts, rank, wanted, rng, least)
    block = strip.take_rows(rows).to_host_if_small()
    core = None
    if isinstance(M, ObservedMatrix) and isinstance(block, ObservedMatrix) and block.nnz > CORE_FROM:
        core = dense_core(block, block_factor * (IN_CORE[0] + IN_CORE[1] * rank), rank)
        if core is not None:
            rows, columns, block = rows[core[0]], columns[core[1]], take_block(block, *core)
            strip = strip.take_columns(core[1])
            assert strip is not None  # it has the entries of the core
    n_held = 0
    if block.nnz >= min_entries:
        (least, largest), (low, high) = HELD_OUT, N_HELD_OUT
        n_held = int(min(largest * block.nnz, max(low, least * block.nnz), high))
    held = np.sort(rng.choice(block.nnz, size=n_held, replace=False))
    return Sketch(rows, columns, *block.split(held), strip, core is not None)


def _choose(
    n_lines: int, counts: NDArray[np.int64], rank: int, wanted: float, rng: np.random.Generator, least: float = 0.0
) -> NDArray[np.intp]:
    """Random lines, at least this share or all: as many as leave about `wanted` entries in the other lines."""
    low = _low_quantile(counts)
    share = max(wanted / low, least) if low > 0 else 1.0
    if share > 0.7 or n_lines * share < 8 * rank:
        return np.arange(n_lines)
    return np.sort(rng.permutation(n_lines)[: int(np.ceil(share * n_lines))])


def _low_quantile(counts: NDArray[np.int64]) -> float:
    """The 5 % quantile, ten times as fast as np.quantile."""
    position = 0.05 * (counts.size - 1)
    low, high = int(position), min(int(position) + 1, counts.size - 1)
    some = np.partition(counts, (low, high))
    return float(some[low] + (position - low) * (some[high] - some[low]))


def _limit_to_memory(M: PartialMatrix, columns: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """As many of the columns as may be in memory."""
    entries = float(M.column_counts[columns].sum())
    if entries <= M.largest_part:
        return columns
    return np.sort(rng.permutation(columns)[: max(1, int(columns.size * M.largest_part / entries))])


class Sample:
    """About `size` of the entries, evenly spread over the columns; all of them if there are not many more."""

    def __init__(self, M: PartialMatrix, backend: str, size: int = 20_000) -> None:
        self.M = M.sample(size)
        self.sweep = self.M.open_sweep(backend)

    def residual(self, U: Float, V: Float) -> Float:
        """U Vᵀ - x at these entries; V is n x r, and r may be 0."""
        return self.sweep.residual(U, V) if U.shape[1] else -self.M.values.astype(np.float64)
