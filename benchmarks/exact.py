"""Exact scores against a direct SciPy implementation and vendi-score, measured in one run.

    python benchmarks/exact.py [--sizes 500 2000 4000] [--repeats 6] [--json FILE]

benchmarks/reference.py holds the SciPy implementation and the data: float32, 768 wide for outputs
and 512 for prompts; for the cosine kernel, n / 8 wide. Rows against vendi-score are left out where
it is not installed (pip install 'divprism[bench]'). Each time is the best of the repeats, and the
two sides take turns.

To compare two checkouts, run this script with PYTHONPATH set to the `src` of each, for example
with --sizes 500 2000 --repeats 2.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measure import print_header, print_row, write_rows
from reference import (
    BANDWIDTH_T,
    BANDWIDTH_X,
    clustered_pairs,
    plain_conditional,
    plain_cosine,
    plain_kernel,
    plain_vendi,
)

import divprism as dp

try:
    from vendi_score import vendi as vendi_score
except ImportError:
    vendi_score = None

KERNEL_X = dp.Gaussian(BANDWIDTH_X)
KERNEL_T = dp.Gaussian(BANDWIDTH_T)

# Both sides do the same eigendecompositions: equal up to the noise of the clock.
NEVER_SLOWER = 1 / 1.1

COLUMNS = ["n", "case", "peer", "divprism (s)", "peer (s)", "ratio", "target", "difference"]


@dataclass(frozen=True)
class Case:
    """The same score by divprism and by a peer, and the speed-up that divprism should reach."""

    name: str
    peer: str
    data: tuple[np.ndarray, ...]
    ours: Callable[..., float]
    theirs: Callable[..., float]
    target: float


def all_scores(x: np.ndarray, t: np.ndarray) -> float:
    """Conditional-Vendi, after an exact evaluation of all six scores."""
    result = dp.evaluate(
        x, t, kernel_x=KERNEL_X, kernel_t=KERNEL_T, estimator=dp.Exact(), num_permutations=0
    )
    return result.conditional_vendi


def exact_vendi(x: np.ndarray) -> float:
    """Vendi of outputs from all eigenvalues."""
    return dp.vendi(x, kernel=KERNEL_X, estimator=dp.Exact())


def peer_vendi(x: np.ndarray) -> float:
    """Vendi of outputs by vendi-score, from a Gaussian kernel matrix."""
    return vendi_score.score_K(plain_kernel(x, BANDWIDTH_X))


def prompt_vendi(t: np.ndarray) -> float:
    """Vendi of prompts, which repeat."""
    return dp.vendi(t, kernel=KERNEL_T)


def plain_prompt_vendi(t: np.ndarray) -> float:
    """Vendi of prompts by SciPy, which does not notice that they repeat."""
    return plain_vendi(plain_kernel(t, BANDWIDTH_T))


def cosine_vendi(x: np.ndarray) -> float:
    """Vendi with the cosine kernel, which has at most d nonzero eigenvalues."""
    return dp.vendi(x, kernel=dp.Cosine())


def plain_cosine_vendi(x: np.ndarray) -> float:
    """Vendi with the cosine kernel by SciPy, from the n x n matrix."""
    return plain_vendi(plain_cosine(x))


def peer_cosine_vendi(x: np.ndarray) -> float:
    """Vendi with the cosine kernel, the default of vendi-score."""
    return vendi_score.score_X(x.astype(np.float64))


def conditional_rke(x: np.ndarray, t: np.ndarray) -> float:
    """Conditional-RKE from Frobenius norms."""
    return dp.conditional_rke(x, t, kernel_x=KERNEL_X, kernel_t=KERNEL_T)


def plain_conditional_rke(x: np.ndarray, t: np.ndarray) -> float:
    """Conditional-RKE from eigenvalues, as the definition has it."""
    return plain_conditional(x, t, order=2.0)


def cases(n: int) -> list[Case]:
    """All cases at one size; those against vendi-score only if it is installed."""
    pairs = clustered_pairs(n)
    x = pairs[0]
    _, repeated = clustered_pairs(n, num_prompts=n // 20)
    narrow = x[:, : n // 8]
    scipy, peer = "SciPy", "vendi-score"
    cosine = "vendi, cosine, d = n / 8"
    # name, peer, data, divprism, peer, target
    every = [
        Case("all six scores", scipy, pairs, all_scores, plain_conditional, NEVER_SLOWER),
        Case("vendi", peer, (x,), exact_vendi, peer_vendi, NEVER_SLOWER),
        Case("H(T), n / 20 prompts", scipy, (repeated,), prompt_vendi, plain_prompt_vendi, 10),
        Case(cosine, scipy, (narrow,), cosine_vendi, plain_cosine_vendi, 10),
        Case(cosine, peer, (narrow,), cosine_vendi, peer_cosine_vendi, 10),
        Case("conditional, order 2", scipy, pairs, conditional_rke, plain_conditional_rke, 10),
    ]
    if vendi_score is None:
        return [case for case in every if case.peer != peer]
    return every


def take_turn(
    score: Callable[..., float], data: tuple[np.ndarray, ...], calls: int
) -> tuple[float, float]:
    """Seconds of the fastest call in one turn of a side, and its answer."""
    # Where calls are short, one more goes first, untimed: it meets lazy imports and the BLAS
    # threads of the other side, which are still spinning. A call of a second does not notice them.
    if calls > 1:
        score(*data)
    fastest = math.inf
    answer = math.nan
    for _ in range(calls):
        start = time.perf_counter()
        answer = float(score(*data))
        fastest = min(fastest, time.perf_counter() - start)
    return fastest, answer


def race(case: Case, repeats: int, calls: int) -> dict[str, float]:
    """Best times of both sides, which take turns, and the relative difference of their answers."""
    ours = theirs = math.inf
    our_answer = their_answer = math.nan
    for _ in range(repeats):
        seconds, our_answer = take_turn(case.ours, case.data, calls)
        ours = min(ours, seconds)
        seconds, their_answer = take_turn(case.theirs, case.data, calls)
        theirs = min(theirs, seconds)
    return {"ours": ours, "theirs": theirs, "difference": abs(our_answer / their_answer - 1)}


def main() -> None:
    """Run every case at every size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 4000])
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if vendi_score is None:
        print("vendi-score is not installed: its rows are left out.", file=sys.stderr)
    print_header(COLUMNS, texts=("case", "peer"))
    rows = []
    for n in arguments.sizes:
        calls = 1
        if n <= 1000:
            calls = 10
        for case in cases(n):
            result = race(case, arguments.repeats, calls)
            labels = {"n": n, "case": case.name, "peer": case.peer, "target": case.target}
            rows.append(labels | result)
            ours, theirs = result["ours"], result["theirs"]
            times = [f"{ours:.4f}", f"{theirs:.4f}", f"{theirs / ours:.3g}"]
            agreement = f"{result['difference']:.0e}"
            print_row([str(n), case.name, case.peer, *times, f"{case.target:.2g}", agreement])
    write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
