"""Comparisons: the same prompts, the same number of outputs each, differences that cover."""

import json
import math

import numpy as np
import pytest

import divprism as dp
from divprism.analysis import matching
from divprism.analysis.comparison import Difference
from divprism.core.validation import check_seed
from divprism.data.items import texts
from divprism.data.wording import differing_names

pytestmark = pytest.mark.usefixtures("one_thread")
KERNELS = {"kernel_x": dp.Gaussian(0.8), "kernel_t": dp.Gaussian(0.8)}


def two_models(generator, prompts=30, each=4, spread=(0.6, 0.9)):
    """Two models on the same prompts, the second one freer."""
    t = np.repeat(generator.standard_normal((prompts, 2)), each, axis=0)
    return {
        f"model{i}": dp.Samples(t + s * generator.standard_normal(t.shape), t)
        for i, s in enumerate(spread)
    }


def test_differences_cover_and_pairing_narrows_them():
    """200 data sets: 90 to 98 of 100 intervals cover the ratio of the expectations.

    The part of the error that comes from the prompts cancels.
    """
    sizes = {"prompts": 24, "each": 3}  # small, because each interval takes many spectra

    def ratio(generator):
        scores = [
            float(dp.conditional_vendi(one.outputs, one.prompts, **KERNELS))
            for one in two_models(generator, **sizes).values()
        ]
        return math.log(scores[0] / scores[1])

    truth = math.exp(np.mean([ratio(np.random.default_rng(10_000 + seed)) for seed in range(300)]))
    held, paired, apart = 0, [], []
    for seed in range(200):
        models = two_models(np.random.default_rng(seed), **sizes)
        found = dp.compare(models, num_permutations=0, **KERNELS)
        (one,) = found.differences
        low, high = (one.low, one.high) if one.first == "model0" else (1 / one.high, 1 / one.low)
        held += low <= truth <= high
        paired.append(math.log(high / low))
        widths = [
            math.log(r.intervals["conditional_vendi"].high / r.intervals["conditional_vendi"].low)
            for r in found.results.values()
        ]
        apart.append(math.hypot(*widths))
    assert 180 <= held <= 196
    assert np.mean(paired) < np.mean(apart)


@pytest.mark.parametrize("order", [1, 2])
def test_a_model_is_not_better_than_itself_in_another_order(order):
    """Rounding differs with the order of sums, and is no difference between models."""
    generator = np.random.default_rng(0)
    x, t = generator.standard_normal((90, 5)).astype(np.float32), np.repeat(np.arange(30), 3)
    places = generator.permutation(90)
    models = {"one": dp.Samples(x, t), "other": dp.Samples(x[places], t[places])}
    found = dp.compare(models, kernel_x=dp.Gaussian(1.0), order=order)
    assert not found.differences[0].clear and set(found.ranks.values()) == {(1, 2)}
    assert not Difference("one", "other", 1 + 2e-9, 1 + 1e-9, 1 + 3e-9).clear
    assert (
        Difference("one", "other", 1.02, 1.01, 1.03).clear
        and Difference("one", "other", 0.98, 0.97, 0.99).clear
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.array(["a", "b", "c"]), np.array(["a", "b", "c", "longer"])[:3]),
        (np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int64)),
        (np.eye(3, dtype=np.float32) / 3, np.eye(3) / 3),
        (-np.zeros((3, 1)) * np.eye(3), np.zeros((3, 3))),
    ],
)
def test_prompts_are_the_same_whatever_they_are_stored_as(first, second):
    models = {"one": dp.Samples(np.eye(3), first), "other": dp.Samples(np.eye(3), second)}
    found = dp.compare(
        models, kernel_x=dp.Cosine(), kernel_t=None if first.ndim == 1 else dp.Gaussian(1.0)
    )
    assert found.results["one"].data["n"] == 3 and not found.notes


def test_a_level_may_be_a_number_of_numpy():
    found = dp.compare(two_models(np.random.default_rng(0)), interval=np.float32(0.5), **KERNELS)
    assert json.loads(json.dumps(found.to_dict()))["settings"]["interval"] == 0.5


