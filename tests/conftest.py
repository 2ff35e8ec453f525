"""Settings that all test runs share, and fixtures: the array library under test, small data."""

import os
import sys

# Some containers forbid compiled files. Then each of the interpreters that tests start, hundreds of
# them, would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Parallel workers already fill the cores: several BLAS threads in each of them wait for each other
# and take many times as long. Libraries read these variables when they load, so they come first;
# processes that tests start inherit them.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
for variable in THREADS:
    os.environ.setdefault(variable, "1")

from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from cases import LIBRARIES, sixty_pairs  # noqa: E402
from endpoint_server import (  # noqa: E402, F401 - fixtures
    elsewhere,
    endpoint,
    running,
    running_elsewhere,
)
from hypothesis import settings  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

# The same examples in every run and on every worker: a failure can be repeated.
settings.register_profile("divprism", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("divprism")


def pytest_configure(config: pytest.Config) -> None:
    # Listed in pyproject.toml, this filter would import divprism, and so NumPy, before this file.
    config.addinivalue_line("filterwarnings", "ignore::divprism.errors.BandwidthWarning")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return a worker for each core if the whole suite runs, and none for a selection of files.

    A file or two start faster in this process, and there `--pdb` and `-s` work.
    """
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return 0
    # More than eight workers import torch more often than they save time.
    return min(os.cpu_count() or 1, 8)


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory):
    """Keep embedded vectors for the run of this worker, away from the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIVPRISM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def one_thread():
    """Limit BLAS to one thread even if the environment asks for more: the matrices are small."""
    if {os.environ[variable] for variable in THREADS} == {"1"}:
        yield  # limited already; looking up the libraries takes 4 ms, in each of many tests
        return
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def charts_once():
    """Draw equal charts of pages once: for tests of what stands beside the charts."""
    from charts import each_drawn_once  # imports the report, which most workers do not need

    with each_drawn_once():
        yield


def _marked(name: str) -> object:
    if name == "numpy":
        return pytest.param(name)
    return pytest.param(name, marks=pytest.mark.other_library)


@pytest.fixture(params=[_marked(name) for name in LIBRARIES])
def library(request) -> Callable[[np.ndarray], Any]:
    """Turns a NumPy array into one of the library under test."""
    return LIBRARIES[request.param]


@pytest.fixture(scope="session")
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Sixty pairs with repeated prompts, repeated outputs and a few repeated pairs."""
    return sixty_pairs()
