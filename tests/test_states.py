"""States of streams and banks: chunks are added whole, merges agree, and no file is trusted."""

import copy
import io
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from fuzz_changes import changed_bytes

import divprism as dp
from divprism.data.archives import write_archive
from divprism.guidance import Bank

RNG = np.random.default_rng(3)
X, T = RNG.standard_normal((40, 3)), RNG.standard_normal((40, 2))
STREAMS = {
    "cosine": (dp.Cosine(), None),
    "cosines": (dp.Cosine(), dp.Cosine()),
    "polynomial": (dp.Polynomial(2), dp.Cosine()),
    "gaussian": (dp.Gaussian(1.5), None),
    "gaussians": (dp.Gaussian(1.5), dp.Gaussian(0.7)),
}
LONGEST_MESSAGE = 500


def empty(name, **settings):
    return dp.Metric(*STREAMS[name], num_features=8, **settings)


def add(metric, name, rows, dtype=np.float64):
    prompts = None
    if STREAMS[name][1] is not None:
        prompts = T[rows]
    metric.update(X[rows].astype(dtype), prompts)


def filled(name, **settings):
    metric = empty(name, **settings)
    add(metric, name, slice(None))
    return metric


def bank(prompts=None):
    samples = Bank(8)
    samples.append(X[:6].reshape(6, 3, 1), prompts)
    return samples


SAVED = {
    **{name: lambda name=name: filled(name) for name in STREAMS},
    "empty metric": lambda: empty("cosines"),
    "bank": bank,
    "bank of embeddings": lambda: bank(T[:6]),
    "bank of numbers": lambda: bank([1, 2, 3, 1, 2, 3]),
    "bank of texts": lambda: bank(list("abcabc")),
    "empty bank": lambda: Bank(4),
}


def load(kind, path):
    if "bank" in kind:
        return Bank.load(path)
    return dp.Metric.load(path)


def content(state, folder):
    """Return a state as the bytes of its file."""
    path = folder / "content.npz"
    state.save(path)
    return path.read_bytes()


def parts(path):
    """Return the header, without its digest, and the arrays of a file."""
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays.pop("header")))
    header.pop("digest")
    return header, arrays


def require_sentence(error):
    message = str(error)
    assert message.isprintable(), message
    assert 10 < len(message) < LONGEST_MESSAGE, message


@pytest.mark.parametrize("kind", SAVED)
def test_saved_and_loaded_states_are_equal_to_the_bit(kind, tmp_path):
    state = SAVED[kind]()
    path = tmp_path / "state.npz"
    state.save(path)
    assert content(load(kind, path), tmp_path) == path.read_bytes()


@pytest.mark.parametrize("name", ["polynomial", "gaussians"])
def test_a_state_of_another_process_merges(name, tmp_path):
    first, path = empty(name), tmp_path / "state.npz"
    add(first, name, slice(0, 15))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_states as s\n"
        "metric = s.empty(sys.argv[2]); s.add(metric, sys.argv[2], slice(15, None))\n"
        "metric.save(sys.argv[3])"
    )
    here = os.path.dirname(__file__)
    subprocess.run([sys.executable, "-c", code, here, name, path], check=True)
    first.merge(dp.Metric.load(path))
    expected = filled(name).compute()
    for score, value in first.compute().scores.items():
        assert float(value) == pytest.approx(float(expected.scores[score]), rel=1e-12)


def test_a_state_of_a_platform_with_another_byte_order_is_the_same(tmp_path):
    path, other = tmp_path / "state.npz", tmp_path / "other.npz"
    filled("cosines").save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    for name in ("total_x", "total_t", "total_joint"):
        arrays[name] = arrays[name].astype(">f8")
    np.savez(other, **arrays)
    assert content(dp.Metric.load(other), tmp_path) == path.read_bytes()


