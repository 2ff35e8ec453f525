"""Pages of differences, novelty and overlap from their JSON: the same page, and broken files."""

import copy
import json
import re

import numpy as np
import pytest
from report_cases import HOSTILE, run
from sample_files import image_bytes, jsonl, write

import divprism as dp
from divprism.data.wording import json_text
from divprism.errors import DataError
from divprism.report import report_page
from divprism.report.details import detailed
from divprism.report.difference_views import MAX_IMAGES

COSINE = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}
QUICK = {"num_permutations": 9}
HIDDEN = "a\N{RIGHT-TO-LEFT OVERRIDE}b"


def models(names=("first", "second")):
    """Two models with three outputs each for six prompts; half of them are of other kinds."""
    prompts = np.repeat(np.arange(6), 3)
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, (2, prompts.size))
    kinds[1] += 2
    return {
        name: dp.Samples(np.eye(6)[rows], prompts) for name, rows in zip(names, kinds, strict=True)
    }


def a_diff(names=("first", "second"), **options):
    return dp.diff(models(names), **COSINE, **QUICK, **options)


def a_novelty():
    x = models()["second"].outputs
    return dp.novelty(x, models()["first"].outputs, kernel_x=dp.Cosine(), **QUICK)


def a_diff_of_texts():
    t = ["write a line", HOSTILE] * 3
    texts = [HOSTILE, "seven", "rain on tin", "a boat", "a boat!", "an apple"]
    first, second = dp.Samples(texts, t), dp.Samples([f"{text} or so" for text in texts], t)
    return dp.diff({HOSTILE: first, "second": second}, **QUICK)


RESULTS = {
    "differences": a_diff,
    "groups": lambda: a_diff(grouping=dp.ExactPromptGrouping()),
    "reference": lambda: a_diff(reference=np.eye(6)),
    "equal models": lambda: dp.diff(models()["first"], models()["first"], **COSINE, **QUICK),
    "texts": a_diff_of_texts,
    "novelty": a_novelty,
    "selection": lambda: dp.select(np.eye(6), ["p", "q"] * 3, k=3, **COSINE),
    "mixture": lambda: dp.mixture(models(), per_group="prompt", **COSINE),
    "overlap": lambda: dp.overlap(models(), **COSINE),
}


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_the_page_of_a_saved_result_is_that_of_the_result(make):
    result = make()
    page = dp.html_report(result)
    assert report_page(json.loads(json_text(detailed(result)))) == page
    assert HOSTILE not in page


@pytest.mark.parametrize("make", [a_diff_of_texts, a_diff, a_novelty, RESULTS["overlap"]])
def test_a_result_without_details_has_the_same_page_where_nothing_is_an_image(make):
    result = make()
    assert report_page(json.loads(result.to_json())) == dp.html_report(result)


def light_and_dark(folder):
    """Two sources of images for the same prompts."""
    for model, shades in (("light", (200, 250)), ("dark", (10, 60))):
        rows = []
        for number in range(6):
            name = f"{model}{number}.png"
            write(folder, {name: image_bytes((shades[number % 2],) * 3)})
            rows.append({"prompt": f"shade {number % 3}", "image": name})
        write(folder, {f"{model}.jsonl": jsonl(rows)})
    return dp.load(folder / "light.jsonl"), dp.load(folder / "dark.jsonl")


def mean_color(images):
    return np.array([np.asarray(image, float).mean(axis=(0, 1)) / 50 for image in images])


def test_the_file_holds_the_images_of_the_page(tmp_path):
    light, dark = light_and_dark(tmp_path)
    results = [make(light, dark, embedder_x=mean_color, **QUICK) for make in (dp.diff, dp.novelty)]
    saved = [json_text(detailed(result)) for result in results]
    pages = [dp.html_report(result) for result in results]
    for path in tmp_path.glob("*.png"):
        path.unlink()
    for text, page in zip(saved, pages, strict=True):
        assert page.count("data:image/jpeg;base64,") >= 4
        assert report_page(json.loads(text)) == page
    few = dp.html_report(results[0], max_thumbnails=0)
    assert "data:image" not in few and "light" in few


