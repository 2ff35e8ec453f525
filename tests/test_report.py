"""The page shows what the result holds; whatever comes from data or files stays text."""

import base64
import copy
import html
import io
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_cases import HOSTILE, KERNELS, four_detailed_prompts, four_prompts, run
from sample_files import image_bytes, jsonl, records, write

import divprism as dp
from divprism.data.items import Image, Text, Video
from divprism.report import report_page
from divprism.report.details import _add_thumbnails, detailed, details
from divprism.report.page import _asset
from divprism.report.style import FAMILY_COLORS
from divprism.report.texts import visible
from divprism.report.thumbnails import is_thumbnail, thumbnail

pytestmark = pytest.mark.usefixtures("charts_once")

SCHEMA = 2


@pytest.fixture(scope="module")
def result() -> dp.Evaluation:
    return four_prompts()


@pytest.fixture(scope="module")
def document() -> dict:
    return four_detailed_prompts()


# What the page holds


def test_the_page_holds_every_score_setting_and_group(document):
    page = report_page(document)
    for score in document["scores"].values():
        assert f"<strong>{score['value']:.4g}</strong>" in page
    assert page.count('class="gallery"') == 4
    assert document["data"]["hash"] in page
    assert "kernel x" in page
    assert "--config FILE" in page


def test_every_family_of_scores_has_a_colour_in_light_dark_and_print():
    style = _asset("page.css")
    for family in FAMILY_COLORS:
        assert style.count(f"--{family}: #") == 3


def test_cards_have_the_colour_of_their_family(document):
    page = report_page(document)
    families = re.findall(r'style="--family: var\(--(\w+), currentColor\)"', page)
    assert families[:3] == ["vendi", "conditional", "information"]
    assert len(families) == len(document["scores"])


def test_a_result_without_details_says_how_to_get_them(result):
    assert "divprism score IN --details" in report_page(result.to_dict())
    assert "--details" not in report_page(detailed(result))


def test_details_may_come_as_further_documents(result, document):
    parts = document["details"]
    page = report_page(parts["convergence"], result.to_dict(), parts["groups"])
    assert page.count('class="gallery"') == 4
    assert "Scores against the number of samples" in page
    with pytest.raises(dp.DataError, match=r"one result with scores.*got 0"):
        report_page(parts["groups"])
    with pytest.raises(dp.DataError, match=r"one result with scores.*got 2"):
        report_page(result.to_dict(), result.to_dict())
    other = dp.converge(np.eye(30), kernel_x=dp.Cosine(), num_repeats=2).to_dict()
    with pytest.raises(dp.DataError, match="of 24 outputs, and a further document is of 30"):
        report_page(result.to_dict(), other)
    with pytest.raises(dp.DataError, match="neither scores, nor groups"):
        report_page(result.to_dict(), {"x": None})
    models = {"schema": SCHEMA, "models": {"a": result.to_dict(), "b": result.to_dict()}}
    with pytest.raises(dp.DataError, match="several models takes no further documents"):
        report_page(models, parts["groups"])


def test_a_sweep_may_come_as_a_further_document(pairs):
    result = dp.evaluate(*pairs, kernel_x=dp.Gaussian(2.0), kernel_t=dp.Gaussian(1.0))
    sweep = dp.bandwidth_sweep(*pairs, bandwidths_x=[1.0, 2.0], bandwidths_t=[1.0])
    page = report_page(result.to_dict(), sweep.to_dict())
    assert "Scores against bandwidths: bandwidth of prompts" in page


def test_several_models_have_a_table_and_cards_each(result):
    page = report_page(detailed({"one": result, "two": result}, num_groups=2))
    assert ">2 models</h1>" in page
    assert page.count('class="cards"') == 2
    with pytest.raises(dp.ArgumentError, match="`labels` belong to one model"):
        detailed({"one": result, "two": result}, labels=[0] * 24)


def test_a_mapping_of_one_model_gets_the_page_of_that_model(result):
    single = detailed({"one": result}, num_repeats=2)
    assert single.keys() == detailed(result, num_repeats=2).keys()
    assert single["scores"] == result.to_dict()["scores"]


