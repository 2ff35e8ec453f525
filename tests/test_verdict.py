"""The first words of a page: which model, by how much, how sure, and what to do next."""

import copy
import html
import math
import re

import numpy as np
import pytest
from report_cases import HOSTILE, alike, four_detailed_prompts

import divprism as dp
from divprism.data.items import Text
from divprism.data.wording import plain_number
from divprism.report import report_page
from divprism.report.documents import models_of
from divprism.report.next_steps import growth_sentence
from divprism.report.pairs import Pair, ranking_of, times_needed
from divprism.report.texts import significant, visible
from divprism.report.verdict import verdict_of
from divprism.scores.spec import QUALITY, SCORES

NB = "\N{NO-BREAK SPACE}"


def worlds(*spreads, num_prompts=30, per_prompt=6):
    """Compare models whose outputs spread more or less around their prompts."""
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(num_prompts), per_prompt)
    samples = {}
    for index, spread in enumerate(spreads):
        outputs = rng.standard_normal((t.size, 3)) * spread
        samples[f"model{index}"] = dp.Samples(outputs, t)
    return samples


def compared(*spreads, **sizes):
    return dp.compare(worlds(*spreads, **sizes), kernel_x=dp.Gaussian(2.0)).to_dict()


def said(document):
    """Return the verdict about a document, without marks of direction."""
    models = models_of(document)
    verdict = verdict_of(models, ranking_of(document, models))
    parts = (verdict.answer, verdict.certainty, verdict.repetition, verdict.next_steps)
    answer, *rest = parts
    return visible(answer), *[[visible(text) for text in each] for each in rest]


def test_two_models_that_differ():
    document = compared(1.0, 0.6)
    answer, [sure], _, steps = said(document)
    first, second = (
        document["models"][name]["scores"]["conditional_vendi"]["value"]
        for name in ("model0", "model1")
    )
    more = f"{100 * (first / second - 1):.0f}{NB}%"
    noun = "distinct outputs per kind of prompt"
    assert answer == (
        f"model0 is more diverse than model1: {significant(first)} {noun} against "
        f"{significant(second)}, {more} more."
    )
    [difference] = document["differences"]
    low, high = (f"{100 * (difference[end] - 1):.0f}{NB}%" for end in ("low", "high"))
    assert sure.startswith("This is settled. On the same 30 prompts, the score of model0 is ")
    assert f"{low} to {high} higher than that of model1, with 95{NB}% confidence" in sure
    assert f"fewer than 1 of 1,000 samples (p{NB}<{NB}0.001)" in sure
    assert steps == ["The order needs no more data."]


def test_a_large_ratio_is_a_multiple():
    """More than 100 % more is hard to read."""
    answer, [sure], _, _ = said(compared(1.0, 0.3))
    assert re.search(r"against [\d.]+, 2\.\d times as many\.$", answer)
    assert re.search(r"the score of model0 is 2\.\d to 2\.\d times that of model1", sure)


@pytest.mark.parametrize(
    ("num_prompts", "units", "pattern"),
    [
        (30, 30, r"About ([\d,]+) more prompts \(with 6 outputs each\)"),
        (12, 72, r"About ([\d,]+) more outputs of each model \([\d,]+ more for each prompt\)"),
    ],
)
def test_an_order_that_is_open_comes_with_what_would_settle_it(num_prompts, units, pattern):
    """Few prompts are a design that stays; many are a sample that grows."""
    document = compared(1.0, 0.985, num_prompts=num_prompts)
    [difference] = document["differences"]
    low, high = (1.04 * math.exp(sign * 1.96 * 0.03) for sign in (-1, 1))
    difference.update(ratio=1.04, low=low, high=high, p_value=0.24, clear=False)
    difference.update(standard_error=0.03)
    answer, [sure], _, [step] = said(document)
    assert answer.startswith("The order of model")
    assert " is not settled: " in answer
    assert f"anything from 1.9{NB}% lower to 10{NB}% higher than that of" in sure
    assert f"in about 24 of 100 samples (p{NB}={NB}0.24)" in sure
    # Resampled outputs say nothing about prompts that were not asked.
    assert sure.endswith("other prompts can give another result.") == (units > num_prompts)
    needed = int(re.match(pattern, step)[1].replace(",", ""))
    # Power 0.8 at level 0.95, as in textbooks: (1.96 + 0.8416)^2 = 7.849.
    expected = units * (7.849 * (0.03 / math.log(1.04)) ** 2 - 1)
    assert needed == pytest.approx(expected, rel=0.05)  # two digits are shown
    assert f"(an estimate, if the difference stays at 4{NB}%)" in step


