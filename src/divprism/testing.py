"""Assertions for tests of generative models."""

from typing import Any

from divprism.analysis.evaluate import evaluate
from divprism.analysis.evaluation import Evaluation, Results
from divprism.analysis.gates import check_possible, low_scores
from divprism.core.kernels.base import finite_number
from divprism.data.readers.guards import shown
from divprism.scores.spec import is_score, score_spec

__all__ = ["assert_diverse"]

_DEFAULT_LIMITS = {"conditional_vendi": 4.0}


def assert_diverse(outputs: object, prompts: object = None, **limits_and_options: Any) -> None:
    """Raise AssertionError if a score of the outputs is below its limit.

    Give bandwidths, as kernels or as the settings of an earlier result: one that is chosen on the
    data makes the limit mean something else tomorrow.

    Parameters
    ----------
    outputs, prompts
        As `x` and `t` of `evaluate`.
    **limits_and_options
        Limits by the names of scores, such as `vendi=20`; `conditional_vendi=4.0` if there is none.
        All other keywords are those of `evaluate`, `quality` included. Intervals have the level
        0.95 if none is given; they are in the message and do not decide.

    Raises
    ------
    AssertionError
        With each score that is too low, its value, its interval and its limit.
    ArgumentError
        For a limit that cannot be checked: on a conditional score without prompts, for example.

    Examples
    --------
    >>> import numpy as np, divprism as dp
    >>> from divprism.testing import assert_diverse
    >>> x, t = np.eye(50), np.repeat(np.arange(10), 5)  # five different outputs for each prompt
    >>> assert_diverse(x, t, conditional_vendi=4.5, kernel_x=dp.Cosine())
    >>> assert_diverse(x, vendi=60, kernel_x=dp.Cosine(), interval=None)
    Traceback (most recent call last):
    AssertionError: vendi is 50, below the limit of 60.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    limits, options = {}, {}
    for name, value in limits_and_options.items():
        # `quality` is the argument of `evaluate`, not a limit on its mean.
        if is_score(name) and score_spec(name).operators:
            limits[name] = finite_number(value, name, "a finite number")
        else:
            options[name] = value
    limits = limits or _DEFAULT_LIMITS
    check_possible(limits, labels=options.get("labels") is not None, argument="`{}`")
    settings = options.get("settings")
    if getattr(settings, "interval", None) is None:
        options.setdefault("interval", 0.95)
    result = evaluate(outputs, prompts, **options)
    if isinstance(result, Evaluation):
        result = Results.of(result)
    low = low_scores(result, limits, argument="`{}`")
    if low:
        failures = [_failure(result[model], model, name, limits[name]) for model, name in low]
        raise AssertionError(", and ".join(failures) + ".")


def _failure(result: Evaluation, model: str, name: str, limit: float) -> str:
    """A clause about a score that is too low."""
    subject = name
    if model:
        subject = f"{name} of {shown(model)}"
    within = ""
    if name in result.intervals:
        interval = result.intervals[name]
        ends = f"{interval.low:.4g} to {interval.high:.4g}"
        within = f" ({100 * interval.level:g} % interval {ends})"
    return f"{subject} is {result.scores[name]:.4g}{within}, below the limit of {limit:g}"