def test_models_that_were_scored_apart_are_not_called_a_comparison(result):
    models = {"one": result.to_dict(), "two": result.to_dict()}
    page = report_page({"schema": SCHEMA, "models": models})
    assert "All models</h2>" in page
    assert "Comparison" not in page
    assert "not comparable" not in page
    fewer = dp.evaluate(np.eye(7), np.arange(7), **KERNELS).to_dict()
    page = report_page({"schema": SCHEMA, "models": models | {"two": fewer}})
    assert "Models have from 7 to 24 outputs, so their scores are not comparable" in page
    assert "Compare models on the same prompts, with the same number of outputs" in page


def test_the_score_of_the_order_stands_beside_the_names(result):
    """A phone shows the first columns only."""
    models = {"one": result, "two": result}
    page = report_page(
        {"schema": SCHEMA, "models": {name: one.to_dict() for name, one in models.items()}}
    )
    head = re.search(r'id="comparison".*?<thead>(.*?)</thead>', page, re.DOTALL)[1]
    titles = re.findall(r"<button[^>]*>(.*?)</button>", head)
    assert titles[:3] == ["model", "conditional", "n"]
    assert titles.count("conditional") == 1
    assert "Columns of rke: the same scores at order 2" in page


def test_warnings_are_shown_once_with_their_code(result):
    notice = {"code": "few-prompts", "text": "There are few prompts.", "severity": "warning"}
    single = result.to_dict() | {"warnings": [notice]}
    page = report_page({"schema": SCHEMA, "models": {"a": single, "b": single}})
    shown = 'There are few prompts. <span class="muted">(few-prompts)</span>'
    assert page.count(shown) == 1
    assert '<a href="#warnings">1 warning</a>: what may distort these numbers.' in page


def test_what_was_off_is_off_in_the_settings_to_reproduce():
    page = report_page(dp.evaluate(np.eye(4), kernel_x=dp.Cosine(), interval=None).to_dict())
    blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    assert json.loads(html.unescape(blocks[-1]))["interval"] == 0


def test_parts_that_the_data_do_not_allow_come_with_the_reason(result):
    parts = details(result)
    assert parts["sweep"] is None
    assert "Gaussian bandwidths" in parts["absent"]["sweep"]
    page = report_page(result.to_dict() | {"details": parts})
    assert "No sweep: a sweep needs Gaussian bandwidths" in page
    bare = dp.Evaluation(**{**vars(result), "samples": None})
    with pytest.raises(dp.ArgumentError, match="does not hold the samples that it scored"):
        details(bare)


def test_the_sweep_marks_the_bandwidths_that_were_used(pairs):
    result = dp.evaluate(*pairs, kernel_x=dp.Gaussian(1.7), kernel_t=dp.Gaussian(0.9))
    sweep = details(result)["sweep"]
    assert (sweep["x"]["chosen"], sweep["t"]["chosen"]) == (1.7, 0.9)


@pytest.mark.parametrize(
    "prompts", [[0, 0, 0, 1, 1, 1], (0, 0, 0, 1, 1, 1), ["a", "a", "a", "b", "b", "b"]]
)
def test_ids_in_any_collection_get_a_page(prompts):
    page = dp.html_report(dp.evaluate(np.eye(6), prompts, **KERNELS), num_repeats=2)
    assert "6 outputs for 2 distinct prompts" in page


def test_a_subset_of_a_kernel_matrix_has_its_rows_and_columns(one_thread):
    result = dp.evaluate(np.eye(60), np.arange(60) % 30, kernel_x=dp.Precomputed())
    parts = details(result, max_pairs=42, num_repeats=2)
    assert parts["convergence"]["n"] == 42
    assert parts["absent"].keys() == {"sweep"}


@pytest.mark.parametrize("wrong", [None, {}, {"scores": 1}, {"a": {}}])
def test_only_results_get_a_page(wrong):
    message = "`result` must be an Evaluation, a Comparison or a dict"
    with pytest.raises(dp.ArgumentError, match=message):
        dp.html_report(wrong)


def test_weights_are_refused_rather_than_left_out():
    result = dp.evaluate(np.eye(4), weights=[0.7, 0.1, 0.1, 0.1], kernel_x=dp.Cosine())
    with pytest.raises(dp.ArgumentError, match="equal weights, and this evaluation has `weights`"):
        dp.html_report(result)


def test_wrong_settings_are_refused_rather_than_reported_as_absent(result):
    with pytest.raises(dp.ArgumentError, match="num_groups"):
        details(result, num_groups=-3)


# Untrusted texts


