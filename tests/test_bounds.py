"""The papers' bounds, worked by hand, and held by data of a known law."""

import json
import math

import numpy as np
import pytest

import divprism as dp
from divprism.analysis import bounds
from divprism.report import render


def test_the_eigenvalue_bound_is_that_of_theorem_1():
    assert bounds.eigenvalue_bound(3200, delta=2 / math.e) == pytest.approx(0.1)


def test_order_2_is_corollary_1_solved_for_the_population():
    """RKE 4 has the norm 1/2; with a reach of 0.1 the population's norm is between 0.4 and 0.6."""
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
    plain = math.sqrt(20 * 6 * math.log(80) / 1e9) * math.log(
        6e9
    )  # the short form of the paper's body is the wider one
    assert reach < plain
    reach = math.sqrt(7 / 1e9) * (2 + math.sqrt(8 * math.log(80))) * math.log(7e9)
    assert bounds.conditional_vendi_bound(2.0, 10**9, truncation=7) == pytest.approx(
        (2 * math.exp(-reach), 2 * math.exp(reach))
    )


def test_conditional_rke_is_theorem_3():
    spread = 1 + math.sqrt(2 * math.log(80))
    constant = 2 / 0.5 + 2 * 0.4 / 0.25
    reach = 32 * constant * spread / (0.4**3 * math.sqrt(1e12))
    found = bounds.conditional_rke_bound(3.0, 10**12, prompts=(0.5, 1.0), joint=(0.4, 0.4))
    assert found == pytest.approx((3 - reach, 3 + reach))


def test_samples_of_a_known_law_stay_within():
    """Normal data, Gaussian kernel: RKE of the population is known. Bounds for 95 % should hold nearly always, being wide."""
    truth = (1 + 4 / 2.0**2) ** (2 / 2)
    for seed in range(40):
        x = np.random.default_rng(seed).standard_normal((400, 2))
        low, high = bounds.vendi_bound(float(dp.rke(x, kernel=dp.Gaussian(2.0))), 400)
        assert low <= truth <= high
        # order 2: the interval of RKE alone, which takes no eigenvalues
        found = dp.evaluate(x, kernel_x=dp.Gaussian(2.0), order=2, interval=0.95)
        interval = found.intervals["rke"]
        assert interval.high - interval.low < 0.2 * (high - low)


def test_bounds_that_overflow_are_infinite():
    """Just above order 1 the norm is taken to a power of -201; a little room below it is no upper end."""
    norm, reach = 4.0 ** (-0.005 / 1.005), bounds.eigenvalue_bound(125, 0.05)
    assert (
        0 < norm - reach < 0.1 and bounds.vendi_bound(4.0, 125, 1.005, truncation=1)[1] == math.inf
    )
    assert bounds.vendi_bound(4.0, 1000, 1.0, dimension=10**6)[1] == math.inf


ROWS = np.random.default_rng(0).standard_normal((1000, 2))
LINES = np.eye(2)[np.arange(1000) % 2]


def bounds_at(x, t=None, **settings):
    return dp.evaluate(x, t, interval=0.95, **settings).bounds


def test_evaluations_carry_the_bounds_that_apply():
    found = dp.evaluate(ROWS, kernel_x=dp.Gaussian(4.0), interval=0.9)
    assert set(found.bounds) == {"rke"}  # at order 1 a Gaussian kernel has no theorem
    low, high = bounds.vendi_bound(float(found.rke), 1000, delta=0.1)
    assert found.bounds["rke"] == bounds.Bound(low, high, "Truncated Vendi, Cor. 1")
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
        (ROWS[:20], None, {}),  # Theorem 1 asks for 26
        (
            ROWS[:400],
            np.repeat(np.arange(100), 4),
            {},
        ),  # prompts drawn: outputs of one are not independent
        (ROWS[:400], None, {"weights": np.arange(1, 401) / np.arange(1, 401).sum()}),
    ],
)
def test_where_no_theorem_applies_there_is_no_bound(x, t, settings):
    found = dp.evaluate(x, t, kernel_x=dp.Gaussian(4.0), interval=0.95, **settings)
    assert found.bounds == {} and found.intervals
    assert found.to_dict()["scores"]["rke"]["bound"] is None


def test_only_exact_scores_are_bounded():
    found = dp.evaluate(
        ROWS, kernel_x=dp.Gaussian(4.0), estimator=dp.Subsample(200), order=2, interval=0.95
    )
    assert found.rke.standard_error > 0 and found.bounds == {}


