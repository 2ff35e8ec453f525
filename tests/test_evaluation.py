"""evaluate, its result, the cluster scores, bandwidths and settings."""

import json
import math

import numpy as np
import pytest
import reference
from sample_files import jsonl, records

import divprism as dp
from divprism.data import toy
from divprism.engines.threads import Caller
from divprism.scores import registry


def test_settings_fed_back_give_the_same_bits(pairs):
    first = dp.evaluate(*pairs, order=1.5, truncation=9)
    again = dp.evaluate(*pairs, settings=first.settings)
    assert [float(score) for score in again.scores.values()] == [
        float(score) for score in first.scores.values()
    ]
    for name in ("conditional_vendi", "information_rke"):
        score = first.scores[name]
        again = getattr(dp, name)(*pairs, settings=score.settings)
        assert float(again) == pytest.approx(float(score), rel=1e-14)
    for name in ("vendi", "rke"):
        score = first.scores[name]
        again = getattr(dp, name)(pairs[0], settings=score.settings)
        assert float(again) == pytest.approx(float(score), rel=1e-14)


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_fourier_features_serve_data_whose_prompts_repeat(pairs, order):
    """Prompts compared as ids have no Fourier features; their scores are exact."""
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0), "order": order}
    found = dp.evaluate(*pairs, estimator=dp.Fourier(512), **kernels)
    right = dp.evaluate(*pairs, **kernels)
    assert found.settings.estimator == dp.Fourier(512)
    assert found.per_prompt_vendi == pytest.approx(right.per_prompt_vendi, rel=1e-9)
    assert found.vendi == pytest.approx(right.vendi, rel=0.1)  # 512 random frequencies


def test_the_rule_and_the_number_are_recorded(pairs):
    rule = dp.DistinctPrompts()
    found = dp.evaluate(*pairs)
    assert found.settings.bandwidth_rule == rule
    assert found.settings.kernel_x.bandwidth == rule.bandwidth(pairs[0])
    assert found.settings.kernel_t.bandwidth == rule.prompt_bandwidth(pairs[1])
    given = dp.evaluate(*pairs, kernel_x=dp.Gaussian(1.0), kernel_t=dp.Cosine())
    assert given.settings.bandwidth_rule is None


def test_the_median_distance_is_that_of_distinct_rows(pairs, library):
    x = np.unique(pairs[0], axis=0)
    gaps = np.linalg.norm(x[:, None] - x, axis=2)[np.triu_indices(len(x), 1)]
    rule = dp.MedianDistance()
    for data in (pairs[0], np.tile(pairs[0], (3, 1)), pairs[0] + 1e6):
        assert rule.bandwidth(library(data)) == pytest.approx(np.median(gaps), rel=1e-9)
    assert rule.bandwidth(library(np.ones((5, 2)))) == 1.0
    assert rule.bandwidth(library(pairs[0] * 1e-200)) == pytest.approx(
        1e-200 * np.median(gaps), rel=1e-9
    )


def test_the_document_is_json_with_finite_numbers(pairs):
    found = dp.evaluate(*pairs, order=math.inf)
    document = json.loads(
        found.to_json(), parse_constant=lambda name: pytest.fail(f"{name} in the document")
    )
    assert document["schema"] == 2
    assert document["settings"]["order"] == "inf"
    assert document["scores"]["vendi"]["value"] == found.vendi.value
    assert document["data"]["n"] == 60
    assert document["data"]["prompts"] == len(np.unique(pairs[1], axis=0))
    assert set(document) == {
        "schema",
        "scores",
        "baseline",
        "sensitivity",
        "data",
        "settings",
        "embedders",
        "runtime",
        "warnings",
    }


def test_the_hash_follows_the_data(pairs):
    x, t = pairs
    digest = dp.evaluate(x, t).data["hash"]
    assert dp.evaluate(np.asfortranarray(x), t).data["hash"] == digest
    assert dp.evaluate(x, t[::-1]).data["hash"] != digest
    assert dp.evaluate(x, list("ab" * 30)).data["hash"] != digest


