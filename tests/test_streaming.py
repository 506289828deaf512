"""The engine of streaming robust PCA: it ends where the batch solution is, and follows what changes.

No constant of the method was chosen on these seeds.
"""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import lowsparse as ls
from conftest import assert_close, orthonormal
from lowsparse.robust.regression import EFFICIENT
from lowsparse.streaming import Stream, Sums
from lowsparse.streaming import stream as streaming
from lowsparse.streaming.block import SampleBlock
from lowsparse.sweeps import Robust

FEATURES, RANK = 120, 4


def angle(U, truth):
    """The largest principal angle from the truth to U."""
    Q = np.linalg.qr(truth)[0]
    return math.asin(min(1.0, np.linalg.norm(Q - U @ (U.T @ Q), 2)))


def corrupt(X, seed, *, missing=0.3, outliers=0.1, size=8.0, noise=0.0):
    """Samples with noise, gross errors and holes."""
    rng = np.random.default_rng([41, seed])
    X = X + noise * rng.standard_normal(X.shape)
    wrong = rng.random(X.shape) < outliers
    X[wrong] += size * rng.standard_normal(wrong.sum())
    X[rng.random(X.shape) < missing] = np.nan
    return X


def clean(seed, n=500, m=FEATURES, r=RANK):
    """n samples, a column each, and the subspace they are from."""
    rng = np.random.default_rng([40, seed])
    truth = rng.standard_normal((m, r))
    return truth @ rng.standard_normal((r, n)), truth


def samples(seed, n=500, m=FEATURES, r=RANK, **kind):
    X, truth = clean(seed, n, m, r)
    return corrupt(X, seed, **kind), truth


def feed(stream, X, batch=50):
    for first in range(0, X.shape[1], batch):
        part = X[:, first : first + batch]
        if np.isnan(part).all():
            stream.wait(part.shape[1])
        else:
            stream.push(ls.ObservedMatrix.from_dense(part))
    return stream


# ---------------------------------------------------------------------- one pass, and the batch solution


@pytest.mark.parametrize("seed", range(12))
def test_ten_batches_of_fifty(seed):
    X, truth = samples(seed)
    stream = feed(Stream(FEATURES, RANK), X)
    assert angle(stream.U, truth) < 1e-7
    assert angle(feed(stream, X).U, truth) < 1e-7
    assert stream.changes == 0


@pytest.mark.parametrize(
    "kind",
    [
        {"outliers": 0.25},
        {"size": 1e6},
        {"size": 1e6, "outliers": 0.25},
        {"size": 1e30},
        {"missing": 0.6},
        {"m": 40, "r": 1, "n": 300},
        {"m": 400, "r": 8, "missing": 0.7, "n": 1500},
    ],
    ids=str,
)
def test_other_data(kind):
    X, truth = samples(21, **kind)
    assert angle(feed(Stream(*truth.shape), X).U, truth) < 1e-7


@pytest.mark.parametrize("noise", [0.01, 0.3])
@pytest.mark.parametrize("outliers", [0.1, 0.25])
def test_with_noise_one_pass_is_as_good_as_all_samples_at_once(noise, outliers):
    for seed in (31, 32):
        X, truth = samples(seed, noise=noise, outliers=outliers)
        best = angle(ls.solve(X, RANK).L.U, truth)
        stream = feed(Stream(FEATURES, RANK), X)
        assert angle(stream.U, truth) < 1.1 * best
        assert angle(feed(stream, X).U, truth) < 1.1 * best


def test_noise_and_singular_values():
    L = clean(33, n=1500)[0]
    stream = feed(Stream(FEATURES, RANK), corrupt(L, 33, noise=0.2))
    assert stream.noise == pytest.approx(0.2, rel=0.15)  # outliers that pass for noise are in it
    assert_close(stream.singular_values, np.linalg.svd(L, compute_uv=False)[:RANK], 0.02)
    assert_close(stream.U.T @ stream.U, np.eye(RANK), 1e-12)


def test_noise_is_what_the_coefficients_leave():
    """5 of about 21 residuals in a sample are fitted away: without a correction the noise would be 13 % too small."""
    X, _ = samples(35, n=2000, m=30, r=5, outliers=0.0, noise=0.2)
    assert feed(Stream(30, 5), X).noise == pytest.approx(0.2, rel=0.08)


