"""Pairing of files with prompts by the names of the files, with or without a list of prompts."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from divprism.data.items import Item, Text, clean_text
from divprism.data.readers.fields import Findings
from divprism.data.readers.guards import shown
from divprism.data.readers.hidden_models import warn_about_file_names
from divprism.data.wording import agreeing
from divprism.errors import DataError

__all__ = ["by_list", "by_name"]

_NUMBERED = re.compile(r"(?s)(.+)-(\d+)")
_UNDERSCORED = re.compile(r"(?s)(.+)_(\d+)")
# Looser than _NUMBERED: with a list of prompts, the rest of the name can be checked against it.
_COUNTED = re.compile(r"(?s)(.+)[-_ ]\(?\d+\)?")
_INDEXED = re.compile(r"(\d+)[-_](\d+)")
# Characters that programs replace in file names: on Unix, on Windows, and by careful ones.
_UNSAFE = (
    re.compile(r"/"),
    re.compile(r'[<>:"/\\|?*\x00-\x1f]'),
    re.compile(r"[!-/:-@\[-`{-~]"),
)
_FILLERS = ("_", "-", " ", ":", "")
_METADATA = "a metadata.jsonl with file_name and prompt"


def by_name(names: Sequence[str], folder: Path, findings: Findings) -> list[Item] | None:
    """Return the prompts in names of the form `{prompt}-{index}`; None if no name has it.

    If all names have the form `{prompt}_{index}`, and with several prompts, it is read as well.

    Parameters
    ----------
    names : sequence of str
        File names without suffix.
    folder : Path
        Their folder, for messages.
    findings : Findings
        Receives notes.
    """
    prompts = []
    unmatched = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            unmatched.append(name)
        else:
            prompts.append(match[1])
    if not prompts:
        underscored = _by_underscore(names, folder, findings)
        if underscored is not None:
            return underscored
    # A note and not an error: outputs alone can be scored, too.
    if not prompts:
        findings.note(
            f"{shown(folder)}: {len(names):,} files whose names contain no prompt; "
            "only vendi and rke can be computed"
        )
        return None
    if unmatched:
        raise DataError(_misnamed(unmatched, len(names), folder, "prompt-index"))
    if all(prompt.isdecimal() for prompt in prompts):
        # 00000-99123.png is the number and the seed of an image; neither is a prompt.
        raise DataError(
            f"the file names in {shown(folder)} are only numbers (first: {shown(names[0])}) and "
            f"contain no prompt; pass a list of prompts as `prompts`, or add {_METADATA}."
        )
    count = len(set(prompts))
    findings.note(f"{shown(folder)}: files named prompt-index, {count:,} prompts")
    warn_about_file_names(folder, prompts, findings)
    return [Text(clean_text(prompt), shown(folder)) for prompt in prompts]


def _by_underscore(names: Sequence[str], folder: Path, findings: Findings) -> list[Item] | None:
    """Return the prompts in names of the form `{prompt}_{index}`; None if they may hold none.

    Cameras and programs name files like this, too, so that all of them must have the form, and
    IMG_0001 to IMG_0099 hold no prompt.
    """
    matches = [_UNDERSCORED.fullmatch(name) for name in names]
    prompts = [match[1] for match in matches if match is not None]
    if len(prompts) < len(names) or len(set(prompts)) < 2:
        return None
    if any(prompt.isdecimal() for prompt in prompts):
        return None
    warn_about_file_names(folder, prompts, findings)
    spaces = ""
    # Where no name has a blank, underscores stand for them.
    has_blank = any(" " in prompt for prompt in prompts)
    has_underscore = any("_" in prompt for prompt in prompts)
    if has_underscore and not has_blank:
        prompts = [prompt.replace("_", " ") for prompt in prompts]
        spaces = ", underscores as spaces"
    count = len(set(prompts))
    findings.note(f"{shown(folder)}: files named prompt_index, {count:,} prompts{spaces}")
    return [Text(clean_text(prompt), shown(folder)) for prompt in prompts]


def _misnamed(unmatched: Sequence[str], total: int, folder: Path, form: str) -> str:
    are = agreeing(len(unmatched), "is", "are")
    return (
        f"{len(unmatched):,} of {total:,} files in {shown(folder)} {are} not named {form} "
        f"(first: {shown(unmatched[0])}); rename all files to that form, or add {_METADATA}."
    )


def by_list(
    names: Sequence[str], prompts: Sequence[Item], folder: Path, findings: Findings
) -> list[Item]:
    """Return the prompt of each file from a list of prompts.

    Prompts are matched by their texts in the names, else by their numbers in the names, else
    one to one in natural order.

    Parameters
    ----------
    names : sequence of str
        File names without suffix, in natural order.
    prompts : sequence of Item
        The list of prompts.
    folder : Path
        The folder of the files, for messages.
    findings : Findings
        Receives notes and warnings.
    """
    # In this order: a name that contains a prompt is stronger evidence than a number.
    for pairing in (_by_text, _by_number):
        paired = pairing(names, prompts, folder, findings)
        if paired is not None:
            return paired
    if len(names) != len(prompts):
        raise DataError(
            f"{len(names):,} files in {shown(folder)} and {len(prompts):,} prompts do not pair up "
            f"one to one; pair them in {_METADATA}."
        )
    findings.note(
        f"{shown(folder)}: paired in natural order of names, "
        f"{shown(names[0])} to {shown(names[-1])}"
    )
    return list(prompts)


def _by_text(
    names: Sequence[str], prompts: Sequence[Item], folder: Path, findings: Findings
) -> list[Item] | None:
    """Pair files with the prompts that their names contain; None if no name contains one."""
    known = _by_file_name([prompt for prompt in prompts if isinstance(prompt, Text)])
    matches = _matches(names, known, folder)
    paired: list[Item] = [prompt for prompt in matches if prompt is not None]
    if not paired:
        return None
    # Pairing the rest by order could be wrong for every file, silently.
    if len(paired) < len(names):
        missing = len(names) - len(paired)
        first = names[matches.index(None)]
        match = agreeing(missing, "matches", "match")
        raise DataError(
            f"{missing:,} of {len(names):,} files in {shown(folder)} {match} no prompt of the "
            f"list (first: {shown(first)}), while others do; rename them, or add {_METADATA}."
        )
    num_given = _num_texts(prompts)
    num_used = _num_texts(paired)
    _warn_unused(num_given - num_used, num_given, folder, findings)
    findings.note(f"{shown(folder)}: files named after the prompts, {num_used:,} prompts")
    return paired


def _matches(names: Sequence[str], known: dict[str, Text], folder: Path) -> list[Text | None]:
    """Return the prompt in each name: with an index if all have one, else however it fits."""
    # "route 66" may be a prompt, or the file 66 of the prompt "route".
    whole = [known.get(unicodedata.normalize("NFC", name)) for name in names]
    indexed = [_before_index(name, known) for name in names]
    # One reading that fits every file settles the question for all of them.
    for reading in (indexed, whole):
        if all(reading):
            return reading
    either: list[Text | None] = []
    for name, by_whole, by_index in zip(names, whole, indexed, strict=True):
        if by_whole is not None and by_index is not None and by_whole is not by_index:
            raise DataError(
                f"{shown(name)} in {shown(folder)} fits two prompts, with and without its index; "
                f"name its prompt in {_METADATA}."
            )
        either.append(by_whole or by_index)
    return either


def _before_index(name: str, known: dict[str, Text]) -> Text | None:
    match = _COUNTED.fullmatch(name)
    if match is None:
        return None
    return known.get(unicodedata.normalize("NFC", match[1]))


def _num_texts(prompts: Sequence[Item]) -> int:
    return len({prompt.text for prompt in prompts if isinstance(prompt, Text)})


def _by_file_name(prompts: Sequence[Text]) -> dict[str, Text]:
    """Return prompts by the names that their files may have.

    A name that several prompts share stands for none of them, unless it is the exact text of one.
    """
    exact: dict[str, Text] = {}
    for prompt in prompts:
        # A prompt that occurs twice in the list is one prompt.
        exact.setdefault(unicodedata.normalize("NFC", prompt.text), prompt)
    owners: dict[str, list[Text]] = {}
    # Programs differ in what they replace; all common combinations are generated.
    for text, prompt in exact.items():
        for form in set(_safe_forms(text)):
            owners.setdefault(form, []).append(prompt)
    unambiguous = {form: texts[0] for form, texts in owners.items() if len(texts) == 1}
    return unambiguous | exact


def _safe_forms(text: str) -> Iterator[str]:
    """Yield a text as a file name: unsafe characters and blanks replaced or left out.

    >>> "a_cat_dog" in _safe_forms("a cat/dog"), "what is it" in _safe_forms("what is it?")
    (True, True)
    """
    for unsafe in _UNSAFE:
        for filler in _FILLERS:
            form = unsafe.sub(filler, text)
            yield from (form, form.replace(" ", "_"), form.replace(" ", "-"))


def _by_number(
    names: Sequence[str], prompts: Sequence[Item], folder: Path, findings: Findings
) -> list[Item] | None:
    """Pair files named `{number of the prompt}_{index}` with the prompts of these numbers.

    Returns None if names have another form, or if they pair up one to one as well.
    """
    numbers = []
    unmatched = []
    for name in names:
        match = _INDEXED.fullmatch(name)
        if match is None:
            unmatched.append(name)
        else:
            numbers.append(int(match[1]))
    if not numbers:
        return None
    # Numbers that never repeat may just as well count the files.
    repeat = len(set(numbers)) < len(numbers)
    if not repeat and (unmatched or len(names) == len(prompts)):
        return None
    if unmatched:
        raise DataError(_misnamed(unmatched, len(names), folder, "number_index"))
    start = _first_number(numbers, len(prompts), folder)
    num_unused = len(prompts) - len(set(numbers))
    _warn_unused(num_unused, len(prompts), folder, findings)
    findings.note(
        f"{shown(folder)}: files named prompt number and index, prompts counted from {start}"
    )
    return [prompts[number - start] for number in numbers]


def _first_number(numbers: Sequence[int], count: int, folder: Path) -> int:
    """Return whether numbers count prompts from 0 or from 1, or refuse what fits both."""
    low, high = min(numbers), max(numbers)
    # Only numbering that starts at 0 contains a 0.
    start = min(low, 1)
    counted = f"files in {shown(folder)} number their prompts {low} to {high}, of {count:,} given"
    if high - start >= count:
        raise DataError(f"{counted}; the list of prompts is too short.")
    # With unused prompts at either end, both readings are possible.
    if low > 0 and high < count:
        raise DataError(
            f"{counted}, which fits counting from 0 and from 1; pair them in {_METADATA}."
        )
    return start


def _warn_unused(unused: int, given: int, folder: Path, findings: Findings) -> None:
    if unused:
        have = agreeing(unused, "has", "have")
        findings.warn(
            "prompts-without-files",
            f"{unused:,} of {given:,} prompts {have} no file in {shown(folder)}.",
        )
