"""Matrices larger than memory: on disk in the core's own layout, and gone through in pieces."""

from .matrix import StoredMatrix
from .store import CorruptStoreError

__all__ = ["CorruptStoreError", "StoredMatrix"]
