"""The order of pairs by their content, for analyses that deal pairs out to groups.

Neither a seed, nor the order of rows, nor the container of the data changes it.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, content_hashes, scrambled, single_hashes, to_numpy
from divprism.core.kernels import Precomputed
from divprism.core.operators import KernelOperator
from divprism.core.tiles import row_blocks
from divprism.data.items import Text
from divprism.data.samples import Samples
from divprism.scores.problem import Problem

__all__ = ["ContentOrder", "prompts_of", "side_hashes"]

_BLOCK_ENTRIES = 1 << 21  # entries of a kernel matrix that are hashed together


@dataclass(frozen=True, eq=False)
class ContentOrder:
    """Pairs and prompts of a problem in an order that is as good as random.

    Attributes
    ----------
    pairs : ndarray of int
        The pairs in order.
    prompts : ndarray of int, or None
        The rank of each prompt of the problem.
    """

    pairs: np.ndarray
    prompts: np.ndarray | None

    @classmethod
    def of(cls, problem: Problem, samples: Samples, *, weights: object = None) -> "ContentOrder":
        """The order by content; `samples` and `weights` are what the problem was posed with.

        It depends on the prompts and on the number of their outputs, so that it is the same for
        models on the same prompts. Outputs only decide which output of its prompt a pair is. Equal
        pairs, which are interchangeable, are spread over the whole order. O(n d).
        """
        rows = np.arange(problem.n)
        if weights is not None:
            # Posing the problem dropped the pairs of weight zero.
            rows = np.flatnonzero(to_numpy(weights))
        # Equal outputs of one prompt are not interchangeable if their weights, labels or qualities
        # differ.
        of_pairs = side_hashes(samples.outputs, problem.x, rows)
        of_pairs = _joined(of_pairs, problem.weights.view(np.uint64))
        if problem.quality is not None:
            # Adding zero turns minus zero, which has other bits, into zero.
            of_pairs = _joined(of_pairs, (problem.quality + 0.0).view(np.uint64))
        if problem.within_labels is not None:
            labels = problem.within_labels.right.index
            # Labels are known by their members: their names must not matter.
            of_pairs = _joined(of_pairs, _sums(labels, of_pairs)[labels])
        if problem.t is None:
            _, same = np.unique(of_pairs, return_inverse=True)
            return cls._of_hashes(same, of_pairs, of_pairs, has_prompts=False)
        of_prompts = side_hashes(prompts_of(samples), problem.t, rows)
        return cls._of_hashes(problem.t.index, of_prompts, of_pairs, has_prompts=True)

    @classmethod
    def of_rows(cls, problem: Problem) -> "ContentOrder":
        """The order by the numbers of rows, for a problem whose samples are not at hand."""
        pairs = np.arange(problem.weights.size)
        has_prompts = problem.t is not None
        prompts = pairs
        if problem.t is not None:
            prompts = problem.t.index
        return cls._of_hashes(
            prompts, prompts.astype(np.uint64), pairs.astype(np.uint64), has_prompts=has_prompts
        )

    @classmethod
    def _of_hashes(
        cls,
        prompts: np.ndarray,
        of_prompts: np.ndarray,
        of_pairs: np.ndarray,
        *,
        has_prompts: bool,
    ) -> "ContentOrder":
        counts = np.bincount(prompts)
        # Rank of each pair among those of its prompt: copies get different ranks.
        by_prompt = np.lexsort((of_pairs, prompts))
        ranks = np.empty(prompts.size, np.uint64)
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        ranks[by_prompt] = np.arange(prompts.size) - starts
        # Prompts that the kernel merged, such as texts with the same vector, have several hashes.
        hashes = np.full(counts.size, np.iinfo(np.uint64).max)
        np.minimum.at(hashes, prompts, of_prompts)
        # Rows of a kernel matrix may have equal hashes; then outputs decide.
        outputs = _sums(prompts, of_pairs)
        pairs = np.lexsort((outputs[prompts], _joined(hashes[prompts], ranks)))
        if not has_prompts:
            return cls(pairs, None)
        order = np.lexsort((outputs, scrambled(hashes)))
        of_prompt = np.empty(order.size, int)
        of_prompt[order] = np.arange(order.size)
        return cls(pairs, of_prompt)


def prompts_of(samples: Samples) -> Array:
    """Vectors or ids of the prompts; of texts that became numbers, the texts."""
    prompts: Array = samples.prompts
    given = samples.given
    if prompts.ndim == 2 or given is None or not isinstance(given.prompts, tuple):
        return prompts
    # Such numbers follow the order of rows, which must not matter.
    # As objects, because NumPy drops null characters at the end of its own texts.
    texts = [item.text for item in given.prompts if isinstance(item, Text)]
    return np.array(texts, dtype=object)


def side_hashes(data: Array, operator: KernelOperator, rows: np.ndarray) -> np.ndarray:
    """A hash of some rows of one side: vectors, ids or a kernel matrix."""
    if data.ndim == 1:
        return _id_hashes(to_numpy(data)[rows])
    if isinstance(operator.kernel, Precomputed):
        return _matrix_hashes(operator.kernel.pick(data, rows))
    hashes, single = content_hashes(data)[rows], single_hashes(data)[rows]
    # Digits beyond single precision, which text files may lose, count only where rows need them.
    if np.unique(single).size == np.unique(hashes).size:
        return single
    return hashes


def _id_hashes(ids: np.ndarray) -> np.ndarray:
    distinct, inverse = np.unique(ids, return_inverse=True)
    if distinct.dtype.kind in "iub":
        hashes = distinct.astype(np.int64).view(np.uint64)
    else:
        digests = [hashlib.sha256(str(name).encode("utf-8", "replace")) for name in distinct]
        parts = [int.from_bytes(digest.digest()[:8], "little") for digest in digests]
        hashes = np.array(parts, np.uint64)
    return scrambled(hashes)[inverse]


def _matrix_hashes(matrix: Array) -> np.ndarray:
    """A hash of the entries of each row, in any order: other rows may be anywhere."""
    n = matrix.shape[0]
    parts = []
    for rows in row_blocks(n, max(1, _BLOCK_ENTRIES // n)):
        # Adding zero turns minus zero, which has other bits, into zero.
        block = np.ascontiguousarray(to_numpy(matrix[rows, :]), np.float64) + 0.0
        parts.append(scrambled(block.view(np.uint64)).sum(axis=1, dtype=np.uint64))
    return np.concatenate(parts)


def _sums(codes: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """For each code a hash of its members; integers wrap around, so their order is irrelevant."""
    sums = np.zeros(int(codes.max()) + 1, np.uint64)
    np.add.at(sums, codes, scrambled(hashes))
    return sums


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return scrambled(scrambled(first) + second)
