"""Checkpoints: an interrupted computation continues, with the same bits and no sweep repeated."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from command_line import run
from engine_cases import Troubled

import divprism as dp
from divprism.core.operators import KernelOperator
from divprism.core.sweep import Sweep
from divprism.engines import Resources

SIZE = 600
LANCZOS = dp.Lanczos(num_probes=8, depth=6)
KERNELS = {"kernel_x": dp.Gaussian(4.0), "kernel_t": dp.Gaussian(3.0)}
OPTIONS = {**KERNELS, "estimator": LANCZOS, "num_permutations": 0, "interval": None}


def pairs(seed=0):
    rng = np.random.default_rng(seed)
    x, t = rng.standard_normal((SIZE, 20)), rng.standard_normal((SIZE, 10))
    return x.astype(np.float32), t.astype(np.float32)


def numbers(result):
    return [float(score) for score in result.scores.values()]


def state_of(folder):
    """Every checkpoint, and when it was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.checkpoint")}


class InterruptionError(Exception):
    """Raised from within a sweep."""


def interrupted(folder, sweep, x, t, **options):
    """Stop an evaluation in the middle of a sweep."""

    def progress(text, share):
        if text == f"sweep {sweep}":
            raise InterruptionError

    with pytest.raises(InterruptionError):
        dp.evaluate(x, t, resume=folder, progress=progress, **options)


def test_an_interrupted_evaluation_continues_with_the_same_bits(tmp_path):
    x, t = pairs()
    expected = numbers(dp.evaluate(x, t, **OPTIONS))
    for sweep in (2, 5):
        interrupted(tmp_path, sweep, x, t, **OPTIONS)
        before = state_of(tmp_path)
        assert len(before) == sweep - 1
    assert numbers(dp.evaluate(x, t, resume=tmp_path, **OPTIONS)) == expected
    after = state_of(tmp_path)
    assert len(after) == LANCZOS.depth
    # No finished sweep was computed, and written, again.
    assert {name: after[name] for name in before} == before


def test_a_finished_evaluation_computes_no_kernel_value_of_a_sweep(tmp_path):
    folder = tmp_path / "checkpoints"
    x, t = pairs()
    expected = numbers(dp.evaluate(x, t, resume=folder, **OPTIONS))
    state = state_of(folder)
    assert numbers(dp.evaluate(x, t, resume=folder, **OPTIONS)) == expected
    assert state_of(folder) == state


