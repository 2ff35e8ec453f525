"""The papers' bounds: calculations by hand, and data of known distributions."""

import json
import math
from functools import partial

import numpy as np
import pytest

import divprism as dp
from divprism.analysis import bounds
from divprism.report.tables import evaluation_table


def test_the_eigenvalue_bound_is_that_of_theorem_1():
    assert bounds.eigenvalue_bound(3200, delta=2 / math.e) == pytest.approx(0.1)


def test_order_2_is_corollary_1_solved_for_the_population():
    """RKE 4 has norm 1/2; with a reach of 0.1 the norm of the population is in [0.4, 0.6]."""
    assert bounds.vendi_bound(4.0, 3200, delta=2 / math.e) == pytest.approx((0.6**-2, 0.4**-2))
    assert bounds.vendi_bound(4.0, 100)[1] == math.inf  # too few samples for an upper end


def test_below_order_2_the_dimension_counts():
    narrow, wide = (bounds.vendi_bound(4.0, 10**6, 1.5, dimension=d) for d in (4, 400))
    assert wide[0] < narrow[0] < 4 < narrow[1] < wide[1]
    reach = math.sqrt(32 * 4**0.5 * math.log(40) / 10**6)
    norm = 4 ** (-1 / 3)
    assert narrow == pytest.approx(((norm + reach) ** -3, (norm - reach) ** -3))


def test_order_1_is_corollary_2_also_under_truncation():
    reach = math.sqrt(8 * 5 * math.log(40) / 10**7) * math.log(10**7 * 5 / (32 * math.log(40)))
    right = (4 * math.exp(-reach), 4 * math.exp(reach))
    assert bounds.vendi_bound(4.0, 10**7, 1.0, dimension=5) == pytest.approx(right)
    assert bounds.vendi_bound(4.0, 10**7, 1.0, truncation=5) == pytest.approx(right)


def test_the_bound_of_fourier_features_is_theorem_3():
    reach = math.sqrt(128 * math.log(60) / 5000)
    assert bounds.fourier_vendi_bound(4.0, 10**6, 5000) == pytest.approx(
        ((0.5 + reach) ** -2, (0.5 - reach) ** -2)
    )


def test_conditional_bounds_are_theorems_1_and_2():
    spread = 1 + math.sqrt(2 * math.log(80))
    reach = spread * (math.sqrt(6) * math.log(6e9) + math.sqrt(3) * math.log(3e9)) / math.sqrt(1e9)
    assert bounds.conditional_vendi_bound(
        2.0, 10**9, dimension_x=2, dimension_t=3
    ) == pytest.approx((2 * math.exp(-reach), 2 * math.exp(reach)))
    # The short form in the body of the paper is wider than that of its appendix.
    short_form = math.sqrt(20 * 6 * math.log(80) / 1e9) * math.log(6e9)
    assert reach < short_form
    reach = math.sqrt(7 / 1e9) * (2 + math.sqrt(8 * math.log(80))) * math.log(7e9)
    assert bounds.conditional_vendi_bound(2.0, 10**9, truncation=7) == pytest.approx(
        (2 * math.exp(-reach), 2 * math.exp(reach))
    )


def test_conditional_rke_is_theorem_3():
    spread = 1 + math.sqrt(2 * math.log(80))
    constant = 2 / 0.5 + 2 * 0.4 / 0.25
    reach = 32 * constant * spread / (0.4**3 * math.sqrt(1e12))
    result = bounds.conditional_rke_bound(3.0, 10**12, prompts=(0.5, 1.0), joint=(0.4, 0.4))
    assert result == pytest.approx((3 - reach, 3 + reach))


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (lambda: bounds.vendi_bound(0.5, 10**5), "`value` must be a score"),
        (lambda: bounds.vendi_bound(math.nan, 10**5), "`value` must be a score.*got nan"),
        (lambda: bounds.vendi_bound(4.0, 10**5, 1.0, truncation=0), "`truncation` must be a whole"),
        (lambda: bounds.vendi_bound(4.0, 10**5, 1.0, dimension=-2), "`dimension` must be a whole"),
        (lambda: bounds.fourier_vendi_bound(4.0, 10**6, 0), "`num_features` must be a whole"),
        (lambda: bounds.fourier_vendi_bound(0.0, 10**6, 9), "`value` must be a score"),
        (
            lambda: bounds.conditional_vendi_bound(5.0, 10**8, dimension_x=0, dimension_t=2),
            "`dimension_x` must be a whole",
        ),
        (
            lambda: bounds.conditional_rke_bound(0.0, 10**12, prompts=(0.5, 1.0), joint=(0.4, 0.4)),
            "`value` must be a score",
        ),
    ],
)
def test_bounds_refuse_what_is_no_score_and_no_rank(bound, message):
    with pytest.raises(dp.ArgumentError, match=message):
        bound()


