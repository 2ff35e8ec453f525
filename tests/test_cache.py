"""The cache: nothing twice, nothing lost, nothing wrong, whatever happens to the process or to the disk."""

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
import pytest
from sample_files import image_bytes, write

import divprism as dp
from divprism.data.samples import Image, texts
from divprism.embedders import cache as cache_module
from divprism.embedders import embed_items


@dataclass(frozen=True)
class Counting(dp.Embedder):
    """Letters counted, and every call remembered."""

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
    """An embedder that is wrong about itself."""

    @property
    def dimension(self):
        return 3


def test_vectors_are_held_to_the_dimension_that_an_embedder_states(tmp_path):
    with pytest.raises(
        dp.DataError, match="embedder counting gave vectors of 2 numbers, but its dimension is 3"
    ):
        embed_items(ITEMS, Wide(), cache=dp.Cache(tmp_path))
    assert not shards(tmp_path)  # nothing wrong is kept
    free = dp.Function(
        lambda batch: [[len(text)] * 5 for text in batch]
    )  # a function may return what it likes
    assert (free.known_dimension, embed_items(ITEMS, free).vectors.shape) == (None, (50, 5))


def test_each_distinct_item_is_embedded_once(tmp_path):
    cache, first, second = dp.Cache(tmp_path), Counting(), Counting(batch_size=7)
    once = embed_items(ITEMS + ITEMS[::-1], first, cache=cache)
    assert (len(first.seen), once.computed, once.cached) == (50, 50, 0)
    again = embed_items(ITEMS[::-1], second, cache=cache)
    assert (second.seen, again.computed, again.cached) == ([], 0, 50)
    np.testing.assert_array_equal(again.vectors, once.vectors[50:])
    np.testing.assert_array_equal(
        once.vectors, embed_items(ITEMS + ITEMS[::-1], Counting()).vectors
    )


def test_other_weights_are_another_embedder(tmp_path):
    cache = dp.Cache(tmp_path)
    embed_items(ITEMS, Counting(), cache=cache)
    other = Counting(weights="2")
    embed_items(ITEMS, other, cache=cache)
    assert len(other.seen) == 50
    assert {entry.embedder["revision"] for entry in cache.entries()} == {"1", "2"}
    assert cache.clear("nobody") == 0
    assert cache.clear("counting") == 2
    assert cache.entries() == []


def test_without_a_revision_nothing_is_kept(tmp_path):
    nobody_knows = Counting(weights=None)
    for _ in range(2):
        embed_items(ITEMS, nobody_knows, cache=dp.Cache(tmp_path))
    assert len(nobody_knows.seen) == 100
    assert shards(tmp_path) == []


@pytest.mark.parametrize("place", [0, 40, 0.5, -30, -1])
def test_a_flipped_byte_is_found_and_the_shard_computed_again(place, tmp_path):
    cache = dp.Cache(tmp_path)
    right = embed_items(ITEMS, Counting(), cache=cache).vectors
    embed_items(texts(["another"]), Counting(), cache=cache)
    (path,) = (path for path in shards(tmp_path) if path.stat().st_size > 1000)
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if isinstance(place, float) else place] ^= 0x10
    path.write_bytes(content)
    again = Counting()
    found = embed_items(ITEMS, again, cache=cache)
    np.testing.assert_array_equal(found.vectors, right)
    assert len(again.seen) == 50
    (warning,) = found.warnings
    assert "do not match their checksum; removed, to be computed again" in warning
    assert cache.verify() == []


