"""Files that other programs write themselves, and the scores that divprism reads from them.

    NEIGHBOURS/bin/python experiments/neighbours.py write FOLDER
    python experiments/neighbours.py check FOLDER

The first command writes the same answers with inspect-ai, lm-eval, openai, pandas, polars and
datasets, which have to be installed where it runs; divprism need not be. The second one reads all
of them: whatever holds the answers, each model must have the same scores to the bit.
"""

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

MODELS = ("one", "two")
PROMPTS = [f"Describe {thing}." for thing in ("a harbour", "the desert", "tea", "an attic")]
EPOCHS = 3


def answers(model: str, prompt: str) -> list[str]:
    """What a model answers to a prompt, in the order of the epochs."""
    about = prompt.split()[-1]
    return [f"{about} as {model} sees it, number {number**2}" for number in range(EPOCHS)]


ROWS = [
    {"model": model, "prompt": prompt, "output": answer}
    for model in MODELS
    for prompt in PROMPTS
    for answer in answers(model, prompt)
]


# --- writers; each imports its program, and returns the names of the packages that it used


def write_inspect(folder: Path) -> list[str]:
    """Run a task of inspect on a mock model, with epochs, into .eval and .json logs."""
    import tiktoken

    # The mock model counts tokens by a table that tiktoken would download.
    tiktoken.get_encoding = lambda name: type(
        "Letters", (), {"encode": lambda self, text, **_: text}
    )()
    from inspect_ai import Epochs, Task
    from inspect_ai import eval as run
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate

    samples = [Sample(id=n + 1, input=prompt, target="x") for n, prompt in enumerate(PROMPTS)]
    task = Task(
        dataset=samples, solver=generate(), scorer=match(), epochs=Epochs(EPOCHS), name="about"
    )
    for model in MODELS:
        name = f"mockllm/{model}"
        for form in ("eval", "json"):
            outputs = [
                ModelOutput.from_content(name, answers(model, prompt)[epoch])
                for epoch in range(EPOCHS)
                for prompt in PROMPTS
            ]
            run(
                task,
                model=get_model(name, custom_outputs=outputs),
                log_dir=str(folder / f"inspect-{form}"),
                log_format=form,
                display="none",
                max_samples=1,
            )
    return ["inspect-ai"]


_TASK = """\
task: about
dataset_path: json
dataset_kwargs:
  data_files: {{test: {questions}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: "x"
repeats: {epochs}
generation_kwargs: {{until: ["END"], do_sample: true}}
metric_list:
  - metric: exact_match
"""


