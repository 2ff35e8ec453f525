"""Fixtures: the array library under test, and small data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import LIBRARIES, read_only
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory):
    """Vectors that tests embed are kept for the run, and away from those of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIVPRISM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def one_thread():
    """A thread for BLAS: thousands of small matrices are solved faster by one than by several that wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture(params=list(LIBRARIES))
def library(request) -> Callable[[np.ndarray], Any]:
    """Turns a NumPy array into one of the library under test."""
    return LIBRARIES[request.param]


@pytest.fixture(scope="session")
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Sixty pairs with repeated prompts, repeated outputs and a few repeated pairs."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 5)) + 3
    t = rng.standard_normal((12, 4))[rng.integers(0, 12, 60)]
    x[10:14], t[10:14] = x[0], t[0]
    x[20] = x[21]
    return read_only(x), read_only(t)