CHANGES = {
    "another output": lambda x, t: (np.concatenate([x[:-1], x[:1] + 1]), t, {}),
    "another bandwidth": lambda x, t: (x, t, {"kernel_x": dp.Gaussian(4.1)}),
    "another order of rows": lambda x, t: (x[::-1].copy(), t[::-1].copy(), {}),
    "another seed": lambda x, t: (x, t, {"rng": 1}),
    "other weights": lambda x, t: (x, t, {"weights": np.r_[2.0, np.ones(SIZE - 1)] / (SIZE + 1)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_checkpoints_of_other_data_or_settings_are_not_used(change, tmp_path):
    x, t = pairs()
    scores = {"kernel_x": KERNELS["kernel_x"], "kernel_t": KERNELS["kernel_t"]}
    scores["estimator"] = LANCZOS
    dp.conditional_vendi(x, t, resume=tmp_path, **scores)
    other_x, other_t, options = CHANGES[change](x, t)
    options = {**scores, **options}
    expected = dp.conditional_vendi(other_x, other_t, **options)
    assert dp.conditional_vendi(other_x, other_t, resume=tmp_path, **options) == expected
    assert len(state_of(tmp_path)) == 2 * LANCZOS.depth


def test_a_file_that_changed_under_its_name_is_computed_anew(tmp_path):
    path, resources = tmp_path / "x.npy", Resources(resume=tmp_path)
    masses = np.full(SIZE, 1 / SIZE)
    for seed in (0, 1):
        x, _ = pairs(seed)
        np.save(path, x)
        stored = np.load(path, mmap_mode="r")
        options = {"dtype": np.float32, "name": "x"}
        operator = KernelOperator.from_file(dp.Gaussian(4.0), stored, masses, **options)
        for _ in range(2):
            _, [squares] = Sweep.over([operator], resources).run(squares=True)
            assert 1 / squares == pytest.approx(float(dp.rke(x, kernel=dp.Gaussian(4.0))))
    assert len(state_of(tmp_path)) == 2


@pytest.mark.parametrize("damage", [b"", b"x" * 100, None])
def test_a_damaged_checkpoint_is_computed_again(damage, tmp_path):
    x, t = pairs()
    expected = numbers(dp.evaluate(x, t, resume=tmp_path, **OPTIONS))
    for path in tmp_path.iterdir():
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content if damage is None else damage)
    assert numbers(dp.evaluate(x, t, resume=tmp_path, **OPTIONS)) == expected


def test_a_full_disk_loses_the_checkpoint_and_no_number(tmp_path, monkeypatch):
    x, t = pairs()
    expected = numbers(dp.evaluate(x, t, **OPTIONS))

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert numbers(dp.evaluate(x, t, resume=tmp_path, **OPTIONS)) == expected
    assert not list(tmp_path.iterdir())


def test_a_folder_that_goes_away_loses_the_checkpoints_and_no_number(tmp_path):
    x, t = pairs()
    expected = numbers(dp.evaluate(x, t, **OPTIONS))
    folder = tmp_path / "checkpoints"

    def progress(text, share):
        # A file in its place, so that the parts of a path are no folders.
        if folder.is_dir() and text.startswith("sweep"):
            shutil.rmtree(folder)
            folder.write_bytes(b"")

    found = dp.evaluate(x, t, resume=folder, progress=progress, **OPTIONS)
    assert numbers(found) == expected
    assert folder.is_file()


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(dp.ArgumentError, match="`resume` must be a folder to write to"):
        dp.vendi(pairs()[0], kernel=dp.Gaussian(4.0), resume=tmp_path / "file")


def test_a_kernel_whose_code_may_have_changed_is_refused(tmp_path):
    kernel = Troubled(3.0, trouble="none", home=os.getpid())
    with pytest.raises(dp.ArgumentError, match="the code of Troubled is still the same"):
        dp.rke(pairs()[0], kernel=kernel, resume=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_empty_name_is_no_folder():
    with pytest.raises(dp.ArgumentError, match="the name is empty"):
        dp.vendi(pairs()[0], kernel=dp.Gaussian(4.0), resume="")


def test_a_forged_checkpoint_of_another_shape_is_computed_again(tmp_path):
    x, t = pairs()
    expected = numbers(dp.evaluate(x, t, resume=tmp_path, **OPTIONS))
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9**15,), }"
    for path in tmp_path.iterdir():
        path.write_bytes(hashlib.sha256(header).digest() + header)
    assert numbers(dp.evaluate(x, t, resume=tmp_path, **OPTIONS)) == expected


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_other_array_libraries_continue_too(library, tmp_path):
    xp = pytest.importorskip(library)
    x = xp.asarray(pairs()[0])
    options = {"kernel": dp.Gaussian(4.0), "estimator": LANCZOS, "resume": tmp_path}
    expected = dp.vendi(x, **options)
    state = state_of(tmp_path)
    assert dp.vendi(x, **options) == expected
    assert state_of(tmp_path) == state


COMMAND = [
    *(sys.executable, "-m", "divprism", "score", "x.npy", "--prompts", "t.npy", "-q"),
    *("--bandwidth-x", "4", "--bandwidth-t", "3", "--interval", "0", "--num-permutations", "0"),
    *("--estimator", "lanczos", "--format", "json"),
]


def test_a_killed_command_continues_where_it_was(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((3200, 20)).astype(np.float32))
    np.save(tmp_path / "t.npy", rng.standard_normal((3200, 10)).astype(np.float32))
    folder = tmp_path / "checkpoints"
    command = [*COMMAND, "--resume", str(folder)]
    for finished in (2, 4):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(state_of(folder)) < finished:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = state_of(folder)
        assert len(before) >= finished
    resumed = run(*command[3:], cwd=tmp_path)
    undisturbed = run(*COMMAND[3:], cwd=tmp_path)
    assert json.loads(resumed.stdout)["scores"] == json.loads(undisturbed.stdout)["scores"]
    after = state_of(folder)
    assert {name: after[name] for name in before} == before


def test_a_prepared_link_is_not_written_through(tmp_path):
    folder, target = tmp_path / "resume", tmp_path / "target"
    folder.mkdir()
    target.write_bytes(b"kept")
    dp.evaluate(*pairs(), resume=folder, **OPTIONS)
    names = list(state_of(folder))
    for name in names:
        (folder / name).unlink()
        # The name of a file that is finished, and what an unfinished one was called.
        (folder / name).symlink_to(target)
        (folder / name).with_suffix(f".{os.getpid()}").symlink_to(target)
    dp.evaluate(*pairs(), resume=folder, **OPTIONS)
    assert target.read_bytes() == b"kept"
    assert not any((folder / name).is_symlink() for name in names)


@pytest.mark.parametrize("kind", ["pipe", "device", "too large"])
def test_what_is_no_checkpoint_is_computed_again(tmp_path, kind):
    x, t = pairs()
    expected = numbers(dp.evaluate(x, t, resume=tmp_path, **OPTIONS))
    name, *_ = state_of(tmp_path)
    (tmp_path / name).unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    elif kind == "device":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        with open(tmp_path / name, "wb") as file:
            file.truncate(1 << 40)
    program = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_checkpoints import OPTIONS, dp, numbers, pairs
print(numbers(dp.evaluate(*pairs(), resume={str(tmp_path)!r}, **OPTIONS)))
"""
    # In a process of its own, which may not hang or take all memory.
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == expected
