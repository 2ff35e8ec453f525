"""Untrusted files: each is refused in one sentence that names it, with exit code 4."""

import gzip
import io
import json
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
from sample_files import image_bytes, jsonl, records, write, write_video

import divprism as dp
from divprism import cli
from divprism.data.items import Image

GOOD = jsonl(records())
LINE = GOOD.splitlines(keepends=True)


def command(capsys, *arguments):
    """Return the exit code, stdout and stderr of a command, run in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["divprism", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
    return left.value.code, *capsys.readouterr()


def refused(capsys, *arguments):
    """Return the one sentence of a refusal."""
    code, out, err = command(capsys, *arguments, "-q")
    lines = err.splitlines()
    assert (code, out, len(lines)) == (4, "", 1), err
    assert lines[0].startswith("divprism: ")
    return lines[0]


class _Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def _pickled():
    buffer = io.BytesIO()
    np.save(buffer, np.array([_Bomb()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _npy(header, body=b""):
    text = repr(header).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def _zip(name, content, **lies):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def _bomb_npz():
    """Return an archive of a few hundred kilobytes with 300 MB of zeros."""
    header = {"descr": "<f8", "fortran_order": False, "shape": (300 << 17, 1)}
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w") as member,
    ):
        member.write(_npy(header))
        for _ in range(300):
            member.write(bytes(1 << 20))
    return buffer.getvalue()


def _bomb_gz(line):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(line * ((100 << 20) // len(line))) + packer.flush()


def _tensors(header, body=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


HUGE = {"descr": "<f8", "fortran_order": False, "shape": (2**31, 1000)}
TENSOR = {"x": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
DEEP = b'{"prompt": "p", "output": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
TABLES = {
    "0 bytes": ("a.jsonl", b"", "a.jsonl contains no records"),
    "not JSON": ("a.jsonl", LINE[0] + b"nonsense\n", "line 2 of a.jsonl is not JSON"),
    "not an object": (
        "a.jsonl",
        LINE[0] + b"[1]\n",
        "line 2 of a.jsonl is a list, not a JSON object",
    ),
    "cut line": ("a.jsonl", GOOD[:-5], "line 4 of a.jsonl is not JSON"),
    "duplicate keys": (
        "a.jsonl",
        b'{"prompt": "p", "output": "a", "output": "b"}\n',
        "line 1 of a.jsonl has the key 'output' twice",
    ),
    "deep JSON": ("a.jsonl", LINE[0] + DEEP, "line 2 of a.jsonl is nested too deeply"),
    "deep JSON file": ("a.json", b"[" * 100_000, "a.json is nested too deeply"),
    "a line of 100 MB": (
        "a.jsonl",
        LINE[0] + b'{"prompt": "' + b"x" * (100 << 20),
        "line 2 of a.jsonl is longer than 32 MB",
    ),
    "invalid UTF-8": (
        "a.jsonl",
        LINE[0] + b'{"prompt": "\xff"}\n',
        "line 2 of a.jsonl is not text in UTF-8: byte 12",
    ),
    "UTF-16": ("a.jsonl", GOOD.decode().encode("utf-16"), "line 1 of a.jsonl is not text in UTF-8"),
    "a field is missing": (
        "a.jsonl",
        LINE[0] + b'{"prompt": "p"}\n',
        "line 2 of a.jsonl has no field 'model'",
    ),
    "bytes for a text": (
        "a.jsonl",
        LINE[0] + b'{"model": 1, "prompt": "p", "output": {"a": 1}}\n',
        "line 2 of a.jsonl has a dict",
    ),
    "gz in name only": (
        "a.jsonl.gz",
        GOOD,
        "a.jsonl.gz is not a gzip file, although its name ends in .gz",
    ),
    "gz cut": (
        "a.jsonl.gz",
        gzip.compress(GOOD)[:-9],
        "a.jsonl.gz is corrupt or truncated after line",
    ),
    "gz flipped": (
        "a.jsonl.gz",
        gzip.compress(GOOD)[:-6] + b"abcdef",
        "a.jsonl.gz is corrupt or truncated after line",
    ),
    "gz bomb of lines": (
        "a.jsonl.gz",
        _bomb_gz(LINE[0]),
        "a.jsonl.gz decompresses to over 200 times its size",
    ),
    "gz bomb of one line": (
        "a.jsonl.gz",
        _bomb_gz(b" "),
        "line 1 of a.jsonl.gz is longer than 32 MB",
    ),
    "CSV with a short row": (
        "a.csv",
        b"prompt,output\np,a\nq\n",
        "line 3 of a.csv has 1 cell, but the header has 2",
    ),
    "CSV with an open quote": ("a.csv", b'prompt,output\np,"a\n', "a.csv is not a row of cells"),
    "CSV with a column twice": (
        "a.csv",
        b"prompt,output,output\np,a,b\n",
        "the header of a.csv has the column output twice",
    ),
    "CSV that is an array": ("a.csv", b"\x93NUMPY\x01\x00", "line 1 of a.csv is not text in UTF-8"),
    "JSON of the wrong shape": (
        "a.json",
        b'"text"',
        "a.json is a string; expected a list of records",
    ),
    "map to a number": ("a.json", b'{"a.png": 3, "b": 4}', "a.json maps 'a.png' to a number"),
    "Parquet in name only": ("a.parquet", GOOD, "a.parquet is not a readable table"),
    "Parquet of 0 bytes": ("a.parquet", b"", "a.parquet is empty"),
    "Arrow in name only": ("a.arrow", GOOD, "a.arrow is not a readable table"),
    "pickled array": ("a.npy", _pickled(), "a.npy contains pickled objects, which could run code"),
    "2^31 rows in a header": (
        "a.npy",
        _npy(HUGE),
        "a.npy is truncated: it ends before its array does",
    ),
    "2^31 rows in an archive": ("a.npz", _zip("x.npy", _npy(HUGE)), "x in a.npz"),
    "npz bomb": ("a.npz", _bomb_npz(), "x in a.npz decompresses to over 200 times its size"),
    "npz of something else": ("a.npz", _zip("run.py", b"print()"), "a.npz contains no array"),
    "npz cut": ("a.npz", _zip("x.npy", _npy(HUGE))[:-10], "a.npz is not a readable .npz archive"),
    "safetensors with a lying header": (
        "a.safetensors",
        _tensors(
            {"x": {"dtype": "F32", "shape": [2**31, 2], "data_offsets": [0, 2**34]}}, bytes(16)
        ),
        "a.safetensors is not a readable .safetensors file",
    ),
    "safetensors with a huge header": (
        "a.safetensors",
        struct.pack("<Q", 2**63) + b"{}",
        "a.safetensors is not a readable .safetensors file",
    ),
    "safetensors with offsets that overlap": (
        "a.safetensors",
        _tensors(
            {**TENSOR, "y": {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 24]}}, bytes(24)
        ),
        "a.safetensors is not a readable .safetensors file",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_broken_tables_and_arrays_are_refused(case, capsys, tmp_path, monkeypatch):
    name, content, message = TABLES[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert message in refused(capsys, "score", name)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_byte_order_mark_and_windows_lines_are_read(kind, tmp_path):
    text = GOOD if kind == "jsonl" else b"prompt,output\np,a\nq,b\n"
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert dp.load(path).outputs[0].text in ("It is red.", "a")


def test_half_a_surrogate_pair_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "p", "output": "cut \\ud83d"}\n')
    (output,) = dp.load(tmp_path / "a.jsonl").outputs
    assert output.text == "cut \ufffd"


def _image_of_mode(mode):
    import PIL.Image

    buffer = io.BytesIO()
    form = {"I;16": "TIFF", "CMYK": "JPEG"}.get(mode, "PNG")
    PIL.Image.new(mode, (20, 20)).save(buffer, form)
    return buffer.getvalue()


def _huge_png(side):
    """Return a PNG file whose header declares more pixels than it has."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


