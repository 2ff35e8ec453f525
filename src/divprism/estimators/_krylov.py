"""Block Lanczos: an orthonormal basis of V, A V, ..., A^(m-1) V, and A projected on it."""

import numpy as np

from divprism.core.arrays import Array, array_namespace, machine_epsilon, to_numpy

__all__ = ["BlockKrylov"]


class BlockKrylov:
    """The Krylov space of a symmetric matrix A and a block V, grown by one product at a time.

    The s columns of V share one space. It contains the Krylov space of each column, so its
    quadrature is finer than s separate recurrences with the same products, and it finds each of
    the top eigenvectors once rather than s times.

    Attributes
    ----------
    block : array (n, s)
        The vectors to multiply next.
    start : ndarray (s, s)
        V = first block @ start.
    compressed : ndarray (p, p)
        Q' A Q on the p = s x steps basis vectors, in double precision.
    coupling : ndarray (s, s)
        Q_next' A Q_last, the part of A that leaves the basis.
    """

    def __init__(self, vectors: Array) -> None:
        xp = array_namespace(vectors)
        self.block, start = xp.linalg.qr(vectors)
        self.start = to_numpy(start).astype(np.float64)
        self.width: int = vectors.shape[1]
        self.epsilon = machine_epsilon(vectors)
        self.compressed = np.zeros((0, 0))
        self.coupling = np.zeros((self.width, self.width))
        self._basis = vectors[:, :0]

    @property
    def steps(self) -> int:
        """Number of products so far."""
        return self.compressed.shape[0] // self.width

    @property
    def is_full(self) -> bool:
        """Whether another block would be larger than what the basis leaves of the whole space."""
        # Vectors beyond the n-th are rounding errors that cannot be orthogonal to the others.
        n, columns = self._basis.shape
        return columns + self.width > n

    def extend(self, product: Array) -> None:
        """Add A @ block to the space, and make the next block orthogonal to all before it."""
        xp = array_namespace(product)
        old, s = self.compressed.shape[0], self.width
        grown = np.zeros((old + s, old + s))
        grown[:old, :old] = self.compressed
        if old:
            grown[old:, old - s : old] = self.coupling
            grown[old - s : old, old:] = self.coupling.T
        self._basis = xp.concat([self._basis, self.block], axis=1)
        # In double precision, since the eigenvalues of the small matrix are the result.
        diagonal = to_numpy(xp.astype(self.block, xp.float64).T @ xp.astype(product, xp.float64))
        grown[old:, old:] = 0.5 * (diagonal + diagonal.T)
        # Projected twice before normalising, as usual against rounding, and once after: if the
        # space is exhausted, the rest is rounding error, which need not be orthogonal to anything.
        remainder = xp.astype(product, self._basis.dtype)
        for _ in range(2):
            remainder = remainder - self._basis @ (self._basis.T @ remainder)
        block, first = xp.linalg.qr(remainder)
        block = block - self._basis @ (self._basis.T @ block)
        self.block, second = xp.linalg.qr(block)
        self.coupling = to_numpy(second).astype(np.float64) @ to_numpy(first).astype(np.float64)
        self.compressed = grown

    def release(self) -> None:
        """Free the basis: all later results need the compressed matrix only."""
        self._basis = self._basis[:0, :0]
        self.block = self.block[:0, :0]

    def is_exhausted(self, noise: float) -> bool:
        """Whether only rounding error of size `noise` is left outside the basis."""
        if not self.steps:
            return False
        floor = max(noise, 4 * self.epsilon * float(np.abs(self.compressed).max(initial=0.0)))
        return bool(np.linalg.norm(self.coupling, 2) <= floor)
