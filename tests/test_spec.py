"""The table of scores: every row is a function, agrees with evaluate, and keeps its limits."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import divprism as dp
from divprism.scores import functions
from divprism.scores.problem import pose
from divprism.scores.settings import Settings
from divprism.scores.spec import (
    LABELS,
    MEANS,
    OPERATORS,
    PROMPTS,
    QUALITY,
    REPEATED_PROMPTS,
    SCORES,
    available,
    curve_spec,
    is_score,
    score_spec,
    truncated_name,
)

KERNELS = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0)}
ORDERS = [0.5, 1.0, 2.0, 3.0, math.inf]


def by_name(spec):
    return spec.name


# A mean alone needs no function of its own.
FUNCTIONS = [spec for spec in SCORES if spec.operators]


def labels_of(count):
    return np.arange(count) // 20


def quality_of(count):
    return np.arange(count) % 4


def as_function(spec, x, t, labels, **options):
    """The score of a row of the table by its public function."""
    function = getattr(dp, spec.name)
    if LABELS in spec.needs:
        return function(x, labels, kernel=KERNELS["kernel_x"], **options)
    if QUALITY in spec.needs:
        if PROMPTS in spec.needs:
            return function(x, t, quality_of(60), **KERNELS, **options)
        return function(x, quality_of(60), kernel=KERNELS["kernel_x"], **options)
    if spec.family == "prompts":
        return function(t, kernel=KERNELS["kernel_t"], **options)
    if REPEATED_PROMPTS in spec.needs:
        return function(x, t, kernel=KERNELS["kernel_x"], **options)
    if PROMPTS in spec.needs:
        return function(x, t, **KERNELS, **options)
    return function(x, kernel=KERNELS["kernel_x"], **options)


@pytest.mark.parametrize("spec", FUNCTIONS, ids=by_name)
@pytest.mark.parametrize("order", ORDERS)
def test_every_row_has_a_function_that_agrees_with_evaluate(spec, order, pairs):
    x, t = pairs
    labels = labels_of(60)
    found = dp.evaluate(x, t, labels, quality=quality_of(60), order=order, **KERNELS)
    together = found.scores[spec.name]
    options = {}
    if spec.order is None:
        options["order"] = order
    alone = as_function(spec, x, t, labels, **options)
    assert alone == pytest.approx(together, rel=1e-12)
    assert alone.name == together.name == spec.name
    assert alone.order == together.order == spec.order_under(order)


def test_the_functions_and_the_table_hold_the_same_names():
    assert sorted(spec.name for spec in FUNCTIONS) == sorted(functions.__all__)
    assert {spec.name for spec in SCORES} - {spec.name for spec in FUNCTIONS} == set(MEANS)
    for spec in FUNCTIONS:
        assert inspect.getdoc(getattr(dp, spec.name))


def test_names_titles_and_meanings_are_unique_and_said():
    for field in ("name", "title", "heading", "meaning"):
        texts = [getattr(spec, field) for spec in SCORES]
        assert all(texts) and len(set(texts)) == len(texts)
    for spec in SCORES:
        assert set(spec.terms) <= {*OPERATORS, *MEANS}
        assert set(spec.terms.values()) <= {1, -1}
        assert set(spec.needs) <= {PROMPTS, REPEATED_PROMPTS, LABELS, QUALITY}


@pytest.mark.parametrize("truncation", [None, 1, 4])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_every_score_lies_within_its_limits(truncation, data):
    n = data.draw(st.integers(2, 12))
    seed = data.draw(st.integers(0, 2**32 - 1))
    order = data.draw(st.sampled_from(ORDERS))
    width = data.draw(st.sampled_from([0.05, 0.5, 2.0, 20.0]))
    rng = np.random.default_rng(seed)
    x, t = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    t[1] = t[0]  # a prompt that repeats
    kernels = {"kernel_x": dp.Gaussian(width), "kernel_t": dp.Gaussian(0.5)}
    found = dp.evaluate(
        x,
        t,
        rng.integers(0, 2, n),
        quality=rng.uniform(0, 3, n),
        order=order,
        truncation=truncation,
        num_permutations=0,
        **kernels,
    )
    for spec in SCORES:
        lowest, highest = spec.limits(n, spec.order_under(order), truncation)
        score = found.scores[spec.name]
        assert lowest * (1 - 1e-9) <= score <= highest * (1 + 1e-9), spec.name


def test_limits_are_reached():
    same, apart = np.ones((6, 2)), np.eye(6)
    ends = score_spec("vendi").limits(6, 1.0, None)
    assert dp.vendi(same, kernel=dp.Cosine()) == pytest.approx(ends[0])
    assert dp.vendi(apart, kernel=dp.Cosine()) == pytest.approx(ends[1])
    ids = np.arange(6)
    one, all_of_them = np.zeros(6, int), score_spec("information_vendi").limits(6, 1.0, None)[1]
    assert dp.conditional_vendi(apart, ids, kernel_x=dp.Cosine()) == pytest.approx(1)
    assert dp.conditional_vendi(apart, one, kernel_x=dp.Cosine()) == pytest.approx(6)
    assert dp.information_vendi(apart, ids, kernel_x=dp.Cosine()) == pytest.approx(all_of_them)


@pytest.mark.parametrize(
    ("with_prompts", "with_labels"), [(False, False), (True, False), (False, True), (True, True)]
)
@pytest.mark.parametrize("with_quality", [False, True])
def test_available_scores_are_those_whose_needs_the_data_meet(
    with_prompts, with_labels, with_quality, pairs
):
    x, t = pairs[0], None
    settings = Settings(kernel_x=dp.Gaussian(2.0))
    labels = quality = None
    if with_quality:
        quality = quality_of(60)
    if with_prompts:
        t = pairs[1]
    if with_labels:
        labels = labels_of(60)
    problem = pose(x, t, labels, settings=settings, quality=quality)
    computable = available(problem.terms)
    meets_needs = tuple(spec for spec in SCORES if spec.missing_need(problem.present) is None)
    assert computable == meets_needs
    found = dp.evaluate(x, t, labels, quality=quality)
    assert list(found.scores) == [spec.name for spec in computable]
    present = [need in problem.present for need in (PROMPTS, LABELS, QUALITY)]
    assert present == [with_prompts, with_labels, with_quality]


def test_repeated_prompts_are_present_only_where_prompts_repeat():
    settings = Settings(kernel_x=dp.Cosine())
    once = pose(np.eye(4), np.arange(4), settings=settings)
    twice = pose(np.eye(4), [0, 0, 1, 2], settings=settings)
    assert REPEATED_PROMPTS not in once.present and "within_prompts" not in once.operators
    assert REPEATED_PROMPTS in twice.present and "within_prompts" in twice.operators


def test_the_logarithm_of_a_score_is_the_signed_sum_of_its_entropies(pairs):
    scores = dp.evaluate(*pairs, **KERNELS).scores
    entropies = {
        "x": scores["vendi"].entropy,
        "t": dp.vendi(pairs[1], kernel=dp.Gaussian(1.0)).entropy,
    }
    entropies["joint"] = entropies["t"] + scores["conditional_vendi"].entropy
    for name in ("vendi", "conditional_vendi", "information_vendi"):
        assert score_spec(name).log_value(entropies) == pytest.approx(scores[name].entropy)


def test_unknown_scores_are_refused_with_the_names_there_are():
    assert is_score("vendi") and not is_score("size") and not is_score(None)
    with pytest.raises(dp.ArgumentError, match=r"`by` must be one of vendi, .*; got 'size'"):
        score_spec("size", "by")


@pytest.mark.parametrize("spec", SCORES, ids=by_name)
def test_curves_name_their_score_and_whether_it_is_truncated(spec):
    assert curve_spec(spec.name) == (spec, False)
    assert curve_spec(truncated_name(spec)) == (spec, True)


def test_prompts_as_ids_make_the_conditional_score_the_per_prompt_score(pairs):
    x, t = pairs
    ids = np.unique(t, axis=0, return_inverse=True)[1].reshape(-1)
    for order in ORDERS:
        by_ids = dp.conditional_vendi(x, ids, kernel_x=dp.Gaussian(2.0), order=order)
        exact = dp.per_prompt_vendi(x, t, kernel=dp.Gaussian(2.0), order=order)
        assert exact == pytest.approx(by_ids, rel=1e-12)


def test_the_per_prompt_score_is_the_geometric_mean_over_prompts():
    """At order 1 the entropies of the prompts add up by their shares (known on paper)."""
    x, t = np.eye(6)[[0, 1, 2, 3, 3, 3]], ["a", "a", "a", "b", "b", "b"]
    assert dp.per_prompt_vendi(x, t, kernel=dp.Cosine()) == pytest.approx(math.sqrt(3 * 1))
    result = dp.evaluate(x, t, kernel_x=dp.Cosine(), kernel_t=dp.Categorical())
    assert result.per_prompt_vendi == pytest.approx(math.sqrt(3))
    assert result.prompt_vendi == pytest.approx(2.0)


def test_the_per_prompt_score_is_at_most_the_number_of_outputs_of_a_prompt():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((40, 6)), np.repeat(rng.standard_normal((8, 3)), 5, axis=0)
    kernels = {"kernel_x": dp.Gaussian(0.05), "kernel_t": dp.Gaussian(2.0)}
    result = dp.evaluate(x, t, num_permutations=0, **kernels)
    assert result.per_prompt_vendi == pytest.approx(5.0, rel=1e-6)
    # Kinds of prompt are wider than prompts, so more outputs share one.
    assert result.conditional_vendi > 5.5


def test_one_output_per_prompt_leaves_the_per_prompt_score_undefined():
    x, t = np.eye(6), np.arange(6)
    result = dp.evaluate(x, t, kernel_x=dp.Cosine())
    assert result.per_prompt_vendi is None and result.per_prompt_rke is None
    with pytest.raises(dp.DataError, match="per_prompt_vendi needs prompts that repeat; each of"):
        dp.per_prompt_vendi(x, t, kernel=dp.Cosine())


def test_prompt_scores_take_the_kernel_of_the_prompts_from_settings(pairs):
    x, t = pairs
    result = dp.evaluate(x, t, **KERNELS)
    again = dp.prompt_vendi(t, settings=result.settings)
    assert again == result.prompt_vendi
    assert again.settings.kernel_t == KERNELS["kernel_t"] and again.settings.kernel_x is None


def test_intervals_of_prompt_scores_cover_their_value(pairs):
    x, t = pairs
    result = dp.evaluate(x, t, interval=0.95, **KERNELS)
    for name in ("prompt_vendi", "prompt_rke", "per_prompt_vendi", "per_prompt_rke"):
        interval = result.intervals[name]
        assert interval.low <= result.scores[name] <= interval.high
