"""Where models repeat themselves: which exact prompts, which outputs, and models side by side."""

import copy
import csv
import html
import io
import json
import re
from urllib.parse import unquote

import numpy as np
import pytest
from report_cases import HOSTILE, KERNELS, four_detailed_prompts, four_prompts, run
from sample_files import image_bytes, jsonl, write

import divprism as dp
from divprism.data.items import Text
from divprism.report import report_page
from divprism.report.details import detailed, details
from divprism.report.repetition import ExactPrompts, side_by_side
from divprism.report.texts import visible
from divprism.report.words import headline

pytestmark = pytest.mark.usefixtures("charts_once")


def prompts_of(x, prompts):
    """Return the exact prompts of outputs and prompts as they are given."""
    result = dp.evaluate(x, prompts, **KERNELS)
    return ExactPrompts.of(result.samples, result.settings)


def alike_outputs(counts, same):
    """Return outputs that are all different, but for the first `same` ones of each prompt."""
    t = np.repeat(np.arange(len(counts)), counts)
    x = np.eye(t.size)
    for prompt, number in enumerate(same):
        rows = np.flatnonzero(t == prompt)[:number]
        if rows.size:
            x[rows] = x[rows[0]]
    return x, t


# Which exact prompts are the worst


def test_a_prompt_with_few_outputs_does_not_displace_one_with_many():
    """Three outputs are alike by chance; nine of ten are a habit."""
    counts = [10] * 8 + [3]
    least = prompts_of(*alike_outputs(counts, [0, 9, 0, 0, 0, 0, 0, 0, 3])).least_diverse()
    assert [entry["id"] for entry in least["prompts"]] == ["1"]
    assert (least["num_compared"], least["num_small"], least["num_outputs"]) == (8, 1, 10)
    assert not least["is_sampled"]


def test_prompts_that_tie_are_named_by_what_is_easiest_to_see():
    """All outputs of three prompts are the same; the one with most outputs comes first."""
    counts = [6, 6, 10, 6, 6, 6]
    least = prompts_of(*alike_outputs(counts, [6, 0, 10, 0, 6, 0])).least_diverse()
    assert [entry["id"] for entry in least["prompts"]] == ["2", "0", "4"]
    assert least["vendi"] == pytest.approx(1.0)


def test_a_group_that_is_one_prompt_is_not_called_the_worst_prompt():
    """A kernel groups the prompts b to f, each constant, and leaves a alone, with three kinds.

    The group of a is the least diverse group; the prompts of the other group are less diverse.
    """
    groups = copy.deepcopy(four_detailed_prompts()["details"]["groups"])
    alone, several = groups["groups"][:2]
    alone.update(rarefied=3.0, vendi=3.0, size=6, num_prompts=1)
    several.update(rarefied=5.0, vendi=5.0, size=10, num_prompts=5)
    del groups["groups"][2:]
    document = four_prompts().to_dict() | {"details": {"groups": groups}}
    [line] = [visible(line) for line in headline(document) if "least diverse" in line]
    assert line == "The least diverse group of prompts is “3” alone: 3 distinct of 6 outputs."
    assert not any("for the prompt" in line for line in headline(document))


def test_texts_that_share_a_vector_are_two_prompts():
    prompts = ["half full"] * 6 + ["half empty"] * 6 + ["another"] * 6
    x = np.eye(18)
    x[6:12] = x[6]
    vectors = {"half full": [1.0, 0.0], "half empty": [1.0, 0.0], "another": [0.0, 1.0]}
    samples = dp.Samples(
        x,
        np.array([vectors[prompt] for prompt in prompts]),
        given=dp.Samples(tuple(map(Text, map(str, range(18)))), tuple(map(Text, prompts))),
    )
    result = dp.evaluate(samples, kernel_x=dp.Cosine(), kernel_t=dp.Gaussian(0.3))
    least = ExactPrompts.of(result.samples, result.settings).least_diverse()
    assert [entry["text"] for entry in least["prompts"]] == ["half empty"]
    assert least["num_outputs"] == 6


