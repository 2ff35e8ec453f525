"""Files of numbers, valid and broken."""

import io
import zipfile

import numpy as np
import pytest

import divprism as dp
from divprism.data.readers import read_array

X = np.random.default_rng(0).standard_normal((6, 3))


def _npy(array, **arguments):
    buffer = io.BytesIO()
    np.save(buffer, array, **arguments)
    return buffer.getvalue()


def _npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


CSV = "\n".join(",".join(map(repr, map(float, row))) for row in X).encode()
GOOD = {
    "x.npy": _npy(X),
    "fortran.npy": _npy(np.asfortranarray(X)),
    "one.npz": _npz(anything=X),
    "named.npz": _npz(prompts=X[:, :1], outputs=X),
    "short.npz": _npz(t=X[:, :1], x=X),
    "plain.csv": CSV,
    "header.csv": b"a,b,c\n" + CSV,
    "windows.csv": b"\xef\xbb\xbf" + CSV.replace(b"\n", b"\r\n") + b"\r\n\r\n",
    "CAPITALS.CSV": CSV,
}


@pytest.mark.parametrize("name", GOOD)
def test_files_are_read(name, tmp_path):
    (tmp_path / name).write_bytes(GOOD[name])
    np.testing.assert_array_equal(read_array(tmp_path / name, "outputs"), X)


@pytest.mark.parametrize("name", ["x.npy", "named.npz", "plain.csv"])
def test_standard_input_is_recognised_by_its_first_bytes(name, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD[name])))
    np.testing.assert_array_equal(read_array("-", "outputs"), X)


def test_only_a_large_npy_file_is_memory_mapped(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    assert not isinstance(read_array(tmp_path / "x.npy", "outputs"), np.memmap)
    monkeypatch.setattr("divprism.data.readers.npy.MAX_READ", X.nbytes - 1)
    mapped = read_array(tmp_path / "x.npy", "outputs")
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, X)


def test_a_column_of_weights_is_a_flat_array(tmp_path):
    (tmp_path / "w.csv").write_text("0.25\n0.75\n")
    assert read_array(tmp_path / "w.csv", "weights").tolist() == [0.25, 0.75]


def test_labels_in_a_file_are_strings(tmp_path):
    (tmp_path / "l.csv").write_text("1\n2\n\ndog\n")
    assert read_array(tmp_path / "l.csv", "labels").tolist() == ["1", "2", "dog"]
    (tmp_path / "l.csv").write_text("1,2\n")
    with pytest.raises(
        dp.DataError, match=r"line 1 of .*l.csv has several cells; labels are one per line"
    ):
        read_array(tmp_path / "l.csv", "labels")


class _Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


HUGE = _npy(X).replace(b"(6, 3)", b"(9**9, 3)").replace(b"(9**9, 3)", b"(600000000, 3)")
BAD = {
    "pickled.npy": (
        _npy(np.array([_Bomb()], object), allow_pickle=True),
        "contains pickled objects, which could run code",
    ),
    "pickled.npz": (
        _npz(outputs=np.array([_Bomb()], object)),
        "outputs in .*pickled.npz contains pickled objects",
    ),
    "cut.npy": (_npy(X)[:-20], "is truncated: it ends before its array does"),
    "header.npy": (_npy(X)[:40], "is (truncated|not a readable NumPy array)"),
    "huge.npy": (HUGE, "is (truncated|not a readable NumPy array)"),
    "garbled.npy": (_npy(X).replace(b"descr", b"dexcr"), "is not a readable NumPy array"),
    "empty.npy": (b"", "empty.npy is empty"),
    "empty.csv": (b"", "empty.csv is empty"),
    "blank.csv": (b"\n\n", "contains no rows of numbers"),
    "csv.npy": (CSV, "is neither a NumPy array nor an archive, although its name ends in .npy"),
    "npy.csv": (_npy(X), "is a NumPy array, although its name ends in .csv"),
    "npz.npy": (_npz(x=X), "is a zip archive, although its name ends in .npy"),
    "cut.npz": (_npz(x=X)[:-30], "is not a readable .npz archive"),
    "none.npz": (_npz(), "neither a NumPy array nor an archive|contains no array"),
    "several.npz": (_npz(a=X, b=X), r"contains 2 arrays \(a, b\), none of them named outputs or x"),
    "words.csv": (b"1,2\n3,many\n", "line 2 of .*words.csv is not a row of numbers: '3,many'"),
    "ragged.csv": (b"1,2\n\n3\n", "line 3 of .*ragged.csv has 1 number, but the first row has 2"),
    "hole.csv": (b"1,,3\n4,5,6\n", "line 1 of .*hole.csv is not a row of numbers: '1,,3'"),
    "columns.csv": (
        b"0,1,2\n4,5,6\n",
        "the first line of .*columns.csv counts 0, 1, ...: remove it if it is a header",
    ),
    "brace.npy": (_npy(X).replace(b"}", b" "), "is not a readable NumPy array"),
    "latin.csv": (b"1,2\n\xff,3\n", "line 2 of .* is not text in UTF-8: byte 0 is invalid"),
}


@pytest.mark.parametrize("name", BAD)
def test_broken_files_get_one_sentence(name, tmp_path):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(dp.DataError, match=message) as caught:
        read_array(tmp_path / name, "outputs")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_an_archive_with_a_corrupt_member_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", _npy(np.zeros((100, 100))))
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(dp.DataError, match="is not a readable"):
        read_array(path, "outputs")


def test_missing_files_and_unknown_suffixes_are_refused(tmp_path):
    with pytest.raises(dp.DataError, match=r"cannot read .*nowhere.npy: No such file or directory"):
        read_array(tmp_path / "nowhere.npy", "outputs")
    with pytest.raises(dp.DataError, match=r"cannot read .*folder.npy: it is a folder"):
        (tmp_path / "folder.npy").mkdir()
        read_array(tmp_path / "folder.npy", "outputs")
    with pytest.raises(
        dp.ArgumentError,
        match=r"the suffix of x.pt is not supported; outputs are read from "
        r".npy, .npz, .safetensors, .csv, or from - for standard input",
    ):
        read_array(tmp_path / "x.pt", "outputs")


def test_empty_standard_input_is_refused(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(dp.DataError, match="standard input is empty"):
        read_array("-", "outputs")


def test_an_archive_on_standard_input_has_both_sides_as_a_file_has(tmp_path, monkeypatch):
    content = GOOD["named.npz"]
    (tmp_path / "named.npz").write_bytes(content)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    piped, read = dp.load("-"), dp.load(tmp_path / "named.npz")
    np.testing.assert_array_equal(piped.outputs, read.outputs)
    np.testing.assert_array_equal(piped.prompts, read.prompts)


def test_prompts_from_elsewhere_replace_those_of_an_archive_on_standard_input(
    tmp_path, monkeypatch
):
    np.save(tmp_path / "prompts.npy", X[:, 1:])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD["named.npz"])))
    piped = dp.load("-", prompts=tmp_path / "prompts.npy")
    np.testing.assert_array_equal(piped.prompts, X[:, 1:])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("p" * 5000, r"cannot read p+: .*name too long"),
        ("p" * 300 + "/q", r"there is no file or folder p+/q, and nothing is downloaded"),
    ],
    ids=["long", "long folder"],
)
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(name, message, tmp_path):
    np.save(tmp_path / "x.npy", X)
    for given in ({"source": name}, {"source": tmp_path / "x.npy", "prompts": name}):
        with pytest.raises(dp.DataError, match=f"(?i){message}"):
            dp.load(**given)
