"""A solve whose result is compared to the bit; a module of its own, as processes that are spawned import it."""

import hashlib

import numpy as np

import lowsparse as ls


def fingerprint(seed=1, **options):
    """The bits of the result of a problem that is large enough for two threads."""
    M = ls.datasets.synthetic(300, 200, rank=2, density=0.5, outliers=0.1, random_state=seed).M
    result = ls.solve(M, 2, **options)
    arrays = result.L.U, result.L.V, result.S.indptr, result.S.indices, result.S.data
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()
