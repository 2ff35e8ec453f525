"""Errors of other implementations, and pitfalls of floating point."""

import math

import numpy as np
import pytest
import reference
import torch
from cases import DATA, LIBRARIES

import divprism as dp
from divprism.core.arrays import distinct_rows

A_KERNELS = {"kernel_x": dp.Gaussian(8.0), "kernel_t": dp.Gaussian(6.0)}


def test_truncation_applies_to_every_spectrum(library):
    x, t = (library(side) for side in DATA["A"])
    result = dp.conditional_vendi(x, t, truncation=50, **A_KERNELS)
    assert result.entropy == pytest.approx(0.8395277220, abs=5e-11)


def test_truncated_mass_is_topped_up_to_one(library):
    result = dp.vendi(library(DATA["A"][0]), kernel=dp.Gaussian(8.0), truncation=50)
    assert float(result) == pytest.approx(21.085804, rel=1e-7)


@pytest.mark.parametrize("order", [1, 2])
def test_single_precision_far_from_the_origin_does_not_cancel(order, library):
    x = DATA["A"][0]
    near, far = x.astype(np.float32), (x + 1000).astype(np.float32)
    expected = reference.entropy(reference.gaussian(far.astype(np.float64), 8.0), order)
    assert float(dp.vendi(library(far), kernel=dp.Gaussian(8.0), order=order)) == pytest.approx(
        math.exp(expected), rel=1e-6
    )
    if order == 1:
        assert float(dp.vendi(library(near), kernel=dp.Gaussian(8.0))) == pytest.approx(
            56.215184, rel=1e-6
        )


