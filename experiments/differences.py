"""Are planted differences between models found, and planted copies of the training data?

    python -m experiments.differences                           # planted worlds, some ten minutes
    python -m experiments.differences --only large --data DIR   # up to 100,000 outputs
    python -m experiments.differences --data DIR                # real models and images, too
    python -m experiments.differences --data DIR --sheets DIR2  # and contact sheets of what differs
    python -m experiments.differences --data DIR --json out.json --write

`--write` updates docs/how-to/differences.md. Needs scikit-learn, and torch and diffusers for the
world of digits, which trains its model for a minute once.
"""

import argparse
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import divprism as dp

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "differences.md"
MARK = "<!-- made by experiments/differences.py: {} -->"
LEVEL = 0.05
SEEDS = 50
SHARES = (0.0, 0.05, 0.1, 0.2)


# --- a world of kinds


def of_kinds(
    rng: np.random.Generator, planted: float, prompts: np.ndarray
) -> tuple[dp.Samples, np.ndarray]:
    """Outputs of eight kinds at random, and a share of a ninth kind; and which of them are it."""
    kinds = rng.integers(0, 8, prompts.size)
    kinds[rng.random(prompts.size) < planted] = 8
    rows = 6 * np.eye(12)[kinds] + 0.5 * rng.standard_normal((prompts.size, 12))
    return dp.Samples(rows, prompts), kinds == 8


def planted_kinds(seeds: int, shares: Sequence[float] = SHARES) -> list[dict[str, Any]]:
    """For each share of the planted kind: how often it is found, where, and with what share."""
    rows = []
    prompts = np.repeat(np.arange(40), 5)
    kernels: dict[str, Any] = {"kernel_x": dp.Gaussian(4.0), "kernel_t": dp.Categorical()}
    for planted in shares:
        runs = []
        for seed in range(seeds):
            rng = np.random.default_rng([seed, round(1000 * planted)])
            a, _ = of_kinds(rng, 0.0, prompts)
            b, is_planted = of_kinds(rng, planted, prompts)
            runs.append(_run(dp.diff(a, b, **kernels), is_planted))
            print(f"{planted:.0%} planted, seed {seed}: {runs[-1]}", flush=True)
        rows.append(_summary(f"kinds, {planted:.0%} planted", planted, runs))
    return rows


def _run(found: dp.Differences, is_planted: np.ndarray) -> dict[str, Any]:
    """What one comparison says of what only the second model makes: a mode by its examples."""
    number, mode = 0, None
    for rank, candidate in enumerate(found.modes, start=1):
        shown = [bool(is_planted[example.row]) for example in candidate.examples]
        if candidate.model == found.second and np.mean(shown) > 0.5 and mode is None:
            number, mode = rank, candidate
    run = {
        "any p": any((each.p_value or 0) <= LEVEL for each in found.modes),
        "total p": (found.p_value or 0) <= LEVEL,
        "clear": len(found.clear_modes) > 0,
        "rank": number,
        "found": mode is not None and mode in found.clear_modes,
        "share": math.nan,
        "held out": math.nan,
    }
    if mode is not None:
        run["share"], run["held out"] = mode.share_second, -mode.held_out
    return run


def _summary(world: str, planted: float, runs: list[dict[str, Any]]) -> dict[str, Any]:
    ranks = [run["rank"] for run in runs if run["rank"]]
    shares = [run["share"] for run in runs if run["rank"]]
    held_out = [run["held out"] for run in runs if run["rank"]]
    return {
        "world": world,
        "planted": planted,
        "runs": len(runs),
        "any p": float(np.mean([run["any p"] for run in runs])),
        "total p": float(np.mean([run["total p"] for run in runs])),
        "clear": float(np.mean([run["clear"] for run in runs])),
        "found": float(np.mean([run["found"] for run in runs])),
        "rank": float(np.median(ranks)) if ranks else None,
        "share": float(np.mean(shares)) if shares else None,
        "held out": float(np.mean(held_out)) if held_out else None,
    }


# --- digits


