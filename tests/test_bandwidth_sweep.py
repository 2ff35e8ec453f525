"""The sweep: every point is the score at those bandwidths."""

import numpy as np
import pytest

import divprism as dp

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 4))
T = np.repeat(RNG.standard_normal((15, 3)), 4, axis=0)
X[7] = X[4]  # one output twice, under the same prompt


@pytest.mark.parametrize("settings", [{}, {"order": 2}, {"order": 0.5}, {"order": float("inf")}, {"truncation": 5}], ids=str)
def test_every_point_is_the_score_at_those_bandwidths(settings):
    sweep = dp.bandwidth_sweep(X, T, bandwidths_x=[0.3, 2.0], bandwidths_t=[0.2, 5.0], **settings)
    for side, width in ((side, width) for side in "xt" for width in range(2)):
        part = getattr(sweep, side)
        chosen = {"x": sweep.x.chosen, "t": sweep.t.chosen} | {side: part.bandwidths[width]}
        right = dp.evaluate(X, T, kernel_x=dp.Gaussian(chosen["x"]), kernel_t=dp.Gaussian(chosen["t"]), **settings)
        for name in ("vendi", "conditional_vendi", "information_vendi"):
            assert part.scores[name][width] == pytest.approx(float(getattr(right, name)), rel=1e-9)
        prompts = dp.vendi(T, kernel=dp.Gaussian(chosen["t"]), **settings)
        assert part.scores["prompts"][width] == pytest.approx(float(prompts), rel=1e-9)


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


def test_of_many_pairs_a_draw_is_used():
    sweep = dp.bandwidth_sweep(X, T, max_rows=20, rng=5)
    again = dp.bandwidth_sweep(X, T, max_rows=20, rng=5)
    assert (sweep.n, sweep.drawn_from) == (20, 60)
    assert sweep.to_dict() == again.to_dict()


@pytest.mark.parametrize("given", [[], [0.0, 1.0], [float("nan")], [-1]])
def test_bandwidths_must_be_positive(given):
    with pytest.raises(dp.ArgumentError, match="`bandwidths_x` must be positive and finite"):
        dp.bandwidth_sweep(X, bandwidths_x=given)
