"""Intervals that cover, p-values that are uniform, and what both are made of."""

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import divprism as dp
from divprism.analysis import jackknife as _jackknife
from divprism.analysis.content_order import ContentOrder
from divprism.analysis.intervals import sampling_error
from divprism.analysis.pairings import Pairings, pairing_moments
from divprism.core.norms import squared_norms
from divprism.engines import Resources
from divprism.scores.problem import pose
from divprism.scores.settings import Settings
from divprism.scores.spec import SCORES

pytestmark = pytest.mark.usefixtures("one_thread")
WIDE, NARROW = dp.Gaussian(0.8), dp.Gaussian(0.6)
PAIRED = Settings(kernel_x=NARROW, kernel_t=WIDE)
FAMILIES = ("vendi", "conditional", "information")
SCORES_OF_PAIRS = [spec.name for spec in SCORES if spec.family in FAMILIES]
DRAWS = 200


def independent(generator, n=100):
    """Outputs that follow their prompts with an error, a prompt each."""
    t = generator.standard_normal((n, 2))
    return t + 0.7 * generator.standard_normal((n, 2)), t


def repeated(generator, prompts=40, each=4):
    """Several outputs of each prompt: prompts are what is drawn."""
    t = np.repeat(generator.standard_normal((prompts, 2)), each, axis=0)
    return t + 0.7 * generator.standard_normal(t.shape), t


def fixed(generator, prompts=8, each=15):
    """Few given prompts whose outputs spread more and more: only the outputs are random."""
    t = np.repeat(1.5 * np.random.default_rng(99).standard_normal((prompts, 2)), each, axis=0)
    return t + np.repeat(np.linspace(0.1, 2, prompts), each)[:, None] * generator.standard_normal(
        t.shape
    ), t


# An interval takes sixty spectra, so samples are as small as their law allows: the number of data
# sets, and not their size, decides how precisely a coverage is known.
SIXTY_PAIRS = partial(independent, n=60)
SEVERAL_OUTPUTS = partial(repeated, prompts=24, each=3)
GIVEN_PROMPTS = partial(fixed, prompts=6, each=10)
LAWS = {
    "independent pairs": (SIXTY_PAIRS, {}),
    "30 pairs": (partial(independent, n=30), {}),
    "outputs of given prompts": (GIVEN_PROMPTS, {}),
    "several outputs of a prompt": (SEVERAL_OUTPUTS, {}),
    "truncated": (SIXTY_PAIRS, {"truncation": 15}),
    "order 3": (partial(independent, n=80), {"order": 3.0}),
}


SCORES_OF_PROMPTS = ("per_prompt_vendi", "per_prompt_rke", "prompt_vendi", "prompt_rke")
# Scores of exact prompts and of the prompts themselves, which need several outputs of a prompt.
ALSO_OF_PROMPTS = {
    "several outputs of a prompt": SCORES_OF_PROMPTS,
    # Given prompts are the same in every sample, so their own scores have no error.
    "outputs of given prompts": SCORES_OF_PROMPTS[:2],
}


@pytest.mark.parametrize("law", LAWS)
def test_intervals_cover_the_expectation(law):
    """90 to 98 of 100 intervals of 95 % cover the mean over the data sets of the same law.

    The mean of 200 has an error of a fourteenth of the spread, which takes 0.1 % off the coverage.
    """
    draw, settings = LAWS[law]
    of_prompts = ALSO_OF_PROMPTS.get(law, ())
    names = (*SCORES_OF_PAIRS, *of_prompts)
    # no shuffled baseline: it would take most of the time
    kernels = {"kernel_x": NARROW, "kernel_t": WIDE, "num_permutations": 0}
    evaluations = [
        dp.evaluate(*draw(np.random.default_rng(seed)), **kernels, **settings, interval=0.95)
        for seed in range(DRAWS)
    ]
    values = {name: [float(found.scores[name]) for found in evaluations] for name in names}
    truth = {name: np.mean(values[name]) for name in names}
    held = dict.fromkeys(names, 0)
    errors = dict.fromkeys(names, 0.0)
    for found in evaluations:
        for name in names:
            interval = found.intervals[name]
            if name in SCORES_OF_PAIRS:
                assert interval.low < float(found.scores[name]) < interval.high
            held[name] += interval.low <= truth[name] <= interval.high
            errors[name] += interval.standard_error / DRAWS
    # 200 data sets know a share of 0.98 to 0.01.
    assert all(0.90 * DRAWS <= count <= 0.99 * DRAWS for count in held.values()), held
    assert all(held[name] <= 0.98 * DRAWS for name in of_prompts), held
    for name in names:
        assert errors[name] == pytest.approx(
            np.std(values[name]), rel=0.25
        )  # a spread from 200 draws is known to 5 %, and n is small


def test_what_grows_with_the_sample_is_no_error():
    """30 pairs make twenty groups of one or two pairs; leaving out two lowers every score more."""
    interval = dp.evaluate(np.eye(30), kernel_x=dp.Cosine(), interval=0.95).intervals["vendi"]
    assert 29.8 < interval.low <= 30 == pytest.approx(interval.high)
    inside = dp.evaluate(
        np.eye(30), None, np.zeros(30, int), kernel_x=dp.Cosine(), interval=0.95
    ).intervals["cluster_vendi"]
    assert (inside.low, inside.high) == pytest.approx((interval.low, interval.high))


