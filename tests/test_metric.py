"""Streams: any cut into chunks and workers gives the same scores, and files stay on disk."""

import json
import subprocess
import sys

import numpy as np
import pytest

import divprism as dp
from divprism.scores.spec import REPEATED_PROMPTS, SCORES

X = np.random.default_rng(0).standard_normal((120, 4)) + 2
T = np.random.default_rng(1).standard_normal((30, 3))[np.arange(120) % 30]
KERNELS = {
    "gaussian": (dp.Gaussian(2.0), dp.Gaussian(1.0), dp.Fourier(64)),
    "cosine": (dp.Cosine(), dp.Cosine(), dp.Dual()),
    "polynomial": (dp.Polynomial(2), dp.Cosine(), dp.Dual()),
}

# Streams, and files that are not held in memory, do not know which prompts are equal.
PER_PROMPT = {spec.name for spec in SCORES if REPEATED_PROMPTS in spec.needs}


def values(evaluation):
    return {name: (score.value, score.standard_error) for name, score in evaluation.scores.items()}


def stream(kernel_x, kernel_t, cuts, library=lambda a: a, **settings):
    metric = dp.Metric(kernel_x, kernel_t, num_features=64, **settings)
    for start, stop in zip([0, *cuts], [*cuts, len(X)], strict=True):
        metric.update(library(X[start:stop]), None if kernel_t is None else library(T[start:stop]))
    return metric


