"""Kinds of prompt, exact prompts and outputs per prompt stand beside each other, in words."""

import math

import command_line
import numpy as np
import pytest

import divprism as dp
from divprism.report.details import detailed
from divprism.report.group_tables import groups_listing
from divprism.report.kinds import highest_per_kind, kinds_note, kinds_sentence, out_of
from divprism.report.sections import score_card
from divprism.report.tables import evaluation_table, results_table
from divprism.report.words import gap_notes, headline
from divprism.scores.spec import score_spec

NUM_PROMPTS, NUM_OUTPUTS = 8, 5


def evaluated(bandwidth: float = 0.1, counts: list[int] | None = None, **options) -> dp.Evaluation:
    """Evaluate prompts one apart on a line, whose outputs are all different."""
    t = np.repeat(np.arange(float(NUM_PROMPTS)), counts or [NUM_OUTPUTS] * NUM_PROMPTS)[:, None]
    kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Gaussian(bandwidth), **options}
    return dp.evaluate(np.eye(len(t)), t, **kernels)


def test_prompts_that_are_told_apart_give_nearly_the_score_per_exact_prompt():
    assert kinds_sentence(evaluated().to_dict()) == (
        "8 kinds among 8 prompts: nearly every prompt is a kind of its own, so 5 distinct outputs "
        "per kind of prompt are close to 5 of 5 per exact prompt"
    )


def test_outputs_per_kind_that_exceed_those_of_a_prompt_are_explained():
    result = evaluated(bandwidth=3.0)
    kinds, own = f"{result.prompt_vendi:.3g}", f"{result.conditional_vendi:.3g}"
    assert float(own) > NUM_OUTPUTS
    assert kinds_sentence(result.to_dict()) == (
        f"{kinds} kinds among 8 prompts: outputs of similar prompts are compared too, so {own} "
        "distinct outputs per kind of prompt exceed the 5 outputs that each prompt has; 5 of 5 per "
        "exact prompt"
    )


def test_similar_prompts_add_to_the_score_per_exact_prompt():
    """Each prompt has one output, five times; similar prompts have others."""
    t = np.repeat(np.arange(float(NUM_PROMPTS)), NUM_OUTPUTS)
    x = np.eye(NUM_PROMPTS)[t.astype(int)]
    result = dp.evaluate(x, t[:, None], kernel_x=dp.Cosine(), kernel_t=dp.Gaussian(1.5))
    assert kinds_sentence(result.to_dict()).endswith(
        f"so {result.conditional_vendi:.3g} distinct outputs per kind of prompt are more than 1 of "
        "5 per exact prompt"
    )


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_the_highest_score_is_that_of_the_weights(order):
    """All outputs are different, so the score is as high as it can be."""
    x, t = np.eye(40), np.repeat(np.arange(8), 5)
    options = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical(), "order": order}
    weights = np.random.default_rng(0).random(40) ** 3
    weights /= weights.sum()
    document = dp.evaluate(x, t, weights=weights, **options).to_dict()
    score = document["scores"]["conditional_vendi"]["value"]
    assert highest_per_kind(document) == pytest.approx(score)
    assert score < 4.5
    assert out_of(score, document).endswith(f" of at most {score:.3g}")
    del document["data"]["outputs_as_ids"]  # as earlier versions wrote it
    assert highest_per_kind(document) is None


def test_prompts_compared_as_ids_are_kinds_themselves():
    document = evaluated(kernel_t=dp.Categorical()).to_dict()
    assert (
        "prompts are compared as ids, so 5 distinct outputs per kind of prompt are also 5 of 5"
        in (kinds_sentence(document))
    )


def test_one_output_each_is_compared_with_those_of_similar_prompts():
    result = evaluated(bandwidth=3.0, counts=[1] * NUM_PROMPTS)
    # All outputs are different, so the score is the highest that there can be.
    highest = NUM_PROMPTS / result.prompt_vendi
    assert math.isclose(result.conditional_vendi, highest)
    document = result.to_dict()
    assert kinds_sentence(document).endswith(
        f"one output each: outputs of similar prompts are compared, and {highest:.3g} distinct "
        f"outputs per kind of prompt, of at most {highest:.3g}, are the model's own"
    )
    assert (
        f"one output each; conditional is at most {highest:.3g}" in kinds_note({"a": document})[0]
    )
    truncated = evaluated(bandwidth=3.0, counts=[1] * NUM_PROMPTS, truncation=2)
    highest = 2 / truncated.prompt_vendi
    assert f"of at most {highest:.3g}," in kinds_sentence(truncated.to_dict())


