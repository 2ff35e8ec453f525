"""Checks of what samples say: file names read as texts, refusals, prompts that are nearly equal.

None of these stops a run. Each is a warning with its count, because the scores mean something else
than a reader would think.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence

from divprism.data.items import Text
from divprism.data.media import media_kind
from divprism.data.readers.fields import Findings
from divprism.data.readers.guards import shown
from divprism.data.samples import Samples, Side
from divprism.data.wording import NOUNS, agreeing, counted, excerpt, excerpts, loose_spelling

__all__ = ["is_refusal", "warn_about_content"]

# Share of texts that look like file names from which on they hardly are anything else.
_SHARE_OF_NAMES = 0.5
# Share of refusals, of all outputs or of those of one model, that is worth a warning: below it
# they change a score by less than its interval.
_SHARE_OF_REFUSALS = 0.1
_START = 300  # characters in which a refusal shows
_SHOWN = 60  # characters of a text inside a message

# The start of a refusal: an apology or none, then "I" that cannot, will not or is not able to, or
# the model that presents itself as one. Apostrophes are straight or typographic.
_REFUSAL = re.compile(
    r"""[\s"'*\u201c]*
    (?:(?:i\s*['\u2019]?\s*a?m\s+)?(?:so\s+|very\s+|truly\s+)?sorry\b[^.!?\n]{0,40}?[,.!;:]?\s*
       |(?:my\s+)?apologies[,.!;:]?\s*
       |i\s+apologi[sz]e[^.!?\n]{0,40}?[,.!;:]?\s*
       |unfortunately[,]?\s*)?
    (?:but\s+|however,?\s+)?
    (?:as\s+an?\s+(?:ai|artificial\s+intelligence|large\s+language|language\s+model)\b
       |i\s*(?:['\u2019]m|\s+am)\s+(?:just\s+|only\s+)?an\s+ai\b
       |i\s+(?:really\s+|simply\s+)?
        (?:can\s*not|can['\u2019]?t|won['\u2019]?t|will\s+not|am\s+not\s+able|am\s+unable)\b
        [^.!?\n]{0,30}?\b
        (?:help|assist|provide|fulfil|fulfill|comply|generate|create|write|discuss|
           continue|engage|support|offer|respond|complete|produce|share|process)\b
       |i\s*['\u2019]m\s+(?:not\s+able|unable)\s+to\s+
        (?:help|assist|provide|fulfil|fulfill|comply|answer|generate|create|write|discuss|
           continue|engage|support|offer|respond|complete|produce|share|process|do)\b
       |(?:we|this\s+assistant)\s+can\s*not\s+(?:help|assist|provide|comply)\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)


def warn_about_content(
    samples: Samples, findings: Findings, as_texts: Collection[str] = ()
) -> None:
    """Warn about texts that are probably not what a reader of the scores expects.

    Parameters
    ----------
    samples : Samples
        As read, without empty outputs.
    findings : Findings
        Receives the warnings.
    as_texts : collection of str, optional
        The sides, "output" and "prompt", that the user declares to be texts.
    """
    for name, side in (("output", samples.outputs), ("prompt", samples.prompts)):
        if name not in as_texts:
            _warn_about_names(name, _strings(side), findings)
    _warn_about_refusals(_strings(samples.outputs), samples.models, findings)
    _warn_about_near_copies(_strings(samples.prompts), findings)


def _strings(side: Side | None) -> list[str]:
    """Return the texts of a side; empty for files and arrays."""
    if not isinstance(side, tuple):
        return []
    return [item.text for item in side if isinstance(item, Text)]


def _warn_about_names(name: str, strings: Sequence[str], findings: Findings) -> None:
    names = [text for text in strings if media_kind(text)]
    if not names or len(names) < _SHARE_OF_NAMES * len(strings):
        return
    kind = media_kind(names[0]) or "image"
    look = agreeing(len(names), "looks", "look")
    findings.warn(
        "file-names-as-texts",
        f"{len(names):,} of {len(strings):,} {name}s {look} like names of {NOUNS[kind]} files "
        f"(first: {excerpt(names[0], _SHOWN)}), but no such file was found and the names "
        "themselves are scored as texts. Give paths that exist; those in a table start at its "
        f"folder, and `{name}_kind={kind}` insists on files.",
    )


def is_refusal(text: str) -> bool:
    """Whether a text starts as models start when they decline to answer, in English.

    >>> is_refusal("I'm sorry, but I can't help with that."), is_refusal("I'm sorry I am late.")
    (True, False)
    """
    # Only the start: the time of a search may grow with the square of a run of blanks.
    return _REFUSAL.match(text[:_START]) is not None


def _warn_about_refusals(
    outputs: Sequence[str], models: Sequence[str] | None, findings: Findings
) -> None:
    refused = [row for row, text in enumerate(outputs) if is_refusal(text)]
    if not refused:
        return
    # By model: one that declines everything disappears among nine that do not.
    names = models or [""] * len(outputs)
    totals = Counter(names)
    counts = Counter(names[row] for row in refused)
    worst = max(counts, key=lambda model: counts[model] / totals[model])
    if counts[worst] < _SHARE_OF_REFUSALS * totals[worst]:
        return
    look = agreeing(len(refused), "looks like a refusal", "look like refusals")
    of_model = ""
    if len(totals) > 1:
        of_model = f", {counts[worst]:,} of {totals[worst]:,} of {shown(worst)}"
    first = next(outputs[row] for row in refused if names[row] == worst)
    findings.warn(
        "refusals",
        f"{len(refused):,} of {len(outputs):,} outputs {look}{of_model} (first: "
        f"{excerpt(first, _SHOWN)}). They resemble each other whatever the prompt, so "
        "they lower the scores; drop them from the data to score the answers alone.",
    )


def _warn_about_near_copies(prompts: Sequence[str], findings: Findings) -> None:
    spellings: dict[str, dict[str, None]] = {}
    for prompt in dict.fromkeys(prompts):
        spellings.setdefault(loose_spelling(prompt), {})[prompt] = None
    groups = [list(group) for group in spellings.values() if len(group) > 1]
    if not groups:
        return
    first = excerpts(groups[0][0], groups[0][1], _SHOWN)
    differ = counted(len(groups), "group of prompts differs", "groups of prompts differ")
    findings.warn(
        "prompts-nearly-equal",
        f"{differ} only by case, white space or Unicode form (first: {first}). They count as "
        "different prompts; write them alike if they are the same.",
    )
