"""A diverse subset by `dp.select` and by other packages, as a user of each would ask for it.

    python benchmarks/selection_peers.py [--n 300] [--k 15] [--bandwidth 50]

    pip install vendi-score==0.0.3 apricot-select==0.6.1 submodlib-py==0.0.3 dppy==0.3.3

vendi-score scores and does not choose: here it scores each candidate beside what is chosen, in
each step, and the best is added. It begins with the first choice of `dp.select`, because one output
scores 1 whichever it is. The other packages maximise objectives of their own. `same` counts the
choices that `dp.select` by `vendi` makes too; `Vendi` is that of the subset by the formula
(benchmarks/reference.py), `of best` that over the highest of the column.

All get the same vectors (float32 in clusters, 768 wide) and bandwidth, at which outputs of
different clusters are alike too: otherwise every subset of one output per cluster would be the
best. The time of peers includes the kernel matrix; that of `dp.select` the scores of random subsets
that it is compared with. The packages take turns; times are the best of the repeats, and `ratio` is
over `dp.select` by `vendi`.
A package that is not installed is left out.
"""

import argparse
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from measure import print_header, print_row, timed, write_rows
from reference import clustered_pairs, plain_kernel, plain_vendi

import divprism as dp

COLUMNS = ["n", "k", "chosen by", "package", "seconds", "ratio", "same", "Vendi", "of best"]
OURS = "vendi"

Choose = Callable[[], list[int]]


def by_divprism(x: np.ndarray, k: int, bandwidth: float, score: str) -> list[int]:
    """The choices of `dp.select`."""
    return list(dp.select(x, k=k, by=score, kernel_x=dp.Gaussian(bandwidth)).indices)


def by_scores(kernel: np.ndarray, k: int, first: int) -> list[int]:
    """Greedy selection by the published score: all candidates scored in each step."""
    from vendi_score import vendi

    chosen = [first]
    while len(chosen) < k:
        candidates = [index for index in range(len(kernel)) if index not in chosen]
        scores = []
        for index in candidates:
            rows = [*chosen, index]
            scores.append(vendi.score_K(kernel[np.ix_(rows, rows)]))
        chosen.append(candidates[int(np.argmax(scores))])
    return chosen


def by_apricot(kernel: np.ndarray, k: int) -> list[int]:
    """Facility location: each output near to one that is chosen."""
    from apricot import FacilityLocationSelection

    selector = FacilityLocationSelection(k, metric="precomputed")
    selector.fit(kernel)
    return list(map(int, selector.ranking))


def by_submodlib(kernel: np.ndarray, k: int, function: str, **options: object) -> list[int]:
    """An objective of submodlib, greedily."""
    import submodlib

    objective = getattr(submodlib, function)(n=len(kernel), mode="dense", sijs=kernel, **options)
    # Its log-determinant falls with each choice, and would otherwise end there.
    always = {"stopIfZeroGain": False, "stopIfNegativeGain": False, "show_progress": False}
    choices = objective.maximize(k, optimizer="NaiveGreedy", **always)
    return [int(index) for index, _ in choices]


def by_dppy(kernel: np.ndarray, k: int) -> list[int]:
    """A random draw from the determinantal point process of subsets of k."""
    from dppy.finite_dpps import FiniteDPP

    process = FiniteDPP("likelihood", L=kernel)
    return list(map(int, process.sample_exact_k_dpp(size=k, random_state=0)))


def ways(x: np.ndarray, k: int, bandwidth: float) -> dict[tuple[str, str], Choose]:
    """Each way to choose, by what is maximised and the package."""
    first = by_divprism(x, k, bandwidth, OURS)[0]

    def kernel() -> np.ndarray:
        return plain_kernel(x, bandwidth)

    def submodlib(function: str, **options: object) -> Choose:
        return lambda: by_submodlib(kernel(), k, function, **options)

    known: dict[tuple[str, str], Choose] = {
        (OURS, "divprism"): lambda: by_divprism(x, k, bandwidth, OURS),
        ("rke", "divprism"): lambda: by_divprism(x, k, bandwidth, "rke"),
        ("vendi, all scored", "vendi_score"): lambda: by_scores(kernel(), k, first),
        ("facility location", "apricot"): lambda: by_apricot(kernel(), k),
        ("facility location", "submodlib"): submodlib(
            "FacilityLocationFunction", separate_rep=False
        ),
        ("max-min distance", "submodlib"): submodlib("DisparityMinFunction"),
        ("log-determinant", "submodlib"): submodlib("LogDeterminantFunction", lambdaVal=0.0),
        ("k-DPP, one draw", "dppy"): lambda: by_dppy(kernel(), k),
    }
    found = {}
    for (objective, package), choose in known.items():
        if find_spec(package) is None:
            print(f"{package} is not installed: left out", file=sys.stderr)
        else:
            found[objective, package] = choose
    return found


def measure(n: int, k: int, bandwidth: float, repeats: int) -> list[dict]:
    """A row for each way to choose."""
    x, _ = clustered_pairs(n)
    kernel = plain_kernel(x, bandwidth)
    calls = ways(x, k, bandwidth)
    choices = {key: choose() for key, choose in calls.items()}  # and what is loaded once
    turns = [{key: timed(choose) for key, choose in calls.items()} for _ in range(repeats)]
    seconds = {key: min(turn[key] for turn in turns) for key in choices}
    ours = (OURS, "divprism")
    rows = []
    for (objective, package), chosen in choices.items():
        rows.append(
            {
                "n": n,
                "k": k,
                "objective": objective,
                "package": package,
                "seconds": seconds[objective, package],
                "ratio": seconds[objective, package] / seconds[ours],
                "same": len(set(chosen) & set(choices[ours])),
                "vendi": plain_vendi(kernel[np.ix_(chosen, chosen)]),
            }
        )
    best = max(row["vendi"] for row in rows)
    return [row | {"of_best": row["vendi"] / best} for row in rows]


def main() -> None:
    """Print a table with a row for each way to choose."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--bandwidth", type=float, default=50.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print_header(COLUMNS, {"chosen by", "package"})
    rows = measure(options.n, options.k, options.bandwidth, options.repeats)
    formats = ("{:,}", "{:,}", "{}", "{}", "{:.4f}", "{:.3g}", "{}", "{:.3f}", "{:.4f}")
    for row in rows:
        print_row(form.format(value) for form, value in zip(formats, row.values(), strict=True))
    write_rows(rows, options.json)


if __name__ == "__main__":
    main()