def test_unequal_numbers_of_outputs_come_with_the_highest_score_that_there_can_be():
    result = evaluated(counts=[3, 5] * 4)
    document = result.to_dict()
    assert document["data"]["fewest_outputs"] == 3
    assert document["data"]["most_outputs"] == 5
    # All outputs differ, so the score is the highest. Prompts with more outputs count more.
    assert math.isclose(result.per_prompt_vendi, 32 / document["data"]["kinds_as_ids"])
    assert result.per_prompt_vendi > 4
    assert "4.13 of at most 4.13 per exact prompt" in kinds_sentence(document)
    assert kinds_note({"a": document})[0].endswith("per exact prompt, of at most 4.13")
    assert score_card(score_spec("per_prompt_vendi"), document).value == "4.13 of at most 4.13"


def test_unequal_numbers_of_outputs_are_named_as_the_reason_of_few_kinds():
    """Every prompt is told apart, and most outputs are of one of them."""
    result = evaluated(counts=[50] + [2] * 7)
    shares = np.array([50] + [2] * 7) / 64
    as_ids = math.exp(-(shares * np.log(shares)).sum())
    assert math.isclose(result.data["kinds_as_ids"], as_ids)
    sentence = kinds_sentence(result.to_dict())
    assert "similar prompts" not in sentence
    assert sentence.startswith(
        f"{as_ids:.3g} kinds among 8 prompts: prompts count by their share of the outputs, of "
        f"which they have 2 to 50, and cannot be more than {as_ids:.3g} kinds, so "
    )
    ids = kinds_sentence(evaluated(counts=[50] + [2] * 7, kernel_t=dp.Categorical()).to_dict())
    assert "prompts are compared as ids; prompts count by their share of the outputs" in ids


@pytest.mark.parametrize("counts", [None, [1] * NUM_PROMPTS])
def test_a_truncation_is_named_as_the_reason_of_few_kinds(counts):
    sentence = kinds_sentence(evaluated(counts=counts, truncation=3).to_dict())
    assert "similar prompts" not in sentence
    assert "3 eigenvalues are kept, and prompts cannot be more than 3 kinds" in sentence


def test_weights_are_named_as_the_reason_of_few_kinds():
    weights = np.repeat([0.93] + [0.01] * 7, NUM_OUTPUTS) / NUM_OUTPUTS
    sentence = kinds_sentence(evaluated(weights=weights).to_dict())
    assert "prompts count by the weights of their outputs, and cannot be more than" in sentence
    assert "of at most" in sentence


def test_similar_prompts_are_the_reason_where_ids_would_be_more_kinds():
    sentence = kinds_sentence(evaluated(bandwidth=3.0, counts=[9] + [3] * 7).to_dict())
    assert "outputs of similar prompts are compared too" in sentence


def test_prompts_of_one_output_that_all_differ_have_nothing_to_compare():
    sentence = kinds_sentence(evaluated(counts=[1] * NUM_PROMPTS).to_dict())
    assert "8 prompts, one output each: hardly any prompts are similar enough" in sentence


def test_numbers_that_differ_are_shown_with_the_digits_in_which_they_do():
    data = {"n": 20, "prompts": 4, "fewest_outputs": 5, "most_outputs": 5, "kinds_as_ids": 4.0}
    document = {"data": data, "settings": {"truncation": None}}
    assert out_of(4.9981, document) == "4.998 of 5"
    assert out_of(5.0, document) == "5 of 5"
    document = {"data": data | {"n": 22, "fewest_outputs": 4}, "settings": {"truncation": None}}
    assert out_of(5.4996, document) == "5.4996 of at most 5.5000"


