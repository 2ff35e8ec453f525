"""Plots show the numbers they are given, fit their figure, and treat names as plain text."""

import json
import math
import os
import re
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from report_cases import HOSTILE, four_detailed_prompts, four_prompts

import divprism as dp
from divprism.core.spectrum import Spectrum
from divprism.report import report_page
from divprism.report.details import _points, detailed, details
from divprism.report.plots import curve_families, draw_factors, draw_spectra, new_axes
from divprism.report.style import FAMILY_COLORS, INK, family_color
from divprism.report.svg import inline_svg
from divprism.report.texts import distinct_names, fitted, visible
from divprism.scores.spec import SCORES


@pytest.fixture(scope="module")
def result() -> dp.Evaluation:
    return four_prompts()


@pytest.fixture(scope="module")
def document() -> dict:
    return four_detailed_prompts()


def test_lengths_of_the_bar_multiply(result):
    _, ax = result.plot()
    conditional, information = ax.patches[:2]
    assert conditional.get_x() == 1
    end = conditional.get_x() + conditional.get_width()
    assert math.isclose(end, float(result.conditional_vendi))
    end = information.get_x() + information.get_width()
    assert math.isclose(end, float(result.vendi))


def test_families_have_distinct_colours_and_a_new_one_that_of_the_text():
    assert set(FAMILY_COLORS) <= {spec.family for spec in SCORES}
    assert len({*FAMILY_COLORS.values(), INK}) == len(FAMILY_COLORS) + 1
    assert family_color("a family of another score") == INK


def test_a_spectrum_is_drawn_by_rank():
    """The second eigenvalue has multiplicity two, so the curve reaches rank three."""
    _, ax = new_axes()
    draw_spectra(ax, {"x": ([0.5, 0.25], [1, 2])})
    line = ax.lines[0]
    assert line.get_xdata().tolist() == [1, 3]
    assert line.get_ydata().tolist() == [0.5, 0.25]


def test_ranks_of_a_quadrature_rise_from_one():
    """Fractional, zero and negative multiplicities never make a curve run backwards."""
    _, ax = new_axes()
    draw_spectra(ax, {"x": ([0.5, 0.4, 0.3, 0.2, 0.1], [0.4, 2, -1.5, 0, 4]), "t": ([1.0], [1.0])})
    ranks = ax.lines[0].get_xdata()
    assert ranks.min() == ax.get_xlim()[0] == 1
    assert np.all(np.diff(ranks) > 0)
    assert ax.get_xlim()[1] > ranks.max()


def test_details_of_a_quadrature_have_no_negative_weights():
    """Four hundred nodes, every third of which has a negative weight."""
    weights = np.where(np.arange(400) % 3 == 2, -0.5, 1.0)
    points = _points(Spectrum(np.geomspace(1, 1e-6, 400), weights, "by hand"))
    assert min(points["weights"]) > 0
    assert np.all(np.diff(points["values"]) < 0)
    assert math.isclose(sum(points["weights"]), weights.cumsum().max())


def test_a_long_spectrum_is_thinned_and_keeps_its_ranks():
    result = dp.evaluate(np.random.default_rng(0).standard_normal((400, 5)))
    points = details(result)["spectra"]["x"]
    assert len(points["values"]) <= 150
    assert math.isclose(sum(points["weights"]), result.spectra["x"].weights.sum())
    assert points["values"][0] == result.spectra["x"].values[0]
    assert points["values"][-1] == result.spectra["x"].values[-1]


@pytest.mark.parametrize(
    "ends",
    [
        (1, 3e5),
        (1e-18, 1),
        (1, 90),
        (4, 13),
        (2.1, 10.4),
        (5.1, 9.9),
        (5.1, 5.9),
        (0.998, 1.001),
        (2, 2.0000001),
    ],
)
def test_a_log_axis_always_has_a_few_numbers(ends):
    from matplotlib.figure import Figure

    ax = Figure(layout="constrained").subplots()
    ax.plot([1, 2], ends)
    draw_spectra(ax, {"x": (ends[::-1], [1, 1])})
    ax.set_ylim(*ends)
    low, high = ends[0] * (1 - 1e-9), ends[1] * (1 + 1e-9)
    numbers = [tick for tick in ax.yaxis.get_majorticklocs() if low <= tick <= high]
    assert 2 <= len(numbers) <= 8


