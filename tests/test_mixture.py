"""Mixtures of models: grid search, laws on paper, certificates, invariances, refusals."""

import json
import math
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

import divprism as dp
from divprism.analysis.matched_models import matched_models
from divprism.analysis.mixture_entropy import MixtureEntropy
from divprism.analysis.model_states import ModelStates
from divprism.analysis.simplex import allowed_mixtures, least_square, most_entropy
from divprism.cli import app
from divprism.core.entropy import matrix_entropy
from divprism.data.readers.fields import Fields
from divprism.errors import ArgumentError
from divprism.report.mixture_tables import mixture_table
from divprism.scores.settings import EvaluationOptions, read_options

pytestmark = pytest.mark.usefixtures("one_thread")
KERNELS = {"kernel_x": dp.Gaussian(0.8), "kernel_t": dp.Gaussian(0.9)}
BY = ["conditional_vendi", "conditional_rke", "vendi", "rke"]
QUICK = {"num_permutations": 0}


def clouds(seed=0, models=3, prompts=6, each=3, apart=0.4):
    rng = np.random.default_rng(seed)
    t = np.repeat(rng.standard_normal((prompts, 2)), each, axis=0)
    shape = (prompts * each, 3)
    return {
        f"m{index}": dp.Samples(
            (0.7 - 0.15 * index) * rng.standard_normal(shape) + apart * index, t
        )
        for index in range(models)
    }


def states_of(models, **options):
    """What the mixture of some models is computed from."""
    settings, resources = read_options(options, EvaluationOptions, "mixture")
    columns = Fields(None, None, None, suffix="")
    kept = matched_models(models, settings, resources, columns, None)
    return ModelStates.of(kept, kept.settings, resources)


def kernel_matrix(x, bandwidth):
    gaps = ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-gaps / (2 * bandwidth**2))


def score_by_hand(models, weights, by):
    """The score of all outputs together, with the weight of its model on each output."""
    x = np.concatenate([samples.outputs for samples in models.values()])
    t = np.concatenate([samples.prompts for samples in models.values()])
    n = len(t) // len(models)
    masses = np.repeat(weights, n) / n
    order = 2.0 if by.endswith("rke") else 1.0
    k_x, k_t = kernel_matrix(x, 0.8), kernel_matrix(t, 0.9)
    if not by.startswith("conditional"):
        return math.exp(matrix_entropy(k_x, masses, order))
    joint = matrix_entropy(k_x * k_t, masses, order)
    return math.exp(joint - matrix_entropy(k_t, masses, order))


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("count", [2, 3])
def test_no_weights_on_a_grid_are_better(by, count):
    models = clouds(models=count)
    found = dp.mixture(models, by=by, **KERNELS, **QUICK)
    weights = np.array(list(found.weights.values()))
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12)
    assert score_by_hand(models, weights, by) == pytest.approx(found.score, rel=1e-9)
    steps = 40 if count == 2 else 12
    best = 0.0
    for counts in product(range(steps + 1), repeat=count):
        if sum(counts) == steps:
            best = max(best, score_by_hand(models, np.array(counts) / steps, by))
    # The best of the grid is below the optimum, and close to it.
    assert best <= found.score * (1 + 1e-6)
    assert best == pytest.approx(found.score, rel=0.01)
    for index, name in enumerate(models):
        alone = score_by_hand(models, np.eye(count)[index], by)
        assert found.alone[name] == pytest.approx(alone, rel=1e-9)
    assert found.gain == pytest.approx(found.score / max(found.alone.values()))
    assert found.gap <= (1e-9 if by.endswith("rke") else 1e-6)


def orthogonal(*counts, prompts=5):
    """A model for each count, with that many equally frequent modes of its own to each prompt."""
    t = np.repeat(np.arange(prompts), 6)
    models, first = {}, 0
    for index, count in enumerate(counts):
        modes = first + np.tile(np.arange(6) % count, prompts)
        models[f"m{index}"] = dp.Samples(np.eye(12)[modes], t)
        first += count
    return models


