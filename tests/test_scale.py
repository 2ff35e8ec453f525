"""Sweeps, memory budgets and executors change no result, and stated errors are honest."""

import math
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from cases import read_only
from threadpoolctl import threadpool_info, threadpool_limits

import divprism as dp
from divprism.core import norms
from divprism.core.entropy import renyi_entropy
from divprism.core.estimates import _filled, _imbalance, entropy_estimate
from divprism.core.norms import square_sums, squared_norms
from divprism.core.operators import HadamardOperator, KernelOperator, in_single
from divprism.core.spectrum import Estimate, Spectrum
from divprism.core.sweep import Sweep, common_sweeps
from divprism.engines import Resources, blas_for
from divprism.engines.resources import free_memory
from divprism.estimators import Question, _lanczos_run
from divprism.estimators._krylov import BlockKrylov
from divprism.estimators._measure import _balanced, _widening, _without_leverage
from divprism.estimators._quadrature import Batch


@cache
def many_pairs():
    """260 pairs in clusters with some copies: too many for an exact solution in the tests below."""
    rng = np.random.default_rng(5)
    kind = rng.integers(0, 20, 260)
    x = rng.standard_normal((20, 6))[kind] * 2 + rng.standard_normal((260, 6))
    t = rng.standard_normal((8, 4))[kind % 8] + 0.3 * rng.standard_normal((260, 4))
    x[100:110], t[100:105] = x[0], t[0]
    return read_only(x), read_only(t)


@pytest.fixture(scope="session")
def many():
    return many_pairs()


def operators_of(x, t, kernel_x, kernel_t, weights=None, dtype=np.float64):
    if weights is None:
        weights = np.full(len(x), 1 / len(x))
    left = KernelOperator.from_data(kernel_x, x, weights, dtype=dtype, name="x")
    right = KernelOperator.from_data(kernel_t, t, weights, dtype=dtype, name="t")
    return [left, right, HadamardOperator.of(left, right, weights)]


GAUSSIANS = dp.Gaussian(2.0), dp.Gaussian(1.0)
KERNELS = {
    "gaussian": dp.Gaussian(2.0),
    "wide gaussian": dp.Gaussian(30.0),
    "cosine": dp.Cosine(),
    "quadratic": dp.Polynomial(2),
    "categorical": dp.Categorical(),
}
ORDERS = [0.5, 1.0, 1.5, 2.0, 3.0, math.inf]

# A new randomised estimator is one row here, with settings too small for an exact solution.
RANDOMISED = {
    "lanczos": dp.Lanczos(num_probes=16, depth=8),
    "nystrom": dp.Nystrom(150),
    "fourier": dp.Fourier(200),
    "subsample": dp.Subsample(130),
}


def supports(estimator, operators, question):
    """Fourier needs Gaussian kernels, Subsample needs order 2 without truncation."""
    if isinstance(estimator, dp.Fourier):
        return all(
            isinstance(factor.kernel, dp.Gaussian)
            for operator in operators
            for factor in operator.factors
        )
    return question.squares_suffice or not isinstance(estimator, dp.Subsample)


# Orders that estimators treat alike: below one in double precision, two by squared norms.
KINDS_OF_ORDERS = [(0.5,), (1.0, 1.5, 3.0, math.inf), (2.0,)]


@cache
def _exact_entropies(kernel, orders, truncation):
    operators = operators_of(*many_pairs(), KERNELS[kernel], dp.Gaussian(1.0))
    return dp.Exact().entropies(operators, Question(orders, truncation))


