"""`--fail-under`: scores that must not be lower than a number."""

import math

from divprism.analysis.evaluation import Results
from divprism.data.readers.guards import shown
from divprism.errors import ArgumentError, GateError
from divprism.scores.spec import LABELS, PROMPTS, REPEATED_PROMPTS, Need, score_spec


def parse_gates(texts: list[str]) -> dict[str, float]:
    """The least value of each score that --fail-under names."""
    gates: dict[str, float] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        try:
            least = float(number)
        except ValueError:
            least = math.nan
        if not math.isfinite(least) or name in gates:
            example = "a score, once, and a number, such as conditional_vendi=4.5"
            raise ArgumentError(f"--fail-under must be {example}; got {text!r}.")
        gates[score_spec(name, "fail_under").name] = least
    return gates


def check_possible(gates: dict[str, float], *, labels: bool, prompts: bool = True) -> None:
    """Refuse gates on scores that will not be computed, before anything is computed."""
    # Whether prompts repeat is not known before they are compared.
    present = {PROMPTS: prompts, REPEATED_PROMPTS: prompts, LABELS: labels}
    for name in gates:
        lacking = score_spec(name).missing_need([need for need in present if present[need]])
        if lacking is not None:
            raise _unchecked(name, lacking)


def _unchecked(name: str, need: Need) -> ArgumentError:
    return ArgumentError(f"--fail-under {name} cannot be checked: the score needs {need}.")


def check_gates(results: Results, gates: dict[str, float]) -> None:
    """Refuse results with a score below its gate, or without it: unchecked is not passed."""
    for name, least in gates.items():
        values = {model: result.scores.get(name) for model, result in results.items()}
        low = []
        for model, value in values.items():
            if value is None:
                raise _unchecked(name, " and ".join(score_spec(name).needs))
            if value < least:
                low.append(f"{name} of {shown(model)} is {value:.4g}".replace(" of  is", " is"))
        if low:
            others = f", as for {len(low):,} of {len(results):,} models" if len(low) > 1 else ""
            raise GateError(f"{low[0]}, below {least:g}{others} (--fail-under).")
