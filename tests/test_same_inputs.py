"""The same answers have the same scores to the bit, whichever file, folder or object holds them."""

import csv
import io
import json

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from sample_files import (
    batch_input,
    batch_output,
    chat_completion,
    image_bytes,
    inspect_header,
    inspect_log,
    inspect_sample,
    jsonl,
    response,
    user,
    write,
)

import divprism as dp

pytest.importorskip("backports.zstd")

MODELS = ("one", "two")
PROMPTS = [f"Describe {thing}." for thing in ("a harbour", "the desert", "tea", "an attic")]
RUN = "2026-11-18T19-29-37.691094"


def answers(model, prompt):
    """Return three answers of a model to a prompt."""
    about = prompt.split()[-1]
    return [f"{about} as model {model} sees it, number {number * number}" for number in range(3)]


CASES = [(model, prompt, answers(model, prompt)) for model in MODELS for prompt in PROMPTS]
ROWS = [
    {"model": model, "prompt": prompt, "output": answer}
    for model, prompt, several in CASES
    for answer in several
]
GROUPED = [
    {"model": model, "prompt": prompt, "output": several} for model, prompt, several in CASES
]


def hexed(result):
    return {name: float(score).hex() for name, score in result.scores.items()}


def scored(samples):
    """Return the scores of each model, and of all outputs together."""
    results = dp.evaluate_models(samples, num_permutations=0)
    return {name: hexed(result) for name, result in results.items()}


@pytest.fixture(scope="module")
def expected():
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    return scored(dp.Samples(columns["output"], columns["prompt"], columns["model"]))


OBJECTS = {
    "list of dicts": lambda rows: rows,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.Table.from_pylist,
    "datasets": datasets.Dataset.from_list,
    "pandas, a list of outputs each": lambda rows: pd.DataFrame(GROUPED),
    "polars, a list of outputs each": lambda rows: pl.DataFrame(GROUPED),
    "datasets, a list of outputs each": lambda rows: datasets.Dataset.from_list(GROUPED),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_in_memory(name, expected):
    table = OBJECTS[name](ROWS)
    found = dp.evaluate(table, prompt="prompt", output="output", model="model", num_permutations=0)
    assert {model: hexed(result) for model, result in found.items()} == expected
    assert scored(dp.load(table)) == expected


def _csv(rows):
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _parquet(rows):
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def _chat(model, prompt, several):
    return {"messages": user(prompt)} | chat_completion(several, model)


def _tuned(row):
    said = {"role": "assistant", "content": row["output"]}
    return {"messages": [*user(row["prompt"]), said], "model": row["model"]}


FILES = {
    "a.jsonl": jsonl(ROWS),
    "a.jsonl.gz": jsonl(ROWS),
    "grouped.jsonl": jsonl(GROUPED),
    "a.json": json.dumps(ROWS),
    "lines.json": jsonl(ROWS),
    "columns.json": json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]}),
    "pandas.json": pd.DataFrame(ROWS).to_json(),
    "grouped.json": pd.DataFrame(GROUPED).to_json(),
    "a.csv": _csv(ROWS),
    "a.parquet": _parquet(ROWS),
    "grouped.parquet": _parquet(GROUPED),
    "chats.jsonl": jsonl(_chat(*case) for case in CASES),
    "nested.jsonl": jsonl(
        {"request": {"messages": user(p)}, "response": chat_completion(several, m)}
        for m, p, several in CASES
    ),
    "responses.jsonl": jsonl(
        {"input": row["prompt"]} | response(row["output"], row["model"]) for row in ROWS
    ),
    "fine-tuning.jsonl": jsonl(map(_tuned, ROWS)),
}


@pytest.mark.parametrize("name", FILES)
def test_files(name, expected, tmp_path):
    write(tmp_path, {name: FILES[name]})
    assert scored(tmp_path / name) == expected
    assert scored(tmp_path) == expected


def test_a_datasets_folder(expected, tmp_path):
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    assert scored(tmp_path / "saved") == expected


def test_field_paths(expected, tmp_path):
    write(tmp_path, {"a.jsonl": FILES["chats.jsonl"]})
    paths = ",".join(f"choices.{number}.message.content" for number in range(3))
    found = dp.evaluate(
        tmp_path / "a.jsonl",
        output=paths,
        prompt="messages.0.content",
        model="model",
        num_permutations=0,
    )
    assert {model: hexed(result) for model, result in found.items()} == expected


