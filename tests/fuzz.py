"""Mutated inputs through every reader: `python fuzz.py KIND COUNT SEED FOLDER` prints the slowest, the peak and the refusals.

Each input is a good file with bytes flipped, cut out, doubled, put in, or overwritten by what readers trip over.
Anything but an answer or an error of our own ends the process.
"""

import io
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
from sample_files import image_bytes, jsonl, records, write_video

import divprism as dp

ROWS = records(("one", "two"))
TRICKY = [
    *(
        b"\0",
        b"\xff" * 4,
        b"\x7f\xff\xff\xff",
        b"\xff" * 8,
        b"\r\n",
        b'"',
        b"{",
        b"[" * 2000,
        b"\xed\xa0\x80",
    ),
    *(b"1e999", b"NaN", b"-", b"../", b"\\ud800"),
]
"""Numbers, signs and names that readers trip over."""


def _table(form):
    import pyarrow
    from pyarrow import parquet

    table, buffer = pyarrow.Table.from_pylist(ROWS * 10), io.BytesIO()
    if form == "parquet":
        parquet.write_table(table, buffer)
    else:
        with pyarrow.ipc.new_stream(buffer, table.schema) as stream:
            stream.write_table(table)
    return buffer.getvalue()


def _array(form):
    from safetensors.numpy import save

    x, t, buffer = np.arange(60.0).reshape(20, 3), np.arange(40.0).reshape(20, 2), io.BytesIO()
    if form == "safetensors":
        return save({"x": x, "t": t})
    np.save(buffer, x) if form == "npy" else np.savez_compressed(buffer, x=x, t=t)
    return buffer.getvalue()


def _gz():
    import gzip

    return gzip.compress(jsonl(ROWS * 20), mtime=0)


def _video():
    path = write_video(Path(sys.argv[4]) / "seed.mp4", frames=6)
    content = path.read_bytes()
    path.unlink()
    return content


def _gif():
    from PIL import Image

    buffer = io.BytesIO()
    frames = [Image.open(io.BytesIO(image_bytes(i))).convert("P") for i in range(3)]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


LM_EVAL = [{"arguments": [["p", {}]], "resps": [["a", "b"]], "doc_id": i} for i in range(5)]
SEEDS = {
    ".jsonl": lambda: jsonl(ROWS),
    ".jsonl.gz": _gz,
    "_lm.jsonl": lambda: jsonl(LM_EVAL),
    ".json": lambda: json.dumps(ROWS).encode(),
    "_map.json": lambda: json.dumps({f"{i}.png": "p" for i in range(5)}).encode(),
    ".csv": lambda: b"prompt,output\n" + b'p,"a, b"\n' * 20,
    "_numbers.csv": lambda: b"1,2.5,3\n" * 20,
    ".tsv": lambda: b"prompt\toutput\n" + b"p\ta\n" * 20,
    ".txt": lambda: b"a line\n" * 20,
    ".parquet": lambda: _table("parquet"),
    ".arrow": lambda: _table("arrow"),
    ".npy": lambda: _array("npy"),
    ".npz": lambda: _array("npz"),
    ".safetensors": lambda: _array("safetensors"),
    ".png": lambda: image_bytes(1),
    ".jpg": lambda: image_bytes(1, form="JPEG"),
    ".webp": lambda: image_bytes(1, form="WEBP"),
    ".bmp": lambda: image_bytes(1, form="BMP"),
    ".tiff": lambda: image_bytes(1, form="TIFF"),
    ".gif": _gif,
    ".mp4": _video,
}


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One change, or a few."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        start = int(rng.integers(0, len(data) + 1))
        stop = min(len(data), start + int(rng.integers(1, 64)))
        match rng.integers(0, 6):
            case 0:
                data[start:stop] = bytes(
                    byte ^ (1 << int(rng.integers(8))) for byte in data[start:stop]
                )
            case 1:
                del data[start:stop]
            case 2:
                data[start:start] = data[start:stop] * int(rng.integers(1, 20))
            case 3:
                tricky = TRICKY[rng.integers(len(TRICKY))]
                data[start : start + len(tricky)] = tricky
            case 4:
                del data[start:]
            case _:
                data[start:start] = rng.bytes(int(rng.integers(1, 64)))
    return bytes(data)


def main() -> None:
    """Run one kind."""
    kind, count, seed, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    rng = np.random.default_rng(seed)
    content = SEEDS[kind]()
    media = kind in (".png", ".jpg", ".webp", ".bmp", ".tiff", ".gif", ".mp4")
    path = folder / (f"p-0{kind}" if media else f"a{kind}")
    for i in range(5 if kind == "_map.json" else 0):
        (folder / f"{i}.png").write_bytes(image_bytes(i))
    slowest = refused = 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        path.write_bytes(mutated(content, rng))
        start = time.perf_counter()
        try:
            samples = dp.load(
                folder if media else path, output_field="prompt" if kind == ".txt" else None
            )
            for output in samples.outputs if media else ():
                output.digest(), output.content(4)
        except dp.DivprismError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1, str(error)
        slowest = max(slowest, time.perf_counter() - start)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    sys.stdout.write(
        json.dumps({"slowest": slowest, "peak": peak, "refused": refused / count}) + "\n"
    )


if __name__ == "__main__":
    main()
