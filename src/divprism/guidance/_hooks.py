"""Methods of foreign objects, wrapped for a while; where in its schedule a scheduler is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["place", "replaced"]

_ABSENT = object()


def place(scheduler: Any, timestep: Any) -> int:
    """Where in the schedule a run begins: not at its beginning if it begins with an image."""
    begin = getattr(scheduler, "begin_index", None)
    if begin is not None:
        return int(begin)
    times = [float(time) for time in scheduler.timesteps]
    return times.index(float(timestep)) if float(timestep) in times else 0


@contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """A method of one object wrapped, and put back as it was."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
