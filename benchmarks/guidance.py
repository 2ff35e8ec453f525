"""One step of guidance against autograd through the n x n kernels, measured in one run.

    python benchmarks/guidance.py [--bank 4000] [--window 300] [--batch 8] [--width 16384]
                                  [--repeats 3] [--json FILE]

The peer is the same score in torch, in single precision as the latents are: all kernels of bank and
batch, a loss, and backward to the new samples (at order 1 through eigvalsh in double precision).
The bank needs no gradient, so the peer may detach it. Conditional-RKE has a bank of 4,000;
Conditional-Vendi has the paper's window of 300 and truncation 50. Latents are 16,384 wide
(4 x 64 x 64), prompts 768.

Steps: "given" has fixed bandwidths; "median" takes both bandwidths from the data at each step, for
the peer too; "append" also adds a batch to the bank before each step, so that new distances inside
the bank count. Memory is the peak of a first step over the stored data, in a process of its own,
and includes what the bank keeps. Everything runs on one thread: with two, the times would depend on
the other load of the machine.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measure import best, print_header, print_row, write_rows

import divprism as dp
from divprism.guidance import Bank, score_gradient

TRUNCATION = 50
BANDWIDTH_X = 0.8
BANDWIDTH_T = 0.3
STEPS = ("given", "median", "append")

COLUMNS = [
    "score",
    "n",
    "step",
    "divprism (s)",
    "autograd (s)",
    "ratio",
    "target",
    "difference",
    "memory (MB)",
    "autograd (MB)",
]

Step = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A score, the size of its bank, and the speed-up over autograd that it should reach."""

    name: str
    score: str
    order: int
    n: int
    target: int


@dataclass(frozen=True)
class Batch:
    """New samples and their prompts."""

    x: torch.Tensor
    t: torch.Tensor


def unit_rows(array: np.ndarray) -> torch.Tensor:
    """Rows scaled to norm one, as a tensor."""
    return torch.from_numpy(array / np.linalg.norm(array, axis=1, keepdims=True))


