"""Rules for bandwidths: what they promise, checked by the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import divprism as dp
from divprism.core.arrays import distinct_rows
from divprism.scores.score import SATURATION

RNG = np.random.default_rng(7)
CENTRES = 3 * RNG.standard_normal((12, 6))
CLUSTERS = CENTRES[RNG.integers(0, 12, 400)] + 0.3 * RNG.standard_normal((400, 6))
RULES = [dp.StableScore(), dp.MedianDistance(), dp.DistinctPrompts()]
SIDES = ["x", "t"]


def _sampled_variance(bandwidth, size, repeats):
    """Variance of the RKE over independent samples of the law that CLUSTERS come from."""
    generator = np.random.default_rng(3)
    scores = []
    for _ in range(repeats):
        kinds = generator.integers(0, 12, size)
        x = CENTRES[kinds] + 0.3 * generator.standard_normal((size, 6))
        scores.append(float(dp.rke(x, kernel=dp.Gaussian(bandwidth))))
    return np.var(scores, ddof=1)


def test_the_variance_of_the_score_is_the_threshold_at_the_bandwidth():
    rule = dp.StableScore(threshold=0.05, num_samples=60)
    variance = _sampled_variance(rule.bandwidth(CLUSTERS), 60, 400)
    # A variance of 400 scores has a relative error of 7 %; the rule adds that of 400 rows.
    assert variance == pytest.approx(rule.threshold, rel=0.3)


def test_a_looser_threshold_gives_a_smaller_bandwidth():
    widths = [dp.StableScore(threshold=level).bandwidth(CLUSTERS) for level in (1e-4, 1e-2, 1.0)]
    assert widths[0] > widths[1] > widths[2]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_follows_scale_and_ignores_location(library, rule, side):
    right = rule.side_bandwidth(side, CLUSTERS)
    scaled = rule.side_bandwidth(side, library(1000 * CLUSTERS))
    moved = rule.side_bandwidth(side, library(CLUSTERS + 50))
    assert scaled == pytest.approx(1000 * right, rel=1e-9)
    assert moved == pytest.approx(right, rel=1e-9)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_gives_the_same_bits_in_any_order_of_rows(rule, side):
    right = rule.side_bandwidth(side, CLUSTERS)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(CLUSTERS))
        assert rule.side_bandwidth(side, CLUSTERS[order]) == right


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_copies_of_the_data_set_change_no_bandwidth_of_outputs(rule):
    right = rule.bandwidth(CLUSTERS)
    copied = rule.bandwidth(np.tile(CLUSTERS, (3, 1)))
    assert copied == pytest.approx(right, rel=1e-9)


def test_copies_of_pairs_change_no_bandwidth_of_prompts_that_repeat():
    t = np.repeat(CLUSTERS[:40], 3, axis=0)
    rule = dp.DistinctPrompts()
    right = rule.prompt_bandwidth(t)
    assert rule.prompt_bandwidth(np.tile(t, (2, 1))) == pytest.approx(right, rel=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_half_of_the_rows_give_nearly_the_same_bandwidth(rule):
    generator = np.random.default_rng(5)
    kinds = generator.integers(0, 40, 1000)
    x = (2 * generator.standard_normal((40, 8)))[kinds] + generator.standard_normal((1000, 8))
    whole = rule.bandwidth(x)
    assert rule.bandwidth(x[:500]) == pytest.approx(whole, rel=0.03)
    assert rule.bandwidth(x[500:]) == pytest.approx(whole, rel=0.03)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "kind", [dp.StableScore, dp.MedianDistance, dp.DistinctPrompts], ids=lambda kind: kind.__name__
)
def test_a_sample_of_many_rows_is_chosen_by_content(kind, side):
    rule = kind(max_rows=150)
    right = rule.side_bandwidth(side, CLUSTERS)
    order = np.random.default_rng(1).permutation(len(CLUSTERS))
    assert rule.side_bandwidth(side, CLUSTERS[order]) == pytest.approx(right, rel=1e-9)
    single = CLUSTERS.astype(np.float32)
    as_double = rule.side_bandwidth(side, single.astype(float))
    assert rule.side_bandwidth(side, single) == pytest.approx(as_double, rel=1e-5)
    # It is a sample: close to the bandwidth of all rows.
    assert right == pytest.approx(kind().side_bandwidth(side, CLUSTERS), rel=0.1)


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 12),
    d=st.integers(1, 3),
    exponent=st.integers(-150, 150),
    seed=st.integers(0, 99),
)
def test_every_rule_gives_a_positive_finite_bandwidth(n, d, exponent, seed):
    generator = np.random.default_rng(seed)
    # Few distinct values, so that rows and distances repeat.
    x = generator.integers(0, 3, (n, d)) * 10.0**exponent
    for rule in RULES:
        for side in SIDES:
            assert 0 < rule.side_bandwidth(side, x) < np.inf


def test_rows_that_are_equally_far_apart_get_the_smallest_bandwidth():
    x = np.repeat(np.eye(3), 200, axis=0)
    assert dp.StableScore().bandwidth(x) == pytest.approx(np.sqrt(2) / 8)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("x", [np.ones((50, 3)), np.ones((1, 3))])
def test_data_without_two_distinct_rows_get_one(rule, x):
    assert rule.bandwidth(x) == rule.prompt_bandwidth(x) == 1.0


PROMPT_CASES = {
    "three outputs each": np.repeat(np.arange(30), 3),
    "two outputs each": np.repeat(np.arange(30), 2),
    "uneven numbers": np.repeat(np.arange(30), 2 + np.arange(30) % 5),
    "two prompts": np.repeat(np.arange(2), 20),
}


@pytest.mark.parametrize("case", PROMPT_CASES)
@pytest.mark.parametrize("across", [0.1, 0.3])
def test_pairs_of_different_prompts_have_the_share_that_was_asked_for(case, across):
    prompts = PROMPT_CASES[case]
    t = CLUSTERS[prompts]
    bandwidth = dp.DistinctPrompts(across=across).prompt_bandwidth(t)
    # By the definition: squared kernel values of all pairs, split by whether the prompts are equal.
    squares = ((t[:, None] - t[None, :]) ** 2).sum(axis=2)
    values = np.exp(-squares / bandwidth**2)
    is_across = prompts[:, None] != prompts[None, :]
    assert values[is_across].sum() / values.sum() == pytest.approx(across, rel=1e-6)


@pytest.mark.parametrize("n", [30, 200])
def test_prompts_of_one_output_each_have_a_fifth_as_many_kinds(n):
    bandwidth = dp.DistinctPrompts().prompt_bandwidth(CLUSTERS[:n])
    kinds = dp.prompt_rke(CLUSTERS[:n], kernel=dp.Gaussian(bandwidth))
    assert float(kinds) == pytest.approx(n / 5, rel=1e-6)


@pytest.mark.parametrize("n", [2, 4, 10])
def test_few_prompts_of_one_output_take_a_fifth_of_all_others_as_companions(n):
    t = CLUSTERS[:n]
    bandwidth = dp.DistinctPrompts().prompt_bandwidth(t)
    squares = ((t[:, None] - t[None, :]) ** 2).sum(axis=2)
    values = np.exp(-squares / bandwidth**2)
    others = ~np.eye(n, dtype=bool)
    assert values[others].mean() == pytest.approx(0.2, rel=1e-6)


@pytest.mark.parametrize("noise", [1e-9, 1e-7, 1e-5, 1e-3])
def test_prompts_that_differ_by_rounding_count_as_the_same(noise):
    t = np.repeat(CLUSTERS[:10], 6, axis=0)
    near = t + noise * np.random.default_rng(2).standard_normal(t.shape)
    bandwidth = dp.DistinctPrompts().prompt_bandwidth(near)
    kinds = dp.prompt_rke(near, kernel=dp.Gaussian(bandwidth))
    # As ids they are ten; the narrowest bandwidth of the rule tells them apart completely.
    assert float(kinds) == pytest.approx(10, rel=0.02)


# Not the median, which counts distinct rows whatever their number of copies.
@pytest.mark.parametrize("rule", [dp.StableScore(), dp.DistinctPrompts()], ids=repr)
def test_one_more_row_changes_the_bandwidth_of_few_kinds_little(rule):
    kinds = np.random.default_rng(0).standard_normal((5, 5))
    four = np.repeat(kinds, [100, 100, 100, 100, 0], axis=0)
    five = np.repeat(kinds, [100, 100, 100, 100, 1], axis=0)
    assert rule.bandwidth(five) == pytest.approx(rule.bandwidth(four), rel=0.05)


def test_models_on_the_same_prompts_get_the_bandwidth_that_each_gets_alone():
    t = CLUSTERS[:60]
    rule = dp.DistinctPrompts()
    alone = rule.prompt_bandwidth(t)
    models = np.repeat(["a", "b", "c"], 60)
    pooled = rule.prompt_bandwidth(np.tile(t, (3, 1)), models=models)
    assert pooled == pytest.approx(alone, rel=1e-9)
    # Without models the three outputs of a prompt would be those of one model.
    assert rule.prompt_bandwidth(np.tile(t, (3, 1))) < 0.9 * alone


@pytest.mark.parametrize("outputs_of_each", [1, 4])
def test_models_without_a_common_prompt_get_a_bandwidth_between_their_own(outputs_of_each):
    t = np.repeat(CLUSTERS[:80], outputs_of_each, axis=0)
    half = len(t) // 2
    rule = dp.DistinctPrompts()
    each = [rule.prompt_bandwidth(t[:half]), rule.prompt_bandwidth(t[half:])]
    pooled = rule.prompt_bandwidth(t, models=np.repeat(["a", "b"], half))
    assert min(each) < pooled < max(each)


def test_a_model_with_one_output_per_prompt_keeps_its_companions_beside_others():
    t = CLUSTERS[:50]
    rule = dp.DistinctPrompts()
    alone = rule.prompt_bandwidth(t)
    both = np.concatenate([t, np.repeat(t, 6, axis=0)])
    models = np.repeat(["single", "several"], [50, 300])
    assert rule.prompt_bandwidth(both, models=models) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("num_alone", [1, 3, 6, 10])
def test_a_few_outputs_that_are_alone_do_not_decide_for_all_others(num_alone):
    t = np.repeat(CLUSTERS[:60], 5, axis=0)
    rule = dp.DistinctPrompts()
    models = np.repeat(["large", "tiny"], [300, num_alone])
    both = np.concatenate([t, CLUSTERS[:num_alone]])
    kinds = []
    for rows, names in ((t, None), (both, models)):
        bandwidth = rule.prompt_bandwidth(rows, models=names)
        kinds.append(float(dp.prompt_rke(t, kernel=dp.Gaussian(bandwidth))))
    assert kinds[1] > 0.75 * kinds[0]


def test_models_of_one_prompt_each_get_the_median_distance():
    t = CLUSTERS[:3]
    median = dp.MedianDistance().bandwidth(t)
    assert dp.DistinctPrompts().prompt_bandwidth(t, models=["a", "b", "c"]) == median


def test_the_score_of_prompts_alone_takes_the_bandwidth_of_prompts():
    t = np.repeat(CLUSTERS[:40], 3, axis=0)
    x = RNG.standard_normal((120, 4))
    alone = dp.prompt_vendi(t)
    assert alone == dp.evaluate(x, t).prompt_vendi
    assert alone.settings.bandwidth_rule == dp.DistinctPrompts()
    assert dp.prompt_vendi(t, settings=alone.settings) == alone


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


def test_a_truncation_that_levels_the_spectrum_gives_a_warning():
    """Five of hundreds of eigenvalues: what is cut off makes them equal, and conditional 1."""
    kernels = {"kernel_x": dp.Gaussian(0.7), "kernel_t": dp.Gaussian(0.5)}
    few = dp.conditional_vendi(CLUSTERS[:120], PROMPTS, truncation=5, **kernels)
    whole = dp.conditional_vendi(CLUSTERS[:120], PROMPTS, **kernels)
    assert float(few) < 1.01 and float(whole) > 1.5
    assert [notice.code for notice in few.warnings] == ["truncation-too-small"]
    assert "truncation of 5 cuts off" in few.warnings[0].text
    most = dp.conditional_vendi(CLUSTERS[:120], PROMPTS, truncation=115, **kernels)
    assert not most.warnings and not whole.warnings
