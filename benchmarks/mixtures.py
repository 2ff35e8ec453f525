"""Time and peak memory of `dp.mixture` at order 1, a row for each number of models and of outputs.

    python benchmarks/mixtures.py [--models 3 6 13] [--outputs 3000 6000 12000] [--data DIR]

With --data, one more row: the 13,000 answers of noveltybench_curated below DIR, with embeddings.
Each mixture runs in a process of its own, because memory that was used once stays with a process.
Outputs are float32 vectors around 100 prompts; each model has clusters of its own besides those of
all, so that no two outputs are equal. Processor seconds say more than others beside other jobs.
"""

import argparse
import multiprocessing
import time
from pathlib import Path

import numpy as np
from measure import peak_gigabytes, print_header, print_row, timed, write_rows

import divprism as dp

PROMPTS, WIDTH, CLUSTERS = 100, 64, 30
COLUMNS = ["data", "models", "outputs", "spectra", "gap", "seconds", "CPU (s)", "peak (GB)"]


def synthetic(models: int, outputs: int) -> dict[str, dp.Samples]:
    """Models with the same prompts, and clusters that are partly their own."""
    rng = np.random.default_rng(0)
    prompts = rng.standard_normal((PROMPTS, WIDTH))
    centres = rng.standard_normal((CLUSTERS, WIDTH))
    each = max(1, outputs // models // PROMPTS)
    t = np.repeat(prompts, each, axis=0)
    samples = {}
    for model in range(models):
        own = rng.integers(2 + model, 4 + 2 * model, size=len(t)) % CLUSTERS
        noise = rng.standard_normal(t.shape)
        x = 0.5 * t + centres[own] + 0.6 * noise
        samples[f"m{model}"] = dp.Samples(x.astype(np.float32), t.astype(np.float32))
    return samples


def measure(models: int, outputs: int, data: Path | None) -> dict:
    """Time, memory and certificate of one mixture."""
    given: object = None
    name = "synthetic"
    if data is None:
        given = synthetic(models, outputs)
    else:
        name = "noveltybench"
        given = dp.load(data / "noveltybench_curated" / "dev.jsonl.gz")
    results: list[dp.Mixture] = []
    start = time.process_time()
    seconds = timed(lambda: results.append(dp.mixture(given)))
    processor = time.process_time() - start
    (result,) = results
    return {
        "data": name,
        "models": len(result.weights),
        "outputs": len(result.weights) * result.num_outputs,
        "spectra": result.num_iterations,
        "gap": result.gap,
        "seconds": seconds,
        "processor": processor,
        "peak": peak_gigabytes(),
        "result": result.to_dict(),
    }


def main() -> None:
    """Print a row for each mixture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, nargs="*", default=[3, 6, 13])
    parser.add_argument("--outputs", type=int, nargs="*", default=[3000, 6000, 12_000])
    parser.add_argument("--data", type=Path, help="folder with noveltybench_curated")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    calls: list[tuple[int, int, Path | None]] = []
    for outputs in arguments.outputs:
        calls += [(models, outputs, None) for models in arguments.models]
    if arguments.data is not None:
        calls.append((0, 0, arguments.data))
    print_header(COLUMNS, ["data"])
    context = multiprocessing.get_context("spawn")
    rows = []
    for call in calls:
        with context.Pool(1) as pool:
            row = pool.apply(measure, call)
        rows.append(row)
        print_row(
            [
                row["data"],
                f"{row['models']}",
                f"{row['outputs']:,}",
                f"{row['spectra']}",
                f"{row['gap']:.0e}",
                f"{row['seconds']:.0f}",
                f"{row['processor']:.0f}",
                f"{row['peak']:.1f}",
            ]
        )
        write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
