"""Sentences about a result say what its numbers say, and no more."""

import copy
import html
import math

import numpy as np
import pytest
from report_cases import KERNELS, alike, four_detailed_prompts, four_prompts

import divprism as dp
from divprism.report import report_page
from divprism.report.details import detailed, details
from divprism.report.tables import comparison_table
from divprism.report.texts import visible
from divprism.report.words import (
    comparison_sentences,
    convergence_sentence,
    groups_sentences,
    headline,
)

pytestmark = pytest.mark.usefixtures("charts_once")


@pytest.fixture(scope="module")
def result() -> dp.Evaluation:
    return four_prompts()


@pytest.fixture(scope="module")
def document() -> dict:
    return four_detailed_prompts()


def _baseline(result, **values) -> dict:
    """Return the document of a result with a baseline of 1.5 and these values."""
    baseline = {"baseline": 1.5, "p_value": 0.2, "standard_deviation": None, **values}
    return result.to_dict() | {"baseline": baseline}


def test_the_headline_is_the_result_in_words(result):
    text = " ".join(headline(result.to_dict()))
    assert "24 outputs for 4 distinct prompts amount to" in text
    assert f"{float(result.vendi):.3g} distinct outputs" in text
    assert f"contributes {float(result.conditional_vendi):.3g} per kind of prompt" in text
    assert f"prompts contribute a factor of {float(result.information_vendi):.3g}" in text
    interval = result.intervals["vendi"]
    assert f"95\N{NO-BREAK SPACE}% interval {interval.low:.3g} to {interval.high:.3g}" in text


def test_without_prompts_the_headline_is_about_vendi_alone():
    lines = headline(dp.evaluate(np.eye(7), kernel_x=dp.Cosine()).to_dict())
    assert lines == ["7 outputs amount to 7 distinct outputs (Vendi)."]


def test_one_output_is_in_the_singular():
    single = dp.evaluate(np.eye(3)[:1], ["a"], **KERNELS).to_dict()
    expected = "1 output for 1 distinct prompt amounts to 1 distinct output (Vendi)."
    assert headline(single)[0] == expected
    assert "1 pair, 1 distinct prompt;" in report_page(single)


@pytest.mark.parametrize(
    ("follow", "finding"), [(True, "Outputs follow their prompts"), (False, "ignore their prompts")]
)
def test_the_baseline_is_judged_by_its_p_value(follow, finding):
    t = np.repeat(np.arange(8), 4)
    kinds = t
    if not follow:
        kinds = np.random.default_rng(0).permutation(t)
    document = dp.evaluate(np.eye(8)[kinds], t, **KERNELS, num_permutations=19).to_dict()
    assert any(finding in line for line in headline(document))


def test_the_least_diverse_group_is_named(document):
    expected = "repeats itself most for the prompt “3”: 1 distinct of 6 outputs"
    assert any(expected in visible(line) for line in headline(document))


def test_a_group_of_several_prompts_is_not_called_by_one(document):
    changed = copy.deepcopy(document)
    changed["details"]["least_diverse_prompts"] = None
    first = changed["details"]["groups"]["groups"][0]
    first["num_prompts"] = 3
    lines = [visible(line) for line in headline(changed)]
    where = "The model repeats itself most for prompts like “3” (3 prompts)"
    assert f"{where}: 1 distinct of 6 outputs." in lines
    changed["details"]["groups"]["equal_size"] = 4
    lines = [visible(line) for line in headline(changed)]
    assert f"{where}: 1 distinct of 4 random outputs of these 6." in lines


def test_no_group_stands_out_within_the_error(document):
    changed = copy.deepcopy(document)
    changed["details"]["least_diverse_prompts"] = None
    first, second = changed["details"]["groups"]["groups"][:2]
    first.update(rarefied=3.0, rarefied_error=0.2)
    second.update(rarefied=3.3, rarefied_error=0.2)
    assert not any("repeats itself most" in line for line in headline(changed))
    second.update(rarefied=3.8)
    assert any("repeats itself most" in line for line in headline(changed))


def _repeats_itself_most(num_constant: int, num_outputs: int = 5) -> list[str]:
    """Return the sentence about ten prompts; the first outputs of each are all the same."""
    t = np.repeat(np.arange(10.0), num_outputs)
    x = np.eye(t.size)
    for prompt in range(num_constant):
        rows = np.flatnonzero(t == prompt)
        x[rows] = x[rows[0]]
    # Prompts that are close together share a group of the kernel.
    kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Gaussian(3.0)}
    result = dp.evaluate(x, t[:, None] ** 1.5, **kernels)
    document = detailed(result, num_groups=3, num_repeats=2)
    lines = [visible(line) for line in headline(document)]
    return [line for line in lines if "repeats itself most" in line]