def test_where_most_prompts_repeat_one_output_that_is_said():
    """No prompt stands out from a median of one distinct output, but silence would mislead."""
    document = detailed(dp.evaluate(*alike_outputs([5] * 6, [5] * 4), **KERNELS), num_repeats=2)
    [line] = [visible(line) for line in headline(document) if "repeats one output" in line]
    expected = "The model repeats one output for 4 of 6 prompts, such as “0”"
    assert line == f"{expected}: 1 distinct of 5 outputs each."


def test_the_table_of_the_worst_prompts_is_on_the_page():
    page = html.unescape(report_page(_two_text_models()))
    assert "The least diverse of 4 exact prompts" in page
    rows = re.findall(r"<th scope=\"row\"[^>]*>tell a joke</th>.*?</tr>", page, re.DOTALL)
    varied, fixed = (re.findall(r">([^<]+)</td>", row) for row in rows)
    assert varied == ["4.00", "4"]
    assert fixed == ["1.00", "4", "Knock, knock!", "4"]


# Outputs that occur often


def test_spellings_of_an_output_count_as_one():
    texts = ["Unicorns.", "a fox", "unicorns", "A  fox!", "Unicorns.", "an owl"]
    outputs = tuple(map(Text, texts))
    exact = ExactPrompts(dp.Samples(outputs), np.eye(6), {}, {}, 0)
    counted = [(texts[row], count) for row, count in exact.counted(range(6))]
    assert counted == [("Unicorns.", 3), ("a fox", 2), ("an owl", 1)]
    listed = [(one["output"]["text"], one["count"]) for one in exact.most_repeated()]
    assert listed == [("Unicorns.", 3), ("a fox", 2)]


def test_punctuation_alone_is_an_answer_of_its_own():
    texts = ["?", "!", "...", "?", " ? ", "", "no"]
    exact = ExactPrompts(dp.Samples(tuple(map(Text, texts))), np.eye(7), {}, {}, 0)
    counted = [(texts[row], count) for row, count in exact.counted(range(7))]
    assert counted == [("?", 3), ("!", 1), ("...", 1), ("", 1), ("no", 1)]


def test_copies_of_an_image_count_as_one(tmp_path):
    files = {f"red/{index}.png": image_bytes(min(index, 3)) for index in range(6)}
    files |= {f"blue/{index}.png": image_bytes(10 + index) for index in range(6)}
    result = dp.evaluate(str(write(tmp_path, files)))
    [most] = details(result, num_repeats=2)["most_repeated"]
    assert most["count"] == 3
    assert most["output"]["file"].endswith("red/3.png")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_copies_of_a_tensor_count_as_one(dtype):
    """NumPy has no bfloat16."""
    torch = pytest.importorskip("torch")
    x, t = alike_outputs([6, 6], [4])
    tensor = torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True)
    result = dp.evaluate(tensor, t, **KERNELS)
    exact = ExactPrompts.of(result.samples, result.settings)
    assert [count for _, count in exact.counted(range(12))] == [4, *[1] * 8]
    assert details(result, num_repeats=2)["least_diverse_prompts"]["num_prompts"] == 1


# Models side by side

_ANSWERS = {
    "varied": ["Knock, knock!", "A fox.", "Two pears?", "Rain and wind."],
    "fixed": ["Knock, knock!"] * 4,
}
_PROMPTS = ["tell a joke", "name an animal", HOSTILE, "what is the weather"]


def _two_text_models() -> dict:
    """Return a comparison of a model that varies and one that repeats itself under one prompt."""
    samples = {}
    for name in ("varied", "fixed"):
        outputs, prompts = [], []
        for prompt in _PROMPTS:
            answers = _ANSWERS["varied"]
            if name == "fixed" and prompt == "tell a joke":
                answers = _ANSWERS["fixed"]
            outputs += [Text(answer) for answer in answers]
            prompts += [Text(prompt)] * 4
        samples[name] = dp.Samples(tuple(outputs), tuple(prompts))
    embedders = {"embedder_x": _spread, "cache": False}
    comparison = dp.compare(samples, kernel_x=dp.Cosine(), kernel_t=dp.Categorical(), **embedders)
    return detailed(comparison, num_repeats=2)


def _spread(texts):
    known = sorted(_ANSWERS["varied"])
    return np.array([np.eye(len(known))[known.index(text)] for text in texts])