@pytest.mark.parametrize("by", BY[:2])
def test_disjoint_models_are_mixed_in_proportion_to_their_modes(by):
    """Then all modes are equally frequent, which is the most that any mixture can reach."""
    found = dp.mixture(orthogonal(1, 2, 3), by=by, kernel_x=dp.Cosine(), **QUICK)
    assert list(found.weights.values()) == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=1e-5)
    assert found.score == pytest.approx(6) and found.gain == pytest.approx(2)
    assert found.best == "m2"


@pytest.mark.parametrize("by", BY[:2])
def test_a_model_that_another_covers_gets_no_weight(by):
    t = np.repeat(np.arange(5), 4)
    whole = dp.Samples(np.eye(4)[np.tile([0, 1, 2, 3], 5)], t)
    part = dp.Samples(np.eye(4)[np.tile([0, 1, 0, 1], 5)], t)
    found = dp.mixture({"part": part, "whole": whole}, by=by, kernel_x=dp.Cosine())
    assert found.weights == pytest.approx({"part": 0.0, "whole": 1.0}, abs=1e-6)
    assert found.gain == pytest.approx(1, abs=1e-9) and found.low == pytest.approx(1)
    assert "no mixture is more diverse than whole alone" in " ".join(repr(found).split())


@pytest.mark.parametrize("by", BY[:2])
def test_equal_models_share_their_weight_and_names_do_not_matter(by):
    models = clouds(models=2)
    models["twin"] = models["m0"]
    found = dp.mixture(models, by=by, **KERNELS, **QUICK)
    assert found.weights["m0"] == pytest.approx(found.weights["twin"], abs=1e-4)
    renamed = {"a": models["twin"], "z": models["m1"], "k": models["m0"]}
    again = dp.mixture(renamed, by=by, **KERNELS, **QUICK)
    assert again.score == pytest.approx(found.score, rel=1e-7)
    assert again.weights["z"] == pytest.approx(found.weights["m1"], abs=1e-4)


@pytest.mark.parametrize("by", BY[:2])
def test_nothing_but_equal_models_share_their_weight_equally(by):
    one = clouds(models=1)["m0"]
    found = dp.mixture({"b": one, "a": one}, by=by, **KERNELS, **QUICK)
    assert found.weights == pytest.approx({"a": 0.5, "b": 0.5}, abs=1e-4)
    assert found.gain == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("by", BY[:2])
def test_chance_does_not_depend_on_the_order_of_models(by):
    models = clouds(models=3, apart=1.5)
    backwards = dict(reversed(models.items()))
    found, again = (dp.mixture(each, by=by, **KERNELS) for each in (models, backwards))
    assert max(found.weights.values()) > 1.2 * min(found.weights.values())
    assert again.chance == pytest.approx(found.chance, abs=1e-6)


def test_models_with_numbers_as_names_have_a_quality():
    models = dict(enumerate(orthogonal(1, 1).values()))
    limit = {"quality": {0: 1.0, 1: 2.0}, "min_quality": 1.75}
    found = dp.mixture(models, by="rke", kernel_x=dp.Cosine(), **limit)
    assert found.weights == pytest.approx({"0": 0.25, "1": 0.75})


def test_sentences_name_the_quality_that_limits_them():
    models = orthogonal(4, 2, 1)
    quality = {"m0": 0.0, "m1": 1.0, "m2": 2.0}
    found = dp.mixture(models, by="rke", kernel_x=dp.Cosine(), quality=quality, min_quality=1.0)
    text = " ".join(repr(found).split())
    assert found.alone["m0"] > found.alone[found.best]
    assert "the best single model that is good enough, m1 (2.00)" in text
    assert "no weights that are good enough are better" in text