def test_differences_of_given_prompts_do_not_count_what_differs_between_these():
    """Eight prompts of growing freedom, and two models of which one is half as free.

    Errors that both models have in common cancel.
    """
    t = np.repeat(np.arange(8), 15)
    spread = np.linspace(0.1, 2, 8)[t][:, None]
    logs, told = [], []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        models = {
            name: dp.Samples(scale * spread * generator.standard_normal((120, 2)), t)
            for name, scale in (("a", 1), ("b", 0.5))
        }
        (one,) = dp.compare(
            models, by="conditional_rke", order=2, kernel_x=dp.Gaussian(1.0), num_permutations=0
        ).differences
        logs.append(math.log(one.ratio if one.first == "a" else 1 / one.ratio))
        told.append(math.log(one.high / one.low) / 2 / 1.98)  # Student's quantile of 119
    assert np.mean(told) == pytest.approx(
        np.std(logs), rel=0.3
    )  # a spread from 60 draws is known to 9 %


def test_models_are_cut_to_the_same_prompts_and_outputs():
    first = dp.Samples(np.arange(12.0).reshape(6, 2), np.repeat([1, 2, 3], [3, 2, 1]))
    second = dp.Samples(np.arange(12.0).reshape(6, 2) + 0.5, np.repeat([2, 1, 4], [3, 2, 1]))
    found = dp.compare({"one": first, "two": second}, kernel_x=dp.Gaussian(1.0))
    assert {model: result.data["n"] for model, result in found.results.items()} == {
        "one": 4,
        "two": 4,
    }
    left_out, prompts = found.notes[:2]
    assert left_out.text.endswith("so some are left out: used are 4 of 6 of one, 4 of 6 of two")
    assert prompts.text == ("2 of 4 prompts left out, because some models have no outputs for them")
    assert {note.severity for note in found.notes} == {"note"}


def test_one_note_counts_the_outputs_of_many_models():
    t = np.repeat(np.arange(12), 2)
    models = {"short": dp.Samples(np.eye(24)[::2], t[::2])}
    models |= {f"long{i}": dp.Samples(np.eye(24), t) for i in range(6)}
    notes = dp.compare(models, kernel_x=dp.Gaussian(1.0), num_permutations=0).notes
    (note,) = [note for note in notes if note.code == "outputs-left-out"]
    assert note.text.endswith("12 of 24 of long2, and so on for 3 more models")


def test_equal_models_tie_and_unequal_ones_do_not():
    generator = np.random.default_rng(0)
    models = two_models(generator, spread=(0.6, 0.6, 2.0))
    found = dp.compare(models, **KERNELS)
    assert found.ranks["model2"] == (1, 1)
    assert found.ranks["model0"] == found.ranks["model1"] == (2, 3)
    assert [one.clear for one in found.differences] == [True, True, False]


def test_the_settings_of_a_comparison_reproduce_its_results():
    models = {
        name: dp.Samples(one.outputs, np.repeat(np.arange(30), 4))
        for name, one in two_models(np.random.default_rng(0)).items()
    }
    found = dp.compare(models)
    assert found.results["model0"].settings.bandwidth_rule == dp.DistinctPrompts()
    again = dp.evaluate(models["model0"], settings=found.results["model0"].settings)
    assert (
        again.scores["conditional_vendi"].value
        == found.results["model0"].scores["conditional_vendi"].value
    )
    assert again.intervals == found.results["model0"].intervals


def test_the_order_of_models_and_rows_does_not_matter():
    models = two_models(np.random.default_rng(0))
    shuffled = {}
    for name, one in reversed(models.items()):
        order = np.random.default_rng(1).permutation(len(one))
        shuffled[name] = one.select(order.tolist())
    first, second = dp.compare(models, **KERNELS), dp.compare(shuffled, **KERNELS)
    for name in models:
        assert float(first.results[name].vendi) == pytest.approx(float(second.results[name].vendi))
    assert first.differences[0].ratio == pytest.approx(second.differences[0].ratio)


def test_a_generator_of_random_numbers_keeps_the_pairing():
    """Models whose parts were dealt out separately would lose what cancels between them."""
    models = two_models(np.random.default_rng(0))
    first = dp.compare(models, **KERNELS, rng=np.random.default_rng(5))
    second = dp.compare(models, **KERNELS, rng=check_seed(np.random.default_rng(5)))
    assert first.differences == second.differences


def test_ratios_of_three_models_multiply():
    found = dp.compare(two_models(np.random.default_rng(0), spread=(0.5, 0.7, 1.0)), **KERNELS)
    ratios = {(one.first, one.second): one.ratio for one in found.differences}
    best, middle, worst = found.results
    assert ratios[best, worst] == pytest.approx(ratios[best, middle] * ratios[middle, worst])
    assert all(one.ratio >= 1 for one in found.differences)  # the higher score comes first