@pytest.mark.parametrize("truncation", [None, 1, 40, 130])
@pytest.mark.parametrize("orders", KINDS_OF_ORDERS, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", RANDOMISED)
def test_every_randomised_estimator_is_within_its_error(name, kernel, orders, truncation, many):
    operators = operators_of(*many, KERNELS[kernel], dp.Gaussian(1.0))
    question = Question(orders, truncation, rng=1)
    if not supports(RANDOMISED[name], operators, question):
        with pytest.raises(dp.ArgumentError, match="Use Auto"):
            RANDOMISED[name].entropies(operators, question)
        return
    # Added to five standard errors: the entropy that single precision puts in place of zeros.
    slack = 1e-5 if min(orders) >= 1 else 1e-3
    expected = _exact_entropies(kernel, orders, truncation)
    for exact, estimated in zip(
        expected, RANDOMISED[name].entropies(operators, question), strict=True
    ):
        for true, result in zip(exact, estimated, strict=True):
            error = result.estimate.standard_error
            assert error < 2  # a huge error would make the next assertion trivial
            assert abs(result.estimate.value - true.estimate.value) < 5 * error + slack


@pytest.mark.parametrize("order", ORDERS)
def test_lanczos_is_exact_if_its_space_is_the_whole_space(order, many):
    for truncation in (None, 40):
        arguments = {
            "kernel_x": GAUSSIANS[0],
            "kernel_t": GAUSSIANS[1],
            "order": order,
            "truncation": truncation,
            "num_permutations": 0,
        }
        result = dp.evaluate(*many, estimator=dp.Lanczos(num_probes=33, depth=8), **arguments)
        expected = dp.evaluate(*many, estimator=dp.Exact(), **arguments)
        for name, score in expected.scores.items():
            assert float(result.scores[name]) == pytest.approx(float(score), rel=1e-12)
            assert result.scores[name].standard_error == 0


@pytest.mark.parametrize("estimator", [dp.Nystrom(260), dp.Subsample(260)], ids=str)
def test_all_landmarks_and_all_rows_are_exact(estimator, many):
    order = 2 if isinstance(estimator, dp.Subsample) else 1
    arguments = {"kernel_x": GAUSSIANS[0], "kernel_t": GAUSSIANS[1], "order": order}
    result, expected = (
        dp.evaluate(*many, estimator=each, **arguments) for each in (estimator, dp.Exact())
    )
    for name, score in expected.scores.items():
        assert float(result.scores[name]) == pytest.approx(float(score), rel=1e-12)
        assert result.scores[name].standard_error == 0


def test_the_error_that_subsample_states_is_honest(many):
    operators = operators_of(*many, *GAUSSIANS)
    expected = dp.Exact().entropies(operators, Question((2.0,)))[0]
    scores = []
    for seed in range(40):
        result = dp.Subsample(90).entropies(operators, Question((2.0,), rng=seed))[0]
        estimates = [(f.estimate, r.estimate) for f, r in zip(result, expected, strict=True)]
        difference = [
            Estimate.total([(1, pair[2]), (-1, pair[1])]) for pair in zip(*estimates, strict=True)
        ]
        for estimate, true in [*estimates, tuple(difference)]:
            scores.append((estimate.value - true.value) / estimate.standard_error)
    assert 0.7 < np.sqrt(np.mean(np.square(scores))) < 1.4


def test_subsample_sees_frequent_answers_that_are_nearly_equal():
    """A tenth of the outputs are one answer and a tenth nearly the same: two rows of 2,400."""
    rng = np.random.default_rng(0)
    x = 3 * rng.standard_normal((3000, 6))
    x[:300], x[300:600] = x[0], x[0] + 0.05
    options = {"kernel": dp.Gaussian(2.0)}
    exact = float(dp.rke(x, **options))
    errors = []
    for seed in range(20):
        found = dp.rke(x, estimator=dp.Subsample(400), rng=seed, **options)
        errors.append((float(found) - exact) / found.standard_error)
    assert max(np.abs(errors)) < 4
    assert 0.3 < np.sqrt(np.mean(np.square(errors))) < 2


@pytest.mark.parametrize("copies", [20, 200])
def test_subsample_states_what_pairs_would_change_that_it_has_not_seen(copies):
    """Near copies among rows that are far apart: most samples contain none of the pairs."""
    x = 100.0 * np.arange(4000.0)[:, None]
    x[:copies] = x[copies : 2 * copies] + 1e-5
    # Each pair counts twice beside the diagonal.
    expected = math.log(4000 / (1 + 2 * copies / 4000))
    for seed in range(20):
        options = {"estimator": dp.Subsample(100), "rng": seed}
        estimate = dp.rke(x, kernel=dp.Gaussian(1.0), **options)
        error = estimate.standard_error / float(estimate)
        assert abs(estimate.entropy - expected) < 4 * error


@pytest.mark.parametrize("num_rows", [3, 4, 5])
def test_few_rows_of_a_subsample_have_an_error_beside_frequent_answers(num_rows):
    """The jackknife leaves out a row: without heavy ones at least two others have to stay."""
    x = np.random.default_rng(0).standard_normal((400, 3))
    x[:200] = np.repeat(x[:2], 100, axis=0)
    estimate = dp.rke(x, kernel=dp.Gaussian(1.0), estimator=dp.Subsample(num_rows))
    assert 0 < estimate.standard_error < math.inf


def test_subsample_adds_rows_until_it_is_precise():
    x = np.random.default_rng(0).standard_normal((9000, 3))
    result = dp.rke(x, kernel=dp.Gaussian(2.0), estimator=dp.Subsample(tolerance=1e-2))
    assert 0 < result.standard_error < 1e-2 * float(result)
    assert (
        abs(float(result) - float(dp.rke(x, kernel=dp.Gaussian(2.0)))) < 5 * result.standard_error
    )


def test_more_features_and_landmarks_are_more_precise(many):
    """True and stated errors shrink, and extrapolation halves the error of 256 frequencies."""
    operator = operators_of(*many, *GAUSSIANS)[0]
    expected = renyi_entropy(dp.Exact().spectrum(operator), 1.0)
    for kind, sizes in ((dp.Fourier, (64, 512)), (dp.Nystrom, (50, 200))):
        few, many_ = (entropy_estimate(kind(size).spectrum(operator), 1.0) for size in sizes)
        assert many_.standard_error < few.standard_error
        assert abs(many_.value - expected) < abs(few.value - expected)
    spectra = [dp.Fourier(256).spectrum(operator, Question(rng=seed)) for seed in range(8)]
    plain = np.mean([abs(renyi_entropy(spectrum, 1.0) - expected) for spectrum in spectra])
    assert (
        np.mean([abs(entropy_estimate(spectrum, 1.0).value - expected) for spectrum in spectra])
        < plain / 2
    )


def test_lanczos_runs_on_every_array_library(many, library):
    """The probes are the same on every library, and so are the results up to rounding."""
    estimator = dp.Lanczos(num_probes=16, depth=6)
    arguments = {"kernel_x": GAUSSIANS[0], "kernel_t": GAUSSIANS[1], "num_permutations": 1}
    expected = dp.evaluate(*many, estimator=estimator, **arguments)
    result = dp.evaluate(*map(library, many), estimator=estimator, **arguments)
    for name, score in expected.scores.items():
        assert float(result.scores[name]) == pytest.approx(float(score), rel=1e-4)
    assert expected.vendi.method == "lanczos"
    assert expected.vendi.standard_error > 0
    assert expected.rke.standard_error == 0
    assert float(expected.rke) == pytest.approx(
        float(dp.rke(many[0], kernel=GAUSSIANS[0])), rel=1e-6
    )


def test_lanczos_respects_weights_and_copies(many):
    x, t = many
    weights = np.random.default_rng(0).random(len(x))
    weights /= weights.sum()
    arguments = {"kernel_x": GAUSSIANS[0], "kernel_t": GAUSSIANS[1], "weights": weights}
    expected = dp.evaluate(x, t, **arguments)
    result = dp.evaluate(x, t, estimator=dp.Lanczos(num_probes=24, depth=8), **arguments)
    for name, score in expected.scores.items():
        estimate = result.scores[name]
        slack = 1e-5 * float(score)
        assert abs(float(estimate) - float(score)) < 5 * estimate.standard_error + slack


def spectra_cases():
    """Data with spectra of different shapes, since a stated error may be right for one by luck."""
    rng = np.random.default_rng(2)
    n = 400  # twice as many as the vectors of 24 probes and 8 steps
    kind = rng.integers(0, 60, n)
    clusters = rng.standard_normal((60, 30))[kind] * 3 + rng.standard_normal((n, 30))
    return {
        "smooth": (dp.Gaussian(2.0), rng.standard_normal((n, 6))),
        "clustered": (dp.Gaussian(6.0), clusters),
        "one dominant": (dp.Gaussian(12.0), rng.standard_normal((n, 30))),
        "low rank": (dp.Cosine(), rng.standard_normal((n, 200))),
    }


# Each way of computing on two of the four spectra; all eight take twice as long.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("smooth", "float64"),
        ("clustered", "float32"),
        ("one dominant", "float32"),
        ("low rank", "float64"),
    ],
)
def test_the_error_that_lanczos_states_is_honest(name, dtype):
    """The root mean square of error over stated error, for 30 seeds, is in the range of chance."""
    kernel, x = spectra_cases()[name]
    weights = np.full(len(x), 1 / len(x))
    operator = KernelOperator.from_data(
        kernel, x.astype(dtype), weights, dtype=np.float64, name="x"
    )
    expected = renyi_entropy(dp.Exact().spectrum(operator), 1.0)
    scores = []
    for seed in range(30):
        # A second order below one makes the estimator work in double precision.
        orders = (1.0,) if dtype == "float32" else (1.0, 0.9)
        spectrum = dp.Lanczos(num_probes=24, depth=8).spectrum(operator, Question(orders, rng=seed))
        result = entropy_estimate(spectrum, 1.0)
        scores.append((result.value - expected) / result.standard_error)
    assert 0.7 < np.sqrt(np.mean(np.square(scores))) < 1.4


