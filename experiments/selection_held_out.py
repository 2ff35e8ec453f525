"""Subsets by `dp.select` and by other ways, judged by what none of them sees.

Tables of `experiments/selection.py`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from selection_data import DataSet
from selection_ways import WAYS, choices, kernel_matrix, log_score, mean_over, random_rows

import divprism as dp
from divprism.report.table import Column, Table

__all__ = [
    "Judged",
    "damage_table",
    "judge",
    "kinds_of_all",
    "pooled_table",
    "score_table",
    "summary",
]

NUM_HALVES = 10
NUM_DRAWS = 20
SIZES = (20, 100)
# Of the embedder that subsets are chosen with.
SAME = {"what vendi maximises": 1.0, "half the bandwidth": 0.5, "twice the bandwidth": 2.0}
ANOTHER = "other embedders"
RIVALS = ("k-center", "max-min", "max-sum")


@dataclass(frozen=True, eq=False)
class Judged:
    """What subsets of one size reach, of one data set.

    Attributes
    ----------
    data : DataSet
        The data set.
    k : int
        Outputs in a subset.
    scores : dict
        By measure and way, the logarithm of the score over that of random subsets, for each half.
        The way "best" chooses by the measure itself.
    kinds : dict
        By way, the number of kinds for each half, also of "random" and of "best".
    damaged : dict
        By way, the share of damaged outputs in the subset, for each half.
    """

    data: DataSet
    k: int
    scores: Mapping[str, Mapping[str, np.ndarray]]
    kinds: Mapping[str, np.ndarray]
    damaged: Mapping[str, np.ndarray]


def judge(data: DataSet, k: int) -> Judged:
    """Choose k outputs of random halves by each way, and measure what they reach."""
    scores: dict[str, dict[str, list[float]]] = {}
    kinds: dict[str, list[float]] = {}
    damaged: dict[str, list[float]] = {}
    bandwidth = bandwidth_of(data.x)
    for seed in range(NUM_HALVES):
        rows = np.random.default_rng(seed).permutation(len(data.x))[: len(data.x) // 2]
        x = data.x[rows]
        found = choices(x, kernel_matrix(x, bandwidth), bandwidth, k)
        draws = random_rows(len(rows), k, NUM_DRAWS, seed)
        for name, view, width in _measures(data, rows, bandwidth):
            score = partial(log_score, kernel_matrix(view, width), 1.0)
            best = dp.select(view, k=k, kernel_x=dp.Gaussian(width))
            chance = mean_over(draws, score)
            for way, subsets in (found | {"best": [np.array(best.indices)]}).items():
                value = mean_over(subsets, score) - chance
                scores.setdefault(name, {}).setdefault(way, []).append(value)
        _count_kinds(kinds, data.kinds[rows], found | {"random": draws}, k)
        _count_damaged(damaged, x, data.damaged[seed % 2 :: 2], bandwidth, k)
    arrays = {name: _arrays(ways) for name, ways in scores.items()}
    return Judged(data, k, arrays, _arrays(kinds), _arrays(damaged))


def bandwidth_of(x: np.ndarray) -> float:
    """The default bandwidth of outputs."""
    return float(dp.DistinctPrompts().side_bandwidth("x", x))


def _measures(
    data: DataSet, rows: np.ndarray, bandwidth: float
) -> Iterator[tuple[str, np.ndarray, float]]:
    """The name, the vectors and the bandwidth of each measure."""
    for name, factor in SAME.items():
        yield name, data.x[rows], factor * bandwidth
    for name, vectors in data.judges.items():
        yield name, vectors[rows], bandwidth_of(vectors)


def _count_kinds(
    into: dict[str, list[float]],
    kinds: np.ndarray,
    found: Mapping[str, list[np.ndarray]],
    k: int,
) -> None:
    """Add the number of kinds that each way finds."""
    for way, subsets in found.items():
        count = mean_over(subsets, lambda rows: np.unique(kinds[rows]).size)
        into.setdefault(way, []).append(count)
    into.setdefault("best", []).append(min(k, np.unique(kinds).size))


def _count_damaged(
    into: dict[str, list[float]], x: np.ndarray, damaged: np.ndarray, bandwidth: float, k: int
) -> None:
    """Add the share of damaged outputs that each way chooses from both together."""
    both = np.concatenate([x, damaged])
    found = choices(both, kernel_matrix(both, bandwidth), bandwidth, k)
    for way, subsets in found.items():
        into.setdefault(way, []).append(mean_over(subsets, lambda r: float(np.mean(r >= len(x)))))
    into.setdefault("random", []).append(len(damaged) / len(both))


def _arrays(values: Mapping[str, Sequence[float]]) -> dict[str, np.ndarray]:
    return {name: np.array(each) for name, each in values.items()}


# --- tables


def lead_over_halves(ours: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The mean difference on the same halves, and twice its standard deviation."""
    difference = ours - other
    return float(difference.mean()), 2 * float(difference.std(ddof=1))


