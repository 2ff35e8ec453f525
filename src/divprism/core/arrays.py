"""What the array API standard leaves out: host copies, writing in place, equal rows.

Everything else in the package calls the standard through `array_api_compat`, so the same lines run on NumPy, on torch (CPU or
GPU) and on array-api-strict.
"""

import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_numpy_array, is_torch_array
from array_api_compat import device as device_of

from divprism.core.tiles import row_blocks
from divprism.engines import one_blas_thread

__all__ = [
    "Array",
    "array_namespace",
    "device_of",
    "distinct_rows",
    "eigvalsh",
    "exp_in_place",
    "fill_diagonal",
    "is_array_api_obj",
    "is_numpy_array",
    "is_stored",
    "is_torch_array",
    "machine_epsilon",
    "middle",
    "outer_take",
    "plain_mode",
    "to_numpy",
    "upload",
]

Array: TypeAlias = Any
"""An array of any library that follows the array API standard."""

_SMALL, _LARGE = 400, 1800
_GLANCE = 32
_CHUNK_ENTRIES = 1 << 21  # rows are hashed in pieces of about 16 MB of float64


def to_numpy(a: Array) -> np.ndarray:
    """Copy of `a` in host memory, as NumPy."""
    if is_torch_array(a):
        a = a.detach().cpu()
        if (
            str(a.dtype) == "torch.bfloat16"
        ):  # NumPy has no such type; single precision holds it exactly
            a = a.float()
    return np.asarray(a)


def upload(values: Any, like: Array) -> Array:
    """`values` (a NumPy array) as an array of the library and on the device of `like`."""
    if not is_numpy_array(like):
        values = np.array(
            values
        )  # torch shares memory with NumPy, and refuses negative strides and what it cannot write to
    return array_namespace(like).asarray(values, device=device_of(like))


def is_stored(a: Array) -> bool:
    """Whether `a` is a view of a memory-mapped file.

    >>> is_stored(np.zeros(3))
    False
    """
    while isinstance(a, np.ndarray):
        if isinstance(a, np.memmap):
            return True
        a = a.base
    return False


def machine_epsilon(a: Array) -> float:
    """Spacing of floating-point numbers at one, for the dtype of `a`."""
    return float(array_namespace(a).finfo(a.dtype).eps)


def exp_in_place(a: Array) -> Array:
    """exp(a), written over `a` where the library can do so: a kernel block is large and read once."""
    if is_numpy_array(a):
        return np.exp(a, out=a)
    if is_torch_array(a):
        return a.exp_()
    return array_namespace(a).exp(a)


def eigvalsh(matrix: Array) -> np.ndarray:
    """Ascending eigenvalues of a symmetric matrix, on the host; `matrix` may be overwritten.

    NumPy and SciPy each bring a BLAS of their own. After a kernel block the threads of NumPy's still spin for some
    milliseconds, which slows SciPy's by up to a half at n = 500; from n = 1800 on that no longer matters, and SciPy's gains a
    few percent by working in place (on the transpose, because LAPACK wants Fortran order). benchmarks/exact.py shows both.
    Up to n = 400 one thread is as fast as two, and where others use the cores too, many times as fast as two that wait for each
    other; a little further it is a tenth slower on its own.
    """
    if not is_numpy_array(matrix):
        return to_numpy(array_namespace(matrix).linalg.eigvalsh(matrix))
    if matrix.shape[0] <= _SMALL:
        with one_blas_thread():
            return np.linalg.eigvalsh(matrix)
    if matrix.shape[0] < _LARGE:
        return np.linalg.eigvalsh(matrix)
    import scipy.linalg

    return scipy.linalg.eigvalsh(matrix.T, overwrite_a=True, check_finite=False)


def fill_diagonal(block: Array, row: int, column: int, length: int) -> Array:
    """`block` with ones at (row, column), (row + 1, column + 1), ..., in place where the library can do so."""
    xp = array_namespace(block)
    place = xp.arange(length, device=device_of(block))
    if is_numpy_array(block) or is_torch_array(block):
        block[place + row, place + column] = 1.0
        return block
    square = block[row : row + length, column : column + length]
    one = xp.ones((), dtype=block.dtype, device=device_of(block))
    block[row : row + length, column : column + length] = xp.where(
        place[:, None] == place[None, :], one, square
    )
    return block