def test_the_prompt_on_which_models_differ_comes_first_with_its_outputs():
    shown = _two_text_models()["side_by_side"]["prompts"]
    assert (shown[0]["prompt"]["text"], shown[0]["reason"]) == ("tell a joke", "apart")
    fixed, varied = shown[0]["models"]["fixed"], shown[0]["models"]["varied"]
    assert [(one["text"], one["count"]) for one in fixed["outputs"]] == [("Knock, knock!", 4)]
    assert (fixed["vendi"], fixed["size"]) == (pytest.approx(1.0), 4)
    assert len(varied["outputs"]) == 4
    assert varied["vendi"] == pytest.approx(4.0)


def test_outputs_side_by_side_are_visible_without_a_click():
    page = report_page(_two_text_models())
    open_parts = re.sub(r"<(script|details).*?</\1>", "", page, flags=re.DOTALL)
    beside = open_parts[open_parts.index('id="beside"') :]
    assert '<span class="count">4 times</span>' in beside
    assert "Rain and wind." in beside
    assert "1 distinct of 4 outputs" in beside
    assert "<img src=x" not in page
    assert "&lt;img src=x" in beside


def test_models_that_differ_nowhere_have_no_prompt_in_the_middle():
    x, t = alike_outputs([4] * 5, [3, 2])
    same = prompts_of(x, t)
    shown = side_by_side({"a": same, "b": same})["prompts"]
    assert [one["reason"] for one in shown] == ["alike", "alike"]
    # Of two prompts, neither is in the middle.
    few = {name: prompts_of(*alike_outputs([6, 6], same)) for name, same in (("a", []), ("b", [4]))}
    assert [one["reason"] for one in side_by_side(few)["prompts"]] == ["apart", "alike"]
    # Of seven, the one with the fourth largest difference is.
    varied, fixed = (prompts_of(*alike_outputs([6] * 7, alike)) for alike in ([], [2, 3, 4, 5, 6]))
    shown = side_by_side({"a": varied, "b": fixed})["prompts"]
    assert (shown[3]["prompt"]["id"], shown[3]["reason"]) == ("1", "middle")


def test_prompts_with_one_output_are_spread_evenly():
    t = np.repeat(np.arange(9), 1)
    models = {name: prompts_of(np.eye(9), t) for name in "ab"}
    beside = side_by_side(models)
    assert [shown["reason"] for shown in beside["prompts"]] == ["spread"] * 4
    assert [shown["prompt"]["id"] for shown in beside["prompts"]] == ["0", "3", "5", "8"]
    assert beside["num_prompts"] == 9


def test_of_many_models_six_are_shown():
    models = {str(index): prompts_of(np.eye(4), np.arange(4)) for index in range(11)}
    beside = side_by_side(models)
    assert list(beside["prompts"][0]["models"]) == ["0", "2", "4", "6", "8", "10"]


@pytest.mark.parametrize(("num_outputs", "num_shown"), [(4, 4), (5, 5), (6, 4)])
def test_no_single_output_is_hidden(num_outputs, num_shown):
    """A line that says "and 1 more output" takes the room of that output."""
    t = np.repeat(np.arange(2), num_outputs)
    models = {name: prompts_of(np.eye(t.size), t) for name in "ab"}
    for shown in side_by_side(models)["prompts"]:
        assert len(shown["models"]["a"]["outputs"]) == num_shown


def test_one_model_or_other_prompts_have_nothing_side_by_side():
    assert side_by_side({"a": prompts_of(np.eye(4), np.arange(4))}) is None
    other = prompts_of(np.eye(4), np.arange(4) + 10)
    assert side_by_side({"a": prompts_of(np.eye(4), np.arange(4)), "b": other}) is None


def test_images_side_by_side_share_a_number_of_thumbnails(tmp_path):
    lines = []
    for index in range(24):
        name = f"{index}.png"
        write(tmp_path / "images", {name: image_bytes(index, (200, 100))})
        model, prompt = "ab"[index % 2], f"prompt {index // 12}"
        lines.append({"file_name": name, "prompt": prompt, "model": model})
    write(tmp_path / "images", {"metadata.jsonl": jsonl(lines)})
    comparison = dp.compare(str(tmp_path / "images"))
    for most in (0, 3, 12):
        beside = detailed(comparison, max_thumbnails=most, num_repeats=2)["side_by_side"]
        assert json.dumps(beside).count('"thumbnail"') == most


