"""Kernel matrices with a block for each prompt, and the pairs of each block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.entropy import renyi_entropy
from divprism.core.spectrum import Spectrum
from divprism.engines import one_blas_thread

__all__ = ["Stack", "entropy_of_blocks", "members_by_code", "stacks_of", "whole_codes"]


def members_by_code(codes: np.ndarray) -> list[np.ndarray]:
    """The indices of each code, by rising code."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def whole_codes(codes: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """The indices of whole codes, as many together as have at most `size` indices."""
    together: list[np.ndarray] = []
    count = 0
    for members in members_by_code(codes):
        if together and count + members.size > size:
            yield np.concatenate(together)
            together, count = [], 0
        together.append(members)
        count += members.size
    yield np.concatenate(together)


@dataclass(frozen=True, eq=False)
class Stack:
    """The blocks of one size of a block-diagonal kernel matrix, and the points of each."""

    members: np.ndarray
    kernels: np.ndarray


def stacks_of(kernel: np.ndarray, blocks: np.ndarray) -> list[Stack]:
    """The blocks of a kernel matrix, stacked by size: one call of LAPACK solves a whole stack."""
    by_size: dict[int, list[np.ndarray]] = {}
    for members in members_by_code(blocks):
        by_size.setdefault(members.size, []).append(members)
    stacks = []
    for same_size in by_size.values():
        members = np.stack(same_size)
        stacks.append(Stack(members, kernel[members[:, :, None], members[:, None, :]]))
    return stacks


def entropy_of_blocks(
    stacks: Sequence[Stack], masses: np.ndarray, order: float, truncation: int | None
) -> float:
    """`matrix_entropy` of a block-diagonal kernel matrix: the spectra of the blocks, joined."""
    roots = np.sqrt(masses / masses.sum())
    values = []
    for stack in stacks:
        scale = roots[stack.members]
        matrices = stack.kernels * scale[:, :, None] * scale[:, None, :]
        with one_blas_thread():
            values.append(np.linalg.eigvalsh(matrices).reshape(-1))
    spectrum = Spectrum.from_eigenvalues(np.concatenate(values), noise=0.0, method="exact")
    return renyi_entropy(spectrum, order, truncation)