@pytest.mark.parametrize("order", [1.0, 0.7, 2.0, "inf"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_stream_gives_what_evaluate_gives(name, order, library):
    kernel_x, kernel_t, estimator = KERNELS[name]
    right = dp.evaluate(
        X, T, kernel_x=kernel_x, kernel_t=kernel_t, estimator=estimator, order=order, truncation=20
    )
    found = stream(kernel_x, kernel_t, [1, 50, 99], library, order=order, truncation=20).compute()
    assert set(found.scores) == set(right.scores) - PER_PROMPT
    assert found.settings.estimator == estimator
    for score in found.scores:
        value, error = values(right)[score]
        assert float(found.scores[score]) == pytest.approx(value, rel=1e-7)
        stated = found.scores[score].standard_error
        if name == "gaussian":
            # A stream keeps no phases, so it lacks the part for atypical frequencies.
            assert 0.9 * error < stated <= error
        else:
            assert stated == pytest.approx(error, abs=1e-6)


def test_outputs_alone_have_two_scores():
    found = stream(dp.Cosine(), None, [60]).compute()
    assert set(found.scores) == {"vendi", "rke"}
    assert float(found.vendi) == pytest.approx(float(dp.vendi(X, kernel=dp.Cosine())))
    assert "120 outputs" in repr(found)


@pytest.mark.parametrize("name", KERNELS)
def test_workers_merge_to_one(name, tmp_path):
    kernel_x, kernel_t, _ = KERNELS[name]
    whole = stream(kernel_x, kernel_t, [])
    first, second, empty = (dp.Metric(kernel_x, kernel_t, num_features=64) for _ in range(3))
    first.update(X[:70], T[:70])
    second.update(X[70:], T[70:])
    second.save(tmp_path / "second.npz")
    empty.merge(first)
    empty.merge(dp.Metric.load(tmp_path / "second.npz"))
    empty.merge(dp.Metric(kernel_x, kernel_t, num_features=64))
    assert empty.n == 120
    for score, (value, _) in values(whole.compute()).items():
        assert float(empty.compute().scores[score]) == pytest.approx(value, rel=1e-10)


def test_rounding_of_single_precision_survives_a_merge():
    """A metric that merges others must know how noisy their features are."""
    whole, part, merged = (dp.Metric(dp.Cosine()) for _ in range(3))
    x = np.repeat(X[:3], 40, axis=0).astype(np.float32)
    whole.update(x)
    part.update(x)
    merged.merge(part)
    assert merged.compute().vendi == whole.compute().vendi
    assert merged.compute().to_dict()["scores"] == whole.compute().to_dict()["scores"]
    assert merged._state.noise == whole._state.noise > 0


HALVES = np.repeat(X[:2], 30, axis=0).astype(np.float16)


@pytest.mark.parametrize("cuts", [[], [1], [20, 40], [30]], ids=str)
@pytest.mark.parametrize("name", ["cosine", "polynomial"])
def test_every_merge_order_and_chunking_of_half_precision_agrees(name, cuts):
    """Two directions remain two at order 0.1: no order of merging forgets the rounding."""
    kernel, _, _ = KERNELS[name]
    expected = dp.vendi(HALVES, kernel=kernel, order=0.1, estimator=dp.Dual())
    assert 1 < expected < 2
    for direction in (1, -1):
        merged = dp.Metric(kernel, order=0.1)
        for chunk in np.split(HALVES, cuts)[::direction]:
            part = dp.Metric(kernel, order=0.1)
            part.update(chunk)
            # Into a fresh one, then into the rest: each hop has to carry the noise.
            hop = dp.Metric(kernel, order=0.1)
            hop.merge(part)
            merged.merge(hop)
        assert float(merged.compute().vendi) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("seen", [0, 60])
def test_a_chunk_that_overflows_leaves_no_noise(seen, monkeypatch):
    """Half precision is noisier than double, so a refused chunk of it must not raise the cut."""
    metric, fresh = dp.Metric(dp.Cosine(), order=0.1), dp.Metric(dp.Cosine(), order=0.1)
    for each in (metric, fresh):
        if seen:
            each.update(X[:seen])
    with monkeypatch.context() as patch:
        patch.setattr(dp.Cosine, "features", lambda self, points: points.rows * np.inf)
        with np.errstate(all="ignore"), pytest.raises(dp.DataError, match="overflow"):
            metric.update(HALVES)
    for each in (metric, fresh):
        each.update(X[seen:])
    assert metric._state.noise == fresh._state.noise
    assert values(metric.compute()) == values(fresh.compute())


def test_a_first_chunk_that_fails_leaves_no_width(monkeypatch):
    metric, other = dp.Metric(dp.Cosine()), dp.Metric(dp.Cosine())
    with monkeypatch.context() as patch:
        patch.setattr(dp.Cosine, "features", lambda self, points: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            metric.update(X)
    other.update(X[:, :2])
    metric.merge(other)
    assert values(metric.compute()) == values(other.compute())


def test_a_first_chunk_that_is_refused_leaves_no_width():
    metric = dp.Metric(dp.Gaussian(1e-300))
    with np.errstate(all="ignore"), pytest.raises(dp.DataError, match="overflow"):
        metric.update(1e200 * X)
    metric.update(np.zeros((3, 2)))  # another width than that of the refused chunk
    assert metric.n == 3


def test_reset_forgets():
    metric = stream(dp.Cosine(), dp.Cosine(), [10])
    metric.reset()
    assert metric.n == 0
    with pytest.raises(dp.DataError, match="nothing has been seen yet"):
        metric.compute()
    metric.update(X[:, :2], T)  # another width is fine now
    assert metric.n == 120


def test_far_data_keep_their_precision():
    near, far = (dp.Metric(dp.Gaussian(2.0), num_features=64) for _ in range(2))
    near.update(X)
    far.update(X + 1e6)
    assert float(far.compute().vendi) == pytest.approx(float(near.compute().vendi), rel=1e-6)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: dp.Metric(dp.Gaussian(1.0), dp.Cosine()), "must both be Gaussian or neither"),
        (
            lambda: dp.Metric(dp.Categorical()),
            "`kernel_x` must be a kernel with features for a stream; Categorical has none",
        ),
        (lambda: dp.Metric(dp.Cosine()).merge(3), "`other` must be a Metric; got int"),
        (lambda: dp.Metric("gaussian"), "`kernel_x` must be an object such as"),
        (
            lambda: dp.Metric(dp.Gaussian(1.0), num_features=2),
            "`num_features` must be a whole number of at least 8",
        ),
        (lambda: dp.Metric(dp.Cosine()).update(X, T), "`t` goes with `kernel_t`"),
        (lambda: dp.Metric(dp.Cosine(), dp.Cosine()).update(X, T[:5]), "must pair up"),
        (
            lambda: stream(dp.Cosine(), None, []).update(X[:, :2]),
            "`x` has 2 columns; earlier chunks had 4",
        ),
        (lambda: dp.Metric(dp.Cosine()).update(X * np.nan), "NaN"),
        (
            lambda: dp.Metric(dp.Polynomial(8)).update(np.ones((3, 40))),
            "features together, above 4,096",
        ),
        (
            lambda: dp.Metric(dp.Polynomial(500)).update(np.ones((3, 40))),
            "`kernel_x` has too many features, or too large ones, for rows of 40 numbers",
        ),
        (
            lambda: dp.Metric(dp.Cosine()).merge(dp.Metric(dp.Cosine(), rng=1)),
            "same kernels, order, features and seed",
        ),
        (lambda: dp.Metric.load("nowhere.npz"), "no such file"),
    ],
)
def test_bad_streams_are_refused(act, message):
    with pytest.raises(dp.DivprismError, match=message):
        act()


def test_a_refused_chunk_changes_nothing():
    metric = stream(dp.Cosine(), None, [])
    before = values(metric.compute())
    with pytest.raises(dp.DataError):
        metric.update(np.full((3, 4), np.inf))
    assert values(metric.compute()) == before


class _Payload:
    """Runs when it is unpickled."""

    ran = False

    def __reduce__(self):
        return setattr, (_Payload, "ran", True)


def test_what_overflows_is_refused_and_forgotten():
    metric = dp.Metric(dp.Gaussian(1e-10), num_features=16)
    metric.update(X * 1e-10)
    before = values(metric.compute())
    with np.errstate(all="ignore"), pytest.raises(dp.DataError, match="overflow"):
        metric.update(X * 1e300)
    assert values(metric.compute()) == before


