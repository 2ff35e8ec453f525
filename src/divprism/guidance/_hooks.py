"""Temporary wrappers around methods of third-party objects, and the position in a schedule."""

import functools
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from divprism.core.arrays import Array
from divprism.errors import DataError

__all__ = [
    "Method",
    "Pipeline",
    "Scheduler",
    "is_turn",
    "num_calls",
    "replaced",
    "start_index",
    "stops_early",
]

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


def num_calls(pipe: Pipeline) -> int:
    """Return the number of calls of the sampler in the current run."""
    # Pipelines that run only a part of the schedule state its length; others leave it out.
    calls = getattr(pipe, "num_timesteps", None)
    if isinstance(calls, int) and 0 < calls < sys.maxsize:
        return calls
    return len(pipe.scheduler.timesteps)


def stops_early(pipe: Pipeline) -> bool:
    """Whether a run leaves noise in the latents for a second pipeline, as SDXL for its refiner."""
    # Pipelines without the argument lack the attribute, and those with it may hold None.
    end = getattr(pipe, "denoising_end", None)
    return isinstance(end, float) and 0 < end < 1


def is_turn(
    scheduler: Scheduler, call: int, calls: int, *, every: int, start: float, stop: float
) -> bool:
    """Whether a call of the sampler ends one of every n steps in a part of the run."""
    # Heun has order 2: it calls the sampler twice per step, but only once in the last step.
    order = getattr(scheduler, "order", 1)
    ends_step = (call + 1) % order == 0
    step, steps = call // order, math.ceil(calls / order)
    # The margin absorbs rounding: 0.1 * 30 counts as 3.
    first = math.ceil(start * steps - 1e-9)
    # The last step is excluded: a push after it would go into the image unchanged.
    is_inside = first <= step < min(stop * steps - 1e-9, steps - 1)
    return is_inside and ends_step and (step - first) % every == 0


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
