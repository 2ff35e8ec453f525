"""The report: what it says is what the result says, strangers' texts stay texts, plots are drawn from plain values."""

import base64
import copy
import html
import io
import json
import math
import re
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import command_line
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_files import image_bytes, write

import divprism as dp
from divprism.core.spectrum import Spectrum
from divprism.data.samples import Image, Text, Video
from divprism.report import report_page
from divprism.report.details import _add_thumbnails, _points, detailed, details
from divprism.report.plots import draw_factors, draw_spectra, inline_svg, new_axes
from divprism.report.texts import distinct_names, fitted, visible
from divprism.report.thumbnails import is_thumbnail, thumbnail
from divprism.report.words import comparison_sentences, convergence_sentence, headline

HOSTILE = '<img src=x onerror="window.hacked=1">'
KERNELS = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}


@pytest.fixture(scope="module")
def result() -> dp.Evaluation:
    """Four prompts with six outputs each; under the last all are the same."""
    t = np.repeat(np.arange(4), 6)
    x = np.eye(24)
    x[18:] = x[18]
    return dp.evaluate(x, t, **KERNELS, interval=0.95)


@pytest.fixture(scope="module")
def document(result) -> dict:
    return detailed(result, num_repeats=2)


def run(*arguments):
    done = command_line.run(*arguments)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


# what is drawn


def test_lengths_of_the_bar_multiply(result):
    _, ax = result.plot()
    conditional, information = ax.patches[:2]
    assert conditional.get_x() == 1
    assert math.isclose(
        conditional.get_x() + conditional.get_width(), float(result.conditional_vendi)
    )
    assert math.isclose(information.get_x() + information.get_width(), float(result.vendi))


def test_a_spectrum_is_drawn_by_rank():
    """Three equal eigenvalues, one of which stands for two."""
    _, ax = new_axes()
    draw_spectra(ax, {"x": ([0.5, 0.25], [1, 2])})
    line = ax.lines[0]
    assert line.get_xdata().tolist() == [1, 3]
    assert line.get_ydata().tolist() == [0.5, 0.25]


def test_ranks_of_a_quadrature_rise_from_one():
    """Parts of eigenvalues, none, and fewer than none: nothing of it makes a curve run backwards."""
    _, ax = new_axes()
    draw_spectra(ax, {"x": ([0.5, 0.4, 0.3, 0.2, 0.1], [0.4, 2, -1.5, 0, 4]), "t": ([1.0], [1.0])})
    ranks = ax.lines[0].get_xdata()
    assert ranks.min() == ax.get_xlim()[0] == 1
    assert np.all(np.diff(ranks) > 0)
    assert ax.get_xlim()[1] > ranks.max()


def test_details_of_a_quadrature_have_no_negative_weights():
    """Four hundred nodes, every third of which takes something away."""
    weights = np.where(np.arange(400) % 3 == 2, -0.5, 1.0)
    points = _points(Spectrum(np.geomspace(1, 1e-6, 400), weights, "by hand"))
    assert min(points["weights"]) > 0
    assert np.all(np.diff(points["values"]) < 0)
    assert math.isclose(sum(points["weights"]), weights.cumsum().max())


@pytest.mark.parametrize(
    "ends", [(1, 3e5), (1e-18, 1), (1, 90), (4, 13), (5.1, 5.9), (0.998, 1.001), (2, 2.0000001)]
)
def test_a_log_axis_has_a_few_numbers_always(ends):
    from matplotlib.figure import Figure

    ax = Figure(layout="constrained").subplots()
    ax.plot([1, 2], ends)
    draw_spectra(ax, {"x": (ends[::-1], [1, 1])})
    ax.set_ylim(*ends)
    low, high = ends
    numbers = [
        tick
        for tick in ax.yaxis.get_majorticklocs()
        if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)
    ]
    assert 2 <= len(numbers) <= 8


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
        assert (
            edges.x0 <= box.x0 and box.x1 <= edges.x1 and edges.y0 <= box.y0 and box.y1 <= edges.y1
        )
    for name, number in zip(names, numbers, strict=True):
        assert name.get_window_extent().x1 < number.get_window_extent().x0
    assert len({name.get_text() for name in names}) == 3


def test_long_names_that_differ_in_their_middle_stay_apart():
    names = [f"{'a' * 50}{place}{'b' * 50}" for place in range(12)]
    short = distinct_names([*names, "", " ", "same", "same"], 20)
    assert len(set(short)) == 16
    assert all(len(name) <= 24 for name in short)
    assert short[12:] == ["(no name)", "(no name) (2)", "same", "same (2)"]