def test_a_gain_below_chance_is_explained_by_more_outputs():
    x = np.random.default_rng(1).standard_normal((2, 16, 2))
    models = {
        name: dp.Samples(each, np.repeat(range(8), 2)) for name, each in zip("ab", x, strict=True)
    }
    found = dp.mixture(models, by="conditional_rke", kernel_x=dp.Gaussian(0.7))
    document = found.to_dict() | {"chance": found.gain + 0.1}
    text = " ".join(mixture_table(document).to_text(200).split())
    assert "more outputs explain all of the gain" in text and "of the gain," not in text
    # Where there is no gain, nothing explains it.
    same = dp.mixture({"a": models["a"], "b": models["a"]}, by="rke", kernel_x=dp.Gaussian(0.7))
    assert same.chance > 1 and "more outputs" not in repr(same)


@pytest.mark.parametrize("by", BY[:2])
def test_the_order_of_rows_does_not_matter(by):
    models = clouds(models=2, each=4)
    rng = np.random.default_rng(0)
    shuffled = {}
    for name, samples in models.items():
        rows = rng.permutation(24)
        shuffled[name] = dp.Samples(samples.outputs[rows], samples.prompts[rows])
    found, again = (dp.mixture(each, by=by, **KERNELS) for each in (models, shuffled))
    assert again.weights == pytest.approx(found.weights, abs=1e-6)
    assert (again.low, again.high, again.chance) == pytest.approx(
        (found.low, found.high, found.chance), abs=1e-6
    )


def test_the_least_square_of_random_states_has_a_certificate():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 30))
        vectors = np.abs(rng.standard_normal((count, int(rng.integers(1, 20)))))
        if seed % 3 == 0:
            vectors[0] = vectors[-1]  # the same state twice
        gram = vectors @ vectors.T
        found = least_square(gram)
        assert found.gap <= 1e-9 and found.weights.min() >= 0
        # Moving weight to any single state does not lower the square.
        square = found.weights @ gram @ found.weights
        for other in np.eye(count):
            moved = 0.99 * found.weights + 0.01 * other
            assert moved @ gram @ moved >= square * (1 - 1e-9)


def test_the_search_for_the_most_entropy_reaches_a_corner_and_the_middle():
    def shannon(weights, scale):
        """Entropy of the weights plus a linear term: the optimum is known in closed form."""
        return float(-(weights @ np.log(weights)) + scale @ weights), -np.log(weights) + scale

    for scale in (np.zeros(4), np.array([0.0, 1.0, -2.0, 0.5]), np.array([12.0, 0, 0, 0])):
        found = most_entropy(lambda weights, scale=scale: shannon(weights, scale), 4)
        expected = np.exp(scale) / np.exp(scale).sum()
        # A slope of log(weight) ends at the least weight that is kept.
        assert found.weights == pytest.approx(expected, abs=1e-4)
        assert found.gap < 1e-5


def test_the_best_mixture_of_a_least_quality():
    models = orthogonal(1, 3)
    quality = {"m0": 1.0, "m1": 0.0}
    free = dp.mixture(models, by="conditional_rke", kernel_x=dp.Cosine(), **QUICK)
    assert free.weights["m0"] == pytest.approx(0.25)
    for by in BY[:2]:
        options = {"by": by, "kernel_x": dp.Cosine(), "quality": quality, **QUICK}
        held = dp.mixture(models, min_quality=0.6, **options)
        # The square and the entropy get worse with the distance from 1/4.
        assert held.weights["m0"] == pytest.approx(0.6, abs=1e-5)
        assert held.quality == pytest.approx(0.6, abs=1e-5) and held.best == "m0"
        slack = dp.mixture(models, min_quality=0.1, **options)
        assert slack.weights["m0"] == pytest.approx(0.25, abs=1e-5)
    corners = allowed_mixtures(np.array([2.0, 1.0, 0.0]), 1.0)
    assert (corners @ [2, 1, 0] >= 1 - 1e-12).all() and len(corners) == 3