def test_without_prompts_there_are_two_scores(pairs, library):
    found = dp.evaluate(library(pairs[0]))
    assert list(found.scores) == ["vendi", "rke"]
    assert found.conditional_vendi is None
    assert found.data["prompts"] is None
    json.loads(found.to_json())


TEXTS = ["a dog" if i % 2 else "a cat" for i in range(60)]


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_texts_are_embedded(kind, pairs):
    found = dp.evaluate(pairs[0], kind(TEXTS))
    vectors = dp.WordLlama().embed_batch(TEXTS)
    by_hand = dp.evaluate(pairs[0], vectors)
    assert {name: score.value for name, score in found.scores.items()} == {
        name: score.value for name, score in by_hand.scores.items()
    }
    assert found.settings.embedder_t == dp.WordLlama()
    assert found.settings.embedder_x is None
    (entry,) = found.to_dict()["embedders"]
    assert (entry["side"], entry["id"], entry["dimension"]) == ("t", "wordllama", 256)
    assert found.to_dict()["settings"]["embedder_t"] == "wordllama"
    again = dp.evaluate(pairs[0], TEXTS, settings=found.settings)
    assert again.to_dict()["scores"] == found.to_dict()["scores"]


def test_texts_on_both_sides_and_images():
    from PIL import Image

    found = dp.evaluate(
        TEXTS[:10], TEXTS[:10], kernel_x=dp.Gaussian(0.1), kernel_t=dp.Gaussian(0.1)
    )
    assert (found.data["outputs"], found.data["prompts"]) == (2, 2)
    assert [float(score) for score in (found.vendi, found.conditional_vendi)] == pytest.approx(
        [2, 1]
    )
    images = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "red")]
    found = dp.evaluate(images, ["a", "b", "a"])
    assert (found.data["outputs"], found.embedders[0]["id"]) == (2, "efficientnet-lite0")


def test_texts_are_ids_under_a_categorical_kernel(pairs):
    by_number = dp.evaluate(pairs[0], [i % 2 for i in range(60)])
    by_text = dp.evaluate(pairs[0], TEXTS, kernel_t=dp.Categorical())
    assert float(by_number.conditional_vendi) == pytest.approx(
        float(by_text.conditional_vendi), rel=1e-14
    )
    assert by_text.embedders == by_text.warnings == ()
    single = dp.conditional_vendi(pairs[0], TEXTS)  # a single score embeds nothing, and says so
    assert float(single) == pytest.approx(float(by_text.conditional_vendi), rel=1e-14)
    [notice] = single.warnings
    assert notice.code == "texts-as-ids"
    assert "equal texts count as the same prompt" in notice.text
    assert "use `evaluate`, which embeds texts" in notice.text


def test_empty_texts_are_skipped_and_counted():
    found = dp.evaluate(["a", " ", "b"], ["p", "p", "q"])
    assert (found.data["n"], found.data["skipped"]) == (2, 1)
    assert found.warnings[0].text.startswith("1 of 3 outputs was skipped")
    with pytest.raises(
        dp.DataError, match="1 output is empty and left out, so labels and weights do not fit"
    ):
        dp.evaluate(["a", " ", "b"], ["p", "p", "q"], labels=[1, 2, 3])
    with pytest.raises(dp.DataError, match="every output, or its prompt, is empty"):
        dp.evaluate(["", " "])


def test_texts_must_pair_up():
    with pytest.raises(dp.DataError, match="must pair up row by row; got 2 outputs and 3 prompts"):
        dp.evaluate(["a", "b"], ["p", "q", "r"])


def test_an_embedder_of_ones_own(pairs):
    seen = []

    def lengths(batch):
        seen.extend(batch)
        return [[len(text), 1.0] for text in batch]

    found = dp.evaluate(["a", "bb", "a"], embedder_x=lengths)
    assert sorted(seen) == ["a", "bb"]
    assert found.embedders[0]["id"] == "lengths"
    refusals = [
        (
            {"embedder_x": dp.EfficientNetLite0()},
            "`embedder_x` must embed texts, as the outputs are; efficientnet-lite0 embeds images",
        ),
        ({"embedder_t": dp.WordLlama()}, "`embedder_t` was given, but the prompts are missing"),
        ({"embedder_x": "wordllama"}, "`embedder_x` must be an embedder such as dp.WordLlama"),
        ({"cache": 3}, "`cache` must be a folder, a Cache, or False; got 3"),
    ]
    for arguments, message in refusals:
        with pytest.raises(dp.ArgumentError, match=message):
            dp.evaluate(["a", "b"], **arguments)
    with pytest.raises(
        dp.ArgumentError, match="`embedder_x` was given, but the outputs are vectors"
    ):
        dp.evaluate(pairs[0], embedder_x=dp.WordLlama())


