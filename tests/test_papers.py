"""The experiments of the papers: their registry, their runner, and those that need no model."""

import json
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("torch")
pytest.importorskip("diffusers")

from experiments.papers import __main__ as runner
from experiments.papers import captioning, class_counts, page, plots, video
from experiments.papers.base import (
    FAILS,
    HOLDS,
    PARTLY,
    UNTESTED,
    VERDICTS,
    Outcome,
    Request,
    but_not,
    experiments,
    is_saturated,
    judged,
    rounded,
)
from experiments.papers.captioning import BANDWIDTHS, Found
from experiments.papers.guidance import Gain
from experiments.papers.real import SOURCES
from experiments.papers.temperature import Curve
from experiments.papers.vendi_convergence import Panel

# Quick runs of these take a second; the others are run by `make papers QUICK=--quick`.
FAST = ("aggregation", "bounds-conditional", "fig11")


@pytest.fixture(scope="module")
def by_id():
    return {each.id: each for each in experiments()}


def test_every_experiment_states_its_claim_and_what_stands_in(by_id):
    for each in by_id.values():
        assert each.claim.endswith(".") and each.stand_in.endswith(".")
        assert any(word in each.shows for word in ("Fig", "Table", "Thm"))


@pytest.mark.parametrize("name", FAST)
def test_an_experiment_ends_in_a_verdict_a_table_and_a_figure(by_id, name, tmp_path):
    outcome = by_id[name].run(Request(quick=True))
    assert outcome.verdict in VERDICTS
    assert outcome.reason.endswith(".")
    assert outcome.table.rows
    outcome.figure.savefig(tmp_path / "figure.png")


def test_a_verdict_is_one_of_four(by_id):
    outcome = by_id["aggregation"].run(Request(quick=True))
    with pytest.raises(ValueError, match="no verdict"):
        Outcome("proves", outcome.reason, outcome.table, outcome.figure)


def _run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["papers", *arguments])
    runner.main()


def test_the_runner_prints_the_claim_and_the_verdict(monkeypatch, capsys, tmp_path):
    _run(monkeypatch, "run", "aggregation", "--quick", "--output", str(tmp_path))
    printed = capsys.readouterr().out
    assert "claim: Where prompts are in groups" in printed
    assert "HOLDS IN PART: At 7 widths of the groups" in printed
    assert (tmp_path / "aggregation.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "fig99"), "no experiment fig99"),
        (("run", "fig11", "--data", "."), "fig11 needs no models: it takes no --data."),
        (("run", "fig12", "fig11", "--data", "."), "--data is for one experiment."),
        (("run", "fig12", "--data", "nowhere"), "nowhere does not exist."),
        (("run", "fig11", "--write", "--quick"), "--write is for full runs on stand-ins"),
    ],
)
def test_the_runner_refuses_in_one_sentence(monkeypatch, capsys, arguments, message):
    with pytest.raises(SystemExit):
        _run(monkeypatch, *arguments)
    assert message in capsys.readouterr().err