def test_the_sample_that_settles_grows_with_the_square_of_the_error():
    ends = math.exp(0.1 - 0.196), math.exp(0.1 + 0.196)
    pair = Pair("a", "b", math.exp(0.1), *ends, False, 0.3, 0.1)
    assert times_needed(pair, pair.ratio) == pytest.approx(7.849, abs=1e-2)
    assert times_needed(pair, math.exp(0.2)) == pytest.approx(7.849 / 4, abs=1e-2)
    assert times_needed(pair, 1.0) is None
    # Few parts behind the error widen the interval, and more data are needed.
    wide = Pair("a", "b", math.exp(0.1), math.exp(-0.2), math.exp(0.4), False, 0.3, 0.1)
    assert times_needed(wide, wide.ratio) > times_needed(pair, pair.ratio)


def test_a_tiny_difference_is_not_called_equality():
    """Beside an interval of 20 % to either side, nobody can say that models are equal."""
    document = compared(1.0, 0.985)
    [difference] = document["differences"]
    difference.update(ratio=1.001, low=0.83, high=1.21, p_value=0.99, standard_error=0.1)
    _, _, _, [step] = said(document)
    assert "a difference as small as 0.1" in step
    assert "more than 100 times as many prompts" in step
    assert f"would show a difference of 5{NB}% or more" in step
    assert "equal" not in step


def test_the_first_of_many():
    document = compared(1.0, 0.5, 0.5, 0.3)
    answer, [sure, pairs], _, _ = said(document)
    assert answer.startswith("model0 is the most diverse of 4 models: ")
    assert re.search(r"against [\d.]+ of the second, model[12], \d+", answer)
    assert sure.startswith("This is settled.")
    assert pairs == "All 6 pairs of models differ clearly: the whole order is settled."
    document["differences"][0]["clear"] = False
    _, [_, pairs], _, steps = said(document)
    first, second = (document["differences"][0][key] for key in ("first", "second"))
    assert pairs == (
        "5 of 6 pairs of models differ clearly. The order is not settled between "
        f"{first} and {second}."
    )
    assert steps != ["The order needs no more data."]


def test_a_pair_further_apart_can_be_open():
    """Nothing is called settled while a pair is open, though all neighbours differ clearly."""
    document = compared(1.0, 0.5, 0.3)
    far = max(document["differences"], key=lambda one: one["ratio"])
    far.update(clear=False, low=0.9)
    _, [_, pairs], _, steps = said(document)
    assert pairs.startswith("2 of 3 pairs of models differ clearly. The order is not settled")
    assert f"between {far['first']} and {far['second']}." in pairs
    assert steps != ["The order needs no more data."]


def test_a_tie_for_the_first_place_beyond_the_second_model_is_open():
    """The second is clearly below the leader, and a later one with a wide interval is not."""
    document = compared(1.0, 0.5, 0.3, 0.3)
    _, second, third, _ = document["ranks"]
    for pair in document["differences"]:
        if pair["second"] == third:
            pair.update(clear=False, low=0.9)
    answer, [sure, pairs], _, [step, _] = said(document)
    assert "is the most diverse is not settled: model0" in answer
    assert third in answer
    assert sure.startswith("This is open. On the same 30 prompts, the score of model0 is anything")
    assert f"that of {third}, with" in sure
    # It comes before the neighbours further down.
    assert f"not settled between model0 and {third}; {second} and {third}" in pairs
    assert f"model0 and {third} " in step


