"""Two processes that share the data of a metric; in a module of its own, which both can import."""

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing

import divprism as dp
from divprism.integrations import torchmetrics as metrics

X = np.random.default_rng(0).standard_normal((120, 4)) + 2
T = np.random.default_rng(1).standard_normal((30, 3))[np.arange(120) % 30]
KERNELS = {
    "gaussian": (dp.Gaussian(2.0), dp.Gaussian(1.0)),
    "cosine": (dp.Cosine(), dp.Cosine()),
}
# By case, the rows of each of two processes.
SHARES = {
    "uneven": [slice(0, 50), slice(50, 120)],
    "one idle": [slice(0, 0), slice(0, 120)],
}


def metric_of(name, kernels, dtype=torch.float64, **settings):
    """A small metric of a class, with the kernels of a row of KERNELS."""
    metric = getattr(metrics, name)(*KERNELS[kernels], num_features=64, **settings)
    return metric.set_dtype(dtype)


def values_of(rank):
    """The scores that a process sees, by case."""
    values = {}
    for case, shares in SHARES.items():
        for kernels in KERNELS:
            for dtype in (torch.float32, torch.float64):
                metric = metric_of("ConditionalVendi", kernels, dtype)
                rows = shares[rank]
                own = rows.stop - rows.start
                if own:
                    metric.update(torch.tensor(X[rows]), torch.tensor(T[rows]))
                metric._update_count = 1  # an idle process gets a warning that it is empty
                values[f"{case}, {kernels}, {dtype}"] = metric.compute().item()
                assert int(metric.n) == own  # states are those of all only while it computes
    return values


def steps_of(rank):
    """What `forward` returns to a process that synchronises at each step, then the whole score."""
    metric = metric_of("ConditionalVendi", "gaussian", dist_sync_on_step=True)
    found = []
    for start in (0, 60):  # each process takes every second row of a step
        rows = slice(start + rank, start + 60, 2)
        found.append(metric(torch.tensor(X[rows]), torch.tensor(T[rows])).item())
    return [found[0], metric.compute().item()]


def refusals_of(rank):
    """What processes with different seeds, and with different widths, are told."""
    texts = []
    other_seed = metric_of("Vendi", "gaussian", rng=rank)
    other_seed.update(torch.tensor(X), torch.tensor(T))
    other_width = metric_of("Vendi", "cosine")
    other_width.update(torch.tensor(X[:, : 3 + rank]), torch.tensor(T))
    for metric in (other_seed, other_width):
        try:
            metric.compute()
        except dp.DataError as error:
            texts.append(str(error))
    return texts


def run(rank, folder):
    """Join the group, compute everything, and write it to a file."""
    meeting = f"file://{folder}/meeting"
    torch.distributed.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(minutes=2)
    )
    try:
        found = {
            "values": values_of(rank),
            "steps": steps_of(rank),
            "refusals": refusals_of(rank),
        }
        Path(folder, f"{rank}.json").write_text(json.dumps(found))
    finally:
        torch.distributed.destroy_process_group()


def run_two(folder):
    """What each of two processes found."""
    # This process is the second one: the imports of another would take most of the time.
    other = torch.multiprocessing.spawn(run, (str(folder),), nprocs=1, join=False)
    run(1, str(folder))
    while not other.join():
        pass
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in (0, 1)]
