"""Tables: every rendering has every column, no row wraps, and texts from the data are inert."""

import csv
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import HOSTILE, KERNELS
from rich.cells import cell_len

import divprism as dp
from divprism.analysis.groups import ExactPromptGrouping, prompt_groups
from divprism.errors import Notice
from divprism.report import tables
from divprism.report.group_tables import group_records, groups_listing
from divprism.report.table import RENDERINGS, Column, Measured, Table
from divprism.report.texts import visible
from divprism.scores.spec import SCORES, score_spec

WIDTHS = (40, 80, 160)
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
HOSTILE_TEXTS = [
    HOSTILE,
    "\x1b[31mred\x1b[0m\x07",
    "[bold red]markup[/] [link=x]y[/link]",
    "a\u202eb\u2066c",
    "a | b | c",
    "![image](x) [link](y) `code` **bold**",
    r"\input{x} 50% & $x_1$ #2 {y} ~ ^",
    "two\nlines\r\nand a\ttab",
    "\x00=1+1",
    "&lt;script&gt;",
]

EXAMPLE = Table(
    columns=(
        Column("name", "name"),
        Column("count", "n", ",d", priority=3),
        Column("score", "score", ".3g"),
        Column("share", "share", ".1%", priority=1),
        Column("note", "note", priority=2),
    ),
    rows=(
        ("first", 1234, Measured(math.pi, 3.0, 3.5), 0.25, "a longer text about the first row"),
        ("second", None, Measured(math.e, error=0.125), 1 / 3, None),
    ),
    title="An example",
    notes=("Numbers are made up.",),
    warnings=(Notice("odd", "Something is odd."),),
)


@pytest.fixture(scope="module")
def documents() -> dict:
    """Documents of every kind of result, by the name of the result."""
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((12, 3)), [3, 4, 5, 6, 7, 8] * 2, axis=0)
    x = t + rng.standard_normal(t.shape)
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0)}
    labels = np.arange(len(x)) % 3
    prompts = np.unique(t, axis=0, return_inverse=True)[1].reshape(-1)
    single = dp.evaluate(x, t, labels, **kernels, interval=0.95, num_permutations=3)
    models = {"a-rather-long-name-of-a-model": dp.Samples(x, prompts)}
    models["second"] = dp.Samples(x[::-1].copy(), prompts)
    return {
        "evaluation": single.to_dict(),
        "comparison": dp.compare(models, kernel_x=dp.Gaussian(2.0)).to_dict(),
        "convergence": dp.converge(x, t, **kernels, num_repeats=2).to_dict(),
        "sweep": dp.bandwidth_sweep(x, t, bandwidths_x=[1.0, 2.0], bandwidths_t=[1.0]).to_dict(),
        "groups": prompt_groups(x, prompts, ExactPromptGrouping(), **KERNELS).to_dict(),
    }


@pytest.fixture(scope="module")
def built(documents) -> dict[str, Table]:
    """Every table that divprism builds, narrow and wide."""
    evaluation, comparison = documents["evaluation"], documents["comparison"]
    models, groups = comparison["models"], documents["groups"]
    built = {}
    for wide in (False, True):
        built[f"evaluation, {wide}"] = tables.evaluation_table(evaluation, wide)
        built[f"results, {wide}"] = tables.results_table(models, wide)
        built[f"comparison, {wide}"] = tables.comparison_table(comparison, wide)
        built[f"convergence, {wide}"] = tables.convergence_table(documents["convergence"], wide)
        built[f"listing, {wide}"] = groups_listing(groups, wide=wide)
    built["scores"] = tables.scores_table(models)
    built["differences"] = tables.differences_table(comparison)
    built["curves"] = tables.curves_table(documents["convergence"])
    built["sweep"] = tables.sweep_table(documents["sweep"])
    built["groups"] = tables.groups_table(groups)
    built["records"] = group_records(groups)
    return built


def _with_text(text: str) -> Table:
    """Return a table with a text in each place that a text can have."""
    columns = (Column("text", text), Column("number", "number", ".3g"))
    return Table(columns, ((text, 1.5),), title=text, notes=(text,), warnings=(Notice("c", text),))


