"""`divprism demo`: three small generators whose diversity can be checked by reading them."""

from pathlib import Path

from divprism.analysis.comparison import compare
from divprism.cli.job import flag
from divprism.cli.messages import echo
from divprism.report import demo as texts
from divprism.report.table import stdout_width


def demo(
    save: Path | None = flag("Output", None, "Also write the texts to this folder."),
    report: Path = flag("Output", Path("report.html"), "HTML page to write."),
) -> None:
    """Score three small text generators, explain the numbers, and write an HTML page."""
    samples = texts.demo_samples()
    saved = save and texts.save_demo_texts(save)
    width = stdout_width() or 100
    echo("\n".join(texts.wrapped(texts.demo_introduction(samples), width)))
    comparison = compare(samples)  # every setting at its default, as `divprism score` has them
    explanation = texts.demo_explanation(comparison, list(samples.by_model()))
    echo("\n".join(texts.wrapped(explanation, width)))
    echo(f"\n{texts.write_demo_page(comparison, report).replace('`report`', '--report')}")
    if saved is not None:
        echo(f"\nThe texts are in {save}. Score them as you would your own data:")
        echo(f"divprism score {saved}")