def test_verify_finds_and_removes(tmp_path):
    cache = dp.Cache(tmp_path)
    embed_items(ITEMS, Counting(), cache=cache)
    (path,) = shards(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    assert [str(path) in text for text in cache.verify()] == [True]
    assert shards(tmp_path) == []
    assert cache.verify() == []


def test_a_failure_keeps_what_was_done(tmp_path):
    cache = dp.Cache(tmp_path)

    class StopError(Exception):
        pass

    def embed_batch(batch):
        if any(text.endswith(" 30") for text in batch):
            raise StopError
        return np.ones((len(batch), 2))

    with pytest.raises(StopError):
        embed_items(ITEMS, dp.Function(embed_batch, version="1", batch_size=4), cache=cache)
    calls = []
    fine = dp.Function(
        lambda batch: calls.extend(batch) or np.ones((len(batch), 2)),
        label="embed_batch",
        version="1",
    )
    assert embed_items(ITEMS, fine, cache=cache).cached == 28
    assert len(calls) == 22


@pytest.mark.parametrize(("answer", "message"), [
    (np.ones((3, 2)), "must give 50 rows for 50 items; it gave (3, 2)"),
    (np.ones(50), "must give 50 rows for 50 items; it gave (50,)"),
    (np.full((50, 2), np.nan), "gave NaN or infinity for text 0"),
])  # fmt: skip
def test_answers_that_cannot_be_vectors(answer, message):
    with pytest.raises(dp.DataError) as refused:
        embed_items(ITEMS, dp.Function(lambda batch: answer, batch_size=50))
    assert message in str(refused.value)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_and_batches_are_no_part_of_the_answer(workers, tmp_path):
    write(tmp_path, {f"{i}.png": image_bytes(i) for i in range(9)})
    items = [Image(tmp_path / f"{i}.png", str(i)) for i in range(9)]
    right = embed_items(items, dp.EfficientNetLite0()).vectors
    found = embed_items(
        items[::-1], replace(dp.EfficientNetLite0(), batch_size=workers), num_workers=workers
    ).vectors
    np.testing.assert_array_equal(found[::-1], right)


def test_a_folder_that_cannot_be_written_costs_the_cache_not_the_work(tmp_path):
    (tmp_path / "file").write_text("in the way")
    found = embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path / "file"))
    assert len(found.warnings) == 1
    assert re.search(
        r"cannot keep vectors in .*file.*: Not a directory\. This run goes on without",
        found.warnings[0],
    )
    np.testing.assert_array_equal(found.vectors, embed_items(ITEMS, Counting()).vectors)


def test_widths_that_change_are_refused(tmp_path):
    widths = iter([2, 1])
    embedder = dp.Function(
        lambda batch: np.ones((len(batch), next(widths))), label="odd", version="1", batch_size=25
    )
    with pytest.raises(
        dp.DataError, match=r"embedder odd gave vectors of different widths \(2 and 1\)"
    ):
        embed_items(ITEMS, embedder, cache=dp.Cache(tmp_path))
    later = dp.Function(lambda batch: np.ones((len(batch), 3)), label="odd", version="1")
    with pytest.raises(
        dp.DataError, match=r"embedder odd gave vectors of different widths .* some of them kept"
    ):
        embed_items(ITEMS, later, cache=dp.Cache(tmp_path))


def test_a_shard_that_another_process_removed_is_no_problem(tmp_path, monkeypatch):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))
    real = cache_module._load

    def removed(path):
        path.unlink()
        return real(path)

    monkeypatch.setattr(cache_module, "_load", removed)
    assert dp.Cache(tmp_path).verify() == []


def test_a_cache_that_cannot_be_cleared_says_so(tmp_path, monkeypatch):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))

    def refuse(path, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache_module.Path, "unlink", refuse)
    with pytest.raises(dp.DataError, match=r"cannot remove .*: Permission denied"):
        dp.Cache(tmp_path).clear()


def test_workers_are_counted_from_one():
    with pytest.raises(dp.ArgumentError, match="`num_workers` must be at least 1; got -1"):
        embed_items(ITEMS, Counting(), num_workers=-1)


def test_progress_is_told_with_its_rate(tmp_path):
    told = []
    embed_items(ITEMS, Counting(), progress=lambda text, fraction: told.append((text, fraction)))
    assert told[-1][1] == 1
    assert told[-1][0].startswith("counting: 50 of 50, ") and told[-1][0].endswith("/s")


