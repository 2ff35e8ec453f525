"""Squared Frobenius norms of operators, all that scores of order 2 need."""

from collections.abc import Sequence

from divprism.core.arrays import array_namespace
from divprism.core.kernels import Categorical
from divprism.core.operators import HadamardOperator, Operator, second_moment
from divprism.core.sweep import Sweep, sources_of, weighted_sum
from divprism.engines import RESOURCES, Resources, spell_seconds

__all__ = ["squared_norms", "squares_work"]

_LONG = 30.0  # seconds from which on a sweep is announced


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
    if part.size <= resources.tile:
        everything = slice(0, part.size)
        block = part.values(everything, everything)
        return weighted_sum(block * block, part.masses, part.masses)
    return _swept_squares(Sweep.over([part], resources), resources)[0]


def _swept_squares(sweep: Sweep, resources: Resources) -> list[float]:
    def report(share: float) -> None:
        resources.report_progress("sums of squares", share)

    _announce(sweep, resources)
    with resources.workers(threads=sweep.in_threads) as executor:
        _, squares = sweep.run(executor, squares=True, report=report)
    return squares


def _announce(sweep: Sweep, resources: Resources) -> None:
    """Report the plan if the work takes long."""
    # Timing a tile takes time itself.
    if resources.progress is None:
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