def test_models_within_one_percent_count_as_equal():
    """Thousands of prompts for a difference that nobody would notice are no advice."""
    document = compared(1.0, 0.985)
    [difference] = document["differences"]
    difference.update(ratio=1.001, low=0.996, high=1.006, p_value=0.7, clear=False)
    difference.update(standard_error=0.0025)
    _, _, _, [step] = said(document)
    assert step.endswith(
        f"differ by at most 0.6{NB}%, with 95{NB}% confidence: treat them as equal."
    )
    # The same score with a wide interval says nothing about equality.
    difference.update(ratio=1.0, low=0.83, high=1.21, standard_error=0.1)
    _, _, _, [step] = said(document)
    assert "score the same in these data. About " in step
    assert "treat them as equal" not in step


def test_a_tie_for_the_first_place():
    document = compared(1.0, 1.0, 1.0, 0.3, num_prompts=8)
    tied = [name for name, rank in document["ranks"].items() if rank[0] == 1]
    assert len(tied) > 1
    answer, [sure, _], _, _ = said(document)
    assert answer.startswith("Which of 4 models is the most diverse is not settled: ")
    assert all(name in answer for name in tied)
    # The noun belongs to the first number, so that the list reads as a sentence.
    assert answer.count("distinct outputs per kind of prompt") == 1
    assert re.search(r"\([\d.]+ distinct outputs per kind of prompt\)", answer)
    assert answer.endswith(" do not differ clearly.")
    assert "model3" not in answer
    assert sure.startswith("This is open.")


def test_too_few_outputs_for_an_order():
    answer, certainty, _, steps = said(compared(1.0, 0.3, num_prompts=2, per_prompt=3))
    assert answer.startswith("Which model is more diverse cannot be said from so few outputs: ")
    assert certainty == [
        "The sample is too small for intervals: the scores describe these outputs only."
    ]
    assert steps == []


def test_intervals_that_were_switched_off_are_no_small_sample():
    apart = _apart(worlds(1.0, 0.3), interval=None)
    document = {"schema": 2, "models": {name: one.to_dict() for name, one in apart.items()}}
    answer, certainty, _, [step] = said(document)
    assert answer.startswith("Which model is more diverse is open: model0 has ")
    assert certainty == [
        "Intervals were switched off, so whether the difference is clear is unknown."
    ]
    assert "interval=0.95 (on the command line --interval 0.95)" in step
    page = report_page(document)
    assert "so few outputs" not in page
    assert "with its interval" not in page
    third = {"schema": 2, "models": document["models"] | {"c": document["models"]["model1"]}}
    assert said(third)[0].startswith("Which of 3 models is the most diverse is open: model0 has ")
    assert "too small" not in page


def test_what_a_small_sample_lacks_is_a_sentence():
    x = np.random.default_rng(0).standard_normal((6, 3))
    document = dp.evaluate(x, np.repeat([0, 1], 3), interval=0.95, kernel_x=dp.Gaussian(1.0))
    _, _, _, [step] = said(document.to_dict())
    assert step[0].isupper()
    assert step.endswith(".")


def test_models_that_were_scored_apart():
    """Without differences by prompt the intervals are wider, and so is the doubt."""
    samples = worlds(1.0, 0.7)
    paired = dp.compare(samples, kernel_x=dp.Gaussian(2.0)).to_dict()
    apart = {name: one.to_dict() for name, one in _apart(samples).items()}
    document = {"schema": 2, "models": apart}
    answer, [sure], _, steps = said(document)
    assert answer.startswith("model0 is more diverse than model1: ")
    assert "By their separate intervals, the score of model0 is " in sure
    assert steps == ["The order needs no more data."]
    models = models_of(document)
    [one] = ranking_of(document, models).pairs
    [both] = ranking_of(paired, paired["models"]).pairs
    assert one.ratio == pytest.approx(both.ratio)


def _apart(samples, interval=0.95):
    shared = {"kernel_x": dp.Gaussian(2.0), "interval": interval}
    return {name: dp.evaluate(one, **shared) for name, one in samples.items()}