@pytest.mark.parametrize("wrong", [3, "axes", [1, 2]])
def test_what_is_no_axes_is_refused_in_one_sentence(result, wrong):
    for draw in (result.plot, result.vendi.plot):
        with pytest.raises(dp.ArgumentError, match=r"`ax` must be matplotlib Axes; got (int|str)"):
            draw(wrong)


def test_the_title_of_a_score_fits_its_figure(pairs):
    figure, ax = dp.conditional_vendi(*pairs, truncation=20).plot()
    figure.draw_without_rendering()
    title = ax.title.get_window_extent()
    assert figure.bbox.x0 <= title.x0 and title.x1 <= figure.bbox.x1
    from matplotlib import pyplot

    pyplot.close(figure)


def test_a_score_keeps_the_spectra_that_it_was_made_from(result):
    assert set(result.conditional_vendi.spectra) == {"joint", "t"}
    assert set(result.spectra) == {"x", "t", "joint"}
    prompts = result.spectra["t"]
    assert np.allclose(np.repeat(prompts.values, prompts.weights.astype(int)), 0.25)
    assert dp.rke(np.eye(4), kernel=dp.Cosine()).spectra == {}


def test_whatever_is_drawn_goes_on_the_axes_that_were_given(pairs):
    from matplotlib.figure import Figure

    x, t = pairs
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0)}
    for one in (dp.vendi(x), dp.rke(x), dp.evaluate(x), dp.evaluate(x, t, **kernels)):
        ax = Figure().subplots()
        assert one.plot(ax) == (ax.figure, ax)
    panels = Figure().subplots(1, 3)
    figure, axes = dp.converge(x, t, **kernels, num_repeats=2).plot(panels)
    assert figure is panels[0].figure
    assert axes.tolist() == panels.tolist()
    with pytest.raises(dp.ArgumentError, match="`axes` must be 2 matplotlib Axes; got 3"):
        dp.bandwidth_sweep(x, t, bandwidths_x=[1.0, 2.0], bandwidths_t=[1.0]).plot(panels)


def test_new_figures_are_those_of_pyplot(pairs):
    from matplotlib import pyplot

    sweep = dp.bandwidth_sweep(*pairs, bandwidths_x=[1.0, 2.0], bandwidths_t=[1.0, 3.0])
    figure, axes = sweep.plot()
    assert pyplot.fignum_exists(figure.number)
    assert axes.shape == (2,)
    assert [line.get_label() for line in axes[0].lines[:4]] == [
        "vendi",
        "conditional_vendi",
        "information_vendi",
        "prompts",
    ]
    assert axes[0].lines[0].get_ydata().tolist() == sweep.x.scores["vendi"].tolist()
    pyplot.close(figure)


def test_drawing_changes_no_settings_of_others(result):
    import matplotlib

    before = dict(matplotlib.rcParams)
    report_page(detailed(result))
    assert dict(matplotlib.rcParams) == before


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
    assert {name, fitted(name, 30), visible(name), "(no name)"} & set(texts) or any(
        "..." in text for text in texts
    )
    assert parsed.get("aria-label") is not None


def test_plots_of_a_page_share_no_ids(document):
    page = report_page(document)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for name in re.findall(r'(?:url\(#|href="#)([^")]+)', page):
        assert name in ids


# what is said


def test_the_headline_is_the_result_in_words(result):
    text = " ".join(headline(result.to_dict()))
    assert "24 outputs to 4 different prompts amount to" in text
    assert f"{float(result.vendi):.3g} distinct" in text
    assert f"brings {float(result.conditional_vendi):.3g} per kind of prompt" in text
    interval = result.intervals["vendi"]
    assert f"95\N{NO-BREAK SPACE}% interval {interval.low:.3g} to {interval.high:.3g}" in text


def test_without_prompts_only_vendi_is_told():
    lines = headline(dp.evaluate(np.eye(7), kernel_x=dp.Cosine()).to_dict())
    assert lines == ["7 outputs amount to 7 distinct ones (Vendi)."]


@pytest.mark.parametrize(
    ("follow", "told"), [(True, "Outputs follow their prompts"), (False, "ignore their prompts")]
)
def test_the_baseline_is_told_by_its_p_value(follow, told):
    t = np.repeat(np.arange(8), 4)
    x = np.eye(8)[t if follow else np.random.default_rng(0).permutation(t)]
    document = dp.evaluate(x, t, **KERNELS, num_permutations=19).to_dict()
    assert any(told in line for line in headline(document))


def test_the_least_diverse_group_is_named(document):
    assert any(
        "repeats itself most under “3”: 1 distinct among 6 outputs" in visible(line)
        for line in headline(document)
    )


