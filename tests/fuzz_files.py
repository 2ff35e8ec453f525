"""Kinds of data files for the fuzzer: a valid content, how it is changed, how it is read."""

import gzip
import io
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
from fuzz_changes import (
    CONTROL,
    HOSTILE,
    changed_bytes,
    changed_cells,
    changed_json,
    changed_lines,
    changed_members,
    changed_npy,
    changed_png,
    changed_safetensors,
    changed_text_of_json,
    compressed,
    one_of,
    pick,
)
from fuzz_checks import Kind, check_samples, is_one_in, mostly_in_this_process, run_command
from sample_files import (
    CODECS,
    batch_output,
    chat_completion,
    encoded_sound,
    image_bytes,
    inspect_header,
    inspect_log,
    inspect_samples,
    jsonl,
    records,
    tone,
    user,
    write_video,
)

import divprism as dp

ROWS = records(("one", "two"))
LM_EVAL = [{"arguments": [["p", {}]], "resps": [["a", "b"]], "doc_id": i} for i in range(5)]
CHATS = [{"messages": user(f"p{i}")} | chat_completion(["a", "b"]) for i in range(3)]
BATCH = batch_output({i: chat_completion(["a", f"b {i}"]) for i in range(3)})
TUNING = [{"messages": [*user("p"), {"role": "assistant", "content": f"a {i}"}]} for i in range(3)]
MAP = {f"{i}.png": "p" for i in range(5)}


def table_bytes(form, rows):
    """Return rows as a Parquet file or an Arrow stream."""
    import pyarrow

    return _written(form, pyarrow.Table.from_pylist(rows))


def _written(form, table):
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    if form == "parquet":
        parquet.write_table(table, buffer)
    else:
        with pyarrow.ipc.new_stream(buffer, table.schema) as stream:
            stream.write_table(table)
    return buffer.getvalue()


def _columns():
    """Columns of types that tables of texts seldom have."""
    import pyarrow as pa

    texts = ["a", HOSTILE, CONTROL, None, ""]
    return [
        pa.array(texts),
        pa.array(texts).dictionary_encode(),
        pa.array([text and text.encode() for text in texts]),
        pa.array([b"\xff\xfe", b"\0", b"", None, b"a"]),
        pa.array([1, None, 2**62, 0, -1]),
        pa.array([1.5, None, float("nan"), float("inf"), 0.0]),
        pa.array([None] * 5),
        pa.array([True, False, None, True, True]),
        pa.array([[1.0, 2.0], [], None, [3.0], [float("nan")]]),
        pa.array([["a"], [CONTROL], None, [], ["b", None]]),
        pa.array([{"bytes": b"\x89PNG", "path": "0.png"}, None, {}, {"path": "../x"}, {}]),
        pa.array([{"a": {"b": [1]}}, None, {}, {}, {}]),
        pa.array([10**12] * 5, pa.timestamp("us", "Europe/Berlin")),
        pa.array([-(2**62)] * 5, pa.timestamp("s")),
        pa.array([2**31 - 1] * 5, pa.date32()),
        pa.array([2**62] * 5, pa.duration("s")),
        pa.array([b"1234567890123456"] * 5, pa.binary(16)),
        pa.array([[("k", 1), ("k", 2)]] * 5, pa.map_(pa.string(), pa.int64())),
        pa.array([[1.0, 2.0]] * 5, pa.list_(pa.float32(), 2)),
        pa.array([1.0, 2, 3, 4, 5], pa.float16()),
        pa.array(["a"] * 5, pa.large_string()),
    ]


def changed_columns(form):
    """Return a change that writes columns of unusual types and names into a table."""

    def change(_, rng):
        import pyarrow as pa

        names = ["prompt", "output", "model", "prompt_id", "embedding", CONTROL, "image"]
        # Names repeat sometimes.
        chosen = [pick(names, rng) for _ in range(int(rng.integers(1, 5)))]
        columns = _columns()
        table = pa.Table.from_arrays([pick(columns, rng) for _ in chosen], names=chosen)
        try:
            content = _written(form, table)
        except pa.ArrowInvalid:  # Parquet has no seconds, and these do not fit into milliseconds
            content = _written(form, table.slice(0, 0))
        if rng.random() < 0.3:
            return changed_bytes(content, rng)
        return content

    return change


