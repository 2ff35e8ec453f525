"""Feed mutated inputs to every reader: `python fuzz.py KIND COUNT SEED FOLDER`.

Readers are those of data files, and of results, configs, states and answers of endpoints
(fuzz_documents.py). Each input is a valid file with bytes flipped, removed, repeated, inserted, or
overwritten by values that readers often mishandle. Prints the slowest time, the peak of memory and
the share of refusals. Any exception that is not divprism's own ends the process.
"""

import io
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
from fuzz_documents import DOCUMENTS, mutated_json, read_document
from sample_files import image_bytes, jsonl, records, write_video

import divprism as dp

ROWS = records(("one", "two"))
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
MEDIA = (".png", ".jpg", ".webp", ".bmp", ".tiff", ".gif", ".mp4")


def _table(form):
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist(ROWS * 10)
    buffer = io.BytesIO()
    if form == "parquet":
        parquet.write_table(table, buffer)
    else:
        with pyarrow.ipc.new_stream(buffer, table.schema) as stream:
            stream.write_table(table)
    return buffer.getvalue()


def _array(form):
    from safetensors.numpy import save

    x = np.arange(60.0).reshape(20, 3)
    t = np.arange(40.0).reshape(20, 2)
    if form == "safetensors":
        return save({"x": x, "t": t})
    buffer = io.BytesIO()
    if form == "npy":
        np.save(buffer, x)
    else:
        np.savez_compressed(buffer, x=x, t=t)
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
MAP = {f"{i}.png": "p" for i in range(5)}
SEEDS = {
    ".jsonl": lambda: jsonl(ROWS),
    ".jsonl.gz": _gz,
    "_lm.jsonl": lambda: jsonl(LM_EVAL),
    ".json": lambda: json.dumps(ROWS).encode(),
    "_map.json": lambda: json.dumps(MAP).encode(),
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
    **DOCUMENTS,
}


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with one to four changes."""
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


def read(kind: str, path: Path) -> None:
    """Load a file, and decode its outputs if they are images or videos."""
    if kind in DOCUMENTS:
        read_document(kind, path)
        return
    if kind not in MEDIA:
        options = {}
        if kind == ".txt":
            options["output_field"] = "prompt"
        dp.load(path, **options)
        return
    for output in dp.load(path.parent).outputs:
        output.digest()
        output.content(4)


def peak() -> float:
    """Return the peak of memory so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run the mutations of one kind."""
    kind, count, seed, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    # This is a process of its own already; a frozen program decodes without starting another.
    sys.frozen = True
    rng = np.random.default_rng(seed)
    content = SEEDS[kind]()
    path = folder / f"a{kind}"
    if kind in MEDIA:
        # The name of the only file of a folder gives its prompt.
        path = folder / f"p-0{kind}"
    if kind == "_map.json":
        for i, name in enumerate(MAP):
            (folder / name).write_bytes(image_bytes(i))
    slowest = refused = 0.0
    before = peak()
    for _ in range(count):
        mutate = mutated
        if kind in DOCUMENTS and kind.endswith(".json") and rng.random() < 0.8:
            # Bytes that change at random seldom leave JSON.
            mutate = mutated_json
        path.write_bytes(mutate(content, rng))
        start = time.perf_counter()
        try:
            read(kind, path)
        except dp.DivprismError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1, str(error)
        slowest = max(slowest, time.perf_counter() - start)
    figures = {"slowest": slowest, "peak": peak() - before, "refused": refused / count}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
