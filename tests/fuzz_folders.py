"""Kinds of folders for the fuzzer: each layout that is read, with files changed, moved or linked.

An input is JSON: a list of [type, path, content]. The type is "text", "base64", "link" (the
content is the target), "pipe" or "folder".
"""

import base64
import io
import json
import os

import numpy as np
from fuzz_changes import (
    CONTROL,
    HOSTILE,
    changed_bytes,
    changed_json,
    changed_lines,
    pick,
)
from fuzz_checks import Kind, check_samples, mostly_in_this_process
from fuzz_files import LM_EVAL, ROWS, table_bytes
from sample_files import image_bytes, jsonl

import divprism as dp

NAMES = [
    *("a.png", "A.PNG", "-0.png", "p-1.png", "p-01.png", "p_2.jpg", "1.png", "p.json", "x.csv"),
    *(".hidden", "__MACOSX", "metadata.csv", "metadata.jsonl", "embedding.json", "state.json"),
    *("dataset_dict.json", "samples_t_2024-01-01T00.jsonl", "\udcff.png", "a\nb-0.png", "."),
    *(f"{CONTROL}-0.png", f"{HOSTILE.replace('/', '')}-1.png", "x" * 250, " -0.png", "a b.png"),
    *("0\u0660.png", "9" * 100 + ".png", "\u00b2.png", "e\u0301-0.png", "\u00e9-1.png", "%s-0.png"),
]
TARGETS = ["/etc/passwd", ".", "..", "/dev/zero", "nowhere", "0.png", "/proc/self/environ", "/"]


def _image(seed):
    return base64.b64encode(image_bytes(seed, size=(8, 6))).decode()