def test_commands_keep_what_their_pages_need(tmp_path):
    """The same page from the command, and later from its JSON; no source is read again."""
    for name in ("a", "b"):
        rows = []
        for row in range(20):
            rows.append({"prompt": f"p{row % 5}", "output": f"{name} {row * 7919}", "model": name})
        write(tmp_path, {f"{name}.jsonl": jsonl(rows)})
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    commands = {
        "diff": ("diff", a, b, "--num-permutations", 9, "--group-by", "prompt"),
        "novelty": ("diff", a, "--reference", b, "--num-permutations", 9),
        "select": ("select", a, "-k", 3),
        "mix": ("mix", a, b, "--per-prompt"),
        "overlap": ("compare", a, b, "--overlap"),
    }
    files = []
    for name, command in commands.items():
        page, result = tmp_path / f"{name}.html", tmp_path / f"{name}.json"
        done = run(*command, "--details", "--format", "json", "--report", page, "-q")
        assert done.returncode == 0, done.stderr
        result.write_text(done.stdout)
        files.append((page, result))
    a.unlink()
    b.unlink()
    for page, result in files:
        again = tmp_path / "again.html"
        done = run("report", result, "-o", again)
        assert done.returncode == 0, done.stderr
        assert again.read_bytes() == page.read_bytes(), result


def test_examples_do_not_share_a_class_with_the_lists_of_other_pages():
    """A grid of examples would spread settings and downloads over three columns."""
    page = dp.html_report(a_diff())
    assert 'class="examples"' in page
    assert '<div class="pairs"' not in page and "\n.pairs { display" not in page


# --- names


def test_names_with_hidden_letters_get_pages_of_every_kind():
    """Names are keys in some parts of a result and values in others."""
    named = models((HIDDEN, "ab"))
    results = [
        dp.diff(named, **COSINE, **QUICK),
        dp.overlap(named, **COSINE),
        dp.mixture(named, per_group="prompt", **COSINE),
        dp.compare(named, overlap=True, **COSINE),
    ]
    for result in results:
        page = dp.html_report(result)
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page
        assert "ab (2)" in page


# --- files that anybody may have written


def broken(document, path, value):
    """A document with another value at a path of keys."""
    changed = copy.deepcopy(document)
    *parents, last = path
    part = changed
    for key in parents:
        part = part[key]
    part[last] = value
    return changed


D, N = "differences", "novelty"
BROKEN = [
    (a_diff, ("schema",), 1, "`schema` must be 2; got 1"),
    (a_diff, (D, "second"), "first", "`differences.second` must be another model than `first`"),
    (a_diff, (D, "modes"), {}, "`result.differences.modes` must be a list of at least 0"),
    (a_diff, (D, "modes", 0), None, r"`result.differences.modes\[0\]` must be an object"),
    (
        a_diff,
        (D, "modes", 0, "model"),
        "third",
        r"modes\[0\].model` must be a model of",
    ),
    (a_diff, (D, "modes", 0, "share_first"), 2, r"modes\[0\].share_first` must be a number from 0"),
    (a_diff, (D, "modes", 0, "clear"), 1, r"modes\[0\].clear` must be true or false"),
    (a_diff, (D, "modes", 0, "low"), None, r"modes\[0\].high` must be given with `low`"),
    (a_diff, (D, "modes", 0, "share_reference"), 0.5, "`share_reference` in all or in none"),
    (a_diff, (D, "modes", 0, "examples", 0, "output"), "x", r"\[0\].output` must be an object"),
    (
        a_diff,
        (D, "modes", 0, "examples", 0, "output", "file"),
        ["/etc/passwd"],
        r"\[0\].output.file` must be a text",
    ),
    (a_diff, (D, "p_value"), None, "`differences.p_value` must be given with `baseline`"),
    (a_diff, (D, "unit"), "day", "`result.differences.unit` must be one of prompt, pair"),
    (a_diff, (D, "num_exchanges"), 1.5, "num_exchanges` must be a whole number"),
    (a_diff, (D, "groups"), [{}], r"groups\[0\]` must be an object with the key 'name'"),
    (a_diff, ("data", "n"), 0, "`result.data.n` must be a whole number from 1"),
    (a_diff, ("settings",), [], "`result.settings` must be an object"),
    (a_diff, ("embedders",), [{}], r"embedders\[0\]` must be an object with the key 'side'"),
    (a_diff, ("warnings",), [{"code": "x"}], r"`result.warnings\[0\]` must be an object with"),
    (a_novelty, ("schema",), None, "`schema` must be 2"),
    (a_novelty, (N,), [], "`result.novelty` must be an object"),
    (a_novelty, (N, "modes", 0, "model"), "reference", r"modes\[0\].model` must be a model of the"),
    (a_novelty, (N, "copies", 0), {}, r"copies\[0\]` must be an object with the key 'similarity'"),
    (a_novelty, (N, "quantile"), 2, "`result.novelty.quantile` must be a number from 0 to 1"),
    (a_novelty, (N, "ken"), "much", "`result.novelty.ken` must be a number from 0"),
    (RESULTS["overlap"], ("schema",), 1, "`schema` must be 2"),
    (RESULTS["overlap"], ("models",), "ab", "`overlap.models` must be a list of at least 2"),
    (RESULTS["overlap"], ("pairs", 0, "models"), ["first", "x"], "two models of the result"),
    (RESULTS["overlap"], ("joint", "models"), ["first", "x"], "`overlap.joint.models` must be the"),
    (RESULTS["overlap"], ("runtime",), [], "`overlap.runtime` must be an object"),
]


