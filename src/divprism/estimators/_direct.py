"""All eigenvalues of each connected part, by its matrix or by the second moment of its features."""

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
from divprism.engines import Resources, blas_for

__all__ = ["direct_spectra", "largest_part"]

ByMoment = Callable[[Operator], bool]


def _never(part: Operator) -> bool:
    return False


def direct_spectra(
    operators: Sequence[Operator], resources: Resources, by_moment: ByMoment = _never
) -> list[Spectrum]:
    """Spectra of the operators, with kernel matrices that several of them need computed once.

    `by_moment` decides for each connected part whether to solve F' F in place of F F'.
    """
    parts = {operator: list(operator.parts()) for operator in operators}
    _require_memory(parts, resources, by_moment)
    largest = max((operator.size for operator in operators), default=0)
    # Kernel blocks are products of matrices as well, so they are limited like the eigenvalues.
    with blas_for(largest):
        eigenvalues = _solve_whole(parts, by_moment)
        for operator, pieces in parts.items():
            if operator not in eigenvalues:
                of_parts = [_eigenvalues(part, by_moment) for part in pieces]
                eigenvalues[operator] = np.concatenate(of_parts)
    spectra = []
    for operator in operators:
        values = eigenvalues[operator]
        require_positive(operator, values)
        # Noise is relative to a trace of one; a part of an operator has a smaller trace.
        noise = operator.noise * float(operator.masses.sum())
        method = _method(parts[operator], by_moment)
        spectra.append(Spectrum.from_eigenvalues(values, noise=noise, method=method))
    return spectra


def _solve_whole(
    parts: dict[Operator, list[Operator]], by_moment: ByMoment
) -> dict[Operator, np.ndarray]:
    """Eigenvalues of the operators in one part, which can share kernel matrices."""
    whole = []
    for operator, pieces in parts.items():
        if pieces == [operator] and not operator.is_diagonal and not by_moment(operator):
            whole.append(operator)
    # Products first: then the matrices of their factors are free.
    whole.sort(key=lambda operator: not isinstance(operator, HadamardOperator))
    eigenvalues = {}
    for operator, matrix in zip(whole, dense(whole), strict=True):
        eigenvalues[operator] = eigvalsh(matrix)
    return eigenvalues


def _method(parts: list[Operator], by_moment: ByMoment) -> str:
    """Names of the algorithms that solve the parts."""
    methods = set()
    for part in parts:
        if part.is_diagonal:
            continue
        if by_moment(part):
            methods.add("dual")
        else:
            methods.add("exact")
    return "+".join(sorted(methods or {"exact"}))


def largest_part(operator: Operator) -> int:
    """Size of the largest matrix to solve for the spectrum of an operator."""
    # Asked first, because listing the parts of a large diagonal operator takes long.
    if operator.is_diagonal:
        return 1
    sizes = [part.size for part in operator.parts() if not part.is_diagonal]
    return max(sizes, default=1)


def _require_memory(
    parts: dict[Operator, list[Operator]], resources: Resources, by_moment: ByMoment
) -> None:
    """Raise ArgumentError, before any work, if a matrix does not fit the memory budget."""
    needed = 0
    for pieces in parts.values():
        for part in pieces:
            if not part.is_diagonal:
                needed = max(needed, _bytes(part, by_moment))
    resources.require(
        needed, "an exact solution", "use Lanczos(), which computes kernel values as it goes"
    )


def _bytes(part: Operator, by_moment: ByMoment) -> int:
    """Bytes held while a connected part is solved: the matrix, a copy, and its factors."""
    if by_moment(part):
        # The moment and the copy that the solver makes.
        return 16 * (part.feature_dimension or 0) ** 2
    entries = 2 * part.size**2
    if isinstance(part, HadamardOperator):
        entries += sum(factor.size**2 for factor in part.factors)
    return 8 * entries


def _eigenvalues(part: Operator, by_moment: ByMoment) -> np.ndarray:
    if part.is_diagonal:
        return part.masses
    if by_moment(part):
        return eigvalsh(second_moment(part))
    return eigvalsh(next(dense([part])))
