"""Seeds and readers of the fuzzer for what is no data file: results, configs, states, answers."""

import copy
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
from report_cases import HOSTILE, KERNELS

import divprism as dp
from divprism.embedders._answer import UnusableAnswerError, read_message, read_vectors
from divprism.report.config_files import ALLOWED, check_value, read_config
from divprism.report.page import report_page
from divprism.report.result_files import read_result
from divprism.report.table import RENDERINGS
from divprism.report.tables import evaluation_table, results_table

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
TEXTS = 3  # that the answer of an endpoint is for
TRICKY_VALUES = [
    None,
    True,
    -1,
    0,
    1e308,
    5e-324,
    10**30,
    2.5,
    "",
    "NaN",
    HOSTILE,
    "\x1b[31m\u202e=1+1",
    "x" * 100_000,
    [],
    {},
    [[1, 2], [3]],
    {"a": {"b": {}}},
    list(range(5000)),
]
"""Values of the wrong type, sign or size, and texts that are not inert."""


def _pairs():
    t = np.repeat(np.arange(4), 10)
    return np.eye(40)[np.random.default_rng(0).permutation(40) // 2], t


@cache
def _evaluation():
    return dp.evaluate(*_pairs(), **KERNELS, interval=0.95).to_dict()


def _comparison():
    x, t = _pairs()
    models = {"a": dp.Samples(x, t), "b": dp.Samples(np.roll(x, 7, axis=0), t)}
    return dp.compare(models, **KERNELS).to_dict()


def _groups():
    return dp.prompt_groups(*_pairs(), **KERNELS).to_dict()


def _curves():
    return dp.converge(*_pairs(), **KERNELS, num_repeats=2).to_dict()


def _sweep():
    rng = np.random.default_rng(0)
    return dp.bandwidth_sweep(rng.normal(size=(40, 2)), rng.normal(size=(40, 2))).to_dict()


def _config():
    return {"order": 1.0, "truncation": 20, "bandwidth_x": 0.5, "interval": 0.9, "rng": 3}


def _state():
    metric = dp.Metric(kernel_x=dp.Cosine(), kernel_t=dp.Cosine())
    rng = np.random.default_rng(0)
    metric.update(rng.normal(size=(30, 4)), rng.normal(size=(30, 3)))
    return _saved(metric)


def _saved(thing):
    path = Path(f"{id(thing)}.npz")
    thing.save(path)
    content = path.read_bytes()
    path.unlink()
    return content


def _answer():
    vectors = np.random.default_rng(0).normal(size=(TEXTS, 4)).tolist()
    entries = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return {"data": entries, "model": "m", "error": {"message": "no"}}


def _written(make):
    return lambda: json.dumps(make()).encode()


DOCUMENTS = {
    "_evaluation.json": _written(_evaluation),
    "_comparison.json": _written(_comparison),
    "_groups.json": _written(_groups),
    "_curves.json": _written(_curves),
    "_sweep.json": _written(_sweep),
    "_config.json": _written(_config),
    "_answer.json": _written(_answer),
    "_state.npz": _state,
}
"""A valid content for each kind."""
DETAILS = ("_groups.json", "_curves.json", "_sweep.json")


def mutated_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Return JSON in which one to four values are replaced, removed or repeated."""
    document = json.loads(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        node, key = document, None
        # Down from the top, and stop sooner or later.
        while isinstance(node, dict | list) and node and (key is None or rng.random() < 0.85):
            parent = node
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = keys[rng.integers(len(keys))]
            node = parent[key]
        if key is None:
            continue
        if rng.random() < 0.15:
            del parent[key]
        elif rng.random() < 0.1 and isinstance(parent, dict):
            parent[HOSTILE] = parent.pop(key)
        else:
            # A copy, so that a later change of it does not change the table.
            parent[key] = copy.deepcopy(TRICKY_VALUES[rng.integers(len(TRICKY_VALUES))])
    return json.dumps(document).encode()


def read_document(kind: str, path: Path) -> None:
    """Do with a file what the commands do with one of its kind."""
    if kind == "_answer.json":
        _read_answer(path.read_bytes())
    elif kind == "_config.json":
        for key, value in read_config(path).values.items():
            if key in ALLOWED:
                check_value(key, value, path)
    elif kind == "_state.npz":
        result = dp.Metric.load(path).compute()
        assert all(np.isfinite(list(result.scores.values())))
    elif kind in DETAILS:
        # Such documents are shown beside the result that they belong to.
        _render(_evaluation(), read_result(path))
    else:
        _render(read_result(path))


def _read_answer(body: bytes) -> None:
    assert isinstance(read_message(body), str)
    try:
        vectors = read_vectors(body, TEXTS)
    except UnusableAnswerError as error:
        raise dp.DataError(str(error)) from None
    assert vectors.shape[0] == TEXTS
    assert np.isfinite(vectors).all()


def _render(document: dict, *details: dict) -> None:
    page = report_page(document, *details)
    assert HOSTILE not in page
    assert not CONTROLS.search(page)
    if "scores" in document:
        _render_table(evaluation_table(document, wide=True))
    elif "models" in document:
        _render_table(results_table(document["models"], wide=True))


def _render_table(table) -> None:
    for width in (40, 120):
        assert not CONTROLS.search(table.to_text(width))
    for name, render in RENDERINGS.items():
        text = render(table)
        if name != "csv":
            # A cell of CSV may hold line breaks of both kinds.
            assert not CONTROLS.search(text), name
