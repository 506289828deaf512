"""Matrices in files: `read_matrix` reads one, `read_table` reads it with the labels of its rows and columns."""

from .read import is_table, read_matrix, read_table
from .table import Layout, Table

__all__ = ["Layout", "Table", "is_table", "read_matrix", "read_table"]