def test_a_group_of_several_prompts_is_not_called_by_one(document):
    changed = copy.deepcopy(document)
    first = changed["details"]["groups"]["groups"][0]
    first["num_prompts"] = 3
    told = [visible(line) for line in headline(changed)]
    assert (
        "The model repeats itself most under prompts like “3” (3 prompts, 6 outputs): 1 distinct among 6 outputs."
        in told
    )
    changed["details"]["groups"]["equal_size"] = 4
    told = [visible(line) for line in headline(changed)]
    assert any(
        "(3 prompts, 6 outputs): 1 distinct among 4 drawn from them." in line for line in told
    )


def test_no_group_is_blamed_within_the_error(document):
    changed = copy.deepcopy(document)
    first, second = changed["details"]["groups"]["groups"][:2]
    first.update(rarefied=3.0, rarefied_error=0.2)
    second.update(rarefied=3.3, rarefied_error=0.2)
    assert not any("repeats itself most" in line for line in headline(changed))
    second.update(rarefied=3.8)
    assert any("repeats itself most" in line for line in headline(changed))


def test_where_nothing_repeats_no_group_is_blamed():
    alike = detailed(dp.evaluate(np.eye(24), np.repeat(np.arange(4), 6), **KERNELS), num_repeats=2)
    assert not any("repeats itself most" in line for line in headline(alike))


@pytest.mark.parametrize(
    ("p_value", "count", "spread", "told"),
    [
        (0.05, 19, None, "Outputs follow their prompts"),
        (0.5, 19, 0.1, "cannot be told from outputs that ignore their prompts"),
        (1 / 6, 5, 0.05, "Outputs follow their prompts"),
        (1 / 6, 5, 0.9, "cannot be told from outputs that ignore their prompts"),
        (1 / 6, 5, None, "cannot be told from 5 random pairings"),
        (1 / 2, 1, None, "cannot be told from 1 random pairing:"),
    ],
)
def test_few_pairings_are_judged_by_their_spread(result, p_value, count, spread, told):
    """Five pairings that are all exceeded are p = 1/6 by count alone, which says nothing."""
    baseline = {
        "excess_information": 0.8,
        "baseline": 1.5,
        "p_value": p_value,
        "num_permutations": count,
    }
    lines = headline(result.to_dict() | {"baseline": baseline | {"standard_deviation": spread}})
    assert any(told in line for line in lines)
    assert not any("all 5" in line for line in lines)


def test_of_few_pairings_the_chance_is_that_of_students_t(result):
    """Four pairings with a spread of one, exceeded by 2.353 sqrt(1 + 1/4): the 95 % point of t with three degrees."""
    excess = 2.353363 * math.sqrt(1.25)
    baseline = {
        "excess_information": excess,
        "baseline": 1.5,
        "p_value": 0.2,
        "num_permutations": 4,
        "standard_deviation": 1.0,
    }
    assert any(
        "p = 0.05, Student's t of 4 random pairings" in line
        for line in headline(result.to_dict() | {"baseline": baseline})
    )


def test_where_random_pairings_show_more_nothing_is_left_for_the_prompts(result):
    baseline = {
        "excess_information": -0.02,
        "baseline": 1.8,
        "p_value": 0.9,
        "num_permutations": 19,
        "standard_deviation": 0.1,
    }
    document = result.to_dict() | {"baseline": baseline}
    assert (
        "show a factor of 1.8 too, the bias of a small sample; nothing is left for the prompts."
        in " ".join(headline(document))
    )
    assert "xcess information" not in report_page(document)


def test_the_spread_of_pairings_is_kept():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((2, 20, 3))
    one, two = (
        dp.shuffled_baseline(
            x, t, kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(1.0), num_permutations=n
        )
        for n in (1, 2)
    )
    assert one.standard_deviation is None
    # of two values the deviation is their distance over the root of two, and the first of them is the one pairing
    assert math.isclose(
        two.standard_deviation,
        math.sqrt(2) * abs(math.log(one.baseline / two.baseline)),
        rel_tol=1e-6,
    )