def test_what_differs_between_given_prompts_is_no_error():
    """Four prompts with one to four equally frequent kinds of outputs: leaving out any is alike."""
    kinds = np.concatenate([np.arange(12) % (1 + prompt) + 10 * prompt for prompt in range(4)])
    found = dp.evaluate(
        np.eye(40)[kinds], np.repeat(np.arange(4), 12), kernel_x=dp.Cosine(), interval=0.95
    ).intervals
    # Groups differ in which prompts they take outputs of, by 1 % at order 1.
    assert found["conditional_vendi"].standard_error < 0.02
    assert found["conditional_rke"].standard_error < 1e-9


def test_prompts_of_random_frequency_count_as_sampled():
    """Equal numbers of outputs are those of a design; slightly unequal ones could be random."""
    x = np.random.default_rng(0).standard_normal((80, 2)) * np.repeat([0.1, 3.0], 40)[:, None]
    errors = []
    for t in (np.repeat([0, 1], 40), np.repeat([0, 1], [36, 44])):
        found = dp.evaluate(x, t, kernel_x=NARROW, order=2, interval=0.95).intervals["vendi"]
        assert (found.unit, found.num_units) == ("pair", 80)
        errors.append(found.standard_error)
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize(("each", "population"), [(2, None), (3, (10, 10)), (30, (10, 10))])
def test_more_echoes_of_the_same_prompts_add_nothing(each, population):
    t = np.repeat(np.arange(10), each)
    found = dp.evaluate(np.eye(10)[t], t, kernel_x=dp.Cosine(), interval=0.95).intervals["rke"]
    assert found.population == (population and pytest.approx(population))
    assert (found.low, found.high) == pytest.approx((10, 10))


def test_intervals_of_order_2_cover_the_population_of_given_prompts():
    """Two prompts with normal outputs of spread 1 and 2: E k^2 is known for pairs of prompts."""

    def alike(first, second):
        return (1 + 2 * (first**2 + second**2) / NARROW.bandwidth**2) ** (-2 / 2)

    truth = 4 / (alike(1, 1) + 2 * alike(1, 2) + alike(2, 2))
    held = 0
    for seed in range(DRAWS):
        x = (
            np.random.default_rng(seed).standard_normal((40, 2))
            * np.repeat([1.0, 2.0], 20)[:, None]
        )
        low, high = (
            dp.evaluate(
                x,
                np.repeat([0, 1], 20),
                kernel_x=NARROW,
                interval=0.95,
                num_permutations=0,
                order=2,
            )
            .intervals["rke"]
            .population
        )
        held += low <= truth <= high
    assert 0.90 * DRAWS <= held <= 0.98 * DRAWS


def test_ends_stay_within_what_a_score_can_be():
    x, t = independent(np.random.default_rng(0), 12)
    found = dp.evaluate(x, t, kernel_x=NARROW, kernel_t=dp.Gaussian(0.2), interval=0.99).intervals
    assert found["conditional_vendi"].low == found["conditional_rke"].low == 1
    assert all(interval.high <= 12 for interval in found.values())
    cut = dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, truncation=4, interval=0.999).intervals
    assert cut["vendi"].high == 4


@pytest.mark.parametrize("unit", ["prompt", "pair"])
def test_errors_of_prompts_with_many_outputs_come_from_a_subset(unit, monkeypatch):
    """No matrix beyond 500 pairs; 20 prompts at least, of which each keeps some."""
    sizes = []
    true = _jackknife.matrix_entropy
    monkeypatch.setattr(
        _jackknife,
        "matrix_entropy",
        lambda *args: sizes.append(np.count_nonzero(args[1])) or true(*args),
    )
    x, t = repeated(np.random.default_rng(0), prompts=22, each=60)
    x = np.concatenate([x, x[:1]])  # a prompt with one more
    found = dp.evaluate(
        x, np.concatenate([t, t[:1]]), kernel_x=NARROW, kernel_t=WIDE, interval=0.95, unit=unit
    ).intervals
    assert max(sizes) <= 500 and found["vendi"].unit == unit
    assert 0.005 < found["vendi"].standard_error / found["vendi"].high < 0.2


def test_numbers_of_numpy_are_numbers():
    x, t = independent(np.random.default_rng(0), 30)
    kernels = {"kernel_x": NARROW, "kernel_t": WIDE}
    found = dp.evaluate(x, t, **kernels, interval=np.float32(0.9), num_permutations=np.int64(3))
    assert (
        found.intervals["vendi"].level == pytest.approx(0.9)
        and found.baseline.num_permutations == 3
    )
    assert '"num_permutations": 3' in found.to_json()
    assert dp.StableScore(max_rows=np.int64(20)) == dp.StableScore(max_rows=20)
    assert dp.MedianDistance(max_rows=np.int64(20)) == dp.MedianDistance(max_rows=20)


def clustered(generator, n=120):
    """Three random kinds of pairs; the outputs of commoner kinds spread more."""
    labels = generator.choice(3, n, p=[0.2, 0.3, 0.5])
    return (0.4 + 0.3 * labels)[:, None] * generator.standard_normal((n, 2)), None, labels