@pytest.fixture(scope="module")
def documents():
    """The document of each result that is broken below."""
    return {make: detailed(make()) for make in (a_diff, a_novelty, RESULTS["overlap"])}


@pytest.mark.parametrize(("make", "path", "value", "message"), BROKEN)
def test_a_broken_file_is_refused_by_its_field(documents, make, path, value, message):
    with pytest.raises(DataError, match=message):
        report_page(broken(documents[make], path, value))


def test_what_a_file_claims_as_image_or_text_is_neither_read_nor_run(documents, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(image_bytes((1, 2, 3)))
    document = documents[a_diff]
    output = document[D]["modes"][0]["examples"][0]["output"]
    for claimed in (
        {"thumbnail": '"><script>window.hacked=1</script>'},
        {"thumbnail": "/9j/" + "A" * 200_000},
        {"waveform": ['"><script>window.hacked=1</script>'] * 64},
        {"file": str(secret)},
        {"text": HOSTILE},
    ):
        given = {key: value for key, value in output.items() if key != "text"}
        path = (D, "modes", 0, "examples", 0, "output")
        page = report_page(broken(document, path, {**given, **claimed}))
        assert "<script" not in page and "<img" not in page and "<path" not in page


def test_a_page_shows_no_more_images_than_a_page_has_room_for(documents):
    image = "/9j/" + "A" * 40
    mode = copy.deepcopy(documents[a_diff][D]["modes"][0])
    example = mode["examples"][0]
    example["output"]["thumbnail"] = example["nearest"]["thumbnail"] = image
    mode["examples"] = [example] * 3
    page = report_page(broken(documents[a_diff], (D, "modes"), [mode] * 130))
    assert page.count("<img") == MAX_IMAGES
    assert "Not shown: 30 more modes; the JSON has all." in page


@pytest.mark.parametrize("make", [lambda: a_diff(grouping=dp.ExactPromptGrouping()), a_novelty])
def test_contents_lead_to_every_section_with_a_heading(make):
    page = dp.html_report(make())
    links = re.findall(r'<a href="#([^"]+)"', page)
    headings = page[page.index("<main") :].count("<h2")
    sections = re.findall(r'<section id="([^"]+)"', page)
    assert sections == ["verdict", *links]
    assert len(links) == headings


def test_keys_of_later_versions_are_ignored(documents):
    notice = {"code": "x", "text": "y", "severity": "warning", "since": "9.0"}
    page = report_page(broken(documents[a_diff], ("warnings",), [notice]))
    assert "x: y" in page
