"""The table of scores. Everything that computes, bounds, prints or plots a score reads it here.

A score is exp of a sum of terms. Most terms are Renyi entropies of trace-one matrices, the
operators:

| operator         | matrix                                                      |
|------------------|-------------------------------------------------------------|
| `x`              | K_X / n, the kernel matrix of the outputs                   |
| `t`              | K_T / n, the kernel matrix of the prompts                   |
| `joint`          | K_X o K_T / n, their entry-wise product                     |
| `prompt_ids`     | K_T / n with prompts compared as ids: equal or unrelated    |
| `within_prompts` | K_X o K_T / n with prompts compared as ids                  |
| `within_labels`  | K_X / n inside the groups given as labels                   |

Where each output has a number of its own, there is one more term, the logarithm of a mean:

| mean             | of what                                                     |
|------------------|-------------------------------------------------------------|
| `quality`        | the quality of each output, at least zero                   |

To add a score, add a row to `SCORES`, and a function to `scores/functions.py` if users should be
able to call it alone.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from divprism.errors import ArgumentError

__all__ = [
    "LABELS",
    "MEANS",
    "OPERATORS",
    "PROMPTS",
    "QUALITY",
    "REPEATED_PROMPTS",
    "SCORES",
    "Need",
    "ScoreSpec",
    "available",
    "curve_spec",
    "is_score",
    "score_spec",
    "truncated_name",
]

OPERATORS = ("x", "t", "joint", "prompt_ids", "within_prompts", "within_labels")
"""The names of the operators, as in the table above."""

MEANS = ("quality",)
"""The names of the means whose logarithms are terms."""

PROMPTS = "prompts"
REPEATED_PROMPTS = "repeated prompts"
LABELS = "labels"
QUALITY = "a quality of each output"
Need = str
"""What a score needs beside the outputs: one of the four texts above."""

Limits = Callable[[int, float, int | None], tuple[float, float]]


def _limits_of_count(n: int, order: float, truncation: int | None) -> tuple[float, float]:
    """An effective number of items: from one to all of them, or to the eigenvalues kept."""
    if truncation is None:
        return 1.0, float(n)
    return 1.0, float(min(n, truncation))


def _limits_of_conditional(n: int, order: float, truncation: int | None) -> tuple[float, float]:
    """The eigenvalues of K_X o K_T are majorised by those of K_T, so the ratio is at least 1.

    Truncated spectra need not be majorised: only the upper limit of a count is left.
    """
    # K_X has a unit diagonal, and the entry-wise product with such a matrix is majorised by the
    # other factor (Bapat and Sunder, 1985). Renyi entropies of every order are Schur-concave.
    if truncation is None:
        return 1.0, float(n)
    return 0.0, float(min(n, truncation))


def _limits_of_information(n: int, order: float, truncation: int | None) -> tuple[float, float]:
    """Subadditivity gives at least 1, but holds at order 1 without truncation only."""
    # The entropies of other orders are not subadditive, so Information may fall below 1.
    lowest = 0.0
    if order == 1 and truncation is None:
        lowest = 1.0
    # H(X) + H(T) - H(X, T) is at most H(X): the eigenvalues of the product are majorised by those
    # of K_T. Truncated spectra need not be majorised, so there is no upper limit.
    highest = math.inf
    if truncation is None:
        highest = float(n)
    return lowest, highest


def _limits_of_quality(n: int, order: float, truncation: int | None) -> tuple[float, float]:
    """A quality is at least zero, and has a scale of its own."""
    return 0.0, math.inf


@dataclass(frozen=True)
class ScoreSpec:
    """One score: what it is made of, what it needs, what it means.

    Attributes
    ----------
    name : str
        The name in Python, on the command line and in files.
    title : str
        The name in sentences and on pages.
    heading : str
        The name at the head of a column, short.
    family : str
        Scores that differ only in their order share a family; plots colour by it.
    terms : mapping of str to +1 or -1
        The logarithm of the score is the sum of these terms with these signs: entropies of
        operators, and logarithms of means.
    order : float or None
        Order of the entropies; None for the order in the settings.
    needs : tuple of str
        What the score needs beside the outputs.
    meaning : str
        Meaning of the number, in a few words.
    noun : str
        What the number counts, so that "5 " and the noun read well; empty for factors and for
        scores with a quality in them, which count nothing.
    limits : callable
        (n, order, truncation) -> lowest and highest value that any sample of n pairs can have.
    is_group_mean : bool
        True for the cluster scores: the mean over groups of the score inside each group, in place
        of a sum of entropies.
    """

    name: str
    title: str
    heading: str
    family: str
    terms: Mapping[str, int]
    order: float | None
    needs: tuple[Need, ...]
    meaning: str
    noun: str
    limits: Limits
    is_group_mean: bool = False

    def order_under(self, order: float) -> float:
        """The order of this score under settings with `order`."""
        if self.order is None:
            return order
        return self.order

    @property
    def operators(self) -> dict[str, int]:
        """The terms that are entropies of operators, with their signs."""
        return {name: sign for name, sign in self.terms.items() if name in OPERATORS}

    def log_value(self, terms: Mapping[str, float]) -> float:
        """The logarithm of the score, from the values of its terms."""
        return sum(sign * terms[name] for name, sign in self.terms.items())

    def is_computable(self, terms: Collection[str]) -> bool:
        """Whether all terms of the score are among those given."""
        return set(self.terms) <= set(terms)

    def missing_need(self, present: Collection[Need]) -> Need | None:
        """The first need of the score that the data do not meet; None if they meet all."""
        for need in self.needs:
            if need not in present:
                return need
        return None


# Mappings that cannot be changed: a row of the table is shared by everything that reads it.
def _terms(**signs: int) -> Mapping[str, int]:
    return MappingProxyType(signs)


# Conditional and Information are Conditional Vendi, eq. 6 and 7. Their terms add up to those of the
# outputs, so that vendi = conditional x information (eq. 8) holds at every order and truncation.
_OUTPUTS = _terms(x=1)
_CONDITIONAL = _terms(joint=1, t=-1)
_INFORMATION = _terms(x=1, t=1, joint=-1)
_PROMPTS = _terms(t=1)
_PER_PROMPT = _terms(within_prompts=1, prompt_ids=-1)
_WITHIN_LABELS = _terms(within_labels=1)
# Nguyen and Dieng 2024 multiply the mean quality by Vendi; the other factor here is Conditional.
_QUALITY = _terms(quality=1)
_QUALITY_OF_OUTPUTS = _terms(quality=1, x=1)
_QUALITY_CONDITIONAL = _terms(quality=1, joint=1, t=-1)

SCORES: tuple[ScoreSpec, ...] = (
    ScoreSpec(
        name="vendi",
        title="Vendi",
        heading="vendi",
        family="vendi",
        terms=_OUTPUTS,
        order=None,
        needs=(),
        meaning="distinct outputs",
        noun="distinct outputs",
        limits=_limits_of_count,
    ),
    ScoreSpec(
        name="conditional_vendi",
        title="Conditional-Vendi",
        heading="conditional",
        family="conditional",
        terms=_CONDITIONAL,
        order=None,
        needs=(PROMPTS,),
        meaning="distinct outputs per kind of prompt",
        noun="distinct outputs per kind of prompt",
        limits=_limits_of_conditional,
    ),
    ScoreSpec(
        name="information_vendi",
        title="Information-Vendi",
        heading="information",
        family="information",
        terms=_INFORMATION,
        order=None,
        needs=(PROMPTS,),
        meaning="factor that the prompts add",
        noun="",
        limits=_limits_of_information,
    ),
    ScoreSpec(
        name="prompt_vendi",
        title="Prompt-Vendi",
        heading="kinds",
        family="prompts",
        terms=_PROMPTS,
        order=None,
        needs=(PROMPTS,),
        meaning="kinds of prompt",
        noun="kinds of prompt",
        limits=_limits_of_count,
    ),
    ScoreSpec(
        name="per_prompt_vendi",
        title="Per-prompt Vendi",
        heading="per prompt",
        family="per_prompt",
        terms=_PER_PROMPT,
        order=None,
        needs=(PROMPTS, REPEATED_PROMPTS),
        meaning="distinct outputs per exact prompt",
        noun="distinct outputs per exact prompt",
        limits=_limits_of_conditional,
    ),
    ScoreSpec(
        name="quality",
        title="Quality",
        heading="quality",
        family="quality",
        terms=_QUALITY,
        order=None,
        needs=(QUALITY,),
        meaning="mean quality of an output",
        noun="",
        limits=_limits_of_quality,
    ),
    ScoreSpec(
        name="quality_conditional_vendi",
        title="Quality x Conditional-Vendi",
        heading="quality x conditional",
        family="quality_conditional",
        terms=_QUALITY_CONDITIONAL,
        order=None,
        needs=(PROMPTS, QUALITY),
        meaning="distinct outputs per kind of prompt x mean quality",
        noun="",
        limits=_limits_of_quality,
    ),
    ScoreSpec(
        name="quality_vendi",
        title="Quality x Vendi",
        heading="quality x vendi",
        family="quality_vendi",
        terms=_QUALITY_OF_OUTPUTS,
        order=None,
        needs=(QUALITY,),
        meaning="distinct outputs x mean quality",
        noun="",
        limits=_limits_of_quality,
    ),
    ScoreSpec(
        name="rke",
        title="RKE",
        heading="rke",
        family="vendi",
        terms=_OUTPUTS,
        order=2.0,
        needs=(),
        meaning="distinct outputs, order 2",
        noun="distinct outputs at order 2",
        limits=_limits_of_count,
    ),
    ScoreSpec(
        name="conditional_rke",
        title="Conditional-RKE",
        heading="conditional rke",
        family="conditional",
        terms=_CONDITIONAL,
        order=2.0,
        needs=(PROMPTS,),
        meaning="per kind of prompt, order 2",
        noun="distinct outputs per kind of prompt at order 2",
        limits=_limits_of_conditional,
    ),
    ScoreSpec(
        name="information_rke",
        title="Information-RKE",
        heading="information rke",
        family="information",
        terms=_INFORMATION,
        order=2.0,
        needs=(PROMPTS,),
        meaning="factor that the prompts add, order 2",
        noun="",
        limits=_limits_of_information,
    ),
    ScoreSpec(
        name="prompt_rke",
        title="Prompt-RKE",
        heading="prompt rke",
        family="prompts",
        terms=_PROMPTS,
        order=2.0,
        needs=(PROMPTS,),
        meaning="kinds of prompt, order 2",
        noun="kinds of prompt at order 2",
        limits=_limits_of_count,
    ),
    ScoreSpec(
        name="per_prompt_rke",
        title="Per-prompt RKE",
        heading="per prompt rke",
        family="per_prompt",
        terms=_PER_PROMPT,
        order=2.0,
        needs=(PROMPTS, REPEATED_PROMPTS),
        meaning="per exact prompt, order 2",
        noun="distinct outputs per exact prompt at order 2",
        limits=_limits_of_conditional,
    ),
    ScoreSpec(
        name="cluster_vendi",
        title="Cluster-Vendi",
        heading="cluster",
        family="cluster",
        terms=_WITHIN_LABELS,
        order=None,
        needs=(LABELS,),
        meaning="mean inside the given groups",
        noun="distinct outputs inside a group",
        limits=_limits_of_count,
        is_group_mean=True,
    ),
    ScoreSpec(
        name="cluster_rke",
        title="Cluster-RKE",
        heading="cluster rke",
        family="cluster",
        terms=_WITHIN_LABELS,
        order=2.0,
        needs=(LABELS,),
        meaning="mean inside the groups, order 2",
        noun="distinct outputs inside a group at order 2",
        limits=_limits_of_count,
        is_group_mean=True,
    ),
)
"""Every score, in the order in which tables show them."""

_BY_NAME = {spec.name: spec for spec in SCORES}


def is_score(name: object) -> bool:
    """Whether a score of that name exists."""
    return isinstance(name, str) and name in _BY_NAME


def score_spec(name: str, argument: str = "score") -> ScoreSpec:
    """The row of the table with that name.

    >>> score_spec("conditional_rke").order
    2.0
    """
    if not is_score(name):
        names = ", ".join(_BY_NAME)
        raise ArgumentError(f"`{argument}` must be one of {names}; got {name!r}.")
    return _BY_NAME[name]


def available(terms: Collection[str]) -> tuple[ScoreSpec, ...]:
    """The scores that can be computed from some terms: operators and means."""
    return tuple(spec for spec in SCORES if spec.is_computable(terms))


def truncated_name(spec: ScoreSpec) -> str:
    """The name of a truncated score beside the plain one, as in convergence curves."""
    return f"truncated_{spec.name}"


# Names of curves are looked up here, never taken apart.
_BY_CURVE = {spec.name: (spec, False) for spec in SCORES}
_BY_CURVE |= {truncated_name(spec): (spec, True) for spec in SCORES}


def curve_spec(name: str) -> tuple[ScoreSpec, bool]:
    """The score that a convergence curve is about, and whether it is truncated.

    >>> spec, is_truncated = curve_spec("truncated_vendi")
    >>> spec.name, is_truncated
    ('vendi', True)
    """
    return _BY_CURVE[name]