def clustered_prompts(generator):
    """Prompts with three outputs each, clustered by where they lie."""
    x, t = repeated(generator, prompts=30, each=3)
    return x, t, 2 * (t[:, 0] > 0) + (t[:, 1] > 0.5)


@pytest.mark.parametrize(("draw", "unit"), [(clustered, "pair"), (clustered_prompts, "prompt")])
def test_intervals_of_cluster_scores_cover_the_expectation(draw, unit):
    """200 data sets of a known law, as above. With small clusters the jackknife is conservative."""
    names = ("cluster_vendi", "cluster_rke")
    drawn = [draw(np.random.default_rng(seed)) for seed in range(DRAWS)]
    scores = {
        "cluster_vendi": [dp.cluster_vendi(x, labels, kernel=NARROW) for x, _, labels in drawn],
        "cluster_rke": [dp.cluster_rke(x, labels, kernel=NARROW) for x, _, labels in drawn],
    }
    held, errors = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    for index, (x, t, labels) in enumerate(drawn):
        settings = PAIRED
        if t is None:
            settings = replace(PAIRED, kernel_t=None)
        problem = pose(x, t, labels, settings=settings)
        error = sampling_error(problem)
        assert error.unit == unit
        for name in names:
            score = scores[name][index]
            interval = error.interval(score, 0.95)
            held[name] += interval.low <= np.mean(scores[name]) <= interval.high
            errors[name] += interval.standard_error / DRAWS
    assert all(0.90 * DRAWS <= count <= 0.98 * DRAWS for count in held.values()), held
    for name in names:
        assert (
            0.9 * np.std(scores[name]) < errors[name] < 1.2 * np.std(scores[name])
        )  # a spread from 200 is known to 5 %


def test_one_cluster_leaves_the_plain_error():
    x, t = independent(np.random.default_rng(0))
    found = dp.evaluate(
        x, t, np.zeros(100, int), kernel_x=NARROW, kernel_t=WIDE, interval=0.95
    ).intervals
    assert found["cluster_vendi"].low == pytest.approx(found["vendi"].low)
    assert found["cluster_vendi"].high == pytest.approx(found["vendi"].high)


def test_names_and_order_of_clusters_do_not_change_their_error():
    x, _, labels = clustered(np.random.default_rng(0))
    first, second = (
        dp.evaluate(x, None, names[labels], kernel_x=NARROW, interval=0.95).intervals[
            "cluster_vendi"
        ]
        for names in (np.array(["a", "b", "c"]), np.array(["z", "a", "m"]))
    )
    assert first.low == pytest.approx(second.low) and first.high == pytest.approx(second.high)


def test_clusters_of_one_output_each_have_no_error():
    found = dp.evaluate(np.eye(30), None, np.arange(30), kernel_x=dp.Cosine(), interval=0.95)
    interval = found.intervals["cluster_vendi"]
    assert (interval.low, interval.high, interval.standard_error) == (1.0, 1.0, 0.0)


def test_a_subset_represents_a_large_cluster(monkeypatch):
    """A cluster of about 340 pairs and a small one: errors match the spread over data sets."""
    monkeypatch.setattr(_jackknife, "_MAX_PAIRS", 200)  # as 500 for 850 pairs, which take longer

    def draw(seed):
        generator = np.random.default_rng(seed)
        labels = (generator.random(360) < 0.05).astype(int)
        return generator.standard_normal((360, 2)) * (0.5 + labels)[:, None], labels

    scores = [float(dp.cluster_vendi(*draw(1000 + seed), kernel=NARROW)) for seed in range(40)]
    errors = []
    for seed in range(5):
        x, labels = draw(seed)
        errors.append(
            dp.evaluate(x, None, labels, kernel_x=NARROW, interval=0.95)
            .intervals["cluster_vendi"]
            .standard_error
        )
    assert np.mean(errors) == pytest.approx(
        np.std(scores), rel=0.35
    )  # a spread from 40 draws is known to 11 %


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_intervals_do_not_depend_on_units_of_measurement(order):
    x, t = repeated(np.random.default_rng(0), prompts=25)
    labels = t[:, 0] > 0
    arguments = {"kernel_t": WIDE, "order": order, "interval": 0.95, "quality": x[:, 0] ** 2}
    first = dp.evaluate(x, t, labels.astype(int), kernel_x=NARROW, **arguments).intervals
    second = dp.evaluate(
        100 * x, t, labels.astype(int), kernel_x=dp.Gaussian(100 * NARROW.bandwidth), **arguments
    ).intervals
    assert set(first) == {spec.name for spec in SCORES}
    for name, one in first.items():
        assert (one.low, one.high) == pytest.approx((second[name].low, second[name].high))


