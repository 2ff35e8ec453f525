"""What several commands share: settings from a file, kernels from flags, output to a file."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from divprism import registry
from divprism._files import write_whole
from divprism.embedders import Embedder
from divprism.errors import ArgumentError, DataError
from divprism.kernels import Gaussian, Kernel
from divprism.readers.fields import KINDS
from divprism.readers.guards import shown
from divprism.samples import Samples

__all__ = [
    "AllowOutside",
    "BatchSize",
    "CacheFolder",
    "Device",
    "EmbedderT",
    "EmbedderX",
    "Limit",
    "ModelField",
    "NoCache",
    "NumWorkers",
    "Offline",
    "OutputField",
    "OutputKind",
    "Precision",
    "PromptField",
    "PromptKind",
    "Prompts",
    "Quiet",
    "Source",
    "Strict",
    "choice",
    "embedders_from_flags",
    "kernel_from_flags",
    "load_config",
    "progress_on_stderr",
    "say",
    "typed",
    "write_result",
]

_KINDS = "|".join(KINDS)

Source = Annotated[
    str | None,
    typer.Argument(metavar="IN", help="File or folder of outputs (see docs/inputs.md), or - for stdin.", show_default=False),
]
Prompts = Annotated[
    str | None, typer.Option("--prompts", help="Prompts kept elsewhere: a row per output, a list, or a table with prompt_id.")
]
OutputField = Annotated[str | None, typer.Option("--output-field", help="Field of the outputs; several: a,b.")]
PromptField = Annotated[str | None, typer.Option("--prompt-field", help="Field of the prompts.")]
ModelField = Annotated[
    str | None, typer.Option("--model-field", help="Field that names the model; several: a,b. One result each.")
]
OutputKind = Annotated[str | None, typer.Option("--output-kind", help="What outputs are, if in doubt.", metavar=_KINDS)]
PromptKind = Annotated[str | None, typer.Option("--prompt-kind", help="What prompts are, if in doubt.", metavar=_KINDS)]
Limit = Annotated[int | None, typer.Option("--limit", help="Only the first so many pairs of each model.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse empty outputs, surplus files and duplicates.")]
AllowOutside = Annotated[bool, typer.Option("--allow-outside", help="Read files outside the folder that names them.")]
EmbedderX = Annotated[str | None, typer.Option("--embedder-x", help="Embedder of the outputs (see: divprism ls embedders).")]
EmbedderT = Annotated[str | None, typer.Option("--embedder-t", help="Embedder of the prompts.")]
Device = Annotated[str | None, typer.Option("--device", help="Where a torch model runs: cpu, cuda, cuda:1, mps.")]
Precision = Annotated[
    str | None, typer.Option("--dtype", help="Numbers a torch model computes in: float32, float16, bfloat16.")
]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Items embedded at once; never part of the answer.")]
NumWorkers = Annotated[int | None, typer.Option("--num-workers", min=1, help="Threads that decode; default one per core.")]
CacheFolder = Annotated[Path | None, typer.Option("--cache", help="Where vectors are kept (see: divprism cache ls).")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep vectors.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never reach for the network: models must be here already.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Neither notes nor progress on stderr.")]


def embedders_from_flags(
    samples: Samples,
    spelled: dict[str, str | None],
    *,
    device: str | None,
    dtype: str | None,
    batch_size: int | None,
    offline: bool,
) -> dict[str, Embedder | None]:
    """The embedder of each side; None leaves it to the modality.

    Of a model that takes texts and pictures, the half that fits the side. `--device` and `--dtype` must mean something to one
    of them.
    """
    options = {"device": device, "precision": dtype, "batch_size": batch_size, "offline": offline or None}
    found: dict[str, Embedder | None] = {}
    for side, items in (("x", samples.outputs), ("t", samples.prompts)):
        worded = isinstance(items, tuple) and items[0].modality == "text"
        text = spelled[side]
        found[side] = None if text is None else registry.embedder(text, **options, modality="text" if worded else None)
    for flag, field in (("device", "device"), ("dtype", "precision")):
        if options[field] is not None and not any(_has_field(made, field) for made in found.values()):
            raise ArgumentError(f"--{flag} is for models that run on torch; name one: --embedder-x, --embedder-t.")
    if offline and any(isinstance(made, registry.EMBEDDERS["openai"]) for made in found.values()):
        raise ArgumentError("--offline rules out openai:, which asks an endpoint for every vector.")
    return found


def _has_field(made: Embedder | None, name: str) -> bool:
    return dataclasses.is_dataclass(made) and any(field.name == name for field in dataclasses.fields(made))


def say(lines: Any, quiet: bool, prefix: str = "") -> None:
    """Lines on stderr, none of which can drive the terminal."""
    if not quiet:
        for line in lines:
            typer.echo(shown(f"{prefix}{line}"), err=True)


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a JSON file: the flags of the command as keys, or a result of `divprism score`."""
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a JSON object; it holds a {type(content).__name__}.")
    models = content.get("models")
    if isinstance(models, dict) and models:  # a result of several: they share their settings
        content = next(iter(models.values()))
        content = content if isinstance(content, dict) else {}
    settings = content.get("settings", content)
    if not isinstance(settings, dict):
        raise DataError(f"`settings` in {path} must be a JSON object; it is a {type(settings).__name__}.")
    flags = {flag.lstrip("-").replace("-", "_"): option.name for option in context.command.params for flag in option.opts}
    values = {str(key).replace("-", "_"): value for key, value in settings.items()}
    unknown = sorted(set(values) - (set(flags) - {"config"}))
    if unknown:
        raise ArgumentError(f"{path} sets {unknown[0]!r}, which {context.info_name} does not know.")
    # as text, so that a value is judged as if it had been typed (an integer flag would cut 2.5 to 2)
    context.default_map = {flags[key]: str(value) for key, value in values.items() if value is not None}
    return path


def kernel_from_flags(spelling: str | None, bandwidth: float | None, side: str) -> Kernel | None:
    """The kernel of one side; None leaves the bandwidth to the rule."""
    if spelling is None or spelling == "gaussian":
        return None if bandwidth is None else Gaussian(bandwidth)
    if bandwidth is not None:
        raise ArgumentError(f"--bandwidth-{side} goes with the gaussian kernel; --kernel-{side} is {spelling!r}.")
    kernel: Kernel = registry.parse(spelling, registry.KERNELS, "kernel")
    return kernel


@contextmanager
def progress_on_stderr(quiet: bool) -> Iterator[Callable[[str, float], None] | None]:
    """A listener for `progress=`: plans as lines, and on a terminal a bar with the time left."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield lambda text, fraction: say([text] if fraction == 0 else [], quiet=False)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0, visible=False)

        def tell(text: str, fraction: float) -> None:
            if fraction == 0:
                console.print(text, markup=False)
            else:
                bar.update(task, description=text, completed=fraction, visible=True)

        yield tell


def typed(context: typer.Context, name: str) -> bool:
    """Whether an option stood on the command line, rather than in a config file or nowhere."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def write_result(text: str, output: Path | None) -> None:
    """Print, or replace a file in one step so that a reader never sees half of it."""
    if output is None:
        typer.echo(text, nl=False)
        return
    target = output.resolve()  # a link stays a link
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a pipe or a device is written to, never replaced
            return
        write_whole(target, lambda file: file.write(text.encode()))
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror}.") from None


def choice(value: Any, allowed: Any, flag: str) -> Any:
    """Refuse a value that is not among those allowed."""
    if value not in allowed:
        raise ArgumentError(f"{flag} must be one of {', '.join(allowed)}; got {value!r}.")
    return value
