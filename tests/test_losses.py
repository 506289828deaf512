"""The losses against their definitions, and the passes of the waist that use them against dense formulas."""

import numpy as np
import pytest
from scipy import integrate
from scipy.optimize import linprog

from conftest import assert_close, on_entries, on_grid, orthonormal, robust_problem
from lowsparse.sweeps import Robust
from lowsparse.sweeps.losses import EFFICIENT, Kind, Loss

KINDS = [(kind, 1.0) for kind in Kind if kind is not Kind.POWER] + [(Kind.POWER, p) for p in (0.3, 1.0, 1.6, 2.0)]
SMOOTH = [(kind, p) for kind, p in KINDS if kind is not Kind.L1]
BOUNDED = {Kind.GEMAN_MCCLURE: 1 / 2, Kind.WELSCH: 1 / 2, Kind.TUKEY: 1 / 6}  # the limit of ρ, in c²
each = pytest.mark.parametrize(("kind", "p"), KINDS, ids=lambda x: x.name.lower() if isinstance(x, Kind) else str(x))
each_smooth = pytest.mark.parametrize(
    ("kind", "p"), SMOOTH, ids=lambda x: x.name.lower() if isinstance(x, Kind) else str(x)
)


def some(seed=1, size=400):
    """Numbers of both signs and many magnitudes, away from the kinks at 0 and at c = 0.7."""
    rng = np.random.default_rng([17, seed])
    e = rng.choice([-1.0, 1.0], size) * 10 ** rng.uniform(-2, 1.5, size)
    return e[np.abs(np.abs(e) - 0.7) > 1e-3]


# ---------------------------------------------------------------------- the losses


@each
def test_the_slope_is_the_derivative(kind, p):
    loss, e = Loss(kind, c=0.7, p=p), some()
    h = 1e-6 * np.abs(e)
    differences = (loss.value(e + h) - loss.value(e - h)) / (2 * h)
    np.testing.assert_allclose(loss.slope(e), differences, rtol=1e-6, atol=1e-7)


@each
def test_the_weight_is_slope_over_residual_and_does_not_grow(kind, p):
    loss, e = Loss(kind, c=0.7, p=p), some(2)
    np.testing.assert_allclose(loss.weight(e) * e, loss.slope(e), rtol=1e-14)
    assert (np.diff(loss.weight(np.sort(np.abs(e)))) <= 0).all()
    np.testing.assert_array_equal(loss.value(e), loss.value(-e))
    np.testing.assert_array_equal(loss.slope(e), -loss.slope(-e))


@each
def test_the_weights_give_a_quadratic_bound(kind, p):
    """ρ(e) ≤ ρ(e₀) + w(e₀) (e² - e₀²) / 2: what makes reweighting a descent."""
    loss, at, e = Loss(kind, c=0.7, p=p), some(3), some(4)
    at, e = np.meshgrid(at, e)
    bound = loss.value(at) + loss.weight(at) * (e**2 - at**2) / 2
    assert (loss.value(e) <= bound + 1e-12 * (loss.value(at) + loss.weight(at) * e**2)).all()


@each_smooth
def test_small_residuals_are_squared(kind, p):
    loss, e = Loss(kind, c=0.7, p=p), np.array([-1e-3, 0.0, 1e-3])
    np.testing.assert_allclose(loss.value(e), e**2 / 2, rtol=1e-5)
    np.testing.assert_allclose(loss.weight(e), 1.0, rtol=1e-5)
    wide = Loss(kind, c=1e4, p=p)
    np.testing.assert_allclose(wide.value(some()), some() ** 2 / 2, rtol=1e-4, atol=1e-7)


def test_large_residuals():
    e, c = np.array([1e6]), 0.7
    for kind, limit in BOUNDED.items():
        assert Loss(kind, c=c).value(e)[0] == pytest.approx(limit * c**2)
        assert Loss(kind, c=c).slope(e)[0] == pytest.approx(0.0, abs=1e-12)
    for kind in (Kind.HUBER, Kind.PSEUDO_HUBER):
        assert Loss(kind, c=c).slope(e)[0] == pytest.approx(c)
    assert Loss(Kind.CAUCHY, c=c).slope(e)[0] * e[0] == pytest.approx(c**2)
    assert (Loss(Kind.TUKEY, c=c).weight(np.array([0.7, 0.71, 1e100])) == 0).all()


def test_relations_between_losses():
    e = some(5)
    np.testing.assert_allclose(Loss(Kind.POWER, p=2.0).value(e), Loss(Kind.SQUARED).value(e), rtol=1e-9)
    np.testing.assert_allclose(Loss(Kind.POWER, 0.7, 1.0).value(e), Loss(Kind.PSEUDO_HUBER, 0.7).value(e), rtol=1e-9)
    np.testing.assert_allclose(Loss(Kind.POWER, 0.7, 1e-7).value(e), Loss(Kind.CAUCHY, 0.7).value(e), rtol=1e-5)
    for p in (0.5, 1.0, 1.5):  # |e|^p, for a small c
        value = p * 1e-8 ** (p - 2) * Loss(Kind.POWER, 1e-8, p).value(e)
        np.testing.assert_allclose(value, np.abs(e) ** p, rtol=2e-3)
    np.testing.assert_allclose(Loss(Kind.HUBER, c=1e-9).value(e) / 1e-9, Loss(Kind.L1).value(e), rtol=1e-6)
    assert np.isinf(Loss(Kind.L1).weight(np.zeros(1)))[0]


