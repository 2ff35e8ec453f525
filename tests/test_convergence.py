"""Scores against sample size: laws on paper, and verdicts where the truth is known."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import divprism as dp
from divprism.analysis.convergence import Convergence, converge
from divprism.analysis.subsets import ladder_of_sizes, nested_subsets, thinned_subsets
from divprism.analysis.verdicts import Criteria, _chance_in_words
from divprism.scores.spec import curve_spec

PLAIN = ["vendi", "rke", "truncated_vendi"]
AT_ORDER = ["vendi", "conditional_vendi", "information_vendi", "prompt_vendi"]
AT_ORDER_2 = ["rke", "conditional_rke", "information_rke", "prompt_rke"]
UNTRUNCATED = [*AT_ORDER, *AT_ORDER_2]
PAIRED = [*UNTRUNCATED, *(f"truncated_{name}" for name in AT_ORDER)]


def kinds(count, n, seed=0):
    """n outputs, each of one of `count` equally likely kinds that have nothing in common."""
    return np.eye(count)[np.random.default_rng(seed).integers(0, count, n)]


def mehler(bandwidth, d):
    """Vendi and RKE of infinitely many standard normal rows under a Gaussian kernel.

    Its eigenvalues are geometric.
    """
    b = 1 / (2 * bandwidth**2)
    ratio = b / (0.25 + b + math.sqrt(0.0625 + 0.5 * b))
    entropy = -math.log(1 - ratio) - ratio / (1 - ratio) * math.log(ratio)
    return math.exp(d * entropy), ((1 + ratio) / (1 - ratio)) ** d


# laws on paper


def test_the_mean_of_the_squares_is_a_line_in_one_over_the_size():
    """E sum p^2 of m of n outputs is U + (1 - U) / m.

    U is the share of equal pairs among all pairs of different outputs.
    """
    x = kinds(7, 200)
    found = converge(x, kernel_x=dp.Cosine(), num_repeats=60, sizes=[5, 12, 30, 80])
    counts = x.sum(axis=0)
    share = (counts * (counts - 1)).sum() / (200 * 199)
    inverse = 1 / found.curves["rke"]
    expected = share + (1 - share) / found.sizes
    errors = inverse.std(axis=0, ddof=1) / math.sqrt(60)
    assert (np.abs(inverse.mean(axis=0) - expected) <= 4 * errors + 1e-12).all()


@pytest.mark.parametrize("count", [3, 12])
def test_the_limit_of_rke_is_that_of_the_pairs_of_different_outputs(count):
    x = kinds(count, 300, seed=count)
    verdict = converge(x, kernel_x=dp.Cosine()).verdicts["rke"]
    unbiased = (1 - 1 / 300) / (1 / float(dp.rke(x, kernel=dp.Cosine())) - 1 / 300)
    assert abs(verdict.limit - unbiased) <= 4 * verdict.limit_error
    assert verdict.limit == pytest.approx(count, rel=4 * verdict.sampling_error)


def test_the_bias_of_the_entropy_is_that_of_miller_and_madow():
    """log K - E H is (K - 1) / (2 n) to first order: 2.4 % at n, twice that at n / 2."""
    verdict = converge(kinds(20, 400), kernel_x=dp.Cosine(), num_repeats=20).verdicts["vendi"]
    bias = 19 / 800
    # a fifth: second order, and that the categories of one sample are not equally frequent
    assert verdict.change == pytest.approx(bias, rel=0.2)
    assert (
        abs(math.log(verdict.limit / verdict.value) - bias)
        <= 0.2 * bias + 2 * verdict.limit_error / verdict.limit
    )
    assert verdict.limit == pytest.approx(20, rel=4 * verdict.sampling_error)


def test_constant_outputs_give_one_at_every_size_and_have_converged():
    found = converge(np.ones((64, 3)), np.arange(64) // 2, kernel_x=dp.Cosine())
    assert list(found.curves) == PAIRED
    of_outputs = [name for name in PAIRED if curve_spec(name)[0].family != "prompts"]
    for name in of_outputs:
        curve = found.curves[name]
        assert curve == pytest.approx(np.ones(curve.shape), abs=1e-12)
        assert found.verdicts[name].status == "converged"
        assert found.verdicts[name].needed == found.sizes[0]


def test_outputs_with_nothing_in_common_never_converge():
    found = converge(np.eye(100), kernel_x=dp.Cosine(), truncation=10)
    for name in ("vendi", "rke"):
        assert found.curves[name] == pytest.approx(np.tile(found.sizes, (5, 1)))
        assert found.verdicts[name].status == "no limit"
        assert found.verdicts[name].needed is found.verdicts[name].limit is None
        assert found.verdicts[name].change == pytest.approx(1.0)
    assert found.means["truncated_vendi"] == pytest.approx(np.minimum(found.sizes, 10))
    assert found.verdicts["truncated_vendi"].status == "converged"


@pytest.mark.parametrize("order", [0.5, 1, 2, 3])
def test_a_truncation_beyond_the_rank_changes_nothing(pairs, order):
    found = converge(*pairs, truncation=60, order=order, num_repeats=2)
    for name in ("vendi", "conditional_vendi", "information_vendi"):
        assert found.curves[f"truncated_{name}"] == pytest.approx(found.curves[name], rel=1e-9)


@pytest.mark.parametrize(("d", "bandwidth", "n"), [(2, 1.0, 300), (4, 1.5, 600), (16, 4.0, 600)])
def test_limits_are_the_known_ones_of_a_gaussian_world(d, bandwidth, n):
    x = np.random.default_rng(0).standard_normal((n, d))
    found = converge(x, kernel_x=dp.Gaussian(bandwidth))
    for name, truth in zip(("vendi", "rke"), mehler(bandwidth, d), strict=True):
        verdict = found.verdicts[name]
        assert verdict.status in ("converged", "approaching")
        # The limit has the error of the fit and a sampling error. A power law is only a model,
        # so three times the former is allowed.
        assert (
            abs(verdict.limit - truth)
            <= 3 * verdict.limit_error + 3 * truth * verdict.sampling_error
        )


def test_a_needed_number_is_one_that_does():
    few = converge(kinds(10, 200), kernel_x=dp.Cosine()).verdicts["rke"]
    assert few.status == "approaching"
    # of ten kinds rke is 10 / (1 + 9 / n) on average: within 1 % at n = 900
    assert few.needed == pytest.approx(900, rel=0.15)


def test_independent_outputs_have_no_information_in_the_limit():
    """At 150 pairs the raw score is far above one, all of it bias."""
    rng = np.random.default_rng(0)
    found = converge(
        *rng.standard_normal((2, 150, 6)), kernel_x=dp.Gaussian(2.0), kernel_t=dp.Gaussian(2.0)
    )
    verdict = found.verdicts["information_rke"]
    assert verdict.value > 1.2
    assert verdict.limit == pytest.approx(1, abs=3 * (verdict.limit_error + verdict.sampling_error))


def test_the_sampling_error_is_that_of_fresh_samples():
    draws = np.random.default_rng(1)
    kernel = dp.Gaussian(2.0)
    fresh = [
        math.log(float(dp.vendi(draws.standard_normal((200, 4)), kernel=kernel))) for _ in range(40)
    ]
    errors = [
        converge(draws.standard_normal((200, 4)), kernel_x=kernel, num_repeats=3)
        .verdicts["vendi"]
        .sampling_error
        for _ in range(5)
    ]
    # 40 samples tell a deviation to 11 %, a handful of stretches of one sample to about 20 %
    assert np.mean(errors) == pytest.approx(np.std(fresh, ddof=1), rel=0.4)


def test_more_echoes_of_the_same_prompts_add_nothing():
    """Twelve prompts, each echoed three times: twelve kinds, however often they are echoed."""
    t = np.repeat(np.arange(12), 3)
    found = converge(np.eye(12)[t], t, kernel_x=dp.Cosine())
    assert found.sizes.tolist() == [12, 24, 36]
    for name, verdict in found.verdicts.items():
        limit = 1 if "conditional" in name else float(found.verdicts[name].value)
        assert (verdict.status, verdict.limit) == ("converged", pytest.approx(limit)), name
    assert found.verdicts["rke"].limit == pytest.approx(12)


def test_limits_are_those_of_more_outputs_under_the_same_prompts():
    """Six prompts of growing share with 1 to 6 kinds of outputs, all different.

    The RKE of infinitely many outputs is known.
    """
    draws, t = np.random.default_rng(0), np.repeat(np.arange(6), 40)
    odds = [np.arange(1, count + 1) / sum(range(1, count + 1)) for count in range(1, 7)]
    truth = 36 / sum((share**2).sum() for share in odds)

    def drawn():
        return np.eye(36)[
            np.concatenate(
                [6 * place + draws.choice(place + 1, 40, p=odds[place]) for place in range(6)]
            )
        ]

    found = converge(drawn(), t, kernel_x=dp.Cosine(), order=2).verdicts
    fresh = [dp.evaluate(drawn(), t, kernel_x=dp.Cosine(), order=2) for _ in range(40)]
    for name, limit in (("rke", truth), ("conditional_rke", truth / 6), ("information_rke", 6)):
        assert found[name].limit == pytest.approx(limit, rel=4 * found[name].sampling_error + 1e-6)
        spread = np.std(np.log([float(one.scores[name]) for one in fresh]))
        assert (
            0.6 * spread - 1e-9 <= found[name].sampling_error <= 2 * spread + 1e-9
        )  # small parts of a prompt vary by more


def test_subsets_hold_a_like_share_of_every_prompt():
    prompts = np.repeat(np.arange(4), [2, 8, 12, 18])
    for repeat in thinned_subsets(prompts, np.array([5, 10, 20, 40]), 3, 0):
        first = [set(blocks[0].tolist()) for blocks in repeat]
        assert all(small < large for small, large in pairwise(first))
        for size, blocks in zip((5, 10, 20), repeat, strict=True):
            for rows in blocks:
                share = np.bincount(prompts, minlength=4) * size / 40
                assert (np.abs(np.bincount(prompts[rows], minlength=4) - share) < 1).all()
        assert {row for rows in repeat[1] for row in rows} == set(range(40))


def test_two_outputs_per_prompt_leave_the_verdict_open():
    t = np.repeat(np.arange(12), 2)
    found = converge(np.eye(12)[t], t, kernel_x=dp.Cosine(), num_repeats=2)
    assert {(verdict.status, verdict.limit) for verdict in found.verdicts.values()} == {
        ("unclear", None)
    }
    assert "rke is undetermined: prompts have too few outputs" in found.verdicts["rke"].sentence
    assert "with 2 of each here, both are undetermined" in found.question


@pytest.mark.parametrize("each", [2, 3, 5, 30])
def test_settings_of_outputs_under_the_same_prompts_give_the_result_again(each):
    t = np.repeat(np.arange(12), each)
    first = converge(kinds(3, 12 * each), t, kernel_x=dp.Cosine(), num_repeats=2)
    again = converge(
        kinds(3, 12 * each), t, sizes=first.sizes, num_repeats=2, settings=first.settings
    )
    assert (again.means["conditional_vendi"] == first.means["conditional_vendi"]).all()


# the curve


@pytest.mark.parametrize("order", [0.5, 1, 2, 3, math.inf])
@pytest.mark.parametrize("unit", ["pair", "prompt"])
def test_the_last_point_is_evaluate_on_all_data(pairs, order, unit):
    found = converge(*pairs, order=order, unit=unit, truncation=9, num_repeats=2)
    whole = dp.evaluate(*pairs, order=order).scores
    for name in UNTRUNCATED:
        score = whole[name]
        assert (found.curves[name][:, -1] == float(score)).all()
        assert found.means[name][-1] == found.verdicts[name].value == float(score)
    cut = dp.evaluate(*pairs, order=order, truncation=9)
    for name in AT_ORDER:
        assert found.verdicts[f"truncated_{name}"].value == pytest.approx(
            float(cut.scores[name]), rel=1e-12
        )


def test_other_points_are_evaluate_on_the_subset(pairs):
    x, t = pairs
    found = converge(x, t, num_repeats=2, rng=5)
    kernels = {"kernel_x": found.settings.kernel_x, "kernel_t": found.settings.kernel_t}
    prompts = np.unique(t, axis=0, return_inverse=True)[1].reshape(-1)
    subsets = thinned_subsets(prompts, found.sizes, 2, 5)

    def weights(rows):
        return (np.bincount(prompts) / np.bincount(prompts[rows]))[prompts[rows]] / 60

    for place in range(found.sizes.size - 1):
        rows = subsets[1][place][0]
        assert rows.size == found.pairs[1, place]
        right = dp.evaluate(x[rows], t[rows], weights=weights(rows), **kernels)
        for name in UNTRUNCATED:
            score = float(right.scores[name])
            assert found.curves[name][1, place] == pytest.approx(score, rel=1e-9)
        every = [
            dp.vendi(x[rows], kernel=kernels["kernel_x"], weights=weights(rows))
            for repeat in subsets
            for rows in repeat[place]
        ]
        assert found.means["vendi"][place] == pytest.approx(
            np.mean([float(score) for score in every]), rel=1e-9
        )


@pytest.mark.parametrize("units", [np.arange(100), np.arange(100) // 4])
def test_subsets_are_nested_and_stretches_part_the_data(units):
    total = int(units.max()) + 1
    ladder = np.array([total // 4, total // 2 - 1, total // 2, total - 3, total])
    for repeat in nested_subsets(units, ladder, 3, 0):
        first = [set(blocks[0].tolist()) for blocks in repeat]
        assert all(small < large for small, large in pairwise(first))
        for size, blocks in zip(ladder, repeat, strict=False):
            assert all(np.unique(units[rows]).size == size for rows in blocks)
            assert all(
                np.isin(units, units[rows]).sum() == rows.size for rows in blocks
            )  # all outputs of each prompt
        assert len(repeat[2]) == 2 + total % 2
        assert {row for rows in repeat[0] for row in rows} == set(range(100))


def test_prompts_keep_their_outputs_so_that_conditional_scores_mean_the_same():
    """Five outputs under each of forty prompts: five at every number of prompts."""
    x, t = np.tile(np.eye(5), (40, 1)), np.repeat(np.arange(40), 5)
    found = converge(x, t, kernel_x=dp.Cosine())
    assert found.settings.unit == "prompt"
    assert found.curves["conditional_vendi"] == pytest.approx(
        np.full(found.curves["vendi"].shape, 5.0)
    )
    assert (found.pairs == 5 * found.sizes).all()
    by_pair = converge(x, t, kernel_x=dp.Cosine(), unit="pair")
    assert by_pair.sizes.tolist() == [40, 80, 120, 160, 200]
    assert by_pair.means["conditional_vendi"] == pytest.approx(
        np.arange(1, 6)
    )  # none of them twice


def test_the_default_unit_is_the_prompt_where_there_are_many_that_repeat():
    x = kinds(4, 120)
    assert (
        converge(x, np.arange(120) // 6, kernel_x=dp.Cosine()).settings.unit == "prompt"
    )  # 20 prompts
    assert converge(x, np.arange(120) // 8, kernel_x=dp.Cosine()).settings.unit == "pair"  # 15
    assert (
        converge(x, np.arange(120), kernel_x=dp.Cosine()).settings.unit == "pair"
    )  # one output each
    assert converge(x, kernel_x=dp.Cosine()).settings.unit == "pair"
    for each in (6, 8):  # intervals decide alike
        found = (
            dp.evaluate(x, np.arange(120) // each, kernel_x=dp.Cosine(), interval=0.95)
            .intervals["vendi"]
            .unit
        )
        assert found == ("prompt" if each == 6 else "pair")


def test_same_seed_same_bits_and_settings_give_the_result_again(pairs):
    first = converge(*pairs, rng=3, num_repeats=3, order=0.7)
    again = converge(*pairs, rng=3, num_repeats=3, order=0.7)
    shape = {"sizes": first.sizes, "num_repeats": first.num_repeats, "settings": first.settings}
    fed_back = converge(*pairs, **shape)
    other = converge(*pairs, **shape, rng=4)
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    for name, curve in first.curves.items():
        assert (curve == fed_back.curves[name]).all()
        assert (curve[:, :-1] != other.curves[name][:, :-1]).any()
        assert (curve[:, -1] == other.curves[name][:, -1]).all()
    assert replace(first.settings, bandwidth_rule=None) == fed_back.settings


def test_the_order_of_the_rows_is_no_part_of_the_last_point(pairs):
    order = np.random.default_rng(0).permutation(60)
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0)}
    first, second = (
        converge(x, t, num_repeats=2, **kernels)
        for x, t in (pairs, (pairs[0][order], pairs[1][order]))
    )
    for name, curve in first.curves.items():
        assert curve[0, -1] == pytest.approx(second.curves[name][0, -1], rel=1e-12)


def test_one_bandwidth_serves_all_sizes(pairs):
    found = converge(*pairs, num_repeats=2)
    assert found.settings.kernel_x == dp.evaluate(*pairs).settings.kernel_x


def test_every_array_library_gives_the_same_curve(pairs, library):
    right = converge(*pairs, num_repeats=2, kernel_x=dp.Gaussian(2.0), kernel_t=dp.Gaussian(1.0))
    found = converge(
        *map(library, pairs), num_repeats=2, kernel_x=dp.Gaussian(2.0), kernel_t=dp.Gaussian(1.0)
    )
    for name, curve in right.curves.items():
        assert found.curves[name] == pytest.approx(curve, rel=1e-9)


def test_a_kernel_matrix_gives_the_same_curve(pairs):
    x = pairs[0]
    matrix = np.exp(-((x[:, None] - x[None]) ** 2).sum(axis=2) / 8)
    right, found = (
        converge(x, kernel_x=dp.Gaussian(2.0)),
        converge(matrix, kernel_x=dp.Precomputed()),
    )
    for name in PLAIN:
        assert found.curves[name] == pytest.approx(right.curves[name], rel=1e-7)


def test_a_random_estimator_is_asked_for_each_score(pairs):
    exact = converge(*pairs, num_repeats=2, truncation=5)
    drawn = converge(*pairs, num_repeats=2, truncation=5, estimator=dp.Lanczos(tolerance=1e-4))
    for name, curve in exact.curves.items():
        assert drawn.curves[name] == pytest.approx(
            curve, rel=5e-3
        )  # the tolerance, three entropies, five errors, and the cut


def test_texts_are_embedded_as_evaluate_embeds_them():
    x, t = kinds(3, 40), [f"prompt {index % 5}" for index in range(40)]
    found = converge(x, t, kernel_x=dp.Cosine(), num_repeats=2)
    right = dp.evaluate(x, t, kernel_x=dp.Cosine())
    assert found.settings.embedder_t == dp.WordLlama()
    assert [entry["side"] for entry in found.embedders] == ["t"]
    assert found.means["conditional_vendi"][-1] == right.conditional_vendi
    as_ids = converge(x, t, kernel_x=dp.Cosine(), kernel_t=dp.Categorical(), num_repeats=2)
    by_number = converge(x, np.arange(40) % 5, kernel_x=dp.Cosine(), num_repeats=2)
    assert as_ids.embedders == as_ids.warnings == ()
    np.testing.assert_allclose(as_ids.curves["vendi"], by_number.curves["vendi"], rtol=1e-12)


def test_at_order_two_nothing_is_truncated_unless_asked(pairs):
    found = converge(*pairs, order=2, num_repeats=2)
    assert list(found.curves) == UNTRUNCATED
    assert found.settings.truncation is None and "order 2\n" in str(found)
    for name in ("vendi", "conditional_vendi", "information_vendi"):
        assert (found.curves[name] == found.curves[name.replace("vendi", "rke")]).all()
    assert list(converge(*pairs, order=2, num_repeats=2, truncation=5).curves) == PAIRED


def test_converge_gives_the_warnings_of_evaluate():
    x = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.warns() as caught:
        right = dp.evaluate(x, kernel_x=dp.Gaussian(1e-3)).warnings
    assert caught and converge(x, kernel_x=dp.Gaussian(1e-3), num_repeats=2).warnings == right


def test_progress_is_reported_and_ends_with_one(pairs):
    reports = []
    converge(
        *pairs, num_repeats=2, progress=lambda text, fraction: reports.append((text, fraction))
    )
    assert reports[0][1] == 0 and reports[0][0].startswith("effect of the sample size: ")
    assert reports[-1][1] == 1
    assert [fraction for _, fraction in reports] == sorted(fraction for _, fraction in reports)


def test_the_default_ladder_halves_and_goes_on_by_the_root_of_two():
    assert ladder_of_sizes(None, 1000, "outputs").tolist() == [
        16,
        22,
        31,
        44,
        62,
        88,
        125,
        177,
        250,
        354,
        500,
        1000,
    ]
    assert ladder_of_sizes(None, 16, "outputs").tolist() == [4, 6, 8, 16]
    assert ladder_of_sizes(None, 12, "outputs").tolist() == [4, 6, 12]
    assert ladder_of_sizes([40, 10, 20, 10], 80, "outputs").tolist() == [10, 20, 40, 80]


def test_the_default_ladder_under_the_same_prompts_holds_whole_outputs_of_each():
    ladder = ladder_of_sizes(None, 120, "pairs", 6)
    assert ladder.tolist() == [6, 12, 24, 30, 42, 60, 120]
    assert ladder_of_sizes(None, 40, "pairs", 8).tolist() == [8, 16, 24, 32, 40]


def test_a_dozen_outputs_are_enough_to_speak_of():
    found = converge(np.ones((12, 2)), kernel_x=dp.Cosine())
    assert {verdict.status for verdict in found.verdicts.values()} == {"converged"}


# words


def test_the_text_has_a_table_and_a_sentence_for_each_score():
    found = converge(kinds(10, 200), kernel_x=dp.Cosine())
    lines = str(found).splitlines()
    assert lines[0].split() == ["outputs", "12", "25", "50", "100", "200"]
    assert [line.split()[0] for line in lines[1:4]] == PLAIN
    text = " ".join(str(found).split())  # notes are wrapped to the width of the terminal
    assert "5 random orders; subsets near 200 share most outputs, so their ± is too small." in text
    assert "order 1; truncated scores keep 25 eigenvalues outputs: cosine kernel" in text
    assert "Limits are those of more outputs." in text
    for verdict in found.verdicts.values():
        assert verdict.sentence in text
    rke = found.verdicts["rke"].sentence
    assert rke.startswith("rke has not converged: it grows by ")
    assert "below the limit of " in rke
    assert "outputs would bring it within 1 %." in rke
    assert "By chance it varies by" in rke


def test_an_error_of_rounding_is_no_error_of_a_limit():
    t = np.repeat(np.arange(6.0), 6)[:, None]
    x = np.random.default_rng(0).standard_normal((36, 3))
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(0.7)}
    found = converge(x, t, unit="pair", **kernels).verdicts["prompt_vendi"]
    assert "±" not in found.sentence
    assert "that its curve points to" in found.sentence


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (0.009, " By chance it varies by 0.9 % between samples of this size."),
        (0.01001, "by slightly more than 1 % between samples of this size; about "),
        (
            0.02,
            "by 2 % between samples of this size; about 400 pairs would bring that down to 1 %.",
        ),
    ],
)
def test_chance_is_compared_with_the_tolerance(error, expected):
    assert expected in _chance_in_words(error, Criteria("pairs", 0.01, 5), 100)


def test_a_number_beyond_reach_is_not_named():
    """A curve is extrapolated to a hundred times the sample at most."""
    found = converge(kinds(10, 200), kernel_x=dp.Cosine(), tolerance=1e-4).verdicts["rke"]
    assert (found.status, found.needed) == ("approaching", None)
    beyond = (
        "more than 20,000 outputs would be needed to come within 0.01 %, "
        "further than the curve can be extrapolated"
    )
    assert beyond in found.sentence


def test_sentences_name_what_cannot_be_named():
    found = converge(np.eye(100), kernel_x=dp.Cosine())
    assert found.verdicts["vendi"].sentence == (
        "vendi shows no sign of convergence: it grows by 100 % when the number of outputs doubles, "
        "too steadily to estimate a limit or a sufficient number of outputs. "
        "By chance it varies by less than 0.01 % between samples of this size."
    )
    text = " ".join(str(found).split())  # notes are wrapped at the width of the terminal
    assert "100 outputs suffice for truncated_vendi; they do not suffice for vendi, rke." in text
    same = converge(np.ones((64, 1)), kernel_x=dp.Cosine()).verdicts["vendi"].sentence
    assert same.startswith(
        "vendi has converged: 1 is at the limit of 1 that its curve points to; "
        "4 outputs would have been enough."
    )
    noise = converge(
        kinds(2, 16, seed=3), kernel_x=dp.Cosine(), num_repeats=2, tolerance=1e-6
    ).verdicts["vendi"]
    assert noise.status == "unclear" and "too noisy, too short or too bent" in noise.sentence


@pytest.mark.parametrize(
    ("t", "unit", "question"),
    [
        (np.arange(60), None, "more prompts, with one output each"),
        (
            np.arange(60) // 2,
            None,
            "more prompts with 2 outputs each, as here",
        ),
        (
            np.arange(60) // 2,
            "pair",
            "more outputs under the same 30 prompts, not of other prompts",
        ),
    ],
)
def test_the_question_names_what_grows(t, unit, question):
    assert (
        question
        in converge(kinds(3, 60), t, kernel_x=dp.Cosine(), unit=unit, num_repeats=2).question
    )


def test_the_document_is_plain_and_finite(pairs):
    found = converge(*pairs, num_repeats=2, order=math.inf)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["sizes"] == found.sizes.tolist() and document["n"] == 60
    assert list(document["verdicts"]) == list(document["curves"]) == PAIRED
    assert np.shape(document["curves"]["vendi"]) == (2, found.sizes.size)
    assert document["settings"]["order"] == "inf" and document["settings"]["unit"] == "pair"
    assert (
        document["settings"]["kernel_x"] == "gaussian" and document["settings"]["bandwidth_x"] > 0
    )


def test_deviations_are_those_of_the_curves(pairs):
    found = converge(*pairs, num_repeats=3)
    assert isinstance(found, Convergence)
    assert found.deviations["vendi"] == pytest.approx(found.curves["vendi"].std(axis=0, ddof=1))
    assert found.deviations["vendi"][-1] == 0


# refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unit": "word"}, "`unit` must be pair or prompt; got 'word'"),
        ({"unit": "prompt"}, "`unit` is prompt, but there are no prompts"),
        ({"num_repeats": 1}, "`num_repeats` must be a whole number of at least 2; got 1"),
        ({"tolerance": 0}, "`tolerance` must be positive"),
        ({"truncation": 0}, "`truncation` must be a whole number of at least 1"),
        ({"sizes": [10, 20, 61]}, "`sizes` go up to 61, but there are 60 outputs"),
        (
            {"sizes": [10, 20]},
            "`sizes` must name at least 3 sizes below all 60 outputs, the smallest at most 15",
        ),
        ({"sizes": [20, 30, 40]}, "the smallest at most 15; got"),
        ({"sizes": [10, 2.5]}, "`sizes` must be a whole number of at least 2; got 2.5"),
        ({"order": -1}, "`order` must be positive"),
    ],
)
def test_refused_settings(settings, message):
    with pytest.raises(dp.ArgumentError) as refused:
        converge(kinds(3, 60), kernel_x=dp.Cosine(), **settings)
    assert message in str(refused.value)


def test_too_few_units_are_refused():
    with pytest.raises(dp.DataError, match="a curve needs at least 12 outputs; there are 11"):
        converge(np.eye(11), kernel_x=dp.Cosine())
    with pytest.raises(
        dp.ArgumentError, match="`sizes` must leave at least one output of each of 5 prompts"
    ):
        converge(np.eye(60), np.arange(60) % 5, kernel_x=dp.Cosine(), sizes=[4, 10, 20])
    with pytest.raises(dp.DataError, match=r"there are 5\. Resample pairs \(`unit=pair`\)"):
        converge(np.eye(60), np.arange(60) % 5, kernel_x=dp.Cosine(), unit="prompt")
