"""Kinds of saved arrays for the fuzzer: states of streams, banks, and shards of the cache."""

import hashlib
import io
import json
import warnings

import numpy as np
from fuzz_changes import (
    change_value,
    changed_bytes,
    changed_members,
    changed_npy,
    one_of,
    pick,
)
from fuzz_checks import Kind, check_text

import divprism as dp
from divprism.data.archives import write_archive
from divprism.embedders.cache import Cache
from divprism.guidance import Bank

KEY = "0" * 32  # the folder of an embedder in the cache


def _metric(kernel):
    rng = np.random.default_rng(0)
    metric = dp.Metric(kernel_x=kernel, kernel_t=kernel, num_features=8)
    metric.update(rng.normal(size=(30, 4)), rng.normal(size=(30, 3)))
    return metric


def _bank():
    bank = Bank(8)
    bank.append(np.arange(18.0).reshape(6, 3, 1), np.arange(6))
    return bank


def _saved(make):
    def seed():
        buffer = io.BytesIO()
        thing = make()
        # `save` takes a path; the working directory of the fuzzer is a temporary one.
        thing.save("seed.npz")
        with open("seed.npz", "rb") as file:
            buffer.write(file.read())
        return buffer.getvalue()

    return seed


def changed_state(content, rng):
    """Return a state with other arrays or another header, and usually with a new digest."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays.pop("header")))
    header.pop("digest")
    if rng.random() < 0.5:
        change_value(header, rng)
    else:
        name = pick(sorted(arrays), rng)
        arrays[name] = _changed_array(arrays[name], rng)
    if rng.random() < 0.2:
        buffer = io.BytesIO()
        np.savez(buffer, header=np.array(json.dumps(header)), **arrays)
        return buffer.getvalue()
    write_archive("changed.npz", header, arrays)
    with open("changed.npz", "rb") as file:
        return file.read()


def _changed_array(array, rng):
    match rng.integers(0, 8):
        case 0:
            return array.astype(pick(("f4", "f2", "c16", "i8", ">f8", "S4", "?"), rng))
        case 1:
            return array[: len(array) // 2]
        case 2:
            return np.stack([array, array])
        case 3:
            return array.T.copy()
        case 4:
            return array.reshape(-1)
        case 5:
            return array * np.asarray(pick((0, -1, 2), rng), array.dtype)
        case _:
            changed = array.astype(np.float64)
            index = int(rng.integers(changed.size))
            changed.flat[index] = pick((np.nan, np.inf, -1.0, 1e300, 1e-3, 7.0), rng)
            if rng.random() < 0.5:
                return changed
            with np.errstate(invalid="ignore"):
                return changed.astype(array.dtype)


def _check_state(content, folder):
    path = folder / "state.npz"
    path.write_bytes(content)
    metric = dp.Metric.load(path)
    if metric.n:
        scores = metric.compute().scores
        assert all(np.isfinite(list(scores.values())))
        assert all(value > 0 for value in scores.values())
    # A state that was read is one that merges with itself.
    twice = dp.Metric.load(path)
    twice.merge(metric)
    assert twice.n == 2 * metric.n


def _check_bank(content, folder):
    path = folder / "bank.npz"
    path.write_bytes(content)
    bank = Bank.load(path)
    assert len(bank) <= bank.capacity
    if len(bank):
        assert np.isfinite(np.asarray(bank.latents)).all()


def _shard():
    keys = np.frombuffer(hashlib.sha256(b"a").digest() * 2, np.uint8).reshape(2, 32).copy()
    keys[1] += 1
    buffer = io.BytesIO()
    np.savez(buffer, keys=keys, vectors=np.ones((2, 3), np.float32))
    return buffer.getvalue()


def _check_shard(content, folder):
    """Look vectors up in a cache with this shard, whose name is right."""
    place = folder / KEY
    place.mkdir()
    (place / "embedder.json").write_text('{"id": "a"}')
    (place / f"{hashlib.sha256(content).hexdigest()}.npz").write_bytes(content)
    found = []
    cache = Cache(folder)
    for entry in cache.entries():
        assert entry.items >= 0
    store = cache.store(KEY, {"id": "a"}, found.append)
    digests = [hashlib.sha256(b"a").digest(), b"\0" * 32]
    store.width()
    for position, vector in store.fetch(digests):
        assert position in (0, 1)
        assert isinstance(vector, np.ndarray)
    for notice in found:
        check_text(notice.text)
    for sentence in cache.verify():
        check_text(sentence)
    if found:
        raise dp.DataError(found[0].text)


def _quiet(check):
    """Return a check in which a warning of NumPy is an error: a user would see it."""

    def checked(content, folder):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            check(content, folder)

    return checked


_CHANGES = one_of(changed_state, changed_state, changed_members(changed_npy), changed_bytes)
_SHARDS = one_of(changed_members(changed_npy), changed_members(changed_npy), changed_bytes)
KINDS = [
    Kind("state", "states", _saved(lambda: _metric(dp.Cosine())), _CHANGES, _quiet(_check_state)),
    Kind("random-state", "states", _saved(lambda: _metric(dp.Gaussian(1.5))), _CHANGES,
         _quiet(_check_state)),
    Kind("bank", "states", _saved(_bank), _CHANGES, _quiet(_check_bank)),
    Kind("shard", "states", _shard, _SHARDS, _check_shard),
]  # fmt: skip