def test_ticks_are_labelled_with_plain_numbers():
    _, ax = new_axes()
    draw_spectra(ax, {"x": ([0.5, 0.25, 0.1, 0.06], [1, 1, 1000, 20_000])})
    labels = [ax.yaxis.get_major_formatter()(tick) for tick in (0.05, 0.25, 20_000)]
    assert labels == ["0.05", "0.25", "20,000"]


@pytest.mark.parametrize("start", ["meta-llama/" * 9, "W" * 80, "", "日本" * 40, "a\nb" * 30])
def test_names_and_numbers_stay_inside_the_figure_and_apart(result, start):
    from matplotlib.figure import Figure

    documents = {f"{start}{end}": result.to_dict() for end in ("8b", "9b", "")}
    figure = Figure(figsize=(5, 3), layout="constrained")
    ax = figure.subplots()
    draw_factors(ax, documents)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.draw_without_rendering()
    edges = figure.bbox
    names, numbers = ax.texts[::2], ax.texts[1::2]
    for text in ax.texts:
        box = text.get_window_extent()
        assert edges.x0 <= box.x0 and box.x1 <= edges.x1
        assert edges.y0 <= box.y0 and box.y1 <= edges.y1
    for name, number in zip(names, numbers, strict=True):
        assert name.get_window_extent().x1 < number.get_window_extent().x0
    assert len({name.get_text() for name in names}) == 3


def test_long_names_that_differ_in_their_middle_stay_apart():
    names = [f"{'a' * 50}{index}{'b' * 50}" for index in range(12)]
    short = distinct_names([*names, "", " ", "same", "same"], 20)
    assert len(set(short)) == 16
    assert all(len(name) <= 24 for name in short)
    assert short[12:] == ["(no name)", "(no name) (2)", "same", "same (2)"]


def test_a_number_that_is_taken_is_passed_over():
    names = ["same", "same (2)", "same"]
    assert distinct_names(names, 20) == ["same", "same (2)", "same (3)"]


@pytest.mark.parametrize("wrong", [3, "axes", [1, 2]])
def test_a_value_that_is_not_axes_is_refused_in_one_sentence(result, wrong):
    for draw in (result.plot, result.vendi.plot):
        with pytest.raises(dp.ArgumentError, match=r"`ax` must be matplotlib Axes; got (int|str)"):
            draw(wrong)


def test_axes_in_a_subfigure_can_be_drawn_on(result):
    from matplotlib.figure import Figure

    part = Figure(layout="constrained").subfigures(1, 2)[0]
    ax = part.subplots()
    assert result.plot(ax) == (part, ax)


def test_the_title_of_a_score_fits_its_figure(pairs):
    from matplotlib import pyplot

    figure, ax = dp.conditional_vendi(*pairs, truncation=20).plot()
    figure.draw_without_rendering()
    title = ax.title.get_window_extent()
    assert figure.bbox.x0 <= title.x0 and title.x1 <= figure.bbox.x1
    pyplot.close(figure)


def test_a_score_keeps_the_spectra_that_it_was_computed_from(result):
    assert set(result.conditional_vendi.spectra) == {"joint", "t"}
    assert {"x", "t", "joint"} <= set(result.spectra)
    prompts = result.spectra["t"]
    assert np.allclose(np.repeat(prompts.values, prompts.weights.astype(int)), 0.25)
    assert dp.rke(np.eye(4), kernel=dp.Cosine()).spectra == {}


def test_plots_are_drawn_on_the_axes_given(pairs):
    from matplotlib.figure import Figure

    x, t = pairs
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0)}
    for result in (dp.vendi(x), dp.rke(x), dp.evaluate(x), dp.evaluate(x, t, **kernels)):
        ax = Figure().subplots()
        assert result.plot(ax) == (ax.figure, ax)
    panels = Figure().subplots(1, 3)
    figure, axes = dp.converge(x, t, **kernels, num_repeats=2).plot(panels)
    assert figure is panels[0].figure
    assert axes.tolist() == panels.tolist()
    with pytest.raises(dp.ArgumentError, match="`axes` must be 2 matplotlib Axes; got 3"):
        dp.bandwidth_sweep(x, t, bandwidths_x=[1.0, 2.0], bandwidths_t=[1.0]).plot(panels)


