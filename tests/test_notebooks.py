"""In notebooks: bars above a table, progress, and the notebook of the demo in a real kernel."""

import math
import re

import nbclient
import nbformat
import numpy as np
import pytest
from command_line import run

import divprism as dp
from divprism.engines.shown_progress import ShownProgress, as_progress


def _widths(html):
    """Percent of the line that each part of each bar takes."""
    return [float(width) for width in re.findall(r"width: ([\d.]+)%", html)]


def test_bars_are_as_long_as_the_logarithms_of_their_factors():
    # Four prompts with six outputs of their own each: 24 = 4 x 6.
    prompts = np.repeat(np.arange(4), 6)
    result = dp.evaluate(np.eye(24), prompts, kernel_x=dp.Cosine())
    conditional, information = _widths(result._repr_html_())
    assert information / conditional == pytest.approx(math.log(4) / math.log(6), rel=1e-3)
    assert "vendi 24 = 6 x 4" in result._repr_html_()


def test_bars_of_several_models_have_one_scale():
    prompts = np.repeat(np.arange(4), 6)
    outputs = {"free": np.eye(24), "fixed": np.eye(24)[prompts]}
    comparison = dp.compare(
        {name: dp.Samples(x, prompts) for name, x in outputs.items()}, kernel_x=dp.Cosine()
    )
    free, fixed = np.reshape(_widths(comparison._repr_html_()), (2, 2)).sum(axis=1)
    assert fixed / free == pytest.approx(math.log(4) / math.log(24), rel=1e-3)


def test_names_in_bars_are_escaped():
    samples = dp.Samples(np.eye(4), [0, 0, 1, 1], models=("<b>x</b>",) * 2 + ("y",) * 2)
    html = dp.evaluate_models(samples, kernel_x=dp.Cosine(), interval=None)._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html


def test_results_without_prompts_have_no_bars():
    assert _widths(dp.evaluate(np.eye(4))._repr_html_()) == []


def test_progress_is_a_switch_or_a_function(capsys):
    assert as_progress(None) is None
    assert as_progress(False) is None
    assert as_progress(print) is print
    show = as_progress(True)
    assert isinstance(show, ShownProgress)
    for fraction in (0, 0.5, 0, 1):
        show("a step", fraction)
    # stderr is a file here: each step once, and nothing on stdout.
    assert capsys.readouterr() == ("", "a step\n")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook of the demo, after a kernel has run it."""
    folder = tmp_path_factory.mktemp("notebook")
    assert run("demo", "--notebook", "demo.ipynb", cwd=folder).returncode == 0
    notebook = nbformat.read(folder / "demo.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": folder}}
    ).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_of_the_demo_runs_and_shows_bars(executed):
    scored = executed[1].outputs[-1]
    assert scored.output_type == "execute_result"
    assert len(_widths(scored.data["text/html"])) == 6  # two factors of three models
    assert "poet" in scored.data["text/plain"]


def test_a_notebook_shows_progress_as_one_bar(executed):
    bar, text = executed[-1].outputs
    assert bar.output_type == "display_data"
    assert '<progress max="1" value="1.000"' in bar.data["text/html"]
    assert text.output_type == "stream"


def test_a_table_in_a_notebook_is_shown_once(executed):
    for cell in executed[1:4]:
        assert [output.output_type for output in cell.outputs] == ["execute_result"]
