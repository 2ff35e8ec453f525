"""Score: the result of every score, and how it is put together from entropies, with what its reader should know."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from divprism.core.kernels import Gaussian
from divprism.core.spectrum import Estimate, Spectrum
from divprism.estimators import Entropy
from divprism.scores.problem import Problem

__all__ = [
    "COMBINATIONS",
    "SATURATED",
    "Score",
    "build_score",
    "combined",
    "saturation",
    "score_from",
]

_CLEARLY = (
    2.0  # times the tolerance: a score of three entropies may have an error of the root of three
)

COMBINATIONS: dict[str, dict[str, int]] = {
    "vendi": {"x": 1},
    "conditional_vendi": {"joint": 1, "t": -1},
    "information_vendi": {"x": 1, "t": 1, "joint": -1},
    "rke": {"x": 1},
    "conditional_rke": {"joint": 1, "t": -1},
    "information_rke": {"x": 1, "t": 1, "joint": -1},
}
"""How each score is put together: the log of the score is this sum of entropies."""


@dataclass(frozen=True)
class Score:
    """One score and everything needed to compute it again. `float(score)` is its value.

    Attributes
    ----------
    name : str
        Which score it is.
    value : float
        The score, an effective number.
    standard_error : float
        Error of the value that the estimator brings (zero where it is exact); not the sampling error of the data.
    entropy : float
        Logarithm of the value, in nats.
    order, truncation
        Order of the entropy, and number of eigenvalues kept (None: all).
    n : int
        Number of outputs, or of pairs.
    method : str
        How the entropies were found: "exact", "dual", "lanczos", "frobenius", ..., or several joined by "+".
    settings : dict
        Keyword arguments that give this score again, every default resolved.
    warnings : tuple of str
        What a reader of the number should know.
    spectra : dict of Spectrum
        Eigenvalues that the score was made from: "x" of the outputs, "t" of the prompts, "joint" of the pairs. Empty where
        none were needed, as at order 2.
    """

    name: str
    value: float
    standard_error: float
    entropy: float
    order: float
    truncation: int | None
    n: int
    method: str
    settings: dict[str, Any] = field(repr=False)
    warnings: tuple[str, ...] = ()
    spectra: dict[str, Spectrum] = field(default_factory=dict, repr=False, compare=False)

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the spectra that the score was made from, on log axes; where there are none, its value with its error.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; default a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.plots import draw_spectra, draw_values, new_axes

        figure, ax = new_axes(ax)
        if self.spectra:
            draw_spectra(
                ax, {name: (one.values, one.weights) for name, one in self.spectra.items()}
            )
        else:
            draw_values(
                ax,
                {
                    self.name: (
                        self.value,
                        self.value - self.standard_error,
                        self.value + self.standard_error,
                    )
                },
            )
        ax.set_title(str(self).replace(" (", "\n(", 1), fontsize="medium")
        return figure, ax

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        cut = "" if self.truncation is None else f", truncation {self.truncation}"
        error = f" +- {self.standard_error:.2g}" if self.standard_error else ""
        return f"{self.name} = {self.value:.4f}{error} (order {self.order:g}{cut}, n = {self.n}, {self.method})"


def score_from(name: str, found: dict[str, Entropy], problem: Problem, order: float) -> Score:
    """Put a score together from the entropies of its operators."""
    entropy, promise = combined(name, found), problem.settings["estimator"].promise
    warnings = problem.warnings
    if entropy.estimate.standard_error > _CLEARLY * promise:
        missed = f"{name}: the relative standard error is {entropy.estimate.standard_error:.1e}, above the tolerance of {promise:g}."
        warnings = (*warnings, missed)
    warnings += tuple(
        text
        for operator in COMBINATIONS[name]
        for text in saturation(operator, found[operator].estimate.value, problem)
    )
    spectra = {
        operator: one
        for operator in COMBINATIONS[name]
        if (one := found[operator].spectrum) is not None
    }
    score = build_score(
        name, entropy, order, settings=problem.settings, n=problem.n, warnings=warnings
    )
    return replace(score, spectra=spectra)


_ALIKE, _APART, _ENOUGH = (
    1.01,
    0.95,
    10,
)  # effective number, part of all, and fewest items that a warning is given for


SATURATED = ("outputs-all-alike", "outputs-all-apart", "prompts-all-alike", "prompts-all-apart")
"""What warnings about a bandwidth begin with."""


def saturation(operator: str, entropy: float, problem: Problem) -> list[str]:
    """What is wrong with the bandwidth of one side, told by the effective number of items that it sees.

    Prompts that are all apart are warned of only where they do not repeat: there Conditional is 1 whatever the model does.
    Where each has several outputs it is their diversity under the exact prompt, as with `Categorical()`: a question that can be
    asked, tells models apart, and is what the default rule comes to for a dozen prompts that have little in common.
    """
    side = {"x": problem.x, "t": problem.t}.get(operator)
    if side is None or not isinstance(side.kernel, Gaussian) or side.size < _ENOUGH:
        return []
    found, width = math.exp(entropy), f"bandwidth_{operator} (now {side.kernel.bandwidth:.3g})"
    if found <= _ALIKE:
        means = "vendi is 1 whatever they are" if operator == "x" else "conditional equals vendi"
        what = {"x": "outputs", "t": "prompts"}[operator]
        return [
            f"{what}-all-alike: all {side.size:,} distinct {what} count as one, so {means}; lower {width}."
        ]
    if operator == "x" and found >= _APART * side.size:
        return [
            f"outputs-all-apart: nearly all of {side.size:,} distinct outputs count as unlike any other; raise {width}."
        ]
    if operator == "t" and found >= _APART * problem.n:
        told = f"prompts-all-apart: nearly each of {problem.n:,} pairs has a kind of prompt to itself, so conditional is near 1"
        return [
            f"{told} whatever the outputs are; raise {width}, or draw several outputs per prompt."
        ]
    return []


def combined(name: str, found: dict[str, Entropy]) -> Entropy:
    """The logarithm of a score from the entropies of its operators."""
    terms = COMBINATIONS[name]
    entropy = Estimate.total((sign, found[operator].estimate) for operator, sign in terms.items())
    return Entropy(entropy, _joined(found[operator].method for operator in terms))


def _joined(methods: Iterable[str]) -> str:
    return "+".join(sorted({part for method in methods for part in method.split("+")}))


def build_score(
    name: str,
    entropy: Entropy,
    order: float,
    *,
    settings: dict[str, Any],
    n: int,
    warnings: tuple[str, ...] = (),
) -> Score:
    """A `Score` with the settings under the names that the function called `name` takes them by."""
    settings = dict(settings)
    if name.endswith("rke"):
        del settings["order"]
    if COMBINATIONS.get(name, {"x": 1}) == {"x": 1}:  # a score of the outputs alone
        settings = {"kernel": settings.pop("kernel_x")} | settings
        del settings["kernel_t"]
    value = math.exp(entropy.estimate.value)
    return Score(
        name=name,
        value=value,
        standard_error=value * entropy.estimate.standard_error,
        entropy=entropy.estimate.value,
        order=order,
        truncation=settings["truncation"],
        n=n,
        method=_joined([entropy.method]),
        settings=settings,
        warnings=warnings,
    )
