"""Sweeps on a torch device: time of one pass for several numbers of rows of a tile.

    python benchmarks/device.py [--n 8000] [--device cuda] [--tiles 512 2048 4096]

Runs on a GPU if torch finds one, otherwise on the CPU by torch. One pass computes the tiles of
K_X, K_T and their product and multiplies them by 32 vectors each. Its time is divided by that of
the float32 products X X' and T T' on the same device, in blocks of 4,096 rows.
"""

import argparse
from functools import partial

import numpy as np
import torch
from measure import best, print_header, print_row
from reference import BANDWIDTH_T, BANDWIDTH_X, clustered_pairs

import divprism as dp
from divprism.core.operators import HadamardOperator, KernelOperator
from divprism.core.sweep import Sweep
from divprism.engines import Resources

BLOCK_ROWS = 4096
COLUMNS = 32


def synchronised(call, device: torch.device):
    """Call, and wait until the device is done."""
    result = call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result


def products(*sides: torch.Tensor) -> None:
    """The products of all rows with all rows, a block at a time."""
    for rows in sides:
        for start in range(0, len(rows), BLOCK_ROWS):
            _ = rows[start : start + BLOCK_ROWS] @ rows.T


def operators(x: torch.Tensor, t: torch.Tensor) -> list:
    """K_X o K_T, K_X and K_T in single precision."""
    weights = np.full(len(x), 1 / len(x))
    options = {"dtype": torch.float32, "name": "data"}
    left = KernelOperator.from_data(dp.Gaussian(BANDWIDTH_X), x, weights, **options)
    right = KernelOperator.from_data(dp.Gaussian(BANDWIDTH_T), t, weights, **options)
    return [HadamardOperator.of(left, right, weights), left, right]


def main() -> None:
    """Print one row for each number of rows of a tile."""
    default = "cpu"
    if torch.cuda.is_available():
        default = "cuda"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=8_000)
    parser.add_argument("--device", default=default)
    parser.add_argument("--tiles", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    x, t = (torch.from_numpy(side).to(device) for side in clustered_pairs(arguments.n))
    floor = best(partial(synchronised, partial(products, x, t), device), arguments.repeats)
    group = operators(x, t)
    vectors = [torch.ones((arguments.n, COLUMNS), device=device) for _ in group]
    print(f"{device}, n = {arguments.n:,}: products {floor:.3g} s")
    print_header(["rows of a tile", "pass, s", "pass / products"], ())
    for tile in arguments.tiles:
        sweep = Sweep.over(group, Resources(tile=tile))
        seconds = best(
            partial(synchronised, partial(sweep.run, vectors), device), arguments.repeats
        )
        print_row([f"{tile:,}", f"{seconds:.3g}", f"{seconds / floor:.2f}"])


if __name__ == "__main__":
    main()
