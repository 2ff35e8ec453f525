"""Do loggers of experiments write what docs/how-to/loggers.md says? Runs its lines, reads back.

    python -m experiments.loggers

Weights & Biases in offline mode, MLflow with a database in a file, event files of TensorBoard.
"""

import json
import logging
import os
import struct
import sys
import tempfile
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


def evaluations() -> list[dp.Evaluation]:
    """Two checkpoints of a model: the second one repeats itself less."""
    t = np.repeat(np.arange(4), 5)
    repeated = np.eye(20)[np.arange(20) // 2]
    first = dp.evaluate(repeated, t, kernel_x=dp.Cosine(), interval=0.95)
    return [first, dp.evaluate(np.eye(20), t, settings=first.settings)]


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


# By heading: how to read the log, and to how many digits it keeps numbers.
LOGGERS: dict[str, tuple[Callable[[], Logged], float]] = {
    "Weights & Biases": (of_wandb, 1e-9),
    "MLflow": (of_mlflow, 1e-15),
    "TensorBoard": (of_tensorboard, 1e-6),
}


def problems(heading: str, results: list[dp.Evaluation]) -> list[str]:
    """Run the lines of the page in a folder of their own; what is missing or wrong in the log."""
    read, tolerance = LOGGERS[heading]
    exec(recipe(heading), {"results": results})  # noqa: S102 - a page of this repository
    logged = read()
    wrong = []
    for name in results[0].log_dict():
        right = [result.log_dict()[name] for result in results]
        found = logged.get(name, [])
        if len(found) != len(right) or not np.allclose(found, right, rtol=tolerance, atol=0):
            wrong.append(f"{heading}: {name} is {found} in place of {right}")
    return wrong


def main() -> None:
    """Run all loggers; exit with 1 if a log differs from what was given to it."""
    os.environ.setdefault("WANDB_SILENT", "true")
    logging.disable(logging.WARNING)
    results = evaluations()
    failures = []
    for heading in LOGGERS:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            wrong = problems(heading, results)
            os.chdir(PAGE.parent)  # else Windows cannot remove the folder
        failures += wrong
        print(f"{heading}: {len(results[0].log_dict())} series, {len(wrong)} wrong")
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