def test_a_result_without_the_kinds_of_ids_is_still_described():
    """As earlier versions wrote it."""
    document = evaluated().to_dict()
    del document["data"]["kinds_as_ids"]
    assert "close to 5 of 5 per exact prompt" in kinds_sentence(document)


def test_kinds_of_given_prompts_have_no_interval_without_width():
    document = evaluated(interval=0.95).to_dict()
    interval = document["scores"]["prompt_vendi"]["interval"]
    assert interval["low"] == pytest.approx(interval["high"])
    rows = {row[0]: row[2] for row in evaluation_table(document).rows}
    assert rows["prompt_vendi"] == "does not vary"
    assert " to " in rows["conditional_vendi"]
    assert score_card(score_spec("prompt_vendi"), document).error == ""


def test_empty_cells_of_a_table_of_models_are_explained():
    t = np.repeat(np.arange(12), 5)
    repeated, single = dp.Samples(np.eye(60), t), dp.Samples(np.eye(12), np.arange(12))
    documents = {}
    for model, samples in (("repeated", repeated), ("single", single)):
        result = dp.evaluate(samples.outputs, samples.prompts, kernel_x=dp.Cosine())
        documents[model] = result.to_dict()
    notes = results_table(documents).notes
    assert any(note.endswith("empty where each prompt has one output") for note in notes)
    assert notes[-1].endswith("by default only where prompts have fewer than 5 outputs on average")
    alone = results_table({"single": documents["single"]}).notes
    assert alone[-1].endswith("near 0 where prompts are ignored")


@pytest.mark.parametrize(
    "data", [dp.evaluate(np.eye(4), kernel_x=dp.Cosine()), evaluated(counts=[40] + [0] * 7)]
)
def test_without_several_prompts_there_is_nothing_to_connect(data):
    assert kinds_sentence(data.to_dict()) == ""


def test_the_sentence_stands_in_the_table_and_on_the_page():
    result = evaluated()
    document = result.to_dict()
    sentence = kinds_sentence(document)
    assert evaluation_table(document).notes[0] == sentence
    assert f"{sentence}." in headline(document)
    assert sentence.split(":")[0] in repr(result).replace("\n", " ")
    assert score_card(score_spec("per_prompt_vendi"), document).value == "5 of 5"
    meanings = {row[0]: row[3] for row in evaluation_table(document).rows}
    assert meanings["per_prompt_vendi"] == "distinct outputs per exact prompt, of 5"


def test_a_conditional_score_prints_its_kinds_of_prompt():
    result = evaluated()
    assert "(8 kinds of prompt, order 1, n = 40" in str(result.conditional_vendi)
    assert math.isclose(result.conditional_rke.prompt_kinds, result.prompt_rke)
    assert result.vendi.prompt_kinds is None
    assert "kinds" not in str(result.information_vendi)


def _codes(result: dp.Evaluation) -> list[str]:
    return [notice.code for notice in result.warnings]


def test_merged_prompts_are_reported_where_prompts_repeat():
    wide = evaluated(bandwidth=3.0)
    assert wide.prompt_vendi < 0.5 * NUM_PROMPTS
    [notice] = [notice for notice in wide.warnings if notice.code == "prompts-merged"]
    assert "the 8 prompts count as" in notice.text
    assert "read per_prompt_vendi" in notice.text
    assert "prompts-merged" not in _codes(evaluated())
    # With one output each there is nothing else to compare with.
    assert "prompts-merged" not in _codes(evaluated(bandwidth=3.0, counts=[1] * NUM_PROMPTS))
    assert "prompts-merged" not in _codes(evaluated(kernel_t=dp.Categorical()))
    assert "prompts-merged" not in _codes(evaluated(truncation=2))


def test_merged_prompts_of_several_models_are_reported_once():
    t = np.tile(np.repeat(np.arange(float(NUM_PROMPTS)), NUM_OUTPUTS), 2)[:, None]
    models = ("a",) * 40 + ("b",) * 40
    x = np.eye(80)
    x[40:] = x[40 + np.arange(40) // 2]  # the second model gives every output twice
    kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Gaussian(3.0)}
    results = dp.evaluate_models(dp.Samples(x, t, models=models), **kernels)
    codes = [notice.code for notice in results_table(results.documents()).warnings]
    assert codes.count("prompts-merged") == 1


