"""How outputs, exact prompts and kinds of prompt are related: the sentence beside their scores."""

import math

from divprism.data.wording import counted_kinds, plain_number
from divprism.report.documents import Document, Documents
from divprism.report.texts import number_of, significant
from divprism.scores.spec import ScoreSpec

__all__ = [
    "apart",
    "ends_of",
    "highest_per_kind",
    "kinds_note",
    "kinds_of",
    "kinds_sentence",
    "most_per_prompt",
    "out_of",
]

_NEARLY_ALL = 0.9  # of the kinds that there can be: nearly every prompt is one of its own
_CLOSE = 0.1  # nats between scores that are called close


def most_per_prompt(document: Document) -> str:
    """Return how many distinct outputs per exact prompt there can be.

    Prompts with many outputs count by their share of all outputs, so where prompts differ in their
    numbers of outputs the highest score is not the mean of these.

    >>> data = {"n": 20, "prompts": 4, "fewest_outputs": 5, "most_outputs": 5, "kinds_as_ids": 4.0}
    >>> most_per_prompt({"data": data, "settings": {"truncation": None}})
    '5'
    >>> data |= {"n": 18, "fewest_outputs": 3, "kinds_as_ids": 3.9}
    >>> most_per_prompt({"data": data, "settings": {"truncation": None}})
    'at most 4.62'
    """
    return _at_most(document, plain_number(_highest(document, _as_ids(document))))


def _at_most(document: Document, highest: str) -> str:
    if _is_even(document):
        return highest
    return f"at most {highest}"


def _is_even(document: Document) -> bool:
    """Return whether the highest score is the number of outputs that every prompt has."""
    data = document["data"]
    truncation = document["settings"]["truncation"]
    is_cut = truncation is not None and truncation < data["n"]
    if data.get("weighted") or is_cut:
        return False
    fewest = data.get("fewest_outputs")
    return fewest is not None and fewest == data.get("most_outputs")


def _as_ids(document: Document) -> float:
    """Return the number of kinds if prompts were compared as ids."""
    data = document["data"]
    # Results of earlier versions do not have it; where prompts count equally, it is their number.
    kinds: float = data.get("kinds_as_ids") or data["prompts"]
    return kinds


def _highest(document: Document, kinds: float) -> float:
    """Return the score per kind of prompt that outputs would have if no two were alike."""
    data = document["data"]
    # With weights, a few outputs may count for nearly all of them.
    count = data.get("outputs_as_ids") or data["n"]
    truncation = document["settings"]["truncation"]
    if truncation is not None:
        count = min(count, truncation)
    highest: float = count / kinds
    return highest


def highest_per_kind(document: Document) -> float | None:
    """Return how many distinct outputs per kind of prompt there would be if no two were alike.

    None where prompts are not counted, or weights are not known.
    """
    data = document["data"]
    # Results of earlier versions do not have it.
    if data.get("weighted") and not data.get("outputs_as_ids"):
        return None
    if data["prompts"] is None or "prompt_vendi" not in document["scores"]:
        return None
    return _highest(document, document["scores"]["prompt_vendi"]["value"])


def out_of(value: float, document: Document) -> str:
    """Return a score per exact prompt, of the highest that it can be.

    >>> data = {"n": 20, "prompts": 4, "fewest_outputs": 5, "most_outputs": 5}
    >>> out_of(3.81, {"data": data, "settings": {"truncation": None}})
    '3.81 of 5'
    """
    shown, highest = apart(value, _highest(document, _as_ids(document)))
    return f"{shown} of {_at_most(document, highest)}"


def apart(value: float, other: float) -> tuple[str, str]:
    """Return two numbers with three digits, or with up to six if they would read the same.

    >>> apart(4.9981, 5.0), apart(5.0, 5.0), apart(1.9, 1.87)
    (('4.998', '5'), ('5', '5'), ('1.90', '1.87'))
    """
    for digits in range(3, 7):
        # Compared as numbers: "5.00" and "5" would differ as texts.
        if f"{value:.{digits}g}" != f"{other:.{digits}g}":
            return significant(value, digits), significant(other, digits)
    return significant(value), significant(other)


def ends_of(interval: Document, spec: ScoreSpec) -> str:
    """Return an interval in words; empty for kinds of prompt that are the same in all samples."""
    low, high = plain_number(interval["low"], 4), plain_number(interval["high"], 4)
    # "5.719 to 5.719" would be read as great precision, where prompts are only taken as given.
    if spec.family == "prompts" and low == high:
        return ""
    return f"{low} to {high}"


def kinds_of(kinds: float, num_prompts: int) -> str:
    """Return the number of kinds of prompt beside that of prompts.

    >>> kinds_of(14.02, 40), kinds_of(1.0, 2)
    ('14 kinds among 40 prompts', '1 kind among 2 prompts')
    """
    return f"{counted_kinds(kinds)} among {number_of(num_prompts, 'prompt')}"


