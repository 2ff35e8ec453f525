"""Flags that commands share, in bundles: how files are read, how they are embedded, how they are scored.

A command takes a bundle as a parameter; `bundled` shows typer the flags in it, and hands them over as one value.
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from divprism.cli.options import typed
from divprism.core.kernels import Gaussian, Kernel
from divprism.data.readers import load
from divprism.data.readers.fields import KINDS
from divprism.data.readers.guards import shown
from divprism.data.samples import Samples
from divprism.embedders import Embedder
from divprism.errors import ArgumentError
from divprism.scores import registry

__all__ = ["Embedding", "Reading", "Scoring", "bundled", "of_model"]

_KINDS = "|".join(KINDS)
_LISTED = 12  # models named in a refusal


class Bundle:
    """Flags that go together: the fields of a frozen dataclass, annotated as parameters of a command would be."""


@dataclass(frozen=True)
class Reading(Bundle):
    """How files are read."""

    source: Annotated[
        str | None,
        typer.Argument(
            metavar="IN",
            help="File or folder of outputs (see docs/how-to/inputs.md), or - for stdin.",
            show_default=False,
        ),
    ] = None
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            help="Prompts kept elsewhere: a row per output, a list, or a table with prompt_id.",
        ),
    ] = None
    output_field: Annotated[
        str | None, typer.Option("--output-field", help="Field of the outputs; several: a,b.")
    ] = None
    prompt_field: Annotated[
        str | None, typer.Option("--prompt-field", help="Field of the prompts.")
    ] = None
    model_field: Annotated[
        str | None,
        typer.Option(
            "--model-field", help="Field that names the model; several: a,b. One result each."
        ),
    ] = None
    output_kind: Annotated[
        str | None,
        typer.Option("--output-kind", help="What outputs are, if in doubt.", metavar=_KINDS),
    ] = None
    prompt_kind: Annotated[
        str | None,
        typer.Option("--prompt-kind", help="What prompts are, if in doubt.", metavar=_KINDS),
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", help="Only the first so many pairs of each model.")
    ] = None
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse empty outputs, surplus files and duplicates.")
    ] = False
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Read files outside the folder that names them.")
    ] = False

    def samples(self, source: str | None = None, **changed: Any) -> Samples:
        """What IN holds, or another source read in the same way."""
        name = self.source if source is None else source
        if name is None:
            raise ArgumentError("name the outputs: a file or folder, or - for stdin.")
        if name == self.prompts == "-":
            raise ArgumentError("only one of IN and --prompts can be - (stdin).")
        flags = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("source", "prompts")
        }
        return load(name, self.prompts, **(flags | changed))


@dataclass(frozen=True)
class Embedding(Bundle):
    """How texts, pictures and clips become vectors."""

    embedder_x: Annotated[
        str | None,
        typer.Option("--embedder-x", help="Embedder of the outputs (see: divprism ls embedders)."),
    ] = None
    embedder_t: Annotated[
        str | None, typer.Option("--embedder-t", help="Embedder of the prompts.")
    ] = None
    device: Annotated[
        str | None,
        typer.Option("--device", help="Where a torch model runs: cpu, cuda, cuda:1, mps."),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype", help="Numbers a torch model computes in: float32, float16, bfloat16."
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", min=1, help="Items embedded at once; never part of the answer."
        ),
    ] = None
    num_workers: Annotated[
        int | None,
        typer.Option("--num-workers", min=1, help="Threads that decode; default one per core."),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Where vectors are kept (see: divprism cache ls)."),
    ] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep vectors.")] = (
        False
    )
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Never reach for the network: models must be here already."),
    ] = False

    def settings(self, samples: Samples) -> dict[str, Any]:
        """Keywords of `embed`, and of what embeds before it scores."""
        return self._embedders(samples) | {
            "cache": False if self.no_cache else self.cache,
            "num_workers": self.num_workers,
        }

    def _embedders(self, samples: Samples) -> dict[str, Embedder | None]:
        """The embedder of each side; None leaves it to the modality.

        Of a model that takes texts and pictures, the half that fits the side. `--device` and `--dtype` must mean something to
        one of them.
        """
        options = {
            "device": self.device,
            "precision": self.dtype,
            "batch_size": self.batch_size,
            "offline": self.offline or None,
        }
        found: dict[str, Embedder | None] = {}
        for side, items in (("x", samples.outputs), ("t", samples.prompts)):
            worded = isinstance(items, tuple) and items[0].modality == "text"
            text = getattr(self, f"embedder_{side}")
            made = (
                None
                if text is None
                else registry.embedder(text, **options, modality="text" if worded else None)
            )
            found[f"embedder_{side}"] = made
        for flag, field in (("device", "device"), ("dtype", "precision")):
            if options[field] is not None and not any(
                _has_field(made, field) for made in found.values()
            ):
                raise ArgumentError(
                    f"--{flag} is for models that run on torch; name one: --embedder-x, --embedder-t."
                )
        if self.offline and any(
            isinstance(made, registry.EMBEDDERS["openai"]) for made in found.values()
        ):
            raise ArgumentError(
                "--offline rules out openai:, which asks an endpoint for every vector."
            )
        return found


def _has_field(made: Embedder | None, name: str) -> bool:
    return dataclasses.is_dataclass(made) and any(
        field.name == name for field in dataclasses.fields(made)
    )


@dataclass(frozen=True)
class Scoring(Bundle):
    """Which entropies, of which kernels, and how they are found."""

    order: Annotated[
        str, typer.Option("--order", help="Order of the entropy, above 0, or inf.")
    ] = "1"
    truncation: Annotated[
        int | None,
        typer.Option("--truncation", help="Keep this many eigenvalues of each spectrum."),
    ] = None
    kernel_x: Annotated[
        str | None,
        typer.Option("--kernel-x", help="Kernel of the outputs (see: divprism ls kernels)."),
    ] = None
    kernel_t: Annotated[
        str | None,
        typer.Option("--kernel-t", help="Kernel of the prompts; categorical takes texts as ids."),
    ] = None
    bandwidth_x: Annotated[
        float | None, typer.Option("--bandwidth-x", help="Gaussian bandwidth of the outputs.")
    ] = None
    bandwidth_t: Annotated[
        float | None, typer.Option("--bandwidth-t", help="Gaussian bandwidth of the prompts.")
    ] = None
    bandwidth_rule: Annotated[
        str, typer.Option("--bandwidth-rule", help="How a bandwidth that is not given is chosen.")
    ] = "stable"
    estimator: Annotated[
        str,
        typer.Option("--estimator", help="How spectra are found (see: divprism ls estimators)."),
    ] = "auto"
    rng: Annotated[int, typer.Option("--rng", help="Seed of whatever is drawn.")] = 0
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory", help="Memory beside the data, as 4GB; default half of what is free."
        ),
    ] = None

    def settings(self, context: typer.Context) -> dict[str, Any]:
        """Keywords of the scores."""
        return {
            "kernel_x": self._kernel(context, "x"),
            "kernel_t": self._kernel(context, "t"),
            "bandwidth_rule": registry.parse(
                self.bandwidth_rule, registry.BANDWIDTH_RULES, "bandwidth rule"
            ),
            "order": self.order,
            "truncation": self.truncation,
            "estimator": registry.parse(self.estimator, registry.ESTIMATORS, "estimator"),
            "rng": self.rng,
            "memory": self.max_memory,
        }

    def _kernel(self, context: typer.Context, side: str) -> Kernel | None:
        """The kernel of one side; None leaves the bandwidth to the rule."""
        spelling, bandwidth = getattr(self, f"kernel_{side}"), getattr(self, f"bandwidth_{side}")
        if typed(context, f"kernel_{side}") and not typed(context, f"bandwidth_{side}"):
            bandwidth = None  # that of a config file belongs to the kernel that the flag replaces
        if spelling is None or spelling == "gaussian":
            return None if bandwidth is None else Gaussian(bandwidth)
        if bandwidth is not None:
            raise ArgumentError(
                f"--bandwidth-{side} goes with the gaussian kernel; --kernel-{side} is {spelling!r}."
            )
        kernel: Kernel = registry.parse(spelling, registry.KERNELS, "kernel")
        return kernel


def bundled(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose bundles are flags: typer sees those, the command gets the bundles."""
    parameters = inspect.signature(command, eval_str=True).parameters
    bundles = {
        name: one.annotation for name, one in parameters.items() if _is_bundle(one.annotation)
    }

    def run(**flags: Any) -> None:
        for name, bundle in bundles.items():
            flags[name] = bundle(
                **{field.name: flags.pop(field.name) for field in dataclasses.fields(bundle)}
            )
        command(**flags)

    shown_to_typer = []
    for one in parameters.values():
        if not _is_bundle(one.annotation):
            shown_to_typer.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for field in dataclasses.fields(one.annotation):
            shown_to_typer.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=field.type,
                )
            )
    run.__signature__ = inspect.Signature(shown_to_typer)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown_to_typer}
    run.__name__, run.__doc__, run.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
    return run


def _is_bundle(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Bundle)


def of_model(samples: Samples, model: str | None) -> Samples:
    """The samples of one model, which must be named where there are several."""
    if samples.models is None:
        if model is not None:
            raise ArgumentError(
                f"--model {shown(model)}: {samples.source} does not say which model made an output."
            )
        return samples
    models = samples.by_model()
    names = [shown(name) for name in models]
    some = ", ".join(names[:_LISTED]) + (
        f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    )
    if model is None and len(names) > 1:
        raise ArgumentError(
            f"{samples.source} holds outputs of {len(names):,} models; choose one by --model: {some}."
        )
    if model is not None and model not in models:
        raise ArgumentError(
            f"there is no model {shown(model)} in {samples.source}; it holds {some}."
        )
    return models[model or next(iter(models))]