# A model so slow that it can be caught at work: 2,000 items in a few seconds, a shard every 50 of them.
WORKER = """
import sys, time, json, os
import numpy as np
import divprism as dp
from divprism.embedders import embed_items, pipeline
from divprism.data.samples import texts
pipeline._SHARD_ITEMS = 50
log = open(sys.argv[2], "a")
def slow(batch):
    time.sleep(0.005)
    log.write("".join(text + chr(10) for text in batch)); log.flush()
    return np.array([[hash_of(text), len(text)] for text in batch])
def hash_of(text): return sum(ord(letter) * 31 ** place for place, letter in enumerate(text)) % 1009 / 7
items = texts([f"item {i}" for i in range(2000)])
slow = dp.Function(slow, label="slow", version="1", batch_size=10)
found = embed_items(items, slow, cache=dp.Cache(sys.argv[1]))
np.save(sys.argv[3], found.vectors)
"""


def start(*arguments):
    return subprocess.Popen([sys.executable, "-c", WORKER, *map(str, arguments)])


def test_killed_ten_times_the_work_goes_on_where_it_stopped(tmp_path):
    """No item twice but those of the shard in flight, the cache whole each time, and the same bits in the end."""
    cache, log = tmp_path / "cache", tmp_path / "log"
    assert (
        start(tmp_path / "undisturbed", tmp_path / "other_log", tmp_path / "right.npy").wait() == 0
    )
    moments = random.Random(5)
    for _ in range(10):
        process = start(cache, log, tmp_path / "found.npy")
        done = len(log.read_text().splitlines()) if log.exists() else 0
        wanted = done + moments.randrange(20, 190)
        while process.poll() is None and (
            not log.exists() or len(log.read_text().splitlines()) < wanted
        ):
            time.sleep(0.005)
        process.kill()
        process.wait()
        assert dp.Cache(cache).verify() == []
    assert start(cache, log, tmp_path / "found.npy").wait() == 0
    lines = log.read_text().split("\n")[:-1]
    assert set(lines) == {f"item {i}" for i in range(2000)}
    assert (
        2000 <= len(lines) <= 2000 + 10 * 60
    )  # a shard of 50, and a batch of 10 that had not reached it
    assert (tmp_path / "found.npy").read_bytes() == (tmp_path / "right.npy").read_bytes()


def test_two_processes_share_a_cache(tmp_path):
    pair = [
        start(tmp_path / "cache", tmp_path / f"log{i}", tmp_path / f"{i}.npy") for i in range(2)
    ]
    assert [process.wait() for process in pair] == [0, 0]
    assert (tmp_path / "0.npy").read_bytes() == (tmp_path / "1.npy").read_bytes()
    assert dp.Cache(tmp_path / "cache").verify() == []


def test_an_interruption_keeps_the_work(tmp_path):
    log = tmp_path / "log"
    process = start(tmp_path / "cache", log, tmp_path / "x.npy")
    while not log.exists() or len(log.read_text().splitlines()) < 105:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.wait()
    kept = sum(entry.items for entry in dp.Cache(tmp_path / "cache").entries())
    assert kept >= len(log.read_text().splitlines()) - 10  # all but the batch that was running


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path):
    cache = dp.Cache(tmp_path)
    embed_items(ITEMS, Counting(), cache=cache)
    (folder,) = (path.parent for path in shards(tmp_path))
    fresh, old = folder / ".new.partial", folder / ".old.partial"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert cache.verify() == []
    assert fresh.exists() and not old.exists()


def test_the_folder_is_told_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path / "here"))
    assert dp.Cache().folder == tmp_path / "here"
    monkeypatch.delenv("DIVPRISM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert dp.Cache().folder == tmp_path / "divprism"


def test_the_description_beside_the_shards_is_plain(tmp_path):
    embed_items(ITEMS, Counting(), cache=dp.Cache(tmp_path))
    (path,) = tmp_path.rglob("embedder.json")
    assert json.loads(path.read_text()) == Counting().describe()
    assert path.parent.name == Counting().key()
