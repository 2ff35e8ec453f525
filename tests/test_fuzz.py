"""Thousands of mutated inputs: no crash, no hang, bounded memory.

Each kind of file runs in a process of its own, so that a crash of a decoder is seen.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import SEEDS

HERE = Path(__file__).parent
PAGES = ("_evaluation.json", "_comparison.json", "_groups.json", "_curves.json", "_sweep.json")
SIGNED = ("_state.npz",)  # with a digest, so that every change is noticed
COUNT = int(os.environ.get("DIVPRISM_FUZZ", 10_080)) // len(SEEDS)


@pytest.mark.parametrize("kind", SEEDS)
def test_mutated_files_are_read_or_refused(kind, tmp_path):
    count = COUNT
    if kind in PAGES:
        count = COUNT // 5  # each is drawn and written as a page
    call = [sys.executable, "-W", "ignore", HERE / "fuzz.py", kind, str(count), "0", tmp_path]
    done = subprocess.run(call, capture_output=True, text=True, cwd=HERE, timeout=600)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["slowest"] < 5  # seconds: a hang, not a measure of speed
    assert figures["peak"] < 600  # megabytes: the largest image, decoded and converted
    assert figures["refused"] > 0.05  # mutations matter
    if kind not in SIGNED:
        assert figures["refused"] < 1  # and do not all hit the signature
