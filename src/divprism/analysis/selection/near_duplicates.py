"""Near-copies: outputs so similar to one that is kept that they add nothing to it."""

import numpy as np

from divprism.analysis.selection.similarities import Similarities

__all__ = ["without_near_copies"]

_BLOCK = 512  # items that are compared with those kept so far at a time
_KEPT = 8192  # items kept that are compared at a time


def without_near_copies(
    similarities: Similarities, by_preference: np.ndarray, threshold: float, num_first: int = 0
) -> np.ndarray:
    """The rows that are left when near-copies are dropped, in order of preference.

    Rows are visited in order of preference. A row is dropped if its similarity to a row that was
    kept is at least `threshold`; the first `num_first` rows are kept in any case. So no two of the
    others are that similar, and every row that is dropped has a near-copy that is kept. Groups of
    near-copies are not chained: a row is not dropped for being similar to a dropped row.
    O(n n' d) for n items of which n' are kept, in blocks.
    """
    items = similarities.item_of_row[by_preference]
    _, firsts = np.unique(items[num_first:], return_index=True)
    # Equal items are copies of each other whatever the threshold.
    visited = np.concatenate([np.arange(num_first), num_first + np.sort(firsts)])
    kept: list[int] = []
    for start in range(0, visited.size, _BLOCK):
        block = visited[start : start + _BLOCK]
        is_copy = _similar_to_any(similarities, items[block], items[kept], threshold)
        among = similarities.block(items[block], items[block]) >= threshold
        among |= items[block][:, None] == items[block][None, :]
        for position, row in enumerate(block.tolist()):
            if is_copy[position] and row >= num_first:
                continue
            kept.append(row)
            is_copy |= among[position]
    return np.asarray(by_preference[kept])


def _similar_to_any(
    similarities: Similarities, items: np.ndarray, others: np.ndarray, threshold: float
) -> np.ndarray:
    """Whether each of some items is similar to any of the others."""
    found = np.zeros(items.size, bool)
    for start in range(0, others.size, _KEPT):
        part = others[start : start + _KEPT]
        found |= (similarities.block(items, part) >= threshold).any(axis=1)
        found |= np.isin(items, part)
    return found
