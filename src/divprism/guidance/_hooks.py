"""Methods of foreign objects, wrapped for a while; where in its schedule a scheduler is."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from divprism.errors import DataError

__all__ = ["place", "replaced"]

_ABSENT = object()


def place(scheduler: Any, timestep: Any) -> int:
    """Where in the schedule a run begins: not at its beginning if it begins with an image."""
    begin = getattr(scheduler, "begin_index", None)
    if begin is not None:
        return int(begin)
    times = [float(time) for time in scheduler.timesteps]
    if float(timestep) not in times:
        raise DataError(
            f"the sampler steps at {float(timestep):g}, which is not in its schedule: it cannot be followed."
        )
    return times.index(float(timestep))


class _Wrapped:
    """A wrapped method that a deep copy of its owner does not inherit: it would drive the original."""

    def __init__(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        self._owner, self._name, self._wrapper = owner, name, wrapper
        functools.update_wrapper(
            self, wrapper, updated=()
        )  # what it wraps may be one of us, with fields of its own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wrapper(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        owner = memo.get(
            id(self._owner)
        )  # none if only the attributes are copied, to be put back later
        return self if owner is None else getattr(type(owner), self._name).__get__(owner)


@contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """A method of one object wrapped, and put back as it was; deep copies of the object have the method itself."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, _Wrapped(owner, name, wrap(getattr(owner, name))))
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
