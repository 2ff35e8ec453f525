"""Data frames, data sets and lists of dicts: each gives the answer of the lists that it holds."""

import datetime
import json

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image
from sample_files import image_bytes, jsonl, write

import divprism as dp

WORDS = ("sea", "tea", "cat", "dog", "fog", "sky")
ROWS = [
    {"prompt": f"about the {word}", "answer": f"{model} says {word} {n}", "llm": model}
    for word in WORDS
    for model in ("A", "B")
    for n in range(2)
]
TABLES = {
    "list of dicts": list,
    "tuple of dicts": tuple,
    "pandas": pd.DataFrame,
    "pandas with another index": lambda rows: pd.DataFrame(rows, index=range(5, 5 + len(rows))),
    "pandas with pyarrow types": lambda rows: pd.DataFrame(rows).convert_dtypes(
        dtype_backend="pyarrow"
    ),
    "pandas with categories": lambda rows: pd.DataFrame(rows).astype("category"),
    "polars": pl.DataFrame,
    "lazy polars": lambda rows: pl.DataFrame(rows).lazy(),
    "pyarrow": pa.Table.from_pylist,
    "datasets": datasets.Dataset.from_list,
    "streamed datasets": lambda rows: datasets.Dataset.from_list(rows).to_iterable_dataset(),
}
QUICK = {"num_permutations": 0}


def scores(result):
    return {name: float(score).hex() for name, score in result.scores.items()}


def lists(rows):
    return [row["answer"] for row in rows], [row["prompt"] for row in rows]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_gives_the_answer_of_its_lists_to_the_bit(table):
    rows = [row for row in ROWS if row["llm"] == "A"]
    expected = scores(dp.evaluate(*lists(rows), **QUICK))
    assert scores(dp.evaluate(table(rows), prompt="prompt", output="answer", **QUICK)) == expected
    # Fields are recognised by their names, as in files.
    assert scores(dp.evaluate(table(rows), **QUICK)) == expected


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_column_of_models_gives_results_to_the_bit(table):
    outputs, prompts = lists(ROWS)
    samples = dp.Samples(outputs, prompts, [row["llm"] for row in ROWS])
    expected = dp.evaluate_models(samples, **QUICK)
    found = dp.evaluate(table(ROWS), prompt="prompt", output="answer", model="llm", **QUICK)
    assert isinstance(found, dp.Results)
    assert list(found) == ["A", "B"]
    for name in found:
        assert scores(found[name]) == scores(expected[name])


def column_of_data_set(values):
    return datasets.Dataset.from_dict({"column": values})["column"]


@pytest.mark.parametrize("column", [pd.Series, pl.Series, pa.array, column_of_data_set])
def test_columns_stand_wherever_lists_do(column):
    outputs, prompts = lists(ROWS)
    models = [row["llm"] for row in ROWS]
    expected = dp.evaluate(outputs, prompts, labels=models, **QUICK)
    columns = column(outputs), column(prompts)
    found = dp.evaluate(*columns, labels=column(models), weights=column([1 / 24] * 24), **QUICK)
    assert float(found.cluster_vendi) == pytest.approx(float(expected.cluster_vendi), rel=1e-12)
    assert scores(dp.evaluate(*columns, **QUICK)) == scores(dp.evaluate(outputs, prompts, **QUICK))
    by_model = dp.Samples(*columns, column(models)).by_model()
    assert {name: len(part) for name, part in by_model.items()} == {"A": 12, "B": 12}


def test_one_model_in_the_column_is_a_mapping_of_one():
    rows = [row for row in ROWS if row["llm"] == "A"]
    found = dp.evaluate(pd.DataFrame(rows), model="llm", **QUICK)
    assert list(found) == ["A"]
    assert scores(found["A"]) == scores(dp.evaluate(pd.DataFrame(rows), **QUICK))


def test_every_analysis_takes_a_table():
    frame = pd.DataFrame(ROWS).rename(columns={"llm": "model"})
    loaded = dp.load(pd.DataFrame(ROWS), model_field="llm")
    assert list(loaded.by_model()) == ["A", "B"]
    compared = dp.compare(frame, **QUICK)
    renamed = dp.compare(pl.DataFrame(ROWS), model="llm", **QUICK)
    for comparison in (compared, renamed):
        assert set(comparison.results) == {"A", "B"}
        assert scores(comparison.results["A"]) == scores(compared.results["A"])
    halves = dict(list(frame.drop(columns="model").groupby(frame["model"])))
    apart = dp.compare(halves, **QUICK)
    assert scores(apart.results["A"]) == scores(compared.results["A"])
    assert dp.converge(frame, model="A", num_repeats=2).sizes[-1] == 12
    assert dp.prompt_groups(frame, model="A").groups
    assert dp.bandwidth_sweep(frame, model="A", bandwidths_x=[1.0]).n == 12