@given(st.integers(0, 2**32 - 1))
@hypothesis_settings(max_examples=20, deadline=None)
def test_the_order_of_pairs_does_not_matter_where_errors_are_closed(seed):
    x, t = repeated(np.random.default_rng(0), prompts=25, each=2)
    order = np.random.default_rng(seed).permutation(50)
    for unit in ("pair", "prompt"):
        arguments = {
            "kernel_x": NARROW,
            "kernel_t": WIDE,
            "order": 2,
            "interval": 0.95,
            "unit": unit,
        }
        first, second = (
            dp.evaluate(*data, **arguments).intervals for data in ((x, t), (x[order], t[order]))
        )
        for name, one in first.items():
            assert (one.low, one.high) == pytest.approx((second[name].low, second[name].high))


def test_a_wider_level_holds_the_narrower():
    x, t = independent(np.random.default_rng(0), 60)
    levels = (0.5, 0.9, 0.99)
    found = [
        dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, interval=level).intervals
        for level in levels
    ]
    for name in SCORES_OF_PAIRS:
        lows, highs = ([getattr(one[name], end) for one in found] for end in ("low", "high"))
        assert lows == sorted(lows, reverse=True) and highs == sorted(highs)
        assert len({one[name].standard_error for one in found}) == 1


def test_pairs_of_no_weight_are_not_there():
    x, t = independent(np.random.default_rng(0), 60)
    weights = np.r_[np.full(40, 1 / 40), np.zeros(20)]
    arguments = {"kernel_x": NARROW, "kernel_t": WIDE, "interval": 0.95}
    first, second = (
        dp.evaluate(x, t, weights=weights, **arguments),
        dp.evaluate(x[:40], t[:40], **arguments),
    )
    assert first.intervals == second.intervals
    assert first.baseline == second.baseline is not None


def test_where_no_two_pairs_are_alike_the_population_is_out_of_sight():
    """The U-statistic is zero there: a score without limit, and no interval for it."""
    interval = dp.evaluate(np.eye(30), kernel_x=dp.Cosine(), interval=0.95).intervals["rke"]
    assert interval.population is None and (interval.low, interval.high) == pytest.approx((30, 30))


def test_intervals_of_order_2_cover_the_population():
    """X normal in d dimensions: E k^2 = (1 + 4 / bandwidth^2)^(-d/2), so the limit is known."""
    truth = (1 + 4 / NARROW.bandwidth**2) ** (2 / 2)
    held = {"population": 0, "plain": 0}
    for seed in range(DRAWS):
        x = np.random.default_rng(seed).standard_normal((60, 2))
        interval = dp.evaluate(x, kernel_x=NARROW, interval=0.95, order=2).intervals["rke"]
        low, high = interval.population
        held["population"] += low <= truth <= high
        held["plain"] += interval.low <= truth <= interval.high
    assert 0.90 * DRAWS <= held["population"] <= 0.98 * DRAWS
    assert (
        held["plain"] < 0.8 * DRAWS
    )  # the bias of the plain score is what the U-statistic takes out


