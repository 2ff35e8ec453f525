"""Squared Frobenius norms of operators, all that scores of order 2 need, and sums of squares."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from divprism.core.arrays import array_namespace, to_numpy, upload
from divprism.core.kernels import Categorical
from divprism.core.operators import HadamardOperator, Operator, second_moment
from divprism.core.sweep import Sweep, common_sweeps, sources_of, weighted_sum
from divprism.core.tiles import row_blocks
from divprism.engines import RESOURCES, Resources, spell_seconds

__all__ = ["square_sums", "squared_norms", "squares_work"]

# Points up to which sums of squares are computed block by block, without threads.
_FEW_POINTS = 3000

# Entries of a block: 64 MB of float64.
_BLOCK_ENTRIES = 1 << 23

# Seconds from which on a sweep is announced, and points below which none takes that long.
_LONG = 30.0
_MAY_TAKE_LONG = 20_000


def squared_norms(operators: Sequence[Operator], resources: Resources = RESOURCES) -> list[float]:
    """||M||_F^2 of each operator, all that order-2 entropies need (Conditional Vendi, eq. 4, 11).

    Computes no eigenvalue. Sums are in double precision over the tiles of half the matrix. O(n^2 d)
    time, or O(n d^2) for a kernel with d < n features; memory of a few tiles.
    """
    norms: dict[Operator, float] = {}
    for operator in operators:
        if isinstance(operator, HadamardOperator) and _must_sweep(operator):
            # One sweep over pairs serves the product and both of its factors: sums over pairs,
            # with the masses of pairs, are sums over points.
            sources, _ = sources_of([operator])
            sweep = Sweep(sources, [(0, 1), (0,), (1,)], operator.masses, resources)
            squares = _swept_squares(sweep, resources)
            norms.update(zip((operator, *operator.factors), squares, strict=True))
    for operator in operators:
        if operator not in norms:
            norms[operator] = sum(_part_norm(part, resources) for part in operator.parts())
    return [norms[operator] for operator in operators]


def squares_work(operators: Sequence[Operator]) -> float:
    """Operations of the longest of the sweeps for squared norms."""
    work = 0
    for operator in operators:
        for part in operator.parts():
            if not part.is_diagonal and not _moment_is_cheaper(part):
                work = max(work, part.size**2 * _total_width(part))
    return work


def _part_norm(part: Operator, resources: Resources) -> float:
    """||M||_F^2 of a connected operator, through its features if they are fewer than its points."""
    if part.is_diagonal:
        return float(part.masses @ part.masses)
    if _moment_is_cheaper(part):
        # ||F F'||_F = ||F' F||_F.
        moment = second_moment(part)
        return float(array_namespace(moment).sum(moment * moment))
    # A single tile needs no executor.
    if part.size <= resources.tile_for(part.factors[0].points.rows):
        everything = slice(0, part.size)
        block = part.values(everything, everything)
        return weighted_sum(block * block, part.masses, part.masses)
    return _swept_squares(Sweep.over([part], resources), resources)[0]


def _swept_squares(sweep: Sweep, resources: Resources) -> list[float]:
    _announce(sweep, resources)
    _, squares = sweep.run(squares=True, report=partial(_report, resources))
    return squares


def _report(resources: Resources, share: float) -> None:
    resources.report_progress("sums of squares", share)


def square_sums(
    operators: Sequence[Operator], resources: Resources, *, distinct: bool = True
) -> list[np.ndarray]:
    """For each operator and each of its points i the sum over all points j of m_j k_ij^2.

    Without `distinct`, as in a sample of pairs, points may be equal.
    """
    sums: dict[Operator, np.ndarray] = {}
    for operator in operators:
        if distinct and operator.is_diagonal:
            sums[operator] = operator.masses
    rest = [operator for operator in operators if operator not in sums]
    # A sweep, on half of the matrix and in threads, pays for many points.
    large = [operator for operator in rest if operator.size > _FEW_POINTS]
    for group in common_sweeps(large):
        sources, recipes = sources_of(group)
        # A factor twice in a recipe is its square. With V = W^(1/2) 1, each product is W^(1/2)
        # times the sums.
        squared = [recipe * 2 for recipe in recipes]
        masses = group[0].masses
        root = np.sqrt(masses)
        sweep = Sweep(sources, squared, masses, resources)
        _announce(sweep, resources)
        vectors = [upload(root[:, None], sweep.like)] * len(group)
        products, _ = sweep.run(vectors, report=partial(_report, resources))
        for operator, product in zip(group, products, strict=True):
            sums[operator] = to_numpy(product)[:, 0] / root
    for operator in rest:
        if operator not in sums:
            sums[operator] = _sums_in_blocks(operator)
    return [sums[operator] for operator in operators]


def _sums_in_blocks(operator: Operator) -> np.ndarray:
    parts = []
    for rows in row_blocks(operator.size, max(1, _BLOCK_ENTRIES // operator.size)):
        block = np.asarray(to_numpy(operator.rows(rows)), np.float64)
        parts.append(np.einsum("ij,ij->i", block, block))
    # Squared entries are m_i m_j k_ij^2, so that dividing the sum of a row by m_i leaves the sum
    # over j of m_j k_ij^2.
    return np.asarray(np.concatenate(parts) / operator.masses)


def _announce(sweep: Sweep, resources: Resources) -> None:
    """Report the plan if the work takes long."""
    # Timing a tile takes time and memory itself.
    if resources.progress is None or sweep.size < _MAY_TAKE_LONG:
        return
    # Squares of the values are summed in about the time of a product with one vector.
    seconds = sum(sweep.seconds(columns=1))
    if seconds > _LONG:
        plan = f"sums of squares of {sweep.size:,} items: about {spell_seconds(seconds)}"
        resources.report_progress(plan, 0.0)


def _must_sweep(operator: HadamardOperator) -> bool:
    # A Categorical factor splits the product into groups, which are summed one by one.
    splits = any(isinstance(factor.kernel, Categorical) for factor in operator.factors)
    return not splits and not _moment_is_cheaper(operator)


def _moment_is_cheaper(operator: Operator) -> bool:
    """Whether n D^2 operations for F' F are fewer than n^2 d / 2 for half of the kernel matrix."""
    dimension = operator.feature_dimension
    return dimension is not None and 2 * dimension**2 < operator.size * _total_width(operator)


def _total_width(operator: Operator) -> int:
    return sum(factor.width for factor in operator.factors)