@pytest.mark.parametrize("order", [1.0, 0.5, 2.5, 80.0, 1e6, math.inf])
@pytest.mark.parametrize("truncation", [None, 10])
def test_lanczos_handles_extreme_spectra(order, truncation):
    """Unlike items, low rank, nearly equal items: no crash, and correct within the error."""
    rng = np.random.default_rng(1)
    cases = {
        "nothing in common": (dp.Gaussian(1.0), rng.standard_normal((200, 512)).astype(np.float32)),
        "identity": (dp.Precomputed(), np.eye(200)),
        "narrow": (dp.Gaussian(0.05), rng.standard_normal((200, 4))),
        "rank four": (dp.Cosine(), rng.standard_normal((200, 4))),
        "almost one": (dp.Gaussian(1e3), rng.standard_normal((200, 4))),
    }
    for name, (kernel, x) in cases.items():
        result = dp.vendi(
            x, kernel=kernel, order=order, truncation=truncation, estimator=dp.Lanczos(16, 6)
        )
        expected = dp.vendi(
            x, kernel=kernel, order=order, truncation=truncation, estimator=dp.Exact()
        )
        # Entropies of orders below one grow with the rounding noise in place of zeros.
        slack = 2e-3 if order < 1 else 2e-5
        error = result.standard_error / result.value
        assert abs(result.entropy - expected.entropy) < 5 * error + slack, name


def _odd_spectra(n):
    """Shapes whose spectra fall fast, have steps, or have many tiny eigenvalues."""
    rng = np.random.default_rng(8)
    sphere = rng.standard_normal((n, 6))
    centres = rng.standard_normal((40, 5))
    scales = np.where(rng.random(n) < 0.5, 1e-3, 1.0)
    return {
        "line": (dp.Gaussian(0.1), rng.random((n, 1)) * rng.standard_normal(4)),
        "shell": (dp.Gaussian(0.7), sphere / np.linalg.norm(sphere, axis=1, keepdims=True)),
        "heavy tails": (dp.Gaussian(1.0), rng.standard_t(1.5, size=(n, 3))),
        "near copies": (
            dp.Gaussian(0.5),
            centres[rng.integers(40, size=n)] + 1e-4 * rng.standard_normal((n, 5)),
        ),
        "two scales": (dp.Gaussian(0.5), scales[:, None] * rng.standard_normal((n, 4))),
        "low dimension": (dp.Gaussian(0.3), rng.random((n, 2))),
    }


# Settings that are stretched: few probes or steps, batches of probes, t near or above the effort.
STRETCHED = {
    "lanczos": dp.Lanczos(16, 8),
    "lanczos of few probes": dp.Lanczos(8, 6),
    "lanczos of few steps": dp.Lanczos(16, 3),
    "lanczos by tolerance": dp.Lanczos(depth=4, tolerance=1e-2),
    "nystrom": dp.Nystrom(150),
    "nystrom of few landmarks": dp.Nystrom(40),
    "fourier": dp.Fourier(200),
    "fourier of few features": dp.Fourier(64),
}


@cache
def _odd_operator(shape, dtype):
    kernel, x = _odd_spectra(300)[shape]
    weights = np.full(len(x), 1 / len(x))
    operator = KernelOperator.from_data(
        kernel, x.astype(dtype), weights, dtype=np.float64, name="x"
    )
    return operator, dp.Exact().spectrum(operator)


def _checkerboard(rows, columns):
    """Return pairs of a row and a column with a precision, which alternates along both."""
    precisions = ("float32", "float64")
    return [
        (row, column, precisions[(i + j) % 2])
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]


# Every estimator and every spectrum in both precisions, but not each pair of them.
@pytest.mark.parametrize(("name", "shape", "dtype"), _checkerboard(STRETCHED, _odd_spectra(5)))
def test_stated_errors_hold_on_odd_spectra(name, shape, dtype):
    """The whole table of z-scores is by experiments/odd_spectra.py."""
    operator, spectrum = _odd_operator(shape, dtype)
    # With one seed each order alone, which decides how many steps are made; with the other seed
    # the orders of a kind together, which share their products.
    questions = [((order,), 0) for order in (0.3, 0.7, 1.0, 3.0)]
    questions += [((0.3, 0.7), 1), ((1.0, 3.0), 1)]
    for orders, seed in questions:
        for truncation in (None, 25, 60):
            question = Question(orders, truncation, rng=seed)
            results = STRETCHED[name].entropies([operator], question)
            for order, [result] in zip(orders, results, strict=True):
                expected = renyi_entropy(spectrum, order, truncation)
                error = result.estimate.standard_error
                # 1e-5: rounding of single precision.
                assert abs(result.estimate.value - expected) < 5 * error + 1e-5


def test_a_cut_between_eigenvalues_is_found_among_nodes_that_cancel():
    """Lanczos at order 0.3 on points of a square; the error was 1e-3, and 4e-9 was stated."""
    operator, spectrum = _odd_operator("low dimension", "float32")
    expected = renyi_entropy(spectrum, 0.3, 25)
    for seed in range(3):
        [[result]] = dp.Lanczos(16, 8).entropies([operator], Question((0.3,), 25, rng=seed))
        assert result.estimate.value == pytest.approx(expected, abs=1e-7)


