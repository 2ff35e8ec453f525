"""Score: a number that knows how it was computed; and how scores are assembled from entropies."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from divprism.core.spectrum import Estimate, Spectrum
from divprism.data.wording import counted_kinds
from divprism.errors import Notice
from divprism.estimators import Auto, Entropy, Fourier
from divprism.scores.problem import Problem, check_factors, entropies
from divprism.scores.settings import Settings
from divprism.scores.spec import ScoreSpec
from divprism.scores.truncation import LEVEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "SATURATION",
    "Score",
    "Solved",
    "assemble",
    "assemble_all",
    "combine",
    "compute_scores",
    "kinds_in",
    "saturation",
    "solve",
]

# A score of three entropies may have an error of sqrt(3) times the tolerance of each.
_MISSED = 2.0

# Operators that are solved in one call share their kernel matrices and random probes. Prompts
# compared as ids come second, so that they change no bit of the scores in the first group.
_SOLVED_TOGETHER = (("x", "t", "joint"), ("prompt_ids", "within_prompts"))


class Score(float):
    """A score: a float, with everything that is needed to compute it again.

    It compares, adds, rounds and formats as the number that it is.

    Attributes
    ----------
    name : str
        Which score it is.
    standard_error : float
        Error that the estimator adds (zero where it is exact); not the sampling error of the data.
    entropy : float
        Logarithm of the value, in nats.
    order, truncation
        Order of the entropy, and number of eigenvalues kept (None: all).
    n : int
        Number of outputs, or of pairs.
    method : str
        How the entropies were computed: "exact", "dual", "lanczos", "frobenius", ..., or several
        joined by "+".
    settings : Settings
        Settings that reproduce the score, every default resolved.
    warnings : tuple of Notice
        What a reader of the number should know.
    spectra : dict of Spectrum
        Eigenvalues that the score was computed from: "x" of the outputs, "t" of the prompts,
        "joint" of the pairs. Empty where none were needed, as at order 2.
    prompt_kinds : float or None
        Of a conditional score, the number of kinds of prompt that it is per.

    Examples
    --------
    >>> import numpy as np, divprism as dp
    >>> score = dp.vendi(np.eye(4), kernel=dp.Cosine())
    >>> score > 3, round(score, 2), f"{score:.1f}"
    (True, 4.0, '4.0')
    """

    name: str
    standard_error: float
    entropy: float
    order: float
    truncation: int | None
    n: int
    method: str
    settings: Settings
    warnings: tuple[Notice, ...]
    spectra: dict[str, Spectrum]
    prompt_kinds: float | None

    def __new__(
        cls,
        name: str,
        entropy: Entropy,
        *,
        order: float,
        n: int,
        settings: Settings,
        warnings: Iterable[Notice] = (),
        spectra: Mapping[str, Spectrum] | None = None,
        prompt_kinds: float | None = None,
    ) -> "Score":
        """A score from its logarithm, with the error and the method that come with it."""
        value = math.exp(entropy.estimate.value)
        # float is immutable: the number is set in __new__, and the rest are plain attributes.
        score = super().__new__(cls, value)
        score.name = name
        # To first order an error in the exponent is a relative error of the score.
        score.standard_error = value * entropy.estimate.standard_error
        score.entropy = entropy.estimate.value
        score.order = order
        score.truncation = settings.truncation
        score.n = n
        score.method = _join_methods([entropy.method])
        score.settings = settings
        score.warnings = tuple(warnings)
        score.spectra = dict(spectra or {})
        score.prompt_kinds = prompt_kinds
        return score

    def __reduce__(self) -> tuple[Any, ...]:
        # A float subclass with keyword arguments: pickle the number, then restore the attributes.
        return _restore, (float(self), self.__dict__)

    @property
    def value(self) -> float:
        """The score as a plain float."""
        return float(self)

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot the spectra that the score was computed from; without any, its value and error.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot into. Default: a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.plots import plot_score

        return plot_score(self, ax)

    # Only repr and str differ from float: format, round and arithmetic are those of the number.
    def __repr__(self) -> str:
        return f"<Score {self}>"

    def __str__(self) -> str:
        cut = ""
        if self.truncation is not None:
            cut = f", truncation {self.truncation}"
        error = ""
        if self.standard_error:
            error = f" +- {self.standard_error:.2g}"
        kinds = ""
        if self.prompt_kinds is not None:
            kinds = f"{counted_kinds(self.prompt_kinds)} of prompt, "
        how = f"{kinds}order {self.order:g}{cut}, n = {self.n}, {self.method}"
        return f"{self.name} = {self.value:.4f}{error} ({how})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<code>{escape(str(self))}</code>"

    def to_frame(self) -> Any:
        """The score as a data frame of one row (pandas or polars, whichever is installed)."""
        from divprism.report.tables import scores_table

        entry = self.to_dict() | {"interval": None}
        document = {"scores": {self.name: entry}, "data": {"n": self.n}}
        return scores_table({"": document}).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every number finite."""
        # JSON has no infinity.
        order: float | str = self.order
        if math.isinf(self.order):
            order = "inf"
        return {
            "value": self.value,
            "standard_error": self.standard_error,
            "entropy": self.entropy,
            "order": order,
            "truncation": self.truncation,
            "method": self.method,
        }