def test_a_file_takes_the_same_names_of_fields(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(ROWS)})
    found = dp.evaluate(tmp_path / "a.jsonl", output="answer", model="llm", **QUICK)
    expected = dp.evaluate(ROWS, output="answer", model="llm", **QUICK)
    assert scores(found["B"]) == scores(expected["B"])


def test_integers_are_ids_and_lists_are_outputs_or_vectors():
    ids = [row["prompt"].encode()[-1] for row in ROWS]
    frame = pd.DataFrame({"id": ids, "answer": lists(ROWS)[0]})
    expected = scores(dp.evaluate(lists(ROWS)[0], ids, **QUICK))
    for table in (frame, pl.DataFrame(frame.to_dict("list"))):
        assert scores(dp.evaluate(table, prompt="id", **QUICK)) == expected
    vectors = np.random.default_rng(0).standard_normal((24, 3))
    frame = pd.DataFrame({"vector": list(vectors), "id": ids})
    expected = scores(dp.evaluate(vectors, ids, **QUICK))
    for table in (frame, pl.DataFrame({"vector": vectors, "id": ids})):
        assert scores(dp.evaluate(table, prompt="id", **QUICK)) == expected
    grouped = pl.DataFrame(ROWS).group_by("prompt", maintain_order=True).agg("answer")
    expected = scores(dp.evaluate(ROWS, **QUICK))
    for table in (grouped, grouped.to_pandas(), grouped.to_arrow()):
        assert scores(dp.evaluate(table, **QUICK)) == expected