def latents(n: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit-norm latents in clusters, and unit-norm prompts with several latents each."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, max(2, n // 8), n)
    x = rng.standard_normal((group.max() + 1, width), dtype=np.float32)[group]
    x += rng.standard_normal((n, width), dtype=np.float32)
    t = rng.standard_normal((group.max() // 2 + 1, 768), dtype=np.float32)[group // 2]
    return unit_rows(x), unit_rows(t)


def plain_kernel(rows: torch.Tensor, bandwidth: float | None) -> torch.Tensor:
    """exp(-d^2 / (2 bandwidth^2)); without a bandwidth, that of the median distance."""
    squares = (rows * rows).sum(1)
    distances = (squares[:, None] + squares - 2 * rows @ rows.T).clamp(min=0)
    if bandwidth is None:
        # The gradient treats a bandwidth as a constant, as divprism does.
        middle = distances.numel() // 2
        squared_bandwidth = distances.detach().flatten().kthvalue(middle).values
    else:
        squared_bandwidth = bandwidth**2
    return torch.exp(-distances / (2 * squared_bandwidth))


def plain_entropy(kernel: torch.Tensor) -> torch.Tensor:
    """Entropy of the top eigenvalues of kernel / n, with the rest spread over them."""
    values = torch.linalg.eigvalsh(kernel.double() / len(kernel)).flip(0)[:TRUNCATION]
    values = values + (1 - values.sum()) / TRUNCATION
    return -(values * values.log()).sum()


def autograd_gradient(
    batch: Batch, bank: Bank, order: int, bandwidths: tuple[float | None, float | None]
) -> torch.Tensor:
    """Gradient of the logarithm of the score by torch."""
    new = batch.x.clone().requires_grad_()
    kernel_x = plain_kernel(torch.cat([bank.rows("x"), new]), bandwidths[0])
    kernel_t = plain_kernel(torch.cat([bank.rows("t"), batch.t]), bandwidths[1])
    joint = kernel_x * kernel_t
    if order == 2:
        # Entropies of order 2 are logarithms of Frobenius norms; the factors n^2 cancel.
        value = kernel_t.double().square().sum().log() - joint.double().square().sum().log()
    else:
        value = plain_entropy(joint) - plain_entropy(kernel_t)
    value.backward()
    assert new.grad is not None
    return new.grad


def both_sides(case: Case, bank: Bank, batch: Batch, step: str) -> tuple[Step, Step]:
    """A step of divprism and one of the peer."""
    bandwidths: tuple[float | None, float | None] = (BANDWIDTH_X, BANDWIDTH_T)
    kernels = {"kernel_x": dp.Gaussian(BANDWIDTH_X), "kernel_t": dp.Gaussian(BANDWIDTH_T)}
    if step == "median":
        bandwidths = (None, None)
        kernels = {}

    def ours() -> torch.Tensor:
        if step == "append":
            bank.append(batch.x, batch.t)
        result = score_gradient(batch.x, batch.t, bank=bank, score=case.score, **kernels)
        return result.gradient

    def theirs() -> torch.Tensor:
        return autograd_gradient(batch, bank, case.order, bandwidths)

    return ours, theirs


def filled_bank(n: int, batch_size: int, width: int) -> tuple[Bank, Batch]:
    """A full bank, and a batch of new samples with their prompts."""
    torch.set_num_threads(1)
    x, t = latents(n + batch_size, width)
    bank = Bank(n)
    bank.append(x[:n], t[:n])
    return bank, Batch(x[n:].clone(), t[n:].clone())


def process_kilobytes(key: str) -> int:
    """A number of kilobytes from /proc/self/status (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{key}:")[1].split()[0])


def peak_megabytes(case: Case, batch_size: int, width: int, side: int) -> float:
    """Peak memory of a step of one side, over the stored data (Linux)."""
    bank, batch = filled_bank(case.n, batch_size, width)
    step = both_sides(case, bank, batch, "given")[side]
    Path("/proc/self/clear_refs").write_text("5")  # 5 resets the peak that the kernel keeps
    before = process_kilobytes("VmRSS")
    step()
    return (process_kilobytes("VmHWM") - before) / 1024


def measure_memory(case: Case, batch_size: int, width: int) -> list[float]:
    """Peak memory of both sides in megabytes, each in a fresh process."""
    context = multiprocessing.get_context("spawn")
    peaks = []
    for side in (0, 1):
        with context.Pool(1) as pool:
            peaks.append(pool.apply(peak_megabytes, (case, batch_size, width, side)))
    return peaks


def measure_steps(case: Case, batch_size: int, width: int, repeats: int) -> list[dict]:
    """Measure every kind of step of one case, and print a row each."""
    memory = measure_memory(case, batch_size, width)
    bank, batch = filled_bank(case.n, batch_size, width)
    rows = []
    for step in STEPS:
        ours, theirs = both_sides(case, bank, batch, step)
        target = case.target
        if step == "append":
            target = 1  # samples are appended once per run, not at every step
        # In this order: with "append", both sides then see the same bank.
        our_gradient = ours()
        their_gradient = theirs()
        difference = float((our_gradient - their_gradient).norm() / their_gradient.norm())
        times = [best(ours, repeats), best(theirs, repeats)]
        row = {"score": case.name, "n": case.n, "step": step, "seconds": times}
        rows.append(row | {"target": target, "memory": memory})
        seconds = [f"{times[0]:.4f}", f"{times[1]:.4f}", f"{times[1] / times[0]:.3g}"]
        limits = [str(target), f"{difference:.0e}"]
        megabytes = [f"{memory[0]:.0f}", f"{memory[1]:.0f}"]
        print_row([case.name, str(case.n), step, *seconds, *limits, *megabytes])
    return rows


def main() -> None:
    """Run every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bank", type=int, default=4000)
    parser.add_argument("--window", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=16384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    truncated = f"conditional_vendi(truncation={TRUNCATION})"
    cases = (
        Case("Conditional-RKE", "conditional_rke", 2, arguments.bank, 30),
        Case("Conditional-Vendi", truncated, 1, arguments.window, 1),
    )
    print_header(COLUMNS, texts=("score", "step"))
    rows = []
    for case in cases:
        rows += measure_steps(case, arguments.batch, arguments.width, arguments.repeats)
    write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
