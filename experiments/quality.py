"""Quality against diversity of real models: which temperatures, and which models, are worth it?

    python experiments/quality.py --data DATA                # prints the fronts
    python experiments/quality.py --data DATA --plot FOLDER  # and draws them

- Temperatures of gpt-35-turbo on multiple choice. The quality of an answer is 1 if it names the
  choice that most of five other models name at temperature 0, and 0 otherwise: their majority
  stands in for the key of the exam, which the data do not hold.
- Four text-to-video models and real videos with the static quality, 1 to 5, that people gave each
  clip.

Beside the front stand the product of quality and diversity, and the diversity with masses in
proportion to the quality: of the good outputs alone.

tevet_temperature has human scores of the diversity of a set, not of its quality, so it is not here.
The data sets are not part of this repository.
"""

import argparse
import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import divprism as dp
from divprism.report.style import image_bytes
from divprism.report.table import Column, Table

RATED = "gpt-35-turbo"  # the only model at more than three temperatures
_CHOICE = re.compile(r'Answer\("?([A-Z])"?\)')


def choice_of(answer: str) -> str | None:
    """The choice that an answer ends with; None if it names none."""
    named = _CHOICE.findall(answer)
    if not named:
        return None
    return str(named[-1])


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The records of a file."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [json.loads(line) for line in content.decode().splitlines()]


def temperatures(data: Path) -> list[dict[str, Any]]:
    """Answers of one model at each temperature, and whether they are those of most others."""
    rows = read_rows(data / "renze_temperature" / "data.jsonl.gz")
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        choice = choice_of(row["output"])
        if row["model"] != RATED and row["temperature"] == 0 and choice is not None:
            votes[row["prompt_id"]][choice] += 1
    rated = []
    for row in rows:
        if row["model"] == RATED and votes[row["prompt_id"]]:
            [(most, _)] = votes[row["prompt_id"]].most_common(1)
            kept = {name: row[name] for name in ("prompt", "output")}
            agrees = choice_of(row["output"]) == most
            rated.append({"model": f"T {row['temperature']:g}", **kept, "quality": int(agrees)})
    return rated


def videos(data: Path) -> list[dict[str, Any]]:
    """Clips that people rated, with their frames."""
    folder = data / "t2v_fetv"
    rated = []
    for row in read_rows(folder / "metadata.jsonl"):
        if row.get("human_static_quality") is not None:
            frames = [Path(folder / name) for name in row["frames"]]
            kept = {name: row[name] for name in ("model", "prompt")}
            rated.append({**kept, "frames": frames, "quality": row["human_static_quality"]})
    return rated


FRONTS = {
    "temperatures": (temperatures, "Temperatures of gpt-35-turbo, agreement with other models"),
    "videos": (videos, "Text-to-video models, human quality of a clip (1 to 5)"),
}


def among_good(result: dp.Evaluation) -> float:
    """Conditional-Vendi with masses in proportion to the quality."""
    samples = result.samples
    assert samples is not None and samples.quality is not None
    weights = samples.quality / samples.quality.sum()
    given = {"settings": result.settings, "weights": weights}
    return float(dp.conditional_vendi(samples.outputs, samples.prompts, **given))


def table_of(compared: dp.Comparison) -> Table:
    """A row for each model, from the highest quality to the lowest."""
    columns = (
        Column("model", "model"),
        Column("quality", "quality", ".2f"),
        Column("conditional", "conditional", ".2f"),
        Column("front", "front"),
        Column("product", "quality x conditional", ".2f"),
        Column("among_good", "conditional, masses by quality", ".2f"),
    )
    rows = []
    for point in dp.pareto(compared).points:
        result = compared.results[point.model]
        product = float(result.quality_conditional_vendi)
        values = (point.quality, point.diversity, point.standing, product, among_good(result))
        rows.append((point.model, *values))
    return Table(columns, tuple(rows))


def main() -> None:
    """Print the front of each set, and draw it if a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--plot", type=Path, help="folder for the plots")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        raise SystemExit(f"{arguments.data} is absent; it is not part of this repository.")
    for name, (read, title) in FRONTS.items():
        rows = read(arguments.data)
        compared = dp.compare(rows, by="quality", quality="quality", num_permutations=0)
        front = dp.pareto(compared)
        print(f"## {title}\n\n{len(rows):,} outputs\n\n{table_of(compared).to_markdown()}")
        best = next(iter(compared.results))
        for difference in compared.differences:
            if difference.first == best and difference.clear:
                ends = f"{difference.low:.2f} to {difference.high:.2f}"
                print(
                    f"quality of {best} over {difference.second}: {difference.ratio:.2f} ({ends})"
                )
        print()
        if arguments.plot is not None:
            figure, _ = front.plot()
            (arguments.plot / f"{name}.png").write_bytes(image_bytes(figure, "png"))


if __name__ == "__main__":
    main()