def planted_digits(seeds: int) -> list[dict[str, Any]]:
    """Model A never draws a seven in black ink; a control draws all of them."""
    from experiments.world.digits import DIGITS, INKS, digit_model

    model = digit_model()
    seven, black = DIGITS.index("seven"), INKS.index("black")
    prompts = np.repeat(np.array(["a digit", "a black digit", "an odd digit", "a seven"]), 75)
    pool = model.generate(list(prompts) * 4, seed=1)
    features = model.features(pool)
    digits, inks = model.seen(pool)
    is_planted = (digits == seven) & (inks == black)
    rows_of = np.arange(pool.shape[0]).reshape(4, prompts.size)
    summaries = []
    for world in ("digits, none planted", "digits, A draws no black seven"):
        without = "no black" in world
        runs, shares = [], []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            a, b = _two_halves(rng, rows_of, prompts, is_planted, without)
            shares.append(float(is_planted[b].mean()))
            samples = [dp.Samples(features[rows], prompts) for rows in (a, b)]
            found = dp.diff(*samples, kernel_t=dp.Categorical(), num_permutations=99)
            runs.append(_run(found, is_planted[b] & without))
            print(f"{world}, seed {seed}: {runs[-1]}", flush=True)
        summaries.append(_summary(world, float(np.mean(shares)) if without else 0.0, runs))
    return summaries


