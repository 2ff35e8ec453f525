"""All eigenvalues, each connected part by its matrix or by the second moment of its features: the exact estimators' work."""

from collections.abc import Callable, Sequence

import numpy as np

from divprism.core.arrays import eigvalsh
from divprism.core.operators import (
    HadamardOperator,
    Operator,
    dense,
    require_positive,
    second_moment,
)
from divprism.core.spectrum import Spectrum
from divprism.engines import Resources

__all__ = ["direct_spectra", "largest_part"]


def direct_spectra(
    operators: Sequence[Operator], resources: Resources, by_moment: Callable[[Operator], bool]
) -> list[Spectrum]:
    """Spectra of the operators; `by_moment` says of each connected part whether to take F' F in place of F F'.

    Kernel matrices that several operators need are computed once.
    """
    parts = {operator: list(operator.parts()) for operator in operators}
    _require_room(parts, resources, by_moment)
    whole = [
        operator
        for operator in operators
        if parts[operator] == [operator] and not operator.is_diagonal
    ]
    shared = [operator for operator in whole if not by_moment(operator)]
    shared.sort(
        key=lambda operator: not isinstance(operator, HadamardOperator)
    )  # products first: then their factors are free
    found = {
        operator: eigvalsh(matrix) for operator, matrix in zip(shared, dense(shared), strict=True)
    }
    spectra = []
    for operator in operators:
        methods = {
            "dual" if by_moment(part) else "exact"
            for part in parts[operator]
            if not part.is_diagonal
        } or {"exact"}
        values = found.get(operator)
        if values is None:
            values = np.concatenate([_eigenvalues(part, by_moment) for part in parts[operator]])
        require_positive(operator, values)
        spectra.append(
            Spectrum.from_eigenvalues(
                values,
                noise=operator.noise * float(operator.masses.sum()),
                method="+".join(sorted(methods)),
            )
        )
    return spectra


def largest_part(operator: Operator) -> int:
    """Size of the largest matrix that has to be solved for the spectrum of an operator."""
    return (
        1
        if operator.is_diagonal
        else max(1 if part.is_diagonal else part.size for part in operator.parts())
    )


def _require_room(
    parts: dict[Operator, list[Operator]],
    resources: Resources,
    by_moment: Callable[[Operator], bool],
) -> None:
    """Refuse before any work what the memory budget cannot hold."""
    needed = 0
    for part in (part for pieces in parts.values() for part in pieces if not part.is_diagonal):
        size = (part.feature_dimension or 0) if by_moment(part) else part.size
        factors = (
            sum(factor.size**2 for factor in part.factors)
            if isinstance(part, HadamardOperator)
            else 0
        )
        needed = max(needed, 8 * (2 * size**2 + (0 if by_moment(part) else factors)))
    resources.require(
        needed, "an exact solution", "use Lanczos(), which computes kernel values as it goes"
    )


def _eigenvalues(part: Operator, by_moment: Callable[[Operator], bool]) -> np.ndarray:
    if part.is_diagonal:
        return part.masses
    if by_moment(part):
        return eigvalsh(second_moment(part))
    return eigvalsh(next(dense([part])))
