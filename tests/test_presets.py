"""Presets of the papers, and rows scaled to norm one."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command_line import run

import divprism as dp
from divprism.embedders import Function
from divprism.errors import ArgumentError, DataError
from divprism.scores.presets import PRESETS

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 6))
T = np.repeat(RNG.normal(size=(10, 4)), 4, axis=0)
TEXTS = [f"answer {index % 7}" for index in range(24)]
QUESTIONS = [f"question {index % 6}" for index in range(24)]


def vectors_of(width: int, scale: float = 1.0) -> object:
    """A function that gives every text its own vector."""

    def embed(items: list[str]) -> np.ndarray:
        seeds = [sum(map(ord, item)) for item in items]
        rows = [np.random.default_rng(seed).normal(size=width) for seed in seeds]
        return scale * np.array(rows)

    return embed


def codes(result: object) -> set[str]:
    return {notice.code for notice in result.warnings}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_truncates_as_its_paper_does(name: str) -> None:
    result = dp.evaluate(X, T, preset=name)
    assert result.settings.truncation == 10_000
    assert result.settings.preset == name
    assert "preset-not-truncated" in codes(result)


def test_vectors_of_unknown_origin_get_the_rule_of_the_papers_and_a_warning() -> None:
    result = dp.evaluate(X, T, preset="conditional-vendi")
    assert result.settings.bandwidth_rule == dp.StableScore()
    expected = dp.evaluate(X, T, bandwidth_rule=dp.StableScore())
    assert float(result.conditional_vendi) == float(expected.conditional_vendi)
    assert "preset-not-of-paper" in codes(result)
    score = dp.conditional_vendi(X, T, preset="conditional-vendi")
    assert float(score) == pytest.approx(float(result.conditional_vendi), rel=1e-12)


def test_the_functions_of_scores_warn_as_evaluate_does() -> None:
    option = {"preset": "conditional-vendi"}
    both, prompts = (X, T), (T,)
    calls = {
        dp.vendi: (X,),
        dp.rke: (X,),
        dp.prompt_vendi: prompts,
        dp.conditional_vendi: both,
        dp.information_rke: both,
        dp.per_prompt_vendi: both,
    }
    for function, data in calls.items():
        score = function(*data, **option)
        assert codes(score) == {"preset-not-of-paper", "preset-not-truncated"}, function
    # Beside these, `evaluate` warns about the data.
    warned = dp.evaluate(*both, **option).warnings
    assert set(dp.conditional_vendi(*both, **option).warnings) <= set(warned)
    given = {"kernel": dp.Gaussian(2.0), "truncation": 20}
    assert not dp.vendi(X, **option, **given).warnings
    assert "outputs" not in dp.prompt_vendi(T, **option).warnings[0].text


@pytest.mark.parametrize(
    ("preset", "label", "width", "bandwidth"),
    [
        ("conditional-vendi", "dinov2", 768, 25.0),
        ("conditional-vendi", "i3d", 1024, 15.0),
        ("truncated-vendi", "dinov2", 768, 35.0),
        ("truncated-vendi", "i3d", 1024, 4.0),
        ("truncated-vendi", "swav", 2048, 1.0),
        ("truncated-vendi", "text-embedding-3-large", 3072, 0.6),
        ("conditional-vendi", "dinov2", 384, None),
        ("conditional-vendi", "dinov2-frames", 768, None),
    ],
)
def test_vectors_of_the_paper_get_its_bandwidth(
    preset: str, label: str, width: int, bandwidth: float | None
) -> None:
    embedder = Function(vectors_of(width), modality="text", label=label)
    result = dp.evaluate(TEXTS, preset=preset, embedder_x=embedder, cache=False)
    if bandwidth is None:
        assert result.settings.bandwidth_rule == dp.StableScore()
    else:
        assert result.settings.kernel_x == dp.Gaussian(bandwidth)
        assert result.settings.bandwidth_rule is None
        assert "preset-not-of-paper" not in codes(result)


def test_a_bandwidth_for_unit_norm_scales_its_side_only() -> None:
    images = Function(vectors_of(768, 30.0), modality="text", label="dinov2")
    prompts = Function(vectors_of(256, 10.0), modality="text", label="gemini-embedding")
    options = {"embedder_x": images, "embedder_t": prompts, "cache": False}
    result = dp.evaluate(TEXTS, QUESTIONS, preset="conditional-vendi", **options)
    settings = result.settings
    assert (settings.kernel_x, settings.kernel_t) == (dp.Gaussian(25.0), dp.Gaussian(0.3))
    assert (settings.normalize_x, settings.normalize_t) == (False, True)
    norms = np.linalg.norm(result.samples.prompts, axis=1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-12)
    again = dp.evaluate(TEXTS, QUESTIONS, settings=settings, **options)
    assert {name: float(score) for name, score in again.scores.items()} == {
        name: float(score) for name, score in result.scores.items()
    }
    assert again.settings == settings


def test_arguments_override_a_preset() -> None:
    result = dp.evaluate(
        X,
        T,
        preset="truncated-vendi",
        truncation=7,
        kernel_x=dp.Gaussian(2.0),
        bandwidth_rule=dp.MedianDistance(),
    )
    assert result.settings.truncation == 7
    assert result.settings.kernel_x == dp.Gaussian(2.0)
    assert result.settings.bandwidth_rule == dp.MedianDistance()
    assert not codes(result) & {"preset-not-of-paper", "preset-not-truncated"}


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`preset` must be one of conditional-vendi, truncated"):
        dp.evaluate(X, T, preset="vendi")


def test_settings_with_a_preset_survive_their_plain_form() -> None:
    settings = dp.Settings(preset="truncated-vendi", normalize_t=True)
    assert dp.Settings.from_dict(settings.to_dict()) == settings
    assert dp.evaluate(X, T, settings=settings).settings.truncation == 10_000


def test_normalized_rows_are_scored_as_rows_of_norm_one() -> None:
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, T)]
    expected = dp.evaluate(*unit)
    result = dp.evaluate(X, T, normalize=True)
    for name, score in result.scores.items():
        assert float(score) == pytest.approx(float(expected.scores[name]), rel=1e-9)
    assert (result.settings.normalize_x, result.settings.normalize_t) == (True, True)
    scaled = dp.vendi(5 * X, normalize=True, kernel=dp.Gaussian(0.5))
    assert float(scaled) == pytest.approx(float(dp.vendi(unit[0], kernel=dp.Gaussian(0.5))))
    prompts = dp.prompt_vendi(T, normalize=True, kernel=dp.Gaussian(0.5))
    assert float(prompts) == pytest.approx(float(dp.vendi(unit[1], kernel=dp.Gaussian(0.5))))


def test_ids_are_not_normalized() -> None:
    result = dp.evaluate(X, np.arange(40) // 4, normalize=True)
    assert (result.settings.normalize_x, result.settings.normalize_t) == (True, False)


def test_rows_of_zeros_cannot_be_normalized() -> None:
    x = X.copy()
    x[[3, 8]] = 0
    with pytest.raises(DataError, match="2 of 40 rows of `x` are all zeros"):
        dp.evaluate(x, T, normalize=True)
    with pytest.raises(ArgumentError, match="`normalize` must be True or False"):
        dp.evaluate(X, T, normalize="x")
    with pytest.raises(ArgumentError, match="precomputed kernel has none"):
        dp.vendi(np.eye(4), kernel=dp.Precomputed(), normalize=True)


def test_every_analysis_takes_a_preset_and_normalizes() -> None:
    options = {"preset": "conditional-vendi", "normalize": True}
    samples = dp.Samples(X, T)
    for analysis in (dp.converge, dp.prompt_groups, dp.bandwidth_sweep):
        assert "preset-not-of-paper" in codes(analysis(samples, **options))
    assert dp.converge(samples, **options).settings.normalize_x
    assert dp.prompt_groups(samples, **options).settings.preset == "conditional-vendi"
    assert dp.bandwidth_sweep(samples, **options).to_dict()["settings"]["normalize_t"]
    comparison = dp.compare({"a": samples, "b": replace(samples, outputs=2 * X)}, **options)
    assert "preset-not-of-paper" in codes(comparison)
    scores = [result.conditional_vendi for result in comparison.results.values()]
    assert float(scores[0]) == pytest.approx(float(scores[1]), rel=1e-9)
    assert dp.shuffled_baseline(3 * X, T, **options).baseline == pytest.approx(
        dp.shuffled_baseline(X, T, **options).baseline
    )


def test_flags_set_a_preset_and_a_result_repeats_it(tmp_path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "t.npy", T)
    source = [str(tmp_path / "x.npy"), "--prompts", str(tmp_path / "t.npy"), "--format", "json"]
    first = run("score", *source, "--preset", "conditional-vendi", "--normalize-t")
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    settings = document["settings"]
    assert settings["preset"] == "conditional-vendi"
    assert (settings["normalize_x"], settings["normalize_t"]) == (False, True)
    assert settings["truncation"] == 10_000
    assert settings["bandwidth_rule"].startswith("stable")
    assert b"warning: preset-not-of-paper" in first.stderr
    (tmp_path / "first.json").write_bytes(first.stdout)
    again = run("score", *source, "--config", str(tmp_path / "first.json"))
    repeated = json.loads(again.stdout)
    assert repeated["scores"] == document["scores"]
    assert repeated["settings"]["preset"] == "conditional-vendi"
    other = run("score", *source, "--config", str(tmp_path / "first.json"), "--truncation", "9")
    assert json.loads(other.stdout)["settings"]["truncation"] == 9


def test_a_config_sets_a_preset_and_nothing_that_is_not_one(tmp_path) -> None:
    np.save(tmp_path / "x.npy", X)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"preset": "truncated-vendi", "normalize": True}))
    line = ["score", str(tmp_path / "x.npy"), "--config", str(config), "--format", "json"]
    settings = json.loads(run(*line).stdout)["settings"]
    assert (settings["preset"], settings["normalize_x"]) == ("truncated-vendi", True)
    for wrong in ({"preset": "mine"}, {"normalize": "yes"}, {"normalize_x": 1}):
        config.write_text(json.dumps(wrong))
        refused = run(*line)
        assert refused.returncode == 2
        assert refused.stderr.count(b"\n") == 1