def test_a_data_frame_of_numbers_is_a_matrix():
    rows = np.random.default_rng(0).standard_normal((8, 3))
    expected = scores(dp.evaluate(rows, np.arange(8) // 2, **QUICK))
    for frame in (pd.DataFrame(rows), pl.DataFrame(rows)):
        assert scores(dp.evaluate(frame, np.arange(8) // 2, **QUICK)) == expected


def test_images_in_tables_are_the_images_of_the_files(tmp_path):
    files = {f"{n}.png": image_bytes(n) for n in range(4)}
    write(tmp_path, files)
    paths = [tmp_path / name for name in files]
    prompts = ["p", "p", "q", "q"]
    expected = [image.content().tobytes() for image in dp.load(tmp_path).outputs]
    tables = [
        pd.DataFrame({"prompt": prompts, "image": [Image.open(path) for path in paths]}),
        pd.DataFrame({"prompt": prompts, "picture": paths}),
        pl.DataFrame({"prompt": prompts, "image": [str(path) for path in paths]}),
        datasets.Dataset.from_dict(
            {"prompt": prompts, "image": [str(path) for path in paths]}
        ).cast_column("image", datasets.Image()),
    ]
    for table in tables:
        field = {"output_field": "picture"} if "picture" in table else {}
        samples = dp.load(table, **field)
        assert [image.content().tobytes() for image in samples.outputs] == expected


def test_missing_values_are_skipped_and_counted_as_in_files(tmp_path):
    rows = [dict(row) for row in ROWS]
    rows[3]["answer"] = rows[5]["prompt"] = None
    write(tmp_path, {"a.jsonl": jsonl(rows)})
    expected = scores(dp.evaluate(tmp_path / "a.jsonl", **QUICK))
    for name, table in TABLES.items():
        found = dp.evaluate(table(rows), **QUICK)
        assert (scores(found), found.data["skipped"]) == (expected, 2), name
        assert "2 of 24 outputs were skipped" in " ".join(map(str, found.warnings))


FRAME = pd.DataFrame(ROWS)
COLUMNS = "it has prompt, answer, llm"
REFUSALS = {
    "absent output": (
        lambda: dp.evaluate(FRAME, output="text"),
        r"the pandas\.DataFrame has no column 'text' \(`output`\); " + COLUMNS,
    ),
    "absent prompt": (
        lambda: dp.evaluate(pl.DataFrame(ROWS), prompt="question"),
        r"the polars\.DataFrame has no column 'question' \(`prompt`\); " + COLUMNS,
    ),
    "absent model": (
        lambda: dp.evaluate(ROWS, model="engine"),
        r"the list of dicts has no column 'engine' \(`model`\); " + COLUMNS,
    ),
    "absent with load": (
        lambda: dp.load(FRAME, model_field="engine"),
        r"no column 'engine' \(`model_field`\)",
    ),
    "nothing known": (
        lambda: dp.evaluate(pd.DataFrame({"a": ["x"], "b": ["y"]})),
        r"no column that is known to hold outputs \(it has a, b\); name one with `output`",
    ),
    "numbers as outputs": (
        lambda: dp.evaluate(FRAME.assign(rating=1.5), output="rating"),
        r"the column 'rating' of the pandas\.DataFrame holds values of type float, but outputs must"
        r" be texts, .*; it has prompt, answer, llm, rating",
    ),
    "floats as prompts": (
        lambda: dp.evaluate(FRAME.assign(prompt=0.5)),
        r"'prompt' .* type float, but prompts must be texts, .* or integer ids; it has",
    ),
    "dates as outputs": (
        lambda: dp.evaluate(FRAME.assign(answer=datetime.date(2026, 1, 1))),
        r"'answer' .* type date, but outputs must be texts",
    ),
    "a missing id": (
        lambda: dp.evaluate([{"prompt": 1, "answer": "a"}, {"prompt": None, "answer": "b"}]),
        r"row 1 of the list of dicts has no value in 'prompt', whose values are ids: integers",
    ),
    "an id of another type": (
        lambda: dp.evaluate([{"prompt": 1, "answer": "a"}, {"prompt": "b", "answer": "b"}]),
        r"row 1 of the list of dicts has a str in 'prompt', whose values are ids",
    ),
    "a missing model": (
        lambda: dp.evaluate(FRAME.assign(llm=[None, *FRAME["llm"][1:]]), model="llm"),
        r"row 0 of the pandas\.DataFrame does not name its model",
    ),
    "not a name": (
        lambda: dp.evaluate(FRAME, output=FRAME["answer"]),
        r"`output` must be the name of a column; got",
    ),
    "prompts beside a table": (
        lambda: dp.evaluate(FRAME, FRAME["prompt"]),
        r"`t` must be left out if `x` is a table \(pandas\.DataFrame\): name its column of prompts",
    ),
    "prompts of another file": (
        lambda: dp.load(FRAME, "prompts.txt"),
        r"`prompts` goes with files; name the column of prompts of a table as `prompt_field`",
    ),
    "a column of no table": (
        lambda: dp.evaluate(["a", "b"], prompt="prompt"),
        r"`prompt` names a column of a table or file, but `x` is a list; dp\.Samples",
    ),
    "labels with models": (
        lambda: dp.evaluate(FRAME, labels=FRAME["llm"], model="llm"),
        r"`labels` does not go with `model`",
    ),
    "several models": (
        lambda: dp.evaluate(FRAME.rename(columns={"llm": "model"})),
        r"outputs of 2 models, but .* of one model: .* dp\.evaluate_models",
    ),
    "several splits": (
        lambda: dp.evaluate(datasets.DatasetDict({"a": datasets.Dataset.from_list(ROWS)})),
        r"the datasets\.DatasetDict has 1 split \(a\); pass one of them",
    ),
    "mixed rows": (
        lambda: dp.evaluate([*ROWS, "a text"]),
        r"row 24 of the list of dicts is a str, unlike the rows before it",
    ),
    "columns of one name": (
        lambda: dp.evaluate(pd.concat([FRAME, FRAME], axis=1)),
        r"several columns of the pandas\.DataFrame are called 'prompt'; rename them, or keep one",
    ),
    "no table": (
        lambda: dp.load(["a", "b"]),
        r"`source` must be a path or a table in memory: .* got a list",
    ),
    "missing texts": (
        lambda: dp.evaluate(pd.Series(["a", None, "b"])),
        r"1 output is missing \(first: output 1\); leave these pairs out",
    ),
    "missing prompts": (
        lambda: dp.evaluate(["a", "b", "c"], pl.Series(["a", None, None])),
        r"2 prompts are missing \(first: prompt 1\)",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_table_lacks_is_named_in_one_sentence(call, message):
    with pytest.raises(dp.DivprismError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_column_that_looks_like_models_is_named_with_its_keyword():
    result = dp.evaluate(FRAME, **QUICK)
    (warning,) = [notice for notice in result.warnings if notice.code == "models-pooled"]
    assert "the column 'llm' of the pandas.DataFrame has 2 values" in warning.text
    assert "Pass `model=llm`" in warning.text


def test_the_limit_and_strict_apply_to_tables():
    assert len(dp.load(FRAME, model_field="llm", limit=3)) == 6
    with pytest.raises(dp.DataError, match=r"looks like the name of the model.*strict"):
        dp.load(FRAME, strict=True)


def test_a_result_of_a_table_is_a_document():
    json.loads(dp.evaluate(FRAME, **QUICK).to_json())
