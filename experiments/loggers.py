"""Do loggers of experiments write what docs/how-to/loggers.md says? Runs its lines, reads back.

    python -m experiments.loggers

Weights & Biases in offline mode, MLflow with a database in a file, event files of TensorBoard, and
Lightning with a CSV file, where metrics of torchmetrics see the same outputs.
"""

import contextlib
import csv
import io
import json
import logging
import os
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import divprism as dp

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "loggers.md"
Logged = dict[str, list[float]]


def recipe(heading: str) -> str:
    """The block of code under a heading of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return section.split("```python\n")[1].split("```")[0]


PROMPTS = np.repeat(np.arange(4), 5)
# Outputs of two checkpoints of a model: the second one repeats itself less.
OUTPUTS = [np.eye(20)[np.arange(20) // 2], np.eye(20)]


def evaluations() -> list[dp.Evaluation]:
    """The scores of both checkpoints."""
    first = dp.evaluate(OUTPUTS[0], PROMPTS, kernel_x=dp.Cosine(), interval=0.95)
    return [first, dp.evaluate(OUTPUTS[1], PROMPTS, settings=first.settings)]


def loaders() -> list[object]:
    """The outputs of both checkpoints in batches, with prompts as vectors."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    t = torch.eye(4)[PROMPTS]
    data = [TensorDataset(torch.tensor(x), t) for x in OUTPUTS]
    return [DataLoader(each, batch_size=7) for each in data]


def of_wandb() -> Logged:
    """The history in the file of an offline run."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    # Another process writes the file, and may do so after the run has ended.
    wandb.teardown()
    [path] = [path for path in Path().rglob("*.wandb") if not path.is_symlink()]
    logged: Logged = {}
    for content in leveldb_records(path.read_bytes(), header=7):
        record = Record()
        record.ParseFromString(content)
        for item in record.history.item:
            name = "/".join(item.nested_key) or item.key
            logged.setdefault(name, []).append(float(json.loads(item.value_json)))
    return logged


def leveldb_records(content: bytes, header: int) -> Iterator[bytes]:
    """Records of a log of LevelDB: pieces with seven bytes in front, in blocks of 32 kB."""
    position, record = header, b""
    while position + 7 <= len(content):
        left = 32768 - position % 32768
        if left < 7:  # too few for another piece
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        position += 7
        record += content[position : position + length]
        position += length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield record
            record = b""


def of_mlflow() -> Logged:
    """The metrics of the only run in the database."""
    import mlflow

    client = mlflow.MlflowClient()
    [run] = client.search_runs(["0"])
    logged = {}
    for name in run.data.metrics:
        history = client.get_metric_history(run.info.run_id, name)
        history.sort(key=lambda metric: metric.step)
        logged[name] = [metric.value for metric in history]
    return logged


def of_tensorboard() -> Logged:
    """The scalars in the event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator("runs/diversity")
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [event.value for event in events.Scalars(name)] for name in names}


def of_lightning() -> Logged:
    """The columns of the only CSV file."""
    [path] = Path("runs").rglob("metrics.csv")
    logged: Logged = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            for name, value in row.items():
                if value:
                    logged.setdefault(name, []).append(float(value))
    return logged


# By heading: how to read the log, and to how many digits it keeps numbers.
LOGGERS: dict[str, tuple[Callable[[], Logged], float]] = {
    "Weights & Biases": (of_wandb, 1e-9),
    "MLflow": (of_mlflow, 1e-15),
    "TensorBoard": (of_tensorboard, 1e-6),
    "Lightning": (of_lightning, 1e-6),
}
# What metrics of torchmetrics log, and the same scores of a result.
METRICS = {
    "Lightning": {
        "conditional": "divprism/conditional_vendi",
        "Vendi": "divprism/vendi",
        "InformationVendi": "divprism/information_vendi",
    },
}


def expected(heading: str, results: list[dp.Evaluation]) -> Logged:
    """What has to be in a log."""
    dictionaries = [result.log_dict() for result in results]
    right = {name: [each[name] for each in dictionaries] for name in dictionaries[0]}
    for name, score in METRICS.get(heading, {}).items():
        right[name] = right[score]
    return right


def problems(heading: str, results: list[dp.Evaluation]) -> list[str]:
    """Run the lines of the page in a folder of their own; what is missing or wrong in the log."""
    read, tolerance = LOGGERS[heading]
    names = {"results": results, "loaders": loaders()}
    with contextlib.redirect_stdout(io.StringIO()):  # Lightning prints a table of all values
        exec(recipe(heading), names)  # noqa: S102 - a page of this repository
    logged = read()
    wrong = []
    for name, right in expected(heading, results).items():
        found = logged.get(name, [])
        if len(found) != len(right) or not np.allclose(found, right, rtol=tolerance, atol=0):
            wrong.append(f"{heading}: {name} is {found} in place of {right}")
    return wrong


def main() -> None:
    """Run all loggers; exit with 1 if a log differs from what was given to it."""
    os.environ.setdefault("WANDB_SILENT", "true")
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")  # about workers, for twenty rows
    results = evaluations()
    failures = []
    for heading in LOGGERS:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            wrong = problems(heading, results)
            os.chdir(PAGE.parent)  # else Windows cannot remove the folder
        failures += wrong
        print(f"{heading}: {len(expected(heading, results))} series, {len(wrong)} wrong")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