def test_a_state_of_an_earlier_version_has_no_digest(tmp_path):
    path = tmp_path / "state.npz"
    filled("gaussian").save(path)
    header, arrays = parts(path)
    np.savez(path, header=np.array(json.dumps(header)), **arrays)
    assert content(dp.Metric.load(path), tmp_path) == content(filled("gaussian"), tmp_path)


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    filled("cosine").save(path)
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    for state in (filled("gaussian"), bank()):
        with pytest.raises(dp.DataError, match=r"cannot write .*: No space left on device"):
            state.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["state.npz"]


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="Windows has no limit of file sizes")
def test_a_disk_that_is_full_is_named_as_the_reason(tmp_path):
    code = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[1]); import test_states as s\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "states = s.filled('gaussians'), s.bank()\n"
        "for size in (0, 100, 700):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "    for state in states:\n"
        "        try: state.save('state.npz')\n"
        "        except s.dp.DataError as error: print(error)"
    )
    call = [sys.executable, "-c", code, os.path.dirname(__file__)]
    done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["cannot write state.npz: File too large."] * 6
    assert os.listdir(tmp_path) == []


REFUSED_CHUNKS = {
    "nan": X * np.nan,
    "one infinite row": np.vstack([X[:3], np.full((1, 3), np.inf)]),
    "no rows": X[:0],
    "no columns": X[:, :0],
    "flat": X[:, 0],
    "cube": X[:, :, None],
    "ids": np.arange(5),
    "texts": ["a", "b"],
    "ragged": [[1.0, 2.0], [1.0]],
    "complex": X.astype(complex),
    "objects": np.array([[None, 1, 2]]),
    "none": None,
    "masked": np.ma.masked_array(X, mask=True),
}


@pytest.mark.parametrize("seen", [0, 20])
@pytest.mark.parametrize("chunk", REFUSED_CHUNKS)
@pytest.mark.parametrize("name", STREAMS)
def test_a_refused_chunk_leaves_no_trace(name, chunk, seen, tmp_path):
    metric, fresh = empty(name), empty(name)
    for each in (metric, fresh):
        if seen:
            add(each, name, slice(0, seen))
    prompts = None
    if STREAMS[name][1] is not None:
        prompts = T
    with pytest.raises(dp.DivprismError):
        metric.update(REFUSED_CHUNKS[chunk], prompts)
    assert content(metric, tmp_path) == content(fresh, tmp_path)
    for each in (metric, fresh):
        add(each, name, slice(seen, None))
    assert content(metric, tmp_path) == content(fresh, tmp_path)


def test_a_refused_first_chunk_does_not_choose_the_frequencies(tmp_path):
    metric, fresh = empty("gaussians"), empty("gaussians")
    with pytest.raises(dp.DataError, match="must pair up"):
        metric.update(np.ones((4, 7)), np.ones((3, 9)))
    with np.errstate(all="ignore"), pytest.raises(dp.DataError, match="overflow"):
        metric.update(np.full((4, 7), 1e308), np.full((4, 9), 1e308))
    for each in (metric, fresh):
        add(each, "gaussians", slice(None))
    assert content(metric, tmp_path) == content(fresh, tmp_path)


class _Interruption:
    """Raise KeyboardInterrupt at a given call of a Python function."""

    def __init__(self, at):
        self.left = at

    def __call__(self, frame, event, argument):
        if event == "call":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["cosines", "gaussians"])
@pytest.mark.parametrize("act", ["update", "merge"])
@pytest.mark.parametrize("seen", [0, 20])
def test_ctrl_c_at_any_time_adds_a_chunk_whole_or_not_at_all(name, act, seen, tmp_path):
    def begun():
        metric = empty(name)
        if seen:
            add(metric, name, slice(0, seen))
        return metric

    other = empty(name)
    add(other, name, slice(20, None))

    def change(metric):
        if act == "merge":
            metric.merge(other)
        else:
            add(metric, name, slice(20, None))

    whole = begun()
    change(whole)
    before, after = content(begun(), tmp_path), content(whole, tmp_path)
    interrupted = 0
    for at in range(1, 2000):
        metric = begun()
        sys.setprofile(_Interruption(at))
        try:
            change(metric)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        finally:
            sys.setprofile(None)
        assert content(metric, tmp_path) in (before, after)
    assert interrupted > 10
    assert content(metric, tmp_path) == after


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_do_not_share_later_chunks(duplicate, tmp_path):
    metric = filled("gaussians")
    before = content(metric, tmp_path)
    twin = duplicate(metric)
    add(twin, "gaussians", slice(0, 10))
    twin.merge(metric)
    assert (metric.n, twin.n) == (40, 90)
    assert content(metric, tmp_path) == before