def test_intervals_cover_entropies_known_on_paper():
    """A table of prompts and outputs: Conditional is exp H(X | T), Information exp I(X; T)."""
    table = np.array([[0.3, 0.1, 0.1], [0.05, 0.05, 0.4]])
    prompts, outputs = table.sum(axis=1), table.sum(axis=0)
    joint = -(table * np.log(table)).sum()
    truth = {
        "vendi": math.exp(-(outputs * np.log(outputs)).sum()),
        "conditional_vendi": math.exp(joint + (prompts * np.log(prompts)).sum()),
        "conditional_rke": (prompts @ prompts) / (table**2).sum(),
    }
    held = dict.fromkeys(truth, 0)
    for seed in range(DRAWS):
        cells = np.random.default_rng(seed).choice(6, 400, p=table.ravel())
        found = dp.evaluate(np.eye(3)[cells % 3], cells // 3, kernel_x=dp.Cosine(), interval=0.95)
        for name, value in truth.items():
            held[name] += found.intervals[name].low <= value <= found.intervals[name].high
    assert all(0.90 * DRAWS <= count <= 0.98 * DRAWS for count in held.values()), held


def test_a_subset_represents_many_pairs(monkeypatch):
    """More pairs than a limit are represented by a subset: errors match the spread over data sets.

    The limit is 500; 200 of 360 pairs are the same share as 500 of 900, and take a tenth of it.
    """
    monkeypatch.setattr(_jackknife, "_MAX_PAIRS", 200)
    scores = [
        float(
            dp.conditional_vendi(
                *independent(np.random.default_rng(s), 360), kernel_x=NARROW, kernel_t=WIDE
            )
        )
        for s in range(40)
    ]
    errors = []
    for seed in range(5):
        found = dp.evaluate(
            *independent(np.random.default_rng(seed), 360),
            kernel_x=NARROW,
            kernel_t=WIDE,
            interval=0.95,
            num_permutations=0,
        )
        errors.append(found.intervals["conditional_vendi"].standard_error)
        assert found.intervals["conditional_vendi"].num_units == 360
    assert np.mean(errors) == pytest.approx(
        np.std(scores), rel=0.35
    )  # a spread from 40 draws is known to 11 %


def test_the_closed_form_of_order_2_is_the_jackknife():
    """Leaving out one sample after another gives the same error, up to terms of 1 / n."""
    x, t = independent(np.random.default_rng(0), 80)
    error = sampling_error(pose(x, t, settings=PAIRED))
    left = [
        dp.conditional_rke(
            np.delete(x, i, 0), np.delete(t, i, 0), kernel_x=NARROW, kernel_t=WIDE
        ).entropy
        for i in range(80)
    ]
    jackknife = math.sqrt(79 / 80 * ((left - np.mean(left)) ** 2).sum())
    assert np.linalg.norm(error.deviations["conditional_rke"]) == pytest.approx(jackknife, rel=0.05)


@pytest.mark.parametrize("kernel_t", [dp.Categorical(), WIDE])
def test_the_closed_form_of_order_2_leaves_out_prompts(kernel_t):
    """Leaving out one prompt after another gives the same error, up to terms of 1 / prompts."""
    x, t = repeated(np.random.default_rng(0), prompts=40)
    ids = np.unique(t, axis=0, return_inverse=True)[1].ravel()
    if isinstance(kernel_t, dp.Categorical):
        t = ids
    settings = dp.Settings(kernel_x=NARROW, kernel_t=kernel_t, order=2.0, num_permutations=0)
    error = sampling_error(pose(x, t, settings=settings), "prompt")
    left = [
        dp.evaluate(x[ids != prompt], t[ids != prompt], settings=settings).scores
        for prompt in range(40)
    ]
    for name in ("rke", "conditional_rke", "per_prompt_rke"):
        logs = np.array([scores[name].entropy for scores in left])
        jackknife = math.sqrt(39 / 40 * ((logs - logs.mean()) ** 2).sum())
        assert np.linalg.norm(error.deviations[name]) == pytest.approx(jackknife, rel=0.06)


def test_prompts_of_different_kinds_have_the_error_of_a_mean():
    """The sum over pairs is then a mean over prompts, whose error is known on paper."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 9, 30)  # of equal outputs; the ninth and the others all differ
    outputs = np.arange(30 * 10).reshape(30, 10)
    for prompt, count in enumerate(counts):
        outputs[prompt, :count] = outputs[prompt, 0]
    x = np.eye(300)[outputs.ravel()]
    t = np.repeat(np.arange(30), 10)
    quality = np.repeat(rng.uniform(0.5, 1, 30), 10)
    found = dp.evaluate(x, t, quality=quality, kernel_x=dp.Cosine(), order=2, interval=0.95)
    inside = (counts**2 + 10 - counts) / 100  # sum of squared shares of a prompt
    q = quality[::10]
    expected = {
        "conditional_vendi": -inside / inside.mean(),
        "quality_conditional_vendi": q / q.mean() - inside / inside.mean(),
    }
    for name, parts in expected.items():
        error = np.std(parts, ddof=1) / math.sqrt(30)
        relative = found.intervals[name].standard_error / found.scores[name]
        assert relative == pytest.approx(error)


def _weighted(generator, n):
    weights = generator.lognormal(size=n)
    return weights / weights.sum()


@pytest.mark.parametrize("kernel", [dp.Cosine(), NARROW])
def test_a_pair_with_itself_counts_once_where_weights_differ(kernel):
    """Leaving out one pair after another gives the same error, up to terms of 1 / pairs."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(150, 3))
    if isinstance(kernel, dp.Cosine):
        x = np.eye(150)  # the score is then 1 over the sum of squared weights
    weights = _weighted(generator, 150)
    settings = dp.Settings(kernel_x=kernel, order=2.0)
    error = sampling_error(pose(x, settings=settings, weights=weights), "pair")
    logs = np.zeros(150)
    for pair in range(150):
        kept = np.where(np.arange(150) == pair, 0.0, weights)
        problem = pose(x, settings=settings, weights=kept / kept.sum())
        logs[pair] = -math.log(squared_norms([problem.x])[0])
    jackknife = math.sqrt(149 / 150 * ((logs - logs.mean()) ** 2).sum())
    assert np.linalg.norm(error.deviations["rke"]) == pytest.approx(jackknife, rel=0.06)


def test_outputs_of_given_prompts_may_differ_in_weight():
    """A prompt keeps its weight when one of its outputs is left out; all outputs of one are."""
    generator = np.random.default_rng(0)
    prompts = np.repeat(np.arange(4), 10)
    weights = _weighted(generator, 40)
    # Outputs differ between prompts and not inside of them: so do scores, whatever is left out.
    x = np.eye(4)[prompts]
    quality = np.arange(1.0, 5.0)[prompts]
    settings = dp.Settings(kernel_x=dp.Cosine(), order=2.0)
    problem = pose(x, prompts, settings=settings, weights=weights, quality=quality)
    error = sampling_error(problem, "pair")
    for name in ("rke", "prompt_rke", "quality"):
        assert np.linalg.norm(error.deviations[name]) == pytest.approx(0, abs=1e-12)


def test_deviations_add_up_as_the_scores_do():
    x, t = repeated(np.random.default_rng(0))
    parts = sampling_error(pose(x, t, settings=PAIRED)).deviations
    for suffix in ("vendi", "rke"):
        whole = parts[f"conditional_{suffix}"] + parts[f"information_{suffix}"]
        np.testing.assert_allclose(whole, parts[suffix], atol=1e-12)
        assert parts[suffix].sum() == pytest.approx(0, abs=1e-12)


def test_units_are_prompts_where_many_repeat_else_pairs():
    x, t = repeated(np.random.default_rng(0))
    for pairs, unit, count in (
        (slice(None), "prompt", 40),
        (slice(0, 76), "pair", 76),
    ):  # 76: 19 prompts
        found = dp.evaluate(
            x[pairs], t[pairs], kernel_x=NARROW, kernel_t=WIDE, interval=0.9
        ).intervals["vendi"]
        assert (found.unit, found.num_units, found.level) == (unit, count, 0.9)
    asked = dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, interval=0.95, unit="pair").intervals[
        "vendi"
    ]
    assert (asked.unit, asked.num_units) == ("pair", 160)