def test_conditional_rke_of_a_known_law_stays_within():
    """T normal, X = T + 0.7 noise, Gaussian kernels: norms of both operators are determinants."""
    spread = 2 * np.array([[1.49, 1.0], [1.0, 1.0]])  # of the differences of X and of T
    truth = np.linalg.det(np.eye(2) + 2 * spread / 4) / (
        1 + 4 / 4
    )  # two dimensions: the square of the root of each
    for seed in range(20):
        generator = np.random.default_rng(seed)
        t = generator.standard_normal((600, 2))
        x = t + 0.7 * generator.standard_normal((600, 2))
        kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(2.0)}
        found = dp.evaluate(x, t, order=2, interval=0.95, num_permutations=0, **kernels)
        bound, interval = found.bounds["conditional_rke"], found.intervals["conditional_rke"]
        assert bound.low <= truth <= bound.high
        assert bound.low < interval.low and interval.high < bound.high
    assert float(found.conditional_rke) == pytest.approx(
        truth, rel=0.1
    )  # the formula is right: three standard errors


def test_the_ratio_of_two_norms_is_narrower_than_theorem_3():
    """Its norms are known here without error, and it is still the wider: that is why results carry the other."""
    for t, joint in [(1.0, 1.0), (0.5, 0.25), (0.9, 0.1), (0.2, 0.15)]:
        for n in (10**9, 10**12):
            found = bounds._ratio(n, {"t": t, "joint": joint}, 0.05)
            low, high = bounds.conditional_rke_bound(
                (t / joint) ** 2, n, prompts=(t, t), joint=(joint, joint)
            )
            assert low <= found.low <= (t / joint) ** 2 <= found.high < high


def test_the_ratio_of_two_norms_is_worked_by_hand():
    """Norms 1/2 and 1/4 with a reach of 0.1: the ratio 4 is between (4 / 3.5)^2 and (6 / 1.5)^2."""
    found = bounds._ratio(6400, {"t": 0.5, "joint": 0.25}, delta=4 / math.e**2)
    assert (found.low, found.high) == pytest.approx(((4 / 3.5) ** 2, (6 / 1.5) ** 2))


def test_documents_hold_finite_numbers_and_tables_tell_what_informs():
    wide = dp.evaluate(ROWS, kernel_x=dp.Gaussian(0.2), interval=0.95)
    assert wide.bounds["rke"].high == math.inf
    entry = json.loads(wide.to_json())["scores"]["rke"]["bound"]
    assert entry["high"] is None and entry["low"] >= 1
    narrow = dp.evaluate(ROWS, kernel_x=dp.Gaussian(4.0), interval=0.95)
    told = "of infinitely many samples, whatever their law, at 95%: rke 1."
    for form in ("table", "md", "latex"):
        assert told in render(narrow.to_dict(), form)
        assert "whatever their law" not in render(wide.to_dict(), form)


def test_comparisons_carry_bounds_of_independent_pairs():
    t = np.arange(400) % 4
    models = {
        name: dp.Samples(spread * ROWS[:400], t) for name, spread in (("free", 1.0), ("fixed", 0.5))
    }
    found = dp.compare(models, kernel_x=dp.Gaussian(4.0))
    alone = dp.evaluate(models["free"], kernel_x=dp.Gaussian(4.0), interval=0.95)
    assert set(alone.bounds) == {"rke", "conditional_rke"}
    for name, bound in alone.bounds.items():
        assert found.results["free"].bounds[name].low == pytest.approx(bound.low)
    assert dp.compare(models, kernel_x=dp.Gaussian(4.0), unit="prompt").results["free"].bounds == {}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bounds.eigenvalue_bound(10),
            r"Truncated Vendi, Thm 1 asks for n of at least 26; got 10",
        ),
        (
            lambda: bounds.eigenvalue_bound(1000, delta=1.0),
            "`delta` must be between 0 and 1; got 1.0",
        ),
        (
            lambda: bounds.vendi_bound(2.0, 1000, 1.0),
            "below order 2 the bounds need the `dimension`",
        ),
        (
            lambda: bounds.vendi_bound(2.0, 1000, 0.5),
            "the bounds are for orders from 1 on, not 0.5",
        ),
        (
            lambda: bounds.vendi_bound(2.0, 100, 1.0, dimension=3),
            r"Cor. 2 \(a\) asks for n of at least",
        ),
        (
            lambda: bounds.fourier_vendi_bound(2.0, 1000, 50, 1.0),
            "the bound is for orders above 1, not 1",
        ),
        (
            lambda: bounds.conditional_vendi_bound(2.0, 10**6),
            "the bound needs `dimension_x` and `dimension_t`",
        ),
        (
            lambda: bounds.conditional_rke_bound(2.0, 10**6, prompts=(0, 1), joint=(0.5, 1)),
            "must be rising pairs of norms",
        ),
        (
            lambda: bounds.conditional_rke_bound(2.0, 10, prompts=(0.5, 1), joint=(0.5, 1)),
            "Thm 3 asks for n of at least",
        ),
    ],
)
def test_where_a_theorem_does_not_apply_it_is_refused(call, message):
    with pytest.raises(dp.ArgumentError, match=message):
        call()
