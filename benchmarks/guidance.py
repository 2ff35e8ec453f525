"""A step of guidance against autograd through the n x n kernels, in one run.

    python benchmarks/guidance.py [--bank 4000] [--window 300] [--batch 8] [--width 16384] [--repeats 3] [--json FILE]

The peer is the same score in torch, in single precision as the latents are: all kernels of bank and batch, a loss, backward
to the new samples (order 1: through eigvalsh in double precision). It is given one thing for free: the bank needs no gradient,
and so is detached. Conditional-RKE has a bank of 4,000, Conditional-Vendi the paper's window of 300 and truncation 50; latents
are 16,384 wide (4 x 64 x 64), prompts 768. "median" takes both bandwidths from the data at each step, on the peer's side too.
"append" also puts a batch into the bank before each step, so that new distances inside the bank are part of the time.
Memory is the peak of a first step over the stored data, in a process of its own; ours includes what the bank keeps. All on one
thread: two that wait for each other at every small product would measure whoever else uses the machine.
"""

import argparse
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import timed

import divprism as dp
from divprism.guidance import Bank, score_gradient

TRUNCATION = 50


def latents(n: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit-norm latents in clusters, and unit-norm prompts of which each has several."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, max(2, n // 8), n)
    x = rng.standard_normal((group.max() + 1, width), dtype=np.float32)[group]
    x += rng.standard_normal((n, width), dtype=np.float32)
    t = rng.standard_normal((group.max() // 2 + 1, 768), dtype=np.float32)[group // 2]
    return tuple(torch.from_numpy(a / np.linalg.norm(a, axis=1, keepdims=True)) for a in (x, t))  # type: ignore[return-value]


def plain_kernel(rows: torch.Tensor, bandwidth: float | None) -> torch.Tensor:
    """exp(-d^2 / (2 bandwidth^2)) by norms and a product; the median distance if there is no bandwidth."""
    squares = (rows * rows).sum(1)
    distances = (squares[:, None] + squares - 2 * rows @ rows.T).clamp(min=0)
    scale = (
        distances.detach().flatten().kthvalue(distances.numel() // 2).values
        if bandwidth is None
        else bandwidth**2
    )
    return torch.exp(-distances / (2 * scale))


def plain_entropy(kernel: torch.Tensor) -> torch.Tensor:
    """Entropy of the top eigenvalues of kernel / n, the rest spread over them."""
    values = torch.linalg.eigvalsh(kernel.double() / len(kernel)).flip(0)[:TRUNCATION]
    values = values + (1 - values.sum()) / TRUNCATION
    return -(values * values.log()).sum()


def by_autograd(
    x: torch.Tensor, t: torch.Tensor, bank: tuple[torch.Tensor, ...], order: int, widths: Any
) -> torch.Tensor:
    """Gradient of the log score by torch."""
    new = x.clone().requires_grad_()
    kernel_x = plain_kernel(torch.cat([bank[0], new]), widths[0])
    kernel_t = plain_kernel(torch.cat([bank[1], t]), widths[1])
    joint = kernel_x * kernel_t
    if order == 2:
        value = kernel_t.double().square().sum().log() - joint.double().square().sum().log()
    else:
        value = plain_entropy(joint) - plain_entropy(kernel_t)
    value.backward()
    assert new.grad is not None
    return new.grad


def steps(
    order: int, bank: Bank, new: tuple[torch.Tensor, ...], what: str
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Our step and the peer's; `what` is "given", "median" or "append"."""
    widths = (None, None) if what == "median" else (0.8, 0.3)
    kernels = (
        {} if what == "median" else {"kernel_x": dp.Gaussian(0.8), "kernel_t": dp.Gaussian(0.3)}
    )
    score = "conditional_rke" if order == 2 else f"conditional_vendi(truncation={TRUNCATION})"

    def ours() -> torch.Tensor:
        if what == "append":
            bank.append(*new)
        return score_gradient(*new, bank=bank, score=score, **kernels).gradient

    def theirs() -> torch.Tensor:
        return by_autograd(*new, (bank.rows("x"), bank.rows("t")), order, widths)

    return ours, theirs


def filled(n: int, batch: int, width: int) -> tuple[Bank, tuple[torch.Tensor, ...]]:
    """A full bank, and a batch of new samples with their prompts."""
    torch.set_num_threads(1)
    x, t = latents(n + batch, width)
    bank = Bank(n)
    bank.append(x[:n], t[:n])
    return bank, (x[n:].clone(), t[n:].clone())


def peak(order: int, n: int, batch: int, width: int, side: int) -> float:
    """Megabytes that a step of one side takes at most, over the data and what the bank stores of them (Linux)."""
    call = steps(order, *filled(n, batch, width), "given")[side]
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    call()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    """A number of kilobytes that the kernel keeps about this process."""
    return int(Path("/proc/self/status").read_text().split(f"{key}:")[1].split()[0])


def main() -> None:
    """Run every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (
        ("bank", 4000),
        ("window", 300),
        ("batch", 8),
        ("width", 16384),
        ("repeats", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json")
    given = parser.parse_args()
    print(
        "| score | n | step | divprism (s) | autograd (s) | ratio | asked | difference | memory (MB) | autograd (MB) |"
    )
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    rows = []
    for order, n, asked in ((2, given.bank, 30), (1, given.window, 1)):
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            memory = [
                pool.apply(peak, (order, n, given.batch, given.width, side)) for side in (0, 1)
            ]
        bank, new = filled(n, given.batch, given.width)
        for what in ("given", "median", "append"):
            ours, theirs = steps(order, bank, new, what)
            wanted = 1 if what == "append" else asked  # once a sample, not once a step
            mine, other = ours(), theirs()
            gap = float((mine - other).norm() / other.norm())
            times = [min(timed(call) for _ in range(given.repeats)) for call in (ours, theirs)]
            name, ratio = (
                "Conditional-RKE" if order == 2 else "Conditional-Vendi",
                times[1] / times[0],
            )
            rows.append(
                {
                    "score": name,
                    "n": n,
                    "what": what,
                    "seconds": times,
                    "asked": wanted,
                    "memory": memory,
                }
            )
            print(
                f"| {name} | {n} | {what} | {times[0]:.4f} | {times[1]:.4f} | {ratio:.3g} | {wanted} | {gap:.0e} | "
                f"{memory[0]:.0f} | {memory[1]:.0f} |",
                flush=True,
            )
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
