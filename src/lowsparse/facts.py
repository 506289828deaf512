"""What the shape and the counts of entries say of a partly observed matrix, wherever its entries are."""

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Facts"]


class Facts:
    """What the shape and the counts of entries say of a matrix."""

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
