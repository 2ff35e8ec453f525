"""The flags that commands share, and what commands do with them: read, run, show.

The first parameter of a command is a `Job` or a `Reading`; `command` offers its fields as flags.
"""

import functools
import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import typer

from divprism.cli.config import load_config, typed
from divprism.cli.messages import in_flags, say, warn, working
from divprism.data.files import check_target, require_apart, require_different, write_text
from divprism.data.readers import load
from divprism.data.readers.fields import KINDS
from divprism.data.samples import Samples, files_of
from divprism.data.wording import differing_names, json_text
from divprism.embedders import OpenAI
from divprism.engines import cluster
from divprism.errors import ArgumentError
from divprism.judges import QualityModel
from divprism.judges.chat import read_rubric
from divprism.report import report_page
from divprism.report.config_files import check_embedder
from divprism.report.details import detailed
from divprism.report.listings import completion
from divprism.report.streams import attempt_all, deliver
from divprism.report.style import image_bytes
from divprism.report.table import Table, stdout_has_color, stdout_width
from divprism.scores import registry
from divprism.scores.presets import PRESETS
from divprism.scores.settings import UNITS, Settings

R = TypeVar("R")
Document = dict[str, Any]
_KINDS = ", ".join(KINDS)
_FORMATS, _PLOTS = ("table", "json", "csv", "md", "latex"), (".png", ".svg", ".pdf")


def flag(panel: str, default: object, text: str, *names: str, **more: Any) -> Any:
    """An option in a section of the help; without `names` it is called like its parameter."""
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


# Flags about intervals and gates, which only scores of whole models have.
ASSESSMENT = ("interval", "unit", "num_permutations", "fail_under", "report", "details")
# Flags about models that rate outputs: commands without scores of quality have none of them.
RATING = ("quality_from", "rubric", "judge_temperature")
_PANELS = ("Input", "Scoring", "Embedding", "Output", "Advanced")  # in the order of the help
# Flags that name files to read.
_READ = ("prompts", "labels", "weights", "rubric", "config", "reference", "keep", "drop")
# Flags about IN that do not apply to real data, of which outputs alone are compared.
_NOT_OF_REAL = ("prompts", "prompt_kind", "prompt_field", "model_field", "quality_field", "limit")
OF_IN_ALONE: Document = dict.fromkeys(_NOT_OF_REAL)
# What stands for a value in the help, by the type of the option; a switch has none.
_VALUES = {bool: "", int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}
_input, _scoring, _embedding, _output, _advanced = (partial(flag, panel) for panel in _PANELS)


