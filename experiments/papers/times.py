"""How long the scores take."""

import time
from collections.abc import Callable

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import FAILS, HOLDS, TRUNCATED, Outcome, Request, experiment
from experiments.papers.plots import lines, panels

_WIDTH = 64


@experiment(
    "times",
    TRUNCATED,
    "Table 3",
    claim=(
        "Vendi by eigenvalues takes 97 s for 10,000 samples and 631 s for 20,000, and is out of "
        "reach beyond 30,000; FKEA and Nystrom take about 20 to 45 s, in proportion to n."
    ),
    stand_in="Random clusters, 64 wide; all estimators of divprism beside numpy's eigvalsh.",
)
def times(request: Request) -> Outcome:
    """Seconds of each estimator, and of eigvalsh on the same matrix."""
    largest = request.choose(8000, 1600)
    sizes = [largest // 4, largest // 2, largest]
    rank = largest // 8
    ways: dict[str, Callable[[np.ndarray], object]] = {
        "eigvalsh": _eigvalsh,
        "Exact": lambda x: _vendi(x, dp.Exact()),
        "Lanczos": lambda x: _vendi(x, dp.Lanczos()),
        f"Nystrom({rank})": lambda x: _vendi(x, dp.Nystrom(rank)),
        f"Fourier({rank})": lambda x: _vendi(x, dp.Fourier(rank)),
        "RKE": lambda x: dp.rke(x, kernel=_KERNEL),
    }
    rows = []
    for name, compute in ways.items():
        rows.append((name, *(_seconds(compute, _clusters(n)) for n in sizes)))
    slowest = rows[0]
    ratios = {row[0]: slowest[-1] / row[-1] for row in rows[1:]}
    faster = all(ratio > 1 for name, ratio in ratios.items() if name != "Exact")
    # Three times as long for twice as many samples is less than the cube of eigenvalues.
    in_proportion = all(row[-1] / row[-2] < 3 for row in rows if row[0][:3] in ("Fou", "Nys"))
    verdict = FAILS
    if faster and in_proportion:
        verdict = HOLDS
    told = ", ".join(f"{name} {ratio:.0f} x" for name, ratio in ratios.items())
    reason = f"At n = {largest:,}, eigvalsh takes {slowest[-1]:.1f} s. Faster by: {told}."
    figure, (ax,) = panels(1)
    curves = {row[0]: list(row[1:]) for row in rows}
    lines(ax, sizes, curves, title="seconds", xlabel="samples", log=True)
    columns = [Column("method", "method")]
    columns += [Column(f"n{n}", f"{n:,} samples (s)", ".2f") for n in sizes]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


_KERNEL = dp.Gaussian(6.0)


def _clusters(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((200, _WIDTH))
    noise = 0.5 * rng.standard_normal((n, _WIDTH))
    return (centres[rng.integers(200, size=n)] + noise).astype(np.float32)


def _eigvalsh(x: np.ndarray) -> object:
    squares = (x * x).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * x @ x.T
    return np.linalg.eigvalsh(np.exp(-distances / (2 * 6.0**2)) / len(x))


def _vendi(x: np.ndarray, estimator: object) -> object:
    return dp.vendi(x, kernel=_KERNEL, estimator=estimator)


def _seconds(compute: Callable[[np.ndarray], object], x: np.ndarray) -> float:
    start = time.perf_counter()
    compute(x)
    return time.perf_counter() - start