def test_states_from_strangers_are_refused(tmp_path):
    path = tmp_path / "state.npz"
    stream(dp.Cosine(), None, []).save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays["header"]))
    bad = {
        "not a zip": b"hello",
        "cut": path.read_bytes()[:200],
        "no header": {"total_x": arrays["total_x"]},
        "wrong shape": arrays | {"total_x": np.zeros((2, 2))},
        "not finite": arrays | {"total_x": arrays["total_x"] * np.nan},
        "unknown kernel": arrays
        | {"header": np.array(json.dumps(header | {"settings": {"kernels": {"x": "exec(a=1)"}}}))},
        "negative count": arrays | {"header": np.array(json.dumps(header | {"n": -1}))},
        "newer": arrays | {"header": np.array(json.dumps(header | {"format": 99}))},
        "other items": arrays | {"total_x": 7 * arrays["total_x"]},
        "asymmetric": arrays | {"total_x": arrays["total_x"] + np.triu(np.ones((4, 4)), 1)},
        "huge count": arrays | {"header": np.array(json.dumps(header | {"n": 10**40}))},
        "list": arrays
        | {
            "header": np.array(
                json.dumps(header | {"settings": header["settings"] | {"kernels": ["cosine"]}})
            )
        },
        "deep": arrays | {"header": np.array("[" * 100_000)},
        "wide": arrays | {"header": np.array(json.dumps(header | {"widths": {"x": 10**9}}))},
    }
    for name, content in bad.items():
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.savez(path, **content)
        with pytest.raises(dp.DataError):
            dp.Metric.load(path)
            pytest.fail(name)
    np.savez(path, **(arrays | {"total_x": np.array([_Payload()], dtype=object)}))
    with pytest.raises(dp.DataError, match="allow_pickle=False"):
        dp.Metric.load(path)
    assert not _Payload.ran
    with pytest.raises(dp.DataError, match="cannot write"):
        stream(dp.Cosine(), None, []).save(tmp_path / "no" / "folder.npz")


@pytest.mark.parametrize("kernel", [dp.Gaussian(3.0), dp.Cosine(), dp.Polynomial(2)], ids=str)
def test_files_beyond_the_budget_stay_on_disk(kernel, tmp_path):
    """A budget smaller than the file: rows are read as tiles need them; the same scores."""
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    np.save(tmp_path / "t.npy", T)
    stored = [np.load(tmp_path / name, mmap_mode="r") for name in ("x.npy", "t.npy")]
    right = dp.evaluate(
        X.astype(np.float32), T, kernel_x=kernel, kernel_t=dp.Gaussian(1.0), order=2
    )
    found = dp.evaluate(*stored, kernel_x=kernel, kernel_t=dp.Gaussian(1.0), order=2, memory=2000)
    assert set(found.scores) == set(right.scores) - PER_PROMPT
    for score in found.scores:
        assert float(found.scores[score]) == pytest.approx(values(right)[score][0], rel=2e-6)
    assert found.data["prompts"] == 120  # copies are not merged, which order 2 does not need
    assert float(dp.vendi(stored[0], kernel=kernel)) == pytest.approx(
        float(dp.vendi(X.astype(np.float32), kernel=kernel))
    )


def test_a_tiny_bandwidth_on_disk_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(
        dp.DataError, match="cannot be resolved at bandwidth 1e-09 from a file larger"
    ):
        dp.rke(np.load(tmp_path / "x.npy", mmap_mode="r"), kernel=dp.Gaussian(1e-9), memory=1000)


def test_order_two_of_a_file_needs_little_memory(tmp_path):
    """61 MB on disk, a budget of 20 MB: anonymous memory grows by less than half of the file."""
    # Many rows that are not wide: a block of 512 of them is a small part of the file. Ten runs on a
    # busy machine took from 10.8 to 14.7 MB.
    rows = np.random.default_rng(0).standard_normal((16_000, 1000), dtype=np.float32)
    np.save(tmp_path / "x.npy", rows)
    code = (
        "import numpy as np, divprism as dp\n"
        "def anonymous():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    [line] = [line for line in lines if line.startswith('RssAnon')]\n"
        "    return int(line.split()[1]) / 1024\n"
        f"x = np.load({str(tmp_path / 'x.npy')!r}, mmap_mode='r')\n"
        "most = []\n"
        # Buffers that threads and BLAS keep, whatever the width of the rows, are there before.
        "dp.rke(np.array(x[:, :10]), kernel=dp.Gaussian(50.0), memory='20 MB')\n"
        "before = anonymous()\n"
        "watch = lambda *a: most.append(anonymous())\n"
        "dp.rke(x, kernel=dp.Gaussian(50.0), memory='20 MB', progress=watch)\n"
        "print(max(most) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < rows.nbytes / 2**20 / 2