def test_new_samples_are_placed():
    L = clean(34, n=600)[0]
    X = corrupt(L, 34)
    stream = feed(Stream(FEATURES, RANK), X[:, :500])
    V = stream.regression.coefficients(ls.ObservedMatrix.from_dense(X[:, 500:]))
    assert_close(stream.U @ V.T, L[:, 500:], 1e-6)


# ---------------------------------------------------------------------- what must not matter


@pytest.fixture(scope="module")
def noisy():
    X, truth = samples(51, n=260, noise=0.1)
    X[:, 7] = np.nan  # a sample without entries,
    X[RANK:, 100] = np.nan  # and one with too few
    return X, truth, feed(Stream(FEATURES, RANK, half_life=150), X)


@pytest.mark.parametrize("batch", [1, 7, 260])
def test_batches_do_not_matter(noisy, batch):
    X, _, stream = noisy
    other = feed(Stream(FEATURES, RANK, half_life=150), X, batch)
    assert other.samples == stream.samples == 260
    assert np.array_equal(other.U, stream.U)
    assert np.array_equal(other.singular_values, stream.singular_values)
    assert other.noise == stream.noise


def test_looking_does_not_matter(noisy):
    X, _, stream = noisy
    watched = Stream(FEATURES, RANK, half_life=150)
    for first in range(0, 260, 13):
        feed(watched, X[:, first : first + 13])
        assert_close(watched.U.T @ watched.U, np.eye(RANK), 1e-12)
    assert np.array_equal(watched.U, stream.U)


def test_a_copy_goes_on_by_itself(noisy):
    X, _, stream = noisy
    half = feed(Stream(FEATURES, RANK, half_life=150), X[:, :150])
    before = half.U
    for other in (copy.deepcopy(half), pickle.loads(pickle.dumps(half))):
        assert np.array_equal(feed(other, X[:, 150:]).U, stream.U)
    assert np.array_equal(half.U, before)


@pytest.mark.parametrize("c", [255.0, 1 / 255, 1e-20])
def test_units_do_not_matter(noisy, c):
    X, _, stream = noisy
    other = feed(Stream(FEATURES, RANK, half_life=150), c * X)
    assert_close(other.U @ other.U.T, stream.U @ stream.U.T, 1e-6)
    assert other.noise == pytest.approx(c * stream.noise, rel=1e-5)
    assert_close(other.singular_values, c * stream.singular_values, 1e-6)


def test_single_precision(noisy):
    X, _, stream = noisy
    other = feed(Stream(FEATURES, RANK, half_life=150), X.astype(np.float32))
    assert angle(other.U, stream.U) < 1e-5


def test_backends_agree(noisy, backend):
    if backend == "cuda":
        pytest.skip("a stream is learnt in memory, and says so if a GPU is asked for")
    X, _, stream = noisy
    other = feed(Stream(FEATURES, RANK, half_life=150, backend=backend), X)
    assert angle(other.U, stream.U) < 1e-4


def test_memory_does_not_grow():
    X, _ = samples(53, n=1400, noise=0.1)
    stream = Stream(FEATURES, RANK)
    sizes = []
    for first in range(0, 1400, 100):
        feed(stream, X[:, first : first + 100])
        sizes.append(len(pickle.dumps(stream)))
    per_feature = 15 + 8 * RANK  # entries that wait, and those of the last sample
    sums = 2 * 8 * (RANK**2 + 2 * RANK)  # of what is believed and of a rival
    assert max(sizes) < FEATURES * (12 * (per_feature + 1) + sums) + 5000
    assert max(sizes[7:]) <= max(sizes[:7]) + 12 * FEATURES


# ---------------------------------------------------------------------- what changes


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("at", [300, 330])
def test_another_scene_is_followed_within_two_half_lives(noise, at):
    (first, old), (second, new) = (samples(seed, noise=noise) for seed in (61, 62))
    bound = 0.02 if noise else 1e-6
    stream = feed(Stream(FEATURES, RANK, half_life=100), first[:, :at])
    assert angle(stream.U, old) < bound
    feed(stream, second[:, :210])
    assert angle(stream.U, new) < bound
    assert stream.changes == 1