def _ten_points_fifty_times(dtype):
    points = np.random.RandomState(1).randn(10, 16).astype(dtype)
    return np.repeat(points, 50, axis=0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bandwidth", [1e-3, 2.0, 1e3])
def test_copies_add_nothing_at_small_order(dtype, bandwidth, library):
    x = _ten_points_fifty_times(dtype)
    expected = reference.entropy(reference.gaussian(x[::50].astype(np.float64), bandwidth), 0.1)
    result = dp.vendi(library(x), kernel=dp.Gaussian(bandwidth), order=0.1)
    assert float(result) <= 10 + 1e-9
    if bandwidth < 1e3:  # at 1000 the reference is dominated by its own rounding
        assert float(result) == pytest.approx(math.exp(expected), rel=1e-6)


@pytest.mark.parametrize("bandwidth", [0.01, 1.0])
def test_near_copies_add_nothing_at_small_order(bandwidth, library):
    """Differences below rounding must not produce spurious eigenvalues."""
    x = _ten_points_fifty_times(np.float64)
    jitter = 1e-13 * np.random.RandomState(2).randn(*x.shape)
    result = dp.vendi(library(x + jitter), kernel=dp.Gaussian(bandwidth), order=0.1)
    assert float(result) == pytest.approx(
        float(dp.vendi(library(x), kernel=dp.Gaussian(bandwidth), order=0.1)), rel=1e-6
    )


@pytest.mark.parametrize("order", [0.01, 0.1, 0.5])
def test_outliers_add_an_item_each_and_hide_none(order, library):
    """A point far from all others is similar to none: its rounding touches no other eigenvalue."""
    near = np.linspace(-1, 1, 10)[:, None]
    # The smallest eigenvalue is 1e-12, above the rounding of the line but not of the outliers.
    values = np.linalg.eigvalsh(reference.gaussian(near, 1.0)) / 12
    expected = (np.append(values, [1 / 12, 1 / 12]) ** order).sum() ** (1 / (1 - order))
    x = library(np.concatenate([near, [[4096.0], [-4096.0]]]))
    kernel = dp.Gaussian(1.0)
    assert float(dp.vendi(x, kernel=kernel, order=order)) == pytest.approx(expected, rel=1e-6)
    # The same for the matrix of pairs, and for one block of equal prompts.
    for kernel_t, t in ((kernel, library(np.zeros((12, 1)))), (dp.Categorical(), [0] * 12)):
        result = dp.conditional_vendi(x, t, kernel_x=kernel, kernel_t=kernel_t, order=order)
        assert float(result) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_heavy_tails_keep_every_eigenvalue_that_is_resolved(seed):
    x = np.random.RandomState(seed).lognormal(0, 2, size=(200, 3))
    values = np.linalg.eigvalsh(reference.gaussian(x, 1.0)) / 200
    values = values[values > 200 * np.finfo(float).eps * values.max()]
    expected = (values**0.01).sum() ** (1 / 0.99)
    # Single eigenvalues near the cut may fall on either side of it: each is worth 0.4 percent.
    assert float(dp.vendi(x, kernel=dp.Gaussian(1.0), order=0.01)) == pytest.approx(
        expected, rel=5e-3
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("estimator", [dp.Exact(), dp.Dual(), dp.Auto()])
def test_rank_deficient_data_have_no_more_than_their_rank(dtype, estimator, library):
    rng = np.random.RandomState(0)
    x = (rng.randn(500, 10) @ rng.randn(10, 64)).astype(dtype)
    assert 9 < float(dp.vendi(library(x), kernel=dp.Cosine(), order=0.1, estimator=estimator)) <= 10


def test_infinity_is_accepted_as_number_and_text(library):
    x = library(DATA["A"][0])
    values = [
        float(dp.vendi(x, kernel=dp.Gaussian(8.0), order=order))
        for order in (math.inf, "inf", np.inf)
    ]
    assert values == [values[0]] * 3
    assert values[0] > 1


def test_all_fifty_eigenvalues_of_an_identity_count(library):
    assert float(dp.vendi(library(np.eye(50)), kernel=dp.Precomputed())) == pytest.approx(50)


def test_orders_beside_one_meet_at_one(library):
    x = library(DATA["A"][0])
    below, at, above = (
        float(dp.vendi(x, kernel=dp.Gaussian(8.0), order=order))
        for order in (0.999999, 1, 1.000001)
    )
    assert below > at > above
    # The derivative of the entropy at order 1 is minus half the variance of log lambda.
    assert (below - above) / at == pytest.approx(2e-6 * _half_variance(DATA["A"][0], 8.0), rel=1e-3)


def _half_variance(x, bandwidth):
    values = np.linalg.eigvalsh(reference.gaussian(x, bandwidth) / len(x))
    surprise = -np.log(values)
    return 0.5 * (values @ surprise**2 - (values @ surprise) ** 2)


def test_formulas_for_orders_near_one_and_elsewhere_agree(library):
    x = library(DATA["B"][0])
    inside, outside = (
        float(dp.vendi(x, kernel=dp.Gaussian(5.0), order=1.05 + e)) for e in (-1e-9, 1e-9)
    )
    assert inside == pytest.approx(outside, rel=1e-8)


def test_order_a_million_is_nearly_infinity(library):
    x = library(DATA["A"][0])
    high, limit = (
        float(dp.vendi(x, kernel=dp.Gaussian(8.0), order=order)) for order in (1e6, math.inf)
    )
    assert high == pytest.approx(limit, rel=1e-5)
    assert high >= limit


@pytest.mark.parametrize("order", [0.1, 1, 2, math.inf])
def test_one_item_scores_one(order, library):
    for kernel in (None, dp.Gaussian(2.0), dp.Cosine(), dp.Polynomial()):
        result = dp.evaluate(library(np.array([[3.0, 4.0]])), [7], kernel_x=kernel, order=order)
        assert [float(score) for score in result.scores.values()] == pytest.approx([1.0] * 8)


@pytest.mark.parametrize("order", [0.1, 1, 2, math.inf])
def test_constant_data_score_one(order, library):
    x = library(np.full((30, 4), 7.25))
    for kernel in (None, dp.Gaussian(1e-6), dp.Cosine(), dp.Polynomial()):
        assert float(dp.vendi(x, kernel=kernel, order=order)) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("bandwidth", [1e-140, 1e-12, 1e-6])
def test_tiny_bandwidths_count_distinct_items(bandwidth, library):
    x = np.random.RandomState(0).randn(40, 3)
    result = dp.evaluate(library(np.repeat(x, 2, axis=0)), kernel_x=dp.Gaussian(bandwidth))
    assert [float(result.vendi), float(result.rke)] == pytest.approx([40, 40], rel=1e-12)


@pytest.mark.parametrize("bandwidth", [1e9, 1e300])
def test_huge_bandwidths_see_one_item(bandwidth, library):
    x = library(np.random.RandomState(0).randn(40, 3))
    assert float(dp.vendi(x, kernel=dp.Gaussian(bandwidth))) == pytest.approx(1, abs=1e-12)


def test_a_bandwidth_whose_squares_overflow_is_refused():
    with pytest.raises(dp.DataError, match="overflow at bandwidth 1e-200"):
        dp.vendi(np.random.RandomState(0).randn(4, 3), kernel=dp.Gaussian(1e-200))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", [1, 2])
def test_close_pairs_far_apart_are_resolved(dtype, order, library):
    """Clusters 10^7 bandwidths apart with members one bandwidth apart, lost by plain norms."""
    x = np.array([[0.0], [1.0], [2.0**23], [2.0**23 + 1]], dtype)
    expected = math.exp(reference.entropy(reference.gaussian(x.astype(np.float64), 1.0), order))
    assert float(dp.vendi(library(x), kernel=dp.Gaussian(1.0), order=order)) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e150])
