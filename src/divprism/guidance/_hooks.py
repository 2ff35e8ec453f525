"""Temporary wrappers around methods of third-party objects, and the position in a schedule."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from divprism.core.arrays import Array
from divprism.errors import DataError

__all__ = ["Method", "Pipeline", "Scheduler", "replaced", "start_index"]

# Pipelines and schedulers are recognised by their attributes, many of which are optional, so no
# protocol describes them.
Pipeline: TypeAlias = Any
"""A pipeline of diffusers, or any object with a `scheduler`."""

Scheduler: TypeAlias = Any
"""A scheduler of diffusers, with `timesteps`, `step` and `set_timesteps`."""

Method: TypeAlias = Callable[..., Any]

_ABSENT = object()


def start_index(scheduler: Scheduler, timestep: Array) -> int:
    """Return the index in the schedule at which a run starts; image-to-image runs start later."""
    # Most pipelines set it; otherwise the first timestep locates the start.
    begin_index = getattr(scheduler, "begin_index", None)
    if begin_index is not None:
        return int(begin_index)
    times = [float(time) for time in scheduler.timesteps]
    if float(timestep) not in times:
        raise DataError(
            f"the sampler steps at {float(timestep):g}, which is not in its schedule, "
            "so guidance cannot follow it."
        )
    return times.index(float(timestep))


class _Wrapped:
    """A wrapped method; deep copies of its owner get the original method, bound to the copy."""

    def __init__(self, owner: object, name: str, wrapper: Method) -> None:
        self._owner = owner
        self._name = name
        self._wrapper = wrapper
        # No update of __dict__: two guides may be attached at once, and copying the fields of an
        # inner _Wrapped would make this one call the inner wrapper.
        functools.update_wrapper(self, wrapper, updated=())

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._wrapper(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        owner = memo.get(id(self._owner))
        if owner is None:
            # Only the attributes are being copied, to be restored on the same owner later.
            return self
        return getattr(type(owner), self._name).__get__(owner)


@contextmanager
def replaced(owner: object, name: str, wrap: Callable[[Method], Method]) -> Iterator[None]:
    """Wrap a method of one object and restore it on exit; deep copies keep the original method."""
    # An attribute of the object, not of its class: another wrapper may be there already.
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, _Wrapped(owner, name, wrap(getattr(owner, name))))
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