def test_without_forgetting_the_majority_is_believed():
    (first, old), (second, new) = (samples(seed, noise=0.1) for seed in (63, 64))
    stream = feed(feed(Stream(FEATURES, RANK), first[:, :400]), second[:, :200])
    assert angle(stream.U, old) < 0.2 < angle(stream.U, new)
    feed(stream, second)
    assert angle(stream.U, new) < 0.02


def test_an_interlude_is_not_followed():
    (first, old), (second, _) = (samples(seed, noise=0.05) for seed in (65, 66))
    stream = feed(Stream(FEATURES, RANK, half_life=300), first[:, :300])
    feed(stream, second[:, :75])
    feed(stream, first[:, 300:])
    assert stream.changes == 0
    assert angle(stream.U, old) < 0.02


def rotating(seed, n=800, rate=5e-4):
    """A subspace that turns by `rate` with every sample, and where it is in the end."""
    Q = orthonormal(FEATURES, 2 * RANK, seed)
    turned = [math.cos(rate * t) * Q[:, :RANK] + math.sin(rate * t) * Q[:, RANK:] for t in range(n)]
    V = math.sqrt(FEATURES) * np.random.default_rng([42, seed]).standard_normal((n, RANK))
    return np.stack([U @ v for U, v in zip(turned, V, strict=True)], axis=1), turned[-1]


def test_a_subspace_that_turns_is_followed():
    X, now = rotating(67)
    X = corrupt(X, 67, noise=0.1)
    lag = {
        half_life: angle(feed(Stream(FEATURES, RANK, half_life=half_life), X).U, now) for half_life in (20, 80, None)
    }
    # the mean age of what is remembered is half_life / log 2 samples, if that is more than a block has
    assert lag[20] < 1.5 * 5e-4 * (20 / math.log(2) + 40)
    assert lag[80] < 1.5 * 5e-4 * (80 / math.log(2) + 40)
    assert lag[20] < lag[80] < lag[None]


def test_time_passes_without_samples():
    X, _ = samples(68, n=200)
    stream = feed(Stream(FEATURES, RANK, half_life=50), X)
    before = stream.singular_values
    stream.wait(100)
    assert stream.samples == 300
    feed(stream, X)
    once = feed(Stream(FEATURES, RANK, half_life=50), X).singular_values
    expected = math.sqrt(1 + 2.0 ** -((100 + 200) / 50))
    assert_close(stream.singular_values, once * expected, 0.02)
    assert_close(before, once, 1e-12)


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("what", ["noise", "constant", "zero"])
def test_a_wrong_start_is_overcome(what, noise):
    X, truth = samples(71, n=700, noise=noise)
    start = {"noise": 2.0 * orthonormal(FEATURES, 90, 3) * math.sqrt(FEATURES), "constant": 1.0, "zero": 0.0}[what]
    X[:, :90] = corrupt(np.zeros((FEATURES, 90)) + start, 72, noise=noise)
    assert angle(feed(Stream(FEATURES, RANK), X).U, truth) < (0.02 if noise else 1e-6)


@pytest.mark.parametrize("size", [5.0, 1e6])
def test_samples_that_are_wrong_as_a_whole(size):
    X, truth = samples(73, noise=0.1)
    wrong = np.random.default_rng(74).random(500) < 0.15
    X[:, wrong] = np.where(np.isnan(X[:, wrong]), np.nan, size * orthonormal(FEATURES, wrong.sum(), 4) * 11)
    stream = feed(Stream(FEATURES, RANK), X)
    assert angle(stream.U, truth) < 0.02
    assert stream.singular_values[0] < 400  # a few times √(500 · 120)


def test_a_feature_that_is_never_seen():
    X, truth = samples(75)
    X[5] = np.nan
    stream = feed(Stream(FEATURES, RANK), X)
    assert_close(stream.U[5], np.zeros(RANK), 1e-12, scale=1.0)
    truth[5] = 0.0
    assert angle(stream.U, truth) < 1e-7


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_feature_that_is_seen_late(noise):
    X, truth = samples(76, n=600, noise=noise)
    X[:10, :300] = np.nan
    assert angle(feed(Stream(FEATURES, RANK), X).U, truth) < (0.02 if noise else 1e-6)


