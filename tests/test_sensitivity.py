"""How scores and rankings depend on the bandwidths: laws on paper, differences, invariances."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

import divprism as dp
from divprism.analysis.content_sample import content_sample
from divprism.analysis.sensitivity import MAX_PAIRS
from divprism.analysis.stability import FACTORS, ScaledScores
from divprism.report.bandwidth_words import sensitivity_note, stability_note
from divprism.report.documents import check_result
from divprism.report.page import report_page
from divprism.report.tables import comparison_table, evaluation_table, results_table
from divprism.scores.problem import pose
from divprism.scores.settings import Settings
from divprism.scores.spec import score_spec

pytestmark = pytest.mark.usefixtures("one_thread")
STEP = 1e-4
BANDWIDTHS = {"x": 1.7, "t": 1.3}


def evaluated(x, t, *, scale=None, **options):
    """Evaluate with Gaussian kernels, the bandwidth of one side scaled."""
    bandwidths = dict(BANDWIDTHS)
    for side, factor in (scale or {}).items():
        bandwidths[side] *= factor
    if t is not None and np.ndim(t) == 2:
        options["kernel_t"] = dp.Gaussian(bandwidths["t"])
    kernel_x = dp.Gaussian(bandwidths["x"])
    return dp.evaluate(x, t, kernel_x=kernel_x, num_permutations=0, **options)


def assert_slopes(x, t, **options):
    """Compare every slope with the central difference of the score, and absence with zero."""
    sensitivity = evaluated(x, t, **options).sensitivity
    for side in ("x", "t"):
        above = evaluated(x, t, scale={side: 1 + STEP}, **options).scores
        below = evaluated(x, t, scale={side: 1 - STEP}, **options).scores
        for name, score in above.items():
            change = (score.entropy - below[name].entropy) / math.log((1 + STEP) / (1 - STEP))
            slope = sensitivity.get(name, {}).get(side, 0.0)
            assert slope == pytest.approx(change, abs=1e-6), (name, side)


@pytest.mark.parametrize("truncation", [None, 7])
@pytest.mark.parametrize("order", [0.5, 1, 2, 3, math.inf])
def test_slopes_are_central_differences(order, truncation, pairs):
    x, t = pairs
    weights = np.arange(60.0)  # the first weight is zero
    options = {"order": order, "truncation": truncation}
    assert_slopes(x, t, weights=weights / weights.sum(), labels=np.arange(60) % 4, **options)


def test_slopes_are_central_differences_for_ids_and_without_prompts(pairs):
    x, _ = pairs
    assert_slopes(x, np.arange(60) % 7)
    assert_slopes(x, None)


@pytest.mark.parametrize("order", [1, 2])
def test_slopes_are_those_of_numpy_in_every_library(order, pairs, library):
    x, t = pairs
    ours = evaluated(library(x), library(t), order=order).sensitivity
    by_numpy = evaluated(x, t, order=order).sensitivity
    assert ours.n == by_numpy.n == 60
    for name, slopes in by_numpy.items():
        assert ours[name] == pytest.approx(slopes, abs=1e-10)


@pytest.mark.parametrize("distance", [0.3, 1.0, 4.0])
def test_two_outputs_follow_the_closed_form(distance):
    """With k = exp(-d^2 / (2 b^2)) the eigenvalues are (1 + k) / 2 and (1 - k) / 2."""
    x = np.array([[0.0], [distance]])
    bandwidth = BANDWIDTHS["x"]
    k = math.exp(-(distance**2) / (2 * bandwidth**2))
    change = k * distance**2 / bandwidth**2
    expected = {
        1: -change / 2 * math.log((1 + k) / (1 - k)),
        2: -2 * k * change / (1 + k**2),
        math.inf: -change / (1 + k),
    }
    for order, slope in expected.items():
        found = evaluated(x, None, order=order).sensitivity
        assert found["vendi"] == pytest.approx({"x": slope}, rel=1e-9)


@pytest.mark.parametrize("order", [0.7, 1, 2, math.inf])
def test_more_bandwidth_of_the_outputs_never_raises_a_count(order, pairs):
    """The narrower kernel is the wider one times a third, and such products are majorised."""
    slopes = evaluated(*pairs, order=order).sensitivity
    for name in ("vendi", "conditional_vendi", "per_prompt_vendi"):
        assert slopes[name]["x"] < 0
    assert slopes["prompt_vendi"]["t"] < 0


def test_slopes_add_up_as_the_scores_multiply(pairs):
    slopes = evaluated(*pairs).sensitivity
    total = slopes["conditional_vendi"]["x"] + slopes["information_vendi"]["x"]
    assert total == pytest.approx(slopes["vendi"]["x"])
    # Vendi does not depend on the prompts.
    total = slopes["conditional_vendi"]["t"] + slopes["information_vendi"]["t"]
    assert total == pytest.approx(0.0, abs=1e-12) and "t" not in slopes["vendi"]


def test_a_side_without_a_bandwidth_has_no_slope(pairs):
    x, t = pairs
    kernel = dp.Gaussian(1.0)
    by_ids = dp.evaluate(x, np.arange(60) % 7, kernel_x=kernel).sensitivity
    assert set(by_ids["conditional_vendi"]) == {"x"} and "prompt_vendi" not in by_ids
    cosine = dp.evaluate(x, t, kernel_x=dp.Cosine(), kernel_t=kernel).sensitivity
    assert set(cosine["conditional_vendi"]) == {"t"} and "vendi" not in cosine
    assert dp.evaluate(x, kernel_x=dp.Cosine()).sensitivity is None


def test_equal_outputs_have_slope_zero():
    slopes = evaluated(np.ones((5, 2)), None).sensitivity
    assert slopes["vendi"] == {"x": 0.0}


def many_pairs(prompts=400, each=3):
    generator = np.random.default_rng(1)
    t = np.repeat(generator.standard_normal((prompts, 4)), each, axis=0)
    return t[:, :3] + generator.standard_normal((t.shape[0], 3)), t


@pytest.mark.parametrize("prompts", ["vectors", "ids"])
@pytest.mark.parametrize("size", ["exact", "sampled"])
def test_neither_the_order_of_rows_nor_the_container_changes_a_slope(size, prompts):
    x, t = many_pairs()
    if size == "exact":
        x, t = x[:300], t[:300]
    if prompts == "ids":
        t = np.array([f"{row[0]:.9f}" for row in t])
    order = np.random.default_rng(2).permutation(len(x))
    options = {"kernel_x": dp.Gaussian(1.0), "num_permutations": 0}
    if prompts == "ids":
        options["kernel_t"] = dp.Categorical()
    first = dp.evaluate(x, t, **options).sensitivity
    assert first.n <= MAX_PAIRS
    shuffled = dp.evaluate(x[order], t[order], **options)
    listed = dp.evaluate(x, t.tolist(), **options)
    for other in (shuffled, listed):
        assert other.sensitivity.n == first.n
        for name, slopes in first.items():
            assert other.sensitivity[name] == pytest.approx(slopes, abs=1e-9)


def test_a_sample_by_content_keeps_whole_prompts_and_their_weights():
    x, t = many_pairs(prompts=400, each=3)
    settings = Settings(kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(1.0))
    sample = content_sample(pose(x, t, settings=settings), dp.Samples(x, t), 500)
    assert sample.n == 498 and set(np.bincount(sample.t.index)) == {3}
    assert sample.weights == pytest.approx(np.full(498, 1 / 498))
    # Few prompts with many outputs all stay, each with its share.
    prompts = np.repeat(np.eye(2), (900, 300), axis=0)
    few = content_sample(pose(x, prompts, settings=settings), dp.Samples(x, prompts), 500)
    assert few.n == 500
    assert few.t.masses == pytest.approx([0.75, 0.25])


def test_the_slope_of_a_sample_is_close_to_that_of_all_pairs():
    x, t = many_pairs(prompts=60, each=20)
    slopes = evaluated(x, t).sensitivity
    assert slopes.n < len(x)
    above = evaluated(x, t, scale={"x": 1 + STEP}).conditional_vendi.entropy
    below = evaluated(x, t, scale={"x": 1 - STEP}).conditional_vendi.entropy
    # A sample of a third of the pairs: the slope is read to one digit.
    change = (above - below) / (2 * STEP)
    assert slopes["conditional_vendi"]["x"] == pytest.approx(change, rel=0.2)


def test_slopes_read_late_or_from_a_copy_are_those_of_the_evaluated_data(pairs):
    x, t = (side.copy() for side in pairs)
    now = dict(evaluated(x, t).sensitivity)
    late = evaluated(x, t)
    x[:], t[:] = 0.0, 1.0
    assert late.sensitivity == now
    unread = evaluated(*pairs)
    assert pickle.loads(pickle.dumps(unread)).sensitivity == now
    assert copy.deepcopy(unread).sensitivity == now


def test_the_document_holds_the_slopes_and_older_ones_without_them_are_read(pairs):
    found = evaluated(*pairs)
    document = json.loads(found.to_json())
    assert document["sensitivity"]["n"] == 60
    assert document["sensitivity"]["scores"] == dict(found.sensitivity)
    check_result(document)
    table = evaluation_table(document)
    slopes = found.sensitivity["conditional_vendi"]
    sentence = (
        "one percent more bandwidth of the outputs changes conditional by "
        f"{slopes['x']:+.2f} %, of the prompts by {slopes['t']:+.2f} %"
    )
    assert sentence in table.notes
    assert "kinds by" in evaluation_table(document, wide=True).notes[-1]
    assert "one percent more bandwidth" in report_page(document)
    del document["sensitivity"]
    check_result(document)
    assert not any("one percent" in note for note in evaluation_table(document).notes)


def test_a_table_of_models_shows_the_range_of_their_slopes(pairs):
    x, t = pairs
    documents = {"a": evaluated(x, t).to_dict(), "b": evaluated(2 * x, t).to_dict()}
    [note] = [note for note in results_table(documents).notes if "one percent" in note]
    assert note.count(" to ") == 2


def two_models(generator):
    """One model is narrow but never repeats itself; the other gives three far answers of four."""
    t = np.repeat(10.0 * np.eye(12), 4, axis=0)
    narrow = 0.5 * generator.standard_normal((48, 6))
    modes = 6.0 * np.tile(np.eye(6)[[0, 1, 2, 0]], (12, 1))
    return {"narrow": dp.Samples(narrow, t), "modes": dp.Samples(modes, t)}


def test_the_order_holds_where_scores_at_other_bandwidths_keep_it():
    models = two_models(np.random.default_rng(0))
    # At a tenth of this bandwidth all narrow outputs differ; at this one none do.
    for bandwidth in (0.4, 1.0, 3.0):
        kernels = {"kernel_x": dp.Gaussian(bandwidth), "kernel_t": dp.Gaussian(1.0)}
        found = dp.compare(models, **kernels)
        signs = []
        for factor in FACTORS:
            scaled = kernels | {"kernel_x": dp.Gaussian(factor * bandwidth)}
            scores = [
                dp.conditional_vendi(part.outputs, part.prompts, **scaled)
                for part in models.values()
            ]
            signs.append(scores[0] > scores[1])
        held = [sign == signs[2] for sign in signs]
        low = max((k for k in range(2) if not held[k]), default=-1) + 1
        high = min((k for k in range(3, 5) if not held[k]), default=5) - 1
        assert found.stable_range["x"] == (FACTORS[low], FACTORS[high])
        [difference] = found.differences
        if difference.clear:
            assert difference.stable_range["x"] == found.stable_range["x"]


def test_an_order_that_changes_nearby_holds_only_as_used():
    models = two_models(np.random.default_rng(0))
    kernel_t = dp.Gaussian(1.0)

    def gap(bandwidth):
        scores = [
            dp.conditional_vendi(
                part.outputs, part.prompts, kernel_x=dp.Gaussian(bandwidth), kernel_t=kernel_t
            ).entropy
            for part in models.values()
        ]
        return scores[0] - scores[1]

    low, high = 0.1, 3.0
    assert gap(low) > 0 > gap(high)
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gap(middle) > 0 else (low, middle)
    found = dp.compare(models, kernel_x=dp.Gaussian(low), kernel_t=kernel_t)
    assert found.stable_range["x"] == (0.5, 1.0)
    assert found.stable_range["t"] == (0.5, 2.0)
    notes = comparison_table(found.to_dict()).notes
    [note] = [note for note in notes if note.startswith("the order of the models holds from")]
    assert "from 0.5 to 1 times the bandwidth of the outputs" in note
    assert "from 0.5 to 2 times the bandwidth of the prompts" in note


def test_the_comparison_document_holds_the_ranges_and_older_ones_are_read():
    found = dp.compare(two_models(np.random.default_rng(0)), kernel_t=dp.Gaussian(1.0))
    document = json.loads(found.to_json())
    assert set(document["stable_range"]) == {"x", "t"}
    check_result(document)
    document["stable_range"]["x"] = [0.5]
    with pytest.raises(dp.DataError, match="stable_range"):
        check_result(document)
    del document["stable_range"]
    for difference in document["differences"]:
        del difference["stable_range"]
    check_result(document)
    notes = comparison_table(document).notes
    assert not any("order of the models holds" in note for note in notes)


def test_ids_have_no_range_of_bandwidths():
    t = np.repeat(np.arange(12), 2)
    models = {"a": dp.Samples(np.eye(24), t), "b": dp.Samples(np.eye(24)[t], t)}
    assert dp.compare(models, kernel_x=dp.Cosine()).stable_range == {}
    assert set(dp.compare(models, kernel_x=dp.Gaussian(1.0)).stable_range) == {"x"}


def test_the_order_at_the_bandwidths_used_is_that_of_all_pairs():
    """A sample may rank two models the other way: only changes are taken from it."""
    x, t = many_pairs()
    models = {}
    for seed in range(4):
        noise = np.random.default_rng(seed).standard_normal(x.shape)
        models[f"{seed}"] = dp.Samples(x + 0.5 * noise, t)
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1.0)}
    found = dp.compare(models, order=2, **kernels)
    scaled = ScaledScores.of(found.results, score_spec("conditional_vendi"))
    for logs in scaled.by_side.values():
        at_used = [logs[model][FACTORS.index(1.0)] for model in found.results]
        scores = [result.conditional_vendi.entropy for result in found.results.values()]
        assert at_used == pytest.approx(scores, abs=1e-12)


def test_all_models_are_sampled_on_the_same_prompts():
    x, t = many_pairs()
    order = np.random.default_rng(5).permutation(len(x))
    models = {"a": dp.Samples(x, t), "b": dp.Samples(0.3 * x, t)}
    mixed = {"a": dp.Samples(x[order], t[order]), "b": dp.Samples(0.3 * x, t)}
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1.0)}
    first = dp.compare(models, order=2, **kernels)
    assert first.stable_range == {"x": (0.5, 2.0), "t": (0.5, 2.0)}
    assert dp.compare(mixed, order=2, **kernels).stable_range == first.stable_range


def test_the_changes_of_several_models_are_not_read_as_an_interval(pairs):
    documents = [evaluated(*pairs).to_dict(), evaluated(0.5 * pairs[0], pairs[1]).to_dict()]
    [note] = sensitivity_note(documents, wide=False)
    assert note.endswith("%, depending on the model")
    [note] = sensitivity_note(documents[:1], wide=False)
    assert note.endswith(" %")
    outputs, prompts = sensitivity_note(documents[:1], wide=True)
    assert outputs.startswith("one percent more bandwidth of the outputs changes vendi by ")
    assert prompts.startswith("one percent more bandwidth of the prompts changes conditional by ")


def test_an_order_that_holds_nowhere_else_is_put_briefly():
    differences = [
        {"ratio": 2.0, "stable_range": {"x": (0.5, 2.0), "t": (0.5, 2.0)}},
        {"ratio": 1.5, "stable_range": {"x": (0.7, 2.0), "t": (0.5, 2.0)}},
    ]
    document = {"stable_range": {"x": (1.0, 1.0), "t": (1.0, 1.0)}, "differences": differences}
    assert stability_note(document) == [
        "the order of the models holds only at the bandwidths used; 1 of 2 clear differences hold "
        "from 0.5 to 2 times either bandwidth; report any other together with its bandwidths"
    ]
    document["stable_range"]["x"] = (0.7, 1.4)
    [note] = stability_note(document)
    assert note.startswith(
        "the order of the models holds from 0.7 to 1.4 times the bandwidth of the outputs and only "
        "at the bandwidth of the prompts used; "
    )


def test_slopes_of_all_pairs_are_not_called_sampled():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((90, 3)), rng.integers(0, 6, 90)
    samples = dp.Samples(x, t, models=("a",) * 60 + ("b",) * 30)
    results = dp.evaluate_models(samples, num_permutations=0)
    notes = " ".join(results_table(results.documents()).notes)
    assert "one percent more bandwidth" in notes
    assert "computed on" not in notes
