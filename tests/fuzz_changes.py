"""Changes that the fuzzer makes to valid inputs: bytes, values of JSON, cells, members, headers.

A change of bytes at random seldom gets past a checksum or a parser, so most formats have a change
of their own that keeps the outer form and puts something unusual inside.
"""

import copy
import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Change = Callable[[bytes, np.random.Generator], bytes]

HOSTILE = '<img src=x onerror="window.hacked=1">'
CONTROL = "\x1b[31m\u202e\x9b=1+1"
TRICKY = [
    b"\0",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff" * 8,
    b"\r\n",
    b'"',
    b"{",
    b"[" * 2000,
    b"\xed\xa0\x80",
    b"1e999",
    b"NaN",
    b"-",
    b"../",
    b"\\ud800",
]
"""Numbers, signs and names that readers often mishandle."""
TRICKY_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    5e-324,
    10**30,
    2.5,
    float("nan"),
    "",
    " ",
    "NaN",
    "1_0",
    HOSTILE,
    CONTROL,
    "\ud800",
    "a\0b",
    "\u2028\u2066x",
    "../../etc/passwd",
    "/dev/zero",
    "0.png",
    "x" * 5000,
    [],
    {},
    [[1, 2], [3]],
    {"a": {"b": {}}},
    {CONTROL: CONTROL},
    list(range(300)),
    [CONTROL] * 3,
]
"""Values of the wrong type, sign or size, and texts that are not inert."""
TRICKY_CELLS = [
    *("", " ", '"', '""', '"a', "NaN", "inf", "-inf", "1_0", "1e999", "-0", "0x10", "1,2"),
    *("\0", "\ufeff", "=1+1", "@a", "٣", "1" * 400, CONTROL, HOSTILE, "\r", "\u2028", "../a.png"),
    *("prompt", "output", "model", "x" * 5000),
]


def pick(choices: Sequence[Any], rng: np.random.Generator) -> Any:
    """Return one of several things."""
    return choices[int(rng.integers(len(choices)))]


def one_of(*changes: Change) -> Change:
    """Return a change that is one of several, drawn for each input."""
    return lambda content, rng: pick(changes, rng)(content, rng)


def changed_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with one to four changes: bytes flipped, removed, repeated, overwritten."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        start = int(rng.integers(0, len(data) + 1))
        stop = min(len(data), start + int(rng.integers(1, 64)))
        match rng.integers(0, 6):
            case 0:
                flipped = (byte ^ (1 << int(rng.integers(8))) for byte in data[start:stop])
                data[start:stop] = bytes(flipped)
            case 1:
                del data[start:stop]
            case 2:
                data[start:start] = data[start:stop] * int(rng.integers(1, 20))
            case 3:
                tricky = pick(TRICKY, rng)
                data[start : start + len(tricky)] = tricky
            case 4:
                del data[start:]
            case _:
                data[start:start] = rng.bytes(int(rng.integers(1, 64)))
    return bytes(data)


def change_value(document: Any, rng: np.random.Generator) -> None:
    """Replace, remove or rename one value inside a list or an object, in place."""
    node, key, parent = document, None, None
    # Down from the top, and stop sooner or later.
    while isinstance(node, dict | list) and node and (key is None or rng.random() < 0.85):
        parent = node
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = keys[int(rng.integers(len(keys)))]
        node = parent[key]
    if parent is None:
        return
    draw = rng.random()
    if draw < 0.15:
        del parent[key]
    elif draw < 0.25 and isinstance(parent, dict):
        parent[pick((HOSTILE, CONTROL, "", "schema", "x" * 2000), rng)] = parent.pop(key)
    elif draw < 0.35 and isinstance(parent, list):
        parent.extend(copy.deepcopy(parent) * int(rng.integers(1, 4)))
    elif draw < 0.5 and isinstance(node, int | float):
        parent[key] = node * pick((-1, 0, 1e-300, 1e300, 1.0000001, 2), rng)
    else:
        # A copy, so that a later change of it does not change the table.
        parent[key] = copy.deepcopy(pick(TRICKY_VALUES, rng))


