"""The Pareto front: points made by hand, and dominance that is called clear only where it is."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import divprism as dp
from divprism.analysis.model_ratios import Difference
from divprism.analysis.pareto_front import front_of
from divprism.errors import DataError
from divprism.report.details import report_page

AXES = ("quality", "conditional_vendi")


def by_hand(values, clear=()):
    """The front of models with given values; `clear` names pairs that differ clearly, by axis."""
    results = {}
    for model, pair in values.items():
        scores = {
            name: SimpleNamespace(value=value) for name, value in zip(AXES, pair, strict=True)
        }
        settings = SimpleNamespace(interval=0.95)
        results[model] = SimpleNamespace(scores=scores, intervals={}, settings=settings)
    differences = {name: [] for name in AXES}
    models = list(values)
    for index, name in enumerate(AXES):
        for one in models:
            for other in models[models.index(one) + 1 :]:
                ratio = values[one][index] / values[other][index]
                reach = 1.001 if (one, other, name) in clear else 100.0
                difference = Difference(one, other, ratio, ratio / reach, ratio * reach)
                differences[name].append(difference)
    return front_of(results, differences, is_paired=True)


def test_the_front_of_points_made_by_hand():
    points = {"a": (1, 4), "b": (2, 3), "c": (3, 1), "d": (1, 3), "e": (2, 1)}
    front = by_hand(points)
    assert front.models == ("c", "b", "a")
    below = {point.model: set(point.dominated_by) for point in front.points}
    assert below == {"a": set(), "b": set(), "c": set(), "d": {"a", "b"}, "e": {"b", "c"}}
    assert [point.model for point in front.points] == ["c", "b", "e", "a", "d"]


def test_equal_models_are_both_on_the_front():
    front = by_hand({"a": (1, 2), "b": (1, 2 * (1 + 1e-9))})
    assert set(front.models) == {"a", "b"}


def test_a_model_is_clearly_dominated_only_where_both_differences_are_clear():
    points = {"a": (2, 2), "b": (1, 1)}
    quality, diversity = ("a", "b", "quality"), ("a", "b", "conditional_vendi")
    for clear, standing in (
        ((), "open"),
        ((quality,), "open"),
        ((diversity,), "open"),
        ((quality, diversity), "dominated"),
    ):
        [_, below] = by_hand(points, clear).points
        assert below.standing == standing and below.dominated_by == ("a",)
        assert below.clearly_dominated_by == (("a",) if standing == "dominated" else ())


def test_a_difference_that_is_none_for_certain_does_not_stand_in_the_way():
    points = {"a": (2, 2), "b": (2, 1)}
    clear = (("a", "b", "quality"), ("a", "b", "conditional_vendi"))
    results = by_hand(points, clear[1:])
    assert results.points[-1].standing == "open"  # quality may be lower
    # An interval of 1 to 1: the same quality for every output.
    same = [Difference("a", "b", 1.0, 1.0, 1.0)]
    other = [Difference("a", "b", 2.0, 1.9, 2.1)]
    scored = {
        model: SimpleNamespace(
            scores={name: SimpleNamespace(value=v) for name, v in zip(AXES, pair, strict=True)},
            intervals={},
            settings=SimpleNamespace(interval=0.95),
        )
        for model, pair in points.items()
    }
    front = front_of(scored, dict(zip(AXES, (same, other), strict=True)), is_paired=True)
    assert front.points[-1].clearly_dominated_by == ("a",)


def models(spread=0.1, prompts=40):
    """Rated models, of which "dull" is below "free" in both; the others are on the front."""
    t, rng = np.repeat(np.arange(prompts), 2), np.random.default_rng(0)
    free, fixed = np.eye(2 * prompts), np.eye(2 * prompts)[t]
    outputs = {"good": fixed, "free": free, "dull": fixed}
    made = {}
    for name, mean in {"good": 0.9, "free": 0.6, "dull": 0.4}.items():
        q = mean + rng.uniform(-spread, spread, t.size)
        made[name] = dp.Samples(outputs[name], t, quality=q)
    return made


@pytest.fixture(scope="module")
def comparison():
    return dp.compare(models(), kernel_x=dp.Cosine(), num_permutations=0)


def test_a_comparison_has_a_front_by_its_paired_differences(comparison):
    front = dp.pareto(comparison)
    assert front.is_paired and front.models == ("good", "free")
    assert front.points[-1].clearly_dominated_by == ("free", "good")
    assert comparison.front.to_dict() == front.to_dict()
    assert dp.pareto(comparison, diversity="per_prompt_vendi").models == front.models


def test_pairing_by_prompt_makes_more_differences_clear():
    """Quality that depends on the prompt: the same for both models, but for a small step."""
    rng = np.random.default_rng(0)
    t, level = np.repeat(np.arange(40), 2), np.repeat(rng.uniform(1, 3, 40), 2)
    free, fixed = np.eye(80), np.eye(80)[t]
    made = {
        "up": dp.Samples(free, t, quality=level + 0.2),
        "down": dp.Samples(fixed, t, quality=level),
    }
    given = {"kernel_x": dp.Cosine(), "num_permutations": 0}
    paired = dp.pareto(dp.compare(made, **given))
    assert paired.points[-1].clearly_dominated_by == ("up",)
    joined = dp.Samples(
        np.concatenate([part.outputs for part in made.values()]),
        np.tile(t, 2),
        np.repeat(list(made), 80),
        quality=np.concatenate([part.quality for part in made.values()]),
    )
    apart = dp.pareto(dp.evaluate_models(joined, interval=0.95, **given))
    assert not apart.is_paired and apart.points[-1].standing == "open"
    without = dp.pareto(dp.evaluate_models(joined, **given))
    assert without.level is None and without.points[-1].standing == "open"


def test_the_order_of_the_models_does_not_matter(comparison):
    reversed_models = dict(reversed(models().items()))
    again = dp.compare(reversed_models, kernel_x=dp.Cosine(), num_permutations=0)
    one, other = dp.pareto(comparison), dp.pareto(again)
    standing = {point.model: point.standing for point in one.points}
    assert {point.model: point.standing for point in other.points} == standing


def test_a_front_prints_saves_and_becomes_a_frame(comparison, tmp_path):
    front = dp.pareto(comparison)
    assert "dull" in repr(front) and "paired by prompt" in repr(front)
    assert len(front.to_frame()) == 3
    front.save(tmp_path / "front.json")
    assert json.loads((tmp_path / "front.json").read_text()) == front.to_dict()
    assert "<table" in front._repr_html_()


def test_without_intervals_the_table_does_not_speak_of_them():
    parts = models()
    names = [name for name, part in parts.items() for _ in range(len(part))]
    pooled = dp.Samples(
        np.concatenate([part.outputs for part in parts.values()]),
        np.concatenate([part.prompts for part in parts.values()]),
        names,
        quality=np.concatenate([part.quality for part in parts.values()]),
    )
    front = dp.pareto(dp.evaluate_models(pooled, kernel_x=dp.Cosine(), interval=None))
    assert front.level is None and not front.is_paired
    text = " ".join(repr(front).split())
    assert "without intervals no difference is clear: pass `interval`" in text
    assert "separate intervals" not in text


def test_no_label_of_the_plot_covers_another_or_a_point():
    rng = np.random.default_rng(0)
    points = {}
    for index, (q, d) in enumerate(rng.uniform(1, 2, (16, 2))):
        points[f"a model with a long name {index}"] = (q, d)
    figure, ax = by_hand(points).plot()
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 16
    for index, box in enumerate(boxes):
        for other in boxes[index + 1 :]:
            width = min(box.x1, other.x1) - max(box.x0, other.x0)
            height = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(width, height) <= 1  # of a pixel
        for point in points.values():
            x, y = ax.transData.transform(point)
            assert not (box.x0 < x < box.x1 and box.y0 < y < box.y1)
    steps = ax.lines[-1].get_xydata()
    assert (np.diff(steps[:, 1]) <= 0).all()


def test_a_damaged_front_is_refused(comparison):
    for change, problem in (
        (lambda front: front["points"].pop(), "with each model of the result once"),
        (lambda front: front.update(diversity="size"), "a score"),
        (lambda front: front["points"][0].update(quality=0.0), "must be a number from"),
        (lambda front: front["points"][0].update(dominated_by=["none"]), "about other models"),
        (lambda front: front["points"][0].update(quality_interval=[1.0, 2.0, 3.0]), "two ends"),
        (lambda front: front["points"][0].update(quality_interval=[2.0, 1.0]), "two ends"),
        (lambda front: front.update(quality="vendi"), "a score of the quality"),
        (lambda front: front.update(diversity="quality"), "that counts distinct outputs"),
        (lambda front: front["points"][0].update(quality=0.123), "the score of its model"),
        (lambda front: front.update(diversity="vendi"), "the score of its model"),
        (lambda front: front["points"][0].update(standing="open"), "must be 'front'; got 'open'"),
        (
            lambda front: front["points"][0].update(dominated_by=[front["points"][0]["model"]]),
            "about other models",
        ),
    ):
        document = json.loads(comparison.to_json())
        change(document["front"])
        with pytest.raises(DataError, match=problem):
            report_page(document)


def test_what_has_no_front_is_refused(comparison):
    plain = dp.compare(
        {name: dp.Samples(part.outputs, part.prompts) for name, part in models().items()},
        kernel_x=dp.Cosine(),
        num_permutations=0,
    )
    assert plain.front is None and "front" not in plain.to_dict()
    for given, message in (
        ((plain, {}), "has no quality, which needs a quality of each output: pass `quality`"),
        ((np.eye(3), {}), "must be what compare or evaluate_models return; got a ndarray"),
        ((comparison, {"diversity": "quality"}), "`diversity` must be one of vendi, cond"),
        (
            (comparison, {"diversity": 3}),
            "`diversity` must be one of vendi, conditional_vendi, p",
        ),
        ((comparison, {"quality": "vendi"}), "`quality` must be one of quality, quality_c"),
        ((comparison, {"quality": "stars"}), "`quality` must be one of quality, quality_c"),
    ):
        with pytest.raises(dp.ArgumentError, match=message):
            dp.pareto(given[0], **given[1])