def test_a_model_that_ignores_its_prompts_is_not_credited_with_them():
    """One output to each prompt, at random: Information is far above 1, and all of it is bias."""
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((2, 60, 4))
    document = dp.evaluate(
        x, t, kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(1.0), num_permutations=19
    ).to_dict()
    information, baseline = document["scores"]["information_vendi"]["value"], document["baseline"]
    assert information > 5
    text = " ".join(headline(document))
    assert "the prompts bring" not in text
    assert f"a factor of {baseline['baseline']:.3g} too" in text
    assert (
        f"left for the prompts is a factor of {math.exp(baseline['excess_information']):.3g}."
        in text
    )
    assert math.isclose(
        math.exp(baseline["excess_information"]) * baseline["baseline"], information
    )


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (["converged", "converged"], "suffices for every score"),
        (["no limit", "approaching"], "The sample is too small for every score."),
        (["unclear", "unclear"], "The sample leaves open whether it suffices for a, b."),
        (["converged", "approaching"], "The sample suffices for a; it is too small for b."),
        (
            ["converged", "unclear"],
            "The sample suffices for a; it leaves open whether it suffices for b.",
        ),
    ],
)
def test_convergence_in_one_sentence(states, told):
    verdicts = {name: {"status": state} for name, state in zip("ab", states, strict=True)}
    assert told in convergence_sentence({"verdicts": verdicts})


def test_the_page_holds_every_score_setting_and_group(document):
    page = report_page(document)
    for score in document["scores"].values():
        assert f"<strong>{score['value']:.4g}</strong>" in page
    assert page.count('class="gallery"') == 4
    assert document["data"]["hash"] in page
    assert "kernel x" in page
    assert "--config FILE" in page


def test_a_result_without_details_says_how_to_get_them(result):
    assert "divprism score IN --details" in report_page(result.to_dict())
    assert "--details" not in report_page(detailed(result))


def test_parts_may_come_apart(result, document):
    parts = document["details"]
    page = report_page(parts["convergence"], result.to_dict(), parts["groups"])
    assert page.count('class="gallery"') == 4
    assert "Scores against the number of samples" in page
    with pytest.raises(dp.DataError, match=r"one result with scores.*got 0"):
        report_page(parts["groups"])
    with pytest.raises(dp.DataError, match=r"one result with scores.*got 2"):
        report_page(result.to_dict(), result.to_dict())
    other = dp.converge(np.eye(30), kernel_x=dp.Cosine(), num_repeats=2).to_dict()
    with pytest.raises(dp.DataError, match="of 24 outputs, and what goes with them is of 30"):
        report_page(result.to_dict(), other)
    with pytest.raises(dp.DataError, match="neither scores, nor groups"):
        report_page(result.to_dict(), {"x": None})


def test_several_models_are_compared(result):
    page = report_page(detailed({"one": result, "two": result}, num_groups=2))
    assert ">2 models</h1>" in page
    assert page.count('class="cards"') == 2
    with pytest.raises(dp.ArgumentError, match="`labels` belong to one model"):
        detailed({"one": result, "two": result}, labels=[0] * 24)


def test_models_that_were_scored_apart_are_not_called_a_comparison(result):
    alike = report_page({"schema": 1, "models": {"one": result.to_dict(), "two": result.to_dict()}})
    assert "All models</h2>" in alike
    assert "Comparison" not in alike
    assert "do not compare" not in alike
    fewer = dp.evaluate(np.eye(7), np.arange(7), **KERNELS).to_dict()
    page = report_page({"schema": 1, "models": {"one": result.to_dict(), "two": fewer}})
    assert "Models have from 7 to 24 outputs, so their scores do not compare" in page
    assert "divprism compare" in page


def test_letters_that_nobody_sees_are_nowhere_on_a_page(result):
    """Turned writing and controls, in every place of a document that a stranger fills."""
    odd = "a\u202eb\x1b[31m"
    one = result.to_dict()
    one["data"] = one["data"] | {"source": odd, "model": odd}
    one["warnings"] = [odd]
    one["runtime"] = one["runtime"] | {"command": odd}
    for document in (
        one,
        {"schema": 1, "models": {odd: one, odd.replace("\x1b", ""): one, "": one, "  ": one}},
    ):
        page = report_page(document)
        assert not re.search("[\u200e\u200f\u202a-\u202e\u2066-\u2069\x1b]", page)
        assert "ab[31m" in page
    for name in ("ab[31m (2)", "(no name)", "(no name) (2)"):
        assert f">{name}</h2>" in page


def test_very_long_names_do_not_fill_the_page(result):
    one = result.to_dict()
    one["data"] = one["data"] | {"source": "s" * 5000, "model": "m" * 5000}
    assert not re.search("s{200}|m{200}", re.sub(r"<dd.*?</dd>", "", report_page(one)))
    page = report_page({"schema": 1, "models": {"x" * 5000: one, "x" * 5001: one}})
    assert not re.search("x{100}", page)


