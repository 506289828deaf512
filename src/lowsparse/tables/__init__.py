"""Labelled tables: files and records of (row, column, value) in, completed tables out.

`read_table` reads CSV, TSV, Parquet, Arrow, Feather, NumPy, Matrix Market and MATLAB files, `write_table` writes a
completed table in the same layout. Labels and text need the extra `tables`.
"""

from ..entries.files import Layout, Table, read_matrix, read_table
from .completed import Completed
from .write import write_table

__all__ = ["Completed", "Layout", "Table", "read_matrix", "read_table", "write_table"]
