"""Gates: scores that must not be lower than a number (`fail_under`)."""

import math

from divprism.analysis.evaluation import Results
from divprism.data.readers.guards import shown
from divprism.errors import ArgumentError, GateError
from divprism.scores.spec import LABELS, PROMPTS, QUALITY, REPEATED_PROMPTS, score_spec

__all__ = ["check_gates", "check_possible", "low_scores", "parse_gates"]

_UNCHECKED = "{} cannot be checked: the score needs {}."
_FAIL_UNDER = "`fail_under={}`"  # how messages call a gate


def parse_gates(texts: list[str], *, labels: bool) -> dict[str, float]:
    """Return the least value of each score, from texts such as "vendi=4.5"."""
    gates: dict[str, float] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        try:
            least = float(number)
        except ValueError:
            least = math.nan  # refused below
        if not math.isfinite(least) or name in gates:
            example = "a score, once, and a number, such as conditional_vendi=4.5"
            raise ArgumentError(f"`fail_under` must be {example}; got {text!r}.")
        gates[score_spec(name, "fail_under").name] = least
    check_possible(gates, labels=labels)
    return gates


def check_possible(
    gates: dict[str, float],
    *,
    labels: bool,
    prompts: bool = True,
    quality: bool = True,
    argument: str = _FAIL_UNDER,
) -> None:
    """Refuse gates on scores that will not be computed, before anything is computed."""
    # Whether prompts repeat is not known before they are compared.
    present = {
        PROMPTS: prompts,
        REPEATED_PROMPTS: prompts,
        LABELS: labels,
        QUALITY: quality,
    }
    for name in gates:
        lacking = score_spec(name).missing_need([need for need in present if present[need]])
        if lacking is not None:
            raise ArgumentError(_UNCHECKED.format(argument.format(name), lacking))


def low_scores(
    results: Results, gates: dict[str, float], argument: str = _FAIL_UNDER
) -> list[tuple[str, str]]:
    """Model and score wherever a score is below its gate; one that is missing is refused."""
    low = []
    for name, least in gates.items():
        for model, result in results.items():
            value = result.scores.get(name)
            if value is None:
                # Unchecked is not passed.
                needs = " and ".join(score_spec(name).needs)
                raise ArgumentError(_UNCHECKED.format(argument.format(name), needs))
            # "not >=" rather than "<", so that NaN does not pass.
            if not value >= least:
                low.append((model, name))
    return low


def check_gates(results: Results, gates: dict[str, float]) -> None:
    """Refuse results with a score below its gate, or without it."""
    low = low_scores(results, gates)
    if not low:
        return
    model, name = low[0]
    subject = name
    if model:  # "" if not named
        subject = f"{name} of {shown(model)}"
    others = ""
    count = sum(each == name for _, each in low)
    if count > 1:
        others = f", as for {count:,} of {len(results):,} models"
    value = results[model].scores[name]
    relation = _relation(value)
    limit = f"{gates[name]:g}{others}"
    raise GateError(f"{subject} is {value:.4g}, {relation} {limit} (`fail_under`).")


def _relation(value: float) -> str:
    if math.isnan(value):
        return "which is not at least"
    return "below"