def test_texts_of_strangers_keep_their_direction_to_themselves(document):
    changed = copy.deepcopy(document)
    changed["details"]["groups"]["groups"][0]["prompts"][0] = {"row": 18, "text": "\u05d0\u05d1 3?"}
    page = report_page(changed)
    assert "under “<bdi>\u05d0\u05d1 3?</bdi>”" in page
    assert '<div class="said" dir="auto">\u05d0\u05d1 3?</div>' in page
    assert '<h1 dir="auto">' in page


def test_what_was_off_is_off_in_the_settings_to_reproduce():
    page = report_page(dp.evaluate(np.eye(4), kernel_x=dp.Cosine(), interval=None).to_dict())
    settings = json.loads(html.unescape(re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[-1]))
    assert settings["interval"] == 0


def test_one_is_told_as_one():
    lone = dp.evaluate(np.eye(3)[:1], ["a"], **KERNELS).to_dict()
    assert headline(lone)[0] == "1 output to 1 different prompt amounts to 1 distinct one (Vendi)."
    assert "1 pair, 1 distinct prompt;" in report_page(lone)


def test_two_models_are_told_as_two():
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(20), 5)
    samples = {
        name: dp.Samples(rng.standard_normal((100, 4)) * wide, t)
        for name, wide in (("wide", 1), ("narrow", 0.01))
    }
    told = comparison_sentences(dp.compare(samples, kernel_x=dp.Gaussian(2.0)).to_dict())
    assert (
        told[0] == "ranked by conditional_vendi; on the same prompts the two models differ clearly"
    )


def test_a_draw_that_tells_nothing_says_so():
    told = convergence_sentence(
        {"verdicts": {"a": {"status": "unclear"}}, "n": 10, "drawn_from": 30}
    )
    assert (
        told == "A draw of 10 of the 30 outputs does not tell for which scores all of them suffice."
    )


def test_the_column_at_equal_size_is_explained_where_it_stands():
    t = np.repeat(np.arange(3), [6, 9, 12])
    uneven = report_page(detailed(dp.evaluate(np.eye(27), t, **KERNELS), num_repeats=2))
    assert "Vendi of 6: mean over random draws of 6 outputs" in uneven
    even = report_page(
        detailed(dp.evaluate(np.eye(24), np.repeat(np.arange(4), 6), **KERNELS), num_repeats=2)
    )
    assert "vendi of 6" not in even.lower()


def test_what_the_data_do_not_allow_is_told(result):
    found = details(result)
    assert found["sweep"] is None
    assert "Gaussian bandwidths" in found["absent"]["sweep"]
    assert "No sweep: a sweep is over Gaussian bandwidths" in report_page(
        result.to_dict() | {"details": found}
    )
    bare = dp.Evaluation(**{**vars(result), "samples": None})
    with pytest.raises(dp.ArgumentError, match="does not hold what it scored"):
        details(bare)


def test_a_long_spectrum_is_thinned_and_keeps_its_ranks():
    result = dp.evaluate(np.random.default_rng(0).standard_normal((400, 5)))
    points = details(result)["spectra"]["x"]
    assert len(points["values"]) <= 150
    assert math.isclose(sum(points["weights"]), result.spectra["x"].weights.sum())
    assert points["values"][0] == result.spectra["x"].values[0]
    assert points["values"][-1] == result.spectra["x"].values[-1]


def test_the_sweep_marks_the_bandwidths_that_were_used(pairs):
    result = dp.evaluate(*pairs, kernel_x=dp.Gaussian(1.7), kernel_t=dp.Gaussian(0.9))
    sweep = details(result)["sweep"]
    assert (sweep["x"]["chosen"], sweep["t"]["chosen"]) == (1.7, 0.9)


def test_convergence_is_told_of_a_draw_where_there_are_many(one_thread):
    """Sixty prompts with five outputs each: whole prompts are drawn."""
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((60, 3)), 5, axis=0)
    result = dp.evaluate(
        rng.standard_normal((300, 3)), t, kernel_x=dp.Gaussian(2.0), kernel_t=dp.Gaussian(1.0)
    )
    found = details(result, max_pairs=153)["convergence"]
    assert (found["n"], found["drawn_from"], found["sizes"][-1]) == (150, 300, 30)
    assert convergence_sentence(found).startswith("A draw of 150 of the 300 outputs")
    assert details(result, max_pairs=40)["convergence"]["n"] == 40


# strangers


def _texts(hostile):
    prompts = [prompt for prompt in (hostile, "a tame prompt") for _ in range(6)]
    answers = [f"{hostile} {place}" for place in range(12)]
    return dp.evaluate(answers, prompts, embedder_x=_letters, embedder_t=_letters, cache=False)


def _letters(texts):
    return np.array(
        [[len(text), sum(map(ord, text)) % 97, text.count("a")] for text in texts], dtype=float
    )