@pytest.mark.parametrize("by", BY[:2])
def test_each_group_has_the_weights_of_its_own_prompts(by):
    """Model a knows three answers to even prompts and one to odd ones, b the reverse."""
    t = np.repeat(np.arange(6), 3)
    even, odd = (t % 2 == 0), (t % 2 == 1)
    answers = np.tile([0, 1, 2], 6)
    a = np.eye(8)[np.where(even, answers, 3)]
    b = np.eye(8)[np.where(odd, 4 + answers, 7)]
    models = {"a": dp.Samples(a, t), "b": dp.Samples(b, t)}
    groups = {number: "even" if number % 2 == 0 else "odd" for number in range(6)}
    found = dp.mixture(models, by=by, kernel_x=dp.Cosine(), per_group=groups, **QUICK)
    assert found.weights == pytest.approx({"a": 0.5, "b": 0.5}, abs=1e-5)
    weights = {part.group: part.weights["a"] for part in found.per_group}
    assert weights == pytest.approx({"even": 0.75, "odd": 0.25}, abs=1e-5)
    assert [part.best for part in found.per_group] == ["a", "b"]
    each = dp.mixture(models, by=by, kernel_x=dp.Cosine(), per_group="prompt", **QUICK)
    assert [part.num_prompts for part in each.per_group] == [1] * 6
    named = dp.mixture(
        models, by=by, kernel_x=dp.Cosine(), per_group=lambda text: str(int(text) < 3), **QUICK
    )
    assert [part.num_prompts for part in named.per_group] == [3, 3]


@pytest.mark.parametrize("order", [1, 2])
def test_chance_is_the_gain_of_samples_of_one_model(order):
    """All gain of two samples of one model is chance; of different ones much is left."""
    t = np.repeat(np.arange(8), 4)
    beyond = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = [rng.standard_normal((32, 2)) for _ in range(2)]
        models = {"a": dp.Samples(x[0], t), "b": dp.Samples(x[1], t)}
        found = dp.mixture(models, order=order, kernel_x=dp.Gaussian(0.7))
        # The best single model is better than its expectation, and the mixture gains less.
        beyond.append(found.gain_beyond_chance)
    assert 0.9 < np.mean(beyond) < 1.02
    # Where outputs repeat, as under a wide kernel, another model brings what more outputs do not.
    models["b"] = dp.Samples(x[1] + 9.0, t)
    assert dp.mixture(models, order=order, kernel_x=dp.Gaussian(3.0)).gain_beyond_chance > 1.3


@pytest.mark.parametrize("by", BY[:2])
def test_the_interval_of_the_gain_has_the_width_of_its_spread(by):
    gains, errors = [], []
    for seed in range(40):
        models = clouds(seed, models=2, prompts=15, each=2, apart=1.0)
        found = dp.mixture(models, by=by, **KERNELS, **QUICK)
        gains.append(math.log(found.gain))
        errors.append(math.log(found.high / found.gain) / 2.145)  # Student's t of 15 prompts
    # The spread of 40 values is known to 11 %. At order 1 outputs that are all different are few.
    assert np.mean(errors) == pytest.approx(np.std(gains), rel=0.4)