def changed_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Return JSON in which one to four values are replaced, removed, renamed or repeated."""
    document = json.loads(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        change_value(document, rng)
    return json.dumps(document).encode()


def changed_text_of_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Return JSON with something in it that Python's parser takes, or takes long for."""
    text = content.decode()
    places = [index for index, letter in enumerate(text) if letter in "{[:,"]
    place = pick(places, rng) + 1
    piece = pick(
        (
            '"a":1,"a":2,',
            "NaN,",
            "-Infinity,",
            "1e400,",
            "9" * 5000 + ",",
            "[" * 5000 + "]" * 5000 + ",",
            '{"a":' * 3000 + "1" + "}" * 3000 + ",",
            '"\\ud800":"\\udfff",',
            "\ufeff",
            "'a',",
            "// x\n",
        ),
        rng,
    )
    return (text[:place] + piece + text[place:]).encode()


def changed_lines(content: bytes, rng: np.random.Generator) -> bytes:
    """Return JSON lines of which one to three have other values, or are repeated or removed."""
    lines = content.splitlines()
    for _ in range(rng.choice([1, 1, 2, 3])):
        index = int(rng.integers(len(lines)))
        match rng.integers(0, 8):
            case 0:
                lines[index:index] = lines[index:] * int(rng.integers(1, 3))
            case 1:
                lines.insert(index, pick((b"", b"[]", b"1", b"null", b'"a"', b"{}", b"\xff"), rng))
            case 2:
                lines[index] = _or_same(changed_text_of_json, lines[index], rng)
            case 3 if len(lines) > 1:
                del lines[index]
            case _:
                lines[index] = _or_same(changed_json, lines[index], rng)
    return b"\n".join(lines) + b"\n"


def _or_same(change: Change, content: bytes, rng: np.random.Generator) -> bytes:
    try:
        return change(content, rng)
    except (ValueError, RecursionError):  # an earlier change left no JSON
        return content


def changed_cells(delimiter: str) -> Change:
    """Return a change of the cells of a table: other content, more of them, or fewer."""

    def change(content: bytes, rng: np.random.Generator) -> bytes:
        rows = [line.split(delimiter) for line in content.decode().splitlines()]
        for _ in range(rng.choice([1, 1, 2, 4])):
            row = rows[int(rng.integers(len(rows)))]
            # The header decides how all others are read.
            if rng.random() < 0.3:
                row = rows[0]
            column = int(rng.integers(len(row) + 1))
            match rng.integers(0, 5):
                case 0:
                    del row[column:]
                case 1:
                    row[column:column] = row * int(rng.integers(1, 4))
                case _:
                    row[column : column + 1] = [pick(TRICKY_CELLS, rng)]
        ending = pick(("\n", "\n", "\r\n", "\r"), rng)
        return ending.join(delimiter.join(row) for row in rows).encode()

    return change


def compressed(change: Change) -> Change:
    """Return a change of what a gzip file contains."""

    def inside(content: bytes, rng: np.random.Generator) -> bytes:
        parts = [gzip.compress(change(gzip.decompress(content), rng), mtime=0)]
        if rng.random() < 0.1:
            parts.append(pick((b"\0" * 100, parts[0], b"x"), rng))
        return b"".join(parts)

    return inside


def changed_members(change: Change) -> Change:
    """Return a change of a zip archive: of a member, or of its name or compression."""
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)

    def inside(content: bytes, rng: np.random.Generator) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
        index = int(rng.integers(len(members)))
        name, data = members[index]
        match rng.integers(0, 8):
            case 0:
                members[index] = (pick(("x", "../x.npy", CONTROL, "prompts.npy"), rng), data)
            case 1:
                members.append((name, data))
            case 2:
                del members[index]
            case _:
                members[index] = (name, change(data, rng))
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", pick(methods[:2] * 4 + methods, rng)) as archive:
            for name, data in members:
                archive.writestr(zipfile.ZipInfo(name), data, archive.compression)
        return buffer.getvalue()

    return inside


