"""Arrays and texts that claim more than they hold, or hold what is no number or no text.

Each function takes a random generator, so that a run with another seed tries other sizes.
"""

import bz2
import gzip
import io
import json
import lzma
import struct
import zipfile
import zlib

import numpy as np


def npy(text, body=b"", version=1):
    """Return an .npy file with any text as its header."""
    content = text.encode("latin-1") + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(content))
    return b"\x93NUMPY" + bytes([version, 0]) + length + content + body


def header(descr="'<f8'", order="False", shape="(2, 2)"):
    """Return the header of an array; each part may be any text."""
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def _digits(rng, low, high):
    return str(rng.integers(low, high))


_HEADERS = {
    "rows of nothing": lambda rng: header(shape=f"({_digits(rng, 2**32, 2**62)}, 0)"),
    "strings of nothing": lambda rng: header("'<U0'", shape=f"({_digits(rng, 2**32, 2**62)},)"),
    "minus signs": lambda rng: header(shape=f"({'-' * int(rng.integers(3000, 9000))}1,)"),
    "brackets": lambda rng: header(shape="(" * int(rng.integers(200, 4000)) + "1"),
    "letters": lambda rng: header(f"'<{chr(int(rng.integers(103, 123)))}{rng.integers(99)}x'"),
    "a long string": lambda rng: header(f"'<U{_digits(rng, 10**8, 2**31)}'", shape="(3,)"),
    "an overflow": lambda rng: header(shape=f"({_digits(rng, 2**61, 2**62)}, 8, 8)"),
    "a huge number": lambda rng: header(shape=f"({'9' * int(rng.integers(30, 5000))},)"),
    "many dimensions": lambda rng: header(shape="(" + "1," * int(rng.integers(65, 3000)) + ")"),
    "negative": lambda rng: header(shape=f"(-{_digits(rng, 1, 99)}, 2)"),
    "objects": lambda rng: header("'|O'"),
    "records": lambda rng: header("[('a', '<f8'), ('b', '<f8')]"),
    "code": lambda rng: "__import__('os').abort()",
    "no shape": lambda rng: "{'descr': '<f8', 'fortran_order': False}",
    "the wrong order": lambda rng: header(order="1"),
    "a shape of truth": lambda rng: header(shape="(True, 2)"),
    "too few bytes": lambda rng: header(shape=f"({_digits(rng, 5, 99)}, 2)"),
    "too few bytes in Fortran order": lambda rng: header(order="True", shape="(9, 9)"),
}


def _npy_case(make, version=1):
    return lambda rng: npy(make(rng), bytes(32), version)


def invalid_characters(rng):
    codes = rng.integers(2**21, 2**31, 4).astype("<u4").tobytes()
    return npy(header("'<U2'", shape="(2,)"), codes)


def long_header(rng):
    return npy(header() + " " * int(rng.integers(10**5, 10**7)), bytes(32), version=2)


def _packed(content, method):
    """Return the bytes of a zip member as each method stores them."""
    if method == zipfile.ZIP_DEFLATED:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(content) + packer.flush()
    if method == zipfile.ZIP_BZIP2:
        return bz2.compress(content)
    if method == zipfile.ZIP_LZMA:
        filters = [{"id": lzma.FILTER_LZMA1}]
        raw = lzma.compress(content, lzma.FORMAT_RAW, filters=filters)
        return struct.pack("<BBH", 9, 4, 5) + struct.pack("<BI", 93, 1 << 23) + raw
    return content


def zip_file(method, content, claimed, names=("x.npy",), flags=0):
    """Return an archive whose directory claims any size of its members."""
    packed = _packed(content, method)
    return _archive(method, packed, zlib.crc32(content), claimed, names, flags)


def _archive(method, packed, checksum, claimed, names, flags):
    local = directory = b""
    for name in names:
        text = name.encode()
        fields = (20, flags, method, 0, 0, checksum, len(packed), claimed, len(text), 0)
        offset = len(local)
        local += b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", *fields) + text + packed
        entry = struct.pack("<HHHHHHIIIHHHHHII", 20, *fields, 0, 0, 0, 0, offset)
        directory += b"PK\x01\x02" + entry + text
    count = len(names)
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), len(local), 0)
    return local + directory + b"PK\x05\x06" + end


_BOMBS = {}


def _bomb(method, rng):
    """Return zeros as a zip member, their checksum and size: once per method, as it takes long."""
    if method not in _BOMBS:
        rows = int(rng.integers(300, 400)) << 17
        # A method that is refused as such takes long to pack, and needs no gigabytes inside.
        if method != zipfile.ZIP_DEFLATED:
            rows >>= 4
        content = npy(header(shape=f"({rows}, 1)"), bytes(rows * 8))
        _BOMBS[method] = _packed(content, method), zlib.crc32(content), len(content)
    return _BOMBS[method]


def _npz_case(method, claimed=None):
    def make(rng):
        packed, checksum, size = _bomb(method, rng)
        return _archive(method, packed, checksum, claimed or size, ("x.npy",), flags=0)

    return make


