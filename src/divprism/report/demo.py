"""The demo in words: three small generators whose diversity can be checked by reading them."""

import textwrap
from pathlib import Path

from divprism.analysis.comparison import Comparison
from divprism.data.examples import DEMO_TEXTS
from divprism.data.files import read_file, write_text
from divprism.data.samples import Samples
from divprism.errors import MissingExtraError
from divprism.report.details import detailed
from divprism.report.page import MARK, report_page
from divprism.report.table import stdout_width

__all__ = [
    "demo_explanation",
    "demo_introduction",
    "save_demo_texts",
    "write_demo_page",
]

_FOLLOWING = 1.1  # Information-Vendi above which answers follow their prompts
_VARIED = 3.0  # Conditional-Vendi above which answers vary: half of the answers to a prompt
_WIDTH_OF_FILES = 100  # columns
_LARGEST_PAGE = 64 << 20  # bytes; the page of the demo has far fewer
_SHOWN = ("vendi", "conditional_vendi", "information_vendi")


def save_demo_texts(folder: Path) -> Path:
    """Write the texts of the demo to a folder, and return their file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / DEMO_TEXTS.name, DEMO_TEXTS.read_text(encoding="utf-8"))
    return folder / DEMO_TEXTS.name


def demo_introduction(samples: Samples) -> str:
    """Return what the generators are, with two answers of each."""
    lines = ["Three generators, the same six prompts, six answers each. Two answers to one prompt:"]
    lines.append("")
    for name, part in samples.by_model().items():
        first, second = (output.content(0) for output in part.outputs[:2])
        lines += [f"{name:>8}: {first}", f"{'':>10}{second}"]
    return _wrapped(lines)


def demo_explanation(comparison: Comparison, models: list[str]) -> str:
    """Return the scores of some models, in this order, and what they mean."""
    first = comparison.results.first
    embedders = dict.fromkeys(entry["id"] for entry in first.embedders)
    kinds = f"the six prompts count as {first.scores['prompt_vendi']:.1f} kinds"
    lines = ["", f"Embedded by {', '.join(embedders)}; all settings are defaults; {kinds}.", ""]
    lines.append(f"{'':>6} {'vendi':>7} = {'conditional':>11} x {'information':>11}")
    for name in models:
        vendi, own, factor = (comparison.results[name].scores[score] for score in _SHOWN)
        habits = f"{('ignores', 'follows')[factor > _FOLLOWING]} its prompts, "
        habits += ("repeats itself", "varies")[own > _VARIED]
        lines.append(f"{name:>6} {vendi:>7.2f} = {own:>11.2f} x {factor:>11.2f}  {habits}")
    lines += ["", "conditional: distinct answers per kind of prompt, the model's own diversity."]
    lines.append("information: the factor that prompts add.")
    lines.append(f"follows: information above {_FOLLOWING}; varies: conditional above {_VARIED:g}.")
    return _wrapped(lines)


def _wrapped(lines: list[str]) -> str:
    """Return a text of the demo, no line of which is wider than the terminal."""
    width = stdout_width() or _WIDTH_OF_FILES
    filled = []
    for line in lines:
        indent = " " * 10 * line.startswith(" ")  # below the first letter of an answer
        filled.append(textwrap.fill(line, width, subsequent_indent=indent))
    return "\n".join(filled)


def write_demo_page(comparison: Comparison, path: Path) -> str:
    """Write the page unless that would replace another file, and return where it is."""
    if path.is_file():
        page = read_file(path, _LARGEST_PAGE)
        if MARK.encode() not in page or b"divprism demo" not in page:
            return f"{path} is not a page of the demo, so it is kept; choose another `report`."
    document = detailed(comparison)
    first = next(iter(document["models"].values()))
    first["runtime"] = first["runtime"] | {"command": "divprism demo"}
    try:
        write_text(path, report_page(document))
    except MissingExtraError as error:
        return f"No page for a browser: {error}"
    return f"For plots and all answers, open {path} in a browser."