REFUSED = [
    (lambda m: dp.mixture(m, by="size"), "`by` must be one of conditional_vendi, conditional_rke"),
    (lambda m: dp.mixture(m, order=3), "`order` must be 1 or 2 for a mixture"),
    (lambda m: dp.mixture(m, truncation=3), "mixture takes whole spectra"),
    (lambda m: dp.mixture(m, quality={"m0": 1}), "must be given together"),
    (
        lambda m: dp.mixture(m, quality={"m0": 1}, min_quality=0),
        "number for each model; 'm1' has none; it has numbers for 'm0'",
    ),
    (
        lambda m: dp.mixture(m, quality={"m0": 1, "m1": 2, "m2": 3}, min_quality=4),
        "must be at most 3, the quality of the best model; got 4",
    ),
    (
        lambda m: dp.mixture(m, quality=[1, 2, 3], min_quality=0),
        "`quality` must be a mapping with the names of `models`, the name of a column",
    ),
    (lambda m: dp.mixture(m, per_group=7, **KERNELS), '`per_group` must be "prompt", a mapping'),
    (lambda m: dp.mixture(m, per_group={}, **KERNELS), "must have a group for each prompt"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_bad_arguments_get_one_sentence(call, message):
    with pytest.raises(ArgumentError, match=message):
        call(clouds())


def ids(**options):
    """Clouds whose prompts are ids, so that the outputs of a prompt are connected to no others."""
    models = {}
    for name, samples in clouds(**options).items():
        numbers = np.unique(samples.prompts[:, 0], return_inverse=True)[1]
        models[name] = dp.Samples(samples.outputs, numbers)
    return models


def test_many_connected_outputs_need_order_two(monkeypatch, tmp_path):
    monkeypatch.setattr("divprism.analysis.mixture_entropy._MOST_POINTS", 20)
    with pytest.raises(ArgumentError, match=r"up to 20 distinct ones; got 54\. Take order 2"):
        dp.mixture(clouds(), **KERNELS)
    with pytest.raises(ArgumentError, match=r"no spectrum: `by='rke'`\.$"):
        dp.mixture(clouds(), by="vendi", **KERNELS)
    assert dp.mixture(ids(), kernel_x=dp.Gaussian(0.8), **QUICK).gap < 1e-6
    assert dp.mixture(clouds(), by="conditional_rke", **KERNELS).gap < 1e-9
    # Few features take the place of a spectrum of all outputs.
    assert dp.mixture(clouds(), kernel_x=dp.Cosine(), kernel_t=dp.Cosine(), **QUICK).gap < 1e-6
    rows = []
    for name, samples in clouds().items():
        for x, t in zip(samples.outputs, samples.prompts, strict=True):
            rows.append({"model": name, "output": x.tolist(), "prompt": t.tolist()})
    file = tmp_path / "m.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    refused = CliRunner().invoke(app, ["mix", str(file), "-q"])
    assert refused.exit_code == 2
    assert "no spectrum: --by conditional_rke." in " ".join(refused.stderr.split())


def test_a_memory_budget_that_spectra_exceed_is_refused_before_any_work():
    # 3 matrices of 54 x 54 numbers of 8 bytes are 70 kB.
    with pytest.raises(ArgumentError, match=r"needs 70 kB, above the memory .* `by='conditional_r"):
        dp.mixture(clouds(), memory="60kB", **KERNELS)
    assert dp.mixture(clouds(), memory="80kB", **KERNELS, **QUICK).gap < 1e-6


MIXED = {
    "clouds": (clouds, {"prompts": 8}, KERNELS),
    "six models": (clouds, {"models": 6, "prompts": 8}, KERNELS),
    "a model that is not needed": (clouds, {"models": 3, "apart": 0.0, "prompts": 8}, KERNELS),
    "prompts as ids": (ids, {"each": 6}, {"kernel_x": dp.Gaussian(0.8)}),
    "outputs alone": (clouds, {"prompts": 8}, {**KERNELS, "by": "vendi"}),
    "least quality": (
        clouds,
        {},
        {**KERNELS, "quality": {"m0": 0, "m1": 1, "m2": 2}, "min_quality": 1.5},
    ),
    "a single model is good enough": (
        clouds,
        {},
        {**KERNELS, "quality": {"m0": 0, "m1": 1, "m2": 2}, "min_quality": 2},
    ),
}


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize("landmarks", [5, 300])
def test_the_guided_search_for_large_data_finds_the_same_mixture(case, landmarks, monkeypatch):
    """Whatever the guide is: the certificate is that of the exact entropy."""
    draw, shape, options = MIXED[case]
    models = draw(**shape)
    plain = dp.mixture(models, **options)
    entropy = "divprism.analysis.mixture_entropy"
    monkeypatch.setattr(f"{entropy}._GUIDED_POINTS", 0)
    monkeypatch.setattr(f"{entropy}._LANDMARKS", landmarks)
    # Also without a stored kernel matrix, as above 3,000 outputs.
    monkeypatch.setattr("divprism.analysis.mixture_blocks.SMALL_BLOCK", 0)
    found = dp.mixture(models, **options)
    assert found.gap <= 1e-6 and plain.gap <= 1e-6
    assert found.num_iterations <= 12
    assert found.score == pytest.approx(plain.score, rel=2e-6)
    # Weights move by the root of the gap.
    assert found.weights == pytest.approx(plain.weights, abs=2e-3)
    assert found.alone == pytest.approx(plain.alone, rel=1e-9)
    for name in ("gain", "low", "high", "chance"):
        assert getattr(found, name) == pytest.approx(getattr(plain, name), abs=1e-4)


def test_the_guided_search_takes_few_spectra_and_no_order_of_rows_changes_it(monkeypatch):
    monkeypatch.setattr("divprism.analysis.mixture_entropy._GUIDED_POINTS", 0)
    monkeypatch.setattr("divprism.analysis.mixture_entropy._LANDMARKS", 40)
    models = clouds(models=5, prompts=20)
    rng = np.random.default_rng(0)
    shuffled = {}
    for name, samples in reversed(models.items()):
        rows = rng.permutation(60)
        shuffled[name] = dp.Samples(samples.outputs[rows], samples.prompts[rows])
    found, again = (dp.mixture(each, **KERNELS, **QUICK) for each in (models, shuffled))
    assert found.num_iterations <= 4
    assert again.weights == pytest.approx(found.weights, abs=1e-6)


def test_equal_models_share_their_weight_in_a_guided_search(monkeypatch):
    monkeypatch.setattr("divprism.analysis.mixture_entropy._GUIDED_POINTS", 0)
    models = clouds(models=2)
    models["twin"] = models["m0"]
    found = dp.mixture(models, **KERNELS, **QUICK)
    assert found.gap <= 1e-6
    assert found.weights["m0"] == pytest.approx(found.weights["twin"], abs=1e-3)


def test_chance_of_many_outputs_is_that_of_the_estimator(monkeypatch):
    models = clouds()
    exact = dp.mixture(models, **KERNELS)
    monkeypatch.setattr("divprism.analysis.mixture_entropy.SMALL_BLOCK", 0)
    same = dp.mixture(models, estimator=dp.Exact(), **KERNELS)
    assert same.chance == pytest.approx(exact.chance, rel=1e-12)
    estimated = dp.mixture(models, estimator=dp.Nystrom(10), **KERNELS)
    assert estimated.chance != pytest.approx(exact.chance, rel=1e-6)


def sharing():
    """Models that give the same few outputs, each with frequencies of its own."""
    models, rng = clouds(), np.random.default_rng(1)
    outputs, t = models["m0"].outputs, models["m0"].prompts
    drawn = np.repeat(np.arange(0, 18, 3), 3) + rng.choice(3, size=(3, 18), p=[0.6, 0.3, 0.1])
    return {f"m{index}": dp.Samples(outputs[own], t) for index, own in enumerate(drawn)}


@pytest.mark.parametrize("kernels", [KERNELS, {"kernel_x": dp.Cosine(), "kernel_t": dp.Cosine()}])
@pytest.mark.parametrize("draw", [clouds, sharing])
def test_slopes_and_curvature_are_the_derivatives_of_the_entropy(draw, kernels):
    entropy = MixtureEntropy(states_of(draw(), **kernels))
    weights, step = np.array([0.5, 0.3, 0.2]), 1e-5
    # All points have a mass, so that the entropy is smooth.
    _, slopes = entropy(weights)
    curvature = entropy.curvature()
    for model, direction in enumerate(np.eye(3) - 1 / 3):
        ahead, behind = weights + step * direction, weights - step * direction
        slope = (entropy.value(ahead) - entropy.value(behind)) / (2 * step)
        assert slopes @ direction == pytest.approx(slope, abs=1e-7), model
        bend = (entropy(ahead)[1] - entropy(behind)[1]) / (2 * step)
        assert curvature @ direction == pytest.approx(bend, rel=1e-5, abs=1e-7), model


def test_features_and_kernel_matrices_give_the_same_mixture(monkeypatch):
    """With d features the spectrum is that of a d x d moment, whatever the number of outputs."""
    options = {"kernel_x": dp.Polynomial(2), "kernel_t": dp.Cosine()}
    by_features = dp.mixture(clouds(), **options)
    monkeypatch.setattr("divprism.analysis.mixture_blocks.SMALL_BLOCK", 0)
    by_kernel = dp.mixture(clouds(), **options)
    assert by_features.weights == pytest.approx(by_kernel.weights, abs=1e-5)
    for name in ("score", "gain", "low", "high", "chance"):
        wanted = getattr(by_kernel, name)
        assert getattr(by_features, name) == pytest.approx(wanted, rel=1e-6), name


def test_documents_tables_and_the_command(tmp_path):
    models = clouds(prompts=5)
    found = dp.mixture(models, by="conditional_rke", per_group="prompt", **KERNELS)
    document = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert document["weights"] == found.weights and len(document["per_group"]) == 5
    assert "<table" in found._repr_html_() and len(found.to_frame()) == 18
    found.save(tmp_path / "mixture.json")
    assert json.loads((tmp_path / "mixture.json").read_text())["gain"] == found.gain
    assert dp.mixture(clouds(prompts=3), **KERNELS, **QUICK).low is None
    rows = []
    for name, samples in models.items():
        for x, t in zip(samples.outputs, samples.prompts, strict=True):
            rows.append({"model": name, "output": x.tolist(), "prompt": t.tolist()})
            rows[-1]["judge"] = int(name[1:]) + len(rows) % 3
    file = tmp_path / "m.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bandwidths = ("--bandwidth-x", "0.8", "--bandwidth-t", "0.9", "-q")
    call = ["mix", str(file), "--by", "conditional_rke", "--per-prompt", *bandwidths]
    shown = CliRunner().invoke(app, call)
    assert shown.exit_code == 0, shown.output
    assert "the best mixture is" in shown.output and "By group of prompts" in shown.output
    as_json = json.loads(CliRunner().invoke(app, [*call, "--format", "json"]).stdout)
    assert as_json["weights"] == pytest.approx(found.weights)
    wanted = ["--quality", "m0=1", "--quality", "m1=2", "--quality", "m2=3", "--min-quality", "3"]
    held = json.loads(CliRunner().invoke(app, [*call, *wanted, "--format", "json"]).stdout)
    assert held["weights"]["m2"] == pytest.approx(1)
    # The means over the 15 outputs of each model are the numbers above.
    by_field = ["--quality-field", "judge", "--min-quality", "2.5"]
    alone = CliRunner().invoke(app, [*call, "--quality-field", "judge"])
    assert alone.exit_code == 2
    assert "--quality-field needs --min-quality" in alone.stderr
    given = [*wanted[:-1], "2.5"]
    of_outputs, of_models = (
        json.loads(CliRunner().invoke(app, [*call, *each, "--format", "json"]).stdout)
        for each in (by_field, given)
    )
    assert of_outputs["weights"] == pytest.approx(of_models["weights"])
    assert of_outputs["quality"] == pytest.approx(of_models["quality"]) == pytest.approx(2.5)
    for wrong in (["--quality", "m0"], ["--interval", "0"], [*wanted, *by_field]):
        assert CliRunner().invoke(app, [*call, *wrong]).exit_code == 2


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_guided_search_ends_where_models_share_outputs(noise, monkeypatch):
    """Half of the model d is that of a and half that of b, or nearly."""
    monkeypatch.setattr("divprism.analysis.mixture_entropy._GUIDED_POINTS", 20)
    t = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 4, axis=0)
    centres, widths = {"a": 0, "b": 1, "c": 0}, {"a": 1, "b": 1, "c": 0.2}
    outputs = {}
    for seed, name in enumerate(centres):
        drawn = np.random.default_rng(seed).normal(size=(120, 3))
        outputs[name] = drawn * widths[name] + centres[name]
    outputs["d"] = np.concatenate([outputs["b"][:60], outputs["a"][60:]])
    outputs["d"] += noise * np.random.default_rng(9).normal(size=(120, 3))
    models = {name: dp.Samples(x, t) for name, x in outputs.items()}
    kernels = {"kernel_x": dp.Gaussian(0.7), "kernel_t": dp.Gaussian(0.5)}
    found = dp.mixture(models, **kernels, **QUICK)
    assert found.gap <= 1e-6
    if noise == 0:
        assert found.num_iterations <= 4