def _small_npz(**options):
    content = npy(header(), bytes(32))
    return lambda rng: zip_file(zipfile.ZIP_STORED, content, len(content), **options)


ARRAYS = {
    **{f"{name}.npy": _npy_case(make) for name, make in _HEADERS.items()},
    **{f"{name}, version 2.npy": _npy_case(make, 2) for name, make in _HEADERS.items()},
    "invalid characters.npy": invalid_characters,
    "a long header.npy": long_header,
    "deflate bomb.npz": _npz_case(zipfile.ZIP_DEFLATED),
    "bzip2 bomb.npz": _npz_case(zipfile.ZIP_BZIP2),
    "bzip2 with a lying directory.npz": _npz_case(zipfile.ZIP_BZIP2, claimed=200),
    "LZMA bomb.npz": _npz_case(zipfile.ZIP_LZMA),
    "LZMA with a lying directory.npz": _npz_case(zipfile.ZIP_LZMA, claimed=200),
    "deflate with a lying directory.npz": _npz_case(zipfile.ZIP_DEFLATED, claimed=200),
    "encrypted.npz": _small_npz(flags=1),
    "a member twice.npz": _small_npz(names=("x.npy", "x.npy")),
    "a directory of gigabytes.npz": lambda rng: zip_file(0, npy(header("'<f8'")), 2**32 - 1),
}
"""Arrays that must be refused, by file name."""


def _row(**fields):
    return json.dumps({"prompt": "p", "output": "a", **fields}) + "\n"


def _words(text):
    return lambda rng: ("1,2\n" * int(rng.integers(1, 9)) + text + "\n").encode()


def gz_bomb(rng):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = packer.compress(_row().encode() * 30_000)
    for _ in range(int(rng.integers(200, 300))):
        block += packer.compress(_row().encode() * 30_000)
    return block + packer.flush()


def _vector(text):
    return lambda rng: b'{"embedding": [1, 2]}\n' + b'{"embedding": [1, %s]}\n' % text


def wide_csv(rng):
    count = int(rng.integers(20_000, 60_000))
    names = [f"c{index}" for index in range(count)]
    return (",".join(["prompt", "output", *names]) + "\n" + "p,a" + ",x" * count + "\n").encode()


def wide_jsonl(rng):
    fields = {f"c{index}": 1 for index in range(int(rng.integers(20_000, 60_000)))}
    return _row(**fields).encode()


_NOT_NUMBERS = ("nan", "NaN,1", "inf,1", "Infinity,1", "1_0,1", "0x10,1", "١٢,1", "1e999,1", "1,,1")
TEXTS = {
    **{f"not numbers {i}.csv": _words(text) for i, text in enumerate(_NOT_NUMBERS)},
    "NaN.jsonl": _vector(b"NaN"),
    "Infinity.jsonl": _vector(b"-Infinity"),
    "1e999.jsonl": _vector(b"1e999"),
    "1_0.jsonl": _vector(b"1_0"),
    "many digits.jsonl": _vector(b"9" * 10**6),
    "deep.jsonl": lambda rng: _row(output="X").replace('"X"', "[" * 10**5).encode(),
    "deep list.jsonl": lambda rng: _row(output="X").replace('"X"', "[" * 600 + "]" * 600).encode(),
    "wide.csv": wide_csv,
    "commas.csv": lambda rng: b"," * int(rng.integers(15 << 20, 31 << 20)) + b"\n1,2\n",
    "commas below.csv": lambda rng: b"prompt,output\n" + b"," * (31 << 20) + b"\n",
    "numbers.csv": lambda rng: b"1," * (15 << 20) + b"1\n",
    "wide.jsonl": wide_jsonl,
    "a long model.jsonl": lambda rng: _row(model="m" * (8 << 20)).encode(),
    "a long field.jsonl": lambda rng: _row(**{"m" * (8 << 20): 1}).encode(),
    "a long column.csv": lambda rng: b"prompt,output," + b"m" * (8 << 20) + b"\np,a,b\n",
    "a long line.csv": lambda rng: b"prompt,output\np," + b"x" * (40 << 20),
    "a long line.jsonl": lambda rng: b" " * (40 << 20),
    "gz bomb.jsonl.gz": gz_bomb,
    "gz bomb of one line.jsonl.gz": lambda rng: gzip.compress(bytes(100 << 20)),
    "UTF-16.csv": lambda rng: "prompt,output\np,a\n".encode("utf-16"),
    "a cut cell.csv": lambda rng: b'prompt,output\np,"' + b"a\n" * int(rng.integers(10**5)),
}
"""Texts that must be refused, by file name."""


def honest(rng):
    """Return files that look odd and must be read, by file name."""
    buffer = io.BytesIO()
    np.save(buffer, np.asfortranarray(rng.normal(size=(4, 3))))
    return {
        "fortran.npy": buffer.getvalue(),
        "spaces.csv": b" 1.5, -2e3\n+3,.5\n",
        "long cell.csv": b"prompt,output\np," + b"x" * 200_000 + b"\n",
        "null.csv": b"prompt,output\np,a\0b\n",
    }