def test_a_score_of_one_may_be_less_by_rounding():
    assert bounds.vendi_bound(1 - 1e-15, 10**5)[0] == 1.0


def test_bounds_contain_the_known_rke():
    """Normal data, Gaussian kernel: the RKE of the population is known, and bounds are wide."""
    truth = (1 + 4 / 2.0**2) ** (2 / 2)
    for seed in range(40):
        x = np.random.default_rng(seed).standard_normal((400, 2))
        low, high = bounds.vendi_bound(float(dp.rke(x, kernel=dp.Gaussian(2.0))), 400)
        assert low <= truth <= high
        # order 2: the interval of RKE alone, which takes no eigenvalues
        result = dp.evaluate(x, kernel_x=dp.Gaussian(2.0), order=2, interval=0.95)
        interval = result.intervals["rke"]
        assert interval.high - interval.low < 0.2 * (high - low)


def test_bounds_that_overflow_are_infinite():
    """Just above order 1 the norm is raised to the power -201: a small one overflows."""
    norm, reach = 4.0 ** (-0.005 / 1.005), bounds.eigenvalue_bound(125, 0.05)
    assert 0 < norm - reach < 0.1
    assert bounds.vendi_bound(4.0, 125, 1.005, truncation=1)[1] == math.inf
    assert bounds.vendi_bound(4.0, 1000, 1.0, dimension=10**6)[1] == math.inf


ROWS = np.random.default_rng(0).standard_normal((1000, 2))
LINES = np.eye(2)[np.arange(1000) % 2]


def bounds_at(x, t=None, **settings):
    return dp.evaluate(x, t, interval=0.95, **settings).bounds


def test_evaluations_carry_the_bounds_that_apply():
    result = dp.evaluate(ROWS, kernel_x=dp.Gaussian(4.0), interval=0.9)
    assert set(result.bounds) == {"rke"}  # at order 1 a Gaussian kernel has no theorem
    low, high = bounds.vendi_bound(float(result.rke), 1000, delta=0.1)
    assert result.bounds["rke"] == bounds.Bound(low, high, "Truncated Vendi, Cor. 1")
    finite = dp.evaluate(
        LINES, LINES[::-1], kernel_x=dp.Cosine(), kernel_t=dp.Cosine(), interval=0.95
    )
    assert {name: bound.theorem for name, bound in finite.bounds.items()} == {
        "vendi": "Truncated Vendi, Cor. 2",
        "conditional_vendi": "Conditional Vendi, Thm 1",
        "rke": "Truncated Vendi, Cor. 1",
        "conditional_rke": "Truncated Vendi, Thm 1 on both norms",
    }
    ends = bounds.vendi_bound(float(finite.vendi), 1000, 1.0, dimension=2)
    assert (finite.bounds["vendi"].low, finite.bounds["vendi"].high) == pytest.approx(ends)