def test_cosine_ignores_scale(scale, library):
    x = np.random.RandomState(0).randn(40, 5)
    assert float(dp.vendi(library(scale * x), kernel=dp.Cosine())) == pytest.approx(
        float(dp.vendi(x, kernel=dp.Cosine())), rel=1e-12
    )


LAYOUTS = {
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "transposed": lambda x: x.T.copy().T,
    "read-only": lambda x: x,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", [1, 2])
def test_memory_layout_does_not_matter(layout, order, pairs):
    x, t = pairs
    expected = dp.evaluate(x, t, order=order)
    result = dp.evaluate(LAYOUTS[layout](x), LAYOUTS[layout](t), order=order)
    for name, score in expected.scores.items():
        assert float(result.scores[name]) == pytest.approx(float(score), rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float32, 1e-6), (np.float16, 2e-3), (np.int64, 1e-12), (np.int8, 1e-12)],
)
@pytest.mark.parametrize("order", [1, 2])
def test_other_dtypes_give_the_scores_of_their_values(dtype, tolerance, order, pairs, library):
    """The tolerances are the effect of rounding the input on distances."""
    x, t = pairs
    if np.issubdtype(dtype, np.integer):
        x = np.round(4 * x)
    kernels = {"kernel_x": dp.Gaussian(6.0), "kernel_t": dp.Gaussian(2.0), "order": order}
    expected = dp.evaluate(x, t, **kernels)
    if dtype == np.float16 and library is LIBRARIES["array-api-strict"]:
        library = LIBRARIES["numpy"]  # the standard has no half precision
    result = dp.evaluate(library(x.astype(dtype)), library(t), **kernels)
    assert float(result.conditional_vendi) == pytest.approx(
        float(expected.conditional_vendi), rel=tolerance
    )


def test_booleans_are_zeros_and_ones(library):
    x = np.random.RandomState(0).rand(30, 6) > 0.5
    assert float(dp.vendi(library(x), kernel=dp.Gaussian(1.0))) == float(
        dp.vendi(library(x * 1.0), kernel=dp.Gaussian(1.0))
    )


@pytest.mark.parametrize("order", [1, 2])
def test_memory_mapped_files_are_scored(tmp_path, order, pairs):
    for name, side in zip("xt", pairs, strict=True):
        np.save(tmp_path / f"{name}.npy", side)
    x, t = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xt")
    assert float(dp.conditional_vendi(x, t, order=order)) == float(
        dp.conditional_vendi(*pairs, order=order)
    )