def _two_halves(
    rng: np.random.Generator,
    rows_of: np.ndarray,
    prompts: np.ndarray,
    is_planted: np.ndarray,
    without: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Images of either model, from one pool, with the same prompts; A redraws what it lacks."""
    a, b = np.empty(prompts.size, int), np.empty(prompts.size, int)
    for prompt in np.unique(prompts):
        places = np.flatnonzero(prompts == prompt)
        pool = rng.permutation(rows_of[:, places].ravel())
        b[places] = pool[: places.size]
        others = pool[places.size :]
        if without:
            others = others[~is_planted[others]]
        a[places] = rng.choice(others, places.size, replace=others.size < places.size)
    return a, b


def difference_table(rows: list[dict[str, Any]]) -> str:
    """The planted worlds as Markdown."""
    lines = [
        "| world | planted share | a mode at p <= 0.05 | a clear mode | planted mode clear | "
        "its rank (median) | its share | on other data |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["world"], f"{row['planted']:.1%}"]
        cells += [f"{round(row[key] * row['runs'])} of {row['runs']}" for key in ("any p", "clear")]
        if row["planted"]:
            cells.append(f"{round(row['found'] * row['runs'])} of {row['runs']}")
            cells.append("-" if row["rank"] is None else f"{row['rank']:g}")
            cells += [
                "-" if row[key] is None else f"{row[key]:.1%}" for key in ("share", "held out")
            ]
        else:
            cells += ["-"] * 4
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# --- above 4,000 outputs, by landmarks


LARGE = ((8_000, 0.1), (20_000, 0.1), (100_000, 0.1), (20_000, 0.01), (100_000, 0.01))
EXACT = 8_000  # outputs of which the whole kernel matrix is computed
NULL_SIZE, NULL_SEEDS = 5_000, 20
BANDWIDTH = 4.0


def large_world(size: int, planted: float, seed: int) -> tuple[dp.Samples, dp.Samples, np.ndarray]:
    """Two models of eight kinds, of which the second has a ninth; `size` counts both models."""
    prompts = np.repeat(np.arange(size // 10), 5)
    rng = np.random.default_rng([seed, size])
    a, _ = of_kinds(rng, 0.0, prompts)
    b, is_planted = of_kinds(rng, planted, prompts)
    return a, b, is_planted


def large_run(size: int, planted: float, seed: int = 0) -> dict[str, Any]:
    """Time, memory and the planted mode of one comparison."""
    import resource
    import time

    a, b, is_planted = large_world(size, planted, seed)
    start = time.process_time()
    kernels: dict[str, Any] = {"kernel_x": dp.Gaussian(BANDWIDTH), "kernel_t": dp.Categorical()}
    found = dp.diff(a, b, **kernels)
    run = _run(found, is_planted)
    return run | {
        "size": size,
        "planted": float(is_planted.mean()),
        "seconds": time.process_time() - start,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "unseen": found.unseen,
        "smallest p": min(mode.p_value or 0.0 for mode in found.modes),
        "total": found.total,
        "baseline": found.baseline,
    }


def exact_share(size: int, planted: float, seed: int = 0) -> float:
    """Share of the mode that the second model has most more of, without landmarks."""
    a, b, _ = large_world(size, planted, seed)
    return exact_mode(np.concatenate([a.outputs, b.outputs]), len(a), BANDWIDTH)[1]


def exact_mode(x: np.ndarray, num_first: int, bandwidth: float) -> tuple[float, float]:
    """Eigenvalue and share of the mode that the second model has most more of.

    By Arnoldi iterations on K D: v = F u are the loadings of all points, K D v = l v, and the
    squared norm of u is v' D v / l.
    """
    from scipy.sparse.linalg import LinearOperator, eigs
    from scipy.spatial.distance import cdist

    matrix = cdist(x, x, "sqeuclidean")
    matrix *= -1 / (2 * bandwidth**2)
    np.exp(matrix, out=matrix)
    is_first = np.arange(x.shape[0]) < num_first
    masses = np.where(is_first, 1 / num_first, -1 / (x.shape[0] - num_first))
    product = LinearOperator(matrix.shape, lambda v: matrix @ (masses * v.ravel()), dtype=float)
    values, vectors = eigs(product, k=1, which="SR", v0=np.ones(x.shape[0]))
    value, loadings = float(values[0].real), vectors[:, 0].real
    squares = loadings**2 / (loadings @ (masses * loadings) / value)
    return value, float(squares[~is_first].mean())


def large_runs() -> list[dict[str, Any]]:
    """Each comparison in a process of its own, whose memory is its own."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    rows = []
    for size, planted in LARGE:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            row = pool.submit(large_run, size, planted).result()
        if size <= EXACT:
            row["exact share"] = exact_share(size, planted)
        rows.append(row)
        print(row, flush=True)
    return rows


def large_null(seeds: int) -> dict[str, Any]:
    """How often equal models differ: the p-values of the total and of the largest mode."""
    runs = []
    for seed in range(seeds):
        run = large_run(NULL_SIZE, 0.0, seed + 1)
        runs.append(run)
        shown = {key: run[key] for key in ("smallest p", "any p", "total p", "clear")}
        print(shown, flush=True)
    row = {key: float(np.mean([run[key] for run in runs])) for key in ("any p", "total p", "clear")}
    return row | {"runs": seeds, "size": NULL_SIZE}


def large_table(rows: list[dict[str, Any]]) -> str:
    """Large worlds as Markdown."""
    lines = [
        "| outputs of both | planted share | its share | exact | on other data | clear, rank | "
        "outside of the landmarks | seconds of a processor | memory |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        exact = "-"
        if "exact share" in row:
            exact = f"{row['exact share']:.2%}"
        clear = f"no, {row['rank']}"
        if row["found"]:
            clear = f"yes, {row['rank']}"
        cells = [f"{row['size']:,}", f"{row['planted']:.1%}"]
        cells += [f"{row['share']:.2%}", exact, f"{row['held out']:.2%}", clear]
        cells += [f"{row['unseen']:.1%}", f"{row['seconds']:.0f}", f"{row['megabytes']:.0f} MB"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def large_real(folder: Path) -> list[dict[str, Any]]:
    """The largest real data: answers of two groups of models, captioners beside people."""
    from dataclasses import replace

    from divprism.embedders.embedding import embed

    rows = []
    answers = dp.load(folder / "noveltybench_curated" / "dev.jsonl.gz")
    by_model = answers.by_model()
    for count in (4, 6):
        parts = []
        for number in range(2):
            # Every other model, so that families of models are in both groups.
            names = sorted(by_model)[number : 2 * count : 2]
            kept = [row for row, name in enumerate(answers.models or ()) if name in names]
            parts.append(replace(answers.select(kept), models=("AB"[number],) * len(kept)))
        name = f"NoveltyBench, {count} models and {count} others"
        found, row = _timed(name, lambda parts=parts: dp.diff(*parts, num_modes=6))
        if 2 * found.data["n"] <= EXACT:
            kernel: Any = found.settings.kernel_x
            rows_of_both = [found.samples[model] for model in (found.first, found.second)]
            vectors = [np.asarray(embed(part).outputs, float) for part in rows_of_both]
            value, share = exact_mode(np.concatenate(vectors), found.data["n"], kernel.bandwidth)
            row["exact eigenvalue"], row["exact share"] = value, share
            largest = next(mode for mode in found.modes if mode.model == found.second)
            row["its eigenvalue"], row["its share"] = largest.eigenvalue, largest.share_second
        rows.append(row)
        print(row, found, sep="\n", flush=True)
    captions = dp.load(folder / "coco_captioners" / "data.jsonl.gz")
    people = [row for row, name in enumerate(captions.models or ()) if name == "human"]
    others = [row for row, name in enumerate(captions.models or ()) if name != "human"]
    written = replace(captions.select(others), models=None)
    real = replace(captions.select(people), models=None)
    novel, row = _timed("COCO, captioners and people", lambda: dp.novelty(written, real))
    rows.append(row)
    print(row, novel, sep="\n", flush=True)
    return rows


def _timed(name: str, compute: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """A result, and its figures with seconds of a processor."""
    import time

    start = time.process_time()
    found = compute()
    row = {"data": name, "unseen": found.unseen, "total": found.total, "p": found.p_value}
    row["clear"] = sum(mode.is_clear(found.level) for mode in found.modes)
    return found, row | {"baseline": found.baseline, "seconds": time.process_time() - start}


# --- copies


def image_copies(folder: Path) -> list[dict[str, Any]]:
    """Changed copies of training images among new ones: which are listed."""
    from PIL import Image

    records = _records(folder / "t2i_vague_objects" / "metadata.jsonl")
    paths = [folder / "t2i_vague_objects" / record["file"] for record in records]
    order = np.random.default_rng(0).permutation(len(paths))
    training, new = [paths[i] for i in order[:600]], [paths[i] for i in order[600:]]
    chosen = training[:60]
    changes: dict[str, Callable[[Any], Any]] = {
        "the same pixels": lambda image: image,
        "JPEG of quality 75": lambda image: _encoded(image, 75),
        "JPEG of quality 40": lambda image: _encoded(image, 40),
        "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        "cropped to 90 %": lambda image: _cropped(image, 0.05),
        "cropped to 75 %": lambda image: _cropped(image, 0.125),
    }
    opened = {path: Image.open(path).convert("RGB") for path in paths}
    reference = [opened[path] for path in training]
    honest = [opened[path] for path in new]
    rows = []
    for name, change in changes.items():
        copies = [change(opened[path]) for path in chosen]
        found = dp.novelty([*copies, *honest], reference, num_permutations=0)
        rows.append(_copies_row(f"images, {name}", found, len(copies), len(honest)))
    return rows


def _encoded(image: Any, quality: int) -> Any:
    from PIL import Image

    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def _cropped(image: Any, margin: float) -> Any:
    width, height = image.size
    left, top = round(margin * width), round(margin * height)
    return image.crop((left, top, width - left, height - top))


def text_copies(folder: Path) -> list[dict[str, Any]]:
    """Changed copies of captions among new captions."""
    records = _records(folder / "coco_captioners" / "data.jsonl.gz")
    texts = sorted({record["output"] for record in records if record["model"] == "human"})
    rng = np.random.default_rng(0)
    texts = [texts[i] for i in rng.permutation(len(texts))]
    training, honest, chosen = texts[:800], texts[800:1500], texts[:100]
    changes: dict[str, Callable[[str], str]] = {
        "the same words": lambda text: text,
        "words in another order": lambda text: " ".join(rng.permutation(text.split())),
        "one word left out": lambda text: _without_words(text, 1, rng),
        "three words left out": lambda text: _without_words(text, 3, rng),
    }
    rows = []
    for name, change in changes.items():
        copies = [change(text) for text in chosen]
        found = dp.novelty([*copies, *honest], training, num_permutations=0)
        rows.append(_copies_row(f"captions, {name}", found, len(copies), len(honest)))
    return rows


def _without_words(text: str, count: int, rng: np.random.Generator) -> str:
    words = text.split()
    kept = np.sort(rng.choice(len(words), max(1, len(words) - count), replace=False))
    return " ".join(words[i] for i in kept)


def _copies_row(name: str, found: dp.Novelty, planted: int, honest: int) -> dict[str, Any]:
    """Recall, precision and false alarms; the first rows are copies of the first items."""
    right = sum(copy.row < planted and copy.reference_row == copy.row for copy in found.copies)
    false = sum(copy.row >= planted for copy in found.copies)
    listed = len(found.copies)
    print(f"{name}: {right} of {planted} found, {false} of {honest} false", flush=True)
    return {
        "copies": name,
        "planted": planted,
        "new": honest,
        "recall": right / planted,
        "precision": right / listed if listed else math.nan,
        "false alarms": false / honest,
    }


def copies_table(rows: list[dict[str, Any]]) -> str:
    """Precision and recall as Markdown."""
    lines = [
        "| copies | planted among new | recall | precision | new ones listed |",
        "|---" * 5 + "|",
    ]
    for row in rows:
        lines.append(
            f"| {row['copies']} | {row['planted']} among {row['new']:,} | {row['recall']:.0%} | "
            f"{row['precision']:.0%} | {row['false alarms']:.1%} |"
        )
    return "\n".join(lines)


def _records(path: Path) -> list[dict[str, Any]]:
    import gzip

    if not path.exists():
        raise SystemExit(f"{path} does not exist; --data must name the folder of the data sets.")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# --- real models


def real_differences(folder: Path, sheets: Path | None) -> None:
    """Print the largest differences of real models, and draw their examples."""
    source = folder / "t2i_vague_objects" / "metadata.jsonl"
    found = dp.diff(source, num_modes=8, num_examples=6)
    print(found, "\n")
    if sheets is not None:
        contact_sheet(found, sheets / "t2i.png")
    data = dp.load(folder / "coco_captioners" / "data.jsonl.gz")
    for first, second in (("human", "zerocap"), ("magic", "zerocap"), ("human", "magic")):
        print(dp.diff(data, first=first, second=second, num_modes=6), "\n")


def contact_sheet(found: dp.Differences, path: Path) -> None:
    """Examples of each mode in a row, and below each the nearest image of the other model."""
    from PIL import Image

    side = 128
    width = max(len(mode.examples) for mode in found.modes)
    sheet = Image.new("RGB", (side * width, (2 * side + 12) * len(found.modes)), "white")
    for row, mode in enumerate(found.modes):
        other = found.second if mode.model == found.first else found.first
        for column, example in enumerate(mode.examples):
            pair = ((mode.model, example.row), (other, example.nearest))
            for below, (model, index) in enumerate(pair):
                image: Any = found.samples[model].outputs[index].content(0)
                top = row * (2 * side + 12) + below * side
                sheet.paste(image.convert("RGB").resize((side, side)), (column * side, top))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def write_table(name: str, table: str) -> None:
    """Replace the table below a mark of the page."""
    mark = MARK.format(name)
    head, found, rest = PAGE.read_text().partition(mark)
    if not found:
        raise SystemExit(f"{PAGE} has no line {mark}")
    _, _, tail = rest.lstrip("\n").partition("\n\n")
    PAGE.write_text(f"{head}{mark}\n\n{table}\n\n{tail}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the data allow, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the real data sets")
    parser.add_argument("--sheets", type=Path, help="folder for contact sheets")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--no-digits", action="store_true")
    parser.add_argument("--only", choices=["planted", "large", "copies", "real"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    if options.only in (None, "planted"):
        rows = planted_kinds(options.seeds)
        if not options.no_digits:
            rows += planted_digits(options.seeds)
        results["planted"] = rows
        print(difference_table(rows), "\n")
        if options.write:
            write_table("planted", difference_table(rows))
    if options.only == "large":
        results["large"] = large_runs()
        print(large_table(results["large"]), "\n")
        results["null"] = large_null(NULL_SEEDS)
        print(results["null"], "\n")
        if options.data is not None:
            results["large real"] = large_real(options.data)
        if options.write:
            write_table("large", large_table(results["large"]))
    if options.data is not None and options.only in (None, "copies"):
        copies = image_copies(options.data) + text_copies(options.data)
        results["copies"] = copies
        print(copies_table(copies), "\n")
        if options.write:
            write_table("copies", copies_table(copies))
    if options.data is not None and options.only in (None, "real"):
        real_differences(options.data, options.sheets)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