def test_a_kept_result_gives_the_same_page(tmp_path):
    document = _two_text_models()
    (tmp_path / "kept.json").write_text(json.dumps(document))
    done = run("report", tmp_path / "kept.json", "-o", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").read_text() == report_page(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["prompts"], [], "`side_by_side.prompts` must be a list of at least 1"),
        (["prompts", 0, "models"], {"c": None}, "must be an object"),
        (["prompts", 0, "models", "fixed", "size"], 0, "must be a whole number from 1"),
        (["prompts", 0, "models", "fixed", "outputs", 0, "count"], "4", "must be a whole number"),
    ],
)
def test_a_broken_side_by_side_is_refused_by_path(path, value, message):
    document = copy.deepcopy(_two_text_models())
    node = document["side_by_side"]
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(dp.DataError, match=message):
        report_page(document)


def test_models_side_by_side_are_those_of_the_result():
    document = copy.deepcopy(_two_text_models())
    cells = document["side_by_side"]["prompts"][0]["models"]
    cells["other"] = cells["fixed"]
    with pytest.raises(dp.DataError, match="must be about models of the result; got 'other'"):
        report_page(document)


# Files inside the page


def _files(page):
    """Return the files that a page offers, by name."""
    links = re.findall(r'<a href="data:([\w/]+);charset=utf-8,([^"]*)" download="([^"]+)">', page)
    return {name: (kind, unquote(html.unescape(content))) for kind, content, name in links}


def test_the_files_hold_the_numbers_of_the_result():
    document = _two_text_models()
    files = _files(report_page(document))
    assert {name: kind for name, (kind, _) in files.items()} == {
        "scores.csv": "text/csv",
        "differences.csv": "text/csv",
        "result.json": "application/json",
    }
    rows = list(csv.DictReader(io.StringIO(files["scores.csv"][1])))
    for row in rows:
        score = document["models"][row["model"]]["scores"][row["score"]]
        assert float(row["value"]) == score["value"]
    assert len(rows) == sum(len(each["scores"]) for each in document["models"].values())
    kept = json.loads(files["result.json"][1])
    assert kept["differences"] == json.loads(json.dumps(document["differences"]))
    for name, model in kept["models"].items():
        assert model["scores"] == json.loads(json.dumps(document["models"][name]["scores"]))
        assert "details" not in model


def test_a_file_of_the_page_gives_a_page_again(tmp_path):
    files = _files(report_page(four_detailed_prompts()))
    (tmp_path / "result.json").write_text(files["result.json"][1])
    done = run("report", tmp_path / "result.json", "-o", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr


def test_names_of_models_are_no_formulas_and_no_markup_in_the_files():
    single = four_prompts().to_dict()
    models = {"=1+1": single, HOSTILE: single}
    page = report_page({"schema": 2, "models": models})
    assert "<img" not in page
    rows = list(csv.DictReader(io.StringIO(_files(page)["scores.csv"][1])))
    assert {row["model"] for row in rows} == {"'=1+1", HOSTILE}


# One scale


def test_charts_of_all_models_have_one_scale():
    """A model with many kinds and one with few: their axes have the same ticks."""
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((30, 3)), 4, axis=0)
    samples = {}
    for name, spread in (("wide", 2.0), ("narrow", 0.05)):
        samples[name] = dp.Samples(rng.standard_normal((120, 3)) * spread, t)
    comparison = dp.compare(samples, kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(1.0))
    page = dp.html_report(comparison, num_repeats=2)
    charts: dict[str, list[list[str]]] = {}
    pattern = r'<svg role="img" aria-label="([^"]*)".*?>(.*?)</svg>'
    for label, content in re.findall(pattern, page, re.DOTALL):
        charts.setdefault(label, []).append(re.findall(r"<text[^>]*>([^<]*)</text>", content))
    behind = [label for label in charts if label.startswith(("Spectra", "Scores against"))]
    assert len(behind) == 6
    for label in behind:
        first, second = charts[label]
        assert first == second
