"""Do stated errors hold on odd spectra? z = (estimate - exact) / stated error, by shape and order.

    python experiments/odd_spectra.py                        # half an hour on one core
    python experiments/odd_spectra.py --seeds 20 --first 500 # a first look

Each seed is a random sample of one of the shapes below, with a random size and bandwidth. Every
estimator scores it at every order, with and without truncation; z is (estimate - exact) / stated
error. Prints for each estimator the root mean square of z, the largest |z| and how many cases were
refused, and the cases with |z| above 4. Cases that an estimator solved exactly are left out.
"""

import argparse
import math
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

# Before NumPy starts its threads: the matrices are small.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import divprism as dp
from divprism.core.operators import HadamardOperator, KernelOperator, Operator
from divprism.core.spectrum import Estimate
from divprism.estimators import Estimator, Question

ORDERS = (0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)

# Differences in nats that rounding explains. Below one an eigenvalue of 1e-14 counts.
ROUNDING = 1e-5

# |z| from which on a case is listed.
LISTED = 4.0


def line(n: int, rng: np.random.Generator) -> np.ndarray:
    """Points along a line: eigenvalues fall faster than any exponential."""
    width = int(rng.integers(1, 20))
    along = rng.random(n)
    if rng.random() < 0.5:
        along = np.linspace(0, 1, n)
    return along[:, None] * rng.standard_normal(width)


def shell(n: int, rng: np.random.Generator) -> np.ndarray:
    """Points near a sphere: groups of equal eigenvalues."""
    x = rng.standard_normal((n, int(rng.integers(2, 30))))
    radius = 1 + rng.choice([0.0, 1e-3, 0.1]) * rng.standard_normal((n, 1))
    return radius * x / np.linalg.norm(x, axis=1, keepdims=True)


def heavy_tails(n: int, rng: np.random.Generator) -> np.ndarray:
    """A dense core, and points far away from everything."""
    return rng.standard_t(rng.uniform(1, 3), size=(n, int(rng.integers(1, 20))))


