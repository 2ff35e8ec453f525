"""Logs of inspect that claim more than they hold, or unpack to more than they should."""

import io
import json
import struct
import zipfile

from sample_files import inspect_log, inspect_samples


def _zip(members, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


_HEADER = json.dumps({"status": "success", "eval": {"model": "m", "task": "t"}}).encode()
_SAMPLE = json.dumps(inspect_samples()[0]).encode()
_BLANKS = 100 << 20


def zstd_bomb(rng):
    """Return a log with a sample of 100 MB of blanks, or a little more, in a few kilobytes."""
    size = _BLANKS + int(rng.integers(1 << 20))
    sample = inspect_samples()[0] | {"input": " " * size}
    return inspect_log([sample])


def false_size(rng):
    """Return a log whose directory says that the bomb inside has ten bytes."""
    content = bytearray(zstd_bomb(rng))
    entry = content.find(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 10)
    return bytes(content)


def overlapping(rng):
    """Return a log whose members are all at the place of the first one."""
    members = {f"samples/{i}_epoch_1.json": _SAMPLE + b" " * 10**5 for i in range(50)}
    content = bytearray(_zip(members | {"header.json": _HEADER}, zipfile.ZIP_STORED))
    start = content.find(b"PK\x01\x02")
    end = content.rfind(b"PK\x05\x06")
    directory = content[start:end]
    first = struct.unpack("<I", directory[42:46])[0]
    at = directory.find(b"PK\x01\x02")
    while at >= 0:
        directory[at + 42 : at + 46] = struct.pack("<I", first)
        at = directory.find(b"PK\x01\x02", at + 4)
    size = len(_SAMPLE) + 10**5 + 60
    tail = bytearray(content[end:])
    tail[16:20] = struct.pack("<I", size)
    return bytes(content[:size] + directory + tail)


LOGS = {
    "a bomb of zstd.eval": zstd_bomb,
    "a bomb with a false size.eval": false_size,
    "a bomb of deflate.eval": lambda rng: _zip(
        {"header.json": _HEADER, "samples/1_epoch_1.json": b" " * _BLANKS}
    ),
    "many bombs.eval": lambda rng: _zip(
        {"header.json": _HEADER}
        | {f"samples/{i}_epoch_1.json": _SAMPLE + b" " * (30 << 20) for i in range(8)}
    ),
    "a header of blanks.eval": lambda rng: _zip({"header.json": b" " * _BLANKS}),
    "a deep sample.eval": lambda rng: _zip(
        {"header.json": _HEADER, "samples/1_epoch_1.json": b"[" * 10**6}
    ),
    "members that overlap.eval": overlapping,
    "no header.eval": lambda rng: _zip({"samples/1_epoch_1.json": _SAMPLE}),
    "no samples.eval": lambda rng: _zip({"header.json": _HEADER}),
    "a list.eval": lambda rng: _zip({"header.json": _HEADER, "samples/1_epoch_1.json": b"[1]"}),
    "another method.eval": lambda rng: _zip(
        {"header.json": _HEADER, "samples/1_epoch_1.json": _SAMPLE}, zipfile.ZIP_BZIP2
    ),
    "many members.eval": lambda rng: _zip(
        {f"samples/{i:09}{'x' * 200}.json": b"{}" for i in range(80_000)}, zipfile.ZIP_STORED
    ),
    "a cut log.eval": lambda rng: inspect_log()[: -int(rng.integers(1, 500))],
    "no zip file.eval": lambda rng: rng.bytes(int(rng.integers(1, 5000))),
    "an empty file.eval": lambda rng: b"",
}
"""Logs that must be refused, by file name."""