IMAGES = {
    "0 bytes": (b"", "is empty (0 bytes)"),
    "a text": (b"hello, I am an image", "is not an image in a supported format"),
    "truncated": (
        image_bytes(form="PNG", size=(400, 300))[:300],
        "is a corrupt or truncated image",
    ),
    "truncated JPEG": (
        image_bytes(form="JPEG", size=(400, 300))[:1200],
        "is a corrupt or truncated image",
    ),
    "a bomb": (_huge_png(12_000), "is 12,000 x 12,000 pixels; at most 100,000,000 pixels are read"),
    "a bigger bomb": (_huge_png(30_000), "declares too many pixels; at most 100,000,000 are read"),
    "a script": (b"<svg onload='alert(1)'/>", "is not an image in a supported format"),
}


@pytest.mark.parametrize("case", IMAGES)
def test_broken_images_are_refused(case, capsys, tmp_path, monkeypatch):
    """The message names the bad file and its record; the good ones stay in the cache."""
    content, message = IMAGES[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path / "cache"))
    files = {f"{i}.png": image_bytes(i) for i in range(3)} | {"bad.png": content}
    rows = [{"file_name": name, "prompt": "p"} for name in files]
    write(tmp_path, files | {"metadata.jsonl": jsonl(rows)})
    sentence = refused(capsys, "score", "metadata.jsonl")
    assert "bad.png (line 4 of metadata.jsonl)" in sentence
    assert message in sentence
    assert sum(entry.items for entry in dp.Cache(tmp_path / "cache").entries()) == 3