def near_copies(n: int, rng: np.random.Generator) -> np.ndarray:
    """A few distinct points, each repeated with tiny changes."""
    width = int(rng.integers(2, 20))
    centres = rng.standard_normal((int(rng.integers(3, n // 3)), width))
    jitter = 10 ** rng.uniform(-6, -1)
    return centres[rng.integers(len(centres), size=n)] + jitter * rng.standard_normal((n, width))


def two_scales(n: int, rng: np.random.Generator) -> np.ndarray:
    """A tight group and a wide one."""
    width = int(rng.integers(2, 20))
    scale = np.where(rng.random(n) < rng.uniform(0.2, 0.8), 10 ** rng.uniform(-4, -1), 1.0)
    return scale[:, None] * rng.standard_normal((n, width))


def log_normal(n: int, rng: np.random.Generator) -> np.ndarray:
    """A dense core that few points belong to, and coordinates of very different sizes."""
    width = int(rng.integers(1, 20))
    return np.exp(rng.uniform(0.5, 2.5) * rng.standard_normal((n, width)))


def low_dimension(n: int, rng: np.random.Generator) -> np.ndarray:
    """Points of a cube of one to three dimensions."""
    return rng.random((n, int(rng.integers(1, 4))))


SHAPES = (line, shell, heavy_tails, near_copies, two_scales, log_normal, low_dimension)


@dataclass(frozen=True)
class Sample:
    """K_X, K_T and their product, with the estimators to try on them."""

    seed: int
    shape: str
    operators: list[Operator]
    estimators: dict[str, Estimator]
    truncation: int

    @classmethod
    def of(cls, seed: int, most: int) -> "Sample":
        """The sample of a seed, of 300 to `most` items."""
        rng = np.random.default_rng([14, seed])
        shape = SHAPES[seed % len(SHAPES)]
        n = int(rng.integers(300, most + 1))
        x, t = shape(n, rng), SHAPES[int(rng.integers(len(SHAPES)))](n, rng)
        dtype = rng.choice(["float64", "float32"])
        weights = np.full(n, 1 / n)
        if rng.random() < 0.2:
            weights = rng.dirichlet(np.full(n, 2.0))
        factors = []
        for data, name in ((x, "x"), (t, "t")):
            kernel = dp.Gaussian(_bandwidth(data, rng))
            data = np.asarray(data, dtype)
            factors.append(
                KernelOperator.from_data(kernel, data, weights, dtype=np.float64, name=name)
            )
        operators = [*factors, HadamardOperator.of(*factors, weights)]
        truncation = int(rng.integers(2, n // 4))
        return cls(seed, shape.__name__, operators, _estimators(n, rng), truncation)


def _bandwidth(data: np.ndarray, rng: np.random.Generator) -> float:
    """Between 0.03 and 3 times the median distance."""
    some = data[rng.choice(len(data), 100, replace=False)]
    distances = np.linalg.norm(some[:, None] - some[None], axis=2)
    return float(np.median(distances[distances > 0])) * 10 ** rng.uniform(-1.5, 0.5)


def _estimators(n: int, rng: np.random.Generator) -> dict[str, Estimator]:
    probes = int(rng.choice([8, 16, 24]))
    # Steps that leave part of the space out: else the solution is exact.
    depth = int(min(rng.choice([4, 8, 12, 16]), 0.8 * n // probes))
    return {
        "Lanczos, probes": dp.Lanczos(probes, max(3, depth)),
        "Lanczos, tolerance": dp.Lanczos(
            depth=int(rng.choice([3, 4, 6])), tolerance=10 ** rng.uniform(-3, -1.5)
        ),
        "Nystrom": dp.Nystrom(int(n * rng.choice([0.1, 0.2, 0.4, 0.6]))),
        "Fourier": dp.Fourier(int(rng.choice([64, 128, 256]))),
    }


def scores_of(sample: Sample, names: list[str]) -> Iterator[tuple[tuple, float | str]]:
    """z of each case: (estimator, order, truncated, matrix), or the text of a refusal."""
    for truncation in (None, sample.truncation):
        exact = dp.Exact().entropies(sample.operators, Question(ORDERS, truncation))
        for name in names:
            for order, expected in zip(ORDERS, exact, strict=True):
                case = (name, order, truncation)
                question = Question((order,), truncation, rng=sample.seed)
                try:
                    [result] = sample.estimators[name].entropies(sample.operators, question)
                except dp.ArgumentError as refusal:
                    yield (*case, "all"), str(refusal)
                    continue
                true = [entropy.estimate for entropy in expected]
                found = [entropy.estimate for entropy in result]
                pairs = list(zip("XTJ", found, true, strict=True))
                pairs.append(("C", _conditional(found), _conditional(true)))
                for matrix, estimate, value in pairs:
                    yield (*case, matrix), _z(estimate, value.value)


def _conditional(entropies: list[Estimate]) -> Estimate:
    """H(X, T) - H(T)."""
    return Estimate.total([(1, entropies[2]), (-1, entropies[1])])


def _z(estimate: Estimate, true: float) -> float:
    difference, error = estimate.value - true, estimate.standard_error
    if abs(difference) < ROUNDING and error < ROUNDING:
        return math.nan  # as good as exact
    if error == 0:
        return math.inf
    # Rounding of both sides is no error of the estimator.
    return math.copysign(max(0.0, abs(difference) - ROUNDING), difference) / error


def _figures(z: np.ndarray) -> str:
    z = np.abs(z[~np.isnan(z)])
    if not z.size:
        return "0 | - | - | -"
    rms, high = np.sqrt(np.mean(z**2)), np.quantile(z, 0.99)
    return f"{z.size} | {rms:.2f} | {high:.2f} | {z.max():.1f}"


def _print_table(found: dict[tuple, list[float]], refused: dict[tuple, int]) -> None:
    """A row for each estimator, order below one or not, and truncation; then one for the whole."""
    print("estimator | order | truncated | cases | rms z | 99 % | largest | refused")
    for name, below, cut in sorted(set(found) | set(refused)):
        key = (name, below, cut)
        order = "1 or more"
        if below:
            order = "below 1"
        print(f"{name} | {order} | {cut} | {_figures(np.array(found[key]))} | {refused[key]}")
    for family in ("Lanczos", "Nystrom", "Fourier"):
        z = [np.array(found[key]) for key in found if key[0].startswith(family)]
        count = sum(refused[key] for key in refused if key[0].startswith(family))
        if z:
            print(f"{family} | all | all | {_figures(np.concatenate(z))} | {count}")


def results_of(
    seed: int, most: int, starts: tuple[str, ...]
) -> list[tuple[tuple, str, float | str]]:
    """For one seed: (estimator, order below one, truncated), the case in words, and its z."""
    warnings.simplefilter("error")
    sample = Sample.of(seed, most)
    names = [name for name in sample.estimators if name.startswith(starts)]
    results = []
    for (name, order, truncation, matrix), z in scores_of(sample, names):
        case = (
            f"seed {seed} {sample.shape} {matrix} {sample.estimators[name]} order {order}, "
            f"n {sample.operators[2].size}, t {truncation}"
        )
        results.append(((name, order < 1, truncation is not None), case, z))
    return results


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=900, help="items of the largest sample")
    parser.add_argument("--only", nargs="*", help="names of estimators, or how they start")
    parser.add_argument("--list", type=float, default=LISTED, help="|z| from which to list a case")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    found, refused = defaultdict(list), defaultdict(int)
    refusals = set()
    task = partial(results_of, most=arguments.most, starts=tuple(arguments.only or [""]))
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor(arguments.jobs) as processes:
        for results in processes.map(task, seeds):
            for key, case, z in results:
                if isinstance(z, str):
                    refused[key] += 1
                    refusals.add(z)
                    continue
                found[key].append(z)
                if abs(z) >= arguments.list:
                    print(f"{case}: z {z:.1f}", flush=True)
    _print_table(found, refused)
    for refusal in sorted(refusals)[:5]:
        print(refusal)


if __name__ == "__main__":
    main()
