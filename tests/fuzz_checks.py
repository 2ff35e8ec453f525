"""What must hold of every fuzzed input, and the kinds of input that the fuzzer knows."""

import importlib
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fuzz_changes import Change

import divprism as dp

# Controls but for line breaks and tabs; marks that change the direction of writing; separators of
# lines; lone surrogates.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
thorough = False  # whether every input gets the checks that others get now and then
EXIT_CODES = (0, 1, 2, 3, 4, 5)
LONGEST_MESSAGE = 2000


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes
    ----------
    name : str
        Its name, and that of its folder in the corpus.
    group : str
        The row of the table that its figures are added to.
    seed : callable
        Returns a valid input.
    change : callable
        Returns the input with something changed in it.
    check : callable
        Takes an input and an empty folder, and does what divprism does with such an input. Raises
        DivprismError if it is refused.
    weight : float
        Its share of the inputs.
    """

    name: str
    group: str
    seed: Callable[[], bytes]
    change: Change
    check: Callable[[bytes, Path], None]
    weight: float = 1.0


def check_refusal(error: dp.DivprismError) -> None:
    """Require one printable sentence of a sensible length."""
    message = str(error)
    check_text(message)
    assert len(message.splitlines()) == 1, message
    assert 10 < len(message) < LONGEST_MESSAGE, message


def check_text(text: str) -> None:
    """Require that a text is safe to print."""
    found = UNSAFE.search(text)
    assert not found, ascii(text[max(0, found.start() - 60) : found.start() + 60])


def check_samples(samples: dp.Samples) -> None:
    """Require samples that are consistent, and notes that are safe to print."""
    if samples.prompts is not None:
        assert len(samples.prompts) == len(samples.outputs)
    for note in (*samples.notes, *samples.warnings):
        check_text(str(getattr(note, "text", note)))
        assert len(str(getattr(note, "text", note))) < LONGEST_MESSAGE
    assert isinstance(samples.outputs, tuple | np.ndarray)


def is_one_in(number: int, content: bytes) -> bool:
    """Whether an input gets a check that takes long; which ones depends on the content alone."""
    return thorough or sum(content) % number == 0


@contextmanager
def mostly_in_this_process(content: bytes) -> Iterator[None]:
    """Decode Parquet and Arrow here, but for one input in twenty: another process takes long."""
    # A frozen program decodes without starting another; workers have limits of their own.
    sys.frozen = not is_one_in(20, content)
    try:
        yield
    finally:
        del sys.frozen


def preload() -> None:
    """Import what commands load late, so that each fork of this process need not."""
    for name in (
        *("divprism.cli", "array_api_compat.numpy", "jinja2", "rich.table", "scipy.linalg"),
        *("matplotlib.figure", "matplotlib.backends.backend_agg", "scipy.stats", "PIL.Image"),
    ):
        importlib.import_module(name)


def run_command(*arguments: object) -> tuple[int, str]:
    """Run `divprism ARGUMENTS` in a fork of this process; return its exit code and its output.

    Requires an exit code of ours, no traceback, and an output that is safe to print.
    """
    with tempfile.TemporaryFile() as output:
        process = os.fork()
        if process == 0:
            _command([str(argument) for argument in arguments], output.fileno())
        _, status = os.waitpid(process, 0)
        output.seek(0)
        text = output.read().decode()
    code = os.waitstatus_to_exitcode(status)
    assert code in EXIT_CODES, f"exit code {code}: {text[-500:]}"
    assert "Traceback" not in text, text[-500:]
    check_text(text)
    return code, text


def _command(arguments: list[str], output: int) -> None:
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdin = open(os.devnull)  # noqa: SIM115 - this process ends in a moment
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.argv = ["divprism", *arguments]
        runpy.run_module("divprism", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:  # a bug: its traceback is what the parent looks for
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
