"""Gates: scores that must not be lower than a number (`fail_under`)."""

import math

from divprism.analysis.evaluation import Results
from divprism.data.readers.guards import shown
from divprism.errors import ArgumentError, GateError
from divprism.scores.spec import LABELS, PROMPTS, REPEATED_PROMPTS, score_spec

__all__ = ["check_gates", "check_possible", "parse_gates"]

_UNCHECKED = "`fail_under={}` cannot be checked: the score needs {}."


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


def check_possible(gates: dict[str, float], *, labels: bool, prompts: bool = True) -> None:
    """Refuse gates on scores that will not be computed, before anything is computed."""
    # Whether prompts repeat is not known before they are compared.
    present = {PROMPTS: prompts, REPEATED_PROMPTS: prompts, LABELS: labels}
    for name in gates:
        lacking = score_spec(name).missing_need([need for need in present if present[need]])
        if lacking is not None:
            raise ArgumentError(_UNCHECKED.format(name, lacking))


def check_gates(results: Results, gates: dict[str, float]) -> None:
    """Refuse results with a score below its gate, or without it: unchecked is not passed."""
    for name, least in gates.items():
        low = []
        for model, result in results.items():
            value = result.scores.get(name)
            if value is None:
                raise ArgumentError(_UNCHECKED.format(name, " and ".join(score_spec(name).needs)))
            # "not >=" rather than "<", so that NaN does not pass.
            if not value >= least:
                subject = f"{name} of {shown(model)}" if model else name  # "" if not named
                low.append(f"{subject} is {value:.4g}, {_relation(value)} {least:g}")
        if low:
            others = f", as for {len(low):,} of {len(results):,} models" * (len(low) > 1)
            raise GateError(f"{low[0]}{others} (`fail_under`).")


def _relation(value: float) -> str:
    if math.isnan(value):
        return "which is not at least"
    return "below"