def test_copies_of_the_whole_set_do_not_change_what_a_prompt_adds():
    x, t = repeated(np.random.default_rng(0), prompts=30)
    once = dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, interval=0.95, order=2).intervals
    twice = dp.evaluate(
        np.tile(x, (2, 1)),
        np.tile(t, (2, 1)),
        kernel_x=NARROW,
        kernel_t=WIDE,
        interval=0.95,
        order=2,
    ).intervals
    assert twice["conditional_vendi"].standard_error == pytest.approx(
        once["conditional_vendi"].standard_error
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interval": 95.0}, "`interval` must be a level between 0 and 1, such as 0.95; got 95.0"),
        ({"interval": 0.95, "unit": "word"}, "`unit` must be pair or prompt; got 'word'"),
        (
            {"num_permutations": -1},
            "`num_permutations` must be a whole number of at least 0; got -1",
        ),
        (
            {"num_permutations": True},
            "`num_permutations` must be a whole number of at least 0; got True",
        ),
        (
            {"num_permutations": 9, "weights": np.arange(1, 41) / 820},
            "`weights` cannot be shuffled",
        ),
    ],
)
def test_refusals(settings, message):
    x, t = independent(np.random.default_rng(0), 40)
    with pytest.raises(dp.ArgumentError, match=message):
        dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, **settings)


def test_one_sample_has_no_interval():
    assert dp.evaluate(np.ones((1, 2)), kernel_x=NARROW, interval=0.95).intervals == {}
    settings = Settings(kernel_x=NARROW, kernel_t=WIDE)
    with pytest.raises(dp.DataError, match="an interval needs at least two prompts; got one"):
        sampling_error(pose(np.eye(4), np.zeros((4, 1)), settings=settings), "prompt")
    with pytest.raises(
        dp.ArgumentError, match="`num_permutations` was given, but there are no prompts to shuffle"
    ):
        dp.evaluate(np.eye(4), kernel_x=NARROW, num_permutations=9)


@pytest.mark.parametrize(
    ("num_prompts", "outputs_of_each", "unit", "is_enough"),
    [
        (9, 1, None, False),
        (10, 1, None, True),
        (6, 2, None, False),
        (10, 2, None, True),
        (2, 5, None, False),
        (2, 6, None, True),
        (4, 6, "prompt", False),
        (5, 2, "prompt", True),
    ],
)
def test_intervals_take_ten_pairs_or_five_prompts(num_prompts, outputs_of_each, unit, is_enough):
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((num_prompts, 2)), outputs_of_each, axis=0)
    x = rng.standard_normal(t.shape)
    found = dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, interval=0.95, unit=unit)
    codes = [notice.code for notice in found.warnings]
    assert ("too-few-for-interval" not in codes) == is_enough == bool(found.intervals)


def test_intervals_of_the_smallest_samples_cover():
    covered = []
    scores = {name: [] for name in ("vendi", "conditional_vendi", "rke", "conditional_rke")}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        t = rng.standard_normal((10, 2))
        x = 0.5 * t + rng.standard_normal((10, 2))
        found = dp.evaluate(
            x, t, kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(0.7), interval=0.95,
            num_permutations=0,
        )  # fmt: skip
        for name, values in scores.items():
            values.append((float(found.scores[name]), found.intervals[name]))
    for values in scores.values():
        truth = math.exp(np.mean([math.log(value) for value, _ in values]))
        covered.append(np.mean([item.low <= truth <= item.high for _, item in values]))
    # 0.90 is promised; 200 samples of that have a standard error of 0.02.
    assert min(covered) >= 0.90 - 0.02


@pytest.mark.parametrize("together", [1, 7, 10**6])
def test_prompts_that_are_taken_together_have_nothing_in_common(together, monkeypatch):
    """The sum over the outputs of a prompt, whichever other prompts are computed with it."""
    x, t = repeated(np.random.default_rng(0), prompts=30)
    x[1], t = x[0], t[np.random.default_rng(1).permutation(len(t))]
    problem = pose(x, t, settings=PAIRED)
    monkeypatch.setattr(_jackknife, "_BLOCK_PAIRS", together)
    in_rows = ContentOrder(np.arange(120), np.arange(30))
    sample = _jackknife.Sample.of(problem, None, in_rows)
    sums = sample.similarities(problem.resources)["within_prompts"]
    squares = np.exp(-((x[:, None] - x) ** 2).sum(-1) / NARROW.bandwidth**2)
    is_same = (t[:, None] == t).all(-1)
    assert sums == pytest.approx((squares * is_same).sum(1) / len(x), abs=1e-12)