def _letters(texts):
    counts = [[len(text), sum(map(ord, text)) % 97, text.count("a")] for text in texts]
    return np.array(counts, dtype=float)


def _evaluated_texts(hostile):
    prompts = [hostile] * 6 + ["a tame prompt"] * 6
    answers = [f"{hostile} {index}" for index in range(12)]
    return dp.evaluate(answers, prompts, embedder_x=_letters, embedder_t=_letters, cache=False)


@pytest.mark.parametrize(
    "hostile",
    [
        HOSTILE,
        "</script><script>window.hacked=1</script>",
        '" onmouseover="x',
        "{{ 7 * 7 }}{% raw %}",
        "&lt;b&gt;",
        "javascript:x",
    ],
)
def test_texts_from_the_data_are_escaped(hostile):
    page = report_page(detailed(_evaluated_texts(hostile)))
    scripts = re.findall(r"<script.*?</script>", page, re.DOTALL)
    assert len(scripts) == 1
    assert "hacked" not in scripts[0]
    assert "<img" not in page
    assert ' onmouseover="x' not in page
    # jinja2 writes quotes as decimal references, `html.escape` as names and hexadecimal ones.
    escaped = html.escape(hostile, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    assert escaped in page


def test_the_policy_allows_our_script_alone(document):
    import hashlib

    page = report_page(document)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"(src|href)=\"https?:", page)


def test_hidden_letters_are_nowhere_on_a_page(result):
    """Right-to-left overrides and control characters, wherever a document holds a text."""
    odd = "a\u202eb\x1b[31m"
    single = result.to_dict()
    single["data"] = single["data"] | {"source": odd, "model": odd, odd: 1}
    single["settings"] = single["settings"] | {odd: odd}
    single["warnings"] = [{"code": odd, "text": odd, "severity": "warning"}]
    single["runtime"] = single["runtime"] | {"command": odd}
    names = [odd, odd.replace("\x1b", ""), "", "  "]
    several = {"schema": SCHEMA, "models": dict.fromkeys(names, single)}
    for document in (single, several):
        page = report_page(document)
        assert not re.search("[\u200e\u200f\u202a-\u202e\u2066-\u2069\x1b]", page)
        assert "ab[31m" in page
    for name in ("ab[31m (2)", "(no name)", "(no name) (2)"):
        assert f">{name}</h2>" in page


def test_very_long_names_do_not_fill_the_page(result):
    single = result.to_dict()
    single["data"] = single["data"] | {"source": "s" * 5000, "model": "m" * 5000}
    assert not re.search("s{200}|m{200}", re.sub(r"<dd.*?</dd>", "", report_page(single)))
    models = {"x" * 5000: single, "x" * 5001: single}
    assert not re.search("x{100}", report_page({"schema": SCHEMA, "models": models}))


def test_texts_from_the_data_keep_their_direction_to_themselves(document):
    changed = copy.deepcopy(document)
    right_to_left = {"row": 18, "text": "\u05d0\u05d1 3?"}
    changed["details"]["groups"]["groups"][0]["prompts"][0] = right_to_left
    changed["details"]["least_diverse_prompts"]["prompts"][0] = right_to_left
    page = report_page(changed)
    assert "for the prompt “<bdi>\u05d0\u05d1 3?</bdi>”" in page
    assert '<div class="said" dir="auto">\u05d0\u05d1 3?</div>' in page
    assert '<h1 dir="auto">' in page


def test_hidden_letters_are_dropped_and_joiners_kept():
    assert visible("a\u202eb\x1bc\u2066d\ud800") == "abcd"
    joined = "a\u200db\u200cc\n"  # emoji and Persian are written with these
    assert visible(joined) == joined


def test_half_a_surrogate_pair_can_be_written(result):
    notice = {"code": "odd", "text": "\ud83d", "severity": "warning"}
    settings = result.to_dict()["settings"] | {"\ud83d": "\ud83d"}
    report_page(result.to_dict() | {"warnings": [notice], "settings": settings}).encode()


# Untrusted documents


