"""What values do real models reach? The table of docs/explanation/good-values.md.

    python experiments/good_values.py --data DATA          # prints it
    python experiments/good_values.py --data DATA --write  # and writes it into the page

Default settings and embedders. Of more than five models of a data set, five are shown, from the
lowest to the highest Conditional-Vendi. The data sets are not part of this repository.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pages import run_experiment

import divprism as dp
from divprism.report.table import Column, Table

MAX_MODELS = 5

# Title of a table, what the embedder sees, and how the data are read.
DATA_SETS = {
    "noveltybench_curated/dev.jsonl.gz": ("LLMs: open questions", "answers, by wordllama", {}),
    "renze_temperature": (
        "LLMs: multiple choice at a temperature",
        "answers, by wordllama",
        {"model": "model,temperature"},
    ),
    "hanna_stories": ("LLMs: stories", "stories, by wordllama", {}),
    "coco_captioners": ("Captioners", "captions, by wordllama", {}),
    "t2i_vague_objects": ("Text-to-image", "images, by EfficientNet-Lite0", {}),
    "t2v_fetv": ("Text-to-video", "videos of four frames, by EfficientNet-Lite0", {}),
    "real_fruits": ("Photos of fruit, four varieties of each", "photos, by EfficientNet-Lite0", {}),
    "real_clothing": ("Photos of clothes, ten classes", "photos, by EfficientNet-Lite0", {}),
}


def spread_out(results: dp.Results) -> list[str]:
    """Names of at most five models, from the lowest to the highest Conditional-Vendi."""
    ranked = sorted(results, key=lambda model: float(results[model].conditional_vendi))
    if len(ranked) <= MAX_MODELS:
        return ranked
    places = np.linspace(0, len(ranked) - 1, MAX_MODELS).round().astype(int)
    return [ranked[place] for place in places]


def outputs_per_prompt(result: dp.Evaluation) -> str:
    """How many distinct outputs a prompt has, of how many; empty where prompts do not repeat."""
    if "per_prompt_vendi" not in result.scores:
        return ""
    outputs = result.data["n"] / result.data["prompts"]
    return f"{float(result.scores['per_prompt_vendi']):.2f} of {outputs:.1f}"


def table_of(results: dp.Results) -> Table:
    """A row for each of the models shown."""
    rows = []
    for model in spread_out(results):
        result = results[model]
        rows.append(
            (
                str(model),
                result.data["n"],
                float(result.vendi),
                float(result.conditional_vendi),
                float(result.information_vendi),
                float(result.scores["prompt_vendi"]),
                outputs_per_prompt(result),
            )
        )
    columns = (
        Column("model", "model"),
        Column("n", "n", ",d"),
        Column("vendi", "vendi", ".1f"),
        Column("conditional_vendi", "conditional", ".2f"),
        Column("information_vendi", "information", ".2f"),
        Column("prompt_vendi", "kinds of prompt", ".1f"),
        Column("per_prompt_vendi", "per exact prompt"),
    )
    return Table(columns, tuple(rows))


def sections(data: Path) -> Iterator[str]:
    """A table for each data set."""
    for name, (title, seen, arguments) in DATA_SETS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dp.Notice)  # unequal numbers of outputs, refusals
            results = dp.evaluate_models(data / name, interval=None, **arguments)
        shown = f"{len(results)} models" if len(results) > 1 else "one set"
        table = table_of(results).to_markdown()
        folder = name.partition("/")[0]
        yield f"## {title}\n\n`{folder}`: {seen}; {shown}.\n\n{table}"


def main() -> None:
    """Print the tables, and write them into the page with --write."""
    run_experiment(
        __doc__,
        script="experiments/good_values.py",
        page="docs/explanation/good-values.md",
        data_sets=[name.partition("/")[0] for name in DATA_SETS],
        sections=sections,
    )


if __name__ == "__main__":
    main()