@pytest.mark.parametrize(
    ("num_constant", "where"),
    [
        (1, "the prompt “row 0”: 1 distinct of 5 outputs."),
        (3, "the prompts “row 0”, “row 5” and “row 10”: 1 distinct of 5 outputs each."),
        (4, "the prompts “row 0”, “row 5”, “row 10” and 1 more: 1 distinct of 5 outputs each."),
    ],
)
def test_the_exact_prompts_of_the_lowest_score_are_named_with_all_ties(num_constant, where):
    """A group of several prompts has a higher score than the worst of them."""
    assert _repeats_itself_most(num_constant) == [f"The model repeats itself most for {where}"]


def test_two_outputs_of_a_prompt_are_too_few_to_name_it():
    assert not any("the prompt " in line for line in _repeats_itself_most(1, num_outputs=2))


def test_exact_prompts_are_compared_at_equal_size(document):
    changed = copy.deepcopy(document)
    changed["details"]["least_diverse_prompts"].update(num_outputs=4, is_sampled=True)
    lines = [visible(line) for line in headline(changed)]
    assert "for the prompt “3”: 1 distinct of 4 random outputs." in " ".join(lines)


def test_where_nothing_repeats_no_group_stands_out():
    document = alike(np.eye(24), np.repeat(np.arange(4), 6))
    assert not any("repeats itself most" in line for line in headline(document))


def test_groups_that_are_too_small_are_counted(document):
    groups = copy.deepcopy(document["details"]["groups"])
    order, total, grouping, kinds = groups_sentences(groups)
    assert grouping.startswith("Grouped by exact prompt, by default: ")
    assert kinds == "Conditional-Vendi is per kind of prompt: 4 kinds among 4 prompts."
    assert order == "The least diverse groups come first: there the model repeats itself."
    mean = f"The mean of the groups is {groups['aggregate']:.4g}, equal to Conditional-Vendi"
    assert total.startswith(mean)
    groups["gap"] = math.log(1.25)
    assert "1.25 times Conditional-Vendi" in groups_sentences(groups)[1]
    groups["num_small"] = 1
    last = "Last: 1 group with fewer than 3 outputs, too few to judge."
    assert groups_sentences(groups)[0].endswith(last)
    groups["num_small"] = len(groups["groups"])
    expected = "All groups have fewer than 3 outputs, too few to judge their diversity."
    assert groups_sentences(groups)[0] == expected


_UNDECIDED = "cannot be distinguished from outputs that ignore their prompts"


@pytest.mark.parametrize(
    ("p_value", "count", "spread", "finding"),
    [
        (0.05, 19, None, "Outputs follow their prompts"),
        (0.5, 19, 0.1, _UNDECIDED),
        (1 / 6, 5, 0.05, "Outputs follow their prompts"),
        (1 / 6, 5, 0.9, _UNDECIDED),
        (1 / 6, 5, None, "5 random pairings cannot show whether outputs follow their prompts"),
        (1 / 2, 1, None, "1 random pairing cannot show whether outputs follow their prompts"),
    ],
)
def test_few_pairings_are_judged_by_their_spread(result, p_value, count, spread, finding):
    """Five pairings that are all exceeded give p = 1/6 by count alone, which decides nothing."""
    values = {"p_value": p_value, "num_permutations": count, "standard_deviation": spread}
    lines = headline(_baseline(result, excess_information=0.8, **values))
    assert any(finding in line for line in lines)


def test_too_few_pairings_come_with_a_way_out_in_neutral_words(result):
    lines = headline(_baseline(result, excess_information=0.8, num_permutations=5))
    [line] = [line for line in lines if "cannot show" in line]
    assert line.endswith("compare with at least 19 random pairings.")
    assert not any("--" in line for line in lines)


def test_the_chance_of_few_pairings_is_that_of_students_t(result):
    """Four pairings with a spread of one, exceeded by 2.353 sqrt(1 + 1/4).

    That is the 95 % point of Student's t with three degrees of freedom.
    """
    excess = 2.353363 * math.sqrt(1.25)
    values = {"num_permutations": 4, "standard_deviation": 1.0}
    lines = headline(_baseline(result, excess_information=excess, **values))
    assert any("p = 0.05, Student's t of 4 random pairings" in line for line in lines)


def test_students_t_counts_the_pairings_whose_spectra_are_known(result):
    values = {"num_permutations": 9, "num_spectra": 4, "standard_deviation": 1.0}
    lines = headline(_baseline(result, excess_information=2.0, **values))
    assert any("Student's t of 4 random pairings" in line for line in lines)


def test_where_random_pairings_show_more_nothing_is_left_for_the_prompts(result):
    values = {"p_value": 0.9, "num_permutations": 19, "standard_deviation": 0.1}
    document = _baseline(result, excess_information=-0.02, **values)
    text = " ".join(headline(document))
    expected = "show a factor of 1.5, the bias of a small sample; nothing is left for the prompts."
    assert expected in text
    assert "xcess information" not in report_page(document)


