"""A notebook that shows the demo, and runs."""

import json
from collections.abc import Iterator
from pathlib import Path

from divprism.data.files import write_text

__all__ = ["write_demo_notebook"]

# Text of each cell in turn, and the code below it.
_CELLS = (
    (
        "# Whose diversity is it?\n"
        "\n"
        "Three generators answer the same six prompts, six times each. This notebook finds out "
        "which of them varies, and which one only has varied prompts.",
        "import divprism as dp\n\nsamples = dp.demo_samples()\nsamples",
    ),
    (
        "## Score them\n"
        "\n"
        "Vendi counts distinct answers. It is the product of two factors: `information`, which the "
        "prompts bring, and `conditional`, the model's own diversity for each kind of prompt.\n"
        "\n"
        "For data of your own, pass a DataFrame or a file instead: "
        "`dp.evaluate_models(df, prompt='question', output='answer', model='llm')`.",
        "results = dp.evaluate_models(samples, interval=0.95)\nresults",
    ),
    (
        "## Is the difference clear?\n\nModels are compared on the same prompts.",
        "dp.compare(samples)",
    ),
    (
        "## For which prompts does the clerk repeat itself?",
        "clerk = samples.by_model()['clerk']\n"
        "dp.prompt_groups(clerk, grouping=dp.ExactPromptGrouping())",
    ),
    (
        "## Are these answers enough?",
        "poet = samples.by_model()['poet']\n"
        "convergence = dp.converge(poet, progress=True)\n"
        "print(convergence.verdicts['conditional_vendi'].sentence)",
    ),
)


def write_demo_notebook(path: Path) -> None:
    """Write the notebook, which needs the extra `text` and, to run, Jupyter."""
    document = {
        "cells": list(_cells()),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def _cells() -> Iterator[dict[str, object]]:
    for index, (text, code) in enumerate(_CELLS):
        yield {"cell_type": "markdown", "id": f"text-{index}", "metadata": {}, "source": text}
        yield {
            "cell_type": "code",
            "execution_count": None,
            "id": f"code-{index}",
            "metadata": {},
            "outputs": [],
            "source": code,
        }
