"""The cache: no item embedded twice, and no vector lost or wrong if a process or the disk fails."""

import hashlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import platformdirs
import pytest
from sample_files import image_bytes, write

import divprism as dp
from divprism.data.items import Image, texts
from divprism.embedders import cache as cache_module
from divprism.embedders.pipeline import embed_items


@dataclass(frozen=True)
class Counting(dp.Embedder):
    """Counts letters, and records every text that it embeds."""

    modality: ClassVar[str] = "text"
    batch_size: int = 4
    weights: str = "1"
    seen: list = field(default_factory=list, compare=False)

    @property
    def name(self):
        return "counting"

    @property
    def revision(self):
        return self.weights

    @property
    def dimension(self):
        return 2

    def embed_batch(self, batch):
        self.seen.extend(batch)
        return np.array([[len(text), text.count("a")] for text in batch], np.float32)


ITEMS = texts([f"{'a' * (i % 7)} {i}" for i in range(50)])


def shards(folder):
    return sorted(folder.rglob("*.npz"))


@dataclass(frozen=True)
class Wide(Counting):
    """States a dimension that its vectors do not have."""

    @property
    def dimension(self):
        return 3


def test_vectors_must_have_the_dimension_that_the_embedder_states(tmp_path):
    with pytest.raises(
        dp.DataError,
        match="embedder counting returned vectors of 2 numbers, but its dimension is 3",
    ):
        embed_items(ITEMS, Wide(), cache=dp.Cache(tmp_path))
    assert not shards(tmp_path)  # wrong vectors are not cached

    def five_columns(batch):
        return [[len(text)] * 5 for text in batch]

    function = dp.Function(five_columns)  # states no dimension, so any width is right
    assert function.known_dimension is None
    assert embed_items(ITEMS, function).vectors.shape == (50, 5)


def test_each_distinct_item_is_embedded_once(tmp_path):
    cache = dp.Cache(tmp_path)
    first, second = Counting(), Counting(batch_size=7)
    computed = embed_items(ITEMS + ITEMS[::-1], first, cache=cache)
    assert (len(first.seen), computed.computed, computed.cached) == (50, 50, 0)
    cached = embed_items(ITEMS[::-1], second, cache=cache)
    assert (second.seen, cached.computed, cached.cached) == ([], 0, 50)
    np.testing.assert_array_equal(cached.vectors, computed.vectors[50:])
    uncached = embed_items(ITEMS + ITEMS[::-1], Counting())
    np.testing.assert_array_equal(computed.vectors, uncached.vectors)


def test_vectors_of_other_weights_are_kept_apart(tmp_path):
    cache = dp.Cache(tmp_path)
    embed_items(ITEMS, Counting(), cache=cache)
    other = Counting(weights="2")
    embed_items(ITEMS, other, cache=cache)
    assert len(other.seen) == 50
    assert {entry.embedder["revision"] for entry in cache.entries()} == {"1", "2"}
    assert cache.clear("nobody") == 0
    assert cache.clear("counting") == 2
    assert cache.entries() == []


def test_vectors_of_an_unknown_revision_are_not_cached(tmp_path):
    unknown = Counting(weights=None)
    for _ in range(2):
        embed_items(ITEMS, unknown, cache=dp.Cache(tmp_path))
    assert len(unknown.seen) == 100
    assert shards(tmp_path) == []


@pytest.mark.parametrize("offset", [0, 40, "middle", -30, -1])
def test_a_flipped_bit_is_detected_and_the_shard_computed_again(offset, tmp_path):
    cache = dp.Cache(tmp_path)
    expected = embed_items(ITEMS, Counting(), cache=cache).vectors
    embed_items(texts(["another"]), Counting(), cache=cache)
    (path,) = (path for path in shards(tmp_path) if path.stat().st_size > 1000)
    content = bytearray(path.read_bytes())
    if offset == "middle":
        offset = len(content) // 2
    content[offset] ^= 0x10
    path.write_bytes(content)
    embedder = Counting()
    embedded = embed_items(ITEMS, embedder, cache=cache)
    np.testing.assert_array_equal(embedded.vectors, expected)
    assert len(embedder.seen) == 50
    warning = embedded.warnings[0].text
    assert len(embedded.warnings) == 1
    assert "do not match their checksum; removed the file, and its vectors will be" in warning
    assert cache.verify() == []