def with_reach(lead: float, reach: float, digits: int) -> str:
    """A difference with its sign, and half the width of its interval."""
    return f"{lead:+.{digits}f} ± {reach:.{digits}f}"


def score_table(judged: Iterable[Judged]) -> Table:
    """Judged by other embedders: each data set and size."""
    rows = []
    for each in judged:
        for name in each.data.judges:
            rows.append((each.data.name, str(each.k), name, *_leads([each.scores[name]])))
    names = ("data", "k", "judged by")
    return Table(tuple(Column(name, name) for name in names) + _LEAD_COLUMNS, tuple(rows))


def pooled_table(judged: Sequence[Judged]) -> Table:
    """The mean over data sets, for each size and kind of judge."""
    rows = []
    for name in (*SAME, ANOTHER):
        for k in SIZES:
            of_sets = [_scores_by(name, each) for each in judged if each.k == k]
            rows.append((name, str(k), *_leads(of_sets)))
    columns = (Column("judge", "judged by"), Column("k", "k"), *_LEAD_COLUMNS)
    return Table(columns, tuple(rows))


def _scores_by(name: str, each: Judged) -> Mapping[str, np.ndarray]:
    """The scores of each way on each half; of other embedders the mean."""
    if name != ANOTHER:
        return each.scores[name]
    of_judges = [each.scores[judge] for judge in each.data.judges]
    return {way: np.mean([scores[way] for scores in of_judges], axis=0) for way in of_judges[0]}


def _leads(of_sets: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
    """Cells of `_LEAD_COLUMNS`: means over data sets, whose errors are independent."""
    cells = [_times([scores["vendi"] for scores in of_sets])]
    for way in WAYS[1:]:
        lead, reach = _lead(of_sets, way)
        cells.append(with_reach(100 * lead, 100 * reach, 1))
    cells.append(_times([scores["best"] for scores in of_sets]))
    return cells


def _lead(of_sets: Sequence[Mapping[str, np.ndarray]], way: str) -> tuple[float, float]:
    found = [lead_over_halves(scores["vendi"], scores[way]) for scores in of_sets]
    reach = math.hypot(*(each for _, each in found)) / len(found)
    return math.fsum(lead for lead, _ in found) / len(found), reach


_LEAD_COLUMNS = (
    Column("vendi", "vendi: times random"),
    *(Column(way, f"lead over {way} (%)") for way in WAYS[1:]),
    Column("best", "best possible: times random"),
)


def _times(logarithms: Sequence[np.ndarray]) -> str:
    return f"{math.exp(float(np.mean(logarithms))):.2f}"


def summary(judged: Iterable[Judged]) -> str:
    """By other embedders: how often `vendi` is ahead of the other ways, and behind."""
    ahead, behind, total = 0, 0, 0
    for each in judged:
        for name in each.data.judges:
            for way in RIVALS:
                lead, reach = _lead([each.scores[name]], way)
                total += 1
                ahead += lead > reach
                behind += lead < -reach
    return (
        f"Of {total} comparisons with k-center, max-min and max-sum, `vendi` is ahead in {ahead} "
        f"and behind in {behind}; in {total - ahead - behind} the interval contains 0."
    )


def kinds_of_all(judged: Judged) -> tuple[str, ...]:
    """A row: the number of kinds by `vendi`, its lead over other ways, and what is possible."""
    data, kinds = judged.data, judged.kinds
    task = f"{data.what} in {judged.k} of {len(data.x) // 2:,}, {data.name}"
    cells = [task, f"{kinds['vendi'].mean():.1f}"]
    for way in (*WAYS[1:], "random"):
        cells.append(with_reach(*lead_over_halves(kinds["vendi"], kinds[way]), 1))
    return (*cells, f"{kinds['best'].mean():.1f}")


def damage_table(judged: Iterable[Judged]) -> Table:
    """The share of damaged outputs in subsets by each way."""
    rows = []
    for each in judged:
        shares = [f"{each.damaged[way].mean():.0%}" for way in (*WAYS, "random")]
        rows.append((each.data.name, each.data.damage, str(each.k), *shares))
    columns = [Column("data", "data"), Column("damage", "damage"), Column("k", "k")]
    columns += [Column(way, way) for way in (*WAYS, "random")]
    return Table(tuple(columns), tuple(rows))
