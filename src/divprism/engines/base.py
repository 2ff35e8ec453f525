"""The contract of an engine: jobs, and totals that are summed in a tree of fixed shape."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = [
    "Arrays",
    "Engine",
    "Job",
    "Report",
    "Shared",
    "Total",
    "Tree",
    "bundled",
    "sum_of",
]

T = TypeVar("T")

Report = Callable[[float], None]
"""A function that is called with the completed share of a pass."""


class Total(ABC):
    """A sum of parts of a job."""

    @abstractmethod
    def add(self, item: Any, part: Any) -> None:
        """Add the part of an item, in place."""

    @abstractmethod
    def merged(self, other: "Total") -> "Total":
        """The sum of this total and that of later items, as a new object."""

    @abstractmethod
    def arrays(self) -> list[np.ndarray]:
        """Its numbers, for a file."""

    @abstractmethod
    def with_arrays(self, arrays: Sequence[np.ndarray]) -> "Total":
        """A total of the same form with the numbers of `arrays`."""


class Job(ABC):
    """Work in parts that are summed: what all parts share, such as points and their kernel.

    An engine may run the parts in other processes. A job is pickled once for each of these, so it
    refers to no open file, thread or client.
    """

    @property
    def content(self) -> Any:
        """Everything that parts depend on beside the inputs of a pass."""
        return self

    @abstractmethod
    def empty(self, inputs: Any, items: Sequence[Any]) -> Total:
        """The total of no part, with room for the parts of some items."""

    @abstractmethod
    def part(self, inputs: Any, item: Any) -> Any:
        """The part of one item; `inputs` are those of one pass, such as the vectors to multiply."""


class Shared(Generic[T]):
    """A value that tasks of an engine refer to; `value` is the copy of this process."""

    def __init__(self, value: T) -> None:
        self.value = value


class Engine(ABC):
    """Where the parts of a job are computed. No engine changes a bit of a result.

    Totals are summed in the order of the items inside a bundle, and bundles in a binary tree whose
    shape depends on their number alone: not on the number of workers, nor on who is first.
    """

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """Number of parts that are computed at the same time."""

    @property
    def num_processes(self) -> int:
        """Number of processes that keep values between passes."""
        return 1

    @abstractmethod
    def share(self, value: T) -> Shared[T]:
        """Make a value, such as a job, known to all workers."""

    @abstractmethod
    def total(
        self,
        job: Shared[Any],
        inputs: Any,
        bundles: Sequence[Sequence[Any]],
        report: Report,
    ) -> Any:
        """The sum of the parts of all items. `report` is called after each bundle or item."""

    @abstractmethod
    def kept_bytes(self, room: int, needed: int) -> int:
        """Bytes of values that each process may keep between passes.

        `room` is what the budget of this process leaves for them, beside the bytes `needed` that
        each process needs anyway.
        """


def bundled(items: Sequence[T], most: int = 32) -> list[Sequence[T]]:
    """Consecutive items in at most `most` bundles, whose sizes differ by at most one.

    >>> bundled([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4, 5]]
    """
    count = min(len(items), most)
    ends = [len(items) * number // count for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


@dataclass
class Arrays(Total):
    """A sum of tuples of arrays and numbers."""

    values: tuple[Any, ...]

    def add(self, item: Any, part: tuple[Any, ...]) -> None:
        """Add the arrays of a part to those here, one by one."""
        self.values = tuple(a + b for a, b in zip(self.values, part, strict=True))

    def merged(self, other: Total) -> "Arrays":
        """The sum of both, as a new object."""
        assert isinstance(other, Arrays)
        return Arrays(tuple(a + b for a, b in zip(self.values, other.values, strict=True)))

    def arrays(self) -> list[np.ndarray]:
        """The values; numbers as arrays without an axis."""
        return [np.asarray(value) for value in self.values]

    def with_arrays(self, arrays: Sequence[np.ndarray]) -> "Arrays":
        """The same with other values."""
        # An empty tuple as index turns an array without an axis into a number.
        return Arrays(tuple(array[()] for array in arrays))


def sum_of(job: Job, inputs: Any, items: Sequence[Any]) -> Total:
    """The total of one bundle, added up item by item."""
    total = job.empty(inputs, items)
    for item in items:
        total.add(item, job.part(inputs, item))
    return total


class Tree:
    """Sums totals that arrive in order, as neighbours in a binary tree.

    Two totals of the same height are merged as soon as both are there, so at most one of each
    height is held.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Any]] = []

    def add(self, total: Any) -> None:
        """The next total."""
        height = 0
        # As a carry in a binary counter: heights fall from the first to the last that wait.
        while self._waiting and self._waiting[-1][0] == height:
            _, earlier = self._waiting.pop()
            total = earlier.merged(total)
            height += 1
        self._waiting.append((height, total))

    def sum(self) -> Any:
        """The sum of all totals."""
        _, total = self._waiting.pop()
        while self._waiting:
            _, earlier = self._waiting.pop()
            total = earlier.merged(total)
        return total