def _npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


KEYS = np.zeros((2, 32), np.uint8)
UNFIT_SHARDS = {
    "fewer vectors than keys": _npz(keys=KEYS, vectors=np.ones((1, 2), np.float32)),
    "vectors that are numbers": _npz(keys=KEYS, vectors=np.ones(2, np.float32)),
    "vectors of whole numbers": _npz(keys=KEYS, vectors=np.ones((2, 2), np.int64)),
    "no vectors": _npz(keys=KEYS),
    "vectors without numbers": _npz(keys=KEYS, vectors=np.ones((2, 0), np.float32)),
    "vectors of NaN": _npz(keys=KEYS, vectors=np.full((2, 2), np.nan, np.float32)),
    "an infinite number": _npz(keys=KEYS, vectors=np.array([[1, 2], [3, np.inf]], np.float32)),
    "an open bracket": _npz(keys=KEYS).replace(b"(2, 32)", b"((((((("),
}


@pytest.mark.parametrize("case", UNFIT_SHARDS)
def test_a_shard_that_holds_no_vectors_of_its_keys_is_dropped(case, tmp_path):
    content = UNFIT_SHARDS[case]
    folder = tmp_path / ("0" * 32)
    folder.mkdir()
    (folder / "embedder.json").write_text("{}")
    path = folder / f"{hashlib.sha256(content).hexdigest()}.npz"
    path.write_bytes(content)
    found = []
    store = dp.Cache(tmp_path).store(folder.name, {}, found.append)
    assert list(store.fetch([bytes(32)])) == []
    assert [notice.code for notice in found] == ["cache-damaged"]
    assert not path.exists()


def test_verify_removes_damaged_shards(tmp_path):
    cache = dp.Cache(tmp_path)
    embed_items(ITEMS, Counting(), cache=cache)
    (path,) = shards(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    assert [str(path) in text for text in cache.verify()] == [True]
    assert shards(tmp_path) == []
    assert cache.verify() == []


def test_vectors_computed_before_a_failure_are_kept(tmp_path):
    cache = dp.Cache(tmp_path)

    class StopError(Exception):
        pass

    def embed_batch(batch):
        if any(text.endswith(" 30") for text in batch):
            raise StopError
        return np.ones((len(batch), 2))

    with pytest.raises(StopError):
        embed_items(ITEMS, dp.Function(embed_batch, version="1", batch_size=4), cache=cache)
    embedded_texts = []

    def without_failure(batch):
        embedded_texts.extend(batch)
        return np.ones((len(batch), 2))

    repaired = dp.Function(without_failure, label="embed_batch", version="1")
    assert embed_items(ITEMS, repaired, cache=cache).cached == 28
    assert len(embedded_texts) == 22


@pytest.mark.parametrize(("result", "message"), [
    (np.ones((3, 2)), "must return 50 rows for 50 items; it returned an array of shape (3, 2)"),
    (np.ones(50), "must return 50 rows for 50 items; it returned an array of shape (50,)"),
    (np.full((50, 2), np.nan), "returned NaN or infinity for text 0"),
])  # fmt: skip
def test_results_that_cannot_be_vectors_are_refused(result, message):
    with pytest.raises(dp.DataError) as refused:
        embed_items(ITEMS, dp.Function(lambda batch: result, batch_size=50))
    assert message in str(refused.value)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_and_batch_size_do_not_change_vectors(workers, tmp_path):
    write(tmp_path, {f"{i}.png": image_bytes(i) for i in range(9)})
    items = [Image(tmp_path / f"{i}.png", str(i)) for i in range(9)]
    expected = embed_items(items, dp.EfficientNetLite0()).vectors
    embedder = replace(dp.EfficientNetLite0(), batch_size=workers)
    backwards = embed_items(items[::-1], embedder, num_workers=workers).vectors
    np.testing.assert_array_equal(backwards[::-1], expected)


def test_a_folder_that_cannot_be_written_does_not_stop_a_run(tmp_path):
    (tmp_path / "file").write_text("in the way")
    embedded = embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path / "file"))
    warning = embedded.warnings[0].text
    assert len(embedded.warnings) == 1
    assert re.search(
        r"cannot write vectors to .*file.*: Not a directory\. This run continues without a cache; "
        r"pass another folder as `cache`, or set DIVPRISM_CACHE\.",
        warning,
    )
    np.testing.assert_array_equal(embedded.vectors, embed_items(ITEMS, Counting()).vectors)


