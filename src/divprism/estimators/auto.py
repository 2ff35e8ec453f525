"""Auto: the cheapest estimator that is exact, or else precise enough."""

from collections.abc import Sequence
from dataclasses import dataclass

from divprism.core.norms import squares_work
from divprism.core.operators import Operator
from divprism.core.spectrum import Spectrum
from divprism.engines import RESOURCES, Resources
from divprism.estimators._direct import CHEAP_SIZE, direct_spectra
from divprism.estimators.base import QUESTION, Cost, Entropy, Estimator, Question, check_tolerance
from divprism.estimators.dual import Dual
from divprism.estimators.exact import Exact
from divprism.estimators.lanczos import Lanczos
from divprism.estimators.subsample import Subsample

__all__ = ["Auto", "Choice"]

# Operations that take a quarter of an hour.
_TOO_LONG = 1e14


@dataclass(frozen=True)
class Choice:
    """The estimator that `Auto` selects, and its cost."""

    estimator: Estimator
    cost: Cost


@dataclass(frozen=True)
class Auto(Estimator):
    """The default: exact if that is cheap, otherwise precise to `tolerance`.

    The rule, for each of K_X, K_T and their product, with n the number of distinct items in a
    connected part of it:

    1. order 2 without truncation: squared norms, exactly; beyond 10^14 operations (n about
       300,000), `Subsample`;
    2. a kernel with fewer than n and at most 3,000 features (Cosine, Polynomial of low degree):
       `Dual`, exact;
    3. n of at most 3,000: `Exact`;
    4. otherwise `Lanczos(tolerance=tolerance)`: the standard error of a score is at most about the
       tolerance times the score; a score that clearly misses it carries a warning.

    `select` returns the choice and its cost.

    Attributes
    ----------
    tolerance : float
        Relative error of a score that counts as precise.
    """

    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)

    @property
    def promise(self) -> float:
        """The tolerance."""
        return self.tolerance

    def select(
        self, n: int, d_x: int, d_t: int | None = None, *, features: int | None = None
    ) -> Choice:
        """The estimator for n distinct items of width d_x (and prompts of width d_t), and its cost.

        Parameters
        ----------
        n, d_x, d_t
            Number of distinct items, widths of outputs and prompts; no d_t for the outputs alone.
        features
            Dimension of the feature map of the kernel, if finite.
        """
        estimator: Estimator = Lanczos(tolerance=self.tolerance)
        # The moment must be smaller than the matrix, and cheap to solve.
        if features is not None and features < min(n, CHEAP_SIZE + 1):
            estimator = Dual()
        elif n <= CHEAP_SIZE:
            estimator = Exact()
        return Choice(estimator, estimator.cost(n, d_x, d_t))

    def _select(self, part: Operator) -> Estimator:
        width = sum(factor.width for factor in part.factors)
        return self.select(part.size, width, features=part.feature_dimension).estimator

    def _is_large(self, operator: Operator) -> bool:
        """Whether a connected part of the operator is left to `Lanczos`."""
        if operator.is_diagonal:
            return False
        parts = (part for part in operator.parts() if not part.is_diagonal)
        return any(isinstance(self._select(part), Lanczos) for part in parts)

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator; each kernel matrix is computed once."""
        large = [operator for operator in operators if self._is_large(operator)]
        # Solved together, because a product shares kernel matrices with its factors.
        small = [operator for operator in operators if operator not in large]
        exact = direct_spectra(
            small, resources, by_moment=lambda part: isinstance(self._select(part), Dual)
        )
        spectra = dict(zip(small, exact, strict=True))
        lanczos = Lanczos(tolerance=self.tolerance)
        spectra.update(zip(large, lanczos.spectra(large, question, resources), strict=True))
        return [spectra[operator] for operator in operators]

    def entropies(
        self, operators: Sequence[Operator], question: Question, resources: Resources = RESOURCES
    ) -> list[list[Entropy]]:
        """For each order of the question, the entropy of each operator, by the rule."""
        if question.squares_suffice and squares_work(operators) > _TOO_LONG:
            return Subsample(tolerance=self.tolerance).entropies(operators, question, resources)
        return super().entropies(operators, question, resources)

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost of the selected estimator."""
        return self.select(n, d_x, d_t).cost