def test_wide_and_narrow_data(library):
    rng = np.random.RandomState(0)
    for shape in [(5, 300), (300, 1), (2, 1)]:
        x = rng.randn(*shape)
        expected = math.exp(reference.entropy(reference.gaussian(x, 1.5), 1))
        assert float(dp.vendi(library(x), kernel=dp.Gaussian(1.5))) == pytest.approx(
            expected, rel=1e-9
        )


def test_a_tensor_that_needs_gradients_is_scored():
    import torch

    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert float(dp.vendi(x)) == pytest.approx(float(dp.vendi(x.detach().numpy())), rel=1e-6)


def test_half_precision_tensors_are_scored():
    import torch

    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    # The tolerances are the effect of rounding the input.
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        assert float(dp.vendi(x.to(dtype))) == pytest.approx(float(dp.vendi(x)), rel=tolerance)
        assert float(dp.rke(x.to(dtype))) == pytest.approx(float(dp.rke(x)), rel=tolerance)


def test_half_precision_tensors_are_evaluated_and_clustered():
    import torch

    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert dp.evaluate(x, x).data["n"] == 20
    assert len(dp.kmeans_labels(x, 2)) == 20


def test_copies_are_found_in_any_layout_and_precision(library):
    """Equal rows are detected in any memory layout, or bandwidths would depend on it."""
    import torch

    rows = np.random.default_rng(0).standard_normal((20000, 40)).astype(np.float32)
    assert dp.evaluate(library(np.tile(rows[:300], (2, 1)))).data["outputs"] == 300
    assert distinct_rows(np.tile(rows, (2, 1)))[0].size == 20000
    strided = torch.from_numpy(np.tile(rows[:20], (2, 1)).T.copy()).T
    assert distinct_rows(strided)[0].size == 20
    assert distinct_rows(np.array([[0.0, 1.0], [-0.0, 1.0]]))[0].size == 1


def test_rows_that_agree_in_their_first_columns_stay_apart():
    x = np.zeros((6, 50))
    x[:, 49] = [0, 1, 2, 0, 1, 2]
    first, inverse = distinct_rows(x)
    assert first.tolist() == [0, 1, 2]
    assert inverse.tolist() == [0, 1, 2, 0, 1, 2]


