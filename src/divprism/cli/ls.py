"""`divprism ls`: the kernels, estimators, rules, scores and embedders that there are."""

from dataclasses import MISSING, fields

import typer

from divprism.errors import ArgumentError
from divprism.scores import registry
from divprism.scores.spec import SCORES

_TABLES: dict[str, dict[str, type]] = {
    "kernels": registry.KERNELS,
    "estimators": registry.ESTIMATORS,
    "rules": registry.BANDWIDTH_RULES,
}
_KINDS = (*_TABLES, "scores", "embedders")


def ls(kind: str = typer.Argument(..., metavar="|".join(_KINDS), help="What to list.")) -> None:
    """List the kernels, estimators, bandwidth rules, scores or embedders, with their purpose."""
    if kind not in _KINDS:
        raise ArgumentError(f"{kind!r} cannot be listed; choose from {', '.join(_KINDS)}.")
    if kind == "scores":
        rows = [(spec.name, "; needs ".join([spec.meaning, *spec.needs])) for spec in SCORES]
    elif kind == "embedders":
        embedders, aliases = registry.EMBEDDERS.items(), registry.ALIASES.items()
        rows = [(_with_argument(name, entry), registry.summary(entry)) for name, entry in embedders]
        rows += [(name, f"transformers:{alias['model']}") for name, alias in aliases]
        rows += [(name, "from another package") for name in registry.plugins()]
    else:
        entries = _TABLES[kind].items()
        rows = [(_signature(name, entry), registry.summary(entry)) for name, entry in entries]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        typer.echo(f"{name:<{width}}  {text}")


def _signature(name: str, kind: type) -> str:
    """A name with its settings, as a flag takes it."""
    settings = []
    for field in fields(kind):
        default = "" if field.default is MISSING else f"={field.default!r}"
        settings.append(f"{field.name}{default}")
    return f"{name}({', '.join(settings)})".removesuffix("()")


def _with_argument(name: str, kind: type) -> str:
    """The name of an embedder; its first field follows a colon if it has no default."""
    first = fields(kind)[0]
    if first.default is MISSING and first.default_factory is MISSING:
        name += f":{first.name.upper()}"
    return name