def by_and_by(seed, noise):
    """Two directions in 200 samples, two others in the next 150, then all four."""
    rng = np.random.default_rng([77, seed])
    truth, V = rng.standard_normal((FEATURES, RANK)), rng.standard_normal((RANK, 600))
    V[2:, :200], V[:2, 200:350] = 0.0, 0.0
    return corrupt(truth @ V, seed, noise=noise), truth, np.linalg.svd(truth @ V[:, :200], compute_uv=False)


def test_directions_that_show_late():
    X, truth, _ = by_and_by(40, 0.0)
    stream = feed(Stream(FEATURES, RANK), X[:, :200])
    assert angle(stream.U, truth[:, :2]) < 1e-7
    assert np.array_equal(stream.singular_values[2:], [0.0, 0.0])
    assert angle(feed(stream, X[:, 200:350]).U, truth) < 1e-6
    assert angle(feed(stream, X[:, 350:]).U, truth) < 1e-6


@pytest.mark.parametrize("seed", [40, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (43, 53))])
def test_directions_that_are_not_there_yet(seed):
    """They are fitted to noise and outliers of single features; who does not have such a feature must not run wild."""
    X, truth, sizes = by_and_by(seed, 0.1)
    stream = feed(Stream(FEATURES, RANK), X[:, :200])
    assert_close(stream.singular_values[:2], sizes[:2], 0.03)
    assert stream.singular_values[2] < 0.5 * sizes[1]
    assert angle(feed(stream, X[:, 200:]).U, truth) < 0.03


def sane(stream):
    assert stream.U.shape == (stream.features, stream.rank)
    assert_close(stream.U.T @ stream.U, np.eye(stream.rank), 1e-12)
    assert np.isfinite(stream.singular_values).all()
    assert (np.diff(stream.singular_values) <= 0).all()
    assert math.isfinite(stream.noise)


@pytest.mark.parametrize("half_life", [None, 3.0])
def test_odd_data(half_life):
    stream = Stream(12, 3, half_life=half_life)
    sane(stream)  # nothing has come
    stream.wait(2)
    sane(stream)
    stream.push(ls.ObservedMatrix.from_coo([0], [0], [5.0], (12, 1)))  # a single entry
    sane(stream)
    one = np.arange(1.0, 13.0)[:, None]
    stream.push(ls.ObservedMatrix.from_dense(one))  # a single sample, fewer than the rank
    sane(stream)
    assert angle(stream.U, one) < 1e-7
    feed(stream, np.zeros((12, 300)))
    sane(stream)
    feed(stream, np.random.default_rng(78).standard_normal((12, 300)), batch=1)
    sane(stream)
    feed(stream, np.zeros((12, 100)))
    sane(stream)
    assert stream.noise > 1e-3  # what is blank says nothing about it


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (5, 1), (300, 2)])
def test_odd_shapes(shape):
    m, r = shape
    rng = np.random.default_rng(79)
    truth = rng.standard_normal((m, r))
    stream = feed(Stream(m, r), truth @ rng.standard_normal((r, 200)), batch=9)
    sane(stream)
    assert angle(stream.U, truth) < 1e-6


def test_zeros_alone():
    stream = feed(Stream(10, 2), np.zeros((10, 150)))
    sane(stream)
    assert np.array_equal(stream.singular_values, [0.0, 0.0])
    X, truth = samples(80, m=10, r=2, n=300, missing=0.0, outliers=0.0)
    assert angle(feed(stream, X).U, truth) < 1e-6


def test_an_interruption_leaves_the_stream_as_it_was(monkeypatch):
    X, _ = samples(81)
    stream = feed(Stream(FEATURES, RANK), X[:, :100])
    before, update = copy.deepcopy(stream), streaming.update

    def interrupted(*given):
        monkeypatch.setattr(streaming, "update", update)
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.push(ls.ObservedMatrix.from_dense(X[:, 100:]))
    assert stream.samples == 100
    assert np.array_equal(feed(stream, X[:, 100:]).U, feed(before, X[:, 100:]).U)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (((10, 11), {}), "rank"),
        (((10, 0), {}), "rank"),
        (((10, 2.0), {}), "rank"),
        (((True, 1), {}), "features"),
        (((10, 2), {"half_life": 0}), "half_life"),
        (((10, 2), {"half_life": math.nan}), "half_life"),
        (((10, 2), {"backend": "magic"}), "backend"),
    ],
)
def test_what_is_asked_for_is_checked(given, word):
    with pytest.raises(ValueError, match=word):
        Stream(*given[0], **given[1])