def _paths(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from _paths(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node[:3]):
            yield (*path, index)
            yield from _paths(value, (*path, index))


_WRONG = [None, [], {}, "text", -1, 0, True, 1e308, 10**400, HOSTILE, {"a": HOSTILE}, [HOSTILE]]


# Few, because each draws a page; `test_fuzz.py` changes documents as well.
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_broken_document_is_refused_in_one_sentence(document, data):
    changed = copy.deepcopy(document)
    path = data.draw(st.sampled_from(list(_paths(document))))
    node = changed
    for key in path[:-1]:
        node = node[key]
    if data.draw(st.booleans()) and isinstance(node, dict):
        del node[path[-1]]
    else:
        node[path[-1]] = data.draw(st.sampled_from(_WRONG))
    try:
        page = report_page(changed)
    except dp.DataError as error:
        assert "\n" not in str(error)
    else:
        assert "<img" not in page


@pytest.fixture(scope="module")
def comparison() -> dict:
    """The document of a comparison of two models with texts of known length."""
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(4), 5)
    samples = {name: dp.Samples(rng.standard_normal((20, 3)), t) for name in ("a", "b")}
    document = dp.compare(samples, kernel_x=dp.Gaussian(2.0)).to_dict()
    return document | {"lengths": {"a": 3.0, "b": 4.0}, "length_correlation": 0.5}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["ranks", "a"], [1], r"`ranks.a` must be|`result.ranks.a` must be"),
        (["ranks"], {"a": [1, 2]}, "`ranks` must be an object with a rank for each model"),
        (["lengths"], {"c": 1.0}, "`lengths` must be an object with a length for each model"),
        (["differences", 0, "first"], "c", "`differences` must be a list about models"),
        (["differences"], [], "`result.differences` must be a list of at least 1"),
        (["score"], "nonsense", "`score` must be a score of the model"),
        (["length_correlation"], 2, "must be a number from -1 to 1; got 2"),
        (["models", "a", "scores", "vendi", "value"], "x", "models.a.scores.vendi.value` must be"),
        (["models", "a", "data", "n"], 20.0, "models.a.data.n` must be a whole number"),
        (["warnings"], ["text"], r"`result.warnings\[0\]` must be an object; got 'text'"),
    ],
)
def test_a_broken_comparison_is_refused_by_path(comparison, path, value, message):
    changed = copy.deepcopy(comparison)
    node = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(dp.DataError, match=message):
        report_page(changed)


def test_a_whole_comparison_gets_a_page(comparison):
    page = report_page(comparison)
    assert "Ranked by Conditional-Vendi" in page
    assert "with the length of outputs over 2 models: +0.50" in page


def test_notes_of_a_comparison_are_a_list_below_its_table(comparison):
    page = report_page(comparison)
    table = page.index("Scores of all models")
    start = page.index('<ul class="notes">', table)
    items = re.findall("<li>(.*?)</li>", page[start : page.index("</ul>", start)])
    assert len(items) > 3
    # A formula keeps its symbol, and each note is a sentence of its own.
    assert any(item.startswith("k = exp(") for item in items) == ("k = exp(" in page)
    assert all(item.endswith(".") for item in items)


@pytest.mark.parametrize("schema", [1, 3, "2", None])
def test_results_of_another_schema_are_refused(result, document, schema):
    with pytest.raises(dp.DataError, match="reads schema 2: use the version that wrote"):
        report_page(result.to_dict() | {"schema": schema})
    groups = document["details"]["groups"] | {"schema": schema}
    with pytest.raises(dp.DataError, match="the groups document has schema"):
        report_page(result.to_dict(), groups)


def test_a_document_that_is_nested_too_deeply_is_refused(result):
    node: list = []
    for _ in range(900):
        node = [node]
    with pytest.raises(dp.DataError, match="nested deeper than 50 levels"):
        report_page(result.to_dict() | {"data": {"n": node}})


def test_a_long_path_and_value_are_shortened_in_the_message(result):
    data = result.to_dict()["data"] | {"n": "x\n" * 5000}
    with pytest.raises(dp.DataError, match=r"data\.n` must be a whole number") as caught:
        report_page(result.to_dict() | {"data": data})
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


# Thumbnails


def test_a_thumbnail_has_no_byte_of_the_file():
    """An image with a comment and metadata: both are gone, and so is the size."""
    import PIL.Image

    buffer = io.BytesIO()
    exif = PIL.Image.Exif()
    exif[0x010E] = "secret"
    image = PIL.Image.open(io.BytesIO(image_bytes(size=(800, 400))))
    image.save(buffer, "JPEG", exif=exif, comment=b"secret")
    small = base64.b64decode(thumbnail(Image(buffer.getvalue(), "a.jpg")))
    assert b"secret" not in small
    assert PIL.Image.open(io.BytesIO(small)).size == (160, 80)