@pytest.mark.parametrize(("second", "chance"), [(2.5, 0.0), (3 - 1e-9, 1.0), (3.0, 1.0)])
def test_scores_without_error_differ_by_certainty_or_not_at_all(second, chance):
    models = {name: four_detailed_prompts() for name in "ab"}
    for name, value in (("a", 3.0), ("b", second)):
        models[name] = copy.deepcopy(models[name])
        score = models[name]["scores"]["conditional_vendi"]
        score["value"] = value
        score["interval"].update(low=value, high=value)
    [pair] = ranking_of({"schema": 2, "models": models}, models).pairs
    assert pair.p_value == chance
    assert pair.is_clear == (chance == 0)


def test_an_open_order_of_models_scored_apart_is_one_to_compare():
    apart = {name: one.to_dict() for name, one in _apart(worlds(1.0, 0.99)).items()}
    answer, _, _, steps = said({"schema": 2, "models": apart})
    assert " is not settled: " in answer
    # Data that are there come before data that would be needed.
    assert [step[:22] for step in steps] == ["Run divprism compare: "]


def test_models_with_other_numbers_of_outputs_have_no_order():
    samples = worlds(1.0, 0.7)
    samples["model1"] = samples["model1"].select(range(90))
    models = {name: one.to_dict() for name, one in _apart(samples).items()}
    answer, _, _, [step] = said({"schema": 2, "models": models})
    assert "unequal numbers of outputs (90 to 180), so there is no order" in answer
    assert step.startswith("Run divprism compare")


def test_one_model():
    document = four_detailed_prompts()
    answer, [sure, growth], [repeats], [step] = said(document)
    score = document["scores"]["conditional_vendi"]
    noun = "distinct outputs per kind of prompt"
    most = "where 6 would mean that no two outputs are alike"
    assert answer == f"The model gives {significant(score['value'])} {noun}, {most}."
    low, high = score["interval"]["low"], score["interval"]["high"]
    assert f"With 95{NB}% confidence it is {significant(low)} to {significant(high)}" in sure
    assert sure.endswith("for samples of this size (24 outputs, for the same 4 prompts).")
    assert growth.startswith("Twice as many outputs would raise it by about ")
    assert repeats == "The model repeats itself most for the prompt “3”: 1 distinct of 6 outputs."
    assert step.startswith("About 72 more outputs (18 more for each prompt) would halve the inter")


def test_one_model_without_prompts_or_intervals():
    document = dp.evaluate(np.eye(7), kernel_x=dp.Cosine()).to_dict()
    answer, [sure], repeats, steps = said(document)
    assert answer == "The model gives 7 distinct outputs among 7 outputs."
    assert "intervals were switched off" in sure
    assert repeats == steps == []


def test_growth_is_judged_beside_the_interval():
    """A change that the interval allows is no reason to doubt it, and a larger one is."""
    document = copy.deepcopy(four_detailed_prompts())
    interval = document["scores"]["vendi"]["interval"]
    interval.update(low=0.9 * document["scores"]["vendi"]["value"])
    interval.update(high=1.1 * document["scores"]["vendi"]["value"])
    verdict = document["details"]["convergence"]["verdicts"]["vendi"]
    verdict["change"] = 0.04
    expected = f"raise it by about 4{NB}%, less than the 10{NB}% to either side"
    assert expected in growth_sentence(document, "vendi")
    verdict["change"] = 0.3
    expected = f"raise it by about 30{NB}%, more than the 10{NB}% to either side"
    assert expected in growth_sentence(document, "vendi")
    # A random subset grows faster than the whole sample, of which nothing is known.
    document["details"]["convergence"]["drawn_from"] = 48
    assert growth_sentence(document, "vendi") == ""
    document["details"]["convergence"]["drawn_from"] = 24
    del verdict["change"]
    assert growth_sentence(document, "vendi") == ""


def test_models_that_ignore_their_prompts_are_named():
    rng = np.random.default_rng(0)
    t = rng.standard_normal((60, 4))
    samples = {"deaf": dp.Samples(rng.standard_normal((60, 4)), t), "apt": dp.Samples(t + 0.0, t)}
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1.0)}
    document = dp.compare(samples, **kernels, num_permutations=19).to_dict()
    _, certainty, _, _ = said(document)
    assert certainty[-1].startswith("The outputs of deaf cannot be distinguished from outputs that")
    first = max(document["models"], key=lambda name: _score(document, name))
    assert "their diversity may be no answer to the prompts." in certainty[-1]
    # Who comes first among the models that answer is what a reader asks next.
    assert ("Of the other models, apt has the highest" in certainty[-1]) == (first == "deaf")