@pytest.mark.parametrize(
    "hostile",
    [
        HOSTILE,
        "</script><script>window.hacked=1</script>",
        '" onmouseover="x',
        "{{ 7 * 7 }}{% raw %}",
        "&lt;b&gt;",
        "javascript:x",
    ],
)
def test_texts_of_strangers_are_escaped(hostile):
    page = report_page(detailed(_texts(hostile)))
    scripts = re.findall(r"<script.*?</script>", page, re.DOTALL)
    assert len(scripts) == 1
    assert "hacked" not in scripts[0]
    assert "<img" not in page
    assert ' onmouseover="x' not in page
    assert (
        html.escape(hostile, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
        in page
    )


def test_the_policy_allows_our_script_alone(document):
    import hashlib

    page = report_page(document)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert f"script-src &#39;sha256-{digest}&#39;".replace("&#39;", "'") in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"(src|href)=\"https?:", page)


def test_a_thumbnail_has_no_byte_of_the_file():
    """A picture with a comment and a place in its metadata: both are gone, and so is the size."""
    import PIL.Image

    buffer = io.BytesIO()
    exif = PIL.Image.Exif()
    exif[0x010E] = "secret"
    PIL.Image.open(io.BytesIO(image_bytes(size=(800, 400)))).save(
        buffer, "JPEG", exif=exif, comment=b"secret"
    )
    small = base64.b64decode(thumbnail(Image(buffer.getvalue(), "a.jpg")))
    assert b"secret" not in small
    assert PIL.Image.open(io.BytesIO(small)).size == (160, 80)


def test_a_clip_is_shown_by_its_middle_frame(tmp_path):
    for place in range(3):
        (tmp_path / f"{place}.png").write_bytes(image_bytes(place))
    frames = tuple(tmp_path / f"{place}.png" for place in range(3))
    assert thumbnail(Video(frames)) == thumbnail(Image(frames[1]))
    assert thumbnail(Text("a")) is None


@pytest.mark.parametrize("value", [None, 3, "", "PHN2Zz4=", '"><script>', "/9j/\n", "....", "é"])
def test_only_pictures_of_ours_are_embedded(value, document):
    assert not is_thumbnail(value)
    changed = copy.deepcopy(document)
    changed["details"]["groups"]["groups"][0]["prompts"][0]["thumbnail"] = value
    assert "data:image" not in report_page(changed)


def _places(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from _places(value, (*path, key))
    elif isinstance(node, list):
        for place, value in enumerate(node[:3]):
            yield (*path, place)
            yield from _places(value, (*path, place))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_broken_document_is_refused_in_one_sentence(document, data):
    changed = copy.deepcopy(document)
    path = data.draw(st.sampled_from(list(_places(document))))
    node = changed
    for key in path[:-1]:
        node = node[key]
    if data.draw(st.booleans()) and isinstance(node, dict):
        del node[path[-1]]
    else:
        node[path[-1]] = data.draw(
            st.sampled_from([None, [], {}, "text", -1, 1e308, HOSTILE, {"a": HOSTILE}, [HOSTILE]])
        )
    try:
        page = report_page(changed)
    except dp.DataError as error:
        assert "\n" not in str(error)
    else:
        assert "<img" not in page


def test_differences_are_clear_where_the_sentence_says_so(tmp_path):
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(20), 5)
    names = ("wide +- 1", "wide 2", "narrow")
    samples = {
        name: dp.Samples(rng.standard_normal((100, 4)) * (0.01 if name == "narrow" else 1), t)
        for name in names
    }
    found = dp.compare(samples, kernel_x=dp.Gaussian(2.0))
    page = dp.html_report(found, num_repeats=2)
    clear = sum(one.clear for one in found.differences)
    assert 0 < clear < 3
    assert page.count(">yes</td>") == clear
    assert f"of 3 pairs of models {clear} differ clearly" in page
    assert "built-in" not in page
    assert "wide +- 1" in page


def test_letters_that_nobody_sees_are_dropped():
    assert visible("a\u202eb\x1bc\u2066d\ud800") == "abcd"
    joined = "a\u200db\u200cc\n"  # emoji and Persian are written with these
    assert visible(joined) == joined


@pytest.mark.parametrize(
    "given", [[0, 0, 0, 1, 1, 1], (0, 0, 0, 1, 1, 1), ["a", "a", "a", "b", "b", "b"]]
)
def test_ids_in_any_collection_get_a_page(given):
    settings = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}
    assert "6 outputs to 2 different prompts" in dp.html_report(
        dp.evaluate(np.eye(6), given, **settings), num_repeats=2
    )