def test_truncation_and_order_choose_the_theorem():
    cut = bounds_at(ROWS, ROWS, kernel_x=dp.Gaussian(4.0), kernel_t=dp.Gaussian(4.0), truncation=2)
    assert {name: bound.theorem for name, bound in cut.items()} == {
        "vendi": "Truncated Vendi, Cor. 2",
        "conditional_vendi": "Conditional Vendi, Thm 2",
        "rke": "Truncated Vendi, Thm 2",
    }
    assert (
        bounds_at(ROWS, kernel_x=dp.Gaussian(4.0), order=3)["vendi"].theorem
        == "Truncated Vendi, Cor. 1"
    )
    assert (
        bounds_at(LINES, kernel_x=dp.Cosine(), order=1.5)["vendi"].theorem
        == "Truncated Vendi, Cor. 2"
    )
    for order in (0.5, math.inf):
        assert set(bounds_at(LINES, kernel_x=dp.Cosine(), order=order)) == {"rke"}


@pytest.mark.parametrize(
    ("x", "t", "settings"),
    [
        # Truncated Vendi, Thm 1 needs 26 samples.
        (ROWS[:20], None, {}),
        # Outputs of one prompt are not independent.
        (ROWS[:400], np.repeat(np.arange(100), 4), {}),
        (ROWS[:400], None, {"weights": np.arange(1, 401) / np.arange(1, 401).sum()}),
    ],
)
def test_where_no_theorem_applies_there_is_no_bound(x, t, settings):
    result = dp.evaluate(x, t, kernel_x=dp.Gaussian(4.0), interval=0.95, **settings)
    assert result.bounds == {} and result.intervals
    assert result.to_dict()["scores"]["rke"]["bound"] is None


def test_only_exact_scores_are_bounded():
    result = dp.evaluate(
        ROWS, kernel_x=dp.Gaussian(4.0), estimator=dp.Subsample(200), order=2, interval=0.95
    )
    assert result.rke.standard_error > 0 and result.bounds == {}


def test_bounds_contain_the_known_conditional_rke():
    """T normal, X = T + 0.7 noise, Gaussian kernels: norms of both operators are determinants."""
    covariance = 2 * np.array([[1.49, 1.0], [1.0, 1.0]])  # of differences of X and of T
    # Two dimensions: the square of the square root of each determinant.
    truth = np.linalg.det(np.eye(2) + 2 * covariance / 4) / (1 + 4 / 4)
    for seed in range(20):
        generator = np.random.default_rng(seed)
        t = generator.standard_normal((600, 2))
        x = t + 0.7 * generator.standard_normal((600, 2))
        kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(2.0)}
        result = dp.evaluate(x, t, order=2, interval=0.95, num_permutations=0, **kernels)
        bound, interval = result.bounds["conditional_rke"], result.intervals["conditional_rke"]
        assert bound.low <= truth <= bound.high
        assert bound.low < interval.low and interval.high < bound.high
    # The formula for the truth is right: 0.1 is three standard errors.
    assert float(result.conditional_rke) == pytest.approx(truth, rel=0.1)


def test_the_ratio_of_two_norms_is_narrower_than_theorem_3():
    """Conditional Vendi, Thm 3 is wider even with exact norms, so results carry the ratio."""
    for t, joint in [(1.0, 1.0), (0.5, 0.25), (0.9, 0.1), (0.2, 0.15)]:
        for n in (10**9, 10**12):
            result = bounds._ratio(n, {"t": t, "joint": joint}, 0.05)
            low, high = bounds.conditional_rke_bound(
                (t / joint) ** 2, n, prompts=(t, t), joint=(joint, joint)
            )
            assert low <= result.low <= (t / joint) ** 2 <= result.high < high


def test_the_ratio_of_two_norms_matches_a_calculation_by_hand():
    """Norms 1/2 and 1/4 with a reach of 0.1: the ratio 4 is between (4 / 3.5)^2 and (6 / 1.5)^2."""
    result = bounds._ratio(6400, {"t": 0.5, "joint": 0.25}, delta=4 / math.e**2)
    assert (result.low, result.high) == pytest.approx(((4 / 3.5) ** 2, (6 / 1.5) ** 2))


