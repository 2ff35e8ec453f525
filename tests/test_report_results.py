"""Pages of a selection and of a mixture: what they say, that texts stay text, broken documents."""

import copy
import html
import json
import re
from urllib.parse import unquote

import numpy as np
import pytest
from report_cases import HOSTILE, run
from sample_files import image_bytes, jsonl, write

import divprism as dp
from divprism.data.items import Text
from divprism.errors import ArgumentError, DataError
from divprism.report import report_page
from divprism.report.details import detailed
from divprism.report.selection_details import MAX_SHOWN

pytestmark = pytest.mark.usefixtures("charts_once")

COSINE = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}


@pytest.fixture(scope="module")
def selection() -> dict:
    """Three of six texts of two prompts, one of which is a tag."""
    texts = ["a red apple", HOSTILE, "seven", "rain on tin", "a boat", "a boat!"]
    prompts = ["write a line", HOSTILE] * 3
    models = ["<b>first</b>", "second"] * 3
    samples = dp.Samples(
        outputs=tuple(Text(text, f"output {row}") for row, text in enumerate(texts)),
        prompts=tuple(Text(text, f"prompt {row}") for row, text in enumerate(prompts)),
        models=tuple(models),
    )
    return detailed(dp.select(samples, k=3))


@pytest.fixture(scope="module")
def mixture() -> dict:
    """Two models with two outputs each for six prompts, that have nothing in common."""
    prompts = np.repeat(np.arange(6), 2)
    x = np.eye(24)
    models = {HOSTILE: dp.Samples(x[:12], prompts), "second": dp.Samples(x[12:], prompts)}
    return detailed(dp.mixture(models, per_group="prompt", **COSINE))


def _main(page: str) -> str:
    return page[page.index("<main") : page.index('id="downloads"')]


def test_the_verdict_sets_the_subset_beside_random_ones_and_all():
    """200 outputs, all but two the same: one of each kind is Vendi 3, all are exp(0.063)."""
    x = np.eye(3)[[0] * 198 + [1, 2]]
    result = dp.select(x, k=3, kernel_x=dp.Cosine())
    page = dp.html_report(result)
    assert "The 3 outputs chosen reach Vendi 3, " in page
    assert f"{result.score / result.random.mean:.2f} times the " in page
    assert " of random subsets." in page
    assert "more diverse than chance" in page
    assert "All 200 outputs together reach 1.06, less than the subset" in page


def test_chosen_outputs_stand_under_their_prompts_as_text(selection):
    page = report_page(selection)
    assert HOSTILE not in page
    shown = _main(page)
    prompts = [output["prompt"]["text"] for output in selection["outputs"]]
    assert shown.count('<article id="p') == len(set(prompts))
    for output in selection["outputs"]:
        assert html.escape(output["text"], quote=False) in html.unescape(shown).replace(
            HOSTILE, html.escape(HOSTILE, quote=False)
        )
    assert "1 (+1.00)" in shown


def test_downloads_hold_all_choices_and_no_preview(tmp_path):
    lines = []
    for row in range(4):
        name = f"{row}.png"
        write(tmp_path / "images", {name: image_bytes(row, (300, 200))})
        lines.append({"file_name": name, "prompt": "a square"})
    write(tmp_path / "images", {"metadata.jsonl": jsonl(lines)})
    page = dp.html_report(dp.select(str(tmp_path / "images"), k=2))
    assert page.count("<img") == 2
    assert page.count("data:image/jpeg") == 2
    assert "thumbnail" not in page[page.index('id="downloads"') :]


def test_more_choices_than_the_page_shows_are_in_the_downloads():
    result = dp.select(np.eye(MAX_SHOWN + 20), k=MAX_SHOWN + 10, by="rke", kernel_x=dp.Cosine())
    page = dp.html_report(result)
    assert _main(page).count('class="given"') == MAX_SHOWN
    assert f"The first {MAX_SHOWN} of {MAX_SHOWN + 10}" in page
    table = page[page.index("data:text/csv") :].split('"')[0]
    assert table.count("%0D%0A") + table.count("%0A") >= MAX_SHOWN + 10


def test_vectors_without_prompts_near_copies_and_groups_get_a_page():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3))
    assert "left without near-copies" in dp.html_report(dp.select(x, near_duplicates=0.999))
    page = dp.html_report(dp.select(x, ["p", "q"] * 6, k=2, per="prompt"))
    assert "(mean over prompts)" in page


def test_a_choice_no_better_than_chance_is_not_praised():
    page = dp.html_report(dp.select(np.eye(9), k=4, kernel_x=dp.Cosine()))
    assert "chance would do as well" in page


def test_a_mixture_says_what_to_mix_how_sure_and_that_nothing_is_better(mixture):
    """Nothing in common: half each, and twice the outputs for every prompt."""
    page = report_page(mixture)
    assert HOSTILE not in page
    assert "2.00 times that of the best single model" in html.unescape(page)
    assert "it is proved that no others score more than 0.1% higher" in page
    assert 'id="groups"' in page
    assert page.count("50.0%") == 2
    assert "weights.csv" in page


