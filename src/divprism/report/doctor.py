"""What a bug report needs: the machine, the packages, what works, and what is missing."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from urllib.parse import urlsplit

from divprism import __version__
from divprism.embedders import Cache
from divprism.embedders._bundled import ALL_BUNDLED
from divprism.engines import spell_bytes
from divprism.engines.resources import free_memory, machine_memory
from divprism.errors import DataError, DivprismError
from divprism.report.texts import number_of, visible

__all__ = ["installation"]

_NOT_FOR_USERS = ("all", "audit", "bench", "docs", "lint", "loggers", "package", "test")  # extras
# Their values change what divprism does, or how fast it is.
_VARIABLES = (
    "DIVPRISM_CACHE",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "TMPDIR",
    "NO_COLOR",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
# A program that prints a line for each device.
_LIST_DEVICES = """
import torch
print("cpu")
for index in range(torch.cuda.device_count()):
    print(f"cuda:{index} ({torch.cuda.get_device_name(index)})")
if torch.backends.mps.is_available():
    print("mps")
"""
# The markers of our own requirements; no others are in use.
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)""")
_PYTHON = re.compile(r"""python_version\s*(<=|>=|<|>)\s*['"](\d+\.\d+)""")
_LONGEST_IMPORT = 120  # seconds; from a slow disk, torch takes some twenty
_ADDRESSES = ("OPENAI_BASE_URL", "QUALITY_BASE_URL")  # only the host
_SECRETS = ("OPENAI_API_KEY", "QUALITY_API_KEY", "HF_TOKEN")  # only whether they are set


def installation() -> Iterator[str]:
    """Yield a line on each part of the installation, problems included."""
    yield f"divprism {__version__}, {sys.executable}"
    yield _machine()
    yield _linear_algebra()
    yield _devices()
    packages = _packages_by_extra()
    yield from _versions(packages)
    yield from _extras(packages)
    yield from _weights()
    yield _cache()
    yield _temporary_files()
    yield from _environment()


def _machine() -> str:
    memory = f"{spell_bytes(machine_memory())} of memory, {spell_bytes(free_memory())} free"
    system = f"{platform.platform()}, {number_of(os.cpu_count() or 1, 'core')}"
    return f"python {platform.python_version()}, {system}, {memory}"


def _linear_algebra() -> str:
    from threadpoolctl import threadpool_info

    libraries = []
    for library in threadpool_info():
        if library["user_api"] == "blas":
            threads = number_of(library["num_threads"], "thread")
            libraries.append(f"{library['internal_api']} {library['version']} with {threads}")
    return f"linear algebra: {', '.join(libraries) or 'no library that is known'}"


def _devices() -> str:
    """Return the devices of torch. It is imported, which is the test that it works."""
    if importlib.util.find_spec("torch") is None:
        return "devices: cpu; torch, which GPUs need, is not installed"
    # In a process of its own, because a library that is broken may end the process it is loaded in.
    # -P leaves out the current folder, which may hold any torch.py, or be gone.
    command = [sys.executable, "-P", "-c", _LIST_DEVICES]
    folder = tempfile.gettempdir()
    try:
        done = subprocess.run(  # noqa: S603  # the program is a constant
            command, cwd=folder, capture_output=True, text=True, timeout=_LONGEST_IMPORT
        )
    except subprocess.TimeoutExpired:
        return f"devices: cpu; torch is not imported within {_LONGEST_IMPORT} seconds"
    if done.returncode != 0:
        lines = done.stderr.split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), "no reason given")
        return f"devices: cpu; torch cannot be imported: {visible(reason)}"
    devices = [visible(line) for line in done.stdout.splitlines()]
    return f"devices: {', '.join(devices)}"


def _packages_by_extra() -> dict[str, list[str]]:
    """Return the packages of each extra; those that are always needed under an empty name."""
    packages: dict[str, list[str]] = {}
    for requirement in metadata.requires("divprism") or []:
        if not _applies(requirement):
            continue
        # Reads "numpy>=1.26", or "av>=12; extra == 'video'" for what an extra brings.
        name = re.split(r"[^\w.-]", requirement)[0]
        extra = "".join(_EXTRA.findall(requirement))
        # An extra may name others of divprism, which are listed on their own.
        if extra not in _NOT_FOR_USERS and name != "divprism":
            packages.setdefault(extra, []).append(name)
    return packages


def _applies(requirement: str) -> bool:
    """Return whether a requirement is for this version of Python.

    >>> _applies("x>=1; python_version < '3.2' and extra == 'a'"), _applies("x>=1")
    (False, True)
    """
    here = sys.version_info[:2]
    for relation, version in _PYTHON.findall(requirement):
        there = tuple(map(int, version.split(".")))
        holds = {"<": here < there, "<=": here <= there, ">": here > there, ">=": here >= there}
        if not holds[relation]:
            return False
    return True


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions(packages: dict[str, list[str]]) -> Iterator[str]:
    every = dict.fromkeys(name for names in packages.values() for name in names)
    for name in every:
        version = _version(name)
        if version is not None:
            yield f"{name} {version}"


def _extras(packages: dict[str, list[str]]) -> Iterator[str]:
    ready = []
    for extra, names in sorted(packages.items()):
        missing = [name for name in names if _version(name) is None]
        if missing:
            lacking = ", ".join(missing)
            yield f"extra {extra} lacks {lacking}: pip install 'divprism[{extra}]'"
        elif extra:
            ready.append(extra)
    yield f"extras that are complete: {', '.join(ready) or 'none'}"


def _weights() -> Iterator[str]:
    for file in ALL_BUNDLED:
        if _version(file.package) is None:
            continue  # the line on its extra says how to install it
        try:
            file.verify()
        except DivprismError as error:
            yield f"weights: {visible(str(error))}"
        else:
            yield f"weights of {file.package}, {file.path}: as published"


def _cache() -> str:
    try:
        cache = Cache()
        entries = cache.entries()
    except DataError as error:
        return f"vectors are not cached: {visible(str(error))}"
    if cache.folder.exists() and not cache.folder.is_dir():
        return f"vectors are not cached: {visible(str(cache.folder))} is a file"
    size = spell_bytes(sum(entry.bytes for entry in entries))
    line = f"vectors are cached in {visible(str(cache.folder))}: {size}"
    nearest = cache.folder
    while not nearest.exists():
        nearest = nearest.parent
    if not os.access(nearest, os.W_OK):
        line += "; it cannot be written to"
    return line


def _temporary_files() -> str:
    folder = tempfile.gettempdir()
    free = spell_bytes(shutil.disk_usage(folder).free)
    return f"temporary files are in {visible(folder)}: {free} free"


def _environment() -> Iterator[str]:
    for name in _VARIABLES:
        if name in os.environ:
            yield f"{name} is {visible(os.environ[name])!r}"
    for name in _ADDRESSES:
        if name in os.environ:
            yield f"{name} is {_address(os.environ[name])}"
    for name in _SECRETS:
        if name in os.environ:
            yield f"{name} is set"


def _address(url: str) -> str:
    """Return the scheme and the host of an address: the rest may hold a password or a key.

    >>> _address("https://me:secret@example.org:8000/v1?key=secret")
    "'https://example.org:8000'"
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        return "set, but is no address"
    shown = f"{parts.scheme}://{host}"
    if port is not None:
        shown += f":{port}"
    return repr(visible(shown))