def test_new_figures_belong_to_pyplot(pairs):
    from matplotlib import pyplot

    sweep = dp.bandwidth_sweep(*pairs, bandwidths_x=[1.0, 2.0], bandwidths_t=[1.0, 3.0])
    figure, axes = sweep.plot()
    assert pyplot.fignum_exists(figure.number)
    assert axes.shape == (2,)
    # A line for each score, in the order of the table, and the line at the bandwidth chosen.
    labels = [line.get_label() for line in axes[0].lines[:-1]]
    assert labels == list(sweep.x.scores)
    assert labels[:3] == ["vendi", "conditional_vendi", "information_vendi"]
    assert axes[0].lines[0].get_ydata().tolist() == sweep.x.scores["vendi"].tolist()
    pyplot.close(figure)


def test_convergence_curves_have_bands_of_their_deviations(pairs):
    from matplotlib.figure import Figure

    curves = dp.converge(pairs[0], kernel_x=dp.Gaussian(2.0), num_repeats=2)
    ax = Figure().subplots()
    curves.plot(ax)
    assert ax.get_xlabel() == "number of outputs"
    assert curve_families(curves.means) == ["vendi"]
    [line] = [line for line in ax.lines if line.get_label() == "order 1"]
    assert line.get_ydata().tolist() == curves.means["vendi"].tolist()
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    highest = curves.means["vendi"] + curves.deviations["vendi"]
    assert math.isclose(heights.max(), highest.max())


def test_drawing_leaves_the_settings_of_matplotlib_alone(result):
    import matplotlib

    before = dict(matplotlib.rcParams)
    report_page(detailed(result))
    assert dict(matplotlib.rcParams) == before


def test_the_same_chart_has_the_same_bytes(result):
    """So a page can be compared with an older one, and `charts.py` draws each chart once."""
    documents = {"one": result.to_dict()}
    first, second = (
        inline_svg(lambda axes: draw_factors(axes[0], documents), 1, 2.0, "label", "key")
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    "name",
    [
        HOSTILE,
        "-->",
        "$\\frac{",
        "a & b",
        "日本",
        "x" * 200,
        "]]>",
        "\n",
        "font: 'x",
        "#333333 #dddddd",
        "\\1\\g<0>",
        "\x1b[31m",
    ],
)
def test_names_in_plots_are_text(result, name):
    [svg] = inline_svg(
        lambda axes: draw_factors(axes[0], {name: result.to_dict()}), 1, 2.0, name, "key"
    )
    assert "<img" not in svg
    assert "<script" not in svg
    assert svg.startswith("<svg ")
    parsed = ElementTree.fromstring(svg)
    texts = [text for text in parsed.itertext() if text.strip()]
    spellings = {name, fitted(name, 30), visible(name), "(no name)"}
    assert spellings & set(texts) or any("..." in text for text in texts)
    assert parsed.get("aria-label") is not None


def test_plots_of_a_page_share_no_ids(document):
    page = report_page(document)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for name in re.findall(r'(?:url\(#|href="#)([^")]+)', page):
        assert name in ids


def test_settings_of_the_user_change_neither_a_plot_nor_themselves(result):
    matplotlib = pytest.importorskip("matplotlib")
    backend = matplotlib.get_backend()
    changed = {"text.usetex": True, "font.size": 40.0, "figure.dpi": 7.0}
    with matplotlib.rc_context(changed):
        figure, ax = result.plot()
        assert not any(text.get_usetex() for text in ax.texts + ax.get_xticklabels())
        assert figure.dpi == matplotlib.rcParamsDefault["figure.dpi"]
        assert all(matplotlib.rcParams[name] == value for name, value in changed.items())
    assert matplotlib.get_backend() == backend


@pytest.mark.parametrize("backend", ["module://a.module.that.is.not.installed", "nonsense"])
def test_a_page_needs_no_backend_and_no_matplotlibrc(backend, tmp_path, document):
    """Jupyter sets MPLBACKEND for the programs that it starts; a new interpreter reads both."""
    (tmp_path / "result.json").write_text(json.dumps(document))
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nbackend: qtagg\n")
    package = os.path.abspath(os.path.dirname(os.path.dirname(dp.__file__)))
    changed = {"MPLBACKEND": backend, "PYTHONPATH": package}
    done = subprocess.run(
        [sys.executable, "-m", "divprism", "report", "result.json", "-o", "page.html"],
        cwd=tmp_path, env=os.environ | changed, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "page.html").read_text()
