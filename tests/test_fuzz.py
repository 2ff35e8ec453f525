"""10,000 mutated inputs: no crash but our own errors, no hang, no memory. A process per kind, so that a crash is seen."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import SEEDS

HERE = Path(__file__).parent
COUNT = int(os.environ.get("DIVPRISM_FUZZ", 10_080)) // len(SEEDS)


@pytest.mark.parametrize("kind", SEEDS)
def test_mutated_inputs(kind, tmp_path):
    call = [sys.executable, "-W", "ignore", HERE / "fuzz.py", kind, str(COUNT), "0", tmp_path]
    done = subprocess.run(call, capture_output=True, text=True, cwd=HERE, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["slowest"] < 5  # seconds: not speed, but a hang
    assert found["peak"] < 600  # megabytes: a picture at the limit of pixels, decoded and converted
    assert 0.05 < found["refused"] < 1  # the mutations hit, and not only the first byte
