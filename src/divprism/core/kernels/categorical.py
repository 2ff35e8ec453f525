"""The kernel of equality, for prompts given as group ids."""

from dataclasses import dataclass
from typing import Any

from divprism.core.arrays import Array, array_namespace, device_of
from divprism.core.kernels.base import Kernel
from divprism.core.kernels.points import Points
from divprism.core.validation import clean_ids, clean_rows

__all__ = ["Categorical"]


@dataclass(frozen=True)
class Categorical(Kernel):
    """Similar only when equal: one for equal items, zero otherwise. For prompts as group ids.

    Its kernel matrix is block diagonal, so a score under it splits into the groups and costs the
    sum of their costs.
    """

    def clean(self, x: object, name: str) -> Array:
        """A column of codes for flat ids; rows of numbers stay as they are."""
        codes = clean_ids(x, name)
        if codes is None:
            return clean_rows(x, name)
        return codes[:, None]

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """A code for each item."""
        # `merge` has removed equal items, so each of the remaining ones is a group of its own.
        xp = array_namespace(x)
        codes = xp.arange(x.shape[0], dtype=xp.int64, device=device_of(x))
        # The table carries the precision that `block` answers in: codes are integers.
        return Points(codes, table=xp.ones((1,), dtype=dtype, device=device_of(x)))

    def block(self, a: Points, b: Points) -> Array:
        """Ones where codes agree, zeros elsewhere."""
        assert a.table is not None
        equal = a.rows[:, None] == b.rows[None, :]
        return array_namespace(a.rows).astype(equal, a.table.dtype)
