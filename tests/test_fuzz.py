"""Thousands of changed inputs, and all that ever failed: read, or refused in one sentence.

`python tests/fuzz.py --cases 50000 --seed S` runs as many as one likes; `DIVPRISM_FUZZ` sets how
many run here. Inputs run in processes of their own, so that a crash of a decoder is seen.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import KINDS, Drawn, run_kind, stored_files

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
CASES = int(os.environ.get("DIVPRISM_FUZZ", 1500))
MOST_BYTES = 300_000  # of the corpus
GROUPS = sorted({kind.group for kind in KINDS.values()})

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="inputs run in forks")


def _fuzz(*arguments):
    call = [sys.executable, HERE / "fuzz.py", *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, timeout=900)


def test_changed_inputs_are_read_or_refused(tmp_path):
    done = _fuzz("--cases", CASES, "--failures", tmp_path)
    assert done.returncode == 0, done.stderr
    for group in GROUPS:
        assert f"| {group} |" in done.stdout


def test_inputs_that_once_failed_are_held(tmp_path):
    done = _fuzz("--replay", CORPUS, "--failures", tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_corpus_is_small_and_of_known_kinds():
    kinds = {folder.name for folder in CORPUS.iterdir() if folder.is_dir()}
    assert kinds <= set(KINDS)
    files = [file for kind in kinds for file in stored_files(CORPUS, kind)]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES


def test_an_input_depends_on_its_seed_and_number_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = KINDS["jsonl"]
    first = [Drawn(3).of_kind(kind)(number) for number in range(5)]
    again = [Drawn(3).of_kind(kind)(number) for number in reversed(range(5))]
    assert first == again[::-1]
    assert len(set(first)) > 1
    assert first != [Drawn(4).of_kind(kind)(number) for number in range(5)]


# What a reader must not do with an input, each at its second one of four.
FAULTS = {
    "raises": lambda: {}["missing"],
    "prints an escape code": lambda: _refuse("a message with \x1b[31m in it"),
    "is silent": lambda: _refuse(""),
    "crashes": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def _refuse(message):
    from divprism import DataError

    raise DataError(message)


class _Numbers:
    def of_kind(self, kind):
        return lambda number: str(number).encode()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fuzzer_sees_each_fault_and_goes_on(fault, tmp_path, monkeypatch):
    from fuzz_checks import Kind

    def check(content, folder):
        if content == b"1":
            FAULTS[fault]()

    monkeypatch.chdir(tmp_path)
    kind = Kind("faulty", "faults", bytes, lambda content, rng: content, check)
    figures = run_kind(kind, _Numbers(), 4)
    assert figures.cases == 4
    assert list(figures.failures) == [1]