def test_models_share_embedding_and_bandwidth(tmp_path):
    path = tmp_path / "o.jsonl"
    path.write_bytes(jsonl(records(("one", "two"))))
    results = dp.evaluate_models(path)
    assert list(results) == ["one", "two"]
    first, second = (result.to_dict() for result in results.values())
    assert first["settings"] == second["settings"]
    rule = "distinct(across=0.1, companions=4.0, widening=1.2, max_rows=2000)"
    assert first["settings"]["bandwidth_rule"] == rule
    assert (first["data"]["model"], second["data"]["model"]) == ("one", "two")
    alone = dp.evaluate(dp.load(path).by_model()["one"], settings=results["one"].settings)
    assert alone.to_dict()["scores"] == first["scores"]
    with pytest.raises(
        dp.DataError, match="contains outputs of 2 models, but an evaluation is of one model"
    ):
        dp.evaluate(path)
    with pytest.raises(dp.ArgumentError, match="`x` is Samples, which hold their own prompts"):
        dp.evaluate(dp.load(path), ["p"])
    with pytest.raises(
        dp.ArgumentError, match="`t` must be a path too if `x` is the path of a file or folder"
    ):
        dp.evaluate(path, ["p"])


@pytest.mark.parametrize("order", [0.5, 1, 2])
def test_models_solved_at_the_same_time_have_the_scores_of_one_after_the_other(order):
    """All of it: scores, intervals and baselines, of models that differ in size."""
    t = np.repeat(np.arange(40), 6)
    outputs = np.random.default_rng(3).standard_normal((len(t), 5))
    models = ["a"] * 100 + ["b"] * 80 + ["c"] * 60
    samples = dp.Samples(outputs, t, models=models)
    options = {"order": order, "interval": 0.95, "num_permutations": 19}
    together = dp.evaluate_models(samples, **options)
    # A given executor computes tiles, so the models wait for each other.
    alone = dp.evaluate_models(samples, engine=Caller(), **options)
    assert list(together) == list(alone) == ["a", "b", "c"]
    for model, one in alone.items():
        other = together[model]
        assert dict(other.scores) == pytest.approx(dict(one.scores), rel=1e-12)
        for name, interval in one.intervals.items():
            ends = (other.intervals[name].low, other.intervals[name].high)
            assert ends == pytest.approx((interval.low, interval.high), rel=1e-9)
        assert other.baseline.baseline == pytest.approx(one.baseline.baseline, rel=1e-12)


@pytest.mark.parametrize("order", [0.5, 1, 2, math.inf])
@pytest.mark.parametrize("truncation", [None, 4])
def test_cluster_scores_are_means_over_groups(order, truncation, pairs, library):
    x, _ = pairs
    labels = np.repeat([3, 1, 2], [30, 20, 10])
    kernel = dp.Gaussian(2.0)
    inside = [
        math.exp(reference.entropy(reference.gaussian(x[labels == g], 2.0), order, truncation))
        for g in (3, 1, 2)
    ]
    value = np.dot([30 / 60, 20 / 60, 10 / 60], inside)
    arguments = {"order": order, "truncation": truncation}
    found = dp.cluster_vendi(library(x), labels, kernel=kernel, **arguments)
    assert float(found) == pytest.approx(
        value, rel=1e-5 if order < 1 else 1e-9
    )  # below order 1 the reference has a floor
    names = [f"group {g}" for g in labels]
    both = dp.evaluate(library(x), None, names, kernel_x=kernel, **arguments)
    assert float(both.cluster_vendi) == pytest.approx(float(found), rel=1e-12)
    if order == 2:
        alone = dp.cluster_rke(library(x), labels, kernel=kernel, truncation=truncation)
        assert float(alone) == pytest.approx(value, rel=1e-9)
        assert alone.settings.kernel_x == kernel


