"""Sweeps: one pass over the kernel tiles of several operators, for products and squared norms.

A sweep computes only tiles on and above the diagonal and uses each of them on both sides. Inside a
tile it works in the precision of the points, and across tiles in double precision. Tiles that fit
the memory budget are kept after the first pass; the others are computed again in each pass. Neither
the budget nor the number of workers changes a bit of the result.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from divprism.core.arrays import Array, array_namespace, device_of, is_numpy_array, to_numpy, upload
from divprism.core.operators import (
    HadamardOperator,
    KernelOperator,
    Operator,
    is_identity,
    on_pairs,
)
from divprism.core.tiles import row_blocks
from divprism.engines import Resources, cores, in_order

__all__ = ["Sweep", "common_sweeps", "sources_of", "weighted_sum"]

# Tiles of one task. Tasks are short because an interrupt waits for the running ones.
_TILES_PER_TASK = 32

# Least number of bands of rows: with several, even a small matrix is work for all threads, and the
# half of it below the diagonal is not computed.
_BANDS = 4
_NARROWEST_BAND = 64

TileSource = Callable[[slice, slice], Array]


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
    """Contributions of a task to each product and squared norm.

    `own` belongs to the rows of the task; `mirrored` belongs to its columns and comes from the
    transposed tiles. `tiles` are those to keep for later passes.
    """

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
        For each matrix, the numbers of the sources whose product it is.
    masses : ndarray
        Masses of the points: the matrices are M = W^(1/2) K W^(1/2).
    resources : Resources
        Executor, tile size and progress.
    keep : int
        Bytes of tiles to keep between passes.
    """

    def __init__(
        self,
        sources: Sequence[TileSource],
        recipes: Sequence[tuple[int, ...]],
        masses: np.ndarray,
        resources: Resources,
        keep: int = 0,
    ) -> None:
        self.size = masses.size
        self._sources = sources
        self._recipes = recipes
        self._masses = masses
        self._resources = resources
        self._tasks = list(_tasks(self.size, resources.tile))
        # One entry of each source shows the library, the device and the precision of its tiles.
        corner = [source(slice(0, 1), slice(0, 1)) for source in sources]
        self._like = corner[0]
        self.dtypes = [_product(corner, recipe).dtype for recipe in recipes]
        self._itemsize = sum(to_numpy(tile).itemsize for tile in corner)
        self._keeping = self._choose_kept(keep)
        self._kept: dict[int, list[list[Array]]] = {}

    @classmethod
    def over(cls, operators: Sequence[Operator], resources: Resources, keep: int = 0) -> "Sweep":
        """A sweep for operators that `common_sweeps` grouped together."""
        sources, recipes = sources_of(operators)
        return cls(sources, recipes, operators[0].masses, resources, keep)

    @property
    def in_threads(self) -> bool:
        """Whether to compute tiles in threads; libraries other than NumPy bring their own."""
        return is_numpy_array(self._like)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the tiles that are kept between passes."""
        return sum(self._task_bytes(self._tasks[number]) for number in self._keeping)

    @property
    def full_bytes(self) -> int:
        """Bytes of all tiles together."""
        return sum(self._task_bytes(task) for task in self._tasks)

    def _task_bytes(self, task: _Task) -> int:
        return _length(task.rows) * _length(task.span) * self._itemsize

    def _choose_kept(self, budget: int) -> set[int]:
        kept = set()
        for number, task in enumerate(self._tasks):
            budget -= self._task_bytes(task)
            # A prefix of the tasks, so that the choice depends on the budget alone.
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
        report: Callable[[float], None] = lambda share: None,
    ) -> tuple[list[Array | None], list[float]]:
        """One pass: M @ V for each matrix with vectors V, and with `squares` each ||M||_F^2.

        V has shape (size, columns); products are in double precision. `report` is called with the
        completed share of the pass.
        """
        if vectors is None:
            vectors = [None] * len(self._recipes)
        root = upload(np.sqrt(self._masses), self._like)[:, None]
        scaled = self._scaled(vectors, root)
        totals = self._zeros(scaled, self.size)
        norms = [0.0] * len(self._recipes)

        def call(number: int) -> _Result:
            return self._visit(number, scaled, squares)

        # In order, so that sums have the same bits for any number of workers.
        for number, result in enumerate(in_order(call, range(len(self._tasks)), executor)):
            task = self._tasks[number]
            if result.tiles:
                self._kept[number] = result.tiles
            for matrix, total in enumerate(totals):
                if total is not None:
                    total[task.rows, :] += result.own[matrix]
                    total[task.span, :] += result.mirrored[matrix]
            for matrix, square in enumerate(result.squares):
                norms[matrix] += square
            report((number + 1) / len(self._tasks))
        products: list[Array | None] = []
        for total in totals:
            if total is not None:
                total = total * root
            products.append(total)
        return products, norms

    def _scaled(self, vectors: Sequence[Array | None], root: Array) -> list[Array | None]:
        """W^(1/2) V for each matrix, in the precision of its tiles."""
        xp = array_namespace(self._like)
        scaled: list[Array | None] = []
        for v, dtype in zip(vectors, self.dtypes, strict=True):
            if v is not None:
                v = xp.astype(v * root, dtype)
            scaled.append(v)
        return scaled

    def _zeros(self, vectors: Sequence[Array | None], length: int) -> list[Array | None]:
        """Zeros in double precision with the columns of each of the vectors."""
        xp, device = array_namespace(self._like), device_of(self._like)
        totals: list[Array | None] = []
        for v in vectors:
            total = None
            if v is not None:
                total = xp.zeros((length, v.shape[1]), dtype=xp.float64, device=device)
            totals.append(total)
        return totals

    def seconds(self, columns: int) -> tuple[float, float]:
        """Estimated time to compute all tiles, and to multiply by them, from timing one tile."""
        rows = self._tasks[0].rows
        task = _Task(rows, (rows,))
        xp, device = array_namespace(self._like), device_of(self._like)
        vectors: list[Array | None] = []
        for dtype in self.dtypes:
            vectors.append(xp.zeros((self.size, columns), dtype=dtype, device=device))
        # As in a pass: one BLAS thread for each worker.
        with self._resources.workers(threads=self.in_threads):
            start = time.perf_counter()
            tiles = [source(rows, rows) for source in self._sources]
            built = time.perf_counter()
            self._multiply(tiles, task, rows, vectors, self._empty_result(task, vectors))
            multiplied = time.perf_counter()
        runs: float = sum(len(task.columns) for task in self._tasks)
        if self.in_threads:
            runs /= cores()
        # The timed tile is on the diagonal; all others are multiplied twice, the second time as
        # their transpose.
        return runs * (built - start), 2 * runs * (multiplied - built)

    def _empty_result(self, task: _Task, vectors: Sequence[Array | None]) -> _Result:
        """A result to add to."""
        return _Result(
            own=self._zeros(vectors, _length(task.rows)),
            mirrored=self._zeros(vectors, _length(task.span)),
        )

    def _visit(self, number: int, vectors: Sequence[Array | None], squares: bool) -> _Result:
        """Contributions of one task, and the tiles that are to be kept."""
        task, kept = self._tasks[number], self._kept.get(number)
        result = self._empty_result(task, vectors)
        if squares:
            result.squares = [0.0] * len(self._recipes)
        for step, columns in enumerate(task.columns):
            if kept is not None:
                tiles = kept[step]
            else:
                tiles = [source(task.rows, columns) for source in self._sources]
                # Returned rather than stored here: tasks may run in other threads.
                if number in self._keeping:
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
        in_span = slice(columns.start - task.span.start, columns.stop - task.span.start)
        for matrix, (recipe, v) in enumerate(zip(self._recipes, vectors, strict=True)):
            if v is None:
                continue
            tile = _product(tiles, recipe)
            result.own[matrix] += tile @ v[columns, :]
            # A tile on the diagonal is its own mirror image.
            if columns != task.rows:
                result.mirrored[matrix][in_span, :] += tile.T @ v[task.rows, :]

    def _add_squares(
        self, tiles: list[Array], rows: slice, columns: slice, result: _Result
    ) -> None:
        # An off-diagonal tile stands for its mirror image too.
        times = 1 + (rows != columns)
        # (a b)^2 = a^2 b^2: each source is squared once for all matrices.
        squared = [tile * tile for tile in tiles]
        for matrix, recipe in enumerate(self._recipes):
            product = _product(squared, recipe)
            total = weighted_sum(product, self._masses[rows], self._masses[columns])
            result.squares[matrix] += times * total


def _length(rows: slice) -> int:
    return rows.stop - rows.start


def _tasks(size: int, tile: int) -> Iterator[_Task]:
    # Rounded up, so that no narrow band is left over.
    band = max(_NARROWEST_BAND, -(-size // _BANDS))
    blocks = list(row_blocks(size, min(tile, band)))
    for number, rows in enumerate(blocks):
        for first in range(number, len(blocks), _TILES_PER_TASK):
            yield _Task(rows, tuple(blocks[first : first + _TILES_PER_TASK]))


def _product(tiles: Sequence[Array], recipe: tuple[int, ...]) -> Array:
    product = tiles[recipe[0]]
    for number in recipe[1:]:
        product = product * tiles[number]
    return product


def sources_of(operators: Sequence[Operator]) -> tuple[list[TileSource], list[tuple[int, ...]]]:
    """Where tiles come from, and which of the sources multiply to each operator."""
    numbers: dict[KernelOperator, int] = {}
    sources: list[TileSource] = []

    def add(factor: KernelOperator, source: TileSource) -> None:
        numbers[factor] = len(sources)
        sources.append(source)

    # Products first: they know which points of a factor their pairs consist of.
    for operator in operators:
        if isinstance(operator, HadamardOperator):
            for factor in operator.factors:
                if factor not in numbers:
                    add(factor, on_pairs(factor, operator.index_of(factor), repeated=True))
    for operator in operators:
        for factor in operator.factors:
            if factor not in numbers:
                add(factor, factor.values)
    recipes = []
    for operator in operators:
        recipes.append(tuple(numbers[factor] for factor in operator.factors))
    return sources, recipes


def common_sweeps(operators: Sequence[Operator]) -> list[list[Operator]]:
    """Groups of operators that one sweep can serve.

    A product shares its sweep with those of its factors that have one point for each pair.
    """
    groups: list[list[Operator]] = []
    rest = list(operators)
    for joint in operators:
        if isinstance(joint, HadamardOperator):
            group = [operator for operator in rest if _fits(operator, joint)]
            groups.append(group)
            rest = [operator for operator in rest if operator not in group]
    return groups + [[operator] for operator in rest]


def _fits(operator: Operator, joint: HadamardOperator) -> bool:
    """Whether an operator is the product itself, or a factor of it with one point for each pair."""
    if operator is joint:
        return True
    if operator not in joint.factors:
        return False
    return is_identity(joint.index_of(operator), operator.size)


def weighted_sum(block: Array, rows: np.ndarray, columns: np.ndarray) -> float:
    """rows' block columns, where `rows` and `columns` are masses.

    Each row is summed in the precision of the block, the rows in double precision.
    """
    # Equal masses become exact ones: 1 / n rounded to single precision would bias every sum.
    largest = columns.max()
    relative = upload(columns / largest, block)
    per_row = block @ array_namespace(block).astype(relative, block.dtype)
    return float(largest * (rows @ to_numpy(per_row).astype(np.float64)))