def test_a_gain_that_more_outputs_bring_is_not_called_one_of_mixing():
    """Two models that are the same: all of the gain is that of more outputs."""
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(8), 3)
    x = rng.normal(size=(48, 6))
    models = {"a": dp.Samples(x[:24], prompts), "b": dp.Samples(x[24:], prompts)}
    document = detailed(dp.mixture(models, by="conditional_rke"))
    document |= {"gain": 1.5, "chance": 1.6, "gain_beyond_chance": 1.5 / 1.6}
    assert "do not show a gain from mixing" in report_page(document)
    document |= {"gain": 1.9, "chance": 1.5, "gain_beyond_chance": 1.9 / 1.5}
    assert "Mixing gains a factor of 1.27 beyond that." in report_page(document)


BROKEN_SELECTIONS = [
    ({"schema": 1}, "`schema` must be 2"),
    ({"score": "beauty"}, "`score` must be a score"),
    ({"outputs": []}, "`selection.outputs` must be a list of at least 1"),
    ({"indices": [1]}, "`outputs` must be a list of 1"),
    ({"gains": [1.0]}, "`gains` must be a list of 3"),
    ({"gains": []}, "`gains` must be given with `scores_after`"),
    ({"random": {"mean": 1.0}}, "an object with the key 'low'"),
    (
        {"random": {"mean": 1.0, "low": 2.0, "high": 3.0, "num_draws": 20}},
        "`random.mean` must be between its ends",
    ),
    ({"curve": [-1.0]}, r"`selection.curve\[0\]`"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN_SELECTIONS)
def test_a_broken_selection_is_refused_by_path(selection, change, message):
    with pytest.raises(DataError, match=message):
        report_page({**copy.deepcopy(selection), **change})


BROKEN_MIXTURES = [
    ({"schema": None}, "`schema` must be 2"),
    ({"by": "beauty"}, "`by` must be a score"),
    ({"weights": {"a": 2.0}}, "`mixture.weights.a` must be a number from 0 to 1"),
    ({"alone": {"a": 1.0}}, "`alone` must be an object with a score for each model"),
    ({"best": "a"}, "about models of the mixture"),
    ({"chance": 1.0, "gain_beyond_chance": None}, "given together with chance"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN_MIXTURES)
def test_a_broken_mixture_is_refused_by_path(mixture, change, message):
    with pytest.raises(DataError, match=message):
        report_page({**copy.deepcopy(mixture), **change})


def test_whatever_a_file_claims_as_preview_stays_out_of_the_page(selection):
    document = copy.deepcopy(selection)
    document["outputs"][0]["thumbnail"] = '"><script>window.hacked=1</script>'
    page = report_page(document)
    assert "window.hacked=1</script>" not in page
    assert "<img" not in page


def test_labels_are_refused_for_results_without_groups():
    with pytest.raises(ArgumentError, match="`labels` belong to an evaluation"):
        dp.html_report(dp.select(np.eye(4), k=2, kernel_x=dp.Cosine()), ["a"] * 4)


def test_commands_write_pages_and_report_writes_them_from_json(tmp_path):
    rows = [{"prompt": f"p{row % 5}", "output": f"text {row * 7919}"} for row in range(20)]
    for name in ("a", "b"):
        lines = [row | {"output": f"{name} {row['output']}"} for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    done = run("select", a, "-k", 3, "--report", tmp_path / "s.html", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "--report" in (tmp_path / "s.html").read_text()  # the command, to reproduce
    document = json.loads(done.stdout)
    assert not {"runtime", "curve"} & set(document)  # a page alone does not change the JSON
    (tmp_path / "s.json").write_text(done.stdout)
    done = run("report", tmp_path / "s.json", "-o", tmp_path / "t.html")
    assert done.returncode == 0, done.stderr
    assert "The 3 outputs chosen" in (tmp_path / "t.html").read_text()
    done = run("mix", a, b, "--report", tmp_path / "m.html")
    assert done.returncode == 0, done.stderr
    assert "Mixture of 2 models" in (tmp_path / "m.html").read_text()
    # What the pages say: their JSON file is a config of the command.
    for page, command in (("s", ["select", a, "-k", 3]), ("m", ["mix", a, b])):
        text = (tmp_path / f"{page}.html").read_text()
        assert "pass the JSON file of the downloads as --config FILE" in text
        content = re.search(r'href="data:application/json[^,]*,([^"]*)"', text)[1]
        (tmp_path / "again.json").write_text(unquote(html.unescape(content)))
        done = run(*command, "--config", tmp_path / "again.json")
        assert done.returncode == 0, done.stderr


def test_the_page_and_the_subset_are_different_files(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "p", "output": "x"}\n' * 3)
    target = tmp_path / "same.jsonl"
    done = run("select", tmp_path / "a.jsonl", "-k", 1, "-o", target, "--report", target)
    assert done.returncode == 2
    assert "two results would be written" in done.stderr
    assert not target.exists()