@dataclass(frozen=True)
class Reading:
    """What is read, and how texts, images and videos become vectors."""

    context: typer.Context
    source: str | None = typer.Argument(
        None, metavar="IN", help="File, folder, 'pattern' of shards, or -.", show_default=False
    )
    prompts: str | None = _input(None, "Separate file of prompts: a list, table or array.")
    output_field: str | None = _input(None, "Field that holds the outputs; several as a,b.")
    prompt_field: str | None = _input(None, "Field that holds the prompts.")
    model_field: str | None = _input(None, "Field that names the model; several as a,b.")
    quality_field: str | None = _input(None, "Field with a number: how good the output is.")
    output_kind: str | None = _input(None, f"What the outputs are: {_KINDS}.", metavar="KIND")
    prompt_kind: str | None = _input(None, f"What the prompts are: {_KINDS}.", metavar="KIND")
    limit: int | None = _input(None, "Keep only the first NUMBER pairs of each model.")
    strict: bool = _input(False, "Turn warnings about the input into errors.", "--strict")
    allow_outside: bool = _input(False, "Also read files outside of IN.", "--allow-outside")
    embedder_x: str | None = _embedding(None, "Embedder of the outputs; see divprism ls embedders.")
    embedder_t: str | None = _embedding(None, "Embedder of the prompts.")
    device: str | None = _embedding(None, "Device of a torch model: cpu, cuda, cuda:1, mps.")
    dtype: str | None = _embedding(None, "Precision of a torch model: float32, float16, bfloat16.")
    offline: bool = _embedding(False, "Never use the network.", "--offline")
    cache: Path | None = _embedding(None, "Folder of the cache; see divprism cache ls.")
    no_cache: bool = _embedding(False, "Neither read nor write the cache.", "--no-cache")
    batch_size: int | None = _advanced(None, "Number of items embedded at once.", min=1)
    num_workers: int | None = _advanced(None, "Decoding threads; default: one per core.", min=1)
    quiet: bool = _output(False, "Print no notes and no progress on stderr.", "--quiet", "-q")

    def read(
        self, source: str | None = None, written: Sequence[Path] = (), **changed: object
    ) -> Samples:
        """The samples in IN or another source; refused if among `written` or what flags write."""
        name = source or self.source
        if name is None:
            raise ArgumentError("name the outputs: a file or folder, or - for stdin.")
        if name == self.prompts == "-":
            raise ArgumentError("only one of IN and --prompts can be - (stdin).")
        flags = [getattr(self, key, None) for key in ("output", "plot", "report")]
        targets = [*written, *filter(None, flags)]
        models = [(text or "").partition(":")[2] for text in (self.embedder_x, self.embedder_t)]
        named = [name, *models, *map(self.context.params.get, _READ)]
        require_apart(targets, filter(None, named))
        options = {key: getattr(self, key) for key in inspect.signature(load).parameters}
        samples = load(**(options | changed | {"source": name}))
        require_apart(targets, files_of(samples))
        notes = [in_flags(str(note), self.context.command) for note in samples.notes]
        say(notes, self.quiet)
        return samples

    def read_models(
        self, sources: Sequence[str | None], written: Sequence[Path] = ()
    ) -> dict[str, Samples]:
        """The samples of several sources, by their model or by what differs in their names."""
        distinct = dict.fromkeys(sources)  # the same source twice is one model
        parts = [self.read(source, written) for source in distinct]
        names = differing_names([part.source for part in parts])
        for index, part in enumerate(parts):
            if part.models is not None and len(set(part.models)) == 1:
                names[index] = part.models[0]
        if len(set(names)) < len(parts):
            raise ArgumentError(
                "two sources have the same name; add a field with the model to each."
            )
        return dict(zip(names, parts, strict=True))

    def run(self, function: Callable[..., R], data: object, **options: object) -> R:
        """Call a library function that embeds, and print its notes."""
        options |= {"num_workers": self.num_workers, "cache": self.cache}
        if self.no_cache:
            options["cache"] = False
        with working(self.quiet, self.context.command) as progress:
            result = function(data, progress=progress, **options)
        notes = getattr(getattr(result, "first", result), "notes", ())  # models share theirs
        known = getattr(data, "notes", ())  # printed by `read`
        say([note for note in notes if note not in known], self.quiet)
        return result

    def embedders(self, samples: Samples) -> Document:
        """The embedder of each side; None for the default of its modality."""
        chosen: Document = {}
        for name, items in (("embedder_x", samples.outputs), ("embedder_t", samples.prompts)):
            options: Document = {"device": self.device, "precision": self.dtype}
            options |= {"batch_size": self.batch_size, "offline": self.offline or None}
            if isinstance(items, tuple) and items[0].modality == "text":
                options["modality"] = "text"  # of a model of texts and images, the half that fits
            spelling = getattr(self, name)
            if spelling is not None and not typed(self.context, name):
                check_embedder(spelling, name)
            chosen[name] = spelling and registry.embedder(spelling, **options)
        on_torch = any(hasattr(embedder, "device") for embedder in chosen.values())
        if (self.device or self.dtype) and not on_torch:
            raise ArgumentError("--device and --dtype need a torch model, as --embedder-x clip.")
        if self.offline and any(isinstance(embedder, OpenAI) for embedder in chosen.values()):
            raise ArgumentError("--offline rules out openai:, which calls an endpoint.")
        return chosen