def test_the_two_rules_bound_the_truth_however_small_eigenvalues_are():
    """Gauss above, Radau below the trace of a root; rounding in single probes aside."""
    rng = np.random.default_rng(4)
    eigenvalues = np.concatenate([np.full(10, 0.09), 10 ** rng.uniform(-12, -8, 80), np.zeros(30)])
    vectors, _ = np.linalg.qr(rng.standard_normal((120, 120)))
    matrix = (vectors * eigenvalues) @ vectors.T
    probes = rng.standard_normal((120, 12))
    batch = Batch(BlockKrylov(probes), 0.0)
    for _ in range(6):
        batch.krylov.extend(matrix @ batch.krylov.block)
    gauss, radau = batch.rules(6)
    true = float(((vectors.T @ probes) ** 2).mean(axis=1) @ eigenvalues**0.3)
    assert radau.nodes.min() > -1e-14
    assert radau.trace(lambda x: x**0.3) < true < gauss.trace(lambda x: x**0.3)


def test_probes_that_agree_by_chance_do_not_understate_their_error():
    shares, precision = np.full(4, 0.25), np.full(4, 1e4)
    honest, lucky = np.array([1, -1, 1, -1]) * 3e-3, np.array([1, -1, 1, -1]) * 1e-5
    usual = _widening(shares, precision, honest)
    assert usual == pytest.approx(math.sqrt(3))  # Student's distribution alone
    assert _widening(shares, precision, lucky) > 3 * usual


def test_no_spectrum_above_the_eigenvalues_found_is_more_even_than_the_filled_one():
    rng = np.random.default_rng(6)
    for _ in range(20):
        true = np.sort(rng.dirichlet(np.full(30, 0.3)))[::-1]
        found = np.sort(true * rng.uniform(0.2, 1, 30))[::-1][:12]
        spectrum = Spectrum(found / found.sum(), np.ones(12), "by hand", seen=float(found.sum()))
        exact = Spectrum(true, np.ones(30), "by hand")
        for truncation in (5, 12, 20):
            for order in (0.3, 1.0, 3.0):
                filled = renyi_entropy(_filled(spectrum, truncation), order)
                assert renyi_entropy(exact, order, truncation) <= filled + 1e-12


def test_a_truncation_beyond_all_eigenvalues_keeps_the_error_of_nystrom_finite(many):
    operator = operators_of(*many, *GAUSSIANS)[0]
    spectrum = dp.Nystrom(100).spectrum(operator)
    plain, huge = (entropy_estimate(spectrum, 1.0, truncation) for truncation in (None, 10**15))
    assert huge.value == plain.value
    assert huge.standard_error < 2 * plain.standard_error


def test_frequencies_that_are_too_short_as_a_whole_enlarge_the_error():
    controls = np.array([[-3.0], [-1.0], [0.0], [1.0]])
    deviations = 2 * controls[:, 0]
    assert _imbalance(controls, deviations) == pytest.approx(2 * 3.0)
    assert _imbalance(np.hstack([controls, 5 * controls]), deviations) == pytest.approx(2 * 3.0)
    assert _imbalance(controls - controls.mean(), deviations) == pytest.approx(0)
    assert _imbalance(np.zeros((0, 0)), np.ones(4)) == 0


def _twelve_clusters(n):
    rng = np.random.default_rng(3)
    centres = 2 * rng.standard_normal((12, 5))
    return centres[rng.integers(12, size=n)] + 1.4 * rng.standard_normal((n, 5))


def test_probes_that_resolve_the_cut_count_most_at_truncated_order_two():
    """tr A^2 is known, so the variance of its estimate does not tell good probes from bad ones."""
    x, kernel = _twelve_clusters(600), dp.Gaussian(2.7)
    settings = {"kernel": kernel, "order": 2, "truncation": 15}
    expected = dp.vendi(x, estimator=dp.Exact(), **settings)
    for seed in range(3):
        result = dp.vendi(x, estimator=dp.Lanczos(32, 12), rng=seed, **settings)
        assert result.standard_error < 1e-3 * result.value
        assert abs(result - expected) < 5 * result.standard_error


@pytest.mark.parametrize(("order", "truncation"), [(0.5, 15), (1.0, None), (2.0, 15), (2.0, None)])
def test_a_tolerance_that_the_first_probes_miss_is_met_exactly_by_small_matrices(order, truncation):
    # Up to 64 probes of 24 steps, 1,536 items, it would be solved exactly at once.
    x = _twelve_clusters(1540)
    settings = {"kernel": dp.Gaussian(2.7), "order": order, "truncation": truncation}
    result = dp.vendi(x, estimator=dp.Lanczos(tolerance=1e-9), **settings)
    assert result == dp.vendi(x, estimator=dp.Exact(), **settings)
    assert result.standard_error == 0


def test_matrices_that_a_batch_of_probes_would_fill_are_solved_exactly():
    x, settings = _twelve_clusters(1200), {"kernel": dp.Gaussian(2.7), "truncation": 15}
    assert dp.vendi(x, order=2, estimator=dp.Lanczos(), **settings).standard_error == 0