def _restore(value: float, attributes: dict[str, Any]) -> Score:
    score: Score = float.__new__(Score, value)
    score.__dict__.update(attributes)
    return score


def _join_methods(methods: Iterable[str]) -> str:
    # A method may be a sum already, where the operators of a score were solved differently.
    names = {name for method in methods for name in method.split("+")}
    return "+".join(sorted(names))


Solved = dict[float, dict[str, Entropy]]
"""Entropies and logarithms of means by order, then by the name of the operator or the mean."""


def solve(problem: Problem, specs: Sequence[ScoreSpec]) -> Solved:
    """The entropies that some scores are sums of, each operator solved once for all orders."""
    # Cluster scores are means of scores, not sums of entropies: `_group_mean` computes them.
    of_entropies = [spec for spec in specs if not spec.is_group_mean]
    order = problem.settings.order
    # At order 2 the Vendi and the RKE scores share their entropies.
    orders = list(dict.fromkeys(spec.order_under(order) for spec in of_entropies))
    # Means have no order; they stand beside the entropies of each.
    solved: Solved = {at: dict(problem.means) for at in orders}
    wanted = {operator for spec in of_entropies for operator in spec.operators}
    for together in _SOLVED_TOGETHER:
        names = [name for name in together if name in wanted]
        if not names:
            continue
        posed = _for_ids(problem, names)
        for at, row in zip(orders, entropies(posed, names, orders), strict=True):
            solved[at] |= row
    return solved


def _for_ids(problem: Problem, names: Sequence[str]) -> Problem:
    """The problem with an estimator that can solve some operators.

    Prompts compared as ids have no Fourier features. Their operators are block-diagonal, and the
    default solves them block by block, while the other operators keep the estimator given.
    """
    needs_other = isinstance(problem.settings.estimator, Fourier)
    if not needs_other or not set(names) <= {"prompt_ids", "within_prompts"}:
        return problem
    return replace(problem, settings=replace(problem.settings, estimator=Auto()))


def assemble_all(problem: Problem, specs: Sequence[ScoreSpec], solved: Solved) -> dict[str, Score]:
    """Scores by name, from the entropies that `solve` returned for them."""
    scores = {}
    for spec in specs:
        if spec.is_group_mean:
            scores[spec.name] = _group_mean(spec, problem)
        else:
            order = spec.order_under(problem.settings.order)
            scores[spec.name] = assemble(spec, solved[order], problem)
    return scores


def compute_scores(problem: Problem, specs: Sequence[ScoreSpec]) -> dict[str, Score]:
    """Some scores of a problem, by name."""
    return assemble_all(problem, specs, solve(problem, specs))


def assemble(spec: ScoreSpec, solved: Mapping[str, Entropy], problem: Problem) -> Score:
    """A score from the entropies of its operators."""
    entropy = combine(spec, solved)
    warnings = list(problem.warnings)
    # An estimator may run out of probes before it reaches the tolerance that it promises.
    promise = problem.settings.estimator.promise
    # That of the logarithm, which is the relative error of the score.
    error = entropy.estimate.standard_error
    if error > _MISSED * promise:
        text = (
            f"the relative standard error of {spec.name} is {error:.1e}, above the tolerance of "
            f"{promise:g}: quote the score with this error, or use the exact `estimator`."
        )
        warnings.append(Notice("tolerance-missed", text))
    spectra = {}
    for name in spec.terms:
        warnings += saturation(name, solved[name].estimate.value, problem)
        warnings += levelling(name, solved[name].estimate.value, problem)
        spectrum = solved[name].spectrum
        if spectrum is not None:
            spectra[name] = spectrum
    return Score(
        spec.name,
        entropy,
        order=spec.order_under(problem.settings.order),
        n=problem.n,
        settings=problem.settings,
        warnings=warnings,
        spectra=spectra,
        prompt_kinds=kinds_in(spec, solved),
    )


def kinds_in(spec: ScoreSpec, solved: Mapping[str, Entropy]) -> float | None:
    """The number of kinds of prompt that a score divides by; None if it divides by none."""
    if spec.terms.get("t") != -1:
        return None
    return math.exp(solved["t"].estimate.value)


def combine(spec: ScoreSpec, solved: Mapping[str, Entropy]) -> Entropy:
    """The logarithm of a score: the signed sum of the entropies of its operators."""
    # Deviations of the same probes cancel in a difference, so they are added with their signs.
    estimate = Estimate.total((sign, solved[name].estimate) for name, sign in spec.terms.items())
    return Entropy(estimate, _join_methods(solved[name].method for name in spec.terms))