# Every rendering has every column


@pytest.mark.parametrize("form", [form for form in RENDERINGS if form != "csv"])
def test_renderings_for_people_have_every_title(built, form):
    for table in (EXAMPLE, *built.values()):
        text = table.render(form).replace("\\", "")  # without escapes
        for column in table.columns:
            assert column.title in text


def test_files_and_frames_have_every_key(built):
    for table in (EXAMPLE, *built.values()):
        names = next(csv.reader(io.StringIO(table.to_csv())))
        assert list(table.to_frame().columns) == names
        for column in table.columns:
            assert column.key in names
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("form", list(RENDERINGS))
def test_every_rendering_has_every_row(built, form):
    for table in (EXAMPLE, *built.values()):
        bare = replace(table, title="", notes=(), warnings=())
        num_lines = {"table": 1, "csv": 1, "md": 2, "latex": 7, "html": 5}[form] + len(table.rows)
        assert bare.render(form).count("\n") == num_lines


def test_renderings_say_the_same(built):
    """A cell reads the same in Markdown and on a terminal of any width."""
    rows = [line.split("|")[1:-1] for line in EXAMPLE.to_markdown().splitlines()[4:6]]
    lines = EXAMPLE.to_text().splitlines()[2:4]
    for cells, line in zip(rows, lines, strict=True):
        assert [cell.strip() for cell in cells if cell.strip()] == re.split(r"\s{2,}", line.strip())


# No row wraps


@pytest.mark.parametrize("width", WIDTHS)
def test_no_row_wraps(built, width):
    for name, table in built.items():
        bare = replace(table, title="", notes=(), warnings=())
        lines = bare.to_text(width).splitlines()
        assert max(map(cell_len, lines)) <= width, name
        grid, rest = lines[: 1 + len(table.rows)], lines[1 + len(table.rows) :]
        assert len(grid) == 1 + len(table.rows), name
        if rest:
            assert rest[0].startswith("not shown, for lack of width: "), name


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_of_scores_are_never_cut(built, width):
    for name in ("evaluation, False", "results, False", "comparison, True", "groups", "scores"):
        table = built[name]
        kept, cells = table._fit(width)
        for row, shown in zip(table.rows, cells, strict=True):
            for index, text in zip(kept, shown, strict=True):
                column = table.columns[index]
                if not column.is_text:
                    assert text == column.show(row[index])


def test_wide_letters_count_twice():
    table = Table((Column("a", "a"), Column("b", "b", "d")), (("日本" * 30, 1), ("x", 2)))
    lines = table.to_text(40).splitlines()
    assert len(lines) == 3
    assert all(cell_len(line) <= 40 for line in lines)
    assert "…" in lines[1]


def test_a_narrow_terminal_drops_columns_by_priority_and_names_them():
    shown_at = {}
    for width in range(120, 15, -1):
        lines = EXAMPLE.to_text(width).splitlines()
        missing = re.findall(r"not shown, for lack of width: (.*)", " ".join(lines))
        names = tuple("".join(missing).split(", "))
        shown_at.setdefault(names, width)
        # Whatever is not named is shown.
        for column in EXAMPLE.columns:
            assert (column.title in lines[1].split()) != (column.title in names)
    order = sorted(shown_at, key=shown_at.get, reverse=True)
    # The highest priority number goes first, names follow the order of the columns.
    assert order == [("",), ("n",), ("n", "note"), ("n", "share", "note")]


def test_columns_without_priority_stay_on_the_narrowest_terminal():
    head = EXAMPLE.to_text(16).splitlines()[1]
    assert head.split() == ["name", "score"]


def test_very_long_names_are_cut_in_the_middle():
    names = ["a" * 50_000 + end + "b" * 50_000 for end in "xy"]
    rows = tuple((name, 1, 2.0, 0.5, None) for name in names)
    lines = replace(EXAMPLE, rows=rows).to_text(80).splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert sum("aaa…bbb" in line for line in lines) == 2