@pytest.mark.parametrize("width", [3, 8, 20])
def test_a_krylov_space_does_not_outgrow_the_whole_space(width):
    """Vectors beyond the n-th would be rounding errors, and the compressed matrix with them."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((20, 20))
    matrix = (factor @ factor.T).astype(np.float32)
    batch = Batch(BlockKrylov(rng.standard_normal((20, width)).astype(np.float32)), 0.0)
    while batch.can_grow:
        batch.krylov.extend(matrix @ batch.krylov.block)
    assert batch.krylov.steps == 20 // width
    # The eigenvalues of a projection lie between those of the matrix.
    lowest, *_, highest = np.linalg.eigvalsh(matrix.astype(np.float64))
    compressed = np.linalg.eigvalsh(batch.krylov.compressed)
    assert lowest - 1e-4 < compressed.min() < compressed.max() < highest + 1e-4


def test_probes_without_variance_share_equally():
    """The sum of reciprocals of the smallest variances overflows."""
    precision = np.full(16, 1 / np.finfo(np.float64).tiny)
    np.testing.assert_allclose(_balanced(precision, np.zeros((16, 2))), np.full(16, 1 / 16))


@pytest.mark.parametrize("estimator", [dp.Lanczos(8, 4), dp.Nystrom(50), dp.Auto()], ids=str)
def test_every_estimator_refuses_indefinite_matrices(estimator):
    noise = np.random.default_rng(0).standard_normal((200, 200))
    matrix = (noise + noise.T) / 20
    np.fill_diagonal(matrix, 1)
    with pytest.raises(dp.DataError, match="is not a kernel matrix"):
        dp.vendi(matrix, kernel=dp.Precomputed(), estimator=estimator)


@pytest.mark.parametrize("name", RANDOMISED)
def test_groups_of_any_size_are_scored(name, many):
    """A large and a small group: cluster scores are within their error."""
    labels = np.r_[np.zeros(250, int), np.ones(10, int)]
    order = 2 if name == "subsample" else 1
    arguments = {"kernel_x": GAUSSIANS[0], "order": order}
    expected = dp.evaluate(many[0], labels=labels, estimator=dp.Exact(), **arguments).cluster_vendi
    result = dp.evaluate(
        many[0], labels=labels, estimator=RANDOMISED[name], **arguments
    ).cluster_vendi
    assert abs(float(result) - float(expected)) < 5 * result.standard_error + 1e-4 * float(expected)


def test_a_missed_tolerance_is_reported(many):
    arguments = {"kernel_x": GAUSSIANS[0], "num_permutations": 0}
    missed = dp.evaluate(*many, estimator=dp.Lanczos(depth=2, tolerance=1e-7), **arguments)
    texts = [notice.text for notice in missed.warnings]
    assert any("the relative standard error of vendi is" in text for text in texts)
    fixed = dp.evaluate(*many, estimator=dp.Lanczos(8, 2, tolerance=1e-7), **arguments)
    assert fixed.warnings == ()  # a fixed number of probes promises no tolerance


def test_fourier_states_an_honest_error(many):
    """The root mean square of error over stated error at order 2, where extrapolation is exact."""
    operators = operators_of(*many, *GAUSSIANS)
    expected = dp.Exact().entropies(operators, Question((2.0,)))[0]
    scores = []
    for seed in range(30):
        result = dp.Fourier(150).entropies(operators, Question((2.0,), rng=seed))[0]
        scores.append(
            [
                (f.estimate.value - r.estimate.value) / f.estimate.standard_error
                for f, r in zip(result, expected, strict=True)
            ]
        )
    assert 0.4 < np.sqrt(np.mean(np.square(scores))) < 1.4


def _blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blas_threads_come_back_when_calls_overlap():
    # The tests run with one BLAS thread, which a limit of one leaves as it is: start from two.
    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        assert set(before) == {2}
        first, second = Resources().workers(), Resources().workers()
        first.__enter__()
        second.__enter__()
        assert set(_blas_threads()) == {1}
        first.__exit__(None, None, None)
        assert set(_blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert _blas_threads() == before


def test_the_blas_of_scipy_is_limited_whenever_it_is_imported():
    """In a process of its own: here SciPy may have been imported already."""
    code = """
import sys
from threadpoolctl import threadpool_info
from divprism.engines import one_blas_thread
with one_blas_thread():
    pass
assert "scipy.linalg" not in sys.modules
import scipy.linalg
with one_blas_thread():
    counts = {library["num_threads"] for library in threadpool_info()}