def test_a_kernel_matrix_is_drawn_from_on_both_sides(one_thread):
    result = dp.evaluate(np.eye(60), np.arange(60) % 30, kernel_x=dp.Precomputed())
    found = details(result, max_pairs=42, num_repeats=2)
    assert found["convergence"]["n"] == 42
    assert found["absent"].keys() == {"sweep"}


@pytest.mark.parametrize("wrong", [None, {}, {"scores": 1}, {"a": {}}])
def test_only_results_get_a_page(wrong):
    with pytest.raises(
        dp.ArgumentError, match="`result` must be an Evaluation, a Comparison or a dict"
    ):
        dp.html_report(wrong)


def test_weights_are_refused_rather_than_left_out():
    result = dp.evaluate(np.eye(4), weights=[0.7, 0.1, 0.1, 0.1], kernel_x=dp.Cosine())
    with pytest.raises(dp.ArgumentError, match="count alike; this evaluation has `weights`"):
        dp.html_report(result)


def test_wrong_settings_are_refused_rather_than_told_as_absent(result):
    with pytest.raises(dp.ArgumentError, match="num_groups"):
        details(result, num_groups=-3)


# files and commands


def test_pictures_come_into_the_page_small_and_with_their_names(tmp_path):
    name = "a\"'><b>.png"
    files = {f"a red square/{place}.png": image_bytes(place, (400, 300)) for place in range(7)}
    files |= {
        f"a blue circle/{place}.png": image_bytes(9 + place, (400, 300)) for place in range(7)
    }
    files[f"a red square/{name}"] = image_bytes(99)
    write(tmp_path / "images", files)
    done = run(
        "score",
        tmp_path / "images",
        "--report",
        tmp_path / "report.html",
        "--details",
        "--format",
        "json",
        "-q",
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 6
    assert "<b>" not in page
    assert max(map(len, re.findall(r"base64,([^\"]*)", page))) < 20_000
    (tmp_path / "result.json").write_text(done.stdout)
    again = run("report", tmp_path / "result.json", "-o", tmp_path / "again.html")
    assert again.returncode == 0, again.stderr
    assert f"wrote {tmp_path / 'again.html'}" in again.stderr
    assert (tmp_path / "again.html").read_text() == page


def test_thumbnails_are_shared_out(tmp_path):
    write(
        tmp_path,
        {
            f"{kind}/{place}.png": image_bytes(hash((kind, place)) % 997)
            for kind in "ab"
            for place in range(6)
        },
    )
    result = dp.evaluate(str(tmp_path))
    for most in (0, 3):
        found = details(result, max_thumbnails=most, num_groups=2)
        assert json.dumps(found).count('"thumbnail"') == most


def test_a_picture_in_two_places_is_embedded_once():
    entries = [{"row": 0}, {"row": 1}]
    group = {
        "prompts": [],
        "modes": [{"outputs": copy.deepcopy(entries)}, {"outputs": copy.deepcopy(entries)}],
    }
    document = {"groups": [group]}
    _add_thumbnails(
        document,
        dp.Samples(tuple(Image(image_bytes(place), f"{place}.png") for place in range(2))),
        2,
    )
    shown = [
        entry["row"] for mode in group["modes"] for entry in mode["outputs"] if "thumbnail" in entry
    ]
    assert sorted(shown) == [0, 1]


def test_a_comparison_can_be_kept_with_its_groups(tmp_path):
    from sample_files import jsonl, records

    source = write(tmp_path, {"two.jsonl": jsonl(records(("first", "second")) * 3)}) / "two.jsonl"
    done = run(
        "compare", source, "--details", "--format", "json", "-o", tmp_path / "kept.json", "-q"
    )
    assert done.returncode == 0, done.stderr
    assert run("report", tmp_path / "kept.json", "-o", tmp_path / "page.html").returncode == 0
    assert 'class="gallery"' in (tmp_path / "page.html").read_text()
    done = run("compare", source, "--details")
    assert done.returncode == 2
    assert "--format json" in done.stderr


def test_a_page_does_not_replace_what_it_is_made_from(tmp_path, result):
    kept = tmp_path / "result.json"
    text = json.dumps(result.to_dict())
    kept.write_text(text)
    (tmp_path / "link.json").symlink_to(kept)
    for target in (kept, tmp_path / "link.json"):
        done = run("report", kept, "-o", target)
        assert done.returncode == 2
        assert "which it is made from" in done.stderr
    assert kept.read_text() == text


def test_a_byte_order_mark_is_no_reason_to_refuse(tmp_path, result):
    (tmp_path / "result.json").write_text(json.dumps(result.to_dict()), encoding="utf-8-sig")
    assert run("report", tmp_path / "result.json", "-o", tmp_path / "page.html").returncode == 0


def test_a_comparison_gets_a_page_and_a_plot(tmp_path):
    from sample_files import jsonl, records

    source = write(tmp_path, {"two.jsonl": jsonl(records(("first", HOSTILE)) * 3)}) / "two.jsonl"
    done = run(
        "compare", source, "--report", tmp_path / "page.html", "--plot", tmp_path / "plot.svg", "-q"
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "Ranked by conditional_vendi" in page
    assert "<img" not in page
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_sweep_and_convergence_are_drawn_to_files(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((40, 3)))
    for command in ("bandwidth", "converge"):
        done = run(command, tmp_path / "x.npy", "--plot", tmp_path / f"{command}.png", "-q")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"{command}.png").read_bytes().startswith(b"\x89PNG")
    done = run("converge", tmp_path / "x.npy", "--plot", tmp_path / "plot.exe", "-q")
    assert done.returncode == 2
    assert "--plot must end in .png, .svg, .pdf" in done.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not a JSON file"),
        ("[]", "must hold a JSON object"),
        ("{}", "a report is of one result with scores"),
        ('{"scores": 3}', "this is not a result that divprism wrote"),
        ('{"schema": 2, "scores": {}}', "is of schema 2, and this version reads 1"),
        ('{"schema": 1, "models": {}}', "at least one model, and this result holds none"),
    ],
)
def test_files_that_are_no_results_are_refused(tmp_path, content, told):
    (tmp_path / "result.json").write_text(content)
    done = run("report", tmp_path / "result.json", "-o", tmp_path / "page.html")
    assert done.returncode == 4
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_weights_and_a_report_do_not_go_together(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    np.save(tmp_path / "w.npy", np.full(4, 0.25))
    done = run(
        "score",
        tmp_path / "x.npy",
        "--weights",
        tmp_path / "w.npy",
        "--report",
        tmp_path / "page.html",
    )
    assert done.returncode == 2
    assert "do not go with --weights" in done.stderr


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("jinja2", "dp.html_report(r)"),
        ("matplotlib", "r.plot()"),
        ("matplotlib", "dp.html_report(r)"),
    ],
)
def test_without_the_extra_one_sentence_says_what_to_install(missing, call):
    code = (
        f"import sys, numpy as np, divprism as dp\nsys.modules[{missing!r}] = None\n"
        "r = dp.evaluate(np.eye(4), np.arange(4) % 2, kernel_x=dp.Cosine())\n"
        f"try: {call}\nexcept dp.MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'divprism[report]'" in done.stdout


@pytest.mark.parametrize("content", ["NaN", "Infinity"])
def test_numbers_that_json_does_not_have_are_refused(tmp_path, result, content):
    text = json.dumps(result.to_dict()).replace(
        '"standard_error": 0.0', f'"standard_error": {content}', 1
    )
    (tmp_path / "result.json").write_text(text)
    done = run("report", tmp_path / "result.json", "-o", tmp_path / "page.html")
    assert done.returncode == 4
    assert "no number of JSON" in done.stderr


def test_half_a_surrogate_pair_can_be_written(result):
    report_page(result.to_dict() | {"warnings": ["\ud83d"]}).encode()


def test_details_go_into_json_only(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    done = run("score", tmp_path / "x.npy", "--details")
    assert done.returncode == 2
    assert "--format json" in done.stderr


def test_what_was_off_stays_off_by_config(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    off = run(
        "score",
        tmp_path / "x.npy",
        "--interval",
        "0",
        "--format",
        "json",
        "-o",
        tmp_path / "r.json",
        "-q",
    )
    assert off.returncode == 0, off.stderr
    again = json.loads(
        run(
            "score", tmp_path / "x.npy", "--config", tmp_path / "r.json", "--format", "json", "-q"
        ).stdout
    )
    assert again["scores"]["vendi"]["interval"] is None


def test_the_demo_keeps_a_file_that_is_not_its_own(tmp_path, result):
    page = tmp_path / "report.html"
    page.write_text(report_page(result.to_dict()))
    assert "name another page" in run("demo", "--report", page).stdout
    assert run("demo", "--report", tmp_path).returncode == 4
    page.write_text("mine")
    done = run("demo", "--report", page)
    assert done.returncode == 0
    assert page.read_text() == "mine"
    assert "name another page" in done.stdout
    page.unlink()
    for _ in range(2):
        done = run("demo", "--report", page)
        assert f"open {page} in a browser" in done.stdout
    assert "3 models" in page.read_text()