def test_a_batch_and_its_requests(expected, tmp_path):
    requests, lines = [], {}
    for number, (model, prompt, several) in enumerate(CASES):
        requests.append(prompt)
        lines[number] = chat_completion(several, model)
    write(tmp_path, {"in.jsonl": jsonl(batch_input(requests))})
    write(tmp_path, {"out.jsonl": jsonl(batch_output(lines))})
    assert scored(dp.load(tmp_path / "out.jsonl", tmp_path / "in.jsonl")) == expected


def _samples(model, as_choices):
    samples = []
    for number, prompt in enumerate(PROMPTS):
        several = answers(model, prompt)
        if as_choices:
            samples.append(inspect_sample(number, 1, prompt, several, model))
            continue
        for epoch, answer in enumerate(several):
            samples.append(inspect_sample(number, epoch + 1, prompt, [answer], model))
    return samples


def _log(model, as_choices):
    return inspect_log(_samples(model, as_choices), inspect_header(model))


def test_logs_of_inspect_as_json(expected, tmp_path):
    for model in MODELS:
        # As they end: all of the first epoch, then all of the second one.
        samples = sorted(_samples(model, False), key=lambda sample: sample["epoch"])
        log = json.dumps(inspect_header(model) | {"samples": samples})
        write(tmp_path, {f"{model}.json": log})
    assert scored(tmp_path / "*.json") == expected


@pytest.mark.parametrize("as_choices", [False, True])
def test_logs_of_inspect(as_choices, expected, tmp_path):
    write(tmp_path, {f"{model}.eval": _log(model, as_choices) for model in MODELS})
    assert scored(tmp_path) == expected
    assert scored(tmp_path / "*.eval") == expected


def test_an_output_root_of_lm_eval(expected, tmp_path):
    for model, prompt, several in CASES:
        line = {
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}},
            "resps": [several],
            "filter": "none",
        }
        path = tmp_path / model / f"samples_task_{RUN}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(jsonl([line]))
    assert scored(tmp_path) == expected


# --- images

COLORS = {"embedder_x": lambda images: [np.asarray(image, float).mean((0, 1)) for image in images]}


def image(model, prompt, number):
    seed = 100 * MODELS.index(model) + 10 * sorted(PROMPTS).index(prompt) + number
    return image_bytes(seed)


def paths_of(model, form):
    """Return images by path; `form` takes the prompt and the number, and the order is that."""
    return {
        form.format(prompt=prompt, number=number, model=model): image(model, prompt, number)
        for prompt in sorted(PROMPTS)
        for number in range(3)
    }


def image_scores(*source, **options):
    result = dp.evaluate(*source, **options, **COLORS, num_permutations=0)
    return hexed(result)


LAYOUTS = ("{prompt}-{number}.png", "{prompt}_{number}.png", "{prompt}/{number}.png")


def test_folders_lists_and_tables_of_images(tmp_path):
    files = write(tmp_path / "named", paths_of("one", LAYOUTS[0]))
    expected = image_scores(files)
    for number, form in enumerate(LAYOUTS[1:]):
        assert image_scores(write(tmp_path / str(number), paths_of("one", form))) == expected
    paths = [files / name for name in paths_of("one", LAYOUTS[0])]
    prompts = [path.stem.rpartition("-")[0] for path in paths]
    columns = {"prompt": prompts, "image": [str(path) for path in paths]}
    assert image_scores(paths, prompts) == expected
    assert image_scores(columns["image"], prompts) == expected
    assert image_scores(pd.DataFrame(columns)) == expected
    assert image_scores(pl.DataFrame(columns)) == expected
    encoded = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    assert image_scores(encoded) == expected
    rows = [{"file_name": path.name, "prompt": p} for path, p in zip(paths, prompts, strict=True)]
    write(files, {"metadata.jsonl": jsonl(rows)})
    assert image_scores(files) == expected


def test_a_folder_per_model_and_prompt(tmp_path):
    apart = {m: write(tmp_path / f"only {m}", paths_of(m, LAYOUTS[2])) for m in MODELS}
    for model in MODELS:
        write(tmp_path / "both", paths_of(model, "{model}/" + LAYOUTS[2]))
    samples = dp.load(tmp_path / "both").by_model()
    for model, folder in apart.items():
        assert image_scores(samples[model]) == image_scores(folder)


def test_paths_in_lists_are_images_and_the_notes_say_so(tmp_path):
    folder = write(tmp_path, paths_of("one", LAYOUTS[0]))
    paths = [str(path) for path in sorted(folder.iterdir())]
    result = dp.evaluate(paths, **COLORS, num_permutations=0)
    assert "12 outputs name existing files, which are read as images" in map(str, result.notes)