def test_without_a_width_nothing_is_dropped_or_broken():
    long = replace(EXAMPLE, notes=("word " * 200,))
    lines = long.to_text().splitlines()
    assert len(lines) == 5
    assert lines[1].split() == [column.title for column in EXAMPLE.columns]
    assert "not shown" not in lines[-1]


def test_colour_is_only_in_text_that_asks_for_it():
    assert "\x1b" not in EXAMPLE.to_text(80)
    assert "\x1b[1m" in EXAMPLE.to_text(80, color=True)


# Texts from the data are inert


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_terminal_gets_no_control_characters_and_no_markup(text):
    for width in (None, 40):
        rendered = _with_text(text).to_text(width)
        assert not HIDDEN.search(rendered)
        assert len(rendered.splitlines()) >= 4
    # Square brackets are shown, not read as styles.
    if text.startswith("[bold"):
        assert _with_text(text).to_text().count("[bold red]markup[/]") == 4


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_markdown_shows_texts_as_they_are(text):
    rendered = _with_text(text).to_markdown()
    assert not HIDDEN.search(rendered)
    assert "<" not in rendered
    assert not re.search(r"(?<!\\)[\[\]`*]", rendered)
    row = rendered.splitlines()[4]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert len(rendered.splitlines()) == 7


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_html_escapes_texts(text):
    rendered = _with_text(text).to_html()
    assert not HIDDEN.search(rendered)
    tags = set(re.findall(r"<(/?\w+)", rendered))
    own = {"table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert tags == own | {f"/{tag}" for tag in own}
    attributes = set(re.findall(r"<\w+ ([^>]*)>", rendered))
    assert attributes == {'style="text-align: left"', 'style="text-align: right"'}


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_latex_typesets_texts_as_they_are(text):
    rendered = _with_text(text).to_latex()
    assert not HIDDEN.search(rendered)
    body = [line for line in rendered.splitlines() if not line.startswith("%")]
    row = body[4]
    unescaped = re.sub(r"\\textbackslash\{\}|\\[\^~]\{\}|\\[_%&#${}]", "", row)
    assert unescaped.endswith(r"1.5 \\")
    assert not re.search(r"[\\_%#${}^~]", unescaped.removesuffix(r" \\"))
    assert unescaped.count("&") == 1
    assert len(body) == 7


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_csv_holds_texts_that_do_not_drive_a_terminal(text):
    rendered = _with_text(text).to_csv()
    assert not HIDDEN.search(rendered)
    _, [cell, number] = csv.reader(io.StringIO(rendered))
    assert cell.removeprefix("'") == visible(text)
    assert number == "1.5"


@given(st.text())
def test_no_text_of_a_csv_file_is_a_formula(text):
    _, [cell, _] = csv.reader(io.StringIO(_with_text(text).to_csv(), newline=""))
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize(
    "start",
    ["=", "+", "-", "@", "\t=", "\x00=", "\u202e=", "\ufeff=", "\u200b +", "\ufe0f=", "\u0301@"],
)
def test_formulas_are_guarded_and_numbers_are_not(start):
    table = Table((Column("a", "a"), Column("b", "b", ".2f")), ((f"{start}1+1", -1.5),))
    assert table.to_csv().splitlines()[1].startswith("'")
    assert table.to_csv().splitlines()[1].endswith(",-1.5")


@given(st.text(max_size=60), st.integers(12, 60))
def test_any_text_stays_on_its_line(text, width):
    table = Table((Column("a", "a"), Column("b", "b", ".1f")), ((text, 1.0), ("x", 2.0)))
    lines = table.to_text(width).splitlines()
    assert len(lines) == 3
    assert not HIDDEN.search("".join(lines))
    assert lines[1].endswith("1.0")


# Numbers


def test_files_and_frames_hold_full_precision(documents):
    frame = EXAMPLE.to_frame()
    assert frame["score"].tolist() == [math.pi, math.e]
    assert frame["score_low"].tolist()[0] == 3.0
    assert frame["score_error"].tolist()[1] == 0.125
    rows = list(csv.DictReader(io.StringIO(EXAMPLE.to_csv())))
    assert float(rows[0]["score"]) == math.pi
    assert float(rows[1]["share"]) == 1 / 3
    assert rows[1]["count"] == rows[1]["score_low"] == ""
    scores = tables.scores_table({"m": documents["evaluation"]}).to_frame()
    by_name = dict(zip(scores["score"], scores["value"], strict=True))
    for name, score in documents["evaluation"]["scores"].items():
        assert by_name[name] == score["value"]


def test_an_error_is_shown_with_a_digit_or_two_and_none_for_exact_numbers():
    column = Column("a", "a", ".4g")
    assert column.show(Measured(2.0, 1.5, 2.25)) == "2 ±0.4"
    assert column.show(Measured(2.0, error=0.0123)) == "2 ±0.012"
    assert column.show(Measured(2.0)) == column.show(2.0) == "2"
    assert column.show(None) == ""
    # Resampling equal numbers leaves a spread of rounding errors.
    assert column.show(Measured(6.0, 6.0 - 1e-15, 6.0 + 1e-15)) == "6"


def test_frames_need_pandas_or_polars(monkeypatch):
    import sys

    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(dp.MissingExtraError, match="needs pandas or polars"):
        EXAMPLE.to_frame()


# The tables that divprism builds


def test_the_table_of_an_evaluation_reads_the_table_of_scores(documents):
    evaluation = documents["evaluation"]
    wide = tables.evaluation_table(evaluation, wide=True)
    computed = [spec for spec in SCORES if spec.name in evaluation["scores"]]
    assert [row[0] for row in wide.rows] == [spec.name for spec in computed]
    for row, spec in zip(wide.rows, computed, strict=True):
        assert row[3].startswith(spec.meaning)
    narrow = tables.evaluation_table(evaluation)
    # Scores of a fixed order are in the wide table only.
    assert [row[0] for row in narrow.rows] == [spec.name for spec in computed if not spec.order]


def test_the_table_of_models_has_headings_from_the_table_of_scores(documents):
    models = documents["comparison"]["models"]
    table = tables.results_table(models, wide=True)
    titles = {column.key: column.title for column in table.columns}
    for name in models["second"]["scores"]:
        assert titles[name] == score_spec(name).heading
    conditional = [column for column in table.columns if column.key == "conditional_vendi"]
    assert conditional[0].priority == 0


def test_the_table_of_a_comparison_has_ranks_and_words(documents):
    comparison = documents["comparison"]
    lengths = {"a-rather-long-name-of-a-model": 3.0, "second": 4.0}
    table = tables.comparison_table(comparison | {"lengths": lengths})
    assert [column.key for column in table.columns[:2]] == ["model", "rank"]
    assert table.columns[-1].key == "words"
    assert [row[-1] for row in table.rows] == [lengths[row[0]] for row in table.rows]
    assert tables.comparison_table(comparison).columns[-1].key != "words"


def test_the_table_of_differences_has_every_pair(documents):
    table = tables.differences_table(documents["comparison"])
    [row] = table.rows
    [difference] = documents["comparison"]["differences"]
    assert row[:5] == tuple(difference[key] for key in ("first", "second", "ratio", "low", "high"))
    assert row[5] in ("yes", "no")
    assert (row[5] == "yes") == difference["clear"]


def test_the_table_of_a_convergence_ends_with_the_whole_sample(documents):
    document = documents["convergence"]
    table = tables.convergence_table(document)
    assert table.columns[-1].key == str(document["sizes"][-1])
    # The whole sample is the answer: it is the last to be dropped.
    assert table.columns[-1].priority == 0
    priorities = [column.priority for column in table.columns[1:]]
    assert priorities == sorted(priorities, reverse=True)
    for row in table.rows:
        assert row[-1].value == document["means"][row[0]][-1]
    curves = tables.curves_table(document)
    assert len(curves.rows) == len(document["means"]) * len(document["sizes"])


def test_the_table_of_groups_is_in_the_order_of_the_document(documents):
    document = documents["groups"]
    table = tables.groups_table(document)
    keys = [column.key for column in table.columns]
    assert "rarefied" in keys  # the groups have different sizes
    vendi = [row[keys.index("vendi")] for row in table.rows]
    assert vendi == [group["vendi"] for group in document["groups"]]


def test_warnings_of_a_document_become_notices(documents):
    notice = {"code": "odd", "text": "Something is odd.", "severity": "note"}
    table = tables.evaluation_table(documents["evaluation"] | {"warnings": [notice]})
    assert table.warnings == (Notice("odd", "Something is odd.", "note"),)
    assert f"<li>{table.warnings[0]}</li>\n</ul>" in table.to_html()


# Tables of tables


def test_the_head_of_a_table_counts_the_rows_left_out():
    assert EXAMPLE.head(2) is EXAMPLE
    short = EXAMPLE.head(1)
    assert len(short.rows) == 1
    assert short.notes[0].startswith("not shown: 1 more row;")


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(dp.ArgumentError, match="a row of a table has 1 cells; it has 2 columns"):
        Table((Column("a", "a"), Column("b", "b")), (("x",),))


def test_bandwidths_come_with_the_formula_of_their_kernel(documents):
    document = documents["evaluation"]
    notes = "\n".join(tables.kernel_notes(document))
    assert notes.count("k = exp(-d^2 / (2 bandwidth^2))") == 1
    # A kernel of another package has a name that we cannot explain.
    settings = document["settings"] | {"kernel_t": "laplacian"}
    notes = "\n".join(tables.kernel_notes(document | {"settings": settings}))
    assert notes.count("gaussian k = exp(-d^2 / (2 bandwidth^2))") == 1
    assert "laplacian k =" not in notes


def test_numbers_in_html_are_aligned_to_the_right_and_texts_to_the_left():
    html = EXAMPLE.to_html()
    assert '<td style="text-align: left">first</td>' in html
    assert '<td style="text-align: right">25.0%</td>' in html


def test_notes_in_html_are_a_list():
    html = Table((Column("a", "a"),), (("b",),), notes=("one", "two < 3")).to_html()
    assert html.endswith("<ul>\n<li>one</li>\n<li>two &lt; 3</li>\n</ul>\n")
    assert "<ul>" not in Table((Column("a", "a"),), (("b",),)).to_html()


def test_notes_in_markdown_are_paragraphs_of_their_own():
    lines = replace(EXAMPLE, notes=("One note.", "Another note.")).to_markdown().splitlines()
    assert lines[-3:] == ["One note.", "", "Another note."]


def test_each_side_has_a_note_with_its_kernel():
    x, t = np.eye(6), np.repeat([0, 1], 3)
    document = dp.evaluate(x, t, kernel_x=dp.Gaussian(2.0)).to_dict()
    assert tables.kernel_notes(document) == [
        "outputs: gaussian kernel, bandwidth 2",
        "prompts: categorical kernel",
        "k = exp(-d^2 / (2 bandwidth^2))",
    ]


def test_outputs_without_prompts_are_not_called_pairs():
    document = dp.evaluate(np.eye(20), kernel_x=dp.Cosine(), interval=0.9).to_dict()
    assert "resampling 20 outputs" in tables.interval_remarks(document)[0]
    sweep = dp.bandwidth_sweep(np.eye(20), bandwidths_x=[1.0]).to_dict()
    assert tables.sweep_table(sweep).title.startswith("20 outputs; ")


def test_columns_of_a_table_of_models_are_explained_below_it():
    x, t = np.eye(12), np.tile(np.arange(6) // 2, 2)
    results = dp.evaluate_models(
        dp.Samples(x, t, models=("a",) * 6 + ("b",) * 6), kernel_x=dp.Cosine(), interval=0.9
    )
    notes = tables.results_table(results.documents()).notes
    assert "vendi = conditional x information" in notes[0]
    assert (
        notes[1] == "kinds: 3 among 3 prompts; per prompt: distinct outputs per exact prompt, of 2"
    )
    assert notes[-1].startswith("excess info: ")
