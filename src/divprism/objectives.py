"""Objective: which score a gradient climbs. A frozen description; the gradient itself is in `divprism.guidance`."""

from dataclasses import dataclass

from divprism._validate import check_order, check_truncation
from divprism.errors import ArgumentError

__all__ = ["Objective"]


@dataclass(frozen=True)
class Objective:
    """A score to climb: Vendi, Conditional-Vendi, or at order 2 RKE and Conditional-RKE.

    At order 2 without truncation a new sample costs O(n d), because sums of squared kernel values suffice; everything else
    needs the eigenvectors of an n x n matrix. `registry.objective` gives the usual ones by name.

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