def test_documents_hold_finite_numbers_and_tables_show_informative_bounds():
    wide = dp.evaluate(ROWS, kernel_x=dp.Gaussian(0.2), interval=0.95)
    assert wide.bounds["rke"].high == math.inf
    entry = json.loads(wide.to_json())["scores"]["rke"]["bound"]
    assert entry["high"] is None and entry["low"] >= 1
    narrow = dp.evaluate(ROWS, kernel_x=dp.Gaussian(4.0), interval=0.95)
    note = "bounds for infinitely many samples of any distribution, at 95%: rke 1."
    for form in ("table", "md", "latex"):
        assert note in _rendered(narrow, form)
        assert "of any distribution" not in _rendered(wide, form)


def _rendered(evaluation, form):
    """The table on a single line: terminals wrap notes, and LaTeX escapes the percent sign."""
    text = evaluation_table(evaluation.to_dict()).render(form)
    return " ".join(text.split()).replace("\\%", "%")


def test_comparisons_carry_bounds_of_independent_pairs():
    t = np.arange(400) % 4
    models = {
        name: dp.Samples(spread * ROWS[:400], t) for name, spread in (("free", 1.0), ("fixed", 0.5))
    }
    result = dp.compare(models, kernel_x=dp.Gaussian(4.0))
    alone = dp.evaluate(models["free"], kernel_x=dp.Gaussian(4.0), interval=0.95)
    assert set(alone.bounds) == {"rke", "conditional_rke"}
    for name, bound in alone.bounds.items():
        assert result.results["free"].bounds[name].low == pytest.approx(bound.low)
    assert dp.compare(models, kernel_x=dp.Gaussian(4.0), unit="prompt").results["free"].bounds == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bounds.eigenvalue_bound(10),
            r"Truncated Vendi, Thm 1 needs `n` of at least 26; got 10",
        ),
        (
            lambda: bounds.eigenvalue_bound(1000, delta=1.0),
            "`delta` must be between 0 and 1; got 1.0",
        ),
        (
            lambda: bounds.vendi_bound(2.0, 1000, 1.0),
            "below order 2 a bound needs the `dimension`",
        ),
        (
            lambda: bounds.vendi_bound(2.0, 1000, 0.5),
            "`order` must be finite and at least 1 for a bound; got 0.5",
        ),
        (
            lambda: bounds.vendi_bound(2.0, 100, 1.0, dimension=3),
            r"Cor. 2 \(a\) needs `n` of at least",
        ),
        (
            lambda: bounds.fourier_vendi_bound(2.0, 1000, 50, 1.0),
            "`order` must be finite and above 1 for this bound; got 1",
        ),
        (
            lambda: bounds.conditional_vendi_bound(2.0, 10**6),
            "the bound needs `dimension_x` and `dimension_t`",
        ),
        (
            lambda: bounds.conditional_rke_bound(2.0, 10**6, prompts=(0, 1), joint=(0.5, 1)),
            "must be pairs of norms",
        ),
        (
            lambda: bounds.conditional_rke_bound(2.0, 10, prompts=(0.5, 1), joint=(0.5, 1)),
            "Thm 3 needs `n` of at least",
        ),
    ],
)
def test_where_a_theorem_does_not_apply_it_is_refused(call, message):
    with pytest.raises(dp.ArgumentError, match=message):
        call()


@pytest.mark.parametrize("delta", [0.0, -0.1, 1.5])
@pytest.mark.parametrize(
    "bound",
    [
        bounds.eigenvalue_bound,
        partial(bounds.vendi_bound, 2.0),
        partial(bounds.vendi_bound, 2.0, order=1.0, dimension=3),
        partial(bounds.fourier_vendi_bound, 2.0, num_features=50),
        partial(bounds.conditional_vendi_bound, 2.0, truncation=3),
        partial(bounds.conditional_rke_bound, 2.0, prompts=(0.5, 1), joint=(0.5, 1)),
    ],
)
def test_every_bound_refuses_a_delta_outside_0_and_1(bound, delta):
    with pytest.raises(dp.ArgumentError, match="`delta` must be between 0 and 1"):
        bound(n=10**6, delta=delta)
