"""`divprism ls`: the kernels, estimators, rules, scores and embedders that there are."""

from dataclasses import MISSING, fields

import typer

from divprism.errors import ArgumentError
from divprism.scores import registry
from divprism.scores.spec import SCORES

__all__ = ["ls"]

_TABLES = {
    "kernels": registry.KERNELS,
    "estimators": registry.ESTIMATORS,
    "rules": registry.BANDWIDTH_RULES,
}
_KINDS = (*_TABLES, "scores", "embedders")


def ls(kind: str = typer.Argument(..., metavar="|".join(_KINDS), help="What to list.")) -> None:
    """List the kernels, estimators, bandwidth rules, scores or embedders, with their purpose."""
    if kind not in _KINDS:
        raise ArgumentError(f"there is nothing to list called {kind!r}; list {', '.join(_KINDS)}.")
    if kind == "scores":
        rows = [(spec.name, "; needs ".join([spec.meaning, *spec.needs])) for spec in SCORES]
    elif kind == "embedders":
        rows = _embedders()
    else:
        table = _TABLES[kind]
        rows = [(_signature(name, table[name]), registry.summary(table[name])) for name in table]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        typer.echo(f"{name:<{width}}  {text}")


def _signature(name: str, kind: type) -> str:
    """A name with its settings, as a flag takes it."""
    settings = []
    for field in fields(kind):
        if field.default is MISSING:
            settings.append(field.name)
        else:
            settings.append(f"{field.name}={field.default!r}")
    if not settings:
        return name
    return f"{name}({', '.join(settings)})"


def _embedders() -> list[tuple[str, str]]:
    """The embedders of divprism, short names of models, and embedders of other packages."""
    rows = []
    for name, kind in registry.EMBEDDERS.items():
        first = fields(kind)[0]  # type: ignore[arg-type]
        if first.default is MISSING and first.default_factory is MISSING:
            name = f"{name}:{first.name.upper()}"
        rows.append((name, registry.summary(kind)))
    rows += [(name, f"transformers:{fields['model']}") for name, fields in registry.ALIASES.items()]
    return rows + [(name, "from another package") for name in registry.plugins()]