def _shapes(rng, n):
    """Return rows whose spectra are hard: copies, near copies, a line, an outlier, heavy tails."""
    x = rng.standard_normal((n, 4))
    match rng.integers(6):
        case 0:
            return x[rng.integers(0, 3, n) % n]
        case 1:
            return x[rng.integers(0, 3, n) % n] + 1e-4 * x
        case 2:
            return np.linspace(0.1, 1, n)[:, None] * x[:1]
        case 3:
            x[0] *= 5e3
        case 4:
            return np.clip(rng.standard_cauchy((n, 4)), -6e4, 6e4)
    return x


def _merged(rng, chunks, fresh):
    """Merge metrics of chunks, and some empty ones, in the order of a random tree."""
    nodes = [fresh() for _ in range(rng.integers(3))]
    for x, t in chunks:
        metric = fresh()
        metric.update(x, t)
        nodes.append(metric)
    while len(nodes) > 1:
        first, second = rng.choice(len(nodes), 2, replace=False)
        nodes[first].merge(nodes[second])
        nodes.pop(second)
    return nodes[0].compute()


@pytest.mark.parametrize("order", [0.1, 0.3, 0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("seed", range(20))
def test_every_tree_of_merges_and_chunking_agrees_to_rounding(seed, order):
    """Rows keep their precision, half, single or double, in whatever chunk they arrive."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 100))
    x, t = _shapes(rng, n), rng.standard_normal((n, 2))
    dtypes = rng.choice(["float16", "float32", "float64"], n)
    if rng.random() < 0.5:
        dtypes[:] = dtypes[0]
    kernels = list(STREAMS.values())[rng.integers(len(STREAMS))]
    truncation = [None, 3, 10][rng.integers(3)]

    def fresh():
        return dp.Metric(*kernels, num_features=16, order=order, truncation=truncation)

    def chunks(cuts):
        for rows in np.split(rng.permutation(n), cuts):
            for dtype in np.unique(dtypes[rows]):
                chosen = rows[dtypes[rows] == dtype]
                yield x[chosen].astype(dtype), None if kernels[1] is None else t[chosen]

    whole = _merged(rng, chunks([]), fresh)
    # The bound that Metric states: rounding, or an eigenvalue at the level of rounding.
    bound = max(1e-9, (4 * math.sqrt(n) * np.finfo(float).eps) ** order)
    for _ in range(3):
        cuts = np.sort(rng.integers(1, n, rng.integers(0, 8)))
        merged = _merged(rng, chunks(np.unique(cuts)), fresh)
        for name, score in whole.scores.items():
            assert float(merged.scores[name]) == pytest.approx(float(score), rel=bound), name


def test_single_precision_copies_remain_copies_at_a_small_order():
    """Sums in single precision leave spurious eigenvalues, as many as there are features."""
    x = np.repeat(X[:2], 50, axis=0).astype(np.float32)
    metric, double = empty("gaussian", order=0.1), empty("gaussian", order=0.1)
    metric.update(x)
    double.update(x.astype(np.float64))
    assert float(metric.compute().vendi) == pytest.approx(float(double.compute().vendi), rel=1e-9)


def _moments(change):
    def changed(header, arrays):
        arrays["total_x"] = change(arrays["total_x"])

    return changed


def _set(**entries):
    return lambda header, arrays: header.update(entries)


def _setting(**entries):
    return lambda header, arrays: header["settings"].update(entries)


def _swapped(header, arrays):
    arrays["total_x"], arrays["total_t"] = arrays["total_t"], arrays["total_x"]


def _indefinite(total):
    values, vectors = np.linalg.eigh(total)
    # The trace and the symmetry stay.
    values[0], values[-1] = -1.0, values[-1] + values[0] + 1.0
    return vectors * values @ vectors.T


LIES = {
    "noise NaN": _set(noise=math.nan),
    "noise infinite": _set(noise=math.inf),
    "noise negative": _set(noise=-1e-16),
    "noise text": _set(noise="0"),
    "noise none": _set(noise=None),
    "noise true": _set(noise=True),
    "noise of no precision": _set(noise=0.1),
    "count true": _set(n=True),
    "count float": _set(n=40.0),
    "count other": _set(n=41),
    "count negative": _set(n=-40),
    "count zero": _set(n=0),
    "count huge": _set(n=2**60),
    "widths empty": _set(widths={}),
    "widths extra": _set(widths={"x": 3, "t": 2, "z": 1}),
    "widths list": _set(widths=[3, 2]),
    "widths zero": _set(widths={"x": 0, "t": 2}),
    "widths huge": _set(widths={"x": 10**12, "t": 2}),
    "widths float": _set(widths={"x": 3.0, "t": 2}),
    "extra entry": _set(more=1),
    "settings list": _set(settings=[]),
    "format true": _set(format=True),
    "order NaN": _setting(order=math.nan),
    "order true": _setting(order=True),
    "order negative": _setting(order=-1),
    "truncation": _setting(truncation=0),
    "truncation float": _setting(truncation=3.0),
    "seed negative": _setting(rng=-1),
    "features": _setting(num_features=9),
    "features huge": _setting(num_features=10**9),
    "features negative": _setting(num_features=-8),
    "kernels list": _setting(kernels=["cosine"]),
    "kernels number": _setting(kernels={"x": 3}),
    "kernels of another side": _setting(kernels={"t": "cosine"}),
    "kernel unknown": _setting(kernels={"x": "exec(a=1)"}),
    "extra setting": _setting(more=1),
    "NaN": _moments(lambda a: a * np.nan),
    "infinite": _moments(lambda a: a + np.inf),
    "twice": _moments(lambda a: 2 * a),
    "negative": _moments(lambda a: -a),
    "indefinite": _moments(_indefinite),
    "asymmetric": _moments(lambda a: a + np.triu(np.ones_like(a), 1)),
    "single precision": _moments(lambda a: a.astype(np.float32)),
    "complex": _moments(lambda a: a.astype(complex)),
    "whole numbers": _moments(lambda a: a.astype(np.int64)),
    "texts": _moments(lambda a: a.astype(str)),
    "times": _moments(lambda a: a.astype("M8[s]")),
    "flat": _moments(lambda a: a.ravel()),
    "cut": _moments(lambda a: a[:-1, :-1]),
    "not square": _moments(lambda a: a[:-1]),
    "extra array": lambda header, arrays: arrays.update(more=np.ones(3)),
    "missing array": lambda header, arrays: arrays.pop("total_x"),
    "renamed array": lambda header, arrays: arrays.update(total_y=arrays.pop("total_x")),
    "swapped": _swapped,
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", ["cosines", "gaussians"])
def test_states_that_no_stream_can_have_are_refused(name, lie, tmp_path):
    """Also where whoever changed the file has renewed its digest."""
    path = tmp_path / "state.npz"
    filled(name).save(path)
    header, arrays = parts(path)
    LIES[lie](header, arrays)
    if (name, lie) == ("gaussians", "swapped"):
        # Random features of both sides obey the same laws: only the digest shows the change.
        with np.load(path) as archive:
            np.savez(path, header=archive["header"], **arrays)
    else:
        write_archive(path, header, arrays)
    with pytest.raises(dp.DataError) as caught:
        dp.Metric.load(path)
    require_sentence(caught.value)


def test_a_merge_refuses_a_state_that_no_stream_can_have(tmp_path):
    for change in (
        lambda total: total.fill(np.nan),
        lambda total: np.negative(total, out=total),
        lambda total: np.multiply(total, 3, out=total),
    ):
        metric, other = filled("cosines"), filled("cosines")
        before = content(metric, tmp_path)
        change(other._state.moments["x"].total)
        with pytest.raises(dp.DataError, match="the other metric is not a valid state"):
            metric.merge(other)
        assert content(metric, tmp_path) == before


def test_devices_and_pipes_are_refused_without_waiting(tmp_path):
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero", "/dev/null", tmp_path):
        for kind in ("metric", "bank"):
            with pytest.raises(dp.DataError, match=r"is not a regular file|s a directory"):
                load(kind, path)


def test_names_of_files_cannot_drive_a_terminal(tmp_path):
    path = tmp_path / "a\x1b[31m\u202e\nb.npz"
    for kind in ("metric", "bank"):
        with pytest.raises(dp.DataError) as caught:
            load(kind, path)
        require_sentence(caught.value)
        path.write_bytes(b"no archive")
        with pytest.raises(dp.DataError) as caught:
            load(kind, path)
        require_sentence(caught.value)
        path.unlink()
    for state in (bank(), filled("cosine")):
        with pytest.raises(dp.DataError) as caught:
            state.save(tmp_path / "\x1b[31mnowhere" / "bank.npz")
        require_sentence(caught.value)


def _lying_shape(content, rng):
    """Overwrite a digit of the shape in the header of an array."""
    start = content.index(b"'shape': (") + 10
    claimed = [b"99999999,", b"4294967296,", b"-1,", b"0,", b"9" * 18 + b",", b"----1,"]
    return content[:start] + claimed[rng.integers(len(claimed))] + content[start:]


def _changed_members(content, rng):
    """Write the archive again with members changed, dropped, doubled or exchanged."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = list(members)
    first, second = (names[rng.integers(len(names))] for _ in range(2))
    buffer = io.BytesIO()
    method = zipfile.ZIP_STORED
    match rng.integers(6):
        case 0:
            members[first], members[second] = members[second], members[first]
        case 1:
            members.pop(first)
        case 2:
            members["../" * rng.integers(2) + "more.npy"] = members[first]
        case 3:
            members[first] = _lying_shape(members[first], rng)
        case 4:
            members[first] = changed_bytes(members[first], rng)
        case _:
            method = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA][rng.integers(3)]
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return buffer.getvalue()


JUNK = [
    math.nan,
    math.inf,
    -1,
    0,
    1,
    True,
    None,
    "",
    "x" * 5000,
    [],
    {},
    10**40,
    1e-300,
    [[1]],
    "inf",
]


def _changed_header(content, rng):
    """Change an entry of the header or its settings, and renew the digest."""
    header, arrays = parts(io.BytesIO(content))
    entries = header
    if rng.random() < 0.5 and "settings" in header:
        entries = header["settings"]
    key = list(entries)[rng.integers(len(entries))]
    entries[key] = JUNK[rng.integers(len(JUNK))]
    return header, arrays


def _changed_array(content, rng):
    """Change numbers of an array, and renew the digest."""
    header, arrays = parts(io.BytesIO(content))
    if arrays:
        name = list(arrays)[rng.integers(len(arrays))]
        array = arrays[name].copy()
        index = rng.integers(array.size, size=rng.integers(1, 4))
        with np.errstate(all="ignore"):
            values = np.array([np.nan, np.inf, -1, 1e300, 0, 1e-300, 3.7])[rng.integers(7)]
            array.flat[index] = values.astype(array.dtype)
        arrays[name] = array
    return header, arrays


def _check_loaded(kind, state):
    """Require finite scores of a metric, and finite samples of a bank."""
    if "bank" in kind:
        assert not len(state) or np.isfinite(state.latents).all()
        return
    if state.n:
        for score in state.compute().scores.values():
            assert 0 < float(score) < math.inf


@pytest.mark.parametrize("kind", SAVED)
def test_mutated_files_are_refused_in_one_sentence_or_say_the_same(kind, tmp_path):
    """About 3,000 files: bytes, members, shapes, headers and numbers are changed."""
    path = tmp_path / "state.npz"
    SAVED[kind]().save(path)
    original = path.read_bytes()
    rng = np.random.default_rng(len(kind))
    changes = [changed_bytes, changed_bytes, _changed_members, _changed_header, _changed_array]
    refused = 0
    for number in range(280):
        change = changes[number % len(changes)]
        changed = change(original, rng)
        if isinstance(changed, bytes):
            path.write_bytes(changed)
        else:
            write_archive(path, *changed)
        try:
            state = load(kind, path)
        except dp.DataError as error:
            refused += 1
            require_sentence(error)
            continue
        if isinstance(changed, bytes):
            # Without a new digest, nothing that counts can have changed.
            assert content(state, tmp_path) == original
        else:
            _check_loaded(kind, state)
    assert refused > 100
