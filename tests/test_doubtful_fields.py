"""Prompts of chats, logs and records that a source leaves open, and logs that are not whole."""

import json

import pytest
from sample_files import (
    ANSWERS,
    PROMPTS,
    image_bytes,
    inspect_header,
    inspect_log,
    inspect_samples,
    jsonl,
    user,
    write,
)

import divprism as dp


def notes(samples):
    return " ".join(notice.text for notice in samples.notes)


# --- logs


@pytest.mark.parametrize("status", ["error", "cancelled", "started"])
@pytest.mark.parametrize("form", ["eval", "json"])
def test_a_lone_log_of_a_run_that_did_not_succeed_gives_a_warning(form, status, tmp_path):
    pytest.importorskip("backports.zstd")
    header = inspect_header(status=status)
    log = inspect_log(inspect_samples()[:3], header)
    if form == "json":
        log = json.dumps(header | {"samples": inspect_samples()[:3]})
    write(tmp_path, {f"a.{form}": log})
    for source in (tmp_path / f"a.{form}", tmp_path, tmp_path / f"*.{form}"):
        samples = dp.load(source)
        assert len(samples) == 3
        (warning,) = samples.warnings
        assert warning.code == "log-not-finished"
        assert f"ended with the status '{status}' instead of 'success'" in warning.text
        with pytest.raises(dp.DataError, match=r"samples may be missing.*strict=True"):
            dp.load(source, strict=True)
    (warning,) = dp.load(tmp_path / f"a.{form}", limit=1).warnings
    assert warning.code == "log-not-finished"


# --- prompts


CHATS = [
    {"messages": [*user(prompt), {"role": "assistant", "content": answer}], "topic": f"t {answer}"}
    for prompt, answer in zip(PROMPTS, ANSWERS[::2], strict=True)
]


def prompts(samples):
    return [prompt.text for prompt in samples.prompts]


def test_messages_may_be_named_as_the_prompt_of_chats(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(CHATS)})
    for source in (tmp_path / "a.jsonl", CHATS):
        assert prompts(dp.load(source, prompt_field="messages")) == PROMPTS
        assert prompts(dp.load(source, prompt_field="messages.0.content")) == PROMPTS
        topics = [chat["topic"] for chat in CHATS]
        assert prompts(dp.load(source, prompt_field="topic")) == topics
    assert dp.evaluate(CHATS, prompt="messages", num_permutations=0).data["outputs"] == 2


def test_the_input_may_be_named_as_the_prompt_of_a_log(tmp_path):
    pytest.importorskip("backports.zstd")
    write(tmp_path, {"a.eval": inspect_log()})
    assert prompts(dp.load(tmp_path / "a.eval", prompt_field="input")) == [
        PROMPTS[0],
        PROMPTS[0],
        PROMPTS[1],
        PROMPTS[1],
    ]


def test_a_prompt_beside_messages_is_the_prompt():
    rows = [chat | {"prompt": f"P{n}"} for n, chat in enumerate(CHATS)]
    samples = dp.load(rows)
    assert prompts(samples) == ["P0", "P1"]
    assert "prompts from the column 'prompt', not from the messages beside it" in notes(samples)
    assert [output.text for output in samples.outputs] == ANSWERS[::2]
    assert prompts(dp.load(rows, prompt_field="prompt")) == ["P0", "P1"]
    blank = [chat | {"prompt": None} for chat in CHATS]
    assert prompts(dp.load(blank)) == PROMPTS


def test_a_record_may_not_have_a_prompt_that_the_first_lacks(tmp_path):
    rows = [{"output": "a"}, {"output": "b", "prompt": "p"}]
    write(tmp_path, {"a.jsonl": jsonl(rows)})
    message = r"line 2 of .*a\.jsonl has prompts in the field 'prompt', which the first record la"
    with pytest.raises(dp.DataError, match=message):
        dp.load(tmp_path / "a.jsonl")


# --- tables of other shapes


def test_a_table_separated_by_semicolons_is_refused_as_such(tmp_path):
    write(tmp_path, {"a.csv": "prompt;output\np;a\nq;b\n"})
    message = r"^the columns of .*a\.csv are separated by semicolons; save it with commas, or with "
    for named in ({}, {"output_field": "output"}):
        with pytest.raises(dp.DataError, match=message):
            dp.load(tmp_path / "a.csv", **named)


def test_a_map_of_prompts_to_files_is_no_table_by_columns(tmp_path):
    write(tmp_path, {"0.png": image_bytes(0), "1.png": image_bytes(1)})
    write(tmp_path, {"map.json": json.dumps({"a fox": ["0.png"], "an output": ["1.png"]})})
    assert prompts(dp.load(tmp_path)) == ["a fox", "an output"]


@pytest.mark.parametrize(
    "content",
    [{"output": ["a", "b"], "prompt": ["p"]}, {"output": {"0": "a"}, "prompt": {"1": "p"}}],
)
def test_columns_of_different_lengths_are_no_table(content, tmp_path):
    write(tmp_path, {"a.json": json.dumps(content)})
    with pytest.raises(dp.DataError):
        dp.load(tmp_path / "a.json")


def test_a_broken_line_of_json_is_named(tmp_path):
    write(tmp_path, {"a.json": '{"output": "a"}\n{"output": "b"}\n{"output"\n'})
    with pytest.raises(dp.DataError, match=r"line 3 of .*a\.json is not JSON"):
        dp.load(tmp_path / "a.json")