def test_a_video_is_shown_by_its_middle_frame(tmp_path):
    for index in range(3):
        (tmp_path / f"{index}.png").write_bytes(image_bytes(index))
    frames = tuple(tmp_path / f"{index}.png" for index in range(3))
    assert thumbnail(Video(frames)) == thumbnail(Image(frames[1]))
    assert thumbnail(Text("a")) is None


@pytest.mark.parametrize("value", [None, 3, "", "PHN2Zz4=", '"><script>', "/9j/\n", "....", "é"])
def test_only_jpegs_of_ours_are_embedded(value, document):
    assert not is_thumbnail(value)
    changed = copy.deepcopy(document)
    changed["details"]["groups"]["groups"][0]["prompts"][0]["thumbnail"] = value
    assert "data:image" not in report_page(changed)


def test_thumbnails_are_shared_out(tmp_path):
    files = {}
    for kind in "ab":
        for index in range(6):
            files[f"{kind}/{index}.png"] = image_bytes(ord(kind) + index)
    write(tmp_path, files)
    result = dp.evaluate(str(tmp_path))
    for most in (0, 3):
        parts = details(result, max_thumbnails=most, num_groups=2)
        assert json.dumps(parts).count('"thumbnail"') == most


def test_an_image_that_occurs_twice_is_embedded_once():
    entries = [{"row": 0}, {"row": 1}]
    modes = [{"outputs": copy.deepcopy(entries)}, {"outputs": copy.deepcopy(entries)}]
    images = tuple(Image(image_bytes(index), f"{index}.png") for index in range(2))
    _add_thumbnails({"groups": [{"prompts": [], "modes": modes}]}, dp.Samples(images), 2)
    shown = []
    for mode in modes:
        shown += [entry["row"] for entry in mode["outputs"] if "thumbnail" in entry]
    assert sorted(shown) == [0, 1]


# Files and commands


def test_images_come_into_the_page_small_and_with_their_names(tmp_path):
    name = "a\"'><b>.png"
    files = {f"a red square/{name}": image_bytes(99)}
    for index in range(7):
        files[f"a red square/{index}.png"] = image_bytes(index, (400, 300))
        files[f"a blue circle/{index}.png"] = image_bytes(9 + index, (400, 300))
    write(tmp_path / "images", files)
    options = ["--report", tmp_path / "report.html", "--details", "--format", "json", "-q"]
    done = run("score", tmp_path / "images", *options)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 6
    assert "<b>" not in page
    assert max(map(len, re.findall(r"base64,([^\"]*)", page))) < 20_000
    (tmp_path / "result.json").write_text(done.stdout)
    again = run("report", tmp_path / "result.json", "-o", tmp_path / "again.html")
    assert again.returncode == 0, again.stderr
    assert f"wrote {tmp_path / 'again.html'}" in again.stderr
    assert (tmp_path / "again.html").read_text() == page


def test_a_comparison_can_be_kept_with_its_groups(tmp_path):
    source = write(tmp_path, {"two.jsonl": jsonl(records(("first", "second")) * 3)}) / "two.jsonl"
    done = run(
        "compare", source, "--details", "--format", "json", "-o", tmp_path / "kept.json", "-q"
    )
    assert done.returncode == 0, done.stderr
    assert run("report", tmp_path / "kept.json", "-o", tmp_path / "page.html").returncode == 0
    assert 'class="gallery"' in (tmp_path / "page.html").read_text()
    done = run("compare", source, "--details")
    assert done.returncode == 2
    assert "--format json" in done.stderr


def test_a_page_does_not_replace_the_result_it_is_written_from(tmp_path, result):
    kept = tmp_path / "result.json"
    text = json.dumps(result.to_dict())
    kept.write_text(text)
    (tmp_path / "link.json").symlink_to(kept)
    for target in (kept, tmp_path / "link.json"):
        done = run("report", kept, "-o", target)
        assert done.returncode == 2
        assert "would replace" in done.stderr
    assert kept.read_text() == text


def test_a_byte_order_mark_is_no_reason_to_refuse(tmp_path, result):
    (tmp_path / "result.json").write_text(json.dumps(result.to_dict()), encoding="utf-8-sig")
    assert run("report", tmp_path / "result.json", "-o", tmp_path / "page.html").returncode == 0


