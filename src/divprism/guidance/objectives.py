"""Objective: which score a gradient climbs. A frozen description; the gradient itself is in `divprism.guidance`."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from divprism.core.validation import check_order, check_truncation
from divprism.errors import ArgumentError
from divprism.scores.registry import keywords

__all__ = ["GUIDANCE", "OBJECTIVES", "Objective", "guidance_settings", "objective"]


@dataclass(frozen=True)
class Objective:
    """A score to climb: Vendi, Conditional-Vendi, or at order 2 RKE and Conditional-RKE.

    At order 2 without truncation a new sample costs O(n d), because sums of squared kernel values suffice; everything else
    needs the eigenvectors of an n x n matrix. `objective` gives the usual ones by name.

    Attributes
    ----------
    conditional : bool
        Whether diversity counts beyond what the prompts bring.
    order : float
        Order of the entropy: any positive number, or math.inf.
    truncation : int or None
        Number of eigenvalues kept of each spectrum, the rest being spread over them (Conditional Vendi, eq. 23); None: all.

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
        """Whether sums of squared kernel values suffice, so that no eigenvalue is needed."""
        return self.order == 2 and self.truncation is None


OBJECTIVES: dict[str, Objective] = {
    "vendi": Objective(),
    "rke": Objective(order=2.0),
    "conditional_vendi": Objective(conditional=True),
    "conditional_rke": Objective(conditional=True, order=2.0),
}
"""Scores that guidance climbs."""

_LATENT: dict[str, Any] = {"strength": 0.03, "every": 10, "bandwidth_z": 0.8}
GUIDANCE: dict[str, dict[str, Any]] = {
    "vendi": _LATENT,
    "rke": _LATENT,
    "conditional_vendi": _LATENT | {"bandwidth_t": 0.3},
    "conditional_rke": _LATENT | {"bandwidth_t": 0.3},
}
"""Settings of latent guidance in the paper's Table 1 by the score that it climbs (Conditional Vendi, App. E.3).

No text bandwidth is told for Conditional-Vendi: it is that of Conditional-RKE. The truncation of 10,000 (App. E.1) keeps every
eigenvalue of a window of 300.
"""


def objective(text: str) -> Objective:
    """The objective that a spelling stands for; those that have no order in their name also take one.

    >>> objective("conditional_vendi(truncation=50)")
    Objective(conditional=True, order=1.0, truncation=50)
    """
    name, bracket, rest = text.strip().partition("(")
    if name.strip() not in OBJECTIVES or (bracket and not rest.endswith(")")):
        raise ArgumentError(f"there is no objective {text!r}; choose from {', '.join(OBJECTIVES)}.")
    base = OBJECTIVES[name.strip()]
    takes = ["order", "truncation"] if base.order == 1 else ["truncation"]
    given = keywords(rest[:-1], text, "objective")
    unknown = [key for key in given if key not in takes]
    if unknown:
        raise ArgumentError(
            f"objective {name.strip()} has no setting {unknown[0]!r}; it takes {', '.join(takes)}."
        )
    return dataclasses.replace(base, **given)


def guidance_settings(name: str) -> dict[str, Any]:
    """Settings of the guidance that the paper names so.

    >>> guidance_settings("rke")
    {'score': 'rke', 'strength': 0.03, 'every': 10, 'bandwidth_z': 0.8}
    """
    if name not in GUIDANCE:
        raise ArgumentError(
            f"there is no preset {name!r} of guidance; choose from {', '.join(GUIDANCE)}."
        )
    return {"score": name, **GUIDANCE[name]}
