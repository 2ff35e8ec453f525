"""The papers' bounds, worked by hand, and held by data of a known law."""

import math

import numpy as np
import pytest

import divprism as dp
from divprism import bounds


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
    assert bounds.fourier_vendi_bound(4.0, 10**6, 5000) == pytest.approx(((0.5 + reach) ** -2, (0.5 - reach) ** -2))


def test_conditional_bounds_are_theorems_1_and_2():
    spread = 1 + math.sqrt(2 * math.log(80))
    reach = spread * (math.sqrt(6) * math.log(6e9) + math.sqrt(3) * math.log(3e9)) / math.sqrt(1e9)
    assert bounds.conditional_vendi_bound(2.0, 10**9, dimension_x=2, dimension_t=3) == pytest.approx(
        (2 * math.exp(-reach), 2 * math.exp(reach))
    )
    plain = math.sqrt(20 * 6 * math.log(80) / 1e9) * math.log(6e9)  # the short form of the paper's body is the wider one
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
        interval = dp.evaluate(x, kernel_x=dp.Gaussian(2.0), interval=0.95).intervals["rke"]
        assert interval.high - interval.low < 0.2 * (high - low)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.eigenvalue_bound(10), r"Truncated Vendi, Thm 1 asks for n of at least 26; got 10"),
        (lambda: bounds.eigenvalue_bound(1000, delta=1.0), "`delta` must be between 0 and 1; got 1.0"),
        (lambda: bounds.vendi_bound(2.0, 1000, 1.0), "below order 2 the bounds need the `dimension`"),
        (lambda: bounds.vendi_bound(2.0, 1000, 0.5), "the bounds are for orders from 1 on, not 0.5"),
        (lambda: bounds.vendi_bound(2.0, 100, 1.0, dimension=3), r"Cor. 2 \(a\) asks for n of at least"),
        (lambda: bounds.fourier_vendi_bound(2.0, 1000, 50, 1.0), "the bound is for orders above 1, not 1"),
        (lambda: bounds.conditional_vendi_bound(2.0, 10**6), "the bound needs `dimension_x` and `dimension_t`"),
        (lambda: bounds.conditional_rke_bound(2.0, 10**6, prompts=(0, 1), joint=(0.5, 1)), "must be rising pairs of norms"),
        (lambda: bounds.conditional_rke_bound(2.0, 10, prompts=(0.5, 1), joint=(0.5, 1)), "Thm 3 asks for n of at least"),
    ],
)
def test_where_a_theorem_does_not_apply_it_is_refused(call, message):
    with pytest.raises(dp.ArgumentError, match=message):
        call()
