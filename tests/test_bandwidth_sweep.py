"""The sweep: every point is the score at those bandwidths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import divprism as dp
from divprism.analysis.evaluation import SCHEMA

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 4))
T = np.repeat(RNG.standard_normal((15, 3)), 4, axis=0)
X[7] = X[4]  # one output twice, under the same prompt


@pytest.mark.parametrize(
    "chosen",
    [{}, {"order": 2}, {"order": 0.5}, {"order": float("inf")}, {"truncation": 5}],
    ids=str,
)
def test_every_point_is_the_score_at_those_bandwidths(chosen):
    sweep = dp.bandwidth_sweep(X, T, bandwidths_x=[0.3, 2.0], bandwidths_t=[0.2, 5.0], **chosen)
    for side, width in ((side, width) for side in "xt" for width in range(2)):
        part = getattr(sweep, side)
        widths = {"x": sweep.x.chosen, "t": sweep.t.chosen} | {side: part.bandwidths[width]}
        right = dp.evaluate(
            X, T, kernel_x=dp.Gaussian(widths["x"]), kernel_t=dp.Gaussian(widths["t"]), **chosen
        )
        for name in ("vendi", "conditional_vendi", "information_vendi"):
            assert part.scores[name][width] == pytest.approx(float(getattr(right, name)), rel=1e-9)
        prompts = dp.vendi(T, kernel=dp.Gaussian(widths["t"]), **chosen)
        assert part.scores["prompt_vendi"][width] == pytest.approx(float(prompts), rel=1e-9)


def test_vendi_falls_with_the_bandwidth_from_all_outputs_to_one():
    sweep = dp.bandwidth_sweep(X, bandwidths_x=np.geomspace(1e-3, 1e3, 13))
    assert sweep.t is None
    assert (np.diff(sweep.x.scores["vendi"]) <= 1e-9).all()
    distinct = np.exp(-(58 / 60 * np.log(1 / 60) + 2 / 60 * np.log(2 / 60)))
    assert sweep.x.scores["vendi"][[0, -1]] == pytest.approx([distinct, 1], rel=1e-3)


def test_the_default_range_is_around_the_median_and_the_rule_is_marked():
    sweep = dp.bandwidth_sweep(X, T, bandwidth_rule=dp.MedianDistance())
    assert sweep.x.chosen == sweep.x.median == dp.MedianDistance().bandwidth(X)
    assert sweep.x.bandwidths[[0, -1]] == pytest.approx([sweep.x.median / 8, 4 * sweep.x.median])
    assert sweep.t.bandwidths.size == 21


def test_of_many_pairs_a_subset_is_used():
    sweep = dp.bandwidth_sweep(X, T, max_rows=20, rng=5)
    again = dp.bandwidth_sweep(X, T, max_rows=20, rng=5)
    assert (sweep.n, sweep.drawn_from) == (20, 60)
    assert sweep.to_dict() == again.to_dict()
    assert sweep.to_dict()["schema"] == SCHEMA


def test_a_subset_of_pairs_keeps_the_bandwidth_of_all():
    """Bandwidths are those of `evaluate` on all pairs; only the curves are of a draw."""
    sweep = dp.bandwidth_sweep(X, T, max_rows=20, bandwidth_rule=dp.MedianDistance())
    assert sweep.x.chosen == dp.MedianDistance().bandwidth(
        X
    ) and sweep.t.chosen == dp.MedianDistance().bandwidth(T)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e200])
def test_units_of_measurement_do_not_matter(scale):
    right = dp.bandwidth_sweep(X, T, bandwidths_x=[0.5, 2.0], bandwidths_t=[1.0])
    found = dp.bandwidth_sweep(
        scale * X, T, bandwidths_x=[0.5 * scale, 2 * scale], bandwidths_t=[1.0]
    )
    np.testing.assert_allclose(
        found.x.scores["conditional_vendi"], right.x.scores["conditional_vendi"], rtol=1e-9
    )
    assert found.x.chosen == pytest.approx(scale * right.x.chosen)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_neither_the_order_of_pairs_nor_copies_of_all_matter(seed, copies):
    order = np.random.default_rng(seed).permutation(np.tile(np.arange(60), copies))
    grids = {"bandwidths_x": [0.3, 3.0], "bandwidths_t": [0.5]}
    right, found = (
        dp.bandwidth_sweep(X, T, **grids),
        dp.bandwidth_sweep(X[order], T[order], **grids, max_rows=180),
    )
    np.testing.assert_allclose(found.x.scores["vendi"], right.x.scores["vendi"], rtol=1e-9)
    np.testing.assert_allclose(
        found.t.scores["prompt_vendi"], right.t.scores["prompt_vendi"], rtol=1e-9
    )


@pytest.mark.parametrize("rows", [np.ones((1, 2)), np.ones((10, 2))])
def test_outputs_that_are_all_equal_score_one_at_every_bandwidth(rows):
    assert dp.bandwidth_sweep(rows, bandwidths_x=[1e-3, 1.0]).x.scores["vendi"].tolist() == [
        1.0,
        1.0,
    ]


def test_conditional_times_information_is_vendi_at_every_point():
    sweep = dp.bandwidth_sweep(X, T)
    for side in (sweep.x, sweep.t):
        product = side.scores["conditional_vendi"] * side.scores["information_vendi"]
        np.testing.assert_allclose(product, side.scores["vendi"], rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_rows": 1}, "`max_rows` must be a whole number of at least 2; got 1"),
        ({"max_rows": 2.5}, "`max_rows` must be a whole number of at least 2; got 2.5"),
        ({"bandwidths_x": ["wide"]}, r"`bandwidths_x` must be positive and finite; got \['wide'\]"),
        (
            {"bandwidth_rule": "median"},
            r"`bandwidth_rule` must be an object such as dp.StableScore\(\); got 'median'",
        ),
        ({"order": -1}, "`order` must be positive"),
    ],
)
def test_what_cannot_be_swept_is_refused(arguments, message):
    with pytest.raises(dp.ArgumentError, match=message):
        dp.bandwidth_sweep(X, **arguments)


@pytest.mark.parametrize("widths", [[], [0.0, 1.0], [float("nan")], [-1]])
def test_bandwidths_must_be_positive(widths):
    with pytest.raises(dp.ArgumentError, match="`bandwidths_x` must be positive and finite"):
        dp.bandwidth_sweep(X, bandwidths_x=widths)


def test_a_sample_keeps_whole_prompts():
    rng = np.random.default_rng(3)
    prompts = np.repeat(rng.normal(size=(300, 3)), 4, axis=0)
    outputs = rng.normal(size=(1200, 3))
    grids = {"bandwidths_x": [1.0], "bandwidths_t": [0.25, 0.5, 1.0]}
    sample = dp.bandwidth_sweep(outputs, prompts, max_rows=400, **grids)
    whole = dp.bandwidth_sweep(outputs, prompts, max_rows=1200, **grids)
    assert sample.n == 400
    # Four outputs of a prompt are kept together; one by one, three of four would be alone.
    chosen = np.argmin(np.abs(sample.t.bandwidths - sample.t.chosen))
    of_sample = sample.t.scores["conditional_vendi"][chosen]
    assert of_sample == pytest.approx(whole.t.scores["conditional_vendi"][chosen], rel=0.1)
    one = dp.bandwidth_sweep(outputs[:60], np.ones((60, 2)), max_rows=20)
    assert one.n == 20


def test_models_are_not_pooled_in_silence():
    samples = dp.Samples(X, T, models=("a", "b") * 30)
    grids = {"bandwidths_x": [1.0], "bandwidths_t": [1.0]}
    pooled = dp.bandwidth_sweep(samples, **grids)
    assert repr(pooled).startswith("60 pairs of 2 models together; order 1")
    assert pooled.data["model"] is None
    one = dp.bandwidth_sweep(samples, model="b", **grids)
    assert repr(one).startswith("30 pairs; order 1")
    assert one.data["model"] == "b"


def test_a_bandwidth_that_no_float_holds_is_refused():
    with pytest.raises(dp.ArgumentError, match="`bandwidths_x` must be positive and finite"):
        dp.bandwidth_sweep(X, T, bandwidths_x=[10**400])