def test_half_precision_matrices_keep_their_eigenvalues():
    n = 1500
    ids = np.r_[np.zeros(n // 2), np.arange(1, n // 2 + 1)]
    matrix = (ids[:, None] == ids).astype(np.float16)
    expected = math.exp(0.5 * math.log(2) + 0.5 * math.log(n))
    assert float(dp.vendi(matrix, kernel=dp.Precomputed())) == pytest.approx(expected, rel=1e-3)
    x = np.random.RandomState(0).randn(100, 5)
    rounded = reference.gaussian(x, 2.0).astype(np.float16)
    for order in (1, 2):
        expected = math.exp(reference.entropy(reference.gaussian(x, 2.0), order))
        score = dp.vendi(rounded, kernel=dp.Precomputed(), order=order)
        # The tolerance is the effect of rounding the entries to half precision.
        assert float(score) == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("order", [1e100, 1e308])
def test_astronomic_orders_do_not_overflow(order):
    assert float(dp.vendi(np.eye(10), kernel=dp.Cosine(), order=order)) == pytest.approx(10)
    assert float(
        dp.conditional_vendi(np.eye(10), [0] * 10, kernel_x=dp.Cosine(), order=order)
    ) == pytest.approx(10)


def test_foreign_byte_order_loses_no_precision():
    x = DATA["A"][0]
    assert float(dp.rke(x.astype(">f8"), kernel=dp.Gaussian(8.0))) == float(
        dp.rke(x, kernel=dp.Gaussian(8.0))
    )


def test_the_median_distance_does_not_cancel():
    x = np.array([*(1e-9 * np.arange(12)), 1.0])[:, None]
    gaps = np.abs(x - x.T)[np.triu_indices(13, 1)]
    assert dp.MedianDistance().bandwidth(x) == pytest.approx(np.median(gaps), rel=1e-7)


def test_single_precision_under_a_bandwidth_it_cannot_hold(library):
    x = np.random.RandomState(0).randn(10, 3).astype(np.float32)
    assert float(dp.rke(library(x), kernel=dp.Gaussian(1e-50))) == pytest.approx(10)


@pytest.mark.parametrize("mode", ["inference", "autocast", "gradients"])
def test_modes_of_torch_change_no_bit(mode):
    x, t = (
        torch.randn(60, 8, generator=torch.Generator().manual_seed(0)),
        torch.arange(20).repeat(3),
    )
    kernels = {"kernel_x": dp.Gaussian(3.0), "kernel_t": dp.Categorical()}
    plain = dp.evaluate(x, t, order=2, **kernels)
    around = {
        "inference": torch.inference_mode(),
        "autocast": torch.autocast("cpu", torch.bfloat16),
        "gradients": torch.enable_grad(),
    }
    with around[mode]:
        result = dp.evaluate(x.requires_grad_(mode == "gradients"), t, order=2, **kernels)
    assert [float(score) for score in result.scores.values()] == [
        float(score) for score in plain.scores.values()
    ]


def _wide_spectrum(n=400):
    """Outputs and prompts whose joint spectrum has much of its mass in small eigenvalues."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 12)), rng.standard_normal((n, 16)) + 3


@pytest.mark.parametrize("truncation", [None, 50])
@pytest.mark.parametrize("order", [1, 1.5, 3, math.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_data_score_as_the_same_numbers_in_double(dtype, order, truncation):
    x, t = (torch.as_tensor(side) for side in _wide_spectrum())
    t = t.to(dtype)
    options = {"kernel_x": dp.Gaussian(8.0), "kernel_t": dp.Cosine()}
    options |= {"order": order, "truncation": truncation, "estimator": dp.Exact()}
    half = dp.conditional_vendi(x, t, **options)
    assert float(half) == pytest.approx(float(dp.conditional_vendi(x, t.double(), **options)))


def test_rke_scores_are_the_same_beside_other_orders_and_alone():
    x, t = _wide_spectrum()
    t = t.astype(np.float16)
    kernels = {"kernel_x": dp.Gaussian(8.0), "kernel_t": dp.Cosine()}
    beside = dp.evaluate(x, t, order=1.5, num_permutations=0, **kernels).conditional_rke
    # Alone, half precision is multiplied in single precision.
    assert float(beside) == pytest.approx(float(dp.conditional_rke(x, t, **kernels)), rel=1e-6)


@pytest.mark.parametrize("truncation", [None, 50])
@pytest.mark.parametrize("order", [0.3, 0.5, 0.9])
def test_what_half_precision_leaves_open_below_order_one_is_a_stated_error(order, truncation):
    x, t = _wide_spectrum()
    t = t.astype(np.float16)
    options = {"kernel_x": dp.Gaussian(8.0), "kernel_t": dp.Cosine()}
    options |= {"order": order, "truncation": truncation, "estimator": dp.Exact()}
    half = dp.conditional_vendi(x, t, **options)
    double = dp.conditional_vendi(x, t.astype(float), **options)
    assert abs(half.entropy - double.entropy) <= 1.01 * half.standard_error / half


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_rounded_kernel_matrix_of_low_rank_has_no_spurious_eigenvalues(dtype):
    x = np.random.default_rng(0).standard_normal((300, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    score = dp.vendi((x @ x.T).astype(dtype), kernel=dp.Precomputed(), estimator=dp.Exact())
    # Three eigenvalues, each rounded in half precision.
    assert float(score) == pytest.approx(float(dp.vendi(x, kernel=dp.Cosine())), rel=1e-3)
