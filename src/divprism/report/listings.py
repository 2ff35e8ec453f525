"""What there is to choose from, and what is cached: a line on each."""

import re
from collections.abc import Callable
from dataclasses import MISSING, fields

from divprism.embedders import Cache
from divprism.engines import spell_bytes
from divprism.report.texts import number_of, shortened
from divprism.scores import registry
from divprism.scores.spec import SCORES

__all__ = ["EXAMPLES", "KINDS", "cached_vectors", "choice_lines", "choices", "completion"]

_TABLES: dict[str, dict[str, type]] = {
    "kernels": registry.KERNELS,
    "estimators": registry.ESTIMATORS,
    "rules": registry.BANDWIDTH_RULES,
}
KINDS = (*_TABLES, "scores", "embedders")
"""What `choices` can list."""
# Which of these a flag takes.
_KIND_OF_FLAG = {
    "kernel_x": "kernels",
    "kernel_t": "kernels",
    "bandwidth_rule": "rules",
    "estimator": "estimators",
    "embedder_x": "embedders",
    "embedder_t": "embedders",
    "by": "scores",
}
# Lines of the help that follow each other need an empty one between them.
EXAMPLES = "\n\n".join(
    (
        "Examples:",
        "divprism demo",
        "divprism score answers.jsonl",
        "divprism score images/ --report report.html",
        "divprism compare a.jsonl b.jsonl",
        "divprism score answers.jsonl --fail-under conditional_vendi=4",
    )
)
"""The end of `divprism --help`."""


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


def choice_lines(kind: str) -> list[str]:
    """Return the names of a kind and their purpose, in two columns."""
    rows = choices(kind)
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]


def completion(flag: str, metavar: str | None) -> Callable[[str], list[str]] | None:
    """Return what completes the value of a flag in a shell; None where anything may follow.

    >>> completion("kernel_x", "TEXT")("c")
    ['categorical', 'cosine']
    >>> completion("unit", "pair|prompt")("pr")
    ['prompt']
    """
    # Words in capitals stand for a value, as in NUMBER|auto.
    words = [word for word in (metavar or "").split("|") if word.islower()]
    kind = _KIND_OF_FLAG.get(flag)
    if kind is None and not words:
        return None

    def matching(incomplete: str) -> list[str]:  # typer asks for this name
        names = words
        if kind is not None:
            names = [re.split(r"[(:]", name)[0] for name, _ in choices(kind)]
        return sorted(name for name in names if name.startswith(incomplete))

    return matching


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


def cached_vectors(cache: Cache) -> list[str]:
    """Return the size of a cache, and a line for each embedder in it."""
    entries = cache.entries()
    lines = [f"{cache.folder}: {spell_bytes(sum(entry.bytes for entry in entries))}"]
    for entry in entries:
        name = f"{entry.key[:12]}  {shortened(str(entry.embedder.get('id')), 100)}"
        counted = f"{entry.items:,} items in {number_of(entry.shards, 'shard')}"
        lines.append(f"{name}: {counted}, {spell_bytes(entry.bytes)}")
    return lines