def test_widths_that_change_are_refused(tmp_path):
    widths = iter([2, 1])
    embedder = dp.Function(
        lambda batch: np.ones((len(batch), next(widths))), label="odd", version="1", batch_size=25
    )
    with pytest.raises(
        dp.DataError, match=r"embedder odd returned vectors of different widths \(2 and 1\)"
    ):
        embed_items(ITEMS, embedder, cache=dp.Cache(tmp_path))
    later = dp.Function(lambda batch: np.ones((len(batch), 3)), label="odd", version="1")
    with pytest.raises(
        dp.DataError, match=r"returned vectors of different widths \(3 and 2\), some of them cached"
    ):
        embed_items(ITEMS, later, cache=dp.Cache(tmp_path))


def test_a_shard_that_another_process_removed_is_not_damaged(tmp_path, monkeypatch):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))
    load = cache_module._load

    def remove_and_load(path):
        path.unlink()
        return load(path)

    monkeypatch.setattr(cache_module, "_load", remove_and_load)
    assert dp.Cache(tmp_path).verify() == []


def test_a_shard_that_another_process_removed_causes_no_warning(tmp_path):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))
    (path,) = shards(tmp_path)
    warnings = []
    store = dp.Cache(tmp_path).store(path.parent.name, {}, warnings.append)
    path.unlink()
    digest = ITEMS[0].digest()
    assert digest in store
    assert list(store.fetch([digest])) == [] and digest not in store
    assert warnings == []


def test_a_damaged_shard_that_cannot_be_removed_is_not_reported_as_removed(tmp_path, monkeypatch):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))
    (path,) = shards(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])

    def refuse(path):
        raise dp.DataError(f"cannot remove {path}: Permission denied.")

    monkeypatch.setattr(cache_module, "_remove", refuse)
    (warning,) = embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path)).warnings
    assert "removed the file" not in str(warning)
    assert "cannot remove" in str(warning) and "Permission denied" in str(warning)


def test_clearing_a_cache_without_permission_fails(tmp_path, monkeypatch):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))

    def refuse(path, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache_module.Path, "unlink", refuse)
    with pytest.raises(dp.DataError, match=r"cannot remove .*: Permission denied"):
        dp.Cache(tmp_path).clear()


def test_at_least_one_worker_is_required():
    with pytest.raises(
        dp.ArgumentError, match="`num_workers` must be a whole number of at least 1; got -1"
    ):
        embed_items(ITEMS, Counting(), num_workers=-1)


def test_progress_is_reported_with_its_rate():
    reports = []
    embed_items(ITEMS, Counting(), progress=lambda *report: reports.append(report))
    text, fraction = reports[-1]
    assert fraction == 1
    assert text.startswith("counting: 50 of 50, ") and text.endswith("/s")


def test_progress_reaches_the_end_where_the_last_items_are_copies():
    fractions = []
    items = [*ITEMS[:4], *ITEMS[:2]]
    embed_items(items, Counting(), progress=lambda text, fraction: fractions.append(fraction))
    assert fractions == [pytest.approx(4 / 6), 1]


