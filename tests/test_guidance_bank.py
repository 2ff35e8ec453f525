"""The bank: its sliding window, kept distances, files, merging, and refusals."""

import json
import math
import pickle
import zipfile

import array_api_strict
import numpy as np
import pytest
import torch
from cases import LIBRARIES, read_only
from hypothesis import given, settings
from hypothesis import strategies as st

import divprism as dp
from divprism.guidance import Bank, _pool, marginal_gain, objectives, score_gradient
from divprism.guidance._pairs import squared_distances

pytestmark = pytest.mark.usefixtures("one_thread")

X = read_only(np.random.default_rng(2).standard_normal((40, 6)).astype(np.float32))
T = read_only(np.random.default_rng(3).standard_normal((40, 3)).astype(np.float32))
NEW, T_NEW = X[:3] + np.float32(0.1), T[:3]
SCORES = ["rke", "conditional_rke", "conditional_vendi(truncation=4)"]


def _filled(capacity=10, count=25, dtype="float32", make=LIBRARIES["numpy"]):
    bank = Bank(capacity, dtype=dtype)
    for start in range(0, count, 4):
        stop = min(count, start + 4)
        bank.append(make(X[start:stop]), make(T[start:stop]))
    return bank


@given(capacity=st.integers(1, 12), sizes=st.lists(st.integers(1, 7), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_the_window_holds_the_last_samples_in_order(capacity, sizes):
    bank, arrived = Bank(capacity), 0
    for size in sizes:
        rows = np.arange(arrived, arrived + size) % 40
        bank.append(X[rows], T[rows])
        arrived += size
        last = np.arange(max(0, arrived - capacity), arrived) % 40
        assert len(bank) == last.size
        assert bank.arrived == arrived
        assert (bank.latents == X[last]).all()
        assert (bank.prompts == T[last]).all()


def test_the_window_of_the_paper_is_the_default():
    bank = Bank()
    assert (bank.capacity, bank.dtype) == (300, "float32")
    assert (len(bank), bank.arrived, bank.shape) == (0, 0, None)
    assert repr(_filled()) == "Bank(10 of 10, shape=(6,), dtype='float32')"


def test_the_window_lives_where_its_samples_do(library):
    bank = _filled(make=library)
    assert type(bank.latents) is type(library(X))
    assert (np.asarray(bank.latents) == X[15:25]).all()
    assert (np.asarray(bank.prompts) == T[15:25]).all()


@pytest.mark.parametrize("dtype", ["float16", np.float16, torch.float16])
def test_half_precision_storage(dtype):
    for make in (LIBRARIES["numpy"], LIBRARIES["torch"]):
        bank = _filled(dtype=dtype, make=make)
        assert bank.dtype == "float16"
        assert str(bank.latents.dtype).endswith("float16")
        assert (np.asarray(bank.latents) == X[15:25].astype(np.float16)).all()
        result = score_gradient(make(NEW), make(T_NEW), bank=bank)
        assert np.isfinite(np.asarray(result.gradient)).all()


def test_rounded_prompts_stay_equal():
    bank = Bank(dtype="float16")
    bank.append(X[:6], T[:6])
    by_rows = score_gradient(
        NEW, T[:3], bank=bank, kernel_x=dp.Gaussian(2.0), kernel_t=dp.Categorical()
    )
    ids = Bank(dtype="float16")
    ids.append(X[:6], range(6))
    by_ids = score_gradient(NEW, range(3), bank=ids, kernel_x=dp.Gaussian(2.0))
    assert by_rows.value == by_ids.value


def test_samples_come_back_in_their_shape():
    bank = Bank(3)
    bank.append(X.reshape(40, 2, 3)[:5], prompts=T.reshape(40, 3, 1)[:5])
    assert bank.shape == (2, 3)
    assert (bank.latents == X.reshape(40, 2, 3)[2:5]).all()
    assert bank.prompts.shape == (3, 3)
    result = score_gradient(X.reshape(40, 2, 3)[:2], bank=bank, score="rke")
    assert result.gradient.shape == (2, 2, 3)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kernel", [dp.Gaussian(2.0), dp.Cosine(), None])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_kept_distances_equal_recomputed_ones(score, kernel, dtype):
    """After every append, also once the window slides, and for alternating kernels."""
    bank = Bank(9, dtype=dtype)
    for start in range(0, 28, 4):
        bank.append(X[start : start + 4], T[start : start + 4])
        for each in (kernel, dp.Gaussian(1.0 + start), kernel):
            arguments = {"score": score, "kernel_x": each}
            new, t = NEW.astype(dtype).astype(float), T_NEW.astype(float).astype(dtype)
            result = score_gradient(new, t, bank=bank, **arguments)
            plain = bank.latents.astype(float), bank.prompts.astype(float)
            expected = score_gradient(new, t.astype(float), bank=plain, **arguments)
            assert result.value == pytest.approx(expected.value, rel=1e-11)
            np.testing.assert_allclose(result.gradient, expected.gradient, atol=1e-11)


def test_distances_inside_the_bank_are_computed_once(monkeypatch):
    pairs = []

    def counting(a, b, dtype):
        pairs.append((len(a), len(b)))
        return squared_distances(a, b, dtype)

    monkeypatch.setattr(_pool, "squared_distances", counting)
    bank = _filled()
    for _ in range(3):
        pairs.clear()
        score_gradient(NEW, bank=bank, score="rke")
    assert pairs == [(3, 10), (3, 3)]  # the new samples with the bank and with each other
    bank.append(X[:2], T[:2])
    pairs.clear()
    score_gradient(NEW, bank=bank, score="rke")
    assert pairs == [(3, 10), (3, 3), (2, 10)]


def test_an_empty_bank_counts_as_no_bank():
    empty = score_gradient(NEW, bank=Bank(), score="rke")
    assert empty.value == score_gradient(NEW, score="rke").value
    bank = _filled()
    bank.clear()
    assert (len(bank), bank.arrived, bank.has_prompts) == (0, 0, False)
    bank.append(np.ones((2, 3)))
    assert bank.latents.shape == (2, 3)


@pytest.mark.parametrize("prompts", ["rows", "ids", "texts", "none"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_loading_restores_a_saved_bank(tmp_path, prompts, dtype, library):
    if library is LIBRARIES["array-api-strict"]:
        dtype = "float32"  # the standard has no half precision
    texts = {
        "rows": T,
        "ids": np.arange(40),
        "texts": [f"prompt {i}" for i in range(40)],
        "none": None,
    }[prompts]

    def append(bank, rows):
        chosen = None
        if texts is not None:
            chosen = texts[rows]
        bank.append(library(X.reshape(40, 2, 3)[rows]), chosen)

    bank = Bank(7, dtype=dtype)
    append(bank, slice(0, 5))
    append(bank, slice(5, 12))
    bank.save(tmp_path / "bank.npz")
    loaded = Bank.load(tmp_path / "bank.npz", like=library(X))
    assert type(loaded.latents) is type(library(X))
    append(bank, slice(20, 22))
    append(loaded, slice(20, 22))
    assert (loaded.capacity, loaded.dtype) == (7, dtype)
    assert (loaded.shape, loaded.arrived) == ((2, 3), 14)
    assert (np.asarray(loaded.latents) == np.asarray(bank.latents)).all()
    if texts is None:
        assert loaded.prompts is None
    else:
        assert (np.asarray(loaded.prompts) == np.asarray(bank.prompts)).all()
    assert isinstance(Bank.load(tmp_path / "bank.npz").latents, np.ndarray)


def test_an_empty_bank_can_be_saved(tmp_path):
    Bank(5).save(tmp_path / "bank.npz")
    loaded = Bank.load(tmp_path / "bank.npz")
    assert (len(loaded), loaded.capacity) == (0, 5)


def test_workers_that_fill_at_the_same_pace_share_the_window_equally():
    workers = [Bank(6) for _ in range(3)]
    for step in range(5):
        for rank, worker in enumerate(workers):
            row = [3 * step + rank]
            worker.append(X[row], T[row])
    whole = Bank(6)
    for worker in workers:
        whole.merge(worker)
    assert (whole.latents == X[9:15]).all()
    assert whole.arrived == 5
    nested = Bank(6)
    for worker in workers[1:]:
        nested.merge(worker)
    other = Bank(6)
    other.merge(workers[0])
    other.merge(nested)
    assert set(map(bytes, other.latents)) == set(map(bytes, whole.latents))
    whole.append(X[30:31], T[30:31])
    assert (whole.latents == np.concatenate([X[10:15], X[30:31]])).all()


def test_a_merged_bank_scores_as_one_that_saw_everything(library):
    first, second = Bank(30), Bank(30)
    first.append(library(X[:9]), library(T[:9]))
    second.append(X[9:20], T[9:20])  # NumPy samples are copied to the library of the first bank
    score_gradient(library(NEW), library(T_NEW), bank=first)
    first.merge(second)
    result = score_gradient(library(NEW), library(T_NEW), bank=first)
    expected = score_gradient(NEW, T_NEW, bank=(X[:20], T[:20]))
    assert result.value == pytest.approx(expected.value, rel=1e-6)  # single precision
    assert len(second) == 11
    first.merge(Bank(3))
    assert len(first) == 20


def test_a_bank_does_not_change_the_arrays_of_the_caller():
    x = X.copy()
    bank = Bank(4)
    bank.append(x[:4])
    bank.append(-x[4:6])
    assert (x == X).all()
    latents = bank.latents
    latents *= 0
    assert (bank.latents[:2] == X[2:4]).all()
    other = Bank(4)
    other.merge(bank)
    other.append(x[:3])
    assert (bank.latents[:2] == X[2:4]).all()


@pytest.mark.parametrize("score", SCORES)
def test_values_with_a_bank_are_the_scores(score):
    bank = _filled(capacity=12)
    result = score_gradient(
        NEW, T_NEW, bank=bank, score=score, kernel_x=dp.Gaussian(2.0), log=False
    )
    x = np.concatenate([bank.latents, NEW])
    if score == "rke":
        expected = dp.rke(x, kernel=dp.Gaussian(2.0))
    else:
        objective = objectives.objective(score)
        t = np.concatenate([bank.prompts, T_NEW])
        expected = dp.conditional_vendi(
            x,
            t,
            kernel_x=dp.Gaussian(2.0),
            bandwidth_rule=dp.MedianDistance(),
            order=objective.order,
            truncation=objective.truncation,
        )
    assert result.value == pytest.approx(float(expected), rel=1e-6)  # single precision


def _filled_with_ids():
    bank = Bank()
    bank.append(X[:2], ["a", "b"])
    return bank


def _filled_without_prompts():
    bank = Bank()
    bank.append(X[:2])
    return bank


REFUSED = [
    (lambda: Bank().latents, "the bank is empty: call append first"),
    (
        lambda: _filled().append(X[:2, :4], T[:2]),
        r"samples of shape \(4,\) do not fit a bank of samples of shape \(6,\)",
    ),
    (
        lambda: _filled().append(X[:2]),
        "the bank has prompts, so new samples must come with prompts too",
    ),
    (
        lambda: _filled_without_prompts().append(X[:2], T[:2]),
        "the bank has no prompts, so new samples must come without prompts",
    ),
    (
        lambda: _filled().append(X[:2], T[:3]),
        "must pair up row by row; got 2 outputs and 3 prompts",
    ),
    (
        lambda: _filled().append(X[:2], [1, 2]),
        "new prompts are numbers and those in the bank embeddings of width 3",
    ),
    (
        lambda: _filled_with_ids().append(X[:2], T[:2]),
        "new prompts are embeddings of width 3 and those in the bank texts",
    ),
    (
        lambda: _filled().append(X[:2] * np.nan, T[:2]),
        "2 of 2 rows of `latents` contain NaN or infinity",
    ),
    (
        lambda: _filled(dtype="float16").append(X[:2] * 1e6, T[:2]),
        "some `latents` are too large for float16. Create the bank with",
    ),
    (
        lambda: _filled(dtype="float16").append(X[:2], T[:2] * 1e6),
        "some `prompts` are too large for float16",
    ),
    (
        lambda: _filled().append(torch.tensor(X[:2]), T[:2]),
        "samples and bank must be in one array library and on one device",
    ),
    (
        lambda: _filled(dtype="float16", make=LIBRARIES["array-api-strict"]),
        "array_api_strict has no float16. Create the bank with",
    ),
    (lambda: _filled().append(X[:2], [0.5, 1.0]), "`prompts` must hold group ids"),
    (lambda: Bank.load("nowhere.npz"), "cannot read nowhere.npz: no such file"),
    (lambda: Bank().save("/nowhere/bank.npz"), "cannot write /nowhere/bank.npz"),
]
WRONG = [
    (lambda: Bank(0), "`capacity` must be a whole number of at least 1; got 0"),
    (lambda: Bank(2.5), "`capacity` must be a whole number"),
    (lambda: Bank(dtype="int8"), "`dtype` must be one of float16, float32, float64; got 'int8'"),
    (lambda: Bank().merge(X), "`other` must be a Bank; got ndarray"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_samples_that_do_not_fit_are_refused(call, message):
    with pytest.raises(dp.DataError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_invalid_settings_are_refused(call, message):
    with pytest.raises(dp.ArgumentError, match=message):
        call()


def test_a_refused_append_changes_nothing():
    bank = _filled()
    with pytest.raises(dp.DataError):
        bank.append(X[:2], T[:3])
    assert (bank.latents == X[15:25]).all()
    assert bank.arrived == 25


def _archive(path, changes, save=np.savez):
    """Save a bank with some of its arrays, or of the entries of its header, replaced."""
    _filled().save(path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    for key, value in changes.items():
        if key in header:
            header[key] = value
        else:
            arrays[key] = value
    arrays["header"] = np.array(json.dumps(header))
    save(path, **arrays)


def _changed(a, value):
    a = a.copy()
    a.flat[0] = value
    return a


LATENTS = X[15:25].copy()
BROKEN = [
    ({"format": 9}, "has format 9, but this version of divprism reads 1"),
    ({"capacity": -3}, "is not a bank: `capacity` must be a whole number"),
    ({"capacity": 9}, "is not a bank: its header does not fit its arrays"),
    ({"capacity": 1e300}, "is not a bank: `capacity`"),
    ({"dtype": "object"}, "is not a bank: `dtype` must be one of"),
    ({"dtype": "float16"}, "not finite rows of float16"),
    ({"shape": [7]}, "its header does not fit its arrays"),
    ({"shape": [-2, -3]}, "its header does not fit its arrays"),
    ({"shape": None}, "is not a bank"),
    ({"shape": [2**40, 2**40]}, "its header does not fit its arrays"),
    ({"arrived": "many"}, "its header does not fit"),
    ({"arrived": 3}, "its arrival numbers do not fit its samples"),
    ({"latents": LATENTS.astype(float)}, "not finite rows of float32"),
    ({"latents": LATENTS.astype("c8")}, "not finite rows of float32"),
    ({"latents": _changed(LATENTS, math.nan)}, "not finite rows of float32"),
    ({"latents": LATENTS[None]}, "its header does not fit its arrays"),
    ({"latents": LATENTS[:5]}, "its prompts do not fit its samples"),
    ({"prompts": T[:10].astype(int)}, "not finite rows of float32"),
    ({"kind": "texts"}, "its prompts are not of the kind in its header"),
    ({"kind": None}, "its prompts are not of the kind in its header"),
    ({"prompts": np.arange(10.0)}, "its prompts do not fit its samples"),
    ({"prompts": _changed(T[:10], math.inf)}, "not finite rows of float32"),
    ({"arrivals": np.arange(10)[::-1]}, "its arrival numbers do not fit its samples"),
    ({"arrivals": np.arange(10) - 1}, "its arrival numbers do not fit its samples"),
    ({"arrivals": np.arange(10.0)}, "its arrival numbers do not fit its samples"),
    ({"arrivals": np.arange(9)}, "its arrival numbers do not fit its samples"),
]


@pytest.mark.parametrize(("changes", "message"), BROKEN, ids=map(str, range(len(BROKEN))))
def test_inconsistent_files_are_refused_in_one_sentence(tmp_path, changes, message):
    path = tmp_path / "bank.npz"
    _archive(path, changes)
    with pytest.raises(dp.DataError, match=message) as caught:
        Bank.load(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_banks_are_refused(tmp_path):
    path = tmp_path / "bank.npz"
    _archive(path, {}, save=np.savez_compressed)
    with pytest.raises(dp.DataError, match="is not a bank: its arrays are compressed"):
        Bank.load(path)
    path.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(dp.DataError, match="is not a bank"):
        Bank.load(path)
    np.save(tmp_path / "plain.npy", X)
    with pytest.raises(dp.DataError, match="is not a bank"):
        Bank.load(tmp_path / "plain.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", pickle.dumps({"format": 1}))
    with pytest.raises(dp.DataError, match="is not a bank"):
        Bank.load(path)


def test_damaged_files_are_refused_or_read_as_finite_samples(tmp_path):
    path, broken = tmp_path / "bank.npz", tmp_path / "broken.npz"
    _filled().save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        data = bytearray(whole)
        for position in rng.integers(0, len(data), 3):
            data[position] = rng.integers(0, 256)
        if rng.random() >= 0.7:
            data = data[: rng.integers(0, len(data))]
        broken.write_bytes(data)
        try:
            bank = Bank.load(broken)
        except dp.DataError as error:
            assert "\n" not in str(error)
        else:
            assert np.isfinite(bank.latents).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_copy_of_a_rounded_sample_adds_nothing(dtype):
    """Without the same rounding a copy would count as new, at a bandwidth of the rounding error."""
    bank = Bank(dtype=dtype)
    x = np.random.default_rng(0).standard_normal((1, 50))
    bank.append(x, ["a dog"])
    assert marginal_gain(x, ["a dog"], bank=bank)[0] == pytest.approx(0, abs=1e-12)
    assert (score_gradient(x, bank=bank, score="rke").gradient == 0).all()


def test_samples_of_another_shape_and_the_same_width_are_refused():
    bank = Bank()
    bank.append(np.ones((2, 4, 6)))
    with pytest.raises(
        dp.DataError,
        match=r"samples of shape \(6, 4\) do not fit a bank of samples of shape \(4, 6\)",
    ):
        score_gradient(np.ones((1, 6, 4)), bank=bank, score="rke")
    assert score_gradient(np.ones((1, 24)), bank=bank, score="rke").gradient.shape == (1, 24)


def test_a_list_of_two_samples_is_not_a_pair_of_samples_and_prompts():
    x = np.random.default_rng(0).standard_normal((3, 4))
    rows = [[0.0, 0, 0, 0], [1.0, 1, 1, 1]]
    result = score_gradient(x, bank=rows, score="rke", kernel_x=dp.Gaussian(1.0))
    expected = score_gradient(x, bank=np.array(rows), score="rke", kernel_x=dp.Gaussian(1.0))
    assert result.value == expected.value


def test_a_bank_filled_in_inference_mode_works_outside_it():
    bank, x = Bank(), torch.eye(3)
    with torch.inference_mode():
        bank.append(x[:2])
        score_gradient(x[:1], bank=bank, score="rke")
    bank.append(x[2:])
    assert len(bank) == 3
    score_gradient(x[:1], bank=bank, score="rke")


def test_compressed_files_are_refused_before_they_are_decompressed(tmp_path):
    np.savez_compressed(tmp_path / "b.npz", header=np.array("{}".ljust(1 << 20)))
    with pytest.raises(dp.DataError, match="its arrays are compressed"):
        Bank.load(tmp_path / "b.npz")


def test_the_window_keeps_its_size():
    bank = Bank(6)
    for name in ("capacity", "dtype"):
        with pytest.raises(AttributeError):
            setattr(bank, name, 3)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_banks_created_in_inference_mode_stay_writable(tmp_path, dtype):
    """Merged and loaded banks too."""
    path = tmp_path / "bank.npz"
    with torch.inference_mode():
        first, merged = Bank(3, dtype=dtype), Bank(3, dtype=dtype)
        first.append(torch.randn(3, 4))
        merged.merge(first)
        first.save(path)
        loaded = Bank.load(path, like=torch.zeros(0))
    for bank in (first, merged, loaded):
        bank.append(torch.zeros(2, 4))
        assert bool((bank.latents[1:] == 0).all())


def test_files_keep_texts_and_numbers_apart(tmp_path):
    bank = Bank(4)
    bank.append(X[:2], ["a", "b"])
    bank.save(tmp_path / "bank.npz")
    with pytest.raises(
        dp.DataError,
        match="new prompts are numbers and those in the bank texts; pass prompts of the kind",
    ):
        Bank.load(tmp_path / "bank.npz").append(X[:1], [0])


def test_a_dtype_that_a_library_lacks_is_reported_as_such(tmp_path):
    bank = Bank(4, dtype="float16")
    bank.append(X[:2])
    bank.save(tmp_path / "bank.npz")
    strict = array_api_strict.zeros(1)
    with pytest.raises(
        dp.DataError, match=r"array_api_strict has no float16. Create the bank with dtype='float32'"
    ):
        Bank.load(tmp_path / "bank.npz", like=strict)
    with pytest.raises(
        dp.ArgumentError,
        match="`like` must be an array of the library in which the bank is to live; got list",
    ):
        Bank.load(tmp_path / "bank.npz", like=[1.0])
    whole = Bank(4)
    whole.append(array_api_strict.asarray(X[:2].astype(np.float32)))
    whole.merge(bank)
    assert len(whole) == 4


def test_float16_and_bfloat16_agree_on_copies():
    """float16 has finer steps but a smaller range: a float16 bank rounds small bfloat16 numbers."""
    x = (1e-5 * torch.randn(1, 64, generator=torch.Generator().manual_seed(0))).bfloat16()
    bank = Bank(dtype="float16")
    bank.append(x)
    assert not torch.equal(bank.latents.bfloat16(), x)
    assert score_gradient(x, bank=bank, score="rke").value == 0
