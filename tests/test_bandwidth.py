"""Rules for bandwidths: what they promise, checked by the definition."""

import numpy as np
import pytest

import divprism as dp
from divprism.core.arrays import distinct_rows
from divprism.scores.score import SATURATION

RNG = np.random.default_rng(7)
CLUSTERS = (3 * RNG.standard_normal((12, 6)))[RNG.integers(0, 12, 400)] + 0.3 * RNG.standard_normal(
    (400, 6)
)


def _variance(x, bandwidth, rule, rng=0):
    """The variance by the definition of the rule: RKE of random halves of the rows, corrected."""
    generator = np.random.default_rng(rng)
    draws = [generator.choice(len(x), len(x) // 2, replace=False) for _ in range(rule.num_subsets)]
    scores = [float(dp.rke(x[rows], kernel=dp.Gaussian(bandwidth))) for rows in draws]
    return np.var(scores, ddof=1) / (1 - 0.5)


def test_the_variance_is_below_the_threshold_and_exceeds_it_one_step_down():
    rule = dp.StableScore()
    bandwidth = rule.bandwidth(CLUSTERS)
    assert (
        _variance(CLUSTERS, bandwidth, rule)
        <= rule.threshold
        < _variance(CLUSTERS, bandwidth * 2 ** (-1 / 16), rule)
    )


def test_all_larger_bandwidths_are_stable_too():
    rule = dp.StableScore()
    bandwidth = rule.bandwidth(CLUSTERS)
    median = dp.MedianDistance().bandwidth(CLUSTERS)
    assert all(
        _variance(CLUSTERS, width, rule) <= rule.threshold
        for width in np.geomspace(bandwidth, 4 * median, 9)
    )
    tiny = median / 1000  # every row a kind of its own: no variance, and no bandwidth to choose
    assert _variance(CLUSTERS, tiny, rule) < rule.threshold and tiny < bandwidth


def test_a_looser_threshold_gives_a_smaller_bandwidth():
    widths = [dp.StableScore(threshold=level).bandwidth(CLUSTERS) for level in (1e-4, 1e-2, 1.0)]
    assert widths[0] > widths[1] > widths[2]


def test_the_rule_follows_scale_and_ignores_location(library):
    rule = dp.StableScore()
    right = rule.bandwidth(CLUSTERS)
    assert rule.bandwidth(library(1000 * CLUSTERS)) == pytest.approx(1000 * right, rel=1e-12)
    assert rule.bandwidth(library(CLUSTERS + 50)) == pytest.approx(right, rel=1e-9)


def test_the_rule_repeats_itself_and_takes_a_seed():
    rule = dp.StableScore(num_subsets=3, max_rows=50)
    assert rule.bandwidth(CLUSTERS, rng=3) == rule.bandwidth(CLUSTERS, rng=3)
    assert len({rule.bandwidth(CLUSTERS, rng=seed) for seed in range(8)}) > 1


def test_few_kinds_of_rows_get_the_smallest_bandwidth():
    x = np.repeat(np.eye(3), 200, axis=0)
    assert dp.StableScore().bandwidth(x) == pytest.approx(np.sqrt(2) / 8)


@pytest.mark.parametrize(
    "x",
    [np.ones((50, 3)), np.ones((1, 3)), np.array([[0.0], [2.0]]), np.array([[0.0], [2.0], [2.0]])],
)
def test_data_too_small_for_the_rule_get_the_median_distance(x):
    assert dp.StableScore().bandwidth(x) == dp.MedianDistance().bandwidth(x)


def test_copies_are_looked_for_once(monkeypatch):
    looked = []
    monkeypatch.setattr(
        "divprism.scores.bandwidth.distinct_rows", lambda x: looked.append(x) or distinct_rows(x)
    )
    dp.StableScore().bandwidth(CLUSTERS)
    assert len(looked) == 1


PROMPTS = np.repeat(np.eye(40), 3, axis=0)[:120]
DEGENERATE = {
    "outputs-all-alike": {"kernel_x": dp.Gaussian(1e4), "kernel_t": dp.Gaussian(0.5)},
    "outputs-all-apart": {"kernel_x": dp.Gaussian(1e-4), "kernel_t": dp.Gaussian(0.5)},
    "prompts-all-alike": {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1e4)},
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_uninformative_bandwidths_give_a_warning(name):
    with pytest.warns(dp.BandwidthWarning, match=f"{name}: .*(raise|lower) the bandwidth of"):
        found = dp.evaluate(CLUSTERS[:120], PROMPTS, **DEGENERATE[name])
    assert [notice.code for notice in found.warnings] == [name]
    if name.startswith("outputs"):
        assert (
            dp.vendi(CLUSTERS[:120], kernel=DEGENERATE[name]["kernel_x"]).warnings == found.warnings
        )


def test_prompts_that_are_all_apart_are_named():
    """One output per prompt, and unrelated prompts: conditional is 1 for any model."""
    with pytest.warns(
        dp.BandwidthWarning,
        match="prompts-all-apart: nearly each of the 120 pairs has its own kind of prompt",
    ):
        found = dp.evaluate(
            CLUSTERS[:120], np.eye(120), kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(0.1)
        )
    assert float(found.conditional_vendi) == pytest.approx(1.0)


def test_prompts_that_are_all_apart_and_repeat_are_asked_for_exactly(recwarn):
    """Ten outputs of each of twelve prompts: a tiny bandwidth scores as ids of the prompts do."""
    t = np.repeat(np.arange(12), 10)
    arguments = {"kernel_x": dp.Gaussian(2.0)}
    tiny = dp.evaluate(CLUSTERS[:120], np.eye(12)[t], kernel_t=dp.Gaussian(1e-3), **arguments)
    by_id = dp.evaluate(CLUSTERS[:120], t, **arguments)
    assert float(tiny.conditional_vendi) == pytest.approx(float(by_id.conditional_vendi))
    assert not [notice for notice in tiny.warnings if notice.code in SATURATION] and not recwarn


def test_what_is_no_matter_of_bandwidth_is_not_named(recwarn):
    constant = dp.evaluate(np.ones((40, 2)), np.repeat(np.arange(4), 10))
    unlike = dp.evaluate(np.eye(40), np.repeat(np.arange(40), 1), kernel_x=dp.Cosine())
    assert not [
        notice
        for found in (constant, unlike)
        for notice in found.warnings
        if notice.code in SATURATION
    ]
    assert not recwarn