def test_outputs_are_not_called_deaf_where_that_cannot_be_tested():
    """Ids as prompts, one output each: every pairing is as good as any other."""
    samples = {}
    for name in "ab":
        x = np.random.default_rng(ord(name)).standard_normal((60, 3))
        samples[name] = dp.Samples(x, np.arange(60))
    document = dp.compare(samples, kernel_x=dp.Gaussian(1.0), num_permutations=19).to_dict()
    baseline = document["models"]["a"]["baseline"]
    assert baseline["standard_deviation"] == pytest.approx(0, abs=1e-12)
    _, certainty, _, [step] = said(document)
    assert not any("ignore their prompts" in text for text in certainty)
    assert "the score cannot tell the models apart" in step
    assert "equal" not in step
    page = html.unescape(report_page(document))
    assert "cannot be tested: however they are paired" in page
    assert "ignore their prompts" not in page


def _score(document, name):
    return document["models"][name]["scores"]["conditional_vendi"]["value"]


def test_what_is_counted_is_said_where_the_numbers_are():
    verdict = _verdict(compared(1.0, 0.6))
    alike = "Outputs that are alike count as one output, and prompts that are alike as one kind: "
    assert verdict.counting == (
        f"{alike}30 kinds among 30 prompts. No score can exceed 6, where no two outputs are alike."
    )
    single = _verdict(four_detailed_prompts())
    assert single.counting == f"{alike}4 kinds among 4 prompts."
    alone = _verdict(compared(1.0, 0.6, per_prompt=1))
    assert "Each prompt has one output, so outputs of similar prompts are compared." in (
        alone.counting
    )
    vectors = dp.evaluate(np.eye(7), kernel_x=dp.Cosine()).to_dict()
    assert _verdict(vectors).counting == "Outputs that are alike count as one output."


def _verdict(document):
    models = models_of(document)
    return verdict_of(models, ranking_of(document, models))


def test_numbers_side_by_side_have_equal_digits():
    assert [significant(value) for value in (1.9, 1.87, 0.5, 26.0004)] == (
        ["1.90", "1.87", "0.500", "26.0"]
    )
    # Whole numbers are counts, and thousands are no powers of ten.
    assert [significant(value) for value in (1.0, 96, 1000, 1234.5, 12345)] == (
        ["1", "96", "1,000", "1,234", "12,345"]
    )


def ranked_by(score, *spreads):
    options = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Categorical()}
    return said(dp.compare(worlds(*spreads), by=score, **options).to_dict())


def test_a_factor_is_a_number_and_counts_nothing():
    answer, [sure], _, _ = ranked_by("information_vendi", 1.0, 0.6)
    assert re.search(
        rf"^model\d is higher in Information-Vendi than model\d: [\d.]+ against [\d.]+, "
        rf"(\d+{NB}% higher|[\d.]+ times as high)\.$",
        answer,
    )
    assert "as many" not in sure
    answer, *_ = ranked_by("information_vendi", 1.0, 1.0)
    ending = r"and model\d in Information-Vendi is not settled: [\d.]+ and [\d.]+\.$"
    assert re.search(ending, answer)
    answer, *_ = ranked_by("information_vendi", 1.0, 0.6, 0.2)
    assert " is the highest in Information-Vendi " in answer


@pytest.mark.parametrize("spec", SCORES, ids=lambda spec: spec.name)
def test_what_a_score_counts_follows_its_number(spec):
    if not spec.noun:
        assert spec.family == "information" or QUALITY in spec.needs
        return
    assert re.fullmatch(r"(distinct outputs|kinds of prompt)( [\w ]+)?", spec.noun)
    assert ("order 2" in spec.noun) == (spec.order == 2)


