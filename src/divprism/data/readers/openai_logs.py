"""Files of OpenAI's interface: chats with their answers, Batch files, examples for fine-tuning.

Other servers and programs write the same shapes. The layouts are those of version 3.51 of the
package `openai`: `choices[].message` of chat completions, `choices[].text` of completions,
`output[].content[]` of responses, each alone or in the line of a Batch.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from divprism.data.readers.failures import succeeded, with_text_prompts
from divprism.data.readers.fields import Fields, Findings, known_output
from divprism.data.readers.tables import Record
from divprism.data.readers.values import message_text
from divprism.errors import DataError

__all__ = ["is_openai", "is_request", "openai_records", "outputs_of_choices", "request_record"]

_CONTENTS = ("messages", "prompt", "input")  # what the interfaces call a prompt, newest last


def is_openai(record: Record) -> bool:
    """Whether a record is a chat with its answer, or a line of the output of a Batch."""
    fields = record.fields
    if _is_batch_output(fields) or _is_answer(_answer(fields)):
        return True
    return known_output(fields) is None and _is_chat(fields.get("messages"))


def is_request(record: Record) -> bool:
    """Whether a record is a request without its answer, such as a line of the input of a Batch."""
    body = record.fields.get("body")
    return isinstance(body, dict) and any(name in body for name in _CONTENTS)


def request_record(record: Record) -> Record:
    """Return a request as a plain record, with the id that the line of its answer has."""
    fields = {"prompt": _prompt(record.fields), "prompt_id": record.fields.get("custom_id")}
    return Record(fields, record.where, record.source)


def openai_records(
    records: Iterator[Record], source: str, findings: Findings, fields: Fields
) -> Iterator[Record]:
    """Yield chats and answers as plain records with the outputs as a list.

    Failed requests of a Batch have no output. They are left out and counted.
    """
    answered = succeeded(records, _failure, "request", source, findings)
    keyword = fields.keyword("prompt")
    has_own_prompt = False
    for record in with_text_prompts(answered, _chat_of, source, findings, keyword):
        if not has_own_prompt and _own_prompt(record.fields) and record.fields.get("messages"):
            has_own_prompt = True
            own = f"the {fields.noun} 'prompt'"
            findings.note(f"{source}: prompts from {own}, not from the messages beside it")
        yield _plain(record, fields.keyword("output"))


def _own_prompt(fields: Mapping[str, Any]) -> str | None:
    """Return the prompt that a record names itself, beside its messages; None without one."""
    prompt = fields.get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        return prompt
    return None


def _chat_of(record: Record) -> object:
    """Return the messages of the prompt: of the request, or before the answer."""
    return _prompt(record.fields) or record.fields.get("messages")


def _plain(record: Record, keyword: str) -> Record:
    fields = record.fields
    answer = _answer(fields)
    prompt, outputs = _prompt(fields), _outputs(answer)
    if outputs is None:
        before, outputs = _split_chat(fields.get("messages"), record.where, keyword)
        prompt = _own_prompt(fields) or before
    used = ("choices", "response", "request", "body", "output")
    plain = {name: value for name, value in fields.items() if name not in used}
    plain["output"] = outputs or [""]
    if prompt is not None:
        plain["prompt"] = prompt
    model = answer.get("model") or _request(fields).get("model")
    if model is not None:
        plain["model"] = model
    if "custom_id" in fields:
        plain["prompt_id"] = fields["custom_id"]
    return Record(plain, record.where, record.source)


def _is_batch_output(fields: Mapping[str, Any]) -> bool:
    # A plain table may have these columns, too; its responses are texts.
    response = fields.get("response", "")
    return "custom_id" in fields and (response is None or isinstance(response, dict))


def _failure(record: Record) -> object:
    """Return why a request of a Batch failed; None for any other record."""
    fields = record.fields
    if not _is_batch_output(fields):
        return None
    response, error = fields["response"], fields.get("error")
    if isinstance(response, dict):
        status = response.get("status_code")
        error = error or _dict(response.get("body")).get("error")
        if error is None and status in (None, 200):
            return None
        error = error or f"status {status}"
    if isinstance(error, dict):
        error = error.get("message") or error.get("code")
    return error or "no response"


def _answer(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object that holds the outputs: in `response.body`, `response`, or the record."""
    response = fields.get("response")
    if isinstance(response, dict):
        body = response.get("body")
        if isinstance(body, dict):
            return body
        return response
    return fields


def _request(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object that holds the prompt: in `request.body`, `request`, `body`, the record."""
    request = fields.get("request", fields)
    return _dict(_dict(request).get("body", request))


def _dict(value: object) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    return {}


def _prompt(fields: Mapping[str, Any]) -> object:
    own = _own_prompt(fields)
    if own is not None:
        return own
    request = _request(fields)
    for name in _CONTENTS:
        if request.get(name):
            return request[name]
    return None


def _is_answer(answer: Mapping[str, Any]) -> bool:
    """Whether an object is an answer, and not a question with `choices` of its own."""
    if answer.get("object") == "response":
        return isinstance(answer.get("output"), list)
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        return False
    first = _dict(choices[0])
    return isinstance(first.get("message"), dict) or {"text", "finish_reason"} <= first.keys()


def _outputs(answer: Mapping[str, Any]) -> list[str] | None:
    """Return the texts of an answer, one per choice; None if it is no answer."""
    texts = outputs_of_choices(answer.get("choices"))
    if texts is not None:
        return texts
    items = answer.get("output")
    # Of the Responses interface: reasoning and calls of tools beside the messages.
    if answer.get("object") == "response" and isinstance(items, list):
        messages = [item for item in items if _dict(item).get("type") == "message"]
        return ["\n".join(message_text(message.get("content")) for message in messages)]
    return None


def outputs_of_choices(choices: object) -> list[str] | None:
    """Return the text of each choice of an answer; None if they are no choices."""
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return None
    return [_text_of_choice(choice) for choice in choices]


def _text_of_choice(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    if isinstance(message, dict):
        # A refusal is a text of the model as well, in a field of its own.
        return message_text(message.get("content") or message.get("refusal"))
    return message_text(choice.get("text"))


def _is_chat(messages: object) -> bool:
    if not isinstance(messages, list) or not messages:
        return False
    return all(isinstance(message, dict) and "role" in message for message in messages)


def _split_chat(messages: object, where: str, keyword: str) -> tuple[object, list[str]]:
    """Return what comes before the last message of the assistant, and that message."""
    if isinstance(messages, list) and _is_chat(messages):
        # Not down to the first message: an answer has a prompt before it.
        for index in range(len(messages) - 1, 0, -1):
            if messages[index]["role"] == "assistant":
                return messages[:index], [message_text(messages[index].get("content"))]
    raise DataError(
        f"{where} has no answer: neither choices nor a message of the assistant below the first; "
        f"name what holds the outputs with `{keyword}`."
    )