@dataclass(frozen=True)
class Job(Reading):
    """How samples are scored, and where the result goes."""

    order: str = _scoring("1", "Order of the entropy: a positive number, or inf.")
    kernel_x: str | None = _scoring(None, "Kernel of the outputs; see divprism ls kernels.")
    kernel_t: str | None = _scoring(None, "Kernel of the prompts; categorical compares ids.")
    bandwidth_x: float | None = _scoring(None, "Gaussian bandwidth of the outputs.")
    bandwidth_t: float | None = _scoring(None, "Gaussian bandwidth of the prompts.")
    bandwidth_rule: str | None = _scoring(None, "How bandwidths are chosen: divprism ls rules.")
    truncation: str | None = _scoring(
        None, "Number of eigenvalues kept in each spectrum.", metavar="NUMBER|auto"
    )
    interval: float | None = _scoring(0.95, "Level of the intervals; 0 for none.")
    unit: str | None = _scoring(None, "What intervals resample.", metavar="|".join(UNITS))
    num_permutations: int | None = _scoring(None, "Random pairings or exchanges; 0: none.", min=0)
    preset: str | None = _scoring(None, "Settings of a paper.", metavar="|".join(PRESETS))
    normalize: bool = _scoring(False, "Scale all vectors to norm one.", "--normalize")
    normalize_x: bool = _scoring(False, "Scale vectors of the outputs.", "--normalize-x")
    normalize_t: bool = _scoring(False, "Scale vectors of the prompts.", "--normalize-t")
    quality_from: str | None = _scoring(
        None, "Have outputs rated at an endpoint: judge:NAME, reward:NAME.", metavar="MODEL"
    )
    rubric: Path | None = _scoring(None, "File with the criteria of a judge.")
    judge_temperature: str | None = _advanced(
        None, "Temperature of a judge, default 0.", metavar="NUMBER|server"
    )
    estimator: str = _advanced("auto", "How spectra are computed; see divprism ls estimators.")
    rng: int = _advanced(0, "Seed of everything random.")
    max_memory: str | None = _advanced(None, "Limit, e.g. 4GB; default: half of the free memory.")
    workers: int | None = _advanced(None, "Compute in this many processes, by Dask.", min=1)
    scheduler: str | None = _advanced(None, "Compute on a Dask cluster: tcp://HOST:PORT.")
    resume: Path | None = _advanced(None, "Folder to continue from if a long run is interrupted.")
    config: Path | None = _advanced(
        None, "JSON file: flags, or an earlier result.", callback=load_config, is_eager=True
    )
    form: str = _output("table", "Format of the result.", "--format", metavar="|".join(_FORMATS))
    output: Path | None = _output(None, "Write to this file instead of stdout.", "--output", "-o")
    wide: bool = _output(False, "Also show the scores of order 2 and other columns.", "--wide")
    fail_under: list[str] = _output([], "Exit with 5 if a score is lower: conditional_vendi=4.5.")
    plot: Path | None = _output(None, "Also save a plot to this file (.png, .svg or .pdf).")
    report: Path | None = _output(None, "Also write an HTML page to this file.")
    details: bool = _output(False, "Add all that a page shows to the JSON.", "--details")

    def __post_init__(self) -> None:
        if self.form not in (None, *_FORMATS):  # None where a command has no such flag
            raise ArgumentError(
                f"--format must be one of {', '.join(_FORMATS)}; got {self.form!r}."
            )
        if self.plot is not None and self.plot.suffix.lower() not in _PLOTS:
            raise ArgumentError(f"--plot must end in {', '.join(_PLOTS)}; got {self.plot}.")
        targets = list(filter(None, (self.output, self.plot, self.report)))
        for path in targets:
            check_target(path)
        require_different(targets)
        if self.details and self.form != "json":
            raise ArgumentError("--details adds to the JSON document: it needs --format json.")

    def read(
        self, source: str | None = None, written: Sequence[Path] = (), **changed: object
    ) -> Samples:
        """The samples, without the quality that a folder of vectors may hold if a model rates."""
        samples = super().read(source, written, **changed)
        if self.quality_from is not None and self.quality_field is None:
            return replace(samples, quality=None)
        return samples

    def run(self, function: Callable[..., R], data: object, **options: object) -> R:
        """Call a library function that scores, on a cluster if the flags name one."""
        with cluster(self.scheduler, self.workers) as engine:
            # Only what is given: commands without these flags refuse their names.
            given = {"engine": engine, "resume": self.resume}
            options |= {name: value for name, value in given.items() if value is not None}
            return super().run(function, data, **options)

    def settings(self, samples: Samples) -> Settings:
        """The settings that the flags spell."""
        plain = {key: getattr(self, key) for key in Settings().to_dict()}
        plain["interval"] = self.interval or None  # 0 is how a flag spells None
        for side in ("x", "t"):
            plain[f"normalize_{side}"] = bool(self.normalize or plain[f"normalize_{side}"])
            plain[f"embedder_{side}"] = None  # they have options of its own, see below
            if self._replaces_bandwidth(side):
                plain[f"bandwidth_{side}"] = None
            elif typed(self.context, f"bandwidth_{side}"):
                plain[f"kernel_{side}"] = self._kernel_without_bandwidth(side)
        if self.kernel_t == "gaussian" and getattr(samples.prompts, "ndim", 2) == 1:
            raise ArgumentError("--kernel-t gaussian needs vectors, and these prompts are ids.")
        chosen = Settings.from_dict(plain)
        return replace(chosen, **self.embedders(samples), quality_from=self.quality_model())

    def quality_model(self) -> QualityModel | None:
        """The model that rates the outputs; None without one."""
        of_judge: Document = {}
        if self.rubric is not None:
            of_judge["rubric"] = read_rubric(self.rubric)
        if self.judge_temperature is not None:
            of_judge["temperature"] = registry.temperature(self.judge_temperature)
        if self.quality_from is None:
            if of_judge:
                raise ArgumentError(
                    "--rubric and --judge-temperature are for a judge: add --quality-from "
                    "judge:MODEL."
                )
            return None
        if self.quality_field is not None:
            raise ArgumentError("--quality-from and --quality-field both give a quality.")
        if self.offline:
            raise ArgumentError("--offline rules out --quality-from, which calls an endpoint.")
        return registry.quality_model(self.quality_from, **of_judge)

    def _kernel_without_bandwidth(self, side: str) -> str | None:
        """The kernel, of a config without the bandwidth that a flag replaces."""
        spelling: str | None = getattr(self, f"kernel_{side}")
        if typed(self.context, f"kernel_{side}"):
            return spelling
        return registry.without_bandwidth(spelling)

    def _replaces_bandwidth(self, side: str) -> bool:
        """Whether flags replace what the bandwidth of a config file belongs to."""
        if typed(self.context, f"bandwidth_{side}"):
            return False
        scaling = ("normalize", f"normalize_{side}")
        config = self.context.default_map or {}
        is_scaled_now = any(typed(self.context, name) for name in scaling)
        # `load_config` writes values as they would be typed.
        was_scaled = any(config.get(name) == "True" for name in scaling)
        is_other = any(typed(self.context, name) for name in (f"kernel_{side}", "bandwidth_rule"))
        return is_other or (is_scaled_now and not was_scaled)

    def show(
        self,
        result: Any,
        document: Document,
        table: Table,
        records: Table,
        labels: object = None,
        further: Table | None = None,
    ) -> None:
        """Print a result (`records` is for CSV), then its warnings; write the plot and the page.

        A `further` table is printed below the first, and is not part of a CSV file.
        """
        full = document
        if self.details or self.report is not None:
            with working(self.quiet, self.context.command) as progress:
                full = detailed(result, labels, progress=progress)
            for part in full.get("models", {"": full}).values():
                line = shlex.join(["divprism", *sys.argv[1:]])
                part["runtime"] = part["runtime"] | {"command": line}
        if self.form == "json":
            kept = full if self.details else document  # a page alone does not change the JSON
            text = json_text(kept) + "\n"
        elif self.form == "csv":
            text = records.to_csv()
        else:
            tables = [each for each in (table, further) if each is not None]
            text = "\n".join(map(self._rendered, tables))
        printed, warned = partial(deliver, text, self.output), partial(warn, self.context)
        pictures = partial(self._plot, result), partial(self._page, full)
        attempt_all(printed, partial(warned, result.warnings), *pictures)

    def _rendered(self, table: Table) -> str:
        if self.output is None:
            return table.render(self.form, stdout_width(), stdout_has_color())
        return table.render(self.form)  # a file has room for all columns

    def _plot(self, result: Any) -> None:
        if self.plot is not None:
            figure, _ = result.plot()
            write_text(self.plot, image_bytes(figure, self.plot.suffix[1:].lower()))

    def _page(self, full: Document) -> None:
        if self.report is not None:
            write_text(self.report, report_page(full))
            say([f"wrote {self.report}; open it in a browser"], self.quiet)


def command(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function of a `Reading` into a command with its flags; those in `without` are None."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        first, *own = inspect.signature(function, eval_str=True).parameters.values()
        shared = inspect.signature(first.annotation).parameters
        flags = [item for item in (*shared.values(), *own) if item.name not in without]
        flags.sort(key=_panel)
        for item in flags[1:]:  # after the context
            if item.default.metavar is None:
                item.default.metavar = _VALUES[(*get_args(item.annotation), item.annotation)[0]]
            item.default.autocompletion = completion(item.name, item.default.metavar)
        kind = inspect.Parameter.KEYWORD_ONLY  # any order will do

        @functools.wraps(function)
        def run(**values: Any) -> None:
            job = first.annotation(**{name: values.pop(name, None) for name in shared})
            function(job, **values)

        signature = inspect.Signature([item.replace(kind=kind) for item in flags])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in flags}
        return run

    return decorate


def _panel(parameter: inspect.Parameter) -> int:
    # The context and arguments have no panel and come first.
    return (None, *_PANELS).index(getattr(parameter.default, "rich_help_panel", None))