# A model slow enough to be interrupted: 2,000 items take a few seconds, with a shard every 50.
WORKER = """
import hashlib, sys, time
import numpy as np
import divprism as dp
from divprism.embedders import pipeline
from divprism.embedders.pipeline import embed_items
from divprism.data.items import texts
pipeline._SHARD_ITEMS = 50
log = open(sys.argv[2], "a")
def slow(batch):
    time.sleep(0.005)
    log.write("".join(text + chr(10) for text in batch)); log.flush()
    return np.array([[hash_of(text), len(text)] for text in batch])
def hash_of(text):
    return hashlib.sha256(text.encode()).digest()[0] / 7
items = texts([f"item {i}" for i in range(2000)])
slow = dp.Function(slow, label="slow", version="1", batch_size=10)
embedded = embed_items(items, slow, cache=dp.Cache(sys.argv[1]))
np.save(sys.argv[3], embedded.vectors)
"""


def start(cache, log, vectors):
    """Start a process that embeds 2,000 items, logs each, and saves the vectors."""
    arguments = [str(cache), str(log), str(vectors)]
    return subprocess.Popen([sys.executable, "-c", WORKER, *arguments])


def num_logged(log):
    if not log.exists():
        return 0
    return len(log.read_text().splitlines())


def test_work_killed_ten_times_resumes_where_it_stopped(tmp_path):
    """Only items of an unfinished shard are repeated, and the vectors are the same in every bit."""
    cache, log = tmp_path / "cache", tmp_path / "log"
    resumed, undisturbed = tmp_path / "resumed.npy", tmp_path / "undisturbed.npy"
    other = start(tmp_path / "other_cache", tmp_path / "other_log", undisturbed)
    rng = random.Random(5)
    for _ in range(10):
        process = start(cache, log, resumed)
        kill_at = num_logged(log) + rng.randrange(20, 190)
        while process.poll() is None and num_logged(log) < kill_at:
            time.sleep(0.005)
        process.kill()
        process.wait()
        assert dp.Cache(cache).verify() == []
    assert start(cache, log, resumed).wait() == other.wait() == 0
    lines = log.read_text().split("\n")[:-1]
    assert set(lines) == {f"item {i}" for i in range(2000)}
    # Each kill loses at most a shard of 50, and a batch of 10 that is not part of it yet.
    assert 2000 <= len(lines) <= 2000 + 10 * 60
    assert resumed.read_bytes() == undisturbed.read_bytes()


def test_two_processes_share_a_cache(tmp_path):
    first = start(tmp_path / "cache", tmp_path / "log0", tmp_path / "0.npy")
    second = start(tmp_path / "cache", tmp_path / "log1", tmp_path / "1.npy")
    assert (first.wait(), second.wait()) == (0, 0)
    assert (tmp_path / "0.npy").read_bytes() == (tmp_path / "1.npy").read_bytes()
    assert dp.Cache(tmp_path / "cache").verify() == []


def test_vectors_computed_before_ctrl_c_are_kept(tmp_path):
    log = tmp_path / "log"
    process = start(tmp_path / "cache", log, tmp_path / "x.npy")
    while num_logged(log) < 105:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.wait()
    kept = sum(entry.items for entry in dp.Cache(tmp_path / "cache").entries())
    assert kept >= num_logged(log) - 10  # all but the batch that was running


def test_verify_removes_old_temporary_files(tmp_path):
    cache = dp.Cache(tmp_path)
    embed_items(ITEMS, Counting(), cache=cache)
    (folder,) = (path.parent for path in shards(tmp_path))
    recent, old = folder / ".new.partial", folder / ".old.partial"
    for path in (recent, old):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert cache.verify() == []
    assert recent.exists()  # another process may be writing it
    assert not old.exists()


def test_the_environment_sets_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path / "here"))
    assert dp.Cache().folder == tmp_path / "here"


def test_the_default_folder_is_in_the_cache_folder_of_the_platform(tmp_path, monkeypatch):
    monkeypatch.delenv("DIVPRISM_CACHE", raising=False)
    assert dp.Cache().folder == platformdirs.user_cache_path("divprism", appauthor=False)
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert dp.Cache().folder == tmp_path / "divprism"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert dp.Cache().folder == tmp_path / ".cache" / "divprism"


def test_each_folder_describes_its_embedder(tmp_path):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))
    (path,) = tmp_path.rglob("embedder.json")
    assert json.loads(path.read_text()) == Counting().describe()
    assert path.parent.name == Counting().key()