DTYPES = [
    *("<f8", ">f8", "<f4", "<f2", "<i8", "|b1", "<c16", "<U4", "|S4", "|V8", "|O", "<M8[s]"),
    *("<U0", "|S0", "<U268435456", "<f99", "", "=", CONTROL, "(2,3)<f8", "f8,f8", "<e", "|V0"),
]
SHAPES = [
    *("()", "(0,)", "(20, 3)", "(60,)", "(5, 4, 3)", "(-1, 3)", "(20, 0)", "(2**40,)", "(20, 3.0)"),
    *("(4611686018427387904, 4)", "(" + "1, " * 100 + ")", "(True, 3)", "[20, 3]", "(20L,)"),
    *("(9223372036854775808,)", "(" * 500, "-" * 5000 + "1", "(0, 4611686018427387904)"),
]


def changed_npy(content: bytes, rng: np.random.Generator) -> bytes:
    """Return an array with another header, which often does not fit its data."""
    length = struct.unpack("<H", content[8:10])[0]
    data = content[10 + length :]
    # `eval` of a header was once how arrays were read; ours is the text that NumPy writes.
    descr, order, shape = repr("<f8"), "False", f"({len(data) // 24}, 3)"
    match rng.integers(0, 4):
        case 0:
            descr = repr(pick(DTYPES, rng))
        case 1:
            shape = pick(SHAPES, rng)
        case 2:
            order = pick(("True", "1", "None", "__import__('os')", "False]"), rng)
        case _:
            data = _special_numbers(data, rng)
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    header = text.encode("latin-1", "replace") + b"\n"
    if rng.random() < 0.05:
        header = changed_bytes(header, rng)
    version = pick((b"\x01\x00",) * 8 + (b"\x02\x00", b"\x03\x00", b"\x09\x00"), rng)
    return b"\x93NUMPY" + version + struct.pack("<H", len(header) % 65536) + header + data


def _special_numbers(data: bytes, rng: np.random.Generator) -> bytes:
    numbers = np.frombuffer(data[: len(data) // 8 * 8], np.float64).copy()
    if numbers.size == 0:
        return data
    rows = rng.integers(numbers.size, size=3)
    numbers[rows] = pick((np.nan, np.inf, -np.inf, 1e308, 5e-324, -0.0, 1e-200), rng)
    if rng.random() < 0.2:
        numbers *= pick((0.0, 1e300, 1e-300), rng)
    return numbers.tobytes()


def changed_safetensors(content: bytes, rng: np.random.Generator) -> bytes:
    """Return tensors with another header."""
    length = struct.unpack("<Q", content[:8])[0]
    change = pick((changed_json, changed_json, changed_text_of_json, changed_bytes), rng)
    header = change(content[8 : 8 + length], rng)
    claimed = len(header)
    if rng.random() < 0.05:
        claimed = pick((0, 1, 2**63 - 1, 2**64 - 1, 10**9), rng)
    return struct.pack("<Q", claimed) + header + content[8 + length :]


def changed_png(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a PNG file with changed chunks whose checksums are right."""
    chunks, start = [], 8
    while start < len(content):
        (length,) = struct.unpack(">I", content[start : start + 4])
        body = content[start + 4 : start + 8 + length]
        chunks.append((body[:4], body[4:]))
        start += 12 + length
    index = int(rng.integers(len(chunks)))
    name, data = chunks[index]
    match rng.integers(0, 5):
        case 0:
            chunks.insert(index, chunks[index])
        case 1:
            kind = pick((b"tEXt", b"zTXt", b"iCCP", b"tRNS", b"PLTE", b"acTL", b"eXIf"), rng)
            inner = zlib.compress(b"\0" * int(rng.integers(1 << 20)))
            chunks.insert(index, (kind, pick((b"a\0\0" + inner, b"", b"\0" * 9, b"a"), rng)))
        case 2:
            # Width, height, depth, colour type and the rest.
            first = bytearray(chunks[0][1])
            first[int(rng.integers(13))] = int(rng.integers(256))
            chunks[0] = (b"IHDR", bytes(first))
        case 3:
            del chunks[index]
        case _:
            chunks[index] = (name, changed_bytes(data, rng))
    parts = [content[:8]]
    for name, data in chunks:
        body = name + data
        parts.append(struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body)))
    return b"".join(parts)