def test_a_model_against_itself_is_a_tie_without_doubt():
    model = two_models(np.random.default_rng(0))["model0"]
    (one,) = dp.compare({"once": model, "again": model}, **KERNELS).differences
    assert (one.ratio, one.low, one.high, one.clear) == (1.0, 1.0, 1.0, False)
    assert (one.p_value, one.standard_error) == (1.0, 0.0)


@pytest.mark.parametrize("spread", [(0.8, 1.0), (0.97, 1.0)])
def test_an_interval_at_the_level_of_the_p_value_ends_at_one(spread):
    """The p-value is the level at which the interval just reaches a ratio of 1."""
    models = two_models(np.random.default_rng(0), spread=spread)
    (one,) = dp.compare(models, **KERNELS).differences
    assert (one.p_value < 0.05) == one.clear
    (at_its_level,) = dp.compare(models, **KERNELS, interval=1 - one.p_value).differences
    assert min(at_its_level.low, at_its_level.high) == pytest.approx(1.0, abs=1e-6)
    assert at_its_level.p_value == one.p_value


@pytest.mark.parametrize(
    "by",
    [
        "vendi",
        "conditional_vendi",
        "information_vendi",
        "rke",
        "conditional_rke",
        "information_rke",
    ],
)
def test_units_of_measurement_do_not_matter(by):
    models = two_models(np.random.default_rng(0))
    thousand = {name: dp.Samples(1000 * one.outputs, one.prompts) for name, one in models.items()}
    first = dp.compare(models, **KERNELS, by=by)
    second = dp.compare(thousand, kernel_x=dp.Gaussian(800.0), kernel_t=KERNELS["kernel_t"], by=by)
    assert (first.score, first.ranks) == (by, second.ranks)
    for one, two in zip(first.differences, second.differences, strict=True):
        assert (one.ratio, one.low, one.high) == pytest.approx((two.ratio, two.low, two.high))


def test_prompts_decide_the_interval_and_not_their_copies():
    """Every output twice adds no prompt, so at order 2 the error of the difference stays."""
    models = two_models(np.random.default_rng(0))
    double = {
        name: one.select([*range(len(one)), *range(len(one))]) for name, one in models.items()
    }
    (once,), (twice,) = (
        dp.compare(made, **KERNELS, by="conditional_rke").differences for made in (models, double)
    )
    assert (once.low, once.high) == pytest.approx((twice.low, twice.high))


PAIRS = dp.Samples(np.eye(2), np.arange(2))


@pytest.mark.parametrize(
    ("models", "settings", "error", "message"),
    [
        (
            {"one": dp.Samples(np.eye(2), np.arange(2))},
            {},
            dp.DataError,
            "needs at least two models; got 1",
        ),
        (
            {"a": dp.Samples(np.eye(2)), "b": dp.Samples(np.eye(2))},
            {},
            dp.DataError,
            "holds no prompts",
        ),
        (
            {
                "a": dp.Samples(np.eye(2), np.arange(2)),
                "b": dp.Samples(np.eye(2), np.arange(2) + 5),
            },
            {},
            dp.DataError,
            "no prompt in common",
        ),
        (
            {
                "a": dp.Samples(np.eye(2), np.arange(2)),
                "b": dp.Samples(np.eye(3)[:2], np.arange(2)),
            },
            {},
            dp.DataError,
            "differ in width",
        ),
        (
            {"a": dp.Samples(np.eye(2), np.arange(2))},
            {"by": "size"},
            dp.ArgumentError,
            "`by` must be one of vendi",
        ),
        (
            {"a": PAIRS, "b": PAIRS},
            {"weights": np.ones(2) / 2},
            TypeError,
            r"compare\(\) got an unexpected keyword argument 'weights'",
        ),
        (
            {"a": PAIRS, "b": PAIRS},
            {"labels": [0, 1]},
            TypeError,
            r"compare\(\) got an unexpected keyword argument 'labels'",
        ),
        (
            {"a": PAIRS, "b": PAIRS},
            {"interval": 95},
            dp.ArgumentError,
            "`interval` must be a level between 0 and 1",
        ),
        (
            {"a": PAIRS, "b": PAIRS},
            {"kernel_x": dp.Precomputed()},
            dp.ArgumentError,
            r"`kernel_x` is Precomputed\(\), and",
        ),
        (
            {"a": PAIRS, "b": PAIRS},
            {"unit": "word"},
            dp.ArgumentError,
            "`unit` must be pair or prompt; got 'word'",
        ),
        (
            {"a": PAIRS, "b": dp.Samples(texts(["p", "q"]), np.arange(2))},
            {},
            dp.DataError,
            "some of the models are vectors",
        ),
        (
            {"a": PAIRS, "b": dp.Samples(np.eye(4)[:, :2], np.arange(4) % 2, ("a", "a", "c", "c"))},
            {},
            dp.DataError,
            "two of the models are called 'a'",
        ),
    ],
)
def test_refusals(models, settings, error, message):
    with pytest.raises(error, match=message):
        dp.compare(models, **settings)