def test_the_page_has_all_sections(monkeypatch, by_id, tmp_path):
    monkeypatch.setattr(page, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr(page, "FIGURES", tmp_path / "figures")
    page.PAGE.write_text(f"# Title\n\n{page.MARK}\nold results\n\n{page.REAL_MARK}\n\nreal\n")
    known = by_id["aggregation"]
    page.write_page([page.Finished(known, known.run(Request(quick=True)), 60.0)], quick=True)
    written = page.PAGE.read_text()
    assert written.startswith("# Title\n") and "old results" not in written
    assert written.endswith(f"{page.REAL_MARK}\n\nreal\n")
    assert (
        "| [aggregation](#aggregation) | Conditional Vendi | Thm 5-7 | holds in part |" in written
    )
    assert "with few samples" in written and "**Verdict: holds in part.**" in written
    assert (tmp_path / "figures" / "aggregation.png").exists()


def test_one_section_of_the_page_is_replaced(monkeypatch, by_id, tmp_path):
    monkeypatch.setattr(page, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr(page, "FIGURES", tmp_path / "figures")
    page.PAGE.write_text(f"# Title\n\n{page.MARK}\n\n{page.REAL_MARK}\n\nreal\n")
    every = [by_id[name] for name in FAST]
    finished = {each.id: page.Finished(each, each.run(Request(quick=True)), 1.0) for each in every}
    page.write_page(list(finished.values()), quick=True)
    written = page.PAGE.read_text()
    for name in FAST:
        page.write_section(finished[name])
        assert page.PAGE.read_text() == written
    old = finished["fig11"].outcome
    changed = Outcome(FAILS, "Nothing holds.", old.table, old.figure)
    page.write_section(page.Finished(by_id["fig11"], changed, 1.0))
    rewritten = page.PAGE.read_text()
    assert "**Verdict: does not hold.** Nothing holds." in rewritten
    assert "| Fig. 11 | does not hold |" in rewritten
    assert (
        rewritten.replace("does not hold", old.verdict).replace("Nothing holds.", old.reason)
        == written
    )
    with pytest.raises(SystemExit, match="no section psi"):
        page.write_section(page.Finished(by_id["psi"], changed, 1.0))


def test_each_part_of_the_claim_on_convergence_is_judged_by_its_own_curve():
    settled, growing = [1.0, 4.0, 7.0, 8.0, 8.08], [1.0, 4.0, 7.0, 8.0, 9.0]
    far = [1.0, 4.0, 5.0, 6.0, 6.06]
    curves = {
        "Vendi": growing,
        "truncated": settled,
        "Nystrom": settled,
        "FKEA": far,
        "RKE": settled,
    }
    panel = Panel("texts", "Gaussian", (1, 2, 4, 6, 8), curves)
    assert panel.growth["Vendi"] == pytest.approx(0.125)
    assert panel.distances == pytest.approx({"Nystrom": 0.0, "FKEA": -0.25})
    # Vendi grows, all others settle, Nystrom is near the truncated score, and FKEA is not.
    assert [part for part, holds in panel.claims.items() if not holds] == [
        "FKEA near the truncated score (-25.00 %)"
    ]
    assert len(panel.claims) == 7
    curves = {"Vendi": growing, "truncated": growing, "Nystrom": settled, "RKE": settled}
    assert Panel("images", "cosine", (1, 2, 4, 6, 8), curves).claims == {
        "Vendi settled (+12.50 %)": False,
        "RKE settled (+1.00 %)": True,
        "truncated agrees with Vendi (+0.00 %)": True,
        "Nystrom agrees with Vendi (-10.22 %)": False,
    }


def test_a_verdict_follows_from_the_parts_of_a_claim_and_names_those_that_fail():
    assert judged({"one": True, "other": True}) == (HOLDS, [])
    assert judged({"one": True, "other": False}) == (PARTLY, ["other"])
    assert judged({"one": False, "other": False}) == (FAILS, ["one", "other"])
    assert judged({"one": True, "other": False}, central=["one"]) == (PARTLY, ["other"])
    assert judged({"one": True, "other": False}, central=["other"]) == (FAILS, ["other"])
    with pytest.raises(ValueError, match="no part of the claim: third"):
        judged({"one": True}, central=["third"])
    assert but_not([]) == ""
    assert but_not(["one", "other"]) == " Parts that do not hold: one; other."


@pytest.mark.parametrize(
    ("ratio", "text"), [(11.2, "11"), (693.6, "690"), (42417.0, "42,000"), (93056.0, "93,000")]
)
def test_large_ratios_have_two_digits(ratio, text):
    assert rounded(ratio) == text


def test_eq_19_as_printed_fails_where_groups_are_points(by_id):
    outcome = by_id["aggregation"].run(Request(quick=True))
    assert outcome.verdict == PARTLY
    assert "Parts that do not hold: Thm 7, eq. 19, as stated." in outcome.reason
    at_points = {row[0]: row[4:6] for row in outcome.table.rows if row[1] == 0}
    difference, bound = at_points["Thm 7, eq. 19"]
    assert difference > 0.1 > 1e-4 > bound
    difference, bound = at_points["Thm 7, union truncated"]
    assert difference < bound


def test_no_bound_is_violated_and_all_of_truncated_vendi_say_something(by_id):
    outcome = by_id["bounds-vendi"].run(Request(quick=True))
    assert outcome.verdict == HOLDS
    assert all(row[2] == 0 and row[4] is not None for row in outcome.table.rows)


def test_a_curve_that_falls_at_one_step_is_named_with_its_rank_correlation():
    degrees = (0.2, 0.4, 0.6)
    free = (False, False, False)
    kept = Curve("network", "conditional_vendi", 0.4, degrees, (1.0, 2.0, 4.0), free)
    dipping = Curve("network", "conditional_rke", 0.4, degrees, (1.0, 4.0, 2.0), free)
    assert kept.rises and kept.steps == [1.0, 2.0]
    assert not dipping.rises and dipping.correlation == pytest.approx(0.5)
    assert dipping.name == "Conditional-RKE of network at bandwidth 0.4"


def test_a_rise_of_saturated_scores_shows_nothing_and_a_fall_does():
    degrees, full = (0.2, 0.4, 0.6), (False, True, True)
    rising = Curve("network", "conditional_rke", 0.2, degrees, (1.0, 2.0, 4.0), full)
    falling = Curve("network", "conditional_rke", 0.2, degrees, (1.0, 4.0, 2.0), full)
    assert rising.steps == [] and not rising.is_tested
    assert falling.is_tested and not falling.rises
    assert is_saturated(95.0, 100) and not is_saturated(94.0, 100)


def test_a_difference_within_the_spread_of_the_seeds_is_none():
    assert Gain.of([1.0, 2.0, 3.0]) == Gain(2.0, 1.0)
    assert not Gain.of([1.0, 2.0, 3.0]).is_equal
    assert Gain.of([-1.0, 0.0, 2.0]).is_equal


def _found(captioner, words, score, bandwidth):
    scores = {"conditional_vendi": score, "information_vendi": score}
    scores |= {"conditional_rke": score, "information_rke": score}
    return Found(bandwidth, captioner, 100, words, scores, 0.1, 0.01)


@pytest.mark.parametrize(("words", "verdict"), [(20.0, HOLDS), (11.0, UNTESTED)])
def test_captions_of_the_same_length_do_not_test_a_claim_about_longer_ones(words, verdict):
    found = []
    for bandwidth in BANDWIDTHS:
        found.append(_found("terse", 10.0, 2.0, bandwidth))
        found.append(_found("detailed", words, 3.0, bandwidth))
    assert captioning.verdict_of(found)[0] == verdict


def test_captions_are_not_compared_where_nearly_all_count_as_different():
    found = []
    for bandwidth in BANDWIDTHS:
        # 9.9 x 9.9 of 100 captions, and less than terse ones at the first bandwidth.
        score = 9.9
        if bandwidth > BANDWIDTHS[0]:
            score = 3.0
        found.append(_found("terse", 5.0, 2.0, bandwidth))
        found.append(_found("detailed", 20.0, score, bandwidth))
    verdict, reason = captioning.verdict_of(found)
    assert verdict == HOLDS
    assert f"Saturated: detailed at bandwidth {BANDWIDTHS[0]}." in reason
    blind = _found("blind", 20.0, 2.0, BANDWIDTHS[1])
    verdict, reason = captioning.verdict_of([*found, blind])
    # What is beyond the paper is reported, and leaves the verdict as it is.
    assert verdict == HOLDS
    assert f"Not as known: blind at bandwidth {BANDWIDTHS[1]}." in reason


@pytest.mark.parametrize(("free", "word"), [(9.0, "as known"), (3.0, "not as known")])
def test_a_generator_beyond_the_paper_leaves_the_verdict_on_videos_as_it_is(free, word):
    rows = [
        ("still", 10, 2.0, 4.0, 1.0, 1.0, 1.0),
        ("drifting", 10, 4.0, 9.0, 1.0, 1.0, 1.0),
        ("free", 10, free, 5.0, 1.0, 1.0, 1.0),
    ]
    outcome = video._judged(rows, one_each=False)
    assert outcome.verdict == HOLDS
    assert f"of free {free:.2f}, {word} of the generators" in outcome.reason


def test_videos_of_one_prompt_each_do_not_show_how_much_they_differ():
    rows = [("a model", 34, 1.3, 9.0, 1.0, 1.0, 0.004), ("cameras", 35, 1.3, 9.0, 1.0, 1.0, 0.006)]
    outcome = video._judged(rows, one_each=True)
    assert outcome.verdict == UNTESTED
    assert "34 to 35 videos of each, one for a prompt" in outcome.reason
    assert "0.004 to 0.006 nats" in outcome.reason
    assert "one for a prompt" not in video._judged(rows, one_each=False).reason


@pytest.mark.parametrize(("dip", "verdict"), [("FKEA", PARTLY), ("truncated", FAILS)])
def test_curves_of_the_truncated_score_are_central_to_claims_about_classes(dip, verdict):
    values = {
        (name, order): [1.0, 2.0]
        for name in class_counts.ESTIMATORS
        for order in class_counts.ORDERS
    }
    assert class_counts._judged((1, 2), values, "classes", "").verdict == HOLDS
    values[dip, 2.0] = [2.0, 1.95]
    outcome = class_counts._judged((1, 2), values, "classes", "")
    assert outcome.verdict == verdict
    assert f"growth of {dip} at order 2" in outcome.reason


def test_a_point_alone_is_filled_and_known_values_have_no_line():
    _, (ax,) = plots.panels(1)
    given = {"title": "title", "xlabel": "items", "ylabel": "score"}
    plots.lines(ax, [1], {"a theorem": [2.0]}, **given)
    plots.lines(ax, [1, 2], {"true clusters": [2.0, 2.0]}, **given)
    point, truth = ax.get_lines()
    assert point.get_markerfacecolor() == point.get_color()
    assert truth.get_linestyle() == "None" and truth.get_markerfacecolor() == "none"


def test_images_of_a_mosaic_are_two_pixels_apart():
    canvas = plots.mosaic([[np.ones((8, 8)), np.zeros((8, 8))], [np.zeros((8, 8))]])
    assert canvas.shape == (22, 22)
    assert (canvas[2:10, 2:10] == 1).all() and (canvas[2:10, 12:20] == 0).all()
    assert np.isnan(canvas[:, 10:12]).all() and np.isnan(canvas[12:20, 12:20]).all()
    assert plots.middles(2) == [5.5, 15.5]


def test_one_legend_below_the_panels_has_each_name_once():
    figure, axes = plots.panels(2)
    for ax in axes:
        curves = {"Vendi": [1.0, 2.0], "a model": [2.0, 1.0]}
        plots.lines(ax, [1, 2], curves, title="title", xlabel="items", ylabel="score", counts=True)
    plots.legend(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Vendi", "a model"]
    colours = [[line.get_color() for line in ax.get_lines()] for ax in axes]
    assert colours[0] == colours[1] and len(set(colours[0])) == 2


def test_a_method_has_its_colour_whatever_its_settings():
    _, (ax,) = plots.panels(1)
    curves = {"FKEA, t = 100": [1.0, 2.0], "a model": [2.0, 1.0], "FKEA": [3.0, 1.0]}
    plots.lines(ax, [1, 2], curves, title="title", xlabel="items", ylabel="score")
    colours = [line.get_color() for line in ax.get_lines()]
    assert colours[0] == colours[2] != colours[1]


@pytest.mark.parametrize(
    ("value", "text"), [(0.00001, "0.00001"), (0.25, "0.25"), (3.0, "3"), (4e6, "4,000,000")]
)
def test_ticks_are_plain_numbers(value, text):
    assert plots.plain(value, 0) == text


COLOURS = {"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220)}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder of small images by two models: objects in colours that their prompts do not name."""
    image_module = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    records = []
    for index in range(48):
        prompt = ("a photo of a car", "a house by the sea")[index % 2]
        variety = list(COLOURS)[index // 2 % 3]
        # What the prompt names covers the upper half, and noise makes images differ.
        pixels = np.tile(np.array(COLOURS[variety], dtype=np.uint8), (32, 32, 1))
        pixels[:16] = 250 * (index % 2)
        pixels += rng.integers(0, 6, pixels.shape, dtype=np.uint8)
        image_module.fromarray(pixels).save(folder / f"{index}.png")
        model = ("one", "other")[index // 6 % 2]
        record = {"file": f"{index}.png", "prompt": prompt, "variety": variety, "model": model}
        records.append(json.dumps(record))
    (folder / "metadata.jsonl").write_text("\n".join(records))
    return folder


def test_types_of_real_images_count_only_where_prompts_leave_them_open(by_id, photographs):
    outcome = by_id["fig5"].run(Request(quick=True, data=photographs))
    conditional = {(row[0], row[1]): row[3] for row in outcome.table.rows}
    assert list(conditional) == [
        (count, name) for name in ("vague", "specific") for count in (1, 2, 3)
    ]
    assert conditional[3, "vague"] > 1.5 * conditional[1, "vague"]
    assert conditional[3, "specific"] == pytest.approx(conditional[1, "specific"], rel=0.1)
    assert outcome.verdict == HOLDS


def test_images_of_the_same_prompt_are_a_class(by_id, photographs):
    outcome = by_id["classes"].run(Request(quick=True, data=photographs))
    assert [row[:2] for row in outcome.table.rows] == [("default embedder", 2)]
    assert "n = 48, t = 24" in outcome.reason


def test_bandwidths_of_prompts_are_compared_for_each_real_model(by_id, photographs):
    outcome = by_id["text-bandwidth"].run(Request(quick=True, data=photographs))
    assert {row[0] for row in outcome.table.rows} == {"one", "other"}
    conditional = [row[2] for row in outcome.table.rows if row[0] == "one"]
    assert conditional == sorted(conditional)


def test_information_of_real_images_falls_as_they_are_exchanged(by_id, photographs):
    outcome = by_id["fig12"].run(Request(quick=True, data=photographs))
    information = [row[1] for row in outcome.table.rows]
    assert information[0] > information[-1]


def test_scores_of_real_images_are_followed_over_their_number(by_id, photographs):
    outcome = by_id["convergence"].run(Request(quick=True, data=photographs))
    vendi = {row[:3]: row[3] for row in outcome.table.rows}
    assert [key[2] for key in vendi] == [6, 12, 24, 36, 48] * 2
    # Up to t = 24 images the truncated score is Vendi itself, beyond it is not.
    for *key, exact, truncated, _, _, _ in outcome.table.rows:
        assert (truncated == exact) == (key[2] <= 24)


def test_every_source_of_real_data_belongs_to_an_experiment_that_takes_data(by_id):
    assert all(by_id[source.experiment].data for source in SOURCES)
    assert len({source.name for source in SOURCES}) == len(SOURCES)


def test_real_data_that_are_missing_are_named(monkeypatch, capsys, tmp_path):
    with pytest.raises(SystemExit):
        _run(monkeypatch, "real", str(tmp_path))
    assert f"{tmp_path} lacks real_fruits, t2v_fetv" in capsys.readouterr().err


def test_real_results_stand_behind_those_of_stand_ins(monkeypatch, by_id, photographs, tmp_path):
    monkeypatch.setattr(page, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr(page, "FIGURES", tmp_path / "figures")
    page.PAGE.write_text(f"# Title\n\n{page.MARK}\n\nkept\n\n{page.REAL_MARK}\n\nold results\n")
    source, known = SOURCES[0], by_id[SOURCES[0].experiment]
    outcome = known.run(Request(quick=True, data=photographs))
    page.write_real([(source, page.Finished(known, outcome, 1.0))])
    written = page.PAGE.read_text()
    assert "kept" in written and "old results" not in written
    anchor = "fig5-on-photographs-of-four-varieties-of-seven-fruits"
    assert f"| [fig5](#{anchor}) | photographs of four varieties of seven fruits |" in written
    assert (tmp_path / "figures" / "fig5-real_fruits.png").exists()