@pytest.mark.parametrize(("order", "count"), [(2, 19), (2, 99), (1, 19)])
def test_p_values_are_uniform_under_independence(order, count):
    """Kolmogorov-Smirnov over 200 data sets; p-values of 19 pairings have steps of 1/20."""
    from scipy.stats import kstest

    values = []
    for seed in range(DRAWS):
        generator = np.random.default_rng(seed)
        x, t = generator.standard_normal((2, 40, 2))
        found = dp.shuffled_baseline(
            x, t, kernel_x=NARROW, kernel_t=WIDE, order=order, num_permutations=count, rng=seed
        )
        # spread over its step
        values.append(found.p_value - generator.uniform(0, 1 / (count + 1)))
    assert kstest(values, "uniform").pvalue > 0.01


def _with_equal_prompts(n):
    generator = np.random.default_rng(n)
    x, t = generator.standard_normal((2, n, 2))
    t[n // 2 :] = t[-1]
    return x, t


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
def test_mean_and_variance_are_those_of_all_pairings(n):
    problem = pose(*_with_equal_prompts(n), settings=PAIRED)
    pairings = Pairings(problem.x, problem.t, problem.weights, problem.resources)
    every = itertools.permutations(range(n))
    norms = [pairings.squared_norm(np.array(order)) for order in every]
    moments = pairing_moments(problem.x, problem.t)
    assert moments.mean == pytest.approx(np.mean(norms), rel=1e-12)
    assert moments.variance == pytest.approx(np.var(norms), rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("memory", [None, 1])
def test_a_pairing_has_the_norm_of_outputs_in_another_order(memory):
    """From kernel values that are kept, and by a sweep where they do not fit the memory."""
    x, t = _with_equal_prompts(600)
    problem = pose(x, t, settings=PAIRED, resources=Resources(memory=memory))
    pairings = Pairings(problem.x, problem.t, problem.weights, problem.resources)
    order = np.random.default_rng(0).permutation(600)
    again = pose(x[order], t, settings=PAIRED)
    [norm] = squared_norms([again.joint])
    assert pairings.squared_norm(order) == pytest.approx(600**2 * norm, rel=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_the_error_that_the_baseline_states_is_honest(order):
    """Over seeds the excess moves by its standard error; at order 2 there is nothing to move."""
    x, t = independent(np.random.default_rng(0), 60)
    kernels = {"kernel_x": NARROW, "kernel_t": WIDE, "order": order}
    # At order 2 all seeds give the same number, so a few are as good as many.
    num_seeds = 60 if order == 1 else 5
    found = [dp.shuffled_baseline(x, t, **kernels, rng=seed) for seed in range(num_seeds)]
    excess = np.array([each.excess_information for each in found])
    if order == 2:
        assert np.ptp(excess) == 0 and {each.standard_error for each in found} == {0.0}
        assert {each.num_spectra for each in found} == {0}
        return
    assert min(each.num_spectra for each in found) >= 5
    assert max(each.standard_error for each in found) < 0.01
    errors = np.array([each.standard_error for each in found])
    scaled = (excess - excess.mean()) / errors
    # 60 seeds estimate a standard deviation to a tenth; few spectra add some more.
    assert 0.7 < scaled.std() < 1.4


def test_the_excess_of_order_2_is_that_of_many_pairings():
    x, t = independent(np.random.default_rng(3), 50)
    kernels = {"kernel_x": NARROW, "kernel_t": WIDE}
    found = dp.shuffled_baseline(x, t, **kernels, order=2, num_permutations=1)
    generator = np.random.default_rng(0)
    orders = [generator.permutation(50) for _ in range(400)]
    logs = [math.log(dp.information_rke(x[order], t, **kernels)) for order in orders]
    error = np.std(logs) / 20
    assert math.log(found.baseline) == pytest.approx(np.mean(logs), abs=4 * error)
    assert found.standard_deviation == pytest.approx(np.std(logs), rel=0.15)
    # Beside the excess of another order it is the same number.
    beside = dp.shuffled_baseline(x, t, **kernels, num_permutations=1)
    assert beside.excess_information_rke == pytest.approx(found.excess_information, abs=1e-12)


def test_large_pairings_by_lanczos_agree_with_exact_ones():
    """Beyond 1,500 pairs the default leaves random pairings to Lanczos."""
    x, t = independent(np.random.default_rng(0), 1600)
    kernels = {"kernel_x": NARROW, "kernel_t": WIDE, "num_permutations": 5}
    default = dp.shuffled_baseline(x, t, **kernels)
    exact = dp.shuffled_baseline(x, t, estimator=dp.Exact(), **kernels)
    error = math.hypot(default.standard_error, exact.standard_error)
    assert default.excess_information == pytest.approx(exact.excess_information, abs=4 * error)
    # Lanczos adds 0.001 nats at most to what pairings differ by.
    assert default.standard_error < 2 * exact.standard_error + 0.001
    assert default.p_value == exact.p_value


def test_the_baseline_takes_out_the_bias_of_small_samples():
    generator = np.random.default_rng(0)
    t = generator.standard_normal((150, 2))
    blind = dp.evaluate(
        generator.standard_normal((150, 2)), t, kernel_x=NARROW, kernel_t=WIDE, num_permutations=19
    )
    seeing = dp.evaluate(
        t + 0.5 * generator.standard_normal((150, 2)),
        t,
        kernel_x=NARROW,
        kernel_t=WIDE,
        num_permutations=19,
    )
    assert float(blind.information_vendi) > 2  # by bias alone
    assert abs(blind.baseline.excess_information) < 0.05 and blind.baseline.p_value > 0.05
    assert seeing.baseline.excess_information > 0.1 and seeing.baseline.p_value == 0.05
    given = math.log(float(seeing.information_vendi))
    assert given - seeing.baseline.excess_information == pytest.approx(
        math.log(seeing.baseline.baseline)
    )


def test_the_baseline_is_the_mean_over_shuffled_pairs():
    x, t = independent(np.random.default_rng(0), 30)
    found = dp.shuffled_baseline(x, t, kernel_x=NARROW, kernel_t=WIDE, num_permutations=3, rng=5)
    generator = np.random.default_rng(5)
    logs = []
    for _ in range(3):
        order = generator.permutation(30)
        logs.append(dp.information_vendi(x[order], t, kernel_x=NARROW, kernel_t=WIDE).entropy)
    assert math.log(found.baseline) == pytest.approx(np.mean(logs), abs=1e-9)


@pytest.mark.parametrize(
    ("outputs", "prompts", "pairings"),
    [(1, 40, 99), (4, 10, 99), (5, 8, 0), (1, 1001, 19), (1, 5001, 0)],
)
def test_a_baseline_comes_by_itself_where_prompts_have_few_outputs(outputs, prompts, pairings):
    """At order 2, where a pairing costs no spectrum."""
    n = outputs * prompts
    x, t = np.random.default_rng(0).standard_normal((n, 2)), np.repeat(np.arange(prompts), outputs)
    found = dp.evaluate(x, t, kernel_x=NARROW, order=2)
    assert found.settings.num_permutations == pairings
    assert (found.baseline.num_permutations if found.baseline else 0) == pairings
    unchecked = [
        notice
        for notice in found.warnings
        if str(notice).startswith("information-unchecked: prompts have 1.0 outputs")
    ]
    assert len(unchecked) == (n > 5000)


def test_no_baseline_where_none_is_wanted_or_possible():
    x, t = independent(np.random.default_rng(0), 30)
    weights = np.arange(1, 31) / 465
    assert (
        dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, num_permutations=0).excess_information
        is None
    )
    assert dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, weights=weights).baseline is None
    assert dp.evaluate(x, kernel_x=NARROW).baseline is None
    assert dp.evaluate(x[:1], t[:1], kernel_x=NARROW, kernel_t=WIDE).baseline is None


def test_models_that_are_compared_have_their_baselines():
    t = np.arange(30)
    models = {"free": dp.Samples(np.eye(30), t), "fixed": dp.Samples(np.eye(30)[t // 2], t)}
    found = dp.compare(models, kernel_x=dp.Cosine(), num_permutations=3)
    assert {one.baseline.num_permutations for one in found.results.values()} == {3}


def test_results_carry_intervals_and_baseline():
    x, t = independent(np.random.default_rng(0), 60)
    found = dp.evaluate(x, t, kernel_x=NARROW, kernel_t=WIDE, interval=0.95, num_permutations=3)
    document = found.to_dict()
    assert document["scores"]["vendi"]["interval"]["low"] == found.intervals["vendi"].low
    assert document["baseline"]["p_value"] == found.baseline.p_value
    assert found.excess_information == found.baseline.excess_information
    again = dp.evaluate(x, t, settings=found.settings)
    assert again.intervals == found.intervals and again.baseline == found.baseline


def test_an_interval_reaches_over_the_error_of_the_estimator(one_thread):
    """A rough estimate is no nearer to the truth than its own error allows."""
    x = np.random.default_rng(0).standard_normal((60, 3))
    settings = {"kernel_x": dp.Gaussian(2.0), "interval": 0.95}
    exact, rough = (
        dp.evaluate(x, **settings),
        dp.evaluate(x, **settings, estimator=dp.Fourier(num_features=32)),
    )
    own = rough.vendi.standard_error / rough.vendi.value
    widths = [
        np.log(r.intervals["vendi"].high / r.intervals["vendi"].low) / 2 for r in (exact, rough)
    ]
    assert own > 0.01
    from divprism.analysis.intervals import quantile

    assert np.isclose(widths[1], np.hypot(widths[0], quantile(20, 0.95) * own))


@pytest.mark.parametrize("order", [">", "<"])
def test_the_byte_order_of_arrays_changes_no_interval(order):
    """Nearly equal prompts: only digits beyond single precision tell them apart."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 3))
    t = rng.normal(size=(5, 3))[rng.integers(0, 5, 120)] + 1e-8 * rng.normal(size=(120, 3))
    expected = dp.evaluate(x, t, interval=0.95)
    swapped = dp.evaluate(x.astype(f"{order}f8"), t.astype(f"{order}f8"), interval=0.95)
    assert swapped.intervals == expected.intervals
    assert swapped.to_dict()["data"] == expected.to_dict()["data"]