def test_scores_at_order_2_are_counted():
    answer, *_ = ranked_by("conditional_rke", 1.0, 0.5)
    noun = "distinct outputs per kind of prompt at order 2"
    assert re.search(rf": [\d.]+ {noun} against [\d.]+, ", answer)


def test_equal_models_have_sentences_of_their_own():
    """Copies of one model: no interval has a width, and no digit tells them apart."""
    t = np.repeat(np.arange(30), 3)
    samples = dp.Samples(np.eye(90), t)
    options = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}
    document = dp.compare({"a": samples, "b": samples}, **options).to_dict()
    answer, [sure], _, _ = said(document)
    assert answer == "a and b score the same: 3 distinct outputs per kind of prompt."
    assert sure == (
        f"On the same 30 prompts, the score of a is within 0.1{NB}% of that of b, with 95{NB}% "
        "confidence."
    )
    page = report_page(document)
    assert "less than 0.1" not in page


@pytest.mark.parametrize("gap", [1e-5, 2e-4, 4e-4])
def test_no_phrase_is_doubled_where_differences_are_tiny(gap):
    document = compared(1.0, 0.985)
    [difference] = document["differences"]
    difference.update(ratio=1 + gap, low=1 - gap, high=1 + 2 * gap, clear=False)
    for low in (1 - gap, 1 + gap / 2):
        difference.update(low=low, clear=low > 1)
        document["models"]["model0"]["details"] = {"convergence": _curves(document, gap)}
        answer, certainty, _, steps = said(document)
        for text in (answer, *certainty, *steps):
            assert not re.search(r"(most|about|than the|to|within) less than", text), text


def _curves(document, change):
    verdict = {"status": "converged", "sentence": "", "change": change}
    n = document["models"]["model0"]["data"]["n"]
    return {"n": n, "drawn_from": n, "verdicts": {"conditional_vendi": verdict}}


@pytest.mark.parametrize(
    ("change", "half", "ending"),
    [
        (1e-4, 0.05, f"would change it by less than 0.1{NB}%, which the interval allows."),
        (1e-4, 1e-5, f"change it by less than 0.1{NB}%, more than the interval allows, which is"),
        (0.02, 1e-5, f"would raise it by about 2{NB}%, more than the interval allows, which is"),
        (-0.02, 0.05, f"lower it by about 2{NB}%, less than the 5{NB}% to either side that the"),
    ],
)
def test_growth_reads_well_whatever_its_size(change, half, ending):
    document = compared(1.0, 0.6)["models"]["model0"]
    score = document["scores"]["conditional_vendi"]
    score["interval"].update(low=score["value"] * (1 - half), high=score["value"] * (1 + half))
    curves = _curves({"models": {"model0": document}}, change)
    sentence = growth_sentence(document | {"details": {"convergence": curves}}, "conditional_vendi")
    assert ending in sentence
    assert not re.search(r"(about|than the) less than", sentence)


def test_no_sentence_has_powers_of_ten():
    """A thousand prompts with a hundred outputs each, and one model with a single output."""
    document = compared(1.0, 0.6)
    [difference] = document["differences"]
    difference.update(ratio=129.3, low=118.2, high=141.9)
    for factor, model in ((129.3, "model0"), (1.0, "model1")):
        part = document["models"][model]
        part["data"].update(n=123456, prompts=1234, kinds_as_ids=1234.5)
        part["data"].update(fewest_outputs=99, most_outputs=101)
        part["baseline"] = {"excess_information": math.log(2345.6), "baseline": 1234.5}
        part["baseline"] |= {"p_value": 0.05, "num_permutations": 19}
        for name, value in (("prompt_vendi", 1023.4), ("information_vendi", 12345.6)):
            part["scores"][name]["value"] = value
        for name in ("vendi", "conditional_vendi", "per_prompt_vendi"):
            part["scores"][name]["value"] = 99.97 * factor
    answer, [sure, *_], _, _ = said(document)
    assert answer.endswith(" kind of prompt against 100, 129 times as many.")
    assert "is 118 to 142 times that of" in sure
    difference.update(ratio=1.04, low=0.9, high=1.2, clear=False, standard_error=0.03)
    page = html.unescape(report_page(document))
    text = re.sub(r"<(script|svg).*?</\1>", "", page, flags=re.DOTALL)
    assert "1,023 kinds among 1,234 prompts" in text
    assert not re.findall(r".{20}\de\+\d.{9}", text)
    for number in (999.7, 99999.9, 123456.7):
        assert "e+" not in significant(number) + plain_number(number) + plain_number(number, 2)


