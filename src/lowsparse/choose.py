"""What people cannot choose, chosen for them: is this recoverable, and with which rank?"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from .diagnosis import Diagnosis
from .observed import ObservedMatrix
from .solve import solve

__all__ = ["diagnose"]


def diagnose(
    M: ObservedMatrix | ArrayLike | Any,
    rank: int | None = None,
    *,
    backend: str = "auto",
    memory: int | str | None = None,
    client: Any = None,
) -> Diagnosis:
    """Say whether a low-rank matrix can be recovered from these entries, and what stands in the way.

    The data, anything `solve` takes, are solved with the default method; without a `rank` it is chosen. The rest is as
    in `solve`.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(100, 90, rank=3, density=0.5, outliers=0.1, noise=0.01, random_state=1)
    >>> d = ls.diagnose(problem.M)
    >>> d.rank, d.recovered, 0.008 < d.noise < 0.012
    (3, True, True)
    """
    return solve(M, "auto" if rank is None else rank, backend=backend, memory=memory, client=client).diagnostics
