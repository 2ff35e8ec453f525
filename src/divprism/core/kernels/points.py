"""Points: items prepared for one kernel, in memory or read from a file block by block."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from divprism.core.arrays import Array, StoredRows, array_namespace

__all__ = ["Points", "StoredPoints"]


@dataclass(frozen=True, eq=False)
class Points:
    """Items prepared for one kernel, from which it computes blocks of its matrix.

    Attributes
    ----------
    rows : array
        One entry (a vector or a code) per point.
    half_squares : array or None
        Half the squared norm of each row, for kernels that need it.
    table : array or None
        Data that all points share: the matrix behind `Precomputed`.
    noise : float
        Bound on the rounding error of a kernel entry: smaller eigenvalues are treated as zero.
    noises : array or None
        A sharper bound where points differ: entry (i, j) errs by at most its value times
        noises[i] + noises[j].
    refine : bool
        Whether some squared distances cancel so badly that they are recomputed from differences.
    """

    rows: Array
    half_squares: Array | None = None
    table: Array | None = None
    noise: float = 0.0
    refine: bool = False
    noises: Array | None = None

    def __len__(self) -> int:
        return self.rows.shape[0]

    def __getitem__(self, index: slice) -> "Points":
        # The array API standard wants an index for every axis: vectors and codes differ in rank.
        return self._select(lambda a: a[index, ...])

    def take(self, index: Array) -> "Points":
        """Points at the positions `index` (an integer array), in that order."""
        return self._select(lambda a: array_namespace(a).take(a, index, axis=0))

    def double(self) -> "Points":
        """The same points, exactly, for blocks in double precision."""
        xp = array_namespace(self.rows)
        changes: dict[str, Array] = {}
        if self.table is not None:
            changes["table"] = xp.astype(self.table, xp.float64)
        is_coded = self.rows.ndim == 1
        if not is_coded:
            rows = xp.astype(self.rows, xp.float64)
            changes["rows"] = rows
            if self.half_squares is not None:
                # Recomputed: the norms in single precision carry the rounding that we remove.
                changes["half_squares"] = 0.5 * xp.sum(rows * rows, axis=1)
        return replace(self, **changes)

    def _select(self, pick: Callable[[Array], Array]) -> "Points":
        squares, noises = self.half_squares, self.noises
        if squares is not None:
            squares = pick(squares)
        if noises is not None:
            noises = pick(noises)
        return Points(pick(self.rows), squares, self.table, self.noise, self.refine, noises)


@dataclass(frozen=True, eq=False)
class StoredPoints(Points):
    """Points prepared from rows of a file on request, a block at a time, for data beyond memory.

    `make` turns some of the rows into points.
    """

    # Always given; a field after others with defaults needs one.
    make: Callable[[Array], Points] = Points

    def __getitem__(self, index: slice) -> Points:
        return self.make(np.asarray(self.rows[index]))

    def take(self, index: Array) -> Points:
        """Points at the positions `index`, loaded into memory."""
        return self.make(np.asarray(self.rows[index]))

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the file: the rows would not fit into its memory either.
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"rows": StoredRows.of(self.rows)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state["rows"].open()
        for name, value in (state | {"rows": rows}).items():
            object.__setattr__(self, name, value)