def middle(a: Array, place: int) -> float:
    """Mean of the entries number `place` and `place` + 1 of `a`, counted from zero in rising order; O(size of a).

    >>> middle(np.array([[5.0, 1.0], [2.0, 9.0]]), 1)
    3.5
    """
    if is_numpy_array(a):
        pair: Any = np.partition(a, (place, place + 1), axis=None)[place : place + 2]
    elif is_torch_array(a):
        pair = [a.flatten().kthvalue(place + k).values for k in (1, 2)]
    else:
        xp = array_namespace(a)
        pair = xp.sort(xp.reshape(a, (-1,)))[place : place + 2]
    return 0.5 * float(pair[0]) + 0.5 * float(pair[1])


def outer_take(matrix: Array, index: Array | None) -> Array:
    """matrix[index][:, index]; `None` stands for every row, and then nothing is copied."""
    if index is None:
        return matrix
    xp = array_namespace(matrix)
    return xp.take(xp.take(matrix, index, axis=0), index, axis=1)


def _row_keys(x: Array) -> np.ndarray:
    """A number per row: equal for equal rows, different for others but for chance.

    Added up on the host, in double precision, row after row in the same order: a BLAS product, or a reduction over a strided
    tensor, rounds equal rows differently depending on where they stand.
    """
    n, d = x.shape
    direction = np.random.default_rng(0).standard_normal(d)
    pieces = [
        np.ascontiguousarray(to_numpy(x[rows, :]), np.float64)
        for rows in row_blocks(n, max(1, _CHUNK_ENTRIES // d))
    ]
    return np.concatenate(
        [np.einsum("ij,j->i", piece, direction, optimize=False) for piece in pieces]
    )


def distinct_rows(x: Array) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of `x` are equal: (`first`, `inverse`), with x[first][inverse] equal to x.

    `first` holds the place of the first copy of each distinct row, in the order of appearance; `inverse` the distinct row that
    each row equals. Candidates are found by a random projection and then compared entry by entry, so no two rows that differ
    are ever taken for one. O(n d + n log n).

    >>> first, inverse = distinct_rows(np.array([[3.0, 1.0], [2.0, 2.0], [3.0, 1.0]]))
    >>> first.tolist(), inverse.tolist()
    ([0, 1], [0, 1, 0])
    """
    n, d = x.shape
    if d > _GLANCE and np.unique(_row_keys(x[:, :_GLANCE])).size == n:
        return np.arange(n), np.arange(n)  # the first columns alone tell all rows apart
    _, leader, group = np.unique(_row_keys(x), return_index=True, return_inverse=True)
    representative = leader[group]
    copies = np.flatnonzero(representative != np.arange(n))
    if copies.size:
        xp = array_namespace(x)
        equal = np.zeros(copies.size, bool)
        step = max(1, _CHUNK_ENTRIES // x.shape[1])
        for piece in row_blocks(copies.size, step):
            here = copies[piece]
            same = xp.take(x, upload(here, x), axis=0) == xp.take(
                x, upload(representative[here], x), axis=0
            )
            equal[piece] = to_numpy(xp.all(same, axis=1))
        chance = copies[~equal]  # different rows with the same key stay apart
        representative[chance] = chance
    first, inverse = np.unique(representative, return_inverse=True)
    return first, inverse


def plain_mode() -> AbstractContextManager[Any]:
    """Around numerical work on arrays, out of the modes of torch that a caller may be in.

    Tensors made in its inference mode cannot be written to later, autocast rounds products to half precision, and no graph of
    gradients is wanted.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return nullcontext()
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.no_grad())  # after it: leaving inference mode asks for gradients
    for kind in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        stack.enter_context(torch.autocast(kind, enabled=False))
    return stack