def test_cluster_scores_weigh_groups_by_mass(pairs):
    x, _ = pairs
    labels = np.arange(60) // 30
    weights = np.r_[np.full(30, 0.9 / 30), np.full(30, 0.1 / 30)]
    inside = [float(dp.vendi(x[labels == g], kernel=dp.Gaussian(2.0))) for g in (0, 1)]
    found = dp.cluster_vendi(x, labels, kernel=dp.Gaussian(2.0), weights=weights)
    assert float(found) == pytest.approx(0.9 * inside[0] + 0.1 * inside[1], rel=1e-12)


def test_kmeans_finds_groups_that_are_apart(library):
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 20)
    t = 50 * np.eye(3)[truth] + rng.standard_normal((60, 3))
    labels = dp.kmeans_labels(library(t), 3, rng=np.random.default_rng(5))
    assert len(set(zip(labels, truth, strict=True))) == 3


def test_a_generator_is_recorded_as_a_seed(pairs):
    found = dp.evaluate(*pairs, rng=np.random.default_rng(7))
    assert found.settings.rng == int(np.random.default_rng(7).integers(2**63))


def test_a_score_is_a_float_with_a_name(pairs):
    score = dp.vendi(pairs[0], truncation=5)
    assert float(score) == score.value == pytest.approx(math.exp(score.entropy))
    assert score.standard_error == 0
    assert str(score) == f"vendi = {score.value:.4f} (order 1, truncation 5, n = 60, exact)"


@pytest.mark.parametrize(
    "kernel",
    [
        dp.Gaussian(2.5),
        dp.Cosine(),
        dp.Polynomial(np.int64(2), 0.5, 0.0),
        dp.Polynomial(2, np.float32(0.5)),
        dp.Categorical(),
    ],
)
def test_spelling_and_parsing_undo_each_other(kernel):
    assert registry.parse(registry.spell(kernel), registry.KERNELS, "kernel") == kernel


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("laplace", "there is no kernel 'laplace'; choose from categorical, cosine"),
        ("gaussian", r"kernel gaussian needs bandwidth, as in gaussian\(bandwidth=...\)"),
        ("cosine(width=3)", "kernel cosine has no setting 'width'; it takes no settings"),
        ("polynomial(degree=" + "9" * 500 + ")", "`degree` must be at most 1,000,000"),
        ("polynomial(degree=__import__('os'))", "cannot read the settings of kernel"),
        ("polynomial(3)", "cannot read the settings"),
        ("polynomial(degree=2)(offset=0.5)", "cannot read the settings"),
        ("polynomial(degree=2", "there is no kernel"),
        ("polynomial(degree=0)", "`degree` must be"),
    ],
)
def test_misspellings_are_refused(text, message):
    with pytest.raises(dp.ArgumentError, match=message):
        registry.parse(text, registry.KERNELS, "kernel")


@pytest.mark.parametrize("rng", [0, 1])
def test_toy_worlds_move_as_in_the_paper(rng):
    """Conditional Vendi, App. G, Fig. 11: which way the two factors go in either series."""
    kernels = {"kernel_x": dp.Gaussian(toy.BANDWIDTH), "kernel_t": dp.Gaussian(toy.BANDWIDTH)}

    def ends(series):
        first, last = (
            dp.evaluate(world.x, world.t, **kernels) for world in (series[0], series[-1])
        )
        return [(float(e.conditional_vendi), float(e.information_vendi)) for e in (first, last)]

    (conditional_1, information_1), (conditional_4, information_4) = ends(
        toy.text_series(n=400, rng=rng)
    )
    assert information_4 > 1.5 * information_1
    assert conditional_4 < conditional_1 / 1.5
    (conditional_2, information_2), (conditional_6, information_6) = ends(
        toy.image_series(n=400, rng=rng)
    )
    assert conditional_6 > 1.5 * conditional_2
    assert information_6 < information_2
