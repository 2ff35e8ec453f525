"""All eigenvalues of each connected part, by its matrix or by the second moment of its features."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from divprism.core.arrays import Array, eigvalsh, is_numpy_array
from divprism.core.operators import (
    HadamardOperator,
    Operator,
    dense,
    matrix_noise,
    require_positive,
    second_moment,
)
from divprism.core.spectrum import Spectrum
from divprism.engines import Resources, side_by_side

__all__ = ["CHEAP_SIZE", "direct_bytes", "direct_spectra", "largest_part"]

# Size of a matrix that is solved in about a second.
CHEAP_SIZE = 3000

ByMoment = Callable[[Operator], bool]

# Rows of the largest of several matrices that are solved at the same time, by benchmarks/exact.py.
# Below, starting threads costs what they gain; above, BLAS uses several cores well by itself.
_FEWEST_ROWS, _MOST_ROWS = 800, 1200


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
    solutions = _solve_whole(parts, resources, by_moment)
    spectra = []
    for operator in operators:
        if operator not in solutions:
            solved = [_solve(part, by_moment) for part in parts[operator]]
            noise = max(solution.noise for solution in solved)
            values = np.concatenate([solution.eigenvalues for solution in solved])
            solutions[operator] = _Solution(values, noise)
        solution = solutions[operator]
        require_positive(operator, solution.eigenvalues)
        spectrum = Spectrum.from_eigenvalues(
            solution.eigenvalues,
            noise=solution.noise,
            method=_method(parts[operator], by_moment),
        )
        spectra.append(replace(spectrum, hidden=_hidden(operator, spectrum)))
    return spectra


def _hidden(operator: Operator, spectrum: Spectrum) -> int:
    """Number of eigenvalues that may be there, below what double precision resolves."""
    rank = operator.size
    if operator.feature_dimension is not None:
        rank = min(rank, operator.feature_dimension)
    return max(0, rank - spectrum.values.size)


@dataclass(frozen=True)
class _Solution:
    """Eigenvalues, and the error that rounding of the matrix may give them."""

    eigenvalues: np.ndarray
    noise: float


def _solve_whole(
    parts: dict[Operator, list[Operator]], resources: Resources, by_moment: ByMoment
) -> dict[Operator, _Solution]:
    """Solutions for the operators in one part, which can share kernel matrices."""
    whole = []
    for operator, pieces in parts.items():
        if pieces == [operator] and not operator.is_diagonal and not by_moment(operator):
            whole.append(operator)
    # Products first: then the matrices of their factors are free.
    whole.sort(key=lambda operator: not isinstance(operator, HadamardOperator))
    pairs = zip(whole, dense(whole), strict=True)
    if _fit_side_by_side(whole, resources, by_moment):
        with resources.workers() as executor:
            solved = side_by_side(_solve_on_a_thread, pairs, executor)
    else:
        solved = [_solve_matrix(operator, matrix) for operator, matrix in pairs]
    return dict(zip(whole, solved, strict=True))


def _solve_on_a_thread(pair: tuple[Operator, Array]) -> _Solution:
    operator, matrix = pair
    noise = matrix_noise(operator, matrix)
    # NumPy releases the interpreter lock, SciPy does not.
    return _Solution(np.linalg.eigvalsh(matrix), noise)


def _fit_side_by_side(
    operators: Sequence[Operator], resources: Resources, by_moment: ByMoment
) -> bool:
    """Whether to solve several matrices at once, with one BLAS thread each.

    That takes as long as solving them one by one on two BLAS threads, and two thirds of the
    processor time: between two calls threads of BLAS spin.
    """
    sizes = [operator.size for operator in operators]
    if len(sizes) < 2 or not _FEWEST_ROWS <= max(sizes) <= _MOST_ROWS:
        return False
    if not all(is_numpy_array(operator.factors[0].points.rows) for operator in operators):
        return False
    return sum(_bytes(operator, by_moment) for operator in operators) <= resources.budget


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
    resources.require(
        _most_bytes(parts, by_moment),
        "an exact solution",
        "use the Lanczos estimator, which computes kernel values as it goes",
    )


def direct_bytes(operators: Sequence[Operator]) -> int:
    """Bytes that `direct_spectra` holds for these operators at most."""
    return _most_bytes({operator: list(operator.parts()) for operator in operators}, _never)


def _most_bytes(parts: dict[Operator, list[Operator]], by_moment: ByMoment) -> int:
    """Bytes held for the largest of the connected parts."""
    most = 0
    for pieces in parts.values():
        for part in pieces:
            if not part.is_diagonal:
                most = max(most, _bytes(part, by_moment))
    return most


def _bytes(part: Operator, by_moment: ByMoment) -> int:
    """Bytes held while a connected part is solved: the matrix, a copy, and its factors."""
    if by_moment(part):
        # The moment and the copy that the solver makes.
        return 16 * (part.feature_dimension or 0) ** 2
    entries = 2 * part.size**2
    if isinstance(part, HadamardOperator):
        entries += sum(factor.size**2 for factor in part.factors)
    return 8 * entries


def _solve(part: Operator, by_moment: ByMoment) -> _Solution:
    if part.is_diagonal:
        return _Solution(part.masses, 0.0)
    if by_moment(part):
        # Noise is relative to a trace of one; a part of an operator has a smaller trace.
        noise = part.noise * float(part.masses.sum())
        return _Solution(eigvalsh(second_moment(part)), noise)
    return _solve_matrix(part, next(dense([part])))


def _solve_matrix(operator: Operator, matrix: Array) -> _Solution:
    # The noise first, because the solver may overwrite the matrix.
    noise = matrix_noise(operator, matrix)
    return _Solution(eigvalsh(matrix), noise)
