"""`divprism demo`: three small generators whose diversity can be checked by reading them."""

from pathlib import Path

from divprism.analysis.comparison import compare
from divprism.cli.job import flag
from divprism.cli.messages import echo
from divprism.data.examples import demo_samples
from divprism.report import demo as texts
from divprism.report.demo_notebook import write_demo_notebook


def demo(
    save: Path | None = flag("Output", None, "Also write the texts to this folder."),
    report: Path = flag("Output", Path("report.html"), "HTML page to write."),
    notebook: Path | None = flag("Output", None, "Also write a Jupyter notebook that shows it."),
) -> None:
    """Score three small text generators, explain the numbers, and write an HTML page."""
    samples = demo_samples()
    saved = save and texts.save_demo_texts(save)
    echo(texts.demo_introduction(samples))
    comparison = compare(samples)  # every setting at its default, as `divprism score` has them
    echo(texts.demo_explanation(comparison, list(samples.by_model())))
    echo(f"\n{texts.write_demo_page(comparison, report).replace('`report`', '--report')}")
    if notebook is not None:
        write_demo_notebook(notebook)
        echo(f"The notebook is {notebook}.")
    if saved is not None:
        echo(f"\nThe texts are in {save}. Score them as you would your own data:")
        echo(f"divprism score {saved}")
