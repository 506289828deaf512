"""Where the entries of a matrix are and are swept: on a GPU, on disk, on a cluster; and the choice among them."""

from .disk.matrix import StoredMatrix
from .disk.store import CorruptStoreError

__all__ = ["CorruptStoreError", "StoredMatrix"]
