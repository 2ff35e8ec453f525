"""A file gives the same numbers in every command and function, in any order and container."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command_line import run

import divprism as dp
from divprism.core.arrays import content_hashes

MODELS = ("calm", "wild")
PLACES = ["a harbour", "a desert", "a market", "a forest", "a station", "a kitchen", "an attic"]
THINGS = ["lamp", "boat", "stone", "cup", "map", "dog", "song", "bridge"]


def _records():
    """Two models on the same prompts; one of them has another output for some of them."""
    records = []
    for index, place in enumerate(PLACES * 2):
        prompt = f"Describe {place} at {'dawn' if index < len(PLACES) else 'night'}."
        for sample in range(4):
            thing = THINGS[(index + 3 * sample) % len(THINGS)]
            calm = f"There is an old {THINGS[index % len(THINGS)]} in {place}, number {sample}."
            wild = f"A {thing} sings about {place} while {sample + 2} birds leave."
            records.append({"model": "calm", "prompt": prompt, "output": calm})
            records.append({"model": "wild", "prompt": prompt, "output": wild})
        if index % 3 == 0:
            more = f"Nobody remembers {place}, except for the {thing}."
            records.append({"model": "wild", "prompt": prompt, "output": more})
    return records


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("same") / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, _records())))
    return path


@pytest.fixture(scope="module")
def settings(path):
    """The settings of `evaluate_models`, which all others have to choose as well."""
    return dp.evaluate_models(path, num_permutations=0).settings


def _document(*arguments):
    finished = run(*arguments, "--format", "json", "--quiet")
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def _bandwidths(plain):
    return plain["bandwidth_x"], plain["bandwidth_t"]


def test_every_command_chooses_the_same_bandwidths(path, settings):
    chosen = _bandwidths(settings.to_dict())
    score = _document("score", path, "--interval", 0)["models"]
    compared = _document("compare", path)
    groups = _document("groups", path, "--model", "wild")
    curve = _document("converge", path, "--model", "wild", "--num-repeats", 2)
    swept = _document("bandwidth", path)
    swept_of_one = _document("bandwidth", path, "--model", "wild")
    for document in (*score.values(), *compared["models"].values(), groups, curve):
        assert _bandwidths(document["settings"]) == pytest.approx(chosen, rel=1e-12)
    for document in (swept, swept_of_one):
        sides = document["x"]["chosen"], document["t"]["chosen"]
        assert sides == pytest.approx(chosen, rel=1e-12)


def test_a_score_is_the_same_in_groups_and_curves(path):
    right = dp.evaluate_models(path, num_permutations=0)["wild"]
    groups = dp.prompt_groups(path, model="wild")
    curve = dp.converge(path, model="wild", num_repeats=2)
    assert groups.conditional_vendi == pytest.approx(right.conditional_vendi, rel=1e-9)
    whole = curve.verdicts["conditional_vendi"].value
    assert whole == pytest.approx(right.conditional_vendi, rel=1e-9)
    for result in (groups, curve):
        assert result.settings.bandwidth_rule == dp.DistinctPrompts()


@pytest.mark.parametrize(
    "function",
    [dp.prompt_groups, dp.converge, dp.bandwidth_sweep],
    ids=lambda function: function.__name__,
)
def test_a_model_that_is_not_there_is_refused(path, function):
    with pytest.raises(dp.ArgumentError, match="`model` must be one of 'calm', 'wild'; got 'x'"):
        function(path, model="x")


def _vectors(n, seed=0):
    """Outputs in clusters around repeated prompts."""
    generator = np.random.default_rng(seed)
    prompts = generator.standard_normal((n // 6, 5))
    t = np.repeat(prompts, 6, axis=0)
    x = np.repeat(generator.standard_normal((n // 3, 8)), 3, axis=0)
    return x + 0.3 * generator.standard_normal((n, 8)), t


def _values(result):
    return [float(score) for score in result.scores.values()]


@pytest.mark.parametrize(("n", "times"), [(60, 9), (300, 9), (2400, 1)])
def test_neither_seed_nor_order_of_rows_changes_a_default_score(n, times):
    x, t = _vectors(n)
    # The small samples see that a baseline changes no score; of large ones it takes seconds.
    right = _values(dp.evaluate(x, t, num_permutations=None if n < 1000 else 0))
    for seed in range(1, 1 + times):
        order = np.random.default_rng(seed).permutation(n)
        found = dp.evaluate(x[order], t[order], rng=seed, num_permutations=0)
        # Beyond 1,000 or so distinct pairs the order of sums changes the last digits.
        assert _values(found) == pytest.approx(right, rel=1e-6)


def test_large_samples_agree_within_their_stated_errors():
    x, t = _vectors(6000)
    first = dp.evaluate(x, t, num_permutations=0)
    order = np.random.default_rng(1).permutation(6000)
    second = dp.evaluate(x[order], t[order], rng=1, num_permutations=0)
    kernels = [(one.settings.kernel_x, one.settings.kernel_t) for one in (first, second)]
    for one, other in zip(*kernels, strict=True):
        assert one.bandwidth == pytest.approx(other.bandwidth, rel=1e-9)
    for name, score in first.scores.items():
        error = np.hypot(score.standard_error, second.scores[name].standard_error)
        assert abs(score - second.scores[name]) <= 4 * error + 1e-6 * score


def test_texts_score_alike_in_every_container():
    import pandas

    records = [record for record in _records() if record["model"] == "calm"]
    outputs = [record["output"] for record in records]
    prompts = [record["prompt"] for record in records]
    right = _values(dp.evaluate(outputs, prompts, num_permutations=0))
    for container in (tuple, np.array, pandas.Series, lambda texts: np.array(texts, dtype=object)):
        found = dp.evaluate(container(outputs), container(prompts), num_permutations=0)
        assert _values(found) == right


def _ends(intervals):
    return [(name, one.low, one.high) for name, one in intervals.items()]


def _assert_same_ends(first, second):
    for one, other in zip(_ends(first), _ends(second), strict=True):
        assert one[0] == other[0]
        assert one[1:] == pytest.approx(other[1:], rel=1e-9, abs=1e-9), one[0]


def _prompts_with_outputs(num_prompts, each, seed=0):
    generator = np.random.default_rng(seed)
    t = np.repeat(generator.standard_normal((num_prompts, 4)), each, axis=0)
    return t + generator.standard_normal(t.shape), t


SAMPLES = {
    "a prompt each": (*_prompts_with_outputs(120, 1), {}),
    "prompts resampled": (*_prompts_with_outputs(30, 4), {"unit": "prompt"}),
    "pairs of prompts that repeat": (*_prompts_with_outputs(30, 4), {"unit": "pair"}),
    "few prompts with many outputs": (*_prompts_with_outputs(6, 15), {}),
    "more than 500 pairs": (*_prompts_with_outputs(24, 30), {}),
    "ids": (_prompts_with_outputs(40, 3)[0], np.repeat(np.arange(40) * 7 % 40, 3), {}),
    "texts as ids": (
        _prompts_with_outputs(40, 3)[0],
        np.repeat([f"prompt {index * 7 % 40}" for index in range(40)], 3),
        {"kernel_t": dp.Categorical()},
    ),
    "copies of outputs": (np.eye(5)[np.arange(90) ** 2 % 7 % 5], np.arange(90) % 8, {}),
    "truncated": (*_prompts_with_outputs(40, 2), {"truncation": 10, "order": 1.5}),
}


@pytest.mark.parametrize("case", SAMPLES)
def test_neither_seed_nor_order_of_rows_changes_an_interval(case):
    x, t, options = SAMPLES[case]
    options = {"interval": 0.95, "num_permutations": 0, "kernel_x": dp.Gaussian(1.5)} | options
    if t.ndim == 2:
        options["kernel_t"] = dp.Gaussian(0.7)
    expected = dp.evaluate(x, t, **options).intervals
    for seed in range(1, 5):  # any order that mattered would show with any of them
        order = np.random.default_rng(seed).permutation(len(x))
        found = dp.evaluate(x[order], t[order], rng=seed, **options)
        _assert_same_ends(found.intervals, expected)


def test_intervals_with_chosen_bandwidths_do_not_depend_on_the_order_of_rows():
    x, t = _prompts_with_outputs(40, 3)
    expected = dp.evaluate(x, t, interval=0.95, num_permutations=0).intervals
    for seed in range(1, 6):
        order = np.random.default_rng(seed).permutation(len(x))
        found = dp.evaluate(x[order], t[order], interval=0.95, num_permutations=0, rng=seed)
        _assert_same_ends(found.intervals, expected)


def test_intervals_with_labels_and_weights_do_not_depend_on_the_order_of_rows():
    generator = np.random.default_rng(0)
    x = np.eye(6)[generator.integers(0, 6, 80)]  # copies, in several clusters
    labels = generator.integers(0, 3, 80)
    weights = generator.integers(0, 3, 80) / 1.0
    weights /= weights.sum()
    options = {"kernel_x": dp.Gaussian(1.0), "interval": 0.95}
    expected = dp.evaluate(x, None, labels, weights=weights, **options).intervals
    names = np.array(["c", "a", "b"])
    for seed in range(1, 11):
        order = np.random.default_rng(seed).permutation(80)
        found = dp.evaluate(
            x[order], None, names[labels[order]], weights=weights[order], rng=seed, **options
        )
        _assert_same_ends(found.intervals, expected)


def test_intervals_of_kernel_matrices_do_not_depend_on_the_order_of_rows():
    x, t = _prompts_with_outputs(30, 4)
    kernels = [np.exp(-((a[:, None] - a) ** 2).sum(-1) / 3) for a in (x, t)]
    precomputed = {"kernel_x": dp.Precomputed(), "kernel_t": dp.Precomputed()}
    options = {"interval": 0.95, "num_permutations": 0} | precomputed
    expected = dp.evaluate(*kernels, **options).intervals
    for seed in range(1, 6):
        order = np.random.default_rng(seed).permutation(len(x))
        found = dp.evaluate(*(k[np.ix_(order, order)] for k in kernels), rng=seed, **options)
        _assert_same_ends(found.intervals, expected)


def test_intervals_do_not_depend_on_the_container_of_prompts():
    torch = pytest.importorskip("torch")
    pandas = pytest.importorskip("pandas")
    x = _prompts_with_outputs(30, 3)[0]
    ids = np.repeat(np.arange(30), 3)
    options = {"kernel_x": dp.Gaussian(1.5), "interval": 0.95, "num_permutations": 0}
    expected = dp.evaluate(x, ids, **options).intervals
    for t in (ids.tolist(), tuple(ids.tolist()), ids.astype(np.int16), pandas.Series(ids)):
        _assert_same_ends(dp.evaluate(x, t, **options).intervals, expected)
    found = dp.evaluate(torch.tensor(x), torch.tensor(ids), **options)
    _assert_same_ends(found.intervals, expected)


@pytest.mark.parametrize("by", ["conditional_vendi", "conditional_rke"])
@pytest.mark.parametrize(("num_prompts", "each"), [(30, 4), (8, 12), (60, 1)])
def test_neither_seed_nor_order_of_rows_changes_a_verdict(num_prompts, each, by):
    models = {}
    for index in range(3):
        generator = np.random.default_rng(index)
        _, t = _prompts_with_outputs(num_prompts, each, seed=9)
        x = t + (0.6 + 0.04 * index) * generator.standard_normal(t.shape)
        models[f"model {index}"] = dp.Samples(x, t)
    options = {"kernel_x": dp.Gaussian(0.8), "kernel_t": dp.Gaussian(0.7), "num_permutations": 0}
    expected = dp.compare(models, by=by, **options)
    for seed in range(1, 5):
        generator = np.random.default_rng(seed)
        shuffled = {}
        for name, samples in models.items():
            shuffled[name] = samples.select(generator.permutation(len(samples)).tolist())
        found = dp.compare(shuffled, by=by, rng=seed, **options)
        assert found.ranks == expected.ranks
        for one, other in zip(found.differences, expected.differences, strict=True):
            assert (one.first, one.second, one.clear) == (other.first, other.second, other.clear)
            ends = (other.ratio, other.low, other.high)
            assert (one.ratio, one.low, one.high) == pytest.approx(ends, rel=1e-9)


def test_prompts_in_two_precisions_keep_the_pairing_of_models():
    x, t = _prompts_with_outputs(30, 4)
    other = t + np.random.default_rng(1).standard_normal(t.shape)
    options = {"kernel_x": dp.Gaussian(0.8), "kernel_t": dp.Gaussian(0.7), "num_permutations": 0}
    single = t.astype(np.float32)
    ends = []
    for prompts in (single, single.astype(float), t):
        models = {"one": dp.Samples(x, single), "other": dp.Samples(other, prompts)}
        (difference,) = dp.compare(models, **options).differences
        ends.append((difference.low, difference.high))
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)
    assert ends[0] == pytest.approx(ends[2], rel=1e-9)


def test_the_settings_of_one_model_reproduce_its_scores(path):
    results = dp.evaluate_models(path, num_permutations=0)
    part = dp.load(path).by_model()["calm"]
    again = dp.evaluate(part, settings=replace(results["calm"].settings))
    assert _values(again) == pytest.approx(_values(results["calm"]), rel=1e-12)


@pytest.mark.parametrize("as_mapping", [False, True])
def test_prompts_compared_as_ids_count_by_their_texts_in_a_comparison(as_mapping, tmp_path):
    """Texts with the same words have the same vector, and are different prompts all the same."""
    prompts = ["the dog bites the man", "the man bites the dog"]
    prompts += [f"prompt number {number}" for number in range(10)]
    rng = np.random.default_rng(0)
    path = tmp_path / "answers.jsonl"
    records = []
    for model in MODELS:
        for prompt in prompts * 3:
            vector = rng.standard_normal(4).tolist()
            records.append({"model": model, "prompt": prompt, "output": vector})
    path.write_text("\n".join(map(json.dumps, records)))
    options = {"kernel_t": dp.Categorical(), "interval": 0.9, "num_permutations": 0}
    evaluated = dp.evaluate_models(path, **options)
    source = path
    if as_mapping:
        source = dp.load(path).by_model()
    for model, compared in dp.compare(source, **options).results.items():
        assert round(compared.prompt_vendi) == len(prompts)
        for name, score in evaluated[model].scores.items():
            assert float(compared.scores[name]) == pytest.approx(float(score), rel=1e-12)
            interval, other = compared.intervals[name], evaluated[model].intervals[name]
            assert interval.standard_error == pytest.approx(other.standard_error, rel=1e-9)


@pytest.mark.parametrize("container", [list, tuple, lambda ids: np.array(ids, dtype=object)])
def test_null_characters_at_the_end_of_an_id_count(container):
    ids = container(["a", "a\0", "a\0\0", "b"] * 3)
    assert round(dp.prompt_vendi(ids)) == 4
    evaluated = dp.evaluate(np.eye(12), ids, kernel_x=dp.Cosine(), kernel_t=dp.Categorical())
    assert float(evaluated.prompt_vendi) == pytest.approx(float(dp.prompt_vendi(ids)))


def _as_in_a_text_file(rows):
    """Numbers of single precision after a file with nine digits, which restores them exactly."""
    return np.array([[float(f"{value:.9g}") for value in row] for row in rows])


def test_numbers_of_a_text_file_score_as_those_of_an_array():
    """The rows that a bandwidth is chosen on, and the groups of an interval, are the same."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2200, 3)).astype(np.float32)
    t = np.repeat(rng.standard_normal((550, 2)).astype(np.float32), 4, axis=0)
    options = {"interval": 0.9, "num_permutations": 0}
    array = dp.evaluate(x, t, **options)
    text = dp.evaluate(_as_in_a_text_file(x), _as_in_a_text_file(t), **options)
    for name, score in array.scores.items():
        assert float(text.scores[name]) == pytest.approx(float(score), rel=1e-6)
        expected = array.intervals[name].standard_error
        assert text.intervals[name].standard_error == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("scale", "offset"), [(1e-60, 0.0), (1e60, 0.0), (1e-4, 1e6)])
def test_rows_that_single_precision_cannot_tell_apart_keep_an_order(scale, offset):
    rng = np.random.default_rng(0)
    x = offset + scale * rng.standard_normal((300, 3))
    order = rng.permutation(300)
    assert np.unique(content_hashes(x)).size == 300
    assert np.array_equal(content_hashes(x)[order], content_hashes(x[order]))
    options = {"kernel_x": dp.Gaussian(scale), "interval": 0.9}
    expected = dp.evaluate(x, **options).intervals["vendi"].standard_error
    shuffled = dp.evaluate(x[order], **options).intervals["vendi"].standard_error
    assert shuffled == pytest.approx(expected, rel=1e-6)