print(counts)
"""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    call = [sys.executable, "-c", code]
    ended = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "{1}"


def test_matrices_solved_side_by_side_give_the_same_scores(many):
    """In threads, in the calling thread alone, and one after another where memory is short."""
    arguments = {"kernel_x": GAUSSIANS[0], "kernel_t": GAUSSIANS[1], "num_permutations": 0}
    expected = dp.evaluate(*many, **arguments, memory=3_000_000).scores
    with ThreadPoolExecutor(3) as threads:
        for executor in (None, threads):
            scores = dp.evaluate(*many, **arguments, engine=executor).scores
            assert scores == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("size", "count"), [(3000, 1), (3001, 2)])
def test_many_steps_of_up_to_3000_rows_use_one_blas_thread(size, count):
    with threadpool_limits(2, user_api="blas"), blas_for(size):
        assert set(_blas_threads()) == {count}


def test_lanczos_meets_the_tolerance_by_adding_probes(many):
    """A tenth of the tolerance takes more probes, and is met."""
    x = np.random.default_rng(0).standard_normal((900, 40))
    operator = KernelOperator.from_data(
        dp.Gaussian(5.0), x, np.full(900, 1 / 900), dtype=np.float64, name="x"
    )
    expected = renyi_entropy(dp.Exact().spectrum(operator), 1.0)
    rough, fine = (
        dp.Lanczos(depth=6, tolerance=tolerance).spectrum(operator) for tolerance in (5e-3, 5e-4)
    )
    assert len(fine.replicates) > len(rough.replicates)
    for spectrum, tolerance in ((rough, 5e-3), (fine, 5e-4)):
        result = entropy_estimate(spectrum, 1.0)
        assert result.standard_error < tolerance
        assert abs(result.value - expected) < 5 * tolerance


def test_common_errors_cancel_in_differences(many):
    """With equal outputs K_X o K_T is K_T: H(X, T) - H(T) is zero, and so is its error."""
    x, t = many
    kernel = dp.Gaussian(1.0)
    operators = operators_of(np.ones_like(x), t + 0.0, dp.Gaussian(2.0), kernel)
    result = dp.Lanczos(num_probes=16, depth=6).entropies(operators, Question((1.0,)))[0]
    difference = Estimate.total([(1, result[2].estimate), (-1, result[1].estimate)])
    assert result[1].estimate.standard_error > 1e-4
    assert np.linalg.norm(difference.deviations) < 1e-6
    assert abs(difference.value) < 1e-5


def test_estimates_add_up_with_their_signs():
    first = Estimate(1.0, np.array([0.3, 0.0]), 0.1)
    second = Estimate(2.0, np.array([0.0, 0.4]), 0.2)
    total = Estimate.total([(1, first), (-1, second), (1, Estimate(5.0))])
    assert total.value == 4.0
    assert total.deviations.tolist() == [0.3, -0.4]
    assert total.systematic == pytest.approx(0.3)
    assert total.standard_error == pytest.approx(math.hypot(0.5, 0.3))


def test_truncation_ignores_nodes_that_cancel_below_the_cut():
    """The running sum falls below 2 once more, within the last eigenvalue."""
    plain = Spectrum(np.array([0.4, 0.3, 0.2, 0.1]), np.ones(4), "by hand")
    values = np.array([0.4, 0.3, 0.2, 0.1 + 1e-12, 0.1])
    signed = Spectrum(values, np.array([1.0, 1.0, 1.0, -2.0, 3.0]), "by hand")
    for truncation in (1, 2, 3, 9):
        assert renyi_entropy(signed, 1.0, truncation) == pytest.approx(
            renyi_entropy(plain, 1.0, truncation)
        )


def test_truncation_cuts_signed_weights_where_their_sum_last_passes_it():
    plain = Spectrum(np.array([0.5, 0.3, 0.2]), np.ones(3), "by hand")
    signed = Spectrum(
        np.array([0.5, 0.3, 0.3, 0.2, 0.2]), np.array([1.0, 2.0, -1.0, 3.0, -2.0]), "by hand"
    )
    for truncation in (1, 2, 3, 9):
        assert renyi_entropy(signed, 1.0, truncation) == pytest.approx(
            renyi_entropy(plain, 1.0, truncation)
        )


# -- engines


@pytest.mark.parametrize("tile", [1, 7, 64, 4096])
def test_tile_size_does_not_change_a_result(tile, many):
    operators = operators_of(*(a[:70] for a in many), *GAUSSIANS)
    resources = Resources(tile=tile)
    np.testing.assert_allclose(
        squared_norms(operators, resources), squared_norms(operators), rtol=1e-13
    )
    estimator = dp.Lanczos(num_probes=8, depth=4)
    expected = estimator.entropies(operators, Question((0.9,)))[0]
    result = estimator.entropies(operators, Question((0.9,)), resources)[0]
    for one, other in zip(result, expected, strict=True):
        assert one.estimate.value == pytest.approx(other.estimate.value, rel=1e-9)
        assert one.estimate.standard_error == pytest.approx(other.estimate.standard_error, rel=1e-6)


@pytest.mark.parametrize(
    "estimator", [dp.Lanczos(num_probes=8, depth=4), dp.Auto()], ids=["lanczos", "order 2"]
)
def test_neither_threads_nor_memory_change_a_bit(estimator, many):
    order = 1 if isinstance(estimator, dp.Lanczos) else 2
    x, t = (np.tile(a, (5, 1)) + np.repeat(np.arange(5), len(a))[:, None] * 0.1 for a in many)

    def scores(**resources):
        result = dp.evaluate(
            x,
            t,
            kernel_x=GAUSSIANS[0],
            kernel_t=GAUSSIANS[1],
            order=order,
            estimator=estimator,
            **resources,
        )
        return [(score.value, score.standard_error) for score in result.scores.values()]

    expected = scores()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(2) as two:
        assert scores(engine=one) == expected
        assert scores(engine=two, memory="3 MB") == expected
        assert scores(engine=two, memory="4 GB") == expected
    assert scores(memory="6 MB") == expected


def test_sweeps_multiply_and_keep_what_fits(many):
    operators = in_single(operators_of(*many, *GAUSSIANS))
    [group, *rest] = common_sweeps(operators)
    assert group == [operators[2]]  # copies make the factors smaller than the product
    assert rest == [[operators[0]], [operators[1]]]
    product = operators[2]
    matrix = np.asarray(product.rows(slice(0, product.size)))
    vectors = np.random.default_rng(0).standard_normal((product.size, 3))
    for keep in (0, 200_000, 10**9):
        sweep = Sweep.over(group, Resources(tile=50), keep=keep)
        assert sweep.kept_bytes <= keep
        for _ in range(2):
            [result], [norm] = sweep.run([vectors], squares=True)
            np.testing.assert_allclose(result, matrix @ vectors, atol=1e-6)
            assert norm == pytest.approx((matrix**2).sum(), rel=1e-6)
    assert sweep.kept_bytes == sweep.full_bytes


@pytest.mark.parametrize("copies", [1, 2])
def test_sums_of_squares_are_the_same_by_sweep_and_by_block(copies, many, monkeypatch):
    x, t = (np.repeat(side[:130], copies, axis=0) for side in many)
    operators = operators_of(x, t, *GAUSSIANS)
    resources = Resources(tile=50)
    by_block = square_sums(operators, resources)
    monkeypatch.setattr("divprism.core.norms._FEW_POINTS", 0)
    for swept, expected in zip(square_sums(operators, resources), by_block, strict=True):
        np.testing.assert_allclose(swept, expected, rtol=1e-12)


def test_one_sweep_serves_pairs_without_copies(many):
    x = many[0] + np.arange(260)[:, None] * 1e-3
    operators = operators_of(x, x, *GAUSSIANS)
    assert common_sweeps(operators) == [operators]


def test_the_memory_budget_is_kept():
    """Kernel values of 6,000 pairs take 288 MB in single precision; the budget is a tenth of it."""
    rng = np.random.default_rng(0)
    x, t = (rng.standard_normal((6000, d), dtype=np.float32) for d in (32, 16))
    options = {"estimator": dp.Lanczos(16, 4), "memory": "30 MB"}
    options |= {"kernel_x": dp.Gaussian(4.0), "kernel_t": dp.Gaussian(3.0)}
    tracemalloc.start()
    try:
        dp.evaluate(x, t, **options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100e6  # the budget, copies of the data, tiles of tasks


def test_budgets_that_cannot_be_met_are_refused(many):
    x = np.random.default_rng(0).standard_normal((4000, 3))
    with pytest.raises(
        dp.ArgumentError,
        match=r"an exact solution needs .* above the memory budget of 1 MB.*the Lanczos",
    ):
        dp.vendi(x[:2000], memory="1 MB")
    with pytest.raises(
        dp.ArgumentError,
        match=r"Lanczos\(\) on 4,000 items needs .* above the memory budget of 1 MB.*Nystrom",
    ):
        dp.vendi(x, memory="1 MB")
    for estimator in (dp.Fourier(1000), dp.Nystrom(1000)):
        with pytest.raises(
            dp.ArgumentError,
            match=r"1000\) needs .* above the memory budget of 1 MB. Allow more, or take fewer",
        ):
            dp.vendi(x, kernel=dp.Gaussian(1.0), estimator=estimator, memory="1 MB")


@pytest.mark.parametrize(
    ("kernel", "estimator"),
    [(dp.Gaussian(1.0), dp.Fourier(10**7)), (dp.Polynomial(30), dp.Dual())],
    ids=["fourier", "dual"],
)
def test_what_no_machine_holds_is_refused_before_any_work(kernel, estimator, many):
    tracemalloc.start()
    try:
        with pytest.raises(dp.ArgumentError, match="above the memory of this machine"):
            dp.vendi(many[0][:30], kernel=kernel, estimator=estimator)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_a_tolerance_that_no_number_of_probes_meets_is_no_error(many):
    estimator = dp.Lanczos(depth=2, tolerance=1e-300)
    score = dp.vendi(many[0][:300], kernel=dp.Gaussian(1.0), estimator=estimator)
    assert math.isfinite(score)


@pytest.mark.parametrize("memory", ["much", "-3", 0, 0.5, "4 parsecs", True, "nan"])
def test_memory_is_a_number_of_bytes(memory, many):
    with pytest.raises(
        dp.ArgumentError, match="`memory` must be a number of bytes, or a text such as '4 GB'"
    ):
        dp.rke(many[0], memory=memory)


def test_free_memory_is_plausible():
    assert free_memory() > 10**6


def test_engine_and_progress_are_checked(many):
    with pytest.raises(dp.ArgumentError, match="`engine` must be a client of Dask"):
        dp.rke(many[0], engine=4)
    with (
        ProcessPoolExecutor(1) as processes,
        pytest.raises(dp.ArgumentError, match="`engine` must be a client of Dask"),
    ):
        dp.rke(many[0], engine=processes)
    with pytest.raises(dp.ArgumentError, match="`progress` must be True, or a function of a text"):
        dp.rke(many[0], progress="yes")


def test_progress_is_reported(many):
    reports = []
    dp.evaluate(
        *many,
        estimator=dp.Lanczos(num_probes=8, depth=3),
        progress=lambda text, fraction: reports.append((text, fraction)),
    )
    assert {text for text, _ in reports} == {"sweep 1", "sweep 2", "sweep 3"}
    assert all(0 < fraction < 1 for _, fraction in reports)


def _plans(score, x, **options):
    """Return what is announced before the work."""
    reports = []
    score(x, progress=lambda text, fraction: reports.append((text, fraction)), **options)
    return [text for text, fraction in reports if fraction == 0]


def test_a_plan_that_takes_very_long_offers_random_features(many, monkeypatch):
    monkeypatch.setattr(_lanczos_run, "_LONG", -1.0)
    settings = {"estimator": dp.Lanczos(num_probes=8, depth=2)}
    assert "fourier" not in _plans(dp.vendi, many[0], **settings)[0]
    monkeypatch.setattr(_lanczos_run, "_VERY_LONG", -1.0)
    [plan] = _plans(dp.vendi, many[0], **settings)
    assert plan.endswith("one pass over the data, with a larger error, takes `estimator=fourier`")
    # Other kernels have no such features.
    [plan] = _plans(dp.vendi, many[0], kernel=dp.Cosine(), **settings)
    assert "fourier" not in plan


def test_long_sums_of_squares_are_announced(monkeypatch):
    x = np.random.default_rng(0).standard_normal((600, 2))  # more than a tile
    assert _plans(dp.rke, x) == []
    monkeypatch.setattr(norms, "_LONG", -1.0)
    monkeypatch.setattr(norms, "_MAY_TAKE_LONG", 0)
    [plan] = _plans(dp.rke, x)
    assert plan.startswith("sums of squares of 600 items: about ")


@pytest.mark.parametrize(
    "settings",
    [{"num_probes": 7}, {"depth": 1}, {"num_probes": 2.5}, {"tolerance": 0}, {"tolerance": "x"}],
)
def test_settings_of_lanczos_are_checked(settings):
    with pytest.raises(dp.ArgumentError, match="must be"):
        dp.Lanczos(**settings)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dp.Nystrom(1), "`num_landmarks` must be a whole number of at least 2"),
        (lambda: dp.Fourier(2.5), "`num_features` must be a whole number of at least 8"),
        (lambda: dp.Subsample(2), "`num_rows` must be a whole number of at least 3"),
        (lambda: dp.Subsample(tolerance=-1), "`tolerance` must be positive"),
        (lambda: dp.Auto(tolerance=math.inf), "`tolerance` must be positive"),
    ],
)
def test_settings_of_estimators_are_checked(build, message):
    with pytest.raises(dp.ArgumentError, match=message):
        build()


@pytest.mark.parametrize(
    "estimator",
    [
        dp.Exact(),
        dp.Dual(),
        dp.Lanczos(),
        dp.Nystrom(),
        dp.Fourier(),
        dp.Subsample(5000),
        dp.Auto(),
    ],
)
def test_costs_grow_with_the_data(estimator):
    small, large, both = (
        estimator.cost(10_000, 64),
        estimator.cost(100_000, 64),
        estimator.cost(10_000, 64, 32),
    )
    assert 0 < small.flops <= large.flops
    assert small.flops < both.flops
    assert 0 < small.bytes <= both.bytes


def test_lanczos_needs_twice_the_memory_in_double_precision():
    estimator, x = dp.Lanczos(8, 4), np.random.default_rng(0).standard_normal((300, 3))
    options = {"kernel": dp.Gaussian(1.0), "estimator": estimator}
    single = int(estimator.least_bytes(300, 1))
    assert dp.vendi(x, memory=single, **options) > 1
    assert dp.vendi(x, order=0.5, memory=2 * single, **options) > 1
    with pytest.raises(dp.ArgumentError, match=r"Lanczos\(\) on 300 items"):
        dp.vendi(x, order=0.5, memory=2 * single - 1, **options)


def test_the_memory_that_fourier_states_is_what_it_needs(monkeypatch):
    monkeypatch.setattr("divprism.engines.threads.cores", lambda: 2)
    estimator, x = dp.Fourier(64), np.random.default_rng(0).standard_normal((50, 3))
    stated = estimator.cost(50, 3).bytes
    options = {"kernel": dp.Gaussian(1.0), "estimator": estimator}
    assert dp.vendi(x, memory=stated, **options) > 1
    with pytest.raises(dp.ArgumentError, match="take fewer features"):
        dp.vendi(x, memory=stated - 1, **options)


def test_nystrom_counts_pairs_that_no_landmark_has_seen():
    # Two near copies among 100 that are all apart: most samples of landmarks have none of them.
    x = 100.0 * np.append(np.arange(99.0), 1e-5)[:, None]
    options = {"kernel": dp.Gaussian(1.0), "order": 2, "truncation": 10}
    exact = dp.vendi(x, estimator=dp.Exact(), **options)
    for seed in range(20):
        estimate = dp.vendi(x, estimator=dp.Nystrom(12), rng=seed, **options)
        assert abs(estimate - exact) < 5 * estimate.standard_error


def _z_of_seeds(estimator, data, order, truncation, seeds):
    """(estimate - exact) / stated error of entropies, with new data for each seed."""
    scores = []
    for seed in seeds:
        x, bandwidth = data(np.random.default_rng([5, seed]))
        weights = np.full(len(x), 1 / len(x))
        operator = KernelOperator.from_data(
            dp.Gaussian(bandwidth), x, weights, dtype=np.float64, name="x"
        )
        expected = renyi_entropy(dp.Exact().spectrum(operator), order, truncation)
        question = Question((order,), truncation, rng=seed)
        result = entropy_estimate(estimator.spectrum(operator, question), order, truncation)
        scores.append((result.value - expected) / result.standard_error)
    return np.abs(scores)


def _log_normal(rng):
    """A dense core that one half of the landmarks may miss."""
    x = np.exp(2 * rng.standard_normal((400, int(rng.integers(12, 20)))))
    return x, 0.1 * np.median(np.linalg.norm(x[1:] - x[:-1], axis=1))


def _half_in_a_ball(rng):
    """A dense ball, and as many isolated points, whose eigenvalues are equal."""
    scales = np.where(rng.random(300) < 0.5, 0.01, 1.0)
    return scales[:, None] * rng.standard_normal((300, 10)), 0.3


@pytest.mark.parametrize("order", [3.0, 5.0, math.inf])
def test_nystrom_is_honest_where_half_of_the_landmarks_miss_the_largest_eigenvalue(order):
    """With signed changes of the halves, which cancel, it was 2.5 to 3.5, largest 5 to 8."""
    z = _z_of_seeds(dp.Nystrom(60), _log_normal, order, None, range(24))
    assert np.sqrt(np.mean(z**2)) < 2
    assert z.max() < 5


@pytest.mark.parametrize("truncation", [5, 20])
def test_random_features_are_honest_where_equal_eigenvalues_are_cut(truncation):
    z = _z_of_seeds(dp.Fourier(256), _half_in_a_ball, 2.0, truncation, range(10))
    assert np.sqrt(np.mean(z**2)) < 2
    assert z.max() < 4


def test_an_interrupted_sweep_ends_at_once_with_130(tmp_path):
    """Interrupting a minute of work exits with code 130, without a traceback, within seconds."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((30_000, 700), dtype=np.float32))
    call = [
        sys.executable,
        "-m",
        "divprism",
        "score",
        "--outputs",
        str(tmp_path / "x.npy"),
        "--max-memory",
        "200MB",
    ]
    # Without a disk for kernel values, so that they are computed in each sweep.
    environment = os.environ | {"TMPDIR": "/dev/shm"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    with subprocess.Popen(call, **pipes) as process:
        plan = process.stderr.readline()
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        rest = process.stderr.read()
        process.wait(timeout=60)
    assert b"sweeps" in plan
    assert process.returncode == 130
    assert b"Traceback" not in rest
    # No test of speed: a sweep that ignores the interrupt takes a minute.
    assert time.monotonic() - sent < 10


@pytest.mark.parametrize("order", [21.0, 100.0, 1e3, 1e6, 1e16, 1e308])
def test_random_features_hold_their_error_at_orders_whose_powers_underflow(order):
    deviations = []
    for seed in range(12):
        x = np.random.default_rng(seed).normal(size=(200, 3))
        options = {"kernel": dp.Gaussian(1.0), "order": order}
        exact = dp.vendi(x, estimator=dp.Exact(), **options)
        score = dp.vendi(x, estimator=dp.Fourier(100), rng=seed, **options)
        deviations.append((score - exact) / score.standard_error)
    assert 0.2 < np.sqrt(np.mean(np.square(deviations))) < 1.5


def test_a_truncation_that_no_float_holds_is_refused():
    with pytest.raises(dp.ArgumentError, match=r"`truncation` must be below 2\^63"):
        dp.vendi(np.eye(3), kernel=dp.Cosine(), truncation=10**400)


@pytest.mark.parametrize("order", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_random_features_count_no_more_items_than_there_are(order, seed):
    """With fewer features than distinct items an extrapolation overshoots."""
    x = np.random.default_rng(seed).standard_normal((300, 100))
    fourier = dp.Fourier(128)
    score = dp.vendi(x, kernel=dp.Gaussian(2.0), order=order, estimator=fourier, rng=seed)
    assert 1 <= score <= 300 * (1 + 1e-12) and score.standard_error > 0
    metric = dp.Metric(dp.Gaussian(2.0), num_features=128, order=order, rng=seed)
    metric.update(x)
    assert 1 <= metric.compute().vendi <= 300 * (1 + 1e-12)


@pytest.mark.parametrize("order", [0.3, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_a_truncation_above_the_rank_leaves_the_stated_error_below_the_limit(dtype, order):
    """No entropy of t eigenvalues is off by more than log t, and none is negative."""
    t = (np.random.default_rng(0).standard_normal((2000, 16)) + 3).astype(dtype)
    options = {"kernel": dp.Cosine(), "order": order, "truncation": 50}
    lanczos = dp.Lanczos(num_probes=24, depth=12)
    score = dp.prompt_vendi(t, estimator=lanczos, **options)
    # At order 1 `Lanczos` multiplies in single precision.
    assert float(score) == pytest.approx(float(dp.prompt_vendi(t, **options)), rel=1e-4)
    assert score.standard_error / score < math.log(50)


def test_the_spread_of_probes_of_unequal_precision_is_unbiased():
    """Errors of 32 probes known by law: the stated variance is theirs, within its own error."""
    rng = np.random.default_rng(0)
    count, runs = 32, 1_000
    precision = np.repeat([1.0, 4.0, 16.0, 64.0], count // 4)
    ratios = []
    for _ in range(runs):
        surprise = rng.standard_normal((count, 2))
        values = rng.standard_normal(count) / np.sqrt(precision)
        shares = _balanced(precision, surprise)
        changes = []
        for probe in range(count):
            others = np.where(np.arange(count) != probe, precision, 0.0)
            changes.append((_balanced(others, surprise) - shares) @ values)
        changes *= _without_leverage(precision, surprise)
        stated = (count - 1) / count * float(changes @ changes)
        ratios.append(stated / float(shares**2 @ (1 / precision)))
    # Without the correction the mean is 1.30.
    error = np.std(ratios) / np.sqrt(runs)
    assert abs(np.mean(ratios) - 1) < 4 * error
