"""Labelled tables: files and records of (row, column, value) in, completed tables out.

A table is wide (a line for each row, a column for each column) or a list of records. `read_table` reads either from
CSV, TSV, Parquet, Arrow or Feather, NumPy, Matrix Market and MATLAB files, `write_table` writes a completed one in the
same shape. Labels and text need the extra `tables`.
"""

from .completed import Completed
from .read import read_table
from .table import Layout, Table
from .write import write_table

__all__ = ["Completed", "Layout", "Table", "read_table", "write_table"]
