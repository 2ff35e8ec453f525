"""`divprism demo`: three small generators whose diversity can be checked by reading them."""

import textwrap
from importlib import resources
from pathlib import Path

from divprism.analysis.comparison import Comparison, compare
from divprism.cli.job import flag
from divprism.cli.messages import echo
from divprism.data.files import read_file, write_text
from divprism.data.readers import load
from divprism.errors import MissingExtraError
from divprism.report import MARK, report_page
from divprism.report.details import detailed
from divprism.report.table import stdout_width

_FOLLOWING = 1.1  # Information-Vendi above which answers follow their prompts
_VARIED = 3.0  # Conditional-Vendi above which answers vary: half of the answers to a prompt
_LARGEST_PAGE = 64 << 20  # bytes; the page of the demo has far fewer
_SHOWN = ("vendi", "conditional_vendi", "information_vendi")


def demo(
    save: Path | None = flag("Output", None, "Also write the texts to this folder."),
    report: Path = flag("Output", Path("report.html"), "HTML page to write."),
) -> None:
    """Score three small text generators, explain the numbers, and write an HTML page."""
    file = resources.files("divprism") / "data" / "demo" / "generators.jsonl"
    with resources.as_file(file) as path:
        samples = load(path)
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        write_text(save / "generators.jsonl", file.read_text(encoding="utf-8"))
    models = samples.by_model()
    _print("Three generators, the same six prompts, six answers each. Two answers to one prompt:\n")
    for name, part in models.items():
        first, second = (output.content(0) for output in part.outputs[:2])
        _print(f"{name:>8}: {first}\n{'':>10}{second}")
    comparison = compare(samples)  # every setting at its default, as `divprism score` has them
    first = comparison.results.first
    embedders = dict.fromkeys(entry["id"] for entry in first.embedders)
    kinds = f"the six prompts count as {first.scores['prompt_vendi']:.1f} kinds"
    _print(f"\nEmbedded by {', '.join(embedders)}; all settings are defaults; {kinds}.\n")
    _print(f"{'':>6} {'vendi':>7} = {'conditional':>11} x {'information':>11}")
    for name in models:  # in the order of the file, not of the ranking
        vendi, own, factor = (comparison.results[name].scores[score] for score in _SHOWN)
        habits = f"{('ignores', 'follows')[factor > _FOLLOWING]} its prompts, "
        habits += ("repeats itself", "varies")[own > _VARIED]
        _print(f"{name:>6} {vendi:>7.2f} = {own:>11.2f} x {factor:>11.2f}  {habits}")
    _print("\nconditional: distinct answers per kind of prompt, the model's own diversity.")
    _print("information: the factor that prompts add.")
    _print(f"follows: information above {_FOLLOWING}; varies: conditional above {_VARIED:g}.")
    echo(f"\n{_write_page(comparison, report)}")
    if save is not None:
        echo(f"\nThe texts are in {save}. Score them as you would your own data:")
        echo(f"divprism score {save}/generators.jsonl")


def _print(text: str) -> None:
    for line in text.split("\n"):
        indent = " " * 10 * line.startswith(" ")  # below the first letter of an answer
        echo(textwrap.fill(line, stdout_width() or 100, subsequent_indent=indent))


def _write_page(comparison: Comparison, path: Path) -> str:
    """Write the page unless that would replace another file, and return where it is."""
    if path.is_file():
        page = read_file(path, _LARGEST_PAGE)
        if MARK.encode() not in page or b"divprism demo" not in page:
            return f"{path} is not a page of the demo, so it is kept; choose another --report."
    document = detailed(comparison)
    first = next(iter(document["models"].values()))
    first["runtime"] = first["runtime"] | {"command": "divprism demo"}
    try:
        write_text(path, report_page(document))
    except MissingExtraError as error:
        return f"No page for a browser: {error}"
    return f"For plots and all answers, open {path} in a browser."