def test_a_comparison_gets_a_page_and_a_plot(tmp_path):
    source = write(tmp_path, {"two.jsonl": jsonl(records(("first", HOSTILE)) * 3)}) / "two.jsonl"
    done = run(
        "compare", source, "--report", tmp_path / "page.html", "--plot", tmp_path / "plot.svg", "-q"
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "Ranked by Conditional-Vendi" in page
    assert "<img" not in page
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_sweep_and_convergence_are_drawn_to_files(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 3)))
    for command in ("bandwidth", "converge"):
        done = run(command, tmp_path / "x.npy", "--plot", tmp_path / f"{command}.png", "-q")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"{command}.png").read_bytes().startswith(b"\x89PNG")
    done = run("converge", tmp_path / "x.npy", "--plot", tmp_path / "plot.exe", "-q")
    assert done.returncode == 2
    assert "--plot must end in .png, .svg, .pdf" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a JSON file"),
        ("[]", "must hold a JSON object"),
        ('{"schema": 2}', "a report needs one result with scores"),
        ('{"schema": 2, "scores": 3}', "this is not a result that divprism wrote"),
        ('{"schema": 1, "scores": {}}', "schema 1"),
        ('{"schema": 2, "models": {}}', "at least one model, and this result has none"),
    ],
)
def test_files_that_are_no_results_are_refused(tmp_path, content, message):
    (tmp_path / "result.json").write_text(content)
    done = run("report", tmp_path / "result.json", "-o", tmp_path / "page.html")
    assert done.returncode == 4
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_weights_and_a_report_do_not_go_together(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    np.save(tmp_path / "w.npy", np.full(4, 0.25))
    weights = ["--weights", tmp_path / "w.npy"]
    done = run("score", tmp_path / "x.npy", *weights, "--report", tmp_path / "page.html")
    assert done.returncode == 2
    assert "do not go with --weights" in done.stderr


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("jinja2", "dp.html_report(r)"),
        ("matplotlib", "r.plot()"),
        ("matplotlib", "dp.html_report(r)"),
    ],
)
def test_without_the_extra_one_sentence_says_what_to_install(missing, call):
    code = (
        f"import sys, numpy as np, divprism as dp\nsys.modules[{missing!r}] = None\n"
        "r = dp.evaluate(np.eye(4), np.arange(4) % 2, kernel_x=dp.Cosine())\n"
        f"try: {call}\nexcept dp.MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'divprism[report]'" in done.stdout


@pytest.mark.parametrize("content", ["NaN", "Infinity"])
def test_numbers_that_json_does_not_have_are_refused(tmp_path, result, content):
    error = '"standard_error": 0.0'
    text = json.dumps(result.to_dict()).replace(error, f'"standard_error": {content}', 1)
    (tmp_path / "result.json").write_text(text)
    done = run("report", tmp_path / "result.json", "-o", tmp_path / "page.html")
    assert done.returncode == 4
    assert f"{content} is not a JSON number" in done.stderr
    changed = result.to_dict()
    changed["scores"]["vendi"]["value"] = math.nan
    with pytest.raises(dp.DataError, match=r"must be a number from .*; got nan"):
        report_page(changed)


def test_details_go_into_json_only(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    done = run("score", tmp_path / "x.npy", "--details")
    assert done.returncode == 2
    assert "--format json" in done.stderr


def test_what_was_off_stays_off_by_config(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    options = ["--interval", "0", "--format", "json", "-o", tmp_path / "r.json", "-q"]
    off = run("score", tmp_path / "x.npy", *options)
    assert off.returncode == 0, off.stderr
    options = ["--config", tmp_path / "r.json", "--format", "json", "-q"]
    again = json.loads(run("score", tmp_path / "x.npy", *options).stdout)
    assert again["scores"]["vendi"]["interval"] is None


def test_the_demo_keeps_a_file_that_is_not_its_own(tmp_path, result):
    page = tmp_path / "report.html"
    page.write_text(report_page(result.to_dict()))
    assert "choose another --report" in run("demo", "--report", page).stdout
    assert run("demo", "--report", tmp_path).returncode == 4
    page.write_text("mine")
    done = run("demo", "--report", page)
    assert done.returncode == 0
    assert page.read_text() == "mine"
    assert "choose another --report" in done.stdout
    page.unlink()
    for _ in range(2):
        done = run("demo", "--report", page)
        assert f"open {page} in a browser" in done.stdout
    assert "3 models" in page.read_text()
