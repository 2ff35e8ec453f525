"""Objective: a frozen description of the score that a gradient climbs."""

import dataclasses
from dataclasses import dataclass

from divprism.core.validation import check_order, check_truncation
from divprism.errors import ArgumentError
from divprism.scores.registry import keywords
from divprism.scores.spec import SCORES

__all__ = ["OBJECTIVES", "Objective", "as_objective", "objective"]


@dataclass(frozen=True)
class Objective:
    """A score to climb: Vendi or Conditional-Vendi of any order; order 2 gives the two RKE scores.

    At order 2 without truncation a new sample costs O(n d), because sums of squared kernel values
    are enough; everything else needs the eigenvectors of an n x n matrix. `objective` returns the
    usual objectives by name.

    Attributes
    ----------
    conditional : bool
        Whether to count only the diversity beyond what the prompts bring.
    order : float
        Order of the entropy: any positive number, or math.inf.
    truncation : int or None
        Number of eigenvalues to keep in each spectrum; the remaining mass is spread evenly over
        them (Conditional Vendi, eq. 23). None keeps all.

    Examples
    --------
    >>> Objective(conditional=True, order=2).by_squares, Objective(order=2, truncation=5).by_squares
    (True, False)
    """

    conditional: bool = False
    order: float = 1.0
    truncation: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.conditional, bool):
            raise ArgumentError(f"`conditional` must be True or False; got {self.conditional!r}.")
        object.__setattr__(self, "order", check_order(self.order))
        object.__setattr__(self, "truncation", check_truncation(self.truncation))

    @property
    def by_squares(self) -> bool:
        """Whether sums of squared kernel values are enough, so that no eigenvalue is needed."""
        return self.order == 2 and self.truncation is None


def _objectives() -> dict[str, Objective]:
    objectives = {}
    for spec in SCORES:
        for terms, conditional in _DIFFERENTIABLE:
            if spec.terms == terms:
                objectives[spec.name] = Objective(conditional, spec.order_under(1.0))
    return objectives


# Sums of entropies whose gradient in the samples is implemented, and whether they use prompts.
_DIFFERENTIABLE: tuple[tuple[dict[str, int], bool], ...] = (
    ({"x": 1}, False),
    ({"joint": 1, "t": -1}, True),
)

OBJECTIVES = _objectives()
"""The scores that guidance can climb, by name: everything about a name is read from here."""

_LONGEST = 100  # letters of an objective with its settings


def objective(text: str) -> Objective:
    """Return the objective with this name, with any settings given in parentheses.

    Names that imply an order, such as "rke", take `truncation` only; the others also take `order`.

    >>> objective("conditional_vendi(truncation=50)")
    Objective(conditional=True, order=1.0, truncation=50)
    """
    name, parenthesis, rest = text.strip().partition("(")
    name = name.strip()
    is_closed = not parenthesis or rest.endswith(")")
    if name not in OBJECTIVES or not is_closed or len(text) > _LONGEST:
        raise ArgumentError(
            f"there is no objective {text[:_LONGEST]!r}; choose from {', '.join(OBJECTIVES)}."
        )
    base = OBJECTIVES[name]
    accepted = ["truncation"]
    # The name "rke" means order 2, so another order would contradict it.
    if base.order == 1:
        accepted = ["order", "truncation"]
    settings = keywords(rest[:-1], text, "objective")
    unknown = [key for key in settings if key not in accepted]
    if unknown:
        raise ArgumentError(
            f"objective {name} has no setting {unknown[0]!r}; it takes {', '.join(accepted)}."
        )
    return dataclasses.replace(base, **settings)


def as_objective(score: object) -> Objective:
    """Return the `score` argument of a public function as an `Objective`."""
    if isinstance(score, str):
        return objective(score)
    if not isinstance(score, Objective):
        raise ArgumentError(
            f"`score` must be a name such as 'conditional_rke', or an Objective; got {score!r}."
        )
    return score
