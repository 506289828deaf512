"""Matrices larger than memory: on disk in the core's own layout, and gone through in pieces."""

from .disk.matrix import StoredMatrix
from .disk.store import CorruptStoreError

__all__ = ["CorruptStoreError", "StoredMatrix"]
