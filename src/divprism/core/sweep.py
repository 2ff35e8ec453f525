"""Sweeps: one pass over the kernel tiles of several operators serves products and squared norms of all of them.

Tiles on and above the diagonal only, each used for both its places; single precision inside a tile where the points are, double
for the sums over tiles. Tiles that fit a memory budget are kept from the first pass on, the others computed again in each.
Neither the budget nor the number of workers changes a bit of the answer.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from divprism.core.arrays import Array, array_namespace, device_of, is_numpy_array, to_numpy, upload
from divprism.core.kernels import Categorical
from divprism.core.operators import (
    HadamardOperator,
    KernelOperator,
    Operator,
    is_identity,
    on_pairs,
    second_moment,
)
from divprism.core.tiles import row_blocks
from divprism.engines import RESOURCES, Resources, cores, in_order

__all__ = ["Sweep", "common_sweeps", "squared_norms", "squares_work"]

_TILES_PER_TASK = 32  # short tasks: an interrupt waits for the running ones
_BANDS = 4  # of rows, at least: a small matrix is work for several threads too, and half of it need not be computed
_NARROWEST = 64  # rows of a band

Source = Callable[[slice, slice], Array]


@dataclass(frozen=True)
class _Task:
    """Tiles in one band of rows, on or right of the diagonal."""

    rows: slice
    columns: tuple[slice, ...]

    @property
    def span(self) -> slice:
        """From the first column to the last."""
        return slice(self.columns[0].start, self.columns[-1].stop)


@dataclass
class _Result:
    """What the tiles of a task add to each product (at their rows, and mirrored at their columns) and squared norm."""

    own: list[Array] = field(default_factory=list)
    mirrored: list[Array] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)
    tiles: list[list[Array]] = field(default_factory=list)


class Sweep:
    """Passes over the tiles of matrices on the same points.

    Parameters
    ----------
    sources : sequence of callables
        (rows, columns) -> a tile of kernel values, without masses.
    recipes : sequence of tuples
        For each matrix, which of the sources multiply to it.
    masses : ndarray
        Masses of the points: the matrices are M = W^(1/2) K W^(1/2).
    resources : Resources
        Executor, tile size and progress.
    keep : int
        Bytes of tiles to keep between passes.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        recipes: Sequence[tuple[int, ...]],
        masses: np.ndarray,
        resources: Resources,
        keep: int = 0,
    ) -> None:
        self.size = masses.size
        self._sources, self._recipes, self._masses, self._resources = (
            sources,
            recipes,
            masses,
            resources,
        )
        self._tasks = list(_tasks(self.size, resources.tile))
        corner = [source(slice(0, 1), slice(0, 1)) for source in sources]
        self._like = corner[0]
        self.dtypes = [_product(corner, recipe).dtype for recipe in recipes]
        self._itemsize = sum(to_numpy(tile).itemsize for tile in corner)
        self._keeping = self._choose_kept(keep)
        self._kept: dict[int, list[list[Array]]] = {}

    @classmethod
    def over(cls, operators: Sequence[Operator], resources: Resources, keep: int = 0) -> "Sweep":
        """A sweep for operators that `common_sweeps` put together."""
        sources, recipes = _sources_of(operators)
        return cls(sources, recipes, operators[0].masses, resources, keep)

    @property
    def in_threads(self) -> bool:
        """Whether tiles gain from threads of ours: other array libraries have their own, or a device."""
        return is_numpy_array(self._like)

    @property
    def kept_bytes(self) -> int:
        """What is kept between passes."""
        return sum(self._task_bytes(self._tasks[number]) for number in self._keeping)

    @property
    def full_bytes(self) -> int:
        """What keeping every tile takes."""
        return sum(self._task_bytes(task) for task in self._tasks)

    def _task_bytes(self, task: _Task) -> int:
        return (
            (task.rows.stop - task.rows.start) * (task.span.stop - task.span.start) * self._itemsize
        )

    def _choose_kept(self, budget: int) -> set[int]:
        kept = set()
        for number, task in enumerate(self._tasks):
            budget -= self._task_bytes(task)
            if budget < 0:
                break
            kept.add(number)
        return kept

    def run(
        self,
        executor: Executor,
        vectors: Sequence[Array | None] | None = None,
        *,
        squares: bool = False,
        tell: Callable[[float], None] = lambda share: None,
    ) -> tuple[list[Array | None], list[float]]:
        """One pass: M @ V for each operator whose V is given, and ||M||_F^2 of all if asked for.

        M = W^(1/2) K W^(1/2); V has shape (size, columns); products come in double precision.
        """
        vectors = [None] * len(self._recipes) if vectors is None else list(vectors)
        xp = array_namespace(self._like)
        device = device_of(self._like)
        root = upload(np.sqrt(self._masses), self._like)[:, None]
        scaled = [
            v if v is None else xp.astype(v * root, dtype)
            for v, dtype in zip(vectors, self.dtypes, strict=True)
        ]
        totals = [
            None if v is None else xp.zeros(v.shape, dtype=xp.float64, device=device)
            for v in scaled
        ]
        norms = [0.0] * len(self._recipes)

        def call(number: int) -> _Result:
            return self._visit(number, scaled, squares)

        for number, result in enumerate(in_order(call, range(len(self._tasks)), executor)):
            task = self._tasks[number]
            if result.tiles:
                self._kept[number] = result.tiles
            for place, total in enumerate(totals):
                if total is not None:
                    total[task.rows, :] += result.own[place]
                    total[task.span, :] += result.mirrored[place]
            if squares:
                norms = [norm + square for norm, square in zip(norms, result.squares, strict=True)]
            tell((number + 1) / len(self._tasks))
        return [None if total is None else total * root for total in totals], norms

    def seconds(self, columns: int) -> tuple[float, float]:
        """About how long all tiles take to compute, and a pass to multiply, by trying one tile."""
        rows = self._tasks[0].rows
        task = _Task(rows, (rows,))
        xp = array_namespace(self._like)
        vectors = [
            xp.zeros((self.size, columns), dtype=dtype, device=device_of(self._like))
            for dtype in self.dtypes
        ]
        with self._resources.workers(threads=self.in_threads):
            start = time.perf_counter()
            tiles = [source(rows, rows) for source in self._sources]
            built = time.perf_counter()
            self._multiply(tiles, task, rows, vectors, self._nothing(task, vectors))
            multiplied = time.perf_counter()
        runs = sum(len(task.columns) for task in self._tasks) / (cores() if self.in_threads else 1)
        return runs * (built - start), 2 * runs * (
            multiplied - built
        )  # an off-diagonal tile is used twice

    def _nothing(self, task: _Task, vectors: Sequence[Array | None]) -> _Result:
        """A result to add to."""
        xp, device = array_namespace(self._like), device_of(self._like)
        result = _Result(squares=[0.0] * len(self._recipes))
        for lengths, sums in ((task.rows, result.own), (task.span, result.mirrored)):
            for v in vectors:
                shape = (0, 0) if v is None else (lengths.stop - lengths.start, v.shape[1])
                sums.append(xp.zeros(shape, dtype=xp.float64, device=device))
        return result

    def _visit(self, number: int, vectors: Sequence[Array | None], squares: bool) -> _Result:
        """What one task adds; tiles that are to be kept come along."""
        task, kept = self._tasks[number], self._kept.get(number)
        result = self._nothing(task, vectors)
        for place, columns in enumerate(task.columns):
            tiles = (
                kept[place] if kept else [source(task.rows, columns) for source in self._sources]
            )
            if kept is None and number in self._keeping:
                result.tiles.append(tiles)
            self._multiply(tiles, task, columns, vectors, result)
            if squares:
                self._add_squares(tiles, task.rows, columns, result)
        return result

    def _multiply(
        self,
        tiles: list[Array],
        task: _Task,
        columns: slice,
        vectors: Sequence[Array | None],
        result: _Result,
    ) -> None:
        here = slice(columns.start - task.span.start, columns.stop - task.span.start)
        for place, (recipe, v) in enumerate(zip(self._recipes, vectors, strict=True)):
            if v is None:
                continue
            tile = _product(tiles, recipe)
            result.own[place] += tile @ v[columns, :]
            if columns != task.rows:
                result.mirrored[place][here, :] += tile.T @ v[task.rows, :]

    def _add_squares(
        self, tiles: list[Array], rows: slice, columns: slice, result: _Result
    ) -> None:
        twice = 1 + (rows != columns)
        squared = [tile * tile for tile in tiles]
        for place, recipe in enumerate(self._recipes):
            total = _weighted_sum(
                _product(squared, recipe), self._masses[rows], self._masses[columns]
            )
            result.squares[place] += twice * total