def _array(form):
    from safetensors.numpy import save

    x = np.arange(60.0).reshape(20, 3) % 7
    t = np.arange(40.0).reshape(20, 2) % 5
    if form == "safetensors":
        return save({"x": x, "t": t})
    buffer = io.BytesIO()
    if form == "npy":
        np.save(buffer, x)
    else:
        np.savez_compressed(buffer, x=x, t=t)
    return buffer.getvalue()


def _video():
    path = write_video(Path("seed.mp4"), frames=6)
    content = path.read_bytes()
    path.unlink()
    return content


def _gif():
    from PIL import Image

    buffer = io.BytesIO()
    frames = [Image.open(io.BytesIO(image_bytes(i))).convert("P") for i in range(3)]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


def _read_table(name):
    """Return a check that reads a table of this name."""

    def check(content, folder):
        path = folder / name
        path.write_bytes(content)
        options = {}
        if name.endswith(".txt"):
            options["output_field"] = "prompt"
        check_samples(dp.load(path, **options))

    return check


def _read_map(content, folder):
    for i, name in enumerate(MAP):
        (folder / name).write_bytes(image_bytes(i))
    _read_table("a.json")(content, folder)


def _read_array(name):
    """Return a check that reads an array, and scores one in 25 from the command line."""
    read = _read_table(name)

    def check(content, folder):
        read(content, folder)
        if is_one_in(25, content):
            run_command("score", folder / name, "--order", "2")

    return check


def _read_columns(name):
    """Return a check that reads a Parquet or Arrow file of this name."""
    read = _read_table(name)

    def check(content, folder):
        with mostly_in_this_process(content):
            read(content, folder)

    return check


def _read_media(suffix):
    """Return a check that decodes the only file of a folder, whose name gives its prompt."""

    def check(content, folder):
        (folder / f"p-0{suffix}").write_bytes(content)
        samples = dp.load(folder)
        check_samples(samples)
        for output in samples.outputs:
            output.digest()
            output.content(4)

    return check


def _read_sound(suffix):
    """Return a check that decodes the only sound of a folder, and embeds it."""

    def check(content, folder):
        (folder / f"p-0{suffix}").write_bytes(content)
        samples = dp.load(folder)
        check_samples(samples)
        for output in samples.outputs:
            assert np.isfinite(dp.LogMel().prepare(output.content())).all()

    return check


def _read_prompts(content, folder):
    """Join outputs with a table of prompts."""
    (folder / "outputs.jsonl").write_bytes(jsonl(_OUTPUTS))
    (folder / "prompts.jsonl").write_bytes(content)
    check_samples(dp.load(folder / "outputs.jsonl", folder / "prompts.jsonl"))


