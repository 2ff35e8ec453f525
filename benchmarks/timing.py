"""Stop watch of the other scripts."""

import time
from collections.abc import Callable


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best(call: Callable[[], object], repeats: int) -> float:
    """Least time of several calls."""
    return min(timed(call) for _ in range(repeats))