def _array(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return base64.b64encode(buffer.getvalue()).decode()


def _numbered():
    return [["base64", f"{p}-{i}.png", _image(i)] for p in ("a cat", "dogs") for i in range(2)]


def _prompt_folders():
    return [["base64", f"{p}/{i}.png", _image(i)] for p in ("a cat", "dogs") for i in range(2)]


def _table_beside():
    rows = [{"file_name": f"{i}.png", "prompt": f"p{i % 2}"} for i in range(4)]
    images = [["base64", f"{i}.png", _image(i)] for i in range(4)]
    return [["text", "metadata.jsonl", jsonl(rows).decode()], *images]


def _geneval():
    entries = []
    for i in range(2):
        line = jsonl([{"tag": "colors", "prompt": f"p{i}"}]).decode()
        entries.append(["text", f"{i:05}/metadata.jsonl", line])
        entries += [["base64", f"{i:05}/samples/{j:04}.png", _image(j)] for j in range(2)]
    return entries


def _lm_eval():
    return [
        ["text", f"samples_{task}_2024-01-01T00-00-00.jsonl", jsonl(LM_EVAL).decode()]
        for task in ("one", "two")
    ]


def _datasets():
    state = {"_data_files": [{"filename": "data.arrow"}], "_split": None}
    content = base64.b64encode(table_bytes("arrow", ROWS)).decode()
    return [["text", "state.json", json.dumps(state)], ["base64", "data.arrow", content]]


def _shards():
    rows = np.arange(24, dtype=np.float32).reshape(12, 2)
    entries = []
    for index in range(3):
        part = slice(4 * index, 4 * index + 4)
        entries.append(["base64", f"outputs-{index}.npy", _array(rows[part])])
        entries.append(["base64", f"prompts-{index}.npy", _array(rows[part] % 5)])
    return entries


def _parquet_shards():
    content = base64.b64encode(table_bytes("parquet", ROWS)).decode()
    return [["base64", f"train-{index}-of-2.parquet", content] for index in range(2)]


def _embedded_shards():
    entries = []
    for index in (1, 2):
        for kind, name, data in _embedded():
            if name == "embedding.json":
                data = json.dumps(json.loads(data) | {"shard": f"{index}/2"})
            entries.append([kind, f"{index}/{name}", data])
    return entries


def _embedded():
    description = {
        "schema": 1,
        "source": "a.jsonl",
        "n": 6,
        "models": True,
        "skipped": 0,
        "skipped_models": [],
        "warnings": [{"code": "c", "text": "t", "severity": "warning"}],
        "embedders": [{"side": "x", "id": "wordllama"}, {"side": "t", "id": "wordllama"}],
    }
    pairs = [{"output": f"o{i}", "prompt": f"p{i % 2}", "model": "m"} for i in range(6)]
    return [
        ["text", "embedding.json", json.dumps(description)],
        ["text", "pairs.jsonl", jsonl(pairs).decode()],
        ["base64", "outputs.npy", _array(np.eye(6, 3, dtype=np.float32))],
        ["base64", "prompts.npy", _array(np.eye(6, 2, dtype=np.float32))],
    ]


def changed_folder(content, rng):
    """Return a folder in which one to three files are changed, moved, linked or added."""
    entries = json.loads(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        index = int(rng.integers(len(entries)))
        kind, path, data = entries[index]
        parent, slash, _ = path.rpartition("/")
        match rng.integers(0, 10):
            case 0:
                del entries[index]
            case 1 | 2:
                entries[index][1] = parent + slash + pick(NAMES, rng)
            case 3:
                entries.append([kind, parent + slash + pick(NAMES, rng), data])
            case 4:
                entries.append([kind, f"{pick(NAMES, rng)}/{pick(NAMES, rng)}", data])
            case 5:
                special = pick((["link", pick(TARGETS, rng)], ["pipe", ""], ["folder", ""]), rng)
                entries[index] = [special[0], path, special[1]]
            case _:
                entries[index] = _changed_file(kind, path, data, rng)
        if not entries:
            break
    return json.dumps(entries).encode()


def _changed_file(kind, path, data, rng):
    if kind == "base64":
        raw = changed_bytes(base64.b64decode(data), rng)
        return [kind, path, base64.b64encode(raw).decode()]
    if kind != "text":
        return [kind, path, data]
    change = changed_bytes
    if rng.random() < 0.8:
        change = changed_lines
        if path.endswith(".json"):
            change = changed_json
    try:
        raw = change(data.encode("utf-8", "surrogateescape"), rng)
    except (ValueError, RecursionError):  # an earlier change left no JSON
        return [kind, path, data]
    return ["base64", path, base64.b64encode(raw).decode()]


def write_folder(content, folder):
    """Write the files that an input lists, where the file system takes them."""
    entries = json.loads(content)
    # Links and pipes last, so that nothing is written through them.
    special = ("link", "pipe")
    for kind, path, data in sorted(entries, key=lambda entry: entry[0] in special):
        target = folder / path
        try:
            if _is_free(target, folder):
                _write(kind, target, data)
        except (OSError, ValueError):  # a name that no file system takes
            continue


def _is_free(target, folder):
    """Whether nothing is at a path yet, which is inside the folder even if links are followed."""
    parent = os.path.realpath(target.parent)
    is_inside = os.path.join(parent, "").startswith(os.path.join(os.path.realpath(folder), ""))
    return is_inside and not os.path.lexists(target)


def _write(kind, target, data):
    target.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "text":
            target.write_text(data, encoding="utf-8", errors="surrogateescape")
        case "base64":
            target.write_bytes(base64.b64decode(data))
        case "link":
            target.symlink_to(data)
        case "pipe":
            os.mkfifo(target)
        case "folder":
            target.mkdir()


def _check_shards(content, folder):
    """Half of the inputs as a folder, the others as what a pattern matches."""
    _check(content, folder, pattern="*" * (sum(content) % 2))


def _check(content, folder, pattern=""):
    place = folder / "data"
    place.mkdir()
    write_folder(content, place)
    options = {}
    # Some folders are also read as frames; which ones depends on the content alone.
    if sum(content) % 4 == 0:
        options["output_kind"] = "video"
    with mostly_in_this_process(content):
        samples = dp.load(place / pattern, **options)
    check_samples(samples)
    if isinstance(samples.outputs, tuple):
        for output in samples.outputs:
            output.digest()
            if output.modality != "text":
                output.content(4)


KINDS = [
    Kind(f"folder-{name}", "folders", lambda make=make: json.dumps(make()).encode(),
         changed_folder, check)
    for name, make, check in (
        ("numbered", _numbered, _check),
        ("prompts", _prompt_folders, _check),
        ("table", _table_beside, _check),
        ("geneval", _geneval, _check),
        ("lm-eval", _lm_eval, _check),
        ("datasets", _datasets, _check),
        ("embedded", _embedded, _check),
        ("shards", _shards, _check_shards),
        ("parquet-shards", _parquet_shards, _check_shards),
        ("embedded-shards", _embedded_shards, _check_shards),
    )
]  # fmt: skip
