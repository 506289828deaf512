"""The number of threads, of the compiled core and of BLAS, changes no bit of what is found."""

import functools

import pytest

from conftest import python
from lowsparse.places.decide import available

CODE = """
import hashlib, lowsparse as ls
from conftest import robust_problem
from test_methods import METHODS, from_name
from test_streaming import FEATURES, RANK, Stream, feed, samples

def tell(name, *arrays):
    print(name, hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())

M = robust_problem(400, 500, rank=4, density=0.3).M
for method in ("amanpgc", "manpg", "ladder"):
    r = ls.solve(M, 4, method=method, max_iter=40, random_state=5)
    tell(f"{r.backend} for long: {method}", r.L.U, r.L.V, r.S.data)
for method in METHODS:
    kind = {"density": 1.0 if from_name(method.name).full else 0.6, "outliers": 0.1}
    M = ls.datasets.synthetic(200, 250, rank=3, **kind, random_state=5).M
    assert M.nnz > 25000  # of less, one thread takes all
    r = ls.solve(M, 3, method=method.solver(), max_iter=8, random_state=5)
    tell(method.name, r.L.U, r.L.V, r.S.data)
stream = feed(Stream(FEATURES, RANK, half_life=200), samples(52, n=300, noise=0.1)[0])
tell("stream", stream.U, stream.singular_values)
"""


@functools.cache
def found_with(own, others):
    return python(
        CODE, LOWSPARSE_NUM_THREADS=own, OMP_NUM_THREADS=others, OPENBLAS_NUM_THREADS=others, timeout=300
    ).stdout


def test_bits_do_not_depend_on_the_number_of_threads():
    one = found_with("1", "1")
    assert one.count("native for long") == (3 if available()["native"] is None else 0)
    assert found_with("3", "3") == one


@pytest.mark.slow
@pytest.mark.parametrize(("own", "others"), [("2", "2"), ("", "2"), ("1", "3")])
def test_whatever_they_are(own, others):
    assert found_with(own, others) == found_with("1", "1")