@pytest.mark.parametrize("kind", list(EFFICIENT), ids=lambda kind: kind.name.lower())
def test_the_constants_keep_95_per_cent_of_the_efficiency(kind):
    """Under normal noise the asymptotic variance of the estimate is E ψ² / (E ψ')², against 1 of least squares."""
    loss = Loss(kind, c=EFFICIENT[kind])

    def expected(f):
        value, _ = integrate.quad(lambda e: f(np.array([e]))[0] * np.exp(-(e**2) / 2), -12, 12, limit=500)
        return value / np.sqrt(2 * np.pi)

    slope = expected(lambda e: e * loss.slope(e))  # E ψ' by parts
    efficiency = slope**2 / expected(lambda e: loss.slope(e) ** 2)
    close = {Kind.PSEUDO_HUBER: 0.02, Kind.GEMAN_MCCLURE: 0.05}
    assert efficiency == pytest.approx(0.95, abs=close.get(kind, 0.001))


# ---------------------------------------------------------------------- the waist


@pytest.fixture
def point():
    """Data, a point, and the two on a grid."""
    M = robust_problem(23, 17, rank=3, density=0.6, seed=301).M
    rng = np.random.default_rng(302)
    U, V = rng.standard_normal((23, 3)), rng.standard_normal((17, 3))
    known = on_grid(M, np.ones(M.nnz))
    return M, U, V, known, known * (U @ V.T) - on_grid(M, M.values)


@each
def test_the_gradient_is_that_of_the_dense_formula(point, kind, p):
    M, U, V, known, E = point
    loss = Loss(kind, c=0.7, p=p)
    found = M.open_sweep("numpy").gradient(U, V, loss)
    psi = known * loss.slope(E)
    assert found.value == pytest.approx(float(np.sum(loss.value(E[known > 0]))), rel=1e-12)
    assert_close(found.U, psi @ V, 1e-12)
    assert_close(found.V, psi.T @ U, 1e-12)


@each_smooth
def test_the_gradient_is_the_derivative_of_its_value(point, kind, p):
    M, U, V, *_ = point
    sweep, loss = M.open_sweep("numpy"), Loss(kind, c=0.7, p=p)
    found = sweep.gradient(U, V, loss)
    rng = np.random.default_rng(303)
    A, B, h = rng.standard_normal(U.shape), rng.standard_normal(V.shape), 1e-6
    difference = sweep.gradient(U + h * A, V + h * B, loss).value - sweep.gradient(U - h * A, V - h * B, loss).value
    assert difference / (2 * h) == pytest.approx(np.vdot(found.U, A) + np.vdot(found.V, B), rel=1e-5)


@each_smooth
def test_the_curvature_bounds_the_loss_along_a_line(point, kind, p):
    M, U, V, _, E = point
    sweep, loss = M.open_sweep("numpy"), Loss(kind, c=0.7, p=p)
    d = np.random.default_rng(304).standard_normal(U.shape)
    found = sweep.curvature(np.hstack([U, d]), np.hstack([V, 0 * V]), np.hstack([0 * V, V]), loss)
    weights = on_grid(M, loss.weight(on_entries(M, E)))
    assert found == pytest.approx(float(np.sum(weights * (d @ V.T) ** 2)), rel=1e-12)
    gradient = sweep.gradient(U, V, loss)
    for t in (-1.0, 0.01, 0.5):
        bound = gradient.value + t * np.vdot(gradient.U, d) + t**2 / 2 * found
        assert sweep.gradient(U + t * d, V, loss).value <= bound * (1 + 1e-12)


@each_smooth
def test_a_regression_is_weighted_least_squares(point, kind, p):
    M, _, V, *_ = point
    U = orthonormal(23, 3, seed=305)
    loss = Loss(kind, c=0.7, p=p)
    weights = loss.weight(M.open_sweep("numpy").residual(U, V))
    found = M.open_sweep("numpy").regress(U, V, Robust(c=0.7, kind=kind, p=p)).V
    columns = M.columns_of_entries()
    for j in range(17):
        here = columns == j
        root = np.sqrt(weights[here])
        expected = np.linalg.lstsq(root[:, None] * U[M.rows[here]], root * M.values[here], rcond=None)[0]
        assert_close(found[j], expected, 1e-6)


def test_many_turns_of_the_first_power_are_least_absolute_deviations(point):
    M, *_ = point
    U = orthonormal(23, 3, seed=306)
    options = Robust(c=1e-6, first_c=10.0, kind=Kind.POWER, p=1.0, n_reweight=300)
    V = M.open_sweep("numpy").regress(U, None, options).V
    found = np.abs(M.open_sweep("numpy").residual(U, V))
    columns = M.columns_of_entries()
    for j in range(17):
        here = columns == j
        assert found[here].sum() == pytest.approx(least_absolute(U[M.rows[here]], M.values[here]), rel=3e-4)


def least_absolute(A, b):
    """min ‖A v - b‖₁, as a linear programme over (v, t): -t ≤ A v - b ≤ t."""
    k, r = A.shape
    bounds = np.block([[A, -np.eye(k)], [-A, -np.eye(k)]])
    cost = np.concatenate([np.zeros(r), np.ones(k)])
    solved = linprog(cost, A_ub=bounds, b_ub=np.concatenate([b, -b]), bounds=[(None, None)] * r + [(0, None)] * k)
    assert solved.success
    return solved.fun