def test_the_spread_of_pairings_is_kept():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((2, 20, 3))
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1.0)}
    one = dp.shuffled_baseline(x, t, **kernels, num_permutations=1)
    two = dp.shuffled_baseline(x, t, **kernels, num_permutations=2)
    assert one.standard_deviation is None
    # Of two values the deviation is their distance over the root of two, and the first of them is
    # the single pairing above.
    expected = math.sqrt(2) * abs(math.log(one.baseline / two.baseline))
    assert math.isclose(two.standard_deviation, expected, rel_tol=1e-6)


def test_a_model_that_ignores_its_prompts_gets_no_credit_for_them():
    """One output for each prompt, at random: Information is far above 1, and all of it is bias."""
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((2, 60, 4))
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1.0)}
    document = dp.evaluate(x, t, **kernels, num_permutations=19).to_dict()
    information, baseline = document["scores"]["information_vendi"]["value"], document["baseline"]
    assert information > 5
    text = " ".join(headline(document))
    assert "the prompts contribute" not in text
    assert f"also show a factor of {baseline['baseline']:.3g}," in text
    left = math.exp(baseline["excess_information"])
    assert f"a factor of {left:.3g} is left for the prompts." in text
    assert math.isclose(left * baseline["baseline"], information)


def test_convergence_of_the_whole_sample_is_its_summary(document):
    curves = document["details"]["convergence"]
    assert curves["n"] == curves["drawn_from"] == 24
    assert convergence_sentence(curves) == curves["summary"]
    page = html.unescape(report_page(document))
    # Below the curves: beside an interval it would read as a doubt about it.
    assert page.index(curves["summary"]) > page.index("Scores against the size of the sample")
    assert curves["summary"] not in headline(document)


def test_of_a_random_subset_only_what_suffices_is_reported():
    statuses = {"vendi": "converged", "rke": "no limit", "conditional_vendi": "unclear"}
    verdicts = {name: {"status": status} for name, status in statuses.items()}
    document = {"verdicts": verdicts, "n": 10, "drawn_from": 30, "summary": "never used"}
    expected = "A random subset of 10 of the 30 outputs suffices for vendi."
    assert convergence_sentence(document) == expected
    verdicts["vendi"]["status"] = "unclear"
    expected = (
        "A random subset of 10 of the 30 outputs leaves open for which scores all of them suffice."
    )
    assert convergence_sentence(document) == expected


def test_convergence_of_many_pairs_is_computed_on_whole_prompts(one_thread):
    """Sixty prompts with five outputs each: the subset consists of whole prompts."""
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((60, 3)), 5, axis=0)
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0)}
    result = dp.evaluate(rng.standard_normal((300, 3)), t, **kernels)
    curves = details(result, max_pairs=153)["convergence"]
    assert (curves["n"], curves["drawn_from"], curves["sizes"][-1]) == (150, 300, 30)
    assert convergence_sentence(curves).startswith("A random subset of 150 of the 300 outputs")
    assert details(result, max_pairs=40)["convergence"]["n"] == 40


def test_two_models_are_compared_in_the_dual():
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(20), 5)
    samples = {}
    for name, scale in (("wide", 1), ("narrow", 0.01)):
        samples[name] = dp.Samples(rng.standard_normal((100, 4)) * scale, t)
    lines = comparison_sentences(dp.compare(samples, kernel_x=dp.Gaussian(2.0)).to_dict())
    expected = "ranked by Conditional-Vendi; on the same prompts the two models differ clearly"
    assert lines[0] == expected
    assert visible(lines[1]).startswith("wide scores ")


def test_clear_differences_are_counted():
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(20), 5)
    samples = {}
    for name in ("wide +- 1", "wide 2", "narrow"):
        scale = 0.01 if name == "narrow" else 1
        samples[name] = dp.Samples(rng.standard_normal((100, 4)) * scale, t)
    comparison = dp.compare(samples, kernel_x=dp.Gaussian(2.0))
    page = dp.html_report(comparison, num_repeats=2)
    num_clear = sum(difference.clear for difference in comparison.differences)
    assert 0 < num_clear < 3
    assert page.count(">yes</td>") == num_clear
    assert f"{num_clear} of 3 pairs of models differ clearly" in page
    assert "A rank of 1-2 means any place from 1 to 2" in page
    assert "built-in" not in page
    assert "wide +- 1" in page


def test_the_column_at_equal_size_is_explained_on_the_page():
    uneven = report_page(alike(np.eye(27), np.repeat(np.arange(3), [6, 9, 12])))
    assert "Vendi of 6: mean over random draws of 6 outputs" in uneven
    even = report_page(alike(np.eye(24), np.repeat(np.arange(4), 6)))
    assert "vendi of 6" not in even.lower()


def test_the_column_of_words_is_explained_in_the_table_and_on_the_page():
    prompts = [f"prompt {row // 3}" for row in range(18)]
    models = {}
    for name in ("first", "second"):
        texts = [f"{name} answer number {row}" for row in range(18)]
        models[name] = dp.Samples(texts, prompts)
    document = dp.compare(models).to_dict()
    note = "words: mean number of words of an output"
    assert note in comparison_table(document).notes
    assert note[1:] in report_page(document)
    assert note not in comparison_table(document | {"lengths": {}}).notes