def write_lm_eval(folder: Path) -> list[str]:
    """Run a task of lm-eval with repeats and --log_samples, for each model."""
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Listed(LM):
        """A model that gives the answers of this file."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name, self.asked = name, dict.fromkeys(PROMPTS, 0)

        def generate_until(self, requests: list[Any], **_: object) -> list[str]:
            given = []
            for request in requests:
                prompt = request.args[0]
                given.append(answers(self.name, prompt)[self.asked[prompt]])
                self.asked[prompt] += 1
            return given

        def loglikelihood(self, requests: list[Any], **_: object) -> Any:
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    questions = folder / "questions.jsonl"
    questions.write_text("".join(json.dumps({"q": prompt}) + "\n" for prompt in PROMPTS))
    (folder / "tasks").mkdir()
    task = _TASK.format(questions=questions.resolve(), epochs=EPOCHS)
    (folder / "tasks" / "about.yaml").write_text(task)
    manager = TaskManager(include_path=str(folder / "tasks"), include_defaults=False)
    for model in MODELS:
        tracker = EvaluationTracker(output_path=str(folder / "lm-eval"))
        results = lm_eval.simple_evaluate(
            Listed(model), tasks=["about"], task_manager=manager, log_samples=True
        )
        samples = results.pop("samples")
        tracker.general_config_tracker.model_name_sanitized = model
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name="about", samples=samples["about"])
    return ["lm-eval"]


def write_openai(folder: Path) -> list[str]:
    """Write answers as objects of openai: chats, a Batch with its requests, and fine-tuning."""
    from openai.types.chat import ChatCompletion, ChatCompletionMessage
    from openai.types.chat.chat_completion import Choice

    chats, requests, batch, tuning, short = [], [], [], [], []
    cases = [(model, prompt) for model in MODELS for prompt in PROMPTS]
    for number, (model, prompt) in enumerate(cases):
        choices = [
            Choice(
                index=index,
                finish_reason="stop",
                message=ChatCompletionMessage(role="assistant", content=answer),
            )
            for index, answer in enumerate(answers(model, prompt))
        ]
        completion = ChatCompletion(
            id=f"chatcmpl-{number}",
            object="chat.completion",
            created=1_760_000_000,
            model=model,
            choices=choices,
        )
        body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
        key = {"custom_id": f"request-{number}"}
        plain = completion.model_dump()
        chats.append(body | plain)
        # What was not set is left out, and the objects stay apart from their requests.
        short.append({"request": body, "response": completion.to_dict()})
        requests.append(key | {"method": "POST", "url": "/v1/chat/completions", "body": body})
        response = {"status_code": 200, "request_id": f"req_{number}", "body": plain}
        batch.append({"id": f"batch_{number}"} | key | {"response": response, "error": None})
        for choice in plain["choices"]:
            tuning.append({"model": model, "messages": [*body["messages"], choice["message"]]})
    tables = {"chats": chats, "requests": requests, "batch": batch, "tuning": tuning}
    tables |= {"to_dict": short, "responses": _responses()}
    for name, rows in tables.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"openai-{name}.jsonl").write_text(lines)
    return ["openai"]


def _responses() -> list[dict[str, Any]]:
    """Return answers of the newer interface as its own objects, each with its input."""
    from openai.types.responses import Response, ResponseOutputMessage, ResponseOutputText

    rows = []
    for number, row in enumerate(ROWS):
        text = ResponseOutputText(type="output_text", text=row["output"], annotations=[])
        message = ResponseOutputMessage(
            id=f"msg_{number}", type="message", role="assistant", status="completed", content=[text]
        )
        response = Response(
            id=f"resp_{number}",
            object="response",
            created_at=1_760_000_000,
            model=row["model"],
            output=[message],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        rows.append({"input": row["prompt"]} | response.to_dict())
    return rows


def write_frames(folder: Path) -> list[str]:
    """Write tables with pandas, polars and datasets."""
    import datasets
    import pandas
    import polars

    frame = pandas.DataFrame(ROWS)
    frame.to_csv(folder / "pandas.csv", index=False)
    frame.to_json(folder / "pandas.jsonl", orient="records", lines=True)
    frame.to_parquet(folder / "pandas.parquet")
    # As they are called without options: an index as the first column, objects by columns.
    frame.to_csv(folder / "pandas-index.csv")
    frame.to_json(folder / "pandas-columns.json")
    grouped = frame.groupby(["model", "prompt"], sort=False)["output"].agg(list).reset_index()
    grouped.to_parquet(folder / "pandas-lists.parquet")
    polars.DataFrame(ROWS).write_parquet(folder / "polars.parquet")
    polars.DataFrame(ROWS).write_ndjson(folder / "polars.jsonl")
    polars.DataFrame(ROWS).write_csv(folder / "polars.csv")
    polars.DataFrame(ROWS).write_json(folder / "polars.json")
    polars.DataFrame(ROWS).write_ipc_stream(folder / "polars.arrow")
    data_set = datasets.Dataset.from_list(ROWS)
    data_set.save_to_disk(str(folder / "datasets"))
    data_set.save_to_disk(str(folder / "datasets-shards"), num_shards=3)
    data_set.to_json(str(folder / "datasets.json"))  # an object per line, whatever its name says
    data_set.to_parquet(str(folder / "datasets.parquet"))
    return ["pandas", "polars", "datasets"]


WRITERS = (write_inspect, write_lm_eval, write_openai, write_frames)


def write(folder: Path) -> None:
    """Write all files into a new folder, and print the versions of their writers."""
    folder.mkdir(parents=True)
    for writer in WRITERS:
        with contextlib.redirect_stdout(io.StringIO()):
            packages = writer(folder)
        print(", ".join(f"{package} {version(package)}" for package in packages))


# --- the check


def sources(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each source by name, as a function that reads it."""
    import divprism as dp

    names = (
        *("inspect-eval", "inspect-json/*.json", "lm-eval", "openai-chats.jsonl"),
        *("openai-tuning.jsonl", "openai-to_dict.jsonl", "openai-responses.jsonl"),
        *("pandas.csv", "pandas.jsonl", "pandas.parquet"),
        *("pandas-index.csv", "pandas-columns.json", "pandas-lists.parquet"),
        *("polars.csv", "polars.json", "polars.jsonl", "polars.parquet", "polars.arrow"),
        *("datasets", "datasets-shards", "datasets.json", "datasets.parquet"),
    )
    for name in names:
        yield name, lambda name=name: dp.load(folder / name)
    for name, read in _objects(folder):
        yield f"{name} in memory", lambda read=read: dp.load(read())
    batch = folder / "openai-batch.jsonl", folder / "openai-requests.jsonl"
    yield "openai-batch.jsonl --prompts openai-requests.jsonl", lambda: dp.load(*batch)


