"""The contract: every estimator on every operator agrees with the definition."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import reference
from cases import sixty_pairs

import divprism as dp
from divprism.core.arrays import eigvalsh
from divprism.core.operators import HadamardOperator, KernelOperator
from divprism.estimators import Estimator

# A new kernel or estimator is one row in these tables.
KERNELS = {
    "gaussian": (dp.Gaussian(2.0), lambda x: reference.gaussian(x, 2.0)),
    "narrow gaussian": (dp.Gaussian(0.3), lambda x: reference.gaussian(x, 0.3)),
    "cosine": (dp.Cosine(), reference.cosine),
    "quadratic": (dp.Polynomial(2), lambda x: reference.polynomial(x, 2, 1 / x.shape[1], 1.0)),
    "cubic": (
        dp.Polynomial(3, scale=0.5, offset=0.0),
        lambda x: reference.polynomial(x, 3, 0.5, 0.0),
    ),
    "categorical": (dp.Categorical(), lambda x: (x[:, None] == x[None]).all(axis=2) * 1.0),
}
ESTIMATORS: dict[str, Estimator] = {"exact": dp.Exact(), "dual": dp.Dual(), "auto": dp.Auto()}
ORDERS = [0.5, 1.0, 1.5, 2.0, 3.0, math.inf]


def _supports(estimator, *kernels):
    """Dual needs a finite feature map, or a diagonal matrix, which has nothing to solve."""
    if not isinstance(estimator, dp.Dual):
        return True
    compared = [kernel for kernel in kernels if kernel != dp.Categorical()]
    return all(kernel.feature_dimension(3) is not None for kernel in compared)


@cache
def _expected(name_x, name_t, order, truncation):
    """Scores by definition, once for all estimators and libraries."""
    x, t = sixty_pairs()
    return reference.scores(KERNELS[name_x][1](x), KERNELS[name_t][1](t), order, truncation)


def _check_contract(estimator, name_x, name_t, truncation, x, t):
    kernels = {"kernel_x": KERNELS[name_x][0], "kernel_t": KERNELS[name_t][0]}
    if not _supports(estimator, *kernels.values()):
        with pytest.raises(dp.ArgumentError, match="needs a finite feature map"):
            dp.evaluate(x, t, estimator=estimator, **kernels)
        return
    settings = {"estimator": estimator, "truncation": truncation, "num_permutations": 0, **kernels}
    for order in ORDERS:
        scores = dp.evaluate(x, t, order=order, **settings).scores
        tolerance = 1e-9
        if order < 1:
            tolerance = 1e-5  # sensitive to eigenvalues near the floor of 1e-13 of the reference
        for score, value in _expected(name_x, name_t, order, truncation).items():
            assert float(scores[score]) == pytest.approx(value, rel=tolerance), (score, order)


@pytest.mark.parametrize("truncation", [None, 1, 5, 40])
@pytest.mark.parametrize("name_t", KERNELS)
@pytest.mark.parametrize("name_x", KERNELS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_on_every_operator(name, name_x, name_t, truncation, pairs):
    _check_contract(ESTIMATORS[name], name_x, name_t, truncation, *pairs)


# Each kernel with the next of the table, and the last with the first.
NEIGHBOURS = list(zip(KERNELS, [*KERNELS][1:] + [*KERNELS][:1], strict=True))


# Each kernel once on either side: libraries differ inside a kernel or an estimator, and the test
# above covers all combinations.
@pytest.mark.other_library
@pytest.mark.parametrize("library", ["torch", "array-api-strict"], indirect=True)
@pytest.mark.parametrize("truncation", [None, 5])
@pytest.mark.parametrize(("name_x", "name_t"), NEIGHBOURS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_on_every_library(name, name_x, name_t, truncation, pairs, library):
    _check_contract(ESTIMATORS[name], name_x, name_t, truncation, *map(library, pairs))


@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
def test_extreme_settings_of_a_kernel_have_the_scores_of_their_limits(precision):
    """Without an offset the kernel is a power of the cosine; with a huge one all rows are alike."""
    x = np.random.default_rng(0).standard_normal((20, 3)).astype(precision)
    x = np.vstack([x, np.zeros((1, 3), precision)])
    for order in (1, 2):
        wide = dp.Polynomial(2, scale=1e-30, offset=1e30)
        assert dp.vendi(x, kernel=wide, order=order) == pytest.approx(1)
        narrow = dp.Polynomial(2, scale=1e30, offset=1e-30)
        powers = np.zeros((21, 21))
        powers[:20, :20] = reference.polynomial(x[:20].astype(np.float64), 2, 1.0, 0.0)
        powers[20, 20] = 1  # a row of zeros is similar to itself only
        right = dp.vendi(powers, kernel=dp.Precomputed(), order=order)
        assert dp.vendi(x, kernel=narrow, order=order) == pytest.approx(right, rel=1e-5)


def test_degrees_too_high_for_features_are_scored_by_the_kernel():
    x = np.random.default_rng(0).standard_normal((1200, 1))
    kernel = dp.Polynomial(1100)
    right = dp.vendi(x, kernel=kernel, estimator=dp.Exact())
    assert dp.vendi(x, kernel=kernel) == pytest.approx(right)
    with pytest.raises(dp.ArgumentError, match="Dual\\(\\) needs a finite feature map"):
        dp.vendi(x, kernel=kernel, estimator=dp.Dual())


@pytest.mark.parametrize("name", KERNELS)
def test_rows_and_tables_are_the_dense_matrix(name, pairs, library):
    kernel, plain = KERNELS[name]
    x, t = pairs
    weights = np.full(len(x), 1 / len(x))
    data = library(x)
    operator = KernelOperator.from_data(kernel, data, weights, dtype=_float64(data), name="x")
    right = KernelOperator.from_data(
        dp.Gaussian(1.0), library(t), weights, dtype=_float64(data), name="t"
    )
    joint = HadamardOperator.of(operator, right, weights)
    for each in (operator, joint):
        pieces = [
            np.asarray(each.rows(slice(i, min(i + 7, each.size)))) for i in range(0, each.size, 7)
        ]
        matrix = np.vstack(pieces)
        assert np.trace(matrix) == pytest.approx(1)
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-15)
    distinct = x[np.unique(operator.index, return_index=True)[1]]
    np.testing.assert_allclose(np.asarray(operator.table()), plain(distinct), atol=1e-13)


def _float64(a):
    from array_api_compat import array_namespace

    return array_namespace(a).float64


@pytest.mark.parametrize(
    "kernel",
    [dp.Cosine(), dp.Polynomial(2), dp.Polynomial(3, offset=0.0), dp.Polynomial(1)],
    ids=str,
)
def test_features_multiply_to_the_kernel(kernel, library):
    x = library(np.random.default_rng(0).standard_normal((9, 4)))
    points = kernel.points(x, _float64(x), "x")
    features = kernel.features(points)
    assert features.shape == (9, kernel.feature_dimension(4))
    np.testing.assert_allclose(
        np.asarray(features @ features.T), np.asarray(kernel.block(points, points)), atol=1e-14
    )


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_with_a_bandwidth_takes_positive_ones_and_states_its_formula(name):
    kernel, _ = KERNELS[name]
    if kernel.bandwidth is None:
        assert not kernel.formula
        return
    assert "bandwidth" in kernel.formula
    assert replace(kernel, bandwidth=7).bandwidth == 7.0
    with pytest.raises(dp.ArgumentError, match="`bandwidth` must be positive"):
        replace(kernel, bandwidth=-1)


def test_a_gaussian_needs_a_bandwidth():
    with pytest.raises(TypeError, match="bandwidth"):
        dp.Gaussian()


@pytest.mark.parametrize("name_t", KERNELS)
@pytest.mark.parametrize("name_x", KERNELS)
def test_order_two_agrees_with_the_eigenvalues(name_x, name_t, pairs, library):
    (kernel_x, _), (kernel_t, _) = KERNELS[name_x], KERNELS[name_t]
    x, t = map(library, pairs)
    by_squares = dp.evaluate(x, t, kernel_x=kernel_x, kernel_t=kernel_t, order=2)
    by_spectra = dp.evaluate(x, t, kernel_x=kernel_x, kernel_t=kernel_t, order=1)
    assert by_squares.rke.method == "frobenius"
    assert by_spectra.rke.method != "frobenius"
    for name in ("rke", "conditional_rke", "information_rke"):
        assert float(by_squares.scores[name]) == pytest.approx(
            float(by_spectra.scores[name]), rel=1e-12
        )


def test_order_two_computes_no_eigenvalue(pairs, monkeypatch):
    def refuse(matrix):
        raise AssertionError("an eigenvalue was computed")

    monkeypatch.setattr("divprism.estimators._direct.eigvalsh", refuse)
    dp.evaluate(*pairs, order=2)
    dp.rke(pairs[0]), dp.conditional_rke(*pairs), dp.information_rke(*pairs)
    dp.cluster_rke(pairs[0], np.arange(60) // 20)
    with pytest.raises(AssertionError, match="an eigenvalue was computed"):
        dp.vendi(pairs[0])


def test_repeated_prompts_are_solved_once(pairs, monkeypatch):
    """Twelve distinct prompts of sixty outputs: H(T) needs a matrix of 12 x 12 only."""
    sizes = []
    solve = eigvalsh
    monkeypatch.setattr(
        "divprism.estimators._direct.eigvalsh",
        lambda matrix: sizes.append(len(matrix)) or solve(matrix),
    )
    dp.vendi(pairs[1], kernel=dp.Gaussian(1.0))
    assert sizes == [len(np.unique(pairs[1], axis=0))]


def test_auto_selects_the_dual_if_features_are_fewer(pairs):
    x, t = pairs
    assert dp.vendi(x, kernel=dp.Cosine()).method == "dual"
    assert dp.vendi(x[:4], kernel=dp.Cosine()).method == "exact"
    assert dp.vendi(x, kernel=dp.Gaussian(1.0)).method == "exact"
    result = dp.evaluate(
        np.tile(x, (9, 1)) + np.arange(540)[:, None], np.tile(t, (9, 1)), kernel_x=dp.Cosine()
    )
    assert result.information_vendi.method == "dual+exact"


@pytest.mark.parametrize(
    ("n", "features", "choice"),
    [
        (3000, None, dp.Exact()),
        (3001, None, dp.Lanczos()),
        (60, 5, dp.Dual()),
        (5, 5, dp.Exact()),
        (10**6, 2000, dp.Dual()),
    ],
)
def test_auto_returns_its_choice_and_cost(n, features, choice):
    result = dp.Auto().select(n, 768, 512, features=features)
    assert result.estimator == choice
    assert result.cost == choice.cost(n, 768, 512)
    assert dp.Auto(tolerance=0.01).select(10**5, 768).estimator == dp.Lanczos(tolerance=0.01)


def test_group_ids_split_the_work(pairs, monkeypatch):
    sizes = []
    solve = eigvalsh
    monkeypatch.setattr(
        "divprism.estimators._direct.eigvalsh",
        lambda matrix: sizes.append(len(matrix)) or solve(matrix),
    )
    dp.conditional_vendi(
        np.random.default_rng(0).standard_normal((60, 3)),
        np.arange(60) // 6,
        kernel_x=dp.Gaussian(1.0),
    )
    assert sizes == [6] * 10


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, math.inf])
def test_fourier_without_extrapolation_is_fkea(order):
    """Truncated Vendi, App. A.5, of outputs, of prompts and of their product."""
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((300, 6)), rng.standard_normal((300, 3))
    # The frequencies that the seed stands for: first those of the outputs, then of the prompts.
    seed = np.random.default_rng(5)
    of_x, of_t = seed.standard_normal((6, 40)) / 2.0, seed.standard_normal((3, 40)) / 1.5
    found = dp.evaluate(
        x,
        t,
        kernel_x=dp.Gaussian(2.0),
        kernel_t=dp.Gaussian(1.5),
        order=order,
        estimator=dp.Fourier(40, extrapolate=False),
        rng=5,
    )
    joint = reference.fkea(np.hstack([x, t]), np.vstack([of_x, of_t]), order)
    prompts = reference.fkea(t, of_t, order)
    assert float(found.vendi) == pytest.approx(reference.fkea(x, of_x, order), rel=1e-10)
    assert float(found.conditional_vendi) == pytest.approx(joint / prompts, rel=1e-10)


def test_fourier_without_extrapolation_states_what_it_leaves_out():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 8))
    options = {"kernel": dp.Gaussian(2.0), "rng": 1}
    exact = dp.vendi(x, estimator=dp.Exact(), **options)
    raw = dp.vendi(x, estimator=dp.Fourier(60, extrapolate=False), **options)
    assert raw < 0.9 * exact
    assert abs(raw - exact) < 3 * raw.standard_error


def test_whether_to_extrapolate_is_true_or_false():
    with pytest.raises(dp.ArgumentError, match="`extrapolate` must be True or False; got 'no'"):
        dp.Fourier(40, extrapolate="no")


def test_orders_near_zero_state_what_double_precision_hides():
    """Points in the plane under a wide kernel: eigenvalues fall below every rounding error."""
    x = np.random.default_rng(0).standard_normal((80, 2))
    at = {order: dp.vendi(x, kernel=dp.Gaussian(3.0), order=order) for order in (0.1, 0.5, 1.0)}
    # All 80 points are distinct, so that order 0 would count 80.
    assert float(at[0.1]) < 20
    assert at[0.1].standard_error > 0.05 * at[0.1]
    assert at[0.5].standard_error == 0 and at[1.0].standard_error == 0
    # Features of a cosine kernel in the plane have rank two, and nothing is hidden.
    assert dp.vendi(x, kernel=dp.Cosine(), order=0.1, estimator=dp.Exact()).standard_error == 0