def kinds_sentence(document: Document) -> str:
    """Return what connects kinds of prompt, outputs per kind and outputs per exact prompt.

    Empty where there is nothing to connect: without prompts, or with a single one.
    """
    scores, data = document["scores"], document["data"]
    if "prompt_vendi" not in scores or "conditional_vendi" not in scores:
        return ""
    # Streams do not count their prompts.
    if data["prompts"] is None or data["prompts"] < 2:
        return ""
    if "per_prompt_vendi" not in scores:
        return _sentence_of_single_outputs(document)
    kinds, own = scores["prompt_vendi"]["value"], scores["conditional_vendi"]["value"]
    exact = scores["per_prompt_vendi"]["value"]
    opening = kinds_of(kinds, data["prompts"])
    per_kind = f"{significant(own)} distinct outputs per kind of prompt"
    per_prompt = f"{out_of(exact, document)} per exact prompt"
    is_apart = kinds >= _NEARLY_ALL * _as_ids(document)
    if _compares_ids(document):
        reason = "prompts are compared as ids"
        if _limit_of_kinds(document):
            reason += f"; {_limit_of_kinds(document)}"
        return f"{opening}: {reason}, so {per_kind} are also {per_prompt}"
    if is_apart and abs(math.log(own / exact)) < _CLOSE:
        reason = _limit_of_kinds(document) or "nearly every prompt is a kind of its own"
        return f"{opening}: {reason}, so {per_kind} are close to {per_prompt}"
    # Whether similar prompts share a kind does not show where a truncation limits the kinds.
    if is_apart and _is_truncated(document):
        return f"{opening}: {_limit_of_kinds(document)}; {per_kind}, and {per_prompt}"
    shared = f"{opening}: outputs of similar prompts are compared too, so {per_kind}"
    if own > _highest(document, _as_ids(document)) and _is_even(document):
        most = plain_number(_highest(document, _as_ids(document)))
        outputs = f"the {most} outputs that each prompt has"
        return f"{shared} exceed {outputs}; {per_prompt}"
    relation = "differ from"
    if own > exact:
        relation = "are more than"
    return f"{shared} {relation} {per_prompt}"


def _sentence_of_single_outputs(document: Document) -> str:
    """Return the sentence where every prompt has one output."""
    scores, data = document["scores"], document["data"]
    kinds, own = scores["prompt_vendi"]["value"], scores["conditional_vendi"]["value"]
    reason = "outputs of similar prompts are compared"
    if kinds >= _NEARLY_ALL * _as_ids(document):
        reason = _limit_of_kinds(document) or "hardly any prompts are similar enough to compare"
    shown, highest = apart(own, _highest(document, kinds))
    return (
        f"{kinds_of(kinds, data['prompts'])}, one output each: {reason}, and {shown} distinct "
        f"outputs per kind of prompt, of at most {highest}, are the model's own"
    )


def _limit_of_kinds(document: Document) -> str:
    """Return why there are fewer kinds than prompts, however different they are; "" if not."""
    data, most = document["data"], _as_ids(document)
    if most >= _NEARLY_ALL * data["prompts"]:
        return ""
    if _is_truncated(document):
        eigenvalues = number_of(document["settings"]["truncation"], "eigenvalue")
        return f"{eigenvalues} are kept, and prompts cannot be more than {counted_kinds(most)}"
    reason = "prompts count by their share of the outputs"
    if data.get("weighted"):
        reason = "prompts count by the weights of their outputs"
    elif data.get("fewest_outputs") and data.get("most_outputs"):
        reason += f", of which they have {data['fewest_outputs']:,} to {data['most_outputs']:,}"
    return f"{reason}, and cannot be more than {counted_kinds(most)}"


def _is_truncated(document: Document) -> bool:
    """Return whether a truncation keeps fewer eigenvalues than there are prompts."""
    truncation = document["settings"]["truncation"]
    return truncation is not None and truncation < document["data"]["prompts"]


def _compares_ids(document: Document) -> bool:
    return str(document["settings"]["kernel_t"]).startswith("categorical")


def kinds_note(documents: Documents) -> list[str]:
    """Return what the columns of kinds and of exact prompts mean, in a table of models."""
    first = next(iter(documents.values()))
    if "prompt_vendi" not in first["scores"]:
        return []
    texts = {_note_of(document) for document in documents.values()}
    # Models with other prompts, or another number of outputs, have other numbers.
    if len(texts) == 1:
        return list(texts)
    note = "kinds: effective number of kinds of prompt"
    repeating = ["per_prompt_vendi" in document["scores"] for document in documents.values()]
    if any(repeating):
        note += "; per prompt: distinct outputs per exact prompt"
        if not all(repeating):
            note += ", empty where each prompt has one output"
    return [note]


def _note_of(document: Document) -> str:
    """Return the note about one model."""
    scores, data = document["scores"], document["data"]
    if "prompt_vendi" not in scores or data["prompts"] is None:
        return "kinds: effective number of kinds of prompt"
    kinds = scores["prompt_vendi"]["value"]
    note = f"kinds: {plain_number(kinds)} among {number_of(data['prompts'], 'prompt')}"
    if "per_prompt_vendi" in scores:
        outputs = most_per_prompt(document)
        return f"{note}; per prompt: distinct outputs per exact prompt, of {outputs}"
    most = plain_number(_highest(document, kinds))
    return f"{note}, one output each; conditional is at most {most}, if no two outputs are alike"
