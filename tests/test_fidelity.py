"""Metrics next to diversity: laws on paper, dense definitions, invariances, refusals."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import divprism as dp
from divprism.analysis.fidelity import KernelDistance
from divprism.core.tiles import row_blocks

BETWEEN = {  # outputs against real data
    "kernel_distance": lambda x, y: float(dp.kernel_distance(x, y)),
    "recall": dp.recall,
    "coverage": dp.coverage,
}


def _clouds(seed, n=40, m=50, d=4, shift=0.5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + shift


def _dense_kernel_distance(x, y):
    """The definition, pair by pair."""

    def k(a, b):
        return (a @ b / a.size + 1) ** 3

    own = np.mean([k(a, b) for a, b in itertools.permutations(x, 2)])
    other = np.mean([k(a, b) for a, b in itertools.permutations(y, 2)])
    return own + other - 2 * np.mean([k(a, b) for a, b in itertools.product(x, y)])


def _dense_recall(x, y, k):
    radii = np.sort(cdist(x, x), axis=1)[:, k]
    return np.mean([any(np.linalg.norm(x - row, axis=1) <= radii) for row in y])


def _dense_coverage(x, y, k):
    radii = np.sort(cdist(y, y), axis=1)[:, k]
    nearest = [np.linalg.norm(x - row, axis=1).min() for row in y]
    return np.mean(nearest <= radii)


@pytest.mark.parametrize("seed", range(4))
def test_blocks_agree_with_the_definitions(seed, library, monkeypatch):
    x, y = _clouds(seed)
    monkeypatch.setattr(
        "divprism.analysis.fidelity.row_blocks", lambda size, rows=7: row_blocks(size, min(rows, 7))
    )
    sets = library(x), library(y)
    expected = _dense_kernel_distance(x, y)
    assert float(dp.kernel_distance(*sets)) == pytest.approx(expected, rel=1e-10)
    for k in (1, 3, 5):
        assert dp.recall(*sets, num_neighbours=k) == pytest.approx(_dense_recall(x, y, k))
        assert dp.coverage(*sets, num_neighbours=k) == pytest.approx(_dense_coverage(x, y, k))


def test_the_error_is_that_of_leaving_rows_out_one_by_one():
    x, y = _clouds(1, 9, 7)
    without_x = [_dense_kernel_distance(np.delete(x, i, axis=0), y) for i in range(9)]
    without_y = [_dense_kernel_distance(x, np.delete(y, i, axis=0)) for i in range(7)]
    variance = (9 - 1) * np.var(without_x) + (7 - 1) * np.var(without_y)
    assert dp.kernel_distance(x, y).standard_error == pytest.approx(np.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize(("shift", "low", "high"), [(0.0, 1.2, 1.7), (1.0, 0.85, 1.25)])
def test_the_distance_is_unbiased_and_its_error_honest(shift, low, high):
    """Over 300 pairs of sets. For one distribution the error is sqrt(2) too large."""
    results = [dp.kernel_distance(*_clouds(seed, 30, 30, 3, shift)) for seed in range(300)]
    values = np.array(list(map(float, results)))
    spread = values.std(ddof=1)
    truth = 0.0
    if shift:
        # E (s + 1)^3 with s = z.z' / 3. Outputs of mean 0 have E s = 0 and E s^2 = 1/3 between
        # them; real data of mean (1, 1, 1) have E s = 1, E (s - 1)^2 = (3 + 3 + 3) / 9 and
        # E (s - 1)^3 = 6 x 3 / 27; between the two E s = 0 and E s^2 = (3 + 3) / 9.
        own, other, cross = 1 + 3 / 3, 2**3 + 3 * 2 * 1 + 6 * 3 / 27, 1 + 3 * 6 / 9
        truth = own + other - 2 * cross
    assert abs(values.mean() - truth) < 4 * spread / np.sqrt(len(values))
    stated = np.sqrt(np.mean([result.standard_error**2 for result in results]))
    assert low < stated / spread < high


def test_the_distance_follows_the_formula():
    """Constant sets a and b: k(a, a) + k(b, b) - 2 k(a, b), without any error."""
    a, b = np.array([1.0, 2.0]), np.array([3.0, 0.0])
    result = dp.kernel_distance(np.tile(a, (5, 1)), np.tile(b, (4, 1)))
    assert float(result) == pytest.approx(3.5**3 + 5.5**3 - 2 * 2.5**3)
    assert result.standard_error == pytest.approx(0, abs=1e-9)
    assert (result.n, result.n_reference) == (5, 4)


def test_identical_sets_are_reached_and_covered():
    x, _ = _clouds(0)
    assert dp.recall(x, x) == dp.coverage(x, x) == 1
    copies = np.repeat(x[:5], 8, axis=0) + 1e6  # balls of radius zero, far from the origin
    assert dp.recall(copies, copies) == dp.coverage(copies, copies) == 1


def test_far_sets_share_nothing():
    x, y = _clouds(0, shift=1e3)
    assert dp.recall(x, y) == dp.coverage(x, y) == 0
    assert float(dp.kernel_distance(x, y)) > 1e6


def test_an_outlier_raises_recall_and_not_coverage():
    x, y = _clouds(0, shift=30.0)
    stray = np.vstack([x, np.full((1, 4), 60.0)])
    assert dp.recall(stray, y) == 1
    assert dp.coverage(stray, y) == 0


def test_a_model_that_drops_modes_loses_both():
    rng = np.random.default_rng(0)
    modes = np.repeat(np.eye(5) * 20, 30, axis=0)
    real, full = (modes + rng.standard_normal(modes.shape) for _ in range(2))
    half = np.tile(full[:60], (2, 1))[:120] + 0.01 * rng.standard_normal((120, 5))
    assert dp.recall(full, real) > 0.8 > 0.5 > dp.recall(half, real)
    assert dp.coverage(full, real) > 0.8 > 0.5 > dp.coverage(half, real)


def test_coverage_of_one_distribution_is_as_expected():
    """1 - 2^-k in the limit (Naeem et al., 2020).

    The k nearest of 2n rows to a real row are all real with probability 2^-k.
    """
    values = [dp.coverage(*_clouds(seed, 200, 200, 2, 0.0), num_neighbours=2) for seed in range(40)]
    # At finite n the expectation differs from its limit by order 1 / n.
    assert abs(np.mean(values) - 0.75) < 4 * np.std(values) / np.sqrt(40) + 1 / 200


@pytest.mark.parametrize("score", BETWEEN)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_row_order_does_not_matter(score, seed):
    x, y = _clouds(seed, 15, 20)
    rng = np.random.default_rng(seed)
    again = BETWEEN[score](rng.permutation(x), rng.permutation(y))
    assert again == pytest.approx(BETWEEN[score](x, y), rel=1e-9, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-200, 1e-3, 1e3, 1e200]))
def test_recall_and_coverage_do_not_depend_on_units(seed, scale):
    x, y = _clouds(seed, 15, 20)
    assert dp.recall(scale * x, scale * y) == dp.recall(x, y)
    assert dp.coverage(scale * x, scale * y) == dp.coverage(x, y)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_cosine_metrics_depend_on_directions_and_pairs_only(seed):
    rng = np.random.default_rng(seed)
    x, t = rng.standard_normal((2, 24, 5))
    prompts = rng.integers(0, 6, 24)
    order, lengths = rng.permutation(24), rng.uniform(0.1, 10, (24, 1))
    assert dp.alignment((lengths * x)[order], t[order]) == pytest.approx(dp.alignment(x, t))
    assert dp.in_batch_similarity((lengths * x)[order], prompts[order]) == pytest.approx(
        dp.in_batch_similarity(x, prompts)
    )


def test_in_batch_similarity_is_the_mean_of_cosines(library):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 6)) + 0.5
    prompts = np.r_[np.repeat(np.arange(5), 5), 5, 5, 5, 6, 7]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    means = []
    for prompt in range(6):  # prompts 6 and 7 have a single output
        pairs = itertools.combinations(unit[prompts == prompt], 2)
        means.append(np.mean([a @ b for a, b in pairs]))
    expected = pytest.approx(np.mean(means), rel=1e-12)
    embedded = rng.standard_normal((8, 3))[prompts]
    texts = [f"prompt {prompt}" for prompt in prompts]
    assert dp.in_batch_similarity(library(x), prompts) == expected
    assert dp.in_batch_similarity(library(x), library(embedded)) == expected
    assert dp.in_batch_similarity(x, texts) == expected


def test_in_batch_similarity_has_its_limits():
    assert dp.in_batch_similarity(np.ones((6, 3)), [0, 0, 0, 1, 1, 1]) == pytest.approx(1)
    assert dp.in_batch_similarity([[1.0], [-1.0]], [0, 0]) == pytest.approx(-1)
    assert dp.in_batch_similarity(np.eye(4), [0, 0, 1, 1]) == pytest.approx(0)


def test_alignment_clips_pair_by_pair_and_scales(library):
    x = np.array([[1.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    t = np.array([[-1.0, 0.0], [1.0, 0.0], [5.0, 5.0]])
    assert dp.alignment(library(x), library(t)) == pytest.approx(100 * (0 + 0.6 + 1) / 3)
    assert dp.alignment(library(x), library(t), scale=2.5) == pytest.approx(2.5 * 1.6 / 3)


def test_half_precision_is_computed_in_double():
    x, y = (a.astype(np.float16) for a in _clouds(0))
    double = x.astype(float), y.astype(float)
    assert dp.kernel_distance(x, y) == dp.kernel_distance(*double)
    assert isinstance(dp.kernel_distance(x, y), KernelDistance)
    assert dp.recall(x, y) == dp.recall(*double)


X = np.random.default_rng(0).standard_normal((6, 3))
REFUSED = [
    (
        lambda: dp.kernel_distance(X, X[:, :2]),
        r"`x` and `reference` must come from one embedder; got rows of width 3 and 2",
    ),
    (
        lambda: dp.kernel_distance(X[:2], X),
        r"`x` must have at least 3 rows for a distance with an error; got 2",
    ),
    (lambda: dp.kernel_distance(X, X[:1]), r"`reference` must have at least 3 rows .* got 1"),
    (lambda: dp.kernel_distance(X * 1e120, X), r"kernel values between rows overflow. Rescale"),
    (lambda: dp.kernel_distance(X, X[0]), r"`reference` must have shape \(n, d\)"),
    (lambda: dp.recall(X * np.nan, X), r"6 of 6 rows of `x` contain NaN"),
    (
        lambda: dp.recall(X[:3], X),
        r"3 rows of `x` have at most 2 neighbours each; got `num_neighbours` 3",
    ),
    (
        lambda: dp.coverage(X, X[:5]),
        r"5 rows of `reference` have at most 4 neighbours each; got `num_neighbours` 5",
    ),
    (
        lambda: dp.recall(X, X, num_neighbours=0),
        r"`num_neighbours` must be a whole number of at least 1; got 0",
    ),
    (
        lambda: dp.coverage(X, X, num_neighbours=2.0),
        r"`num_neighbours` must be a whole number of at least 1; got 2.0",
    ),
    (lambda: dp.alignment(X, X[:5]), r"must pair up row by row; got 6 outputs and 5 prompts"),
    (lambda: dp.alignment(X, X[:, :2]), r"`x` and `t` must come from one embedder"),
    (lambda: dp.alignment(X, X, scale=0), r"`scale` must be a positive number; got 0"),
    (lambda: dp.alignment(X, X, scale="100"), r"`scale` must be a positive number; got '100'"),
    (
        lambda: dp.alignment(X, X * (np.arange(6) != 2)[:, None]),
        r"row 2 of `t` is all zeros, so its cosine .* Drop it\.$",
    ),
    (lambda: dp.in_batch_similarity(X * 0, [0] * 6), r"row 0 of `x` is all zeros"),
    (
        lambda: dp.in_batch_similarity(X, range(6)),
        r"each of the 6 prompts has a single output. Similarity needs at least one",
    ),
    (
        lambda: dp.in_batch_similarity(X, [0, 0, 1]),
        r"must pair up row by row; got 6 outputs and 3 prompts",
    ),
    (lambda: dp.in_batch_similarity(X, np.linspace(0, 1, 6)), r"`t` must hold group ids"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_invalid_arguments_are_refused(call, message):
    with pytest.raises((dp.DataError, dp.ArgumentError), match=message):
        call()


def test_memory_stays_below_a_matrix_of_all_pairs():
    """6,000 rows on either side: a matrix of distances in double precision would take 288 MB."""
    code = (
        "import resource, numpy as np, divprism as dp\n"
        "x, y = np.random.default_rng(0).standard_normal((2, 6000, 16))\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before = peak()\n"
        "dp.kernel_distance(x, y), dp.recall(x, y), dp.coverage(x, y)\n"
        "print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 150  # megabytes: a few blocks of 512 x 6,000


def test_a_set_is_as_far_from_itself_as_from_its_copy():
    x = np.random.default_rng(0).standard_normal((20, 4))
    assert dp.kernel_distance(x, x).value == dp.kernel_distance(x, x.copy()).value


def test_borders_are_included_on_a_grid():
    """Distances that are equal on paper may differ after rounding."""
    assert dp.recall([[10.0], [11.0], [12.0]], [[9.0], [13.0]], num_neighbours=1) == 1
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, real = rng.integers(0, 2, (2, 30, 16)).astype(float)
        among, across = (((a[:, None] - b) ** 2).sum(axis=2) for a, b in ((x, x), (real, x)))
        balls = np.sort(among, axis=1)[:, 3]
        assert dp.recall(x, real) == (across <= balls).any(axis=1).mean()


@pytest.mark.parametrize("far", [0.0, 1e6, 1e8, -1e12])
def test_recall_and_coverage_do_not_depend_on_the_origin(far):
    """Steps of a half are exact at all these offsets, and so are differences."""
    x, real = np.array([[0.0], [1.0], [2.0], [3.0]]) + far, np.array([[0.5], [6.0], [10.0]]) + far
    assert dp.recall(x, real, num_neighbours=1) == pytest.approx(1 / 3)
    # 0.5 and 6 are covered: 6 has its nearest output at a distance of 3, and a radius of 4.
    assert dp.coverage(x, real, num_neighbours=1) == pytest.approx(2 / 3)


def test_an_outlier_costs_the_other_rows_no_digits():
    """cdist sums squared differences, and so keeps all digits."""
    x, real = np.random.default_rng(0).standard_normal((2, 200, 8))
    real[0] = 1e9
    radii = np.sort(cdist(x, x), axis=1)[:, 3], np.sort(cdist(real, real), axis=1)[:, 5]
    assert dp.recall(x, real) == (cdist(real, x) <= radii[0]).any(axis=1).mean()
    assert dp.coverage(x, real) == (cdist(x, real) <= radii[1]).any(axis=0).mean()


def test_borders_are_included_in_many_dimensions():
    """Corners of a cube: every squared distance is a whole number, and many are equal."""
    x, real = np.random.default_rng(0).integers(0, 2, (2, 60, 2048)).astype(float)
    squares = ((x[:, None, :] - real[None, :, :]) ** 2).sum(axis=2)
    around = ((real[:, None, :] - real[None, :, :]) ** 2).sum(axis=2)
    radii = np.sort(around, axis=1)[:, 5]
    assert dp.coverage(x, real) == (squares <= radii).any(axis=0).mean()
