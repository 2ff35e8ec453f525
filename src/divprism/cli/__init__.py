"""The command line: parse, one library call, print. Results go to stdout, all else to stderr."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from divprism import __version__, errors
from divprism.cli import (
    compare,
    convert,
    curves,
    demo,
    diff,
    groups,
    installation,
    mix,
    score,
    select,
    states,
)
from divprism.cli.messages import echo, in_flags, say
from divprism.data.wording import reason
from divprism.report.listings import EXAMPLES
from divprism.report.streams import BROKEN_PIPE, flush, leaving_on_signals, prepare_streams

__all__ = ["app", "main"]

_EXIT_CODES: dict[int, Any] = {2: errors.ArgumentError, 4: errors.DataError, 5: errors.GateError}
_EXIT_CODES[3] = errors.MissingExtraError | errors.MissingModelError  # installing helps
_EXAMPLES: dict[Any, str] = {
    demo.demo: "divprism demo --save texts",
    score.score: "divprism score outputs.jsonl --fail-under conditional_vendi=4.5",
    convert.embed: "divprism embed images/ --prompts prompts.csv -o vectors",
    compare.compare: "divprism compare first.jsonl second.jsonl --report report.html",
    mix.mix: "divprism mix first.jsonl second.jsonl --by conditional_rke",
    diff.diff: "divprism diff first.jsonl second.jsonl --num-modes 5",
    groups.groups: "divprism groups outputs.jsonl --by topic --top 5",
    select.select: "divprism select outputs.jsonl -k 100 -o subset.jsonl",
    curves.bandwidth: "divprism bandwidth outputs.jsonl --bandwidths-x 0.2,0.4,0.8",
    curves.converge: "divprism converge outputs.jsonl --model first --plot curves.png",
    states.state: "divprism state outputs.jsonl --config result.json -o state.npz",
    states.merge: "divprism merge state-1.npz state-2.npz -o merged.json",
    convert.report: "divprism report result.json -o report.html",
    installation.ls: "divprism ls kernels",
    installation.cache: "divprism cache clear wordllama",
    installation.doctor: "divprism doctor",
}
# Recent versions of typer ship their own copy of click; this is the usage error of either.
_UsageError: Any = typer.BadParameter.__base__


class _Commands(TyperGroup):
    """The commands; a refusal becomes one sentence on stderr, in flags, and an exit code."""

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except errors.DivprismError as error:
            message = in_flags(str(error), self._command(context))
            say([f"divprism: {message}"])
            codes = [code for code, kind in _EXIT_CODES.items() if isinstance(error, kind)]
            raise typer.Exit(max(codes, default=1)) from None
        except BrokenPipeError:  # the reader of stdout has left, as `head` does
            raise typer.Exit(BROKEN_PIPE) from None
        except OSError as error:
            about = ""
            if error.filename is not None:  # a process that cannot start has no file
                about = f"cannot use {str(error.filename)[:200]}: "
            say([f"divprism: {about}{reason(error)}."])
            raise typer.Exit(4) from None  # as for other data that cannot be used
        except MemoryError:
            say([f"divprism: there is not enough memory for this{self._way_out(context)}."])
            raise typer.Exit(1) from None
        except RecursionError:
            say(["divprism: the input is nested too deeply."])
            raise typer.Exit(4) from None

    def _command(self, context: Any) -> Any:
        return self.commands[context.invoked_subcommand]

    def _way_out(self, context: Any) -> str:
        """How to need less memory, by the flags that the command has."""
        flags = {flag for item in self._command(context).params for flag in item.opts}
        offered = [flag for flag in ("--limit", "--max-memory") if flag in flags]
        if not offered:
            return ""
        return f"; lower {' or '.join(offered)}"


app = typer.Typer(
    name="divprism",
    cls=_Commands,
    help="How diverse is a prompt-guided generative model beyond what its prompts bring?",
    no_args_is_help=True,
    epilog=EXAMPLES,
    pretty_exceptions_enable=False,  # a traceback is for a bug report, without decoration
    rich_markup_mode="rich",  # sections in the help
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command, _example in _EXAMPLES.items():
    app.command(_command.__name__, epilog=f"Example: {_example}")(_command)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line and leave with its exit code; a usage error is one line."""
    prepare_streams()
    try:
        with leaving_on_signals():
            code = app(prog_name="divprism", standalone_mode=False) or 0
            flush()
        sys.exit(code)
    except _UsageError as error:
        message = error.format_message()
        if "extra argument" in message and error.ctx.info_name == "score":
            message += "; for several sources use divprism compare"
        if message:  # empty where the help was printed
            say([f"divprism: {message}"])
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(BROKEN_PIPE)
    except (errors.DivprismError, OSError) as error:  # outside of commands: of the help
        say([f"divprism: {error}"])
        sys.exit(4)