def _read_input(content, _):
    """Read standard input, whose format its first bytes decide."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
    try:
        check_samples(dp.load("-"))
    finally:
        sys.stdin = before


def _changed_input(content, rng):
    kind = pick([kind for kind in KINDS if kind.name in _PIPED], rng)
    return kind.change(kind.seed(), rng)


_PIPED = ("jsonl", "jsonl.gz", "json", "numbers", "npy", "npz", "safetensors")
_JSONL = one_of(changed_lines, changed_lines, changed_bytes)
_JSON = one_of(changed_json, changed_json, changed_text_of_json, changed_bytes)
_OUTPUTS = [{"prompt_id": row["prompt_id"], "output": row["output"]} for row in ROWS]
_PROMPTS = [{"prompt_id": i, "prompt": text} for i, text in enumerate(("one", "two"))]


def _table(name, seed, change, check=None, weight=1.0):
    return Kind(name, "tables", seed, change, check or _read_table(f"a.{name}"), weight)


TABLES = [
    _table("jsonl", lambda: jsonl(ROWS), _JSONL, weight=2),
    _table("jsonl.gz", lambda: gzip.compress(jsonl(ROWS), mtime=0),
           one_of(compressed(_JSONL), changed_bytes)),
    _table("lm-eval", lambda: jsonl(LM_EVAL), _JSONL, _read_table("a.jsonl")),
    _table("chats", lambda: jsonl(CHATS), _JSONL, _read_table("a.jsonl"), 0.5),
    _table("batch", lambda: jsonl(BATCH), _JSONL, _read_table("a.jsonl"), 0.5),
    _table("fine-tuning", lambda: jsonl(TUNING), _JSONL, _read_table("a.jsonl"), 0.5),
    _table("eval", lambda: inspect_log(method=zipfile.ZIP_DEFLATED),
           one_of(changed_members(_JSON), changed_members(changed_bytes), changed_bytes)),
    _table("zstd", inspect_log, changed_bytes, _read_table("a.eval")),
    _table("log", lambda: json.dumps(inspect_header() | {"samples": inspect_samples()}).encode(),
           _JSON, _read_table("a.json")),
    _table("json", lambda: json.dumps(ROWS).encode(), _JSON),
    _table("map", lambda: json.dumps(MAP).encode(), _JSON, _read_map),
    _table("csv", lambda: b"prompt,output\n" + b"p,a b\n" * 20,
           one_of(changed_cells(","), changed_bytes), weight=2),
    _table("tsv", lambda: b"prompt\toutput\n" + b"p\ta\n" * 20,
           one_of(changed_cells("\t"), changed_bytes)),
    _table("txt", lambda: b"a line\n" * 20, one_of(changed_cells(" "), changed_bytes)),
    _table("prompts", lambda: jsonl(_PROMPTS), _JSONL, _read_prompts),
    _table("input", lambda: jsonl(ROWS), _changed_input, _read_input),
]  # fmt: skip
COLUMNS = [
    Kind(form, "Parquet, Arrow", lambda form=form: table_bytes(form, ROWS * 10),
         one_of(changed_columns(form), changed_bytes), _read_columns(f"a.{form}"), 2)
    for form in ("parquet", "arrow")
]  # fmt: skip
ARRAYS = [
    Kind("numbers", "arrays", lambda: b"1,2.5,3\n4,5,6\n" * 10,
         one_of(changed_cells(","), changed_bytes), _read_array("a.csv")),
    Kind("npy", "arrays", lambda: _array("npy"), one_of(changed_npy, changed_npy, changed_bytes),
         _read_array("a.npy"), 2),
    Kind("npz", "arrays", lambda: _array("npz"),
         one_of(changed_members(changed_npy), changed_members(changed_bytes), changed_bytes),
         _read_array("a.npz"), 2),
    Kind("safetensors", "arrays", lambda: _array("safetensors"),
         one_of(changed_safetensors, changed_bytes), _read_array("a.safetensors")),
]  # fmt: skip
MEDIA = [
    Kind("png", "images, videos", lambda: image_bytes(1), one_of(changed_png, changed_bytes),
         _read_media(".png"), 2),
    Kind("gif", "images, videos", _gif, changed_bytes, _read_media(".gif"), 0.5),
    Kind("mp4", "images, videos", _video, changed_bytes, _read_media(".mp4")),
    *(Kind(name, "images, videos", lambda name=name: image_bytes(1, form=name.upper()),
           changed_bytes, _read_media(f".{name}"))
      for name in ("jpeg", "webp", "bmp", "tiff")),
    *(Kind(name, "sounds", lambda name=name: encoded_sound(tone(rate=48_000), name, 48_000),
           changed_bytes, _read_sound(f".{name}"), 0.5)
      for name in CODECS),
]  # fmt: skip
KINDS = [*TABLES, *COLUMNS, *ARRAYS, *MEDIA]
