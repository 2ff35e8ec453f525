"""`divprism ls`: what there is to choose from."""

import dataclasses

import typer

from divprism.cli.options import choice
from divprism.scores import registry

__all__ = ["ls"]

_TABLES = {
    "kernels": registry.KERNELS,
    "estimators": registry.ESTIMATORS,
    "rules": registry.BANDWIDTH_RULES,
}
_KINDS = ["kernels", "estimators", "rules", "scores", "embedders"]


def ls(kind: str = typer.Argument(..., metavar="|".join(_KINDS), help="What to list.")) -> None:
    """List the kernels, estimators, bandwidth rules, scores or embedders, with what each is for."""
    choice(kind, _KINDS, "the kind")
    if kind == "scores":
        rows = list(registry.SCORES.items())
    elif kind == "embedders":
        rows = _embedders()
    else:
        rows = [
            (_signature(name, entry), registry.summary(entry))
            for name, entry in _TABLES[kind].items()
        ]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        typer.echo(f"{name:<{width}}  {text}")


def _signature(name: str, kind: type) -> str:
    fields = [
        field.name if field.default is dataclasses.MISSING else f"{field.name}={field.default!r}"
        for field in dataclasses.fields(kind)
    ]
    return f"{name}({', '.join(fields)})" if fields else name


def _embedders() -> list[tuple[str, str]]:
    """Those of divprism, short names of models, and those of other packages."""
    rows = []
    for name, kind in registry.EMBEDDERS.items():
        needs = dataclasses.fields(kind)[0]  # type: ignore[arg-type]
        required = (
            needs.default is dataclasses.MISSING and needs.default_factory is dataclasses.MISSING
        )
        rows.append((f"{name}:{needs.name.upper()}" if required else name, registry.summary(kind)))
    rows += [(name, f"transformers:{fields['model']}") for name, fields in registry.ALIASES.items()]
    return rows + [(name, "from another package") for name in registry.plugins()]
