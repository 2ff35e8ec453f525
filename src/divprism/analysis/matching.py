"""Models on the same prompts: which prompts are the same, and which rows of each model are kept."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.data.items import Item, Text
from divprism.data.samples import Samples, Side
from divprism.data.wording import NOUNS, counted, hint_of_models, loose_spelling
from divprism.errors import DataError, Notice

__all__ = ["inequality_warnings", "match_prompts", "prompt_keys"]

Key = str | int | float | bytes
"""What makes prompts of two models the same: a text, a digest, an id, or the bytes of a vector."""

# Models of which a note says how many outputs are compared.
_SHOWN_MODELS = 3
_MOST_PAIRED = 100  # models whose prompts are compared in pairs


def prompt_keys(by_model: Mapping[str, Samples]) -> dict[str, list[Key]]:
    """A key for the prompt of each output, equal where prompts of different models are the same.

    Vectors are compared in the lowest precision that any model has: the same prompts may be stored
    in single precision for one model and in double for another.
    """
    arrays = {}
    for model, samples in by_model.items():
        if samples.prompts is None:
            raise DataError(
                f"{samples.source} holds no prompts, and models are compared on the same ones."
            )
        if not isinstance(samples.prompts, tuple):
            arrays[model] = to_numpy(samples.prompts)
    floating = [array.dtype for array in arrays.values() if array.dtype.kind == "f"]
    lowest = min(floating, key=lambda dtype: dtype.itemsize, default=np.dtype(float))
    keys: dict[str, list[Key]] = {}
    for model, samples in by_model.items():
        if isinstance(samples.prompts, tuple):
            keys[model] = [_item_key(prompt) for prompt in samples.prompts]
        elif arrays[model].ndim == 1:
            # Python values are equal whatever the dtype that the ids are stored in.
            keys[model] = arrays[model].tolist()
        else:
            # Adding zero turns minus zero, which has other bytes, into zero.
            rows = np.ascontiguousarray(arrays[model].astype(lowest) + 0.0)
            keys[model] = [row.tobytes() for row in rows]
    return keys


def _item_key(prompt: Item) -> Key:
    if isinstance(prompt, Text):
        return prompt.text
    # By content: models may have copies of the same image under different paths.
    return prompt.digest()


def match_prompts(
    by_model: Mapping[str, Samples], keyword: str = "model_field"
) -> tuple[dict[str, list[int]], list[Notice]]:
    """Rows of each model: the same prompts in the same order, with the same number of outputs.

    `keyword` is what names the field of models, for the message where there are too few.
    """
    _require_models(by_model, keyword)
    _require_same_form(by_model)
    keys = prompt_keys(by_model)
    counts = {model: Counter(of_model) for model, of_model in keys.items()}
    every_prompt = set().union(*counts.values())
    in_all = every_prompt.intersection(*counts.values())
    if not in_all:
        raise DataError(_nothing_in_common(counts))
    # In the order of the first model, so that the answer does not depend on hashes.
    common = [key for key in dict.fromkeys(keys[next(iter(keys))]) if key in in_all]
    # Scores grow with the number of outputs per prompt, which would favour the model with more.
    fewest = {}
    for key in common:
        fewest[key] = min(count[key] for count in counts.values())
    matched = {}
    for model, samples in by_model.items():
        # The rows follow the order of `fewest`, so that unit i is the same prompt in all models.
        # `differences_of` subtracts errors unit by unit and relies on it.
        matched[model] = _choose_rows(samples, keys[model], fewest)
    notes = _outputs_left_out(by_model, matched)
    left_out = len(every_prompt) - len(common)
    if left_out:
        text = (
            f"{left_out:,} of {len(every_prompt):,} prompts left out, because some models have no "
            "outputs for them"
        )
        notes.append(Notice("prompts-left-out", text, "note"))
    return matched, notes


def _outputs_left_out(
    by_model: Mapping[str, Samples], matched: Mapping[str, list[int]]
) -> list[Notice]:
    """A note on how many outputs of each model are compared, if some are not."""
    shares = []
    for model, rows in matched.items():
        total = len(by_model[model])
        if len(rows) < total:
            shares.append(f"{len(rows):,} of {total:,} of {model}")
    if not shares:
        return []
    shown = shares[:_SHOWN_MODELS]
    if len(shares) > _SHOWN_MODELS:
        shown.append(f"and so on for {len(shares) - _SHOWN_MODELS:,} more models")
    text = (
        "models are compared on the same number of outputs for each prompt, so some are left out: "
        f"used are {', '.join(shown)}"
    )
    return [Notice("outputs-left-out", text, "note")]


def _require_models(by_model: Mapping[str, Samples], keyword: str) -> None:
    if len(by_model) >= 2:
        return
    noun = "field"
    if keyword == "model":
        noun = "column or field"
    way_out = f"Name the {noun} that holds the model (`{keyword}`), or give a source for each."
    for samples in by_model.values():
        way_out = hint_of_models(samples.warnings) or way_out
    raise DataError(f"a comparison needs at least two models; got {len(by_model)}. {way_out}")


def _require_same_form(by_model: Mapping[str, Samples]) -> None:
    """Refuse prompts that cannot be equal because they are of different kinds."""
    forms = {}
    for model, samples in by_model.items():
        if samples.prompts is not None:
            forms[model] = _form(samples.prompts)
    for model, form in forms.items():
        first, expected = next(iter(forms.items()))
        if form != expected:
            raise DataError(
                f"the prompts of {first} are {expected} and those of {model} are {form}, so none "
                "are the same: give the prompts of all models in the same form, as texts, ids, or "
                "vectors of one embedder."
            )


def _form(prompts: Side) -> str:
    """What prompts are, in words: only prompts of the same form can be the same."""
    if isinstance(prompts, tuple):
        return " and ".join(sorted({f"{NOUNS[prompt.modality]}s" for prompt in prompts}))
    array = to_numpy(prompts)
    if array.ndim > 1:
        return f"vectors of {counted(array.shape[1], 'number', 'numbers')}"
    if array.dtype.kind in "biuf":
        return "ids that are numbers"
    return "ids that are texts"


def _nothing_in_common(counts: Mapping[str, Counter[Key]]) -> str:
    """Why models cannot be compared, and what to do: spell prompts alike, or leave models out."""
    reason = "the models have no prompt in common; they can only be compared on the same ones"
    spellings = [set(map(_plain, of_model)) for of_model in counts.values()]
    num_alike = len(set.intersection(*spellings))
    if num_alike:
        differ = counted(num_alike, "prompt differs", "prompts differ")
        differ += " only by case, white space or Unicode form"
        return f"{reason}. {differ}: write them alike."
    partners = _most_in_common(counts)
    if partners is not None:
        return f"{reason}. {partners}."
    return f"{reason}."


def _plain(key: Key) -> Key:
    """The loose spelling of a text, and any other key as it is."""
    if isinstance(key, str):
        return loose_spelling(key)
    return key


def _most_in_common(prompts: Mapping[str, Collection[Key]]) -> str | None:
    """Which two of at least three models share most prompts; None where no two share any."""
    # Of many models, those with most prompts: the number of pairs grows with the square.
    models = sorted(prompts, key=lambda model: len(prompts[model]), reverse=True)[:_MOST_PAIRED]
    sets = {model: set(prompts[model]) for model in prompts if model in models}
    pairs = {pair: len(sets[pair[0]] & sets[pair[1]]) for pair in combinations(sets, 2)}
    first, second = max(pairs, key=pairs.__getitem__)
    shared = pairs[first, second]
    if not shared:
        return None
    return (
        f"Keep only models that share prompts, such as {first} and {second}, which share {shared:,}"
    )


def _choose_rows(samples: Samples, keys: Sequence[Key], numbers: Mapping[Key, int]) -> list[int]:
    """For each prompt, in order, the given number of its rows, chosen by their content."""
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    chosen = []
    for key, number in numbers.items():
        candidates = rows[key]
        # Contents are hashed only where there is a choice: that may read files.
        if number < len(candidates):
            # A hash prefers neither short outputs nor early ones. Equal outputs have equal hashes.
            digests = {row: _content_digest(samples.outputs, row) for row in candidates}
            ties = _tie_breakers(samples, key, digests)
            candidates.sort(key=lambda row: (digests[row], ties[row]))
            candidates = candidates[:number]
        # In the order of the rows, so that a prompt which keeps all outputs keeps it, too.
        chosen += sorted(candidates)
    return chosen


def _content_digest(outputs: Side, row: int) -> bytes:
    """SHA-256 of an output; vectors in single precision, in which most are stored."""
    if isinstance(outputs, tuple):
        return outputs[row].digest()
    vector = np.ascontiguousarray(to_numpy(outputs[row]), dtype=np.float32) + np.float32(0)
    return hashlib.sha256(vector.tobytes()).digest()


def _tie_breakers(
    samples: Samples, key: Key, digests: Mapping[int, bytes]
) -> dict[int, tuple[bytes, bytes]]:
    """What puts outputs of one prompt with equal digests in order: all digits, then a lot.

    It only matters which of equal outputs is kept if their qualities differ. Then each copy draws a
    lot, a hash: any order by quality would keep the worst or the best ones.
    """
    if samples.quality is None:
        return {row: (_full_content(samples.outputs, row), b"") for row in digests}
    # Ids that are equal have the same lots, whatever their type.
    prompt = key
    if isinstance(key, int | float):
        prompt = float(key)
    ties = {}
    copies: Counter[tuple[bytes, bytes, float]] = Counter()
    for row, digest in digests.items():
        content, quality = _full_content(samples.outputs, row), float(samples.quality[row]) + 0.0
        # Copies of the same quality are interchangeable, so it does not matter which comes first.
        copies[digest, content, quality] += 1
        lot = repr((prompt, digest, content, quality, copies[digest, content, quality]))
        ties[row] = content, hashlib.sha256(lot.encode("utf-8", "backslashreplace")).digest()
    return ties


def _full_content(outputs: Side, row: int) -> bytes:
    """The bytes of a vector in the precision it is stored in; empty for items."""
    if isinstance(outputs, tuple):
        return b""
    return np.ascontiguousarray(to_numpy(outputs[row]) + 0.0).tobytes()


def inequality_warnings(by_model: Mapping[str, Samples]) -> tuple[Notice, ...]:
    """Warnings where models that are scored side by side differ in numbers or prompts.

    Their scores then differ by that as well, and a reader of the table has to know.
    """
    sizes = {model: len(samples) for model, samples in by_model.items()}
    fewest, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    prompts: dict[str, set[Key]] = {}
    if all(samples.prompts is not None for samples in by_model.values()):
        prompts = {model: set(keys) for model, keys in prompt_keys(by_model).items()}
    num_all = len(set().union(*prompts.values()))
    num_common = 0
    if prompts:
        num_common = len(set.intersection(*prompts.values()))
    # A comparison refuses models without common prompts, so it is no way out for these.
    way_out = f"keep the same number of outputs of each model (`limit={sizes[fewest]}`)."
    if num_common:
        way_out = (
            "compare the models instead of scoring them, which keeps the same prompts, with the "
            "same number of outputs each, for all of them."
        )
    warnings = []
    if sizes[fewest] < sizes[most]:
        text = (
            f"the models have different numbers of outputs, from {sizes[fewest]:,} ({fewest}) to "
            f"{sizes[most]:,} ({most}), and scores grow with that number: {way_out}"
        )
        warnings.append(Notice("unequal-outputs", text))
    if num_common < num_all:
        text = (
            f"the models do not have the same prompts: {num_common:,} of {num_all:,} are common to "
            "all of them, and scores depend on the prompts"
        )
        if not num_common:
            way_out = _without_common_prompts(prompts)
        warnings.append(Notice("unequal-prompts", f"{text}: {way_out}"))
    return tuple(warnings)


def _without_common_prompts(prompts: Mapping[str, Collection[Key]]) -> str:
    """What to do where no prompt is common to all models."""
    partners = _most_in_common(prompts)
    if partners is not None:
        return f"{partners[:1].lower()}{partners[1:]}, and compare these."
    return (
        "differences may be due to the prompts, and a comparison of the models needs outputs of "
        "each for the same prompts."
    )
