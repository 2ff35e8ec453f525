"""What there is to choose from, cached and installed: a line on each."""

import os
import platform
import re
from dataclasses import MISSING, fields
from importlib import metadata

from divprism.embedders import Cache
from divprism.engines import spell_bytes
from divprism.errors import DataError
from divprism.report.texts import number_of, shortened
from divprism.scores import registry
from divprism.scores.spec import SCORES

__all__ = ["KINDS", "cached_vectors", "choices", "installation"]

_TABLES: dict[str, dict[str, type]] = {
    "kernels": registry.KERNELS,
    "estimators": registry.ESTIMATORS,
    "rules": registry.BANDWIDTH_RULES,
}
KINDS = (*_TABLES, "scores", "embedders")
"""What `choices` can list."""
_NOT_FOR_USERS = ("all", "bench", "lint", "test")  # extras


def choices(kind: str) -> list[tuple[str, str]]:
    """Return the names of a kind, as flags take them, with their purpose."""
    if kind == "scores":
        return [(spec.name, _meaning(spec.meaning, spec.needs)) for spec in SCORES]
    if kind == "embedders":
        embedders, aliases = registry.EMBEDDERS.items(), registry.ALIASES.items()
        rows = [(_with_argument(name, entry), registry.purpose(entry)) for name, entry in embedders]
        rows += [(name, f"transformers:{alias['model']}") for name, alias in aliases]
        rows += [(name, "from another package") for name in registry.plugins()]
        return rows
    entries = _TABLES[kind].items()
    return [(_signature(name, entry), registry.purpose(entry)) for name, entry in entries]


def _meaning(meaning: str, needs: tuple[str, ...]) -> str:
    if not needs:
        return meaning
    return f"{meaning}; needs {' and '.join(needs)}"


def _signature(name: str, kind: type) -> str:
    """Return a name with its settings, as a flag takes it."""
    defaults = {field.name: field.default for field in fields(kind)}
    settings = [f"{key}={value!r}" for key, value in defaults.items()]
    spelled = f"{name}({', '.join(settings)})".replace(f"={MISSING!r}", "")  # without a default
    return spelled.removesuffix("()")


def _with_argument(name: str, kind: type) -> str:
    """Return the name of an embedder; its first field follows a colon if it has no default."""
    first = fields(kind)[0]
    if first.default is MISSING and first.default_factory is MISSING:
        name += f":{first.name.upper()}"
    return name


def _packages() -> list[str]:
    """Return a line for every package that divprism uses: its version, or how to install it."""
    extras: dict[str, str] = {}
    for requirement in metadata.requires("divprism") or []:
        # Reads "numpy>=1.26", or "av>=12; extra == 'video'" for what an extra brings.
        name = re.split(r"[^\w.-]", requirement)[0]
        extra = requirement.partition("extra == ")[2].strip("'\"")
        if extra not in _NOT_FOR_USERS:
            extras.setdefault(name, extra)  # several extras may bring it
    lines = []
    for name, extra in extras.items():
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed: pip install 'divprism[{extra}]'")
    return lines


def installation() -> list[str]:
    """Return what a bug report needs: Python, the machine, the packages, and the cache."""
    machine = f"{platform.platform()}, {os.cpu_count()} cores"
    lines = [f"python {platform.python_version()}, {machine}", *_packages()]
    try:
        lines.append(f"vectors are cached in {Cache().folder}")
    except DataError as error:
        lines.append(f"vectors are not cached: {error}")
    return lines


def cached_vectors(cache: Cache) -> list[str]:
    """Return the size of a cache, and a line for each embedder in it."""
    entries = cache.entries()
    lines = [f"{cache.folder}: {spell_bytes(sum(entry.bytes for entry in entries))}"]
    for entry in entries:
        name = f"{entry.key[:12]}  {shortened(str(entry.embedder.get('id')), 100)}"
        counted = f"{entry.items:,} items in {number_of(entry.shards, 'shard')}"
        lines.append(f"{name}: {counted}, {spell_bytes(entry.bytes)}")
    return lines