def _tasks(size: int, tile: int) -> Iterator[_Task]:
    blocks = list(row_blocks(size, min(tile, max(_NARROWEST, -(-size // _BANDS)))))
    for i, rows in enumerate(blocks):
        for first in range(i, len(blocks), _TILES_PER_TASK):
            yield _Task(rows, tuple(blocks[first : first + _TILES_PER_TASK]))


def _product(tiles: Sequence[Array], recipe: tuple[int, ...]) -> Array:
    product = tiles[recipe[0]]
    for place in recipe[1:]:
        product = product * tiles[place]
    return product


def _sources_of(operators: Sequence[Operator]) -> tuple[list[Source], list[tuple[int, ...]]]:
    """Where tiles come from, and which of the sources multiply to each operator."""
    places: dict[KernelOperator, int] = {}
    sources: list[Source] = []
    # products first: they know which points of a factor their pairs consist of
    for operator in sorted(
        operators, key=lambda operator: not isinstance(operator, HadamardOperator)
    ):
        indices = (
            (operator.left_index, operator.right_index)
            if isinstance(operator, HadamardOperator)
            else (None,)
        )
        for factor, index in zip(operator.factors, indices, strict=True):
            if factor not in places:
                places[factor] = len(sources)
                sources.append(
                    factor.values if index is None else on_pairs(factor, index, repeated=True)
                )
    return sources, [tuple(places[factor] for factor in operator.factors) for operator in operators]


def common_sweeps(operators: Sequence[Operator]) -> list[list[Operator]]:
    """Operators that one sweep can serve: a product with those of its factors that have a point per pair."""
    groups: list[list[Operator]] = []
    left = list(operators)
    for joint in (operator for operator in operators if isinstance(operator, HadamardOperator)):
        indices = dict(zip(joint.factors, (joint.left_index, joint.right_index), strict=True))
        group: list[Operator] = [
            o
            for o in left
            if o is joint
            or (isinstance(o, KernelOperator) and o in indices and is_identity(indices[o], o.size))
        ]
        groups.append(group)
        left = [operator for operator in left if operator not in group]
    return groups + [[operator] for operator in left]


def squared_norms(operators: Sequence[Operator], resources: Resources = RESOURCES) -> list[float]:
    """||M||_F^2 of each operator: all that order-2 entropies need (Conditional Vendi, eq. 4 and 11). No eigenvalue is computed.

    Summed in double precision over tiles of half the matrix. One sweep over pairs serves the product and both its factors,
    because sums over pairs, with the masses of pairs, are sums over points. O(n^2 d), or O(n d^2) where the kernel has d < n
    features; memory of a few tiles.
    """
    norms: dict[Operator, float] = {}
    for operator in operators:
        if isinstance(operator, HadamardOperator) and _must_sweep(operator):
            sources, _ = _sources_of([operator])
            sweep = Sweep(sources, [(0, 1), (0,), (1,)], operator.masses, resources)
            found = _squares(sweep, resources)
            norms.update(zip((operator, *operator.factors), found, strict=True))
    for operator in operators:
        if operator not in norms:
            norms[operator] = sum(_part_norm(part, resources) for part in operator.parts())
    return [norms[operator] for operator in operators]


def squares_work(operators: Sequence[Operator]) -> float:
    """Operations that the longest of the sweeps for squared norms takes."""
    parts = [part for operator in operators for part in operator.parts()]
    swept = [part for part in parts if not part.is_diagonal and not _moment_is_cheaper(part)]
    return max(
        (part.size**2 * sum(factor.width for factor in part.factors) for part in swept), default=0
    )


def _part_norm(part: Operator, resources: Resources) -> float:
    """||M||_F^2 of a connected operator, through its features if they are fewer than its points."""
    if part.is_diagonal:
        return float(part.masses @ part.masses)
    if _moment_is_cheaper(part):
        moment = second_moment(part)
        return float(array_namespace(moment).sum(moment * moment))
    if part.size <= resources.tile:
        everything = slice(0, part.size)
        block = part.values(everything, everything)
        return _weighted_sum(block * block, part.masses, part.masses)
    return _squares(Sweep.over([part], resources), resources)[0]


def _squares(sweep: Sweep, resources: Resources) -> list[float]:
    with resources.workers(threads=sweep.in_threads) as executor:
        return sweep.run(
            executor,
            squares=True,
            tell=lambda share: resources.report_progress("sums of squares", share),
        )[1]


def _must_sweep(operator: HadamardOperator) -> bool:
    split = any(isinstance(factor.kernel, Categorical) for factor in operator.factors)
    return not split and not _moment_is_cheaper(operator)


def _moment_is_cheaper(operator: Operator) -> bool:
    """Whether n D^2 products for F' F are fewer than the n^2 d / 2 for half of the kernel matrix."""
    dimension = operator.feature_dimension
    width = sum(factor.width for factor in operator.factors)
    return dimension is not None and 2 * dimension**2 < operator.size * width


def _weighted_sum(block: Array, rows: np.ndarray, columns: np.ndarray) -> float:
    """rows' block columns; each row is added up in the precision of the block, the rows in double.

    Equal masses reach the block as exact ones: rounded to single precision, 1 / n would put all sums off by the same factor.
    """
    largest = columns.max()
    per_row = block @ array_namespace(block).astype(upload(columns / largest, block), block.dtype)
    return float(largest * (rows @ to_numpy(per_row).astype(np.float64)))
