"""`--fail-under`: scores that must not be lower than a number."""

import math

from divprism.analysis.evaluation import Results
from divprism.data.readers.guards import shown
from divprism.errors import ArgumentError, GateError
from divprism.scores.spec import LABELS, PROMPTS, REPEATED_PROMPTS, SCORES, is_score, score_spec

__all__ = ["check_gates", "check_possible", "parse_gates"]


def parse_gates(texts: list[str]) -> dict[str, float]:
    """The least value of each score that --fail-under names."""
    gates: dict[str, float] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if name in gates:
            raise ArgumentError(f"--fail-under names {name} twice.")
        try:
            gates[name] = float(number)
        except ValueError:
            gates[name] = math.nan
        if not math.isfinite(gates[name]):
            raise ArgumentError(
                "--fail-under must be a score and a number, such as conditional_vendi=4.5; "
                f"got {text!r}."
            )
        if not is_score(name):
            names = ", ".join(spec.name for spec in SCORES)
            raise ArgumentError(f"--fail-under must name one of {names}; got {name!r}.")
    return gates


def check_possible(gates: dict[str, float], *, labels: bool, prompts: bool = True) -> None:
    """Refuse gates on scores that will not be computed, before anything is computed."""
    present = set()
    if labels:
        present.add(LABELS)
    if prompts:
        # Whether prompts repeat is only known once they are compared.
        present |= {PROMPTS, REPEATED_PROMPTS}
    for name in gates:
        need = score_spec(name).missing_need(present)
        if need is not None:
            raise ArgumentError(f"--fail-under {name} cannot be checked: the score needs {need}.")


def check_gates(results: Results, gates: dict[str, float]) -> None:
    """Refuse results with a score below its gate, or without it: an unchecked gate is not passed."""
    for name, least in gates.items():
        values = {model: getattr(result, name) for model, result in results.items()}
        if None in values.values():
            needs = " and ".join(score_spec(name).needs)
            raise ArgumentError(f"--fail-under {name} cannot be checked: the score needs {needs}.")
        low = [model for model, value in values.items() if value < least]
        if not low:
            continue
        subject, others = name, ""
        if low[0]:
            subject = f"{name} of {shown(low[0])}"
        if len(low) > 1:
            others = f", as for {len(low):,} of {len(results):,} models"
        raise GateError(
            f"{subject} is {values[low[0]]:.4g}, below {least:g}{others} (--fail-under)."
        )
