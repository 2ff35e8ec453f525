"""Array operations that the array API standard lacks: host copies, writing in place, equal rows.

Everything else in the package uses the standard through `array_api_compat`, so the same lines run
on NumPy, on torch (CPU or GPU) and on array-api-strict.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_numpy_array, is_torch_array
from array_api_compat import device as device_of

from divprism.core.tiles import row_blocks
from divprism.engines import one_blas_thread

__all__ = [
    "Array",
    "StoredRows",
    "array_namespace",
    "content_hashes",
    "device_of",
    "distinct_rows",
    "eigvalsh",
    "exp_in_place",
    "fill_diagonal",
    "host_rows",
    "in_row_order",
    "is_array_api_obj",
    "is_numpy_array",
    "is_stored",
    "is_torch_array",
    "machine_epsilon",
    "middle",
    "outer_take",
    "plain_mode",
    "scrambled",
    "single_hashes",
    "smallest",
    "to_numpy",
    "upload",
]

Array: TypeAlias = Any
"""An array of any library that follows the array API standard."""

# Sizes of a matrix up to which one BLAS thread, and from which SciPy, computes eigenvalues.
_ONE_THREAD_SIZE = 400
_SCIPY_SIZE = 3001

# Columns that are compared first when looking for equal rows: they nearly always differ there.
_FIRST_COLUMNS = 32

# 2^64 divided by the golden ratio, made odd: the multiplier of Fibonacci hashing.
_GOLDEN = 0x9E3779B97F4A7C15

# Bytes of a memory map up to which it is copied into another order.
_LARGEST_COPY = 1 << 30

# Dtypes of torch that NumPy has as well.
_NUMPY_DTYPES = frozenset(
    (
        *("torch.float16", "torch.float32", "torch.float64", "torch.bool", "torch.uint8"),
        *("torch.int8", "torch.int16", "torch.int32", "torch.int64"),
    )
)

# Entries of rows that are hashed or compared together: 16 MB of float64.
_CHUNK_ENTRIES = 1 << 21


def to_numpy(a: Array) -> np.ndarray:
    """`a` in host memory, as NumPy."""
    if is_torch_array(a):
        a = a.detach().cpu()
        # NumPy has no bfloat16; single precision holds its values exactly.
        if str(a.dtype) == "torch.bfloat16":
            a = a.float()
    return np.asarray(a)


def in_row_order(a: Array) -> Array:
    """`a` with its rows one after the other in memory, which the last bit of a product depends on.

    A file that is read on access stays as it is: a copy may not fit into the memory.
    """
    if is_torch_array(a):
        return a.contiguous()
    if is_numpy_array(a) and a.ndim > 0 and not (is_stored(a) and a.nbytes > _LARGEST_COPY):
        return np.ascontiguousarray(a)
    return a


def host_rows(a: Any) -> Any:
    """A tensor of torch in host memory as NumPy, without a copy; anything else as it is.

    A container does not change an answer, and each library rounds products in its own way. Tensors
    of dtypes that NumPy does not have, and those on other devices, stay tensors.
    """
    if not is_torch_array(a):
        return a
    is_plain = a.device.type == "cpu" and str(a.layout) == "torch.strided" and not a.is_nested
    if not is_plain or str(a.dtype) not in _NUMPY_DTYPES:
        return a
    return a.detach().resolve_neg().numpy()


def upload(values: np.ndarray, like: Array) -> Array:
    """`values` as an array of the library and on the device of `like`."""
    if not is_numpy_array(like):
        # A copy: torch shares memory with NumPy and rejects negative strides and read-only arrays.
        values = np.array(values)
    return array_namespace(like).asarray(values, device=device_of(like))


def is_stored(a: object) -> bool:
    """Whether `a` is a view of a memory-mapped file.

    >>> is_stored(np.zeros(3))
    False
    """
    while isinstance(a, np.ndarray):
        if isinstance(a, np.memmap):
            return True
        # A slice or a transpose of a memory map is a plain array whose base is the map.
        a = a.base
    return False


@dataclass(frozen=True)
class StoredRows:
    """Where the rows of a memory map are, for a process that opens the file itself."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, rows: np.ndarray) -> "StoredRows":
        """The place of a memory map, or of consecutive rows of one."""
        whole = rows
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        assert isinstance(whole, np.memmap) and rows.flags.c_contiguous
        # A slice has the offset of the whole map.
        skipped = rows.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        offset = whole.offset + skipped
        return cls(str(whole.filename), rows.dtype.str, rows.shape, offset)

    def content_chunks(self) -> Iterator[bytes]:
        """The form of the rows and their bytes, for a hash."""
        yield f"{self.dtype} {self.shape}".encode()
        rows = self.open()
        step = max(1, _CHUNK_ENTRIES // max(1, math.prod(self.shape[1:])))
        for start in range(0, len(rows), step):
            yield rows[start : start + step].tobytes()

    def open(self) -> np.memmap:
        """The rows, read from the file on access."""
        return np.memmap(
            self.path, dtype=self.dtype, mode="r", shape=self.shape, offset=self.offset
        )


def machine_epsilon(a: Array) -> float:
    """Spacing of floating-point numbers at one, for the dtype of `a`."""
    return float(array_namespace(a).finfo(a.dtype).eps)


def exp_in_place(a: Array) -> Array:
    """exp(a), written over `a` if the library can do so: a kernel block is large and read once."""
    if is_numpy_array(a):
        return np.exp(a, out=a)
    if is_torch_array(a):
        return a.exp_()
    return array_namespace(a).exp(a)


def eigvalsh(matrix: Array) -> np.ndarray:
    """Ascending eigenvalues of a symmetric matrix, on the host; `matrix` may be overwritten.

    Which library solves it depends on the size; benchmarks/exact.py measures both.
    """
    if not is_numpy_array(matrix):
        return to_numpy(array_namespace(matrix).linalg.eigvalsh(matrix))
    # Up to n = 400 one BLAS thread is as fast as two, and many times faster where other processes
    # use the cores.
    if matrix.shape[0] <= _ONE_THREAD_SIZE:
        with one_blas_thread():
            return np.linalg.eigvalsh(matrix)
    # NumPy and SciPy each bring their own BLAS. After a kernel block the threads of NumPy's keep
    # spinning for some milliseconds, which slows SciPy's by up to a half at n = 500. From n = 1800
    # on that no longer matters, and SciPy gains a few percent by working in place.
    if matrix.shape[0] < _SCIPY_SIZE:
        return np.linalg.eigvalsh(matrix)
    import scipy.linalg

    # Transposed, because LAPACK works in place on Fortran order only.
    return scipy.linalg.eigvalsh(matrix.T, overwrite_a=True, check_finite=False)


def fill_diagonal(block: Array, row: int, column: int, length: int) -> Array:
    """`block` with ones at (row, column), (row + 1, column + 1), ...; in place where possible."""
    xp = array_namespace(block)
    steps = xp.arange(length, device=device_of(block))
    if is_numpy_array(block) or is_torch_array(block):
        block[steps + row, steps + column] = 1.0
        return block
    # The standard has no assignment by two index arrays, so the whole square is replaced.
    rows, columns = slice(row, row + length), slice(column, column + length)
    one = xp.ones((), dtype=block.dtype, device=device_of(block))
    on_diagonal = steps[:, None] == steps[None, :]
    block[rows, columns] = xp.where(on_diagonal, one, block[rows, columns])
    return block


def middle(a: Array, rank: int) -> float:
    """Mean of the entries of `a` with ranks `rank` and `rank` + 1 in ascending order, from zero.

    O(size of a), where a library can select without sorting.

    >>> middle(np.array([[5.0, 1.0], [2.0, 9.0]]), 1)
    3.5
    """
    if is_numpy_array(a):
        pair: Any = np.partition(a, (rank, rank + 1), axis=None)[rank : rank + 2]
    elif is_torch_array(a):
        # torch counts ranks from one.
        pair = [a.flatten().kthvalue(rank + k).values for k in (1, 2)]
    else:
        xp = array_namespace(a)
        pair = xp.sort(xp.reshape(a, (-1,)))[rank : rank + 2]
    # Halved before adding, so that large entries do not overflow.
    return 0.5 * float(pair[0]) + 0.5 * float(pair[1])


def outer_take(matrix: Array, index: Array | None) -> Array:
    """matrix[index][:, index]; None stands for every row and copies nothing."""
    if index is None:
        return matrix
    xp = array_namespace(matrix)
    return xp.take(xp.take(matrix, index, axis=0), index, axis=1)


def distinct_rows(x: Array) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of `x` are equal: (`first`, `inverse`), with x[first][inverse] equal to x.

    `first` holds the position of the first copy of each distinct row, in order of appearance;
    `inverse` holds the distinct row that each row equals. Candidates come from a random projection
    and are then compared entry by entry, so different rows are never merged. O(n d + n log n).

    >>> first, inverse = distinct_rows(np.array([[3.0, 1.0], [2.0, 2.0], [3.0, 1.0]]))
    >>> first.tolist(), inverse.tolist()
    ([0, 1], [0, 1, 0])
    """
    n, d = x.shape
    # In most data the first columns alone distinguish all rows.
    if d > _FIRST_COLUMNS and np.unique(_row_keys(x[:, :_FIRST_COLUMNS])).size == n:
        return np.arange(n), np.arange(n)
    # `leader` is the first row with a key, which all rows with that key are compared to.
    _, leader, group = np.unique(_row_keys(x), return_index=True, return_inverse=True)
    representative = leader[group]
    copies = np.flatnonzero(representative != np.arange(n))
    if copies.size:
        equal = _rows_equal(x, copies, representative[copies])
        # Different rows with the same key by chance stay apart.
        collisions = copies[~equal]
        representative[collisions] = collisions
    first, inverse = np.unique(representative, return_inverse=True)
    return first, inverse


def content_hashes(x: Array) -> np.ndarray:
    """A number for each row that depends on what the row holds and on nothing else.

    Rows with the smallest hashes are a sample of the data that neither the order of rows, nor a
    seed, nor the library that holds the array can change. The upper half of a hash is that of the
    row in single precision, because numbers of a text file are the same as those of an array only
    to that precision. The lower half tells rows apart that are equal in it. O(n d).
    """
    hashes = single_hashes(x)
    # The dtype of bytes in another order is not equal to float64.
    if is_numpy_array(x) and not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.dtype != array_namespace(x).float64:
        return hashes
    # No change where double precision adds nothing.
    difference = hashes ^ _key_hashes(_row_keys(x))
    return hashes ^ (difference >> np.uint64(32))


def single_hashes(x: Array) -> np.ndarray:
    """A number for each row that depends on what the row holds in single precision."""
    return _key_hashes(_row_keys(x, np.float32))


def _key_hashes(keys: np.ndarray) -> np.ndarray:
    # Fibonacci hashing: the last bits of a key, which are as good as random, decide the order.
    return keys.view(np.uint64) * np.uint64(_GOLDEN)


def scrambled(hashes: np.ndarray) -> np.ndarray:
    """Numbers whose every bit depends on all bits of the given ones: the end of SplitMix64."""
    hashes = hashes + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def smallest(hashes: np.ndarray, size: int) -> np.ndarray:
    """Positions of the `size` smallest hashes, in ascending order.

    >>> smallest(np.array([7, 1, 5, 2]), 2).tolist()
    [1, 3]
    """
    return np.sort(np.argsort(hashes, kind="stable")[:size])


def _row_keys(x: Array, precision: type[np.floating[Any]] = np.float64) -> np.ndarray:
    """A number for each row: equal for equal rows, and for different rows only by chance.

    Rows count as equal if they are in a precision.
    """
    n, d = x.shape
    direction = np.random.default_rng(0).standard_normal(d)
    keys = []
    for rows in row_blocks(n, max(1, _CHUNK_ENTRIES // d)):
        # What single precision cannot hold becomes infinite: such rows differ in double only.
        with np.errstate(over="ignore"):
            chunk = np.ascontiguousarray(to_numpy(x[rows, :]).astype(precision), np.float64)
        # On the host, in double precision and in a fixed order: a BLAS product, or a reduction over
        # a strided tensor, rounds equal rows differently depending on their position.
        with np.errstate(invalid="ignore"):
            keys.append(np.einsum("ij,j->i", chunk, direction, optimize=False))
    # One NaN of many, so that equal rows have equal bits.
    joined = np.concatenate(keys)
    return np.where(np.isnan(joined), np.nan, joined)


def _rows_equal(x: Array, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Whether row left[k] equals row right[k], for each k."""
    xp = array_namespace(x)
    equal = np.zeros(left.size, bool)
    for piece in row_blocks(left.size, max(1, _CHUNK_ENTRIES // x.shape[1])):
        rows = xp.take(x, upload(left[piece], x), axis=0)
        others = xp.take(x, upload(right[piece], x), axis=0)
        equal[piece] = to_numpy(xp.all(rows == others, axis=1))
    return equal


def plain_mode() -> AbstractContextManager[object]:
    """Leave the modes of torch that the caller may be in, for numerical work on arrays.

    Tensors made in inference mode cannot be written to later, autocast rounds products to half
    precision, and gradients would record a graph that nobody uses.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return nullcontext()
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    # In this order: leaving inference mode turns gradients on.
    stack.enter_context(torch.no_grad())
    stack.enter_context(torch.autocast("cpu", enabled=False))
    if torch.cuda.is_available():
        stack.enter_context(torch.autocast("cuda", enabled=False))
    return stack
