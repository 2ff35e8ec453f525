"""Sweeps: one pass over the kernel tiles of several operators, for products and squared norms.

A sweep computes only tiles on and above the diagonal and uses each of them on both sides. Inside a
tile it works in the precision of the points, and across tiles in double precision. Tiles are kept
after the first pass, in memory as far as the budget allows and then on disk if that is faster than
to compute them again. Neither budget nor disk, engine or number of workers changes a bit of the
result; `compact` does, which rounds kernel values to 16 bits.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, device_of, is_numpy_array, to_numpy, upload
from divprism.core.kept_tiles import KeptTiles, from_16_bits, in_16_bits
from divprism.core.operators import (
    HadamardOperator,
    KernelOperator,
    Operator,
    is_identity,
    on_pairs,
)
from divprism.core.tiles import TILE, row_blocks
from divprism.engines import Job, Resources, Total, one_blas_thread

__all__ = ["Sweep", "common_sweeps", "sources_of", "weighted_sum"]

# Tiles of one task. Tasks are short because an interrupt waits for the running ones.
_TILES_PER_TASK = 32

# Bundles of tasks, whose sums are merged: enough for a cluster to share them out, but few enough
# that sending the sums takes little beside the products, and that a scheduler keeps up.
_TILES_PER_BUNDLE = 48
_FEWEST_BUNDLES = 16
_MOST_BUNDLES = 1024

# Least number of bands of rows: with several, even a small matrix is work for all threads, and the
# half of it below the diagonal is not computed.
_BANDS = 4
_NARROWEST_BAND = 64

TileSource = Callable[[slice, slice], Array]
Vectors = Sequence[Array | None]


@dataclass(frozen=True)
class _Task:
    """Tiles in one band of rows, on or right of the diagonal."""

    number: int
    rows: slice
    columns: tuple[slice, ...]

    @property
    def span(self) -> slice:
        """From the first column to the last."""
        return slice(self.columns[0].start, self.columns[-1].stop)


@dataclass
class _Part:
    """Contributions of a task to each product and squared norm.

    `own` belongs to the rows of the task; `mirrored` belongs to its columns and comes from the
    transposed tiles.
    """

    own: list[Array]
    mirrored: list[Array]
    squares: list[float]


@dataclass
class _Sums(Total):
    """Sums of the contributions of tasks: the rows from `first` on of each product, and norms."""

    first: int
    products: list[Array | None]
    squares: list[float]

    def add(self, item: _Task, part: _Part) -> None:
        """Add the contributions of a task."""
        rows, span = self._moved(item.rows), self._moved(item.span)
        for product, own, mirrored in zip(self.products, part.own, part.mirrored, strict=True):
            if product is not None:
                product[rows, :] += own
                product[span, :] += mirrored
        self.squares = [a + b for a, b in zip(self.squares, part.squares, strict=True)]

    def _moved(self, rows: slice) -> slice:
        return slice(rows.start - self.first, rows.stop - self.first)

    def merged(self, other: Total) -> "_Sums":
        """These sums and those of later tasks, whose rows start no earlier."""
        assert isinstance(other, _Sums)
        skipped = other.first - self.first
        products: list[Array | None] = []
        for mine, theirs in zip(self.products, other.products, strict=True):
            total = None
            if mine is not None:
                # A copy: a cluster merges the same sums again if a worker is lost.
                total = array_namespace(mine).asarray(mine, copy=True)
                total[skipped:, :] += theirs
            products.append(total)
        squares = [a + b for a, b in zip(self.squares, other.squares, strict=True)]
        return _Sums(self.first, products, squares)

    def arrays(self) -> list[np.ndarray]:
        """The products that there are, then the norms."""
        products = [to_numpy(product) for product in self.products if product is not None]
        return [*products, np.array(self.squares, np.float64)]

    def with_arrays(self, arrays: Sequence[np.ndarray]) -> "_Sums":
        """Sums of the same form with other numbers."""
        rest = iter(arrays)
        products: list[Array | None] = []
        for product in self.products:
            if product is not None:
                product = upload(next(rest), product)
            products.append(product)
        return _Sums(self.first, products, next(rest).tolist())


@dataclass
class _Inputs:
    """What one pass multiplies: W^(1/2) V for each matrix, and whether norms are asked for."""

    vectors: list[Array | None]
    squares: bool


@dataclass
class _Tiles(Job):
    """The tiles of several matrices on the same points, and what products of vectors with them are.

    Attributes
    ----------
    sources : sequence of callables
        (rows, columns) -> a tile of kernel values, without masses.
    recipes : sequence of tuples
        For each matrix, the numbers of the sources whose product it is.
    masses : ndarray
        Masses of the points.
    like : array
        An array of the library and on the device of the tiles.
    itemsize : int
        Bytes of one entry of all sources.
    keep : int
        Bytes of tiles to keep in memory between passes, in each process.
    compact : bool
        Whether kernel values are rounded to 16 bits, kept or not.
    """

    sources: Sequence[TileSource]
    recipes: Sequence[tuple[int, ...]]
    masses: np.ndarray
    like: Array
    itemsize: int
    keep: int = 0
    compact: bool = False

    def __post_init__(self) -> None:
        self.kept = KeptTiles(self.keep)

    @property
    def content(self) -> tuple[Any, ...]:
        """All but what is kept, which changes no bit."""
        return tuple(self.sources), tuple(self.recipes), self.masses, self.compact

    def bytes_of(self, task: _Task) -> int:
        """Bytes of the tiles of a task."""
        return _length(task.rows) * _length(task.span) * self.itemsize

    def seconds_per_byte(self) -> float:
        """Time to compute a byte of tiles, from one of them."""
        rows = slice(0, min(TILE, self.masses.size))
        start = time.perf_counter()
        tiles = self._rounded(self._compute(rows, rows))
        seconds = time.perf_counter() - start
        return seconds / sum(tile.nbytes for tile in tiles)

    def _compute(self, rows: slice, columns: slice) -> list[Array]:
        """The tiles of all sources."""
        return [source(rows, columns) for source in self.sources]

    def _rounded(self, tiles: list[Array]) -> list[Array]:
        """Tiles as they are kept."""
        if self.compact:
            return [in_16_bits(tile) for tile in tiles]
        return tiles

    def _values(self, tiles: list[Array]) -> list[Array]:
        """Kernel values of tiles as they are kept."""
        if self.compact:
            return [from_16_bits(tile) for tile in tiles]
        return tiles

    def empty(self, inputs: _Inputs, items: Sequence[_Task]) -> _Sums:
        """Sums of zero for some tasks; rows and columns before their first row are left out."""
        first = items[0].rows.start
        products = self._zeros(inputs.vectors, self.masses.size - first)
        return _Sums(first, products, [0.0] * self._num_squares(inputs))

    def _num_squares(self, inputs: _Inputs) -> int:
        if inputs.squares:
            return len(self.recipes)
        return 0

    def _zeros(self, vectors: Vectors, length: int) -> list[Array | None]:
        """Zeros in double precision with the columns of each of the vectors."""
        xp, device = array_namespace(self.like), device_of(self.like)
        totals: list[Array | None] = []
        for v in vectors:
            total = None
            if v is not None:
                total = xp.zeros((length, v.shape[1]), dtype=xp.float64, device=device)
            totals.append(total)
        return totals

    def part(self, inputs: _Inputs, item: _Task) -> _Part:
        """Contributions of one task."""
        part = self.empty_part(inputs, item)
        kept = self.kept.get(item.number)
        keep, fresh = None, []
        if kept is None:
            # Memory is reserved before the tiles exist: threads together stay within the budget.
            keep = self.kept.keeper(self.bytes_of(item), self.seconds_per_byte)
        for step, columns in enumerate(item.columns):
            # Norms are those of values that are not rounded, even if others are kept.
            if kept is None or inputs.squares:
                tiles = self._compute(item.rows, columns)
                if inputs.squares:
                    self._add_squares(tiles, item.rows, columns, part)
                stored = self._rounded(tiles)
            else:
                stored = kept[step]
            if keep is not None:
                fresh.append(stored)
            self.multiply(self._values(stored), item, columns, inputs.vectors, part)
        if keep is not None:
            keep(item.number, fresh)
        return part

    def empty_part(self, inputs: _Inputs, task: _Task) -> _Part:
        """Contributions to add to."""
        return _Part(
            own=self._zeros(inputs.vectors, _length(task.rows)),
            mirrored=self._zeros(inputs.vectors, _length(task.span)),
            squares=[0.0] * self._num_squares(inputs),
        )

    def multiply(
        self, tiles: list[Array], task: _Task, columns: slice, vectors: Vectors, part: _Part
    ) -> None:
        """Add the products of some tiles, and of their mirror images, with the vectors."""
        in_span = slice(columns.start - task.span.start, columns.stop - task.span.start)
        for matrix, (recipe, v) in enumerate(zip(self.recipes, vectors, strict=True)):
            if v is None:
                continue
            tile = _product(tiles, recipe)
            part.own[matrix] += tile @ v[columns, :]
            # A tile on the diagonal is its own mirror image.
            if columns != task.rows:
                part.mirrored[matrix][in_span, :] += tile.T @ v[task.rows, :]

    def _add_squares(self, tiles: list[Array], rows: slice, columns: slice, part: _Part) -> None:
        # An off-diagonal tile stands for its mirror image too.
        times = 1 + (rows != columns)
        # (a b)^2 = a^2 b^2: each source is squared once for all matrices.
        squared = [tile * tile for tile in tiles]
        for matrix, recipe in enumerate(self.recipes):
            product = _product(squared, recipe)
            total = weighted_sum(product, self.masses[rows], self.masses[columns])
            part.squares[matrix] += times * total


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
        Engine, tile size and progress.
    keep : int
        Bytes of tiles that this process may keep between passes.
    needed : int
        Bytes that a process needs beside them.
    compact : bool
        Whether to round kernel values to 16 bits, of which more can be kept.
    """

    def __init__(
        self,
        sources: Sequence[TileSource],
        recipes: Sequence[tuple[int, ...]],
        masses: np.ndarray,
        resources: Resources,
        keep: int = 0,
        needed: int = 0,
        compact: bool = False,
    ) -> None:
        self.size = masses.size
        # One entry of each source shows the library, the device and the precision of its tiles.
        corner = [source(slice(0, 1), slice(0, 1)) for source in sources]
        self.dtypes = [_product(corner, recipe).dtype for recipe in recipes]
        itemsize = sum(to_numpy(tile).itemsize for tile in corner)
        if compact:
            itemsize = 2 * len(sources)
        self.like = corner[0]
        self._bundles = _bundles(list(_tasks(self.size, resources.tile_for(self.like))))
        self.engine = resources.engine_for(self.like)
        if keep:
            keep = self.engine.kept_bytes(keep, needed)
        self._tiles = _Tiles(sources, recipes, masses, self.like, itemsize, keep, compact)
        self._job = self.engine.share(self._tiles)
        self.full_bytes = sum(
            self._tiles.bytes_of(task) for bundle in self._bundles for task in bundle
        )

    @classmethod
    def over(cls, operators: Sequence[Operator], resources: Resources, **options: Any) -> "Sweep":
        """A sweep for operators that `common_sweeps` grouped together."""
        sources, recipes = sources_of(operators)
        return cls(sources, recipes, operators[0].masses, resources, **options)

    @property
    def in_threads(self) -> bool:
        """Whether tiles are arrays of NumPy; other libraries bring their own threads."""
        return is_numpy_array(self.like)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the tiles that are kept in memory between passes, by all processes."""
        return min(self.full_bytes, self._tiles.keep * self.engine.num_processes)

    @property
    def uses_disk(self) -> bool:
        """Whether this process keeps the other tiles on disk."""
        if self.kept_bytes == self.full_bytes:
            return False
        return self._tiles.kept.uses_disk(self._tiles.seconds_per_byte)

    def run(
        self,
        vectors: Vectors | None = None,
        *,
        squares: bool = False,
        report: Callable[[float], None] = lambda share: None,
    ) -> tuple[list[Array | None], list[float]]:
        """One pass: M @ V for each matrix with vectors V, and with `squares` each ||M||_F^2.

        V has shape (size, columns); products are in double precision. `report` is called with the
        completed share of the pass.
        """
        if vectors is None:
            vectors = [None] * len(self.dtypes)
        # M V = W^(1/2) K (W^(1/2) V): the masses enter before and after the tiles, not each tile.
        root = upload(np.sqrt(self._tiles.masses), self.like)[:, None]
        inputs = _Inputs(self._scaled(vectors, root), squares)
        sums = self.engine.total(self._job, inputs, self._bundles, report)
        products: list[Array | None] = []
        for product in sums.products:
            if product is not None:
                product = product * root
            products.append(product)
        return products, sums.squares

    def _scaled(self, vectors: Vectors, root: Array) -> list[Array | None]:
        """W^(1/2) V for each matrix, in the precision of its tiles."""
        xp = array_namespace(self.like)
        scaled: list[Array | None] = []
        for v, dtype in zip(vectors, self.dtypes, strict=True):
            if v is not None:
                v = xp.astype(v * root, dtype)
            scaled.append(v)
        return scaled

    def seconds(self, columns: int) -> tuple[float, float]:
        """Estimated time to compute all tiles, and to multiply by them, from timing one tile."""
        rows = self._bundles[0][0].rows
        task = _Task(0, rows, (rows,))
        xp, device = array_namespace(self.like), device_of(self.like)
        vectors: list[Array | None] = []
        for dtype in self.dtypes:
            vectors.append(xp.zeros((self.size, columns), dtype=dtype, device=device))
        part = self._tiles.empty_part(_Inputs(vectors, False), task)
        # As in a pass: one BLAS thread for each worker.
        with one_blas_thread():
            start = time.perf_counter()
            tiles = [source(rows, rows) for source in self._tiles.sources]
            built = time.perf_counter()
            self._tiles.multiply(tiles, task, rows, vectors, part)
            multiplied = time.perf_counter()
        num_tiles = sum(len(task.columns) for bundle in self._bundles for task in bundle)
        runs = num_tiles / self.engine.num_workers
        # The timed tile is on the diagonal; all others are multiplied twice, the second time as
        # their transpose.
        return runs * (built - start), 2 * runs * (multiplied - built)


def _length(rows: slice) -> int:
    return rows.stop - rows.start


def _tasks(size: int, tile: int) -> Iterator[_Task]:
    # Rounded up, so that no narrow band is left over.
    height = max(_NARROWEST_BAND, -(-size // _BANDS))
    blocks = list(row_blocks(size, min(tile, height)))
    number = 0
    for band, rows in enumerate(blocks):
        for first in range(band, len(blocks), _TILES_PER_TASK):
            yield _Task(number, rows, tuple(blocks[first : first + _TILES_PER_TASK]))
            number += 1


def _bundles(tasks: Sequence[_Task]) -> list[list[_Task]]:
    """Consecutive tasks, about the same number of tiles in each bundle."""
    num_tiles = sum(len(task.columns) for task in tasks)
    count = min(max(_FEWEST_BUNDLES, num_tiles // _TILES_PER_BUNDLE), _MOST_BUNDLES)
    # A power of two, which most clusters can share out evenly.
    count = 1 << (count.bit_length() - 1)
    bundles: list[list[_Task]] = []
    passed = 0
    for task in tasks:
        # A bundle begins where the share of those before it ends; whole numbers do not round.
        if passed * count >= len(bundles) * num_tiles:
            bundles.append([])
        bundles[-1].append(task)
        passed += len(task.columns)
    return bundles


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
                add(factor, factor.blocks)
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
