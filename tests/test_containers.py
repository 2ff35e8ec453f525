"""The same data in any container or layout: the same score to the bit, or the same refusal."""

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import divprism as dp

QUICK = {"num_permutations": 0}
RNG = np.random.default_rng(0)
# 24 columns: products of fewer are rounded alike in every order of memory.
X, T = RNG.standard_normal((60, 24)), RNG.standard_normal((60, 8))
TEXTS = [f"{word} number {n % 5}" for word in ("sea", "tea", "cat", "fog") for n in range(6)]
PROMPTS = [f"about the {text.split()[0]}" for text in TEXTS]


def bits(result):
    return {name: float(score).hex() for name, score in result.scores.items()}


def columns(rows):
    return {f"c{number}": rows[:, number] for number in range(rows.shape[1])}


ROWS = {
    "list": np.ndarray.tolist,
    "list of arrays": list,
    "tuple": lambda rows: tuple(rows.tolist()),
    "Fortran order": np.asfortranarray,
    "every second column": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "backwards": lambda rows: np.ascontiguousarray(rows[::-1])[::-1],
    "big endian": lambda rows: rows.astype(">f8"),
    "pandas": pd.DataFrame,
    "pandas with names": lambda rows: pd.DataFrame(columns(rows)),
    "polars": lambda rows: pl.DataFrame(columns(rows)),
    "pyarrow": lambda rows: pa.table(columns(rows)),
    "a column of pandas": lambda rows: pd.Series(list(rows)),
    "a column of polars": lambda rows: pl.Series(rows.tolist()),
    "an array column of polars": pl.Series,
    "a column of pyarrow": lambda rows: pa.array(rows.tolist()),
    "a column of datasets": lambda rows: datasets.Dataset.from_dict({"x": rows.tolist()})["x"],
    "a tensor": torch.as_tensor,
    "a transposed tensor": lambda rows: torch.as_tensor(np.ascontiguousarray(rows.T)).T,
    "a tensor with a gradient": lambda rows: torch.tensor(rows, requires_grad=True),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_score_alike_in_every_container_and_layout(name):
    expected = bits(dp.evaluate(X, T, **QUICK))
    assert bits(dp.evaluate(ROWS[name](X), ROWS[name](T), **QUICK)) == expected
    assert bits(dp.evaluate(ROWS[name](X), T, **QUICK)) == expected
    assert bits(dp.evaluate(X, ROWS[name](T), **QUICK)) == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_the_precision_of_rows_is_kept_in_every_container(dtype):
    x, t = (10 * X).astype(dtype), (10 * T).astype(dtype)
    expected = bits(dp.evaluate(x, t, **QUICK))
    for name in ("Fortran order", "backwards", "a tensor", "a transposed tensor"):
        assert bits(dp.evaluate(ROWS[name](x), ROWS[name](t), **QUICK)) == expected, name


@pytest.mark.parametrize("name", ["Fortran order", "every second column", "backwards", "pandas"])
def test_single_scores_do_not_depend_on_the_layout(name):
    x, t = ROWS[name](X), ROWS[name](T)
    for function in (dp.vendi, dp.rke):
        kernel = dp.Gaussian(5.0)
        assert float(function(x, kernel=kernel)).hex() == float(function(X, kernel=kernel)).hex()
    kernels = {"kernel_x": dp.Gaussian(5.0), "kernel_t": dp.Gaussian(3.0)}
    for function in (dp.conditional_vendi, dp.information_rke):
        assert float(function(x, t, **kernels)).hex() == float(function(X, T, **kernels)).hex()


def test_a_transposed_tensor_scores_as_the_tensor():
    kernel = dp.Gaussian(5.0)
    plain, turned = ROWS["a tensor"](X), ROWS["a transposed tensor"](X)
    assert float(dp.vendi(plain, kernel=kernel)) == float(dp.vendi(turned, kernel=kernel))


def test_a_file_in_fortran_order_scores_as_the_array(tmp_path):
    for name, rows in (("c", X), ("f", np.asfortranarray(X))):
        np.save(tmp_path / f"{name}.npy", rows)
    expected = bits(dp.evaluate(X, **QUICK))
    assert bits(dp.evaluate(tmp_path / "c.npy", **QUICK)) == expected
    assert bits(dp.evaluate(tmp_path / "f.npy", **QUICK)) == expected
    mapped = np.load(tmp_path / "f.npy", mmap_mode="r")
    assert bits(dp.evaluate(mapped, **QUICK)) == expected


COLUMNS = {
    "tuple": tuple,
    "array": np.array,
    "array of objects": lambda texts: np.array(texts, dtype=object),
    "pandas": pd.Series,
    "pandas with an index": lambda texts: pd.Series(texts, index=range(9, 9 + len(texts))),
    "pandas of categories": lambda texts: pd.Series(texts, dtype="category"),
    "pandas of pyarrow": lambda texts: pd.Series(texts, dtype="string[pyarrow]"),
    "polars": pl.Series,
    "polars of categories": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "pyarrow": pa.array,
    "chunks of pyarrow": lambda texts: pa.chunked_array([texts[:7], texts[7:]]),
    "a dictionary of pyarrow": lambda texts: pa.array(texts).dictionary_encode(),
    "datasets": lambda texts: datasets.Dataset.from_dict({"x": texts})["x"],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_texts_score_alike_in_every_container(name):
    expected = bits(dp.evaluate(TEXTS, PROMPTS, **QUICK))
    assert bits(dp.evaluate(COLUMNS[name](TEXTS), COLUMNS[name](PROMPTS), **QUICK)) == expected


# --- names of columns that are no texts


@pytest.mark.parametrize("names", [(0, 1), (1, 0), (5, "output")])
def test_columns_named_by_numbers_are_read_by_their_names(names):
    frame = pd.DataFrame(dict(zip(names, (PROMPTS, TEXTS), strict=True)))
    found = dp.evaluate(frame, prompt=str(names[0]), output=str(names[1]), **QUICK)
    assert bits(found) == bits(dp.evaluate(TEXTS, PROMPTS, **QUICK))


@pytest.mark.parametrize("names", [(0, 0, 1), ("a", "b", "a"), (0, "0", 1)])
def test_a_matrix_may_name_columns_alike(names):
    rows = X[:, :3]
    frame = pd.DataFrame(rows, columns=list(names))
    assert bits(dp.evaluate(frame, **QUICK)) == bits(dp.evaluate(rows, **QUICK))


def test_a_table_of_pyarrow_may_name_numbers_alike():
    table = pa.table([pa.array(column) for column in X[:, :2].T], names=["a", "a"])
    assert bits(dp.evaluate(table, **QUICK)) == bits(dp.evaluate(X[:, :2], **QUICK))


# --- refusals

CHAT = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}]
REFUSALS = {
    "a set of outputs": (
        lambda: dp.evaluate(set(TEXTS)),
        r"^`x` is a set, whose order is not defined; pass a list\.$",
    ),
    "a frozen set of prompts": (
        lambda: dp.evaluate(TEXTS, frozenset(PROMPTS)),
        r"^`t` is a frozenset, whose order is not defined; pass a list\.$",
    ),
    "a set in a row": (
        lambda: dp.evaluate([{"output": "a"}, {"output": {"b", "c"}}]),
        r"^row 1 of the list of dicts has a set where a text is expected, in the column 'output'; "
        r"name another column, or a part of it as 'output.NAME', with `output`\.$",
    ),
    "a set as a prompt": (
        lambda: dp.evaluate([{"output": "a", "prompt": "p"}, {"output": "b", "prompt": {"q"}}]),
        r"has a set where a text is expected, in the column 'prompt'",
    ),
    "a set as a model": (
        lambda: dp.evaluate_models([{"output": "a", "model": {"m"}}]),
        r"^row 0 of the list of dicts names its model by a collection; name it by a text or a num",
    ),
    "a missing row": (
        lambda: dp.evaluate(pd.Series([[1.0, 2.0], None])),
        r"^1 output is missing \(first: output 1\); leave these pairs out\.$",
    ),
    "a missing id": (
        lambda: dp.evaluate(np.eye(3), [1, None, 2]),
        r"^1 prompt is missing \(first: prompt 1\); leave these pairs out\.$",
    ),
    "a missing row of a single score": (
        lambda: dp.vendi([[1.0, 2.0], None]),
        r"^`x` is not a rectangular array: row 1 is missing\.$",
    ),
    "rows of different lengths": (
        lambda: dp.evaluate([[1.0, 2.0], [1.0]]),
        r"^`x` is not a rectangular array: row 0 has 2 numbers and row 1 has 1\.$",
    ),
    "a number among rows": (
        lambda: dp.evaluate([[1.0, 2.0], 3.0]),
        r"^`x` is not a rectangular array: row 1 is a float beside rows of numbers\.$",
    ),
    "two columns of texts of one name": (
        lambda: dp.evaluate(pd.DataFrame([["a", "b"]], columns=["output", "output"])),
        r"^several columns of the pandas.DataFrame are called 'output'; rename them, or keep one",
    ),
    "two columns of one spelling": (
        lambda: dp.evaluate(pd.DataFrame([["a", "b"]], columns=[0, "0"]), output="0"),
        r"^several columns of the pandas.DataFrame are called '0'",
    ),
    "a prompt that the first row lacks": (
        lambda: dp.evaluate([{"output": "a"}, {"output": "b", "prompt": "p"}]),
        r"^row 1 of the list of dicts has prompts in the column 'prompt', which the first record "
        r"lacks; add it there, or remove it everywhere to score without prompts\.$",
    ),
    "a model that the first row lacks": (
        lambda: dp.evaluate([{"output": "a"}, {"output": "b", "model": "m"}]),
        r"has models in the column 'model', which the first record lacks",
    ),
    "a column that a row lacks": (
        lambda: dp.evaluate([{"output": "a", "prompt": "p"}, {"output": "b"}]),
        r"^row 1 of the list of dicts has no column 'prompt', unlike the first record",
    ),
    "two prompts in a row": (
        lambda: dp.evaluate([{"output": "a", "prompt": ["p", "q"]}]),
        r"2 prompts in one column where .* in the column 'prompt'; name another column",
    ),
    "no models": (
        lambda: dp.evaluate_models(pd.DataFrame({"output": ["a", "b"]})),
        r"does not name the model of each output\. Pass the column or field that does as `model`",
    ),
    "no models of samples": (
        lambda: dp.evaluate_models(dp.load(pd.DataFrame({"output": ["a", "b"]}))),
        r"Pass the field that does as `model_field`",
    ),
    "no models to compare": (
        lambda: dp.compare(pd.DataFrame({"output": ["a"], "prompt": ["p"]})),
        r"Pass the column or field that does as `model`",
    ),
    "one model to compare": (
        lambda: dp.compare([{"output": "a", "prompt": "p", "model": "m"}]),
        r"Name the column or field that holds the model \(`model`\), or give a source",
    ),
    "a chat without an answer": (
        lambda: dp.evaluate([{"messages": CHAT}, {"messages": CHAT[:1]}]),
        r"below the first; name what holds the outputs with `output`",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_read_is_refused_in_one_sentence(call, message):
    with pytest.raises(dp.DivprismError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_records_whose_other_fields_differ_are_read():
    rows = [{"output": "a", "prompt": "p"}, {"output": "b", "prompt": "q", "model": None, "id": 3}]
    assert dp.load(rows).models is None
    assert len(dp.load([{"output": "a"}, {"output": "b", "prompt": None}])) == 2