def _objects(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what the libraries make of the files that others wrote, as functions."""
    import datasets
    import pandas
    import polars
    from pyarrow import parquet

    readers: dict[str, tuple[Callable[[str], Any], str]] = {
        "pandas": (pandas.read_parquet, "polars.parquet"),
        "pandas, an index": (lambda path: pandas.read_csv(path, index_col=0), "pandas-index.csv"),
        "pandas, lists": (pandas.read_parquet, "pandas-lists.parquet"),
        "polars": (polars.read_parquet, "pandas.parquet"),
        "lazy polars": (polars.scan_parquet, "pandas.parquet"),
        "pyarrow": (parquet.read_table, "pandas.parquet"),
        "datasets": (datasets.load_from_disk, "datasets"),
        "streamed datasets": (
            lambda path: datasets.load_from_disk(path).to_iterable_dataset(),
            "datasets",
        ),
        "lines of chats": (_lines, "openai-chats.jsonl"),
        "lines of lm-eval": (_lines_below, "lm-eval"),
    }
    for name, (read, file) in readers.items():
        yield f"{name}: {file}", lambda read=read, file=file: read(str(folder / file))


def _lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def _lines_below(folder: str) -> list[dict[str, Any]]:
    """Return the samples in a folder for each model, with the name of the model."""
    rows = []
    for path in sorted(Path(folder).glob("*/samples_*.jsonl")):
        rows += [row | {"model": path.parent.name} for row in _lines(str(path))]
    return rows


def check(folder: Path) -> None:
    """Print whether each source gives the scores of the lists, to the bit."""
    import divprism as dp

    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    lists = dp.Samples(columns["output"], columns["prompt"], columns["model"])
    expected = scores(lists)
    failed = 0
    for name, read in sources(folder):
        is_same = scores(read()) == expected
        failed += not is_same
        verdict = "same bits"
        if not is_same:
            verdict = "DIFFERENT"
        print(f"{verdict:10} {name}")
    if failed:
        raise SystemExit(f"{failed} sources have other scores")


def scores(samples: Any) -> dict[str, dict[str, str]]:
    """Return all scores of each model as texts without rounding."""
    import divprism as dp

    results = dp.evaluate_models(samples, num_permutations=0)
    return {
        model.rpartition("/")[2]: {name: float(score).hex() for name, score in one.scores.items()}
        for model, one in results.items()
    }


def main() -> None:
    """Write or check, as the first argument says."""
    commands = {"write": write, "check": check}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        raise SystemExit(__doc__)
    commands[sys.argv[1]](Path(sys.argv[2]))


if __name__ == "__main__":
    main()
