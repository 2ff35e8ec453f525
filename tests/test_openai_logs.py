"""Chats and answers in the shapes of OpenAI's interface; tests/sample_files.py makes them."""

import pytest
from sample_files import (
    ANSWERS,
    PROMPTS,
    batch_input,
    batch_output,
    chat_completion,
    jsonl,
    response,
    user,
    write,
)

import divprism as dp

PAIRS = [
    (prompt, answer) for i, prompt in enumerate(PROMPTS) for answer in ANSWERS[2 * i : 2 * i + 2]
]
TWO = [ANSWERS[:2], ANSWERS[2:]]


def texts(samples):
    pairs = zip(samples.prompts, samples.outputs, strict=True)
    return [(prompt.text, output.text) for prompt, output in pairs]


def text_completion(prompt, answers):
    choices = [
        {"finish_reason": "stop", "index": index, "logprobs": None, "text": answer}
        for index, answer in enumerate(answers)
    ]
    return {"id": "cmpl-1", "object": "text_completion", "prompt": prompt, "choices": choices}


CHATS = [chat_completion(two) for two in TWO]
LAYOUTS = {
    "messages beside choices": [
        {"messages": user(prompt)} | chat for prompt, chat in zip(PROMPTS, CHATS, strict=True)
    ],
    "request and response": [
        {"request": {"model": "gpt-4o-mini", "messages": user(prompt)}, "response": chat}
        for prompt, chat in zip(PROMPTS, CHATS, strict=True)
    ],
    "request and response with bodies": [
        {"request": {"body": {"messages": user(prompt)}}, "response": {"body": chat}}
        for prompt, chat in zip(PROMPTS, CHATS, strict=True)
    ],
    "completions": [text_completion(p, two) for p, two in zip(PROMPTS, TWO, strict=True)],
    "responses": [{"input": user(prompt)} | response(answer) for prompt, answer in PAIRS],
    "fine-tuning": [
        {"messages": [*user(prompt), {"role": "assistant", "content": answer}]}
        for prompt, answer in PAIRS
    ],
    "messages beside an answer": [
        {"messages": user(prompt), "response": answer} for prompt, answer in PAIRS
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_shape_gives_the_same_pairs(layout, tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(LAYOUTS[layout])})
    samples = dp.load(tmp_path / "a.jsonl")
    assert texts(samples) == PAIRS
    assert texts(dp.load(LAYOUTS[layout])) == PAIRS  # in memory
    assert samples.warnings == ()


def test_several_choices_are_several_outputs_of_the_model_that_answered(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(LAYOUTS["request and response"])})
    samples = dp.load(tmp_path / "a.jsonl")
    assert samples.models == ("gpt-4o-mini-2024-07-18",) * 4
    assert "chats or answers as OpenAI stores them" in samples.notes[0].text


def test_the_last_answer_of_a_conversation_is_the_output():
    system = {"role": "system", "content": "Be brief."}
    turns = [*user("Hello"), {"role": "assistant", "content": "Hi."}, *user("a red square")]
    rows = [{"messages": [system, *turns, {"role": "assistant", "content": "Red.", "weight": 1}]}]
    assert texts(dp.load(rows)) == [("Be brief.\nHello\nHi.\na red square", "Red.")]


def test_a_batch_is_joined_with_its_requests_in_any_order(tmp_path):
    output = batch_output({1: CHATS[1], 0: CHATS[0]})
    write(tmp_path, {"in.jsonl": jsonl(batch_input(PROMPTS)), "out.jsonl": jsonl(output)})
    samples = dp.load(tmp_path / "out.jsonl", tmp_path / "in.jsonl")
    assert sorted(texts(samples)) == sorted(PAIRS)
    alone = dp.load(tmp_path / "out.jsonl")
    assert alone.prompts is None
    assert [item.text for item in alone.outputs] == [*TWO[1], *TWO[0]]


FAILED = {
    "error": {"response": None, "error": {"code": "batch_expired", "message": "It expired."}},
    "status": {"response": {"status_code": 429, "body": {"error": {"message": "It expired."}}}},
}


@pytest.mark.parametrize("failed", FAILED.values(), ids=FAILED)
def test_failed_requests_of_a_batch_are_counted(failed, tmp_path):
    lines = batch_output({0: CHATS[0], 1: CHATS[1]})
    # First, so that nothing of the failed line decides what the others are.
    lines.insert(0, {"id": "batch_req_2", "custom_id": "request-2", "error": None} | failed)
    write(tmp_path, {"out.jsonl": jsonl(lines), "none.jsonl": jsonl(lines[:1])})
    samples = dp.load(tmp_path / "out.jsonl")
    assert [item.text for item in samples.outputs] == ANSWERS
    (warning,) = samples.warnings
    assert warning.code == "requests-failed"
    assert "1 of 3 requests in" in warning.text
    assert "line 1 of" in warning.text
    assert "It expired)" in warning.text
    with pytest.raises(dp.DataError, match=r"every request in .* failed \(first: line 1 of .*\)"):
        dp.load(tmp_path / "none.jsonl")
    with pytest.raises(dp.DataError, match=r"1 of 3 requests .*strict"):
        dp.load(tmp_path / "out.jsonl", strict=True)


def test_requests_without_answers_are_refused(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl([{"messages": user(prompt)} for prompt in PROMPTS])})
    with pytest.raises(dp.DataError, match=r"line 1 of .* has no answer: .* `output_field`"):
        dp.load(tmp_path / "a.jsonl")


def test_refusals_and_calls_of_tools_are_a_text_and_none():
    refused = chat_completion([None, "", "It is red."])
    refused["choices"][0]["message"]["refusal"] = "I'm sorry, but I can't."
    refused["choices"][1]["message"]["content"] = None
    samples = dp.load([{"messages": user("a red square")} | refused])
    assert [item.text for item in samples.outputs] == ["I'm sorry, but I can't.", "It is red."]
    assert samples.skipped == 1


def test_choices_of_a_question_are_no_answers():
    rows = [
        {"question": prompt, "choices": [{"text": "A"}, {"text": "B"}], "answer": answer}
        for prompt, answer in PAIRS
    ]
    assert texts(dp.load(rows)) == PAIRS


def test_named_fields_go_before_the_known_shape():
    rows = [{"topic": "t"} | row for row in LAYOUTS["messages beside choices"]]
    named = dp.load(rows, output_field="choices.1.message.content", prompt_field="topic")
    assert texts(named) == [("t", TWO[0][1]), ("t", TWO[1][1])]
    assert [pair[0] for pair in texts(dp.load(rows, prompt_field="topic"))] == ["t"] * 4


def test_messages_with_the_answer_are_no_prompt():
    rows = [
        {"messages": [*user(prompt), {"role": "assistant", "content": answer}], "output": answer}
        for prompt, answer in PAIRS
    ]
    assert dp.load(rows).prompts is None
