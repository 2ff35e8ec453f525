"""Files to prompts by the names of the files, with or without a list of prompts."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from divprism.data.readers.fields import Findings
from divprism.data.readers.guards import shown
from divprism.data.samples import Item, Text, clean_text
from divprism.errors import DataError

__all__ = ["by_list", "by_name"]

_NUMBERED = re.compile(r"(?s)(.+)-(\d+)")
_COUNTED = re.compile(
    r"(?s)(.+)[-_ ]\(?\d+\)?"
)  # looser: a list of prompts tells whether it is one
_INDEXED = re.compile(r"(\d+)[-_](\d+)")
_UNSAFE = [
    re.compile(chars) for chars in (r"/", r'[<>:"/\\|?*\x00-\x1f]', r"[!-/:-@\[-`{-~]")
]  # Unix, Windows, the careful
_WAY_OUT = "say which belong together in a metadata.jsonl with file_name and prompt."


def by_name(names: Sequence[str], folder: Path, findings: Findings) -> list[Item] | None:
    """Prompts from `{prompt}-{index}.ext`; None if the names do not follow it."""
    matches = [_NUMBERED.fullmatch(name) for name in names]
    unlike = [name for name, match in zip(names, matches, strict=True) if match is None]
    if len(unlike) == len(names):
        findings.notes.append(
            f"{shown(folder)}: {len(names):,} files whose names tell no prompt; only vendi and rke can be had"
        )
        return None
    if unlike:
        raise DataError(
            f"{len(unlike):,} of {len(names):,} files in {shown(folder)} are not named prompt-index: {shown(unlike[0])}, ..."
        )
    prompts = [match[1] for match in matches if match is not None]
    if all(prompt.isdecimal() for prompt in prompts):
        raise DataError(
            f"names of files in {shown(folder)} are numbers only (first: {shown(names[0])}), which tell no prompt; give a list "
            "of prompts (--prompts LIST), or a metadata.jsonl with file_name and prompt."
        )
    findings.notes.append(
        f"{shown(folder)}: files named prompt-index, {len(set(prompts)):,} prompts"
    )
    return [Text(clean_text(prompt), shown(folder)) for prompt in prompts]


def by_list(
    names: Sequence[str], prompts: Sequence[Item], folder: Path, findings: Findings
) -> list[Item]:
    """Prompts from a list: by their texts in the names, by their numbers in the names, or one by one in natural order."""
    paired = _by_text(names, prompts, folder, findings) or _by_number(
        names, prompts, folder, findings
    )
    if paired is not None:
        return paired
    if len(names) != len(prompts):
        raise DataError(
            f"{len(names):,} files in {shown(folder)} and {len(prompts):,} prompts do not pair up one to one; {_WAY_OUT}"
        )
    findings.notes.append(
        f"{shown(folder)}: paired in natural order of names, {shown(names[0])} to {shown(names[-1])}"
    )
    return list(prompts)


def _by_text(
    names: Sequence[str], prompts: Sequence[Item], folder: Path, findings: Findings
) -> list[Item] | None:
    """Prompts that the names tell, with an index or without; None if no name tells one."""
    known = _by_file_name([prompt for prompt in prompts if isinstance(prompt, Text)])
    wholes = [known.get(unicodedata.normalize("NFC", name)) for name in names]
    heads = [
        known.get(unicodedata.normalize("NFC", match[1]))
        if (match := _COUNTED.fullmatch(name))
        else None
        for name in names
    ]
    found = heads if all(heads) else wholes if all(wholes) else None
    if found is None:
        for name, whole, head in zip(names, wholes, heads, strict=True):
            if whole is not None and head is not None and whole is not head:
                raise DataError(
                    f"{shown(name)} in {shown(folder)} fits two prompts, with and without its index; {_WAY_OUT}"
                )
        found = [whole or head for whole, head in zip(wholes, heads, strict=True)]
    if not any(found):
        return None
    unlike = [name for name, prompt in zip(names, found, strict=True) if prompt is None]
    if unlike:
        raise DataError(
            f"{len(unlike):,} of {len(names):,} files in {shown(folder)} are named after no prompt of the list "
            f"(first: {shown(unlike[0])}), while others are; rename them, or {_WAY_OUT}"
        )
    paired: list[Item] = [prompt for prompt in found if prompt is not None]
    given = len({prompt.text for prompt in prompts if isinstance(prompt, Text)})
    used = len({prompt.text for prompt in found if prompt is not None})
    _tell_unused(given - used, given, folder, findings)
    findings.notes.append(f"{shown(folder)}: files named after the prompts, {used:,} prompts")
    return paired


def _by_file_name(prompts: Sequence[Text]) -> dict[str, Text]:
    """Prompts by what files of theirs may be called; a form that several share stands for none of them."""
    exact: dict[str, Text] = {}
    for prompt in prompts:
        exact.setdefault(unicodedata.normalize("NFC", prompt.text), prompt)
    forms: dict[str, list[Text]] = {}
    for text, prompt in exact.items():
        for form in set(_safe_forms(text)):
            forms.setdefault(form, []).append(prompt)
    return {form: found[0] for form, found in forms.items() if len(found) == 1} | exact


def _safe_forms(text: str) -> Iterator[str]:
    """A text with the characters that files are not named by replaced or left out, and with its blanks replaced.

    >>> "a_cat_dog" in _safe_forms("a cat/dog"), "what is it" in _safe_forms("what is it?")
    (True, True)
    """
    for unsafe in _UNSAFE:
        for filler in ("_", "-", " ", ":", ""):
            form = unsafe.sub(filler, text)
            yield from (form, form.replace(" ", "_"), form.replace(" ", "-"))


def _by_number(
    names: Sequence[str], prompts: Sequence[Item], folder: Path, findings: Findings
) -> list[Item] | None:
    """Prompts by `{number of the prompt}_{index}`; None if names are not so, or pair up one to one as well."""
    unlike = [name for name in names if not _INDEXED.fullmatch(name)]
    numbers = [int(match[1]) for name in names if (match := _INDEXED.fullmatch(name))]
    repeat = len(set(numbers)) < len(numbers)
    if not numbers or (not repeat and (unlike or len(names) == len(prompts))):
        return None
    if unlike:
        raise DataError(
            f"{len(unlike):,} of {len(names):,} files in {shown(folder)} are not named number_index: {shown(unlike[0])}, ..."
        )
    low, high, count = min(numbers), max(numbers), len(prompts)
    first = 0 if low == 0 else 1
    counted = f"files in {shown(folder)} count prompts from {low} to {high}, of {count:,} given"
    if high - first >= count:
        raise DataError(f"{counted}.")
    if low > 0 and high < count:
        raise DataError(f"{counted}, which fits a count from 0 and one from 1; {_WAY_OUT}")
    _tell_unused(count - len(set(numbers)), count, folder, findings)
    findings.notes.append(
        f"{shown(folder)}: files named prompt number and index, prompts counted from {first}"
    )
    return [prompts[number - first] for number in numbers]


def _tell_unused(unused: int, given: int, folder: Path, findings: Findings) -> None:
    if unused:
        findings.add(f"{unused:,} of {given:,} prompts have no file in {shown(folder)}.")