def test_what_is_pushed_is_checked():
    stream = Stream(10, 2)
    with pytest.raises(ValueError, match="8 features"):
        stream.push(ls.ObservedMatrix.from_dense(np.ones((8, 3))))
    with pytest.raises(ValueError, match="divide"):
        stream.push(ls.ObservedMatrix.from_dense(np.full((10, 3), 1e80)))
    with pytest.raises(ValueError, match="samples must be"):
        stream.wait(-1)
    assert stream.samples == 0


# ---------------------------------------------------------------------- the sums


def block(X, discount, fade=1.0):
    return SampleBlock(ls.ObservedMatrix.from_dense(X), discount, fade, complete=True, unit=1.0, backend="numpy")


def test_sums_are_the_weighted_normal_equations():
    rng = np.random.default_rng(91)
    X, V, discount = rng.standard_normal((7, 12)), rng.standard_normal((12, 3)), rng.random(12)
    X[rng.random(X.shape) < 0.3] = np.nan
    U, c = rng.standard_normal((7, 3)), 0.8
    seen = ~np.isnan(X)
    E = np.where(seen, U @ V.T - X, 0.0)
    W = seen / (1 + (E / c) ** 2)
    data = block(X, discount)
    found = data.sums(V, data.sweep.residual(U, V), c)
    assert_close(found.A, np.einsum("ij,j,ja,jb->iab", W, discount, V, V), 1e-12)
    assert_close(found.b, np.einsum("ij,j,ja,ij->ia", W, discount, V, np.nan_to_num(X)), 1e-12)
    omega = discount * W.sum(axis=0) / seen.sum(axis=0)
    assert_close(found.energy, np.einsum("j,ja,jb->ab", omega, V, V), 1e-12)
    assert found.weight == pytest.approx(omega.sum())
    assert found.samples == pytest.approx(discount.sum())
    # the rows are those of weighted least squares, whatever they were before
    for i, row in enumerate(found.solve(rng.standard_normal((7, 3)))):
        root = np.sqrt(W[i] * discount)
        assert_close(row, np.linalg.lstsq(root[:, None] * V, root * np.nan_to_num(X[i]), rcond=None)[0], 1e-9)


def test_sums_turn_with_the_basis():
    rng = np.random.default_rng(92)
    X, V, R = rng.standard_normal((7, 12)), rng.standard_normal((12, 3)), rng.standard_normal((3, 3))
    data = block(X, np.ones(12))
    U = rng.standard_normal((7, 3))
    e = data.sweep.residual(U, V)
    found, turned = data.sums(V, e, 1.0).transformed(R), data.sums(V @ R.T, e, 1.0)
    for name in ("A", "b", "energy"):
        assert_close(getattr(found, name), getattr(turned, name), 1e-12)
    assert_close(found.solve(U) @ R, data.sums(V, e, 1.0).solve(U), 1e-9)


def test_rows_stay_where_there_is_no_sample():
    U = orthonormal(9, 2)
    sums = Sums.zero(9, 2)
    A = sums.A.copy()
    A[:4, 0, 0] = 2.0  # the first direction of four features
    found = replace(sums, A=A).solve(U)
    assert_close(found[4:], U[4:], 1e-9)
    assert_close(found[:4, 1], U[:4, 1], 1e-9)
    assert_close(found[:4, 0], np.zeros(4), 1e-9, scale=1.0)


def test_coefficients_have_a_prior():
    """The maximum of the posterior density of v, on data with nothing wrong and c so large that all weights are 1."""
    rng = np.random.default_rng(93)
    U, X = orthonormal(9, 3), rng.standard_normal((9, 4))
    X[rng.random(X.shape) < 0.4] = np.nan
    P = np.diag([4.0, 1.0, 0.01])
    c = 1e4
    sigma = c / EFFICIENT
    spread = P * sigma**2
    found = block(X, np.ones(4)).regress(U, None, spread, Robust(c=c))
    for v, x in zip(found, X.T, strict=True):
        B = U[~np.isnan(x)]
        prior = np.linalg.inv(P + np.eye(3))
        assert_close(v, np.linalg.solve(B.T @ B + prior, B.T @ x[~np.isnan(x)]), 1e-2)