def test_all_broken_files_are_counted(capsys, tmp_path):
    write(tmp_path, {f"p-{i}.png": image_bytes(i) for i in range(6)})
    write(tmp_path, {f"p-{i}.png": b"no" for i in (0, 2, 4)})
    sentence = refused(capsys, "score", tmp_path)
    assert "3 of 6 items cannot be read; the first: " in sentence
    assert "p-0.png is not an image" in sentence


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_images_of_every_mode_are_read(mode):
    assert Image(_image_of_mode(mode)).content().mode == "RGB"


def test_an_image_with_the_suffix_of_another_format_is_read(tmp_path):
    write(tmp_path, {f"p-{i}.png": image_bytes(i, form="JPEG") for i in range(2)})
    assert dp.evaluate(str(tmp_path)).vendi.n == 2


VIDEOS = {
    "0 bytes": lambda content: b"",
    "a text": lambda content: b"not a video " * 50,
    "truncated": lambda content: content[: len(content) // 2],
    "zeros": lambda content: content[:40] + bytes(len(content) - 40),
}


@pytest.mark.parametrize("case", VIDEOS)
def test_broken_videos_are_refused(case, capsys, tmp_path):
    for i in range(2):
        write_video(tmp_path / f"p-{i}.mp4", i)
    bad = tmp_path / "p-1.mp4"
    bad.write_bytes(VIDEOS[case](bad.read_bytes()))
    sentence = refused(capsys, "score", tmp_path)
    assert "p-1.mp4" in sentence


def test_an_unknown_codec_is_refused(capsys, tmp_path):
    for i in range(2):
        write_video(tmp_path / f"p-{i}.avi", i)
    bad = tmp_path / "p-1.avi"
    bad.write_bytes(bad.read_bytes().replace(b"FMP4", b"ZZZZ"))
    assert "p-1.avi uses a codec that PyAV does not support" in refused(capsys, "score", tmp_path)


def test_a_script_named_as_a_video_is_not_followed(capsys, tmp_path):
    """FFmpeg would play the file that the script names, inside the folder or not."""
    for i in range(2):
        write_video(tmp_path / f"p-{i}.mp4", i)
    (tmp_path / "p-1.mp4").write_bytes(b"ffconcat version 1.0\nfile p-0.mp4\n")
    assert "p-1.mp4 is not a readable video" in refused(capsys, "score", tmp_path)


def test_a_program_named_as_an_image_is_not_run(capsys, tmp_path, monkeypatch):
    """Pillow would pass an EPS file to Ghostscript."""
    ran = tmp_path / "ran"
    write(tmp_path / "bin", {"gs": f"#!/bin/sh\ntouch {ran}\nexit 1\n"})
    (tmp_path / "bin" / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    write(tmp_path / "images", {"p-0.png": image_bytes(0), "p-1.png": eps})
    assert "p-1.png is not an image in a supported format" in refused(
        capsys, "score", tmp_path / "images"
    )
    assert not ran.exists()


@pytest.mark.parametrize("mode", ["F", "I"])
def test_pixels_without_a_known_range_are_refused(mode):
    import PIL.Image

    content = io.BytesIO()
    PIL.Image.new(mode, (20, 20), 200).save(content, "TIFF")
    with pytest.raises(
        dp.DataError,
        match="has 32-bit pixels, whose range is not defined; save it with 8 or 16 bits",
    ):
        Image(content.getvalue(), "a.tiff").content()


def test_a_huge_file_is_not_read(tmp_path):
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(
        dp.DataError,
        match=r"a.png has 1,099,511,627,776 bytes; files of at most 536,870,912 bytes are read",
    ):
        Image(tmp_path / "a.png", "a.png").content()


def test_many_equal_rows_in_a_small_parquet_are_refused(capsys, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = pyarrow.table({"output": pyarrow.array(["a"] * 2_000_000).dictionary_encode()})
    parquet.write_table(rows, tmp_path / "a.parquet")
    assert "a.parquet claims 2,000,000 rows in " in refused(capsys, "score", tmp_path / "a.parquet")


def test_an_archive_member_with_an_invalid_name_is_refused(capsys, tmp_path):
    np.savez(tmp_path / "a.npz", é=np.eye(3))
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content.replace("é".encode(), b"\xc0\xc0", 1))
    assert "a.npz is not a readable .npz archive" in refused(capsys, "score", tmp_path / "a.npz")


def test_oversized_numbers_are_refused_and_invalid_names_are_replaced(capsys, tmp_path):
    write(tmp_path, {"v.jsonl": b'{"embedding": [1, ' + b"9" * 400 + b"]}\n"})
    assert "contain a number too large for a float" in refused(
        capsys, "score", tmp_path / "v.jsonl"
    )
    rows = [{**row, "model": f"half \ud800 {i % 2}"} for i, row in enumerate(records())]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for form in ("json", "md"):
        code, out, _ = command(capsys, "score", tmp_path / "m.jsonl", "--format", form, "-q")
        assert code == 0 and "half" in out and out.encode()


def test_bfloat16_is_refused_with_a_way_out(capsys, tmp_path):
    torch = pytest.importorskip("torch")
    save = pytest.importorskip("safetensors.torch").save_file
    save({"outputs": torch.ones(2, 2, dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    assert "contains bfloat16, which NumPy does not support; save it as float32" in refused(
        capsys, "score", tmp_path / "a.safetensors"
    )


def test_escape_codes_do_not_reach_the_terminal(capsys, tmp_path):
    red = "\x1b[31mred"
    np.savez(tmp_path / "a.npz", **{red: np.eye(2), "b": np.eye(2)})
    assert "\x1b" not in refused(capsys, "score", tmp_path / "a.npz")
    write(
        tmp_path,
        {
            "a.csv": f"{red},{red},output\n1,2,a\n",
            "m.jsonl": jsonl(dict(row, model=red) for row in records()),
        },
    )
    assert "\x1b" not in refused(capsys, "score", tmp_path / "a.csv")
    for form in ("table", "md", "csv", "latex"):
        write(
            tmp_path,
            {
                "m.jsonl": jsonl(
                    [dict(row, model=red + str(i % 2)) for i, row in enumerate(records())]
                )
            },
        )
        code, out, err = command(capsys, "score", tmp_path / "m.jsonl", "--format", form)
        assert code == 0 and "\x1b" not in out + err


def _rows_naming(name):
    return {
        "metadata.jsonl": jsonl(
            [{"file_name": "0.png", "prompt": "p"}, {"file_name": name, "prompt": "q"}]
        )
    }


@pytest.fixture
def inside(tmp_path):
    """Return a folder with an image; a secret is beside the folder."""
    write(tmp_path, {"secret.png": image_bytes(7), "in/0.png": image_bytes(0)})
    return tmp_path / "in"


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "{absolute}", "link.png", "down/../../secret.png", "linked/secret.png"],
)
def test_nothing_outside_the_folder_is_read(name, capsys, inside):
    (inside / "link.png").symlink_to(inside.parent / "secret.png")
    (inside / "linked").symlink_to(inside.parent)
    (inside / "down").mkdir()
    name = name.format(absolute=inside.parent / "secret.png")
    write(inside, _rows_naming(name))
    sentence = refused(capsys, "score", inside)
    assert (
        "line 2 of" in sentence
        and "secret.png, outside" in sentence
        and "pass --allow-outside to read it" in sentence
    )
    code, *_ = command(capsys, "score", inside, "--allow-outside", "-q")
    assert code == 0


def test_links_outside_are_refused_in_a_folder_without_a_table(capsys, inside):
    (inside / "p-1.png").symlink_to(inside.parent / "secret.png")
    (inside / "0.png").rename(inside / "p-0.png")
    assert "secret.png, outside" in refused(capsys, "score", inside)
    sub = inside.parent / "folders"
    sub.mkdir()
    (sub / "prompt").symlink_to(inside)
    assert "outside" in refused(capsys, "score", sub)


@pytest.mark.parametrize(
    "name", ["", "a\0b", "x" * 5000, "0.png/inner.png", ".", "loop.png", "pipe.png"]
)
def test_names_that_are_not_files_are_refused(name, capsys, inside):
    import os

    (inside / "loop.png").symlink_to(inside / "loop.png")
    os.mkfifo(inside / "pipe.png")
    write(inside, _rows_naming(name or "nowhere.png"))
    assert "line 2 of" in refused(capsys, "score", inside)


def test_names_with_newlines_escapes_and_emoji_are_read_and_quoted(capsys, tmp_path):
    names = ["two\nlines-0.png", "\x1b[31mred-0.png", "😀-0.png", "quote'\"-0.png"]
    write(tmp_path, {name: image_bytes(i) for i, name in enumerate(names)})
    samples = dp.load(tmp_path)
    assert {prompt.text for prompt in samples.prompts} == {
        name.removesuffix("-0.png") for name in names
    }
    (tmp_path / names[0]).write_bytes(b"")
    sentence = refused(capsys, "score", tmp_path)
    assert r"two\nlines-0.png" in sentence
    (tmp_path / names[1]).write_bytes(b"")
    assert "\x1b" not in refused(capsys, "score", tmp_path)


def test_an_empty_folder_named_as_a_file_is_refused(capsys, tmp_path):
    (tmp_path / "a.jsonl").mkdir()
    assert "contains neither a table nor images" in refused(capsys, "score", tmp_path / "a.jsonl")


def test_a_line_of_100_mb_takes_little_memory(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": "' + b"x" * (100 << 20))
    code = (
        "import resource, divprism as dp\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try: dp.load({str(tmp_path / 'a.jsonl')!r})\n"
        "except dp.DataError: pass\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 150  # megabytes: the 32 MB that are read, and a few copies of them


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "column", [("date32", 2**31 - 1), ("timestamp", 2**61), ("duration", 2**62)]
)
def test_a_date_that_python_cannot_hold_is_refused(capsys, form, column, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    name, value = column
    kinds = {"date32": pa.date32(), "timestamp": pa.timestamp("ms"), "duration": pa.duration("s")}
    table = pa.table({"prompt": ["p"], "output": ["a"], "date": pa.array([value], kinds[name])})
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    message = refused(capsys, "score", path)
    assert f"a.{form} has a value in the column date that Python cannot represent" in message


@pytest.mark.parametrize("limit", [[], ["--limit", "2"]])
@pytest.mark.parametrize(
    "arrays", [{"x": np.array(3.0)}, {"x": np.array(3.0), "t": np.eye(2)}, {"t": np.array(3.0)}]
)
def test_a_single_number_is_no_array_of_rows(capsys, arrays, limit, tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **({"x": np.eye(2)} | arrays))
    assert "a.npz contains a single number;" in refused(capsys, "score", path, *limit)


@pytest.mark.parametrize("limit", [[], ["--limit", "2"]])
def test_an_archive_with_another_number_of_prompts_is_refused(capsys, limit, tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.eye(5), t=np.eye(3))
    message = refused(capsys, "score", path, *limit)
    assert "got 5 outputs and 3 prompts in" in message


def test_a_library_that_quotes_the_file_is_cut(capsys, tmp_path):
    header = json.dumps({"x": {"dtype": "F" * 5000, "shape": [1], "data_offsets": [0, 1]}})
    content = struct.pack("<Q", len(header)) + header.encode() + b"\0"
    path = write(tmp_path, {"a.safetensors": content}) / "a.safetensors"
    assert len(refused(capsys, "score", path)) < 500


@pytest.mark.parametrize("frame", [b"no image", b""])
def test_escape_codes_in_the_name_of_a_frame_are_escaped(frame, tmp_path):
    write(tmp_path, {"a cat/\x1b[31m0.png": frame, "dogs/0.png": image_bytes(0)})
    video = dp.load(tmp_path, output_kind="video").outputs[0]
    with pytest.raises(dp.DataError) as caught:
        video.content(2)
    assert str(caught.value).isprintable()


def test_a_path_with_escape_codes_is_escaped(tmp_path):
    with pytest.raises(dp.DataError) as caught:
        dp.evaluate([tmp_path / "\x1b[31m.txt", tmp_path / "b.png"])
    assert str(caught.value).isprintable()


def test_pillow_prints_nothing_beside_the_sentence(tmp_path):
    """About an image of a thousand channels, Pillow logs an error of its own."""
    content = image_bytes(0, form="TIFF")
    tag = struct.pack("<HHI", 277, 3, 1)  # samples per pixel, a short, one of them
    start = content.index(tag) + len(tag)
    changed = content[:start] + struct.pack("<H", 1000) + content[start + 2 :]
    path = write(tmp_path, {"a.tiff": changed}) / "a.tiff"
    code = (
        "import pathlib, sys; from divprism.data.media import open_image\n"
        "try: open_image(pathlib.Path(sys.argv[1]).read_bytes(), 'a.tiff')\n"
        "except ValueError as error: print(error)"
    )
    call = [sys.executable, "-c", code, path]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("a.tiff is ")
    assert done.stderr == ""


def test_a_zip_directory_of_a_million_entries_is_refused_before_it_is_read(capsys, tmp_path):
    """Written by hand: Python's own writer would take a minute."""
    name = b"x.npy"
    fields = (20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    entry = b"PK\x01\x02" + struct.pack("<6H3I5H2I", *fields) + name
    directory = entry * 1_000_000
    # The record and its locator of archives with more than 65,535 entries.
    sizes = (44, 45, 45, 0, 0, 1_000_000, 1_000_000, len(directory), 0)
    record = b"PK\x06\x06" + struct.pack("<Q2H2I4Q", *sizes)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, 4 + len(directory), 1)
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 65_535, 65_535, 0, 0, 0)
    path = tmp_path / "a.npz"
    start = b"PK\x03\x04"
    path.write_bytes(start + directory + record + locator + end)
    message = refused(capsys, "score", path)
    assert "a.npz is not a readable .npz archive: it has a directory of 51,000,000 bytes" in message
