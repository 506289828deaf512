"""Who can be asked to recover a matrix of known rank from data with holes and outliers, and nothing else."""

from __future__ import annotations

import lowsparse as ls

__all__ = ["DEFAULT", "contenders"]

DEFAULT = ls.solvers.from_name("auto").name


def contenders() -> list[str]:
    """The robust methods that take holes and need no more than a rank, the default first."""
    solvers = map(ls.solvers.from_name, ls.solvers.names())
    able = [s.name for s in solvers if s.robust and s.rank_of == "L" and not (s.full or s.needs or s.finds_rank)]
    return sorted(able, key=lambda name: name != DEFAULT)
