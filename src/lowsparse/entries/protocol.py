"""What is known of a partly observed matrix, wherever its entries are."""

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Facts"]

SAMPLE = 100_000  # values that the usual size of all is found from


class Facts:
    """What the shape, the counts of entries and the sizes of the values say of a matrix."""

    __slots__ = ()

    @property
    def density(self: Any) -> float:
        """The observed share |Ω| / (m n).

        Examples
        --------
        >>> import lowsparse as ls
        >>> ls.ObservedMatrix.from_dense([[1.0, float("nan")]]).density
        0.5
        """
        m, n = self.shape
        return float(self.nnz / (m * n))

    @property
    def empty_columns(self: Any) -> NDArray[np.intp]:
        """The columns without an entry.

        Examples
        --------
        >>> import lowsparse as ls
        >>> ls.ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).empty_columns.tolist()
        [0]
        """
        return np.flatnonzero(self.column_counts == 0)

    @property
    def empty_rows(self: Any) -> NDArray[np.intp]:
        """The rows without an entry.

        Examples
        --------
        >>> import lowsparse as ls
        >>> ls.ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).empty_rows.tolist()
        [1]
        """
        return np.flatnonzero(self.row_counts == 0)

    def thin_columns(self: Any, rank: int) -> NDArray[np.intp]:
        """The columns with fewer than `rank` entries: no subspace of that rank determines them.

        Examples
        --------
        >>> import lowsparse as ls
        >>> ls.ObservedMatrix.from_coo([0, 1, 0], [0, 0, 1], [5.0, 6.0, 7.0]).thin_columns(2).tolist()
        [1]
        """
        return np.flatnonzero(self.column_counts < rank)

    def median_magnitude(self: Any) -> float:
        """Of the values of a sample that are not zero; 0 if all are.

        Examples
        --------
        >>> import lowsparse as ls
        >>> ls.ObservedMatrix.from_dense([[0.0, -2.0, 3.0, 4.0]]).median_magnitude()
        3.0
        """
        sizes = np.abs(self.sample(SAMPLE).values).astype(np.float64)
        return float(np.median(sizes[sizes > 0])) if sizes.any() else 0.0

    def magnitudes(self: Any, clip: float) -> tuple[float, float]:
        """The largest, and the sum of the squares, each magnitude taken as at most `clip`; no copy of all is made.

        Examples
        --------
        >>> import lowsparse as ls
        >>> ls.ObservedMatrix.from_dense([[1.0, -9.0]]).magnitudes(clip=2.0)
        (9.0, 5.0)
        """
        largest, squares = 0.0, 0.0
        for part in self.parts():
            largest = max(largest, float(part.max()), -float(part.min()))
            clipped = np.clip(part, -clip, clip).astype(np.float64, copy=False)
            with np.errstate(over="ignore"):
                squares += float(clipped @ clipped)
        return largest, squares

    def __repr__(self: Any) -> str:
        m, n = self.shape
        share = 100 * self.density
        return f"{type(self).__name__}({m} x {n}, {self.nnz} entries observed ({share:.3g}%), {self.dtype})"

    def check_rank(self: Any, rank: int) -> int:
        """`rank` as an int, if a matrix of this shape can have it; an error otherwise.

        Examples
        --------
        >>> import lowsparse as ls
        >>> ls.ObservedMatrix.from_dense([[1.0, 2.0], [3.0, 4.0]]).check_rank(2)
        2
        """
        if isinstance(rank, bool) or not isinstance(rank, Integral):
            raise TypeError(f"rank must be an integer, not {rank!r}")
        m, n = self.shape
        if not 1 <= rank <= min(m, n):
            raise ValueError(f"rank is {rank}; choose 1 to {min(m, n)} for a {m} x {n} matrix")
        return int(rank)