def test_unequal_shares_alone_do_not_merge_prompts():
    """Most outputs are of one prompt: few kinds, although all prompts are told apart."""
    result = evaluated(counts=[50] + [1] * 7)
    assert result.prompt_vendi < 0.5 * NUM_PROMPTS
    assert "prompts-merged" not in _codes(result)


def test_more_outputs_per_kind_than_any_prompt_has_are_reported():
    result = evaluated(bandwidth=1.0)
    assert result.prompt_vendi > 0.5 * NUM_PROMPTS
    assert result.conditional_vendi > 1.25 * NUM_OUTPUTS
    assert "prompts-merged" in _codes(result)


def test_defaults_merge_no_prompts_even_if_all_outputs_differ():
    t = np.repeat(np.arange(float(NUM_PROMPTS)), NUM_OUTPUTS)[:, None]
    result = dp.evaluate(np.eye(len(t)), t, kernel_x=dp.Cosine())
    assert result.conditional_vendi > NUM_OUTPUTS
    assert "prompts-merged" not in _codes(result)


def test_prompts_that_are_all_alike_are_reported_once():
    t = np.repeat(np.arange(20.0), 3)[:, None]
    kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Gaussian(1000.0)}
    with pytest.warns(dp.BandwidthWarning):
        codes = _codes(dp.evaluate(np.eye(60), t, **kernels))
    assert "prompts-all-alike" in codes
    assert "prompts-merged" not in codes


def test_the_command_line_names_the_flag_that_compares_ids(tmp_path):
    rows = []
    for prompt in range(4):
        rows += [f"p{prompt},answer {index} of {prompt}" for index in range(5)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["prompt,output", *rows]))
    done = command_line.run("score", path, "--bandwidth-t", 9)
    assert b"prompts-merged: the 4 prompts count as 1" in done.stderr
    assert b"the categorical --kernel-t" in done.stderr


def test_groups_say_how_many_kinds_of_prompt_there_are():
    t = np.repeat(np.arange(8.0), 5)[:, None]
    kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Gaussian(0.4)}
    mixed = dp.prompt_groups(np.eye(40), t, dp.EigenGrouping(3), **kernels).to_dict()
    [note] = gap_notes(mixed)
    assert f"{mixed['prompt_vendi']:.3g} kinds among 8 prompts, more than the 3 groups" in note
    assert note in groups_listing(mixed).notes
    exact = dp.prompt_groups(np.eye(40), t, dp.ExactPromptGrouping(), **kernels).to_dict()
    assert gap_notes(exact)[0].endswith("kinds among 8 prompts")
    assert note.endswith("ask for more groups, or group by prompt")
    single = dp.prompt_groups(np.eye(40), np.arange(40.0)[:, None], dp.EigenGrouping(3), **kernels)
    # Prompts of one output each cannot be judged.
    assert gap_notes(single.to_dict())[0].endswith("ask for more groups")


def test_the_page_groups_by_exact_prompt_where_the_kernel_tells_prompts_apart():
    groups = detailed(evaluated(), num_groups=3, num_repeats=2)["details"]["groups"]
    assert groups["data"]["grouping"] == "ExactPromptGrouping"
    assert len(groups["groups"]) == 3
    assert groups["num_hidden"] == 5
    wide = detailed(evaluated(bandwidth=3.0), num_groups=3, num_repeats=2)["details"]["groups"]
    assert wide["data"]["grouping"] == "EigenGrouping"
    assert wide["num_hidden"] == 0


def test_information_stands_beside_that_of_random_pairings():
    document = evaluated(num_permutations=5).to_dict()
    by_chance = f"; {document['baseline']['baseline']:.3g} by chance"
    meanings = {row[0]: row[3] for row in evaluation_table(document, wide=True).rows}
    assert meanings["information_vendi"].endswith(by_chance)
    assert meanings["information_rke"] == score_spec("information_rke").meaning
    assert score_card(score_spec("information_vendi"), document).meaning.endswith(by_chance)