def test_an_output_is_quoted_once():
    """The least diverse prompt may be the only one with the output that occurs most often."""
    prompts = [f"prompt {row // 6}" for row in range(36)]
    outputs = [f"answer {'x' * row} {7 * row}" for row in range(30)] + ["The same!"] * 6
    samples = list(map(Text, outputs)), prompts
    result = dp.evaluate(*samples, embedder_x=_codes, embedder_t=_codes, cache=False)
    page = html.unescape(dp.html_report(result, num_repeats=2))
    assert "“<bdi>The same!</bdi>” 6 times)" in page
    assert "gives the output “<bdi>The same!</bdi>”" not in page


def test_an_output_that_occurs_often_is_quoted():
    prompts = [f"prompt {row}" for row in range(30)]
    outputs = ["The same!"] * 9 + [f"another {row}" for row in range(21)]
    outputs[3] = "the  same"
    result = dp.evaluate(
        list(map(Text, outputs)), prompts, embedder_x=_codes, embedder_t=_codes, cache=False
    )
    page = html.unescape(dp.html_report(result, num_repeats=2))
    text = "The model gives the output “<bdi>The same!</bdi>” 9 times among 30 outputs."
    assert text in page


def _codes(texts):
    rows = [[len(text), sum(map(ord, text)) % 97, sum(map(ord, text)) % 89] for text in texts]
    return np.array(rows, dtype=float)


def test_names_in_the_verdict_are_text():
    samples = worlds(1.0, 0.3)
    renamed = {HOSTILE: samples["model0"], "b": samples["model1"]}
    page = report_page(dp.compare(renamed, kernel_x=dp.Gaussian(2.0)).to_dict())
    answer = re.search(r'<p class="answer".*?</p>', page, re.DOTALL)[0]
    assert "<img" not in page
    assert "&lt;img" in answer


@pytest.mark.parametrize("letter", ["\u200e", "\x07", "\u2028"])
def test_names_may_hold_letters_that_nobody_sees(letter):
    """Names that read the same are told apart by a number."""
    samples = worlds(1.0, 0.3)
    renamed = {f"sdxl{letter}": samples["model0"], "sdxl": samples["model1"]}
    comparison = dp.compare(renamed, kernel_x=dp.Gaussian(2.0))
    page = dp.html_report(comparison, num_repeats=2)
    assert letter not in page
    first, second = "<bdi>sdxl</bdi>", "<bdi>sdxl (2)</bdi>"
    assert f"{first} is more diverse than {second}" in page


def test_the_verdict_comes_first_and_needs_no_script():
    page = dp.html_report(dp.compare(worlds(1.0, 0.3), kernel_x=dp.Gaussian(2.0)), num_repeats=2)
    # Whatever needs a click or a script is gone: what is left is what everybody can read.
    shown = re.sub(r"<(script|details).*?</\1>", "", page, flags=re.DOTALL)
    assert "is more diverse than" in shown
    assert shown.index("is more diverse than") < shown.index("Scores of all models")
    assert shown.index("is more diverse than") < shown.index('aria-label="Contents"')


@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_no_page_speaks_of_nats(scale):
    rng = np.random.default_rng(0)
    t = rng.standard_normal((30, 3))
    samples = {name: dp.Samples(t + scale * rng.standard_normal((30, 3)), t) for name in "ab"}
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1.0)}
    page = dp.html_report(dp.compare(samples, **kernels, num_permutations=19), num_repeats=2)
    assert "times that of random pairings" in page
    assert "times chance" in page
    assert not re.search(r"\bnats?\b", page)
    single = report_page(alike(np.eye(24), np.repeat(np.arange(4), 6)))
    assert not re.search(r"\bnats?\b", single)
