"""The same numbers by divprism and by other packages, as a user of each would ask for them.

    python benchmarks/peers.py [--sizes 1000 4000] [--repeats 3]

vendi-score 0.0.3 and prdc 0.2 (pip install 'divprism[bench]'). The data are those of
benchmarks/exact.py: float32, 768 wide. Settings of divprism are its defaults, so Vendi is computed
by the estimator that it picks, to a tolerance of 1e-3. The two sides take turns; times are the best
of the repeats. `difference` is relative.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import prdc
from measure import print_header, print_row, timed
from reference import BANDWIDTH_X, clustered_pairs, plain_kernel
from vendi_score import vendi as vendi_score

import divprism as dp

COLUMNS = ["n", "number", "peer", "divprism (s)", "peer (s)", "ratio", "difference"]


@dataclass(frozen=True)
class Case:
    """One number, by both packages."""

    name: str
    peer: str
    ours: Callable[[], float]
    theirs: Callable[[], float]


def cases(n: int) -> list[Case]:
    """The numbers that a peer computes as well."""
    both, _ = clustered_pairs(2 * n)
    x, real = both[:n], both[n:]
    wide = x.astype(np.float64)
    kernel = dp.Gaussian(BANDWIDTH_X)

    def fidelity(name: str, neighbours: int) -> Callable[[], float]:
        return lambda: prdc.compute_prdc(real, x, nearest_k=neighbours)[name]

    return [
        Case(
            "vendi, cosine",
            "vendi-score",
            lambda: float(dp.vendi(x, kernel=dp.Cosine())),
            lambda: vendi_score.score_X(wide),
        ),
        Case(
            "vendi, Gaussian",
            "vendi-score",
            lambda: float(dp.vendi(x, kernel=kernel)),
            lambda: vendi_score.score_K(plain_kernel(x, BANDWIDTH_X)),
        ),
        Case(
            "vendi of order 2, Gaussian",
            "vendi-score",
            lambda: float(dp.rke(x, kernel=kernel)),
            lambda: vendi_score.score_K(plain_kernel(x, BANDWIDTH_X), q=2),
        ),
        Case("recall", "prdc", lambda: dp.recall(x, real), fidelity("recall", 3)),
        Case("coverage", "prdc", lambda: dp.coverage(x, real), fidelity("coverage", 5)),
    ]


def take_turns(case: Case, repeats: int) -> tuple[float, float]:
    """Seconds of the fastest call of divprism and of the peer."""
    turns = [(timed(case.ours), timed(case.theirs)) for _ in range(repeats)]
    ours, theirs = zip(*turns, strict=True)
    return min(ours), min(theirs)


def main() -> None:
    """Print a table with a row for each size and number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print_header(COLUMNS, texts={"number", "peer"})
    for n in arguments.sizes:
        for case in cases(n):
            with contextlib.redirect_stdout(sys.stderr):  # prdc prints its sizes
                ours, theirs = take_turns(case, arguments.repeats)
                value, peer_value = case.ours(), case.theirs()
            difference = abs(value - peer_value) / abs(peer_value)
            times = [f"{ours:.4f}", f"{theirs:.4f}", f"{theirs / ours:.3g}"]
            print_row([f"{n:,}", case.name, case.peer, *times, f"{difference:.0e}"])


if __name__ == "__main__":
    main()