def test_a_ranking_by_exact_prompts_needs_prompts_that_repeat():
    rng = np.random.default_rng(0)
    t = rng.standard_normal((12, 3))
    models = {name: dp.Samples(rng.standard_normal((12, 3)), t) for name in ("a", "b")}
    with pytest.raises(dp.DataError, match="every prompt has one output, so per_prompt_vendi"):
        dp.compare(models, by="per_prompt_vendi")


def test_equal_models_have_no_order_that_could_hold():
    model = two_models(np.random.default_rng(0))["model0"]
    found = repr(dp.compare({"once": model, "again": model}, **KERNELS))
    assert "order holds" not in found
    assert "all models have the same score, so there is no order" in found


def test_names_of_models_may_be_numbers():
    first, second = two_models(np.random.default_rng(0)).values()
    found = dp.compare({1: first, 2: second}, **KERNELS)
    assert set(found.results) == {"1", "2"} and "conditional" in repr(found)
    both = np.concatenate([first.outputs, second.outputs])
    prompts = np.concatenate([first.prompts, second.prompts])
    samples = dp.Samples(both, prompts, (1,) * len(first) + (2,) * len(second))
    assert repr(dp.compare(samples, **KERNELS)) == repr(found)
    with pytest.raises(dp.DataError, match="two of the models are called '1'"):
        dp.compare({1: first, "1": second}, **KERNELS)


def test_tensors_with_gradients_are_compared():
    torch = pytest.importorskip("torch")
    first, second = two_models(np.random.default_rng(0)).values()
    tensor = torch.tensor(first.outputs, requires_grad=True)
    models = {"one": dp.Samples(tensor, first.prompts), "other": second}
    plain = dp.compare({"one": first, "other": second}, **KERNELS)
    assert dp.compare(models, **KERNELS).differences == plain.differences


@pytest.mark.parametrize("container", [tuple, list])
def test_samples_take_plain_strings_and_numbers(container):
    x = np.random.default_rng(0).standard_normal((24, 3))
    names = [f"prompt {index // 2}" for index in range(24)]
    expected = dp.Samples(x, texts(names))
    models = {"a": dp.Samples(x, container(names)), "b": dp.Samples(2 * x, container(names))}
    others = {"a": expected, "b": dp.Samples(2 * x, texts(names))}
    options = {"kernel_x": dp.Gaussian(1.0), "num_permutations": 0}
    assert dp.compare(models, **options).differences == dp.compare(others, **options).differences
    mixed = (*texts(names[:23]), names[23])
    found = dp.evaluate(dp.Samples(x, mixed), **options)
    assert float(found.vendi) == float(dp.evaluate(expected, **options).vendi)
    ids = dp.Samples(x.tolist(), container(range(24)))
    assert float(dp.evaluate(ids, **options).vendi) == pytest.approx(float(found.vendi))


def test_prompts_of_many_models_are_not_compared_in_all_pairs(monkeypatch):
    pairs = []
    monkeypatch.setattr(
        matching, "combinations", lambda models, size: pairs.append(len(models)) or [("a", "b")]
    )
    prompts = {f"model {number}": {number} for number in range(900)}
    prompts |= {"a": {1, 2, 3}, "b": {2, 3, 4}}
    assert "such as a and b, which share 2" in matching._most_in_common(prompts)
    assert pairs == [100]


def test_names_of_sources_differ_where_one_is_inside_the_other():
    assert differing_names(["runs", "runs/a"]) == ["runs", "runs/a"]
    assert differing_names(["runs/a/b.csv", "runs"]) == ["runs/a/b.csv", "runs"]
    assert differing_names(["/", "/runs"]) == ["/", "runs"]


def test_two_spellings_of_one_source_have_one_name():
    assert differing_names(["a.jsonl", "./a.jsonl"]) == ["a.jsonl", "a.jsonl"]
