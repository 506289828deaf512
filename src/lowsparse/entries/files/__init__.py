"""Matrices in files: `read_matrix` reads one, `read_table` reads it with the labels of its rows and columns.

CSV, TSV, Parquet, Arrow, Feather, NumPy, Matrix Market and MATLAB files can be read; the ending tells the format. A
table is wide (a line for each row, a column for each column) or a list of records (row, column, value). CSV, TSV,
Parquet, Arrow and Feather need the extra `tables`.
"""

from .read import is_table, read_matrix, read_table
from .table import Layout, Table

__all__ = ["Layout", "Table", "is_table", "read_matrix", "read_table"]