def _group_mean(spec: ScoreSpec, problem: Problem) -> Score:
    """The score inside each group, averaged by the shares of the groups."""
    assert problem.within_labels is not None
    groups = list(problem.within_labels.groups())
    shares = [float(group.masses.sum()) for group in groups]
    order = spec.order_under(problem.settings.order)
    # The groups are parts of K_X: one check of the whole serves all of them.
    check_factors([problem.x], [])
    [inside] = problem.settings.estimator.entropies(
        groups, problem.question([order]), problem.resources
    )
    terms = []
    for share, entropy in zip(shares, inside, strict=True):
        # An error in the exponent becomes a relative error of the score.
        log = entropy.estimate
        score = math.exp(log.value)
        terms.append((share, Estimate(score, score * log.deviations, score * log.systematic)))
    # Conditional Vendi, App. G.1 averages the scores. The mean of their logarithms would be the
    # conditional score of disjoint groups at order 1 instead.
    mean = Estimate.total(terms)
    # Back to the logarithm, because a Score is made from its entropy.
    log_mean = Estimate(
        math.log(mean.value), mean.deviations / mean.value, mean.systematic / mean.value
    )
    methods = _join_methods(entropy.method for entropy in inside)
    return Score(
        spec.name,
        Entropy(log_mean, methods),
        order=order,
        n=problem.n,
        settings=problem.settings,
        warnings=problem.warnings,
    )


SATURATION = (
    "outputs-all-alike",
    "outputs-all-apart",
    "prompts-all-alike",
    "prompts-all-apart",
)
"""Codes of the warnings about a bandwidth at which a score carries no information."""

_ALIKE = 1.01  # an effective number up to this counts as one
_APART = 0.95  # an effective number from this share of all items counts as all of them
_FEWEST = 10  # items; below this number saturation is no news


def levelling(operator: str, entropy: float, problem: Problem) -> list[Notice]:
    """A warning where a truncation keeps so few eigenvalues that they all become equal.

    What is cut off is spread evenly over the eigenvalues kept. Where that is most of the spectrum,
    the entropy is the logarithm of their number, whatever the data are.
    """
    truncation = problem.truncation
    if truncation is None or operator not in _LEVELLED or problem.weights.size < _FEWEST:
        return []
    # A cut that leaves most eigenvalues takes little away, even from those that are all equal.
    cuts_deep = truncation <= problem.weights.size / 2
    if not cuts_deep or math.exp(entropy) < LEVEL * truncation:
        return []
    text = (
        f"the truncation of {truncation:,} cuts off so much of the spectrum of the "
        f"{_LEVELLED[operator]} that the rest says little: raise it, or leave it out."
    )
    return [Notice("truncation-too-small", text)]


_LEVELLED = {"x": "outputs", "joint": "pairs"}


def saturation(operator: str, entropy: float, problem: Problem) -> list[Notice]:
    """What is wrong with the bandwidth of one side, from the effective number of its items.

    Prompts that are all apart are reported only where they do not repeat: there Conditional is 1
    whatever the model does. Where each prompt has several outputs, Conditional is their diversity
    under the exact prompt, which is a sensible question.
    """
    side = {"x": problem.x, "t": problem.t}.get(operator)
    # Only a kernel with a bandwidth can have a wrong one.
    if side is None or side.kernel.bandwidth is None or side.size < _FEWEST:
        return []
    count = math.exp(entropy)
    noun = {"x": "outputs", "t": "prompts"}[operator]
    bandwidth = f"the bandwidth of the {noun} (now {side.kernel.bandwidth:.3g})"
    if count <= _ALIKE:
        consequence = "conditional equals vendi"
        if operator == "x":
            consequence = "vendi is 1 whatever they are"
        text = f"all {side.size:,} distinct {noun} count as the same, so {consequence}"
        return [Notice(f"{noun}-all-alike", f"{text}; lower {bandwidth}.")]
    if operator == "x" and count >= _APART * side.size:
        text = (
            f"nearly all of the {side.size:,} distinct outputs count as unrelated, so vendi is "
            "near their number whatever they are"
        )
        return [Notice("outputs-all-apart", f"{text}; raise {bandwidth}.")]
    # Compared with the number of pairs, not of distinct prompts: only prompts that hardly repeat
    # leave each output alone.
    if operator == "t" and count >= _APART * problem.n:
        text = (
            f"nearly each of the {problem.n:,} pairs has its own kind of prompt, so conditional "
            "is near 1 whatever the outputs are"
        )
        way_out = f"raise {bandwidth}, or generate several outputs per prompt"
        return [Notice("prompts-all-apart", f"{text}; {way_out}.")]
    return []
