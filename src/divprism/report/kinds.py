"""How outputs, exact prompts and kinds of prompt are related: the sentence beside their scores."""

import math

from divprism.data.wording import counted_kinds
from divprism.report.documents import Document, Documents
from divprism.report.texts import number_of

__all__ = ["kinds_note", "kinds_of", "kinds_sentence", "out_of", "outputs_per_prompt"]

_NEARLY_ALL = 0.9  # of the prompts: with as many kinds, nearly every prompt is one of its own
_CLOSE = 0.1  # nats between scores that are called close


def outputs_per_prompt(data: Document) -> str:
    """Return how many outputs a prompt has; where prompts differ in that, on average.

    >>> outputs_per_prompt({"n": 20, "prompts": 4, "fewest_outputs": 5, "most_outputs": 5})
    '5'
    >>> outputs_per_prompt({"n": 18, "prompts": 4, "fewest_outputs": 3, "most_outputs": 5})
    '4.5 on average'
    """
    mean = f"{data['n'] / data['prompts']:.3g}"
    if _has_equal_counts(data):
        return mean
    return f"{mean} on average"


def _has_equal_counts(data: Document) -> bool:
    """Whether all prompts have the same number of outputs, as far as the document says."""
    fewest = data.get("fewest_outputs")
    return fewest is not None and fewest == data.get("most_outputs")


def out_of(value: float, data: Document) -> str:
    """Return a score per exact prompt, of the number of outputs that a prompt has.

    >>> out_of(3.81, {"n": 20, "prompts": 4, "fewest_outputs": 5, "most_outputs": 5})
    '3.81 of 5'
    """
    # Prompts with many outputs count by their share of all outputs, so the score can exceed the
    # plain mean of unequal numbers.
    if value > data["n"] / data["prompts"] and not _has_equal_counts(data):
        counts = f"{data.get('fewest_outputs')} to {data.get('most_outputs')} outputs"
        return f"{value:.3g} (prompts have {counts})"
    return f"{value:.3g} of {outputs_per_prompt(data)}"


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
    kinds, own = scores["prompt_vendi"]["value"], scores["conditional_vendi"]["value"]
    opening = kinds_of(kinds, data["prompts"])
    if "per_prompt_vendi" not in scores:
        most = f"{_highest(document):.3g}"
        return (
            f"{opening}, one output each: outputs of similar prompts are compared, and {own:.3g} "
            f"distinct outputs per kind of prompt, of at most {most}, are the model's own"
        )
    exact = scores["per_prompt_vendi"]["value"]
    per_kind = f"{own:.3g} distinct outputs per kind of prompt"
    per_prompt = f"{out_of(exact, data)} per exact prompt"
    is_close = abs(math.log(own / exact)) < _CLOSE
    if _compares_ids(document):
        return f"{opening}: prompts are compared as ids, so {per_kind} are also {per_prompt}"
    if kinds >= _NEARLY_ALL * data["prompts"] and is_close:
        reason = "nearly every prompt is a kind of its own"
        return f"{opening}: {reason}, so {per_kind} are close to {per_prompt}"
    shared = f"{opening}: outputs of similar prompts are compared too, so {per_kind}"
    if own <= data["n"] / data["prompts"]:
        relation = "differ from"
        if own > exact:
            relation = "are more than"
        return f"{shared} {relation} {per_prompt}"
    outputs = f"the {data['n'] / data['prompts']:.3g} outputs that each prompt has"
    if not _has_equal_counts(data):
        outputs += " on average"
    return f"{shared} exceed {outputs}; {per_prompt}"


def _highest(document: Document) -> float:
    """Return the conditional score of outputs that have nothing in common."""
    count = document["data"]["n"]
    truncation = document["settings"]["truncation"]
    if truncation is not None:
        count = min(count, truncation)
    highest: float = count / document["scores"]["prompt_vendi"]["value"]
    return highest


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
    note = "kinds: kinds of prompt, as the kernel tells prompts apart"
    if any("per_prompt_vendi" in document["scores"] for document in documents.values()):
        note += "; per prompt: distinct outputs per exact prompt"
    return [note]


def _note_of(document: Document) -> str:
    """Return the note about one model."""
    scores, data = document["scores"], document["data"]
    if "prompt_vendi" not in scores or data["prompts"] is None:
        return "kinds: kinds of prompt, as the kernel tells prompts apart"
    kinds = scores["prompt_vendi"]["value"]
    note = f"kinds: {kinds:.3g} among {number_of(data['prompts'], 'prompt')}"
    if "per_prompt_vendi" in scores:
        outputs = outputs_per_prompt(data)
        return f"{note}; per prompt: distinct outputs per exact prompt, of {outputs}"
    most = f"{_highest(document):.3g}"
    return f"{note}, one output each; conditional is at most {most}, if no two outputs are alike"
