"""What a result may replace: not the file that it is made from, nor the permissions of a file."""

import os
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest
from command_line import run
from sample_files import jsonl, records

import divprism as dp
from divprism.data.files import write_text

TABLE = jsonl(records())
POSIX = pytest.mark.skipif(os.name != "posix", reason="permissions and pipes of POSIX")


@pytest.mark.parametrize("flag", ["-o", "--report"])
@pytest.mark.parametrize("how", ["by name", "by another name", "by a link"])
def test_a_result_does_not_replace_the_table_that_it_is_made_from(flag, how, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(TABLE)
    target = {"by name": path, "by another name": tmp_path / "." / "a.jsonl"}.get(how)
    if target is None:
        target = tmp_path / "link"
        target.symlink_to(path)
    done = run("score", path, "--no-cache", flag, target)
    assert done.returncode == 2
    assert b"would replace" in done.stderr
    assert path.read_bytes() == TABLE


def test_a_result_does_not_replace_the_file_of_its_prompts(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(12))
    np.save(tmp_path / "t.npy", np.eye(12))
    before = (tmp_path / "t.npy").read_bytes()
    prompts = tmp_path / "t.npy"
    done = run("score", tmp_path / "x.npy", "--prompts", prompts, "-o", prompts)
    assert done.returncode == 2
    assert prompts.read_bytes() == before


@POSIX
def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "result.json"
    path.touch(mode=0o600)
    write_text(path, "{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "{}"


@POSIX
def test_the_name_of_standard_output_is_written_to_where_that_is_a_pipe():
    code = "from divprism.data.files import *; check_target('/dev/stdout')\n"
    code += "write_text('/dev/stdout', 'a result')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"a result"


@POSIX
def test_a_folder_of_vectors_does_not_lead_outside(tmp_path):
    folder = tmp_path / "vectors"
    (tmp_path / "a.jsonl").write_bytes(TABLE)
    assert run("embed", tmp_path / "a.jsonl", "--no-cache", "-o", folder).returncode == 0
    shutil.move(folder / "embedding.json", tmp_path / "elsewhere.json")
    (folder / "embedding.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(dp.DataError, match="outside"):
        dp.load(folder)
    assert len(dp.load(folder, allow_outside=True)) == len(records())
