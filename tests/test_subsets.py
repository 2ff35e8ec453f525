"""Subsets in the layout of their source: they load again, keep their bytes, and replace nothing."""

import gzip
import json
import os

import numpy as np
import pytest
from command_line import run
from sample_files import ANSWERS, image_bytes, jsonl, write

import divprism as dp
from divprism.data.items import Audio
from divprism.data.subsets import layout_of, rows_in, write_subset
from divprism.errors import ArgumentError, DataError

TEXTS = [*ANSWERS, "A line\nbreak, and a comma", 'A "quoted" word', "Ünïcödé 中文", "last"]
ROWS = [{"prompt": f"prompt {row // 2}", "output": text} for row, text in enumerate(TEXTS)]


def written(source, positions, target, **fields):
    """Write some outputs of a source, and return them as `load` reads them again."""
    samples = dp.load(source, **fields)
    write_subset(source, samples, positions, target)
    return samples.select(positions), dp.load(target, **fields)


def labels(side):
    return [item.label for item in side]


def same(expected, again):
    return labels(expected.outputs) == labels(again.outputs) and (
        labels(expected.prompts) == labels(again.prompts)
    )


# --- tables


def test_lines_of_jsonl_are_copied_byte_by_byte(tmp_path):
    lines = [
        b'{"prompt": "a",  "output": "one"   }\n',
        b"\n",
        b'{"output":"zw\\u00e9i","prompt":"b","z":[1e2]}\r\n',
        b'{"prompt": "c", "output": ""}\n',
        b'{"prompt": "d", "output": "four", "extra": {"k": 1.50}}',
    ]
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    samples = dp.load(tmp_path / "in.jsonl")
    assert samples.rows == (0, 1, 3)  # the empty output counts as a row, the empty line does not
    write_subset(tmp_path / "in.jsonl", samples, [1, 2], tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == lines[2] + lines[4] + b"\n"
    write_subset(tmp_path / "in.jsonl", samples, [0], tmp_path / "out.jsonl.gz")
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == lines[0]


def test_rows_of_csv_are_copied_with_their_header(tmp_path):
    text = 'prompt,output\na,"one, ""two""\nthree"\n\nb,four\nc,"five\n\nsix"\n'
    (tmp_path / "in.csv").write_text(text)
    expected, again = written(tmp_path / "in.csv", [0, 2], tmp_path / "out.csv")
    assert same(expected, again)
    lines = 'prompt,output\na,"one, ""two""\nthree"\nc,"five\n\nsix"\n'
    assert (tmp_path / "out.csv").read_text() == lines


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".json", ".parquet", ".arrow"])
def test_every_table_loads_again_as_what_was_chosen(tmp_path, suffix):
    import pandas
    import pyarrow as pa

    frame = pandas.DataFrame(ROWS)
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    if suffix == ".jsonl":
        source.write_bytes(jsonl(ROWS))
    elif suffix in (".csv", ".tsv"):
        frame.to_csv(source, index=False, sep={".csv": ",", ".tsv": "\t"}[suffix])
    elif suffix == ".json":
        source.write_text(json.dumps(ROWS))
    elif suffix == ".parquet":
        frame.to_parquet(source)
    else:
        table = pa.Table.from_pylist(ROWS)
        with pa.ipc.new_stream(source, table.schema) as stream:
            stream.write_table(table)
    expected, again = written(source, [1, 4, 6], target)
    assert same(expected, again)
    assert len(again) == 3


@pytest.mark.parametrize("several", [False, True])
def test_half_a_surrogate_pair_survives(tmp_path, several):
    rows = [{"prompt": "a", "output": "one \ud83d", "id": "\ud83d"}, {"prompt": "b", "output": "é"}]
    if several:
        rows[0]["outputs"] = [rows[0].pop("output"), "two"]
        rows[1]["outputs"] = [rows[1].pop("output")]
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    if several:
        target = target.with_suffix(".jsonl")
    source.write_text(json.dumps(rows))
    expected, again = written(source, [0, 1], target)
    assert same(expected, again)


def test_texts_in_memory_are_not_said_to_be_in_files(tmp_path):
    chosen = dp.select(["one", "two"], ["a", "b"], k=1, embedder_x=codes, embedder_t=codes)
    [note] = chosen.write(tmp_path / "out.jsonl")
    assert note.text.endswith("because the source is not one file or folder")


def codes(texts):
    return np.eye(2)[: len(texts)]


def test_records_with_several_outputs_become_lines_of_their_own(tmp_path):
    rows = [{"prompt": "a", "outputs": ["one", "two"]}, {"prompt": "b", "outputs": ["three"]}]
    write(tmp_path, {"in.jsonl": jsonl(rows)})
    expected, again = written(tmp_path / "in.jsonl", [1, 2], tmp_path / "out.jsonl")
    assert same(expected, again)


def test_prompts_from_another_file_are_written_with_the_outputs(tmp_path):
    write(
        tmp_path,
        {"in.jsonl": jsonl([{"output": text} for text in TEXTS[:4]]), "p.txt": "a\na\nb\nb\n"},
    )
    samples = dp.load(tmp_path / "in.jsonl", tmp_path / "p.txt")
    layout = layout_of(tmp_path / "in.jsonl", samples, joined=True)
    notes = layout.write([0, 3], tmp_path / "out.jsonl")
    assert same(samples.select([0, 3]), dp.load(tmp_path / "out.jsonl"))
    assert "prompts and outputs are in different files" in notes[0]


# --- arrays


def test_arrays_are_written_with_their_prompts_beside(tmp_path):
    x, t = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32), np.arange(6) // 2
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "t.npy", t)
    np.savez(tmp_path / "both.npz", outputs=x, prompts=t)
    samples = dp.load(tmp_path / "x.npy", tmp_path / "t.npy")
    layout = layout_of(tmp_path / "x.npy", samples, joined=True)
    layout.check(tmp_path / "sub.npy")
    layout.write([1, 4], tmp_path / "sub.npy")
    again = dp.load(tmp_path / "sub.npy", tmp_path / "sub-prompts.npy")
    assert (again.outputs == x[[1, 4]]).all()
    assert again.outputs.dtype == np.float32
    assert (again.prompts == t[[1, 4]]).all()
    _, again = written(tmp_path / "both.npz", [0, 5], tmp_path / "sub.npz")
    assert (again.outputs == x[[0, 5]]).all()
    assert (again.prompts == t[[0, 5]]).all()


# --- folders


def folder_of_images(folder, names):
    write(folder, {name: image_bytes(seed) for seed, name in enumerate(names)})
    return folder


def test_a_folder_with_a_table_keeps_its_names_and_its_lines(tmp_path):
    names = ["img/a.png", "img/b.png", "c.png", "d.png"]
    source = folder_of_images(tmp_path / "in", names)
    rows = [
        {"file_name": name, "prompt": name[-5], "n": number} for number, name in enumerate(names)
    ]
    write(source, {"metadata.jsonl": jsonl(rows)})
    expected, again = written(source, [1, 2], tmp_path / "out")
    assert [os.path.relpath(label, source) for label in labels(expected.outputs)] == [
        os.path.relpath(label, tmp_path / "out") for label in labels(again.outputs)
    ]
    assert [item.digest() for item in expected.outputs] == [item.digest() for item in again.outputs]
    kept = (tmp_path / "out" / "metadata.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in kept] == [1, 2]
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.png")) == ["b.png", "c.png"]


def test_a_folder_per_prompt_stays_one(tmp_path):
    names = [f"{prompt}/{index}.png" for prompt in ("a dog", "a cat") for index in range(3)]
    source = folder_of_images(tmp_path / "in", names)
    expected, again = written(source, [0, 2, 4], tmp_path / "out")
    assert labels(expected.prompts) == labels(again.prompts)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a dog", "a cat"}


def test_prompts_in_names_get_a_table(tmp_path):
    names = [f"{prompt}-{index}.png" for prompt in ("a dog", "a cat") for index in range(3)]
    source = folder_of_images(tmp_path / "in", names)
    expected, again = written(source, [0, 5], tmp_path / "out")  # too few names to see a pattern
    assert labels(expected.prompts) == labels(again.prompts)


def test_prompts_joined_from_elsewhere_are_written_into_the_folder(tmp_path):
    source = folder_of_images(tmp_path / "in", ["img/a.png", "img/b.png", "img/c.png"])
    rows = [{"file_name": f"img/{name}.png", "prompt_id": name} for name in "abc"]
    prompts = [{"prompt_id": name, "prompt": f"prompt {name}"} for name in "abc"]
    write(source, {"metadata.jsonl": jsonl(rows)})
    write(tmp_path, {"prompts.jsonl": jsonl(prompts)})
    samples = dp.load(source, tmp_path / "prompts.jsonl")
    write_subset(source, samples, [0, 2], tmp_path / "out", joined=True)
    assert labels(dp.load(tmp_path / "out").prompts) == ["prompt a", "prompt c"]


def test_folders_of_geneval_keep_their_prompts(tmp_path):
    names = [f"{number:05}/samples/{index}.png" for number in range(3) for index in range(2)]
    source = folder_of_images(tmp_path / "in", names)
    for number in range(3):
        line = jsonl([{"prompt": f"prompt {number}"}])
        write(source, {f"{number:05}/metadata.jsonl": line})
    expected, again = written(source, [1, 4], tmp_path / "out")
    assert labels(expected.prompts) == labels(again.prompts) == ["prompt 0", "prompt 2"]


def test_folders_of_frames_are_copied_whole(tmp_path):
    names = [f"{video}/{frame}.png" for video in ("one", "two", "three") for frame in range(2)]
    source = folder_of_images(tmp_path / "in", names)
    expected, again = written(source, [0, 2], tmp_path / "out", output_kind="video")
    assert [item.digest() for item in expected.outputs] == [item.digest() for item in again.outputs]


def test_a_table_beside_its_images_becomes_a_folder(tmp_path):
    source = folder_of_images(tmp_path / "in", ["a.png", "b.png", "c.png"])
    rows = [{"file_name": f"{name}.png", "prompt": name} for name in "abc"]
    write(source, {"list.jsonl": jsonl(rows)})
    samples = dp.load(source / "list.jsonl")
    write_subset(source / "list.jsonl", samples, [2], tmp_path / "out")
    assert labels(dp.load(tmp_path / "out").prompts) == ["c"]


# --- refusals


def refused(source, target, message, error=ArgumentError):
    samples = dp.load(source)
    with pytest.raises(error, match=message):
        write_subset(source, samples, [0], target)


def test_nothing_is_replaced_and_nothing_written_into_the_source(tmp_path):
    source = folder_of_images(tmp_path / "in", ["x/a.png", "x/b.png", "y/c.png"])
    write(tmp_path, {"in.jsonl": jsonl(ROWS), "old.jsonl": b"mine"})
    refused(tmp_path / "in.jsonl", tmp_path / "old.jsonl", "exists, and nothing is replaced")
    refused(tmp_path / "in.jsonl", tmp_path / "in.jsonl", "exists, and nothing is replaced")
    os.symlink(tmp_path / "nowhere.jsonl", tmp_path / "link.jsonl")
    refused(tmp_path / "in.jsonl", tmp_path / "link.jsonl", "exists, and nothing is replaced")
    refused(tmp_path / "in.jsonl", tmp_path / "out.csv", r"is written as \.jsonl or \.jsonl\.gz")
    refused(tmp_path / "in.jsonl", tmp_path / "no" / "out.jsonl", "there is no folder", DataError)
    refused(source, source / "out", "inside of the source")
    refused(source, source / "x" / "out", "inside of the source")
    os.symlink(source, tmp_path / "alias")
    refused(source, tmp_path / "alias" / "out", "inside of the source")
    assert (tmp_path / "old.jsonl").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere.jsonl").exists()
    assert sorted(path.name for path in source.iterdir()) == ["x", "y"]


def test_links_out_of_the_source_are_not_copied(tmp_path):
    source = folder_of_images(tmp_path / "in", ["a.png", "b.png"])
    write(tmp_path, {"secret.png": image_bytes(9)})
    rows = [{"file_name": name, "prompt": "p"} for name in ("a.png", "b.png", "c.png")]
    os.symlink(tmp_path / "secret.png", source / "c.png")
    write(source, {"metadata.jsonl": jsonl(rows)})
    samples = dp.load(source, allow_outside=True)
    with pytest.raises(DataError, match="a link out of the source"):
        write_subset(source, samples, [2], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_does_not_get_the_name_of_a_file(tmp_path):
    source = folder_of_images(tmp_path / "in", ["a.png", "b.png"])
    write(source, {"all.jsonl": jsonl([{"file_name": "a.png"}, {"file_name": "b.png"}])})
    refused(source / "all.jsonl", tmp_path / "out.jsonl", "written as a folder, .* end in .jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_failure_leaves_nothing_behind(tmp_path):
    source = folder_of_images(tmp_path / "in", ["x/a.png", "x/b.png", "y/c.png"])
    samples = dp.load(source)
    (source / "x" / "b.png").unlink()
    with pytest.raises(DataError, match="cannot read"):
        write_subset(source, samples, [0, 1], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


# --- the command


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Vectors in JSONL: nothing has to be embedded."""
    folder = tmp_path_factory.mktemp("select")
    rng = np.random.default_rng(1)
    rows = []
    for row in range(30):
        vector = rng.normal(size=3).round(4).tolist()
        rows.append({"id": row, "prompt_embedding": [row // 10, 1.0], "embedding": vector})
        rows[-1] |= {"model": "ab"[row % 2], "judge": round(rng.uniform(), 3)}
    write(folder, {"in.jsonl": jsonl(rows)})
    return folder


FIELDS = ("--output-field", "embedding", "--prompt-field", "prompt_embedding")


def test_the_command_prints_what_the_subset_scores_and_writes_it(vectors, tmp_path):
    target = tmp_path / "out.jsonl"
    done = run("select", vectors / "in.jsonl", *FIELDS, "-k", 5, "-o", target)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "5 of 30 outputs, chosen by vendi"
    assert lines[1].split() == ["subset", "outputs", "vendi"]
    assert [line.split()[0] for line in lines[2:5]] == ["chosen", "random", "all"]
    expected = dp.select(
        str(vectors / "in.jsonl"), k=5, output="embedding", prompt="prompt_embedding"
    )
    ids = [json.loads(line)["id"] for line in target.read_text().splitlines()]
    assert ids == sorted(expected.indices)
    assert b"5 records of" in done.stderr
    again = run("select", vectors / "in.jsonl", *FIELDS, "-k", 5, "-o", target)
    assert again.returncode == 2
    assert b"nothing is replaced" in again.stderr


def test_json_has_the_rows_and_a_result_can_be_kept_or_dropped(vectors, tmp_path):
    first = run("select", vectors / "in.jsonl", *FIELDS, "-k", 4, "--format", "json", "-q")
    document = json.loads(first.stdout)
    assert len(document["indices"]) == 4
    assert document["settings"]["bandwidth_x"] > 0
    (tmp_path / "first.json").write_bytes(first.stdout)
    drop = run(
        "select", vectors / "in.jsonl", *FIELDS, "-k", 4, "--drop", tmp_path / "first.json",
        "--format", "json", "-q",
    )  # fmt: skip
    assert not set(json.loads(drop.stdout)["indices"]) & set(document["indices"])
    (tmp_path / "rows.txt").write_text("3\n7\n")
    keep = run(
        "select", vectors / "in.jsonl", *FIELDS, "-k", 4, "--keep", tmp_path / "rows.txt",
        "--per", "model", "--quality-field", "judge", "--format", "json", "-q",
    )  # fmt: skip
    document = json.loads(keep.stdout)
    assert {3, 7} <= set(document["indices"])
    assert [entry["chosen"] for entry in document["counts"]["models"]] == [4, 4]
    assert document["quality"]["subset"] > 0


@pytest.mark.parametrize("flag", ["--keep", "--drop"])
def test_a_plot_does_not_replace_the_file_with_rows(vectors, tmp_path, flag):
    rows = tmp_path / "rows.png"
    rows.write_text("1\n")
    done = run("select", vectors / "in.jsonl", *FIELDS, "-k", 2, flag, rows, "--plot", rows)
    assert done.returncode == 2 and b"what it is made from" in done.stderr
    assert rows.read_text() == "1\n"


def test_outputs_can_be_kept_by_their_text_or_file(tmp_path):
    source = folder_of_images(tmp_path / "in", ["p/a.png", "p/b.png", "q/c.png"])
    (tmp_path / "keep.txt").write_text("b.png\n")
    done = run("select", source, "-k", 1, "--keep", tmp_path / "keep.txt", "--format", "json", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["indices"] == [1]
    (tmp_path / "keep.txt").write_text("nobody.png\n")
    done = run("select", source, "-k", 1, "--keep", tmp_path / "keep.txt", "-q")
    assert done.returncode == 4
    assert b"no output is nobody.png" in done.stderr


def test_lines_hold_what_the_samples_hold_and_the_note_names_it(tmp_path):
    outputs, prompts = ["one", "two", "three"], ["a", "a", "b"]
    rated = dp.Samples(outputs, prompts, ["m"] * 3, quality=[0.5, 1, 0])
    [note] = write_subset(None, rated, [0, 2], tmp_path / "rated.jsonl")
    assert "lines of model, prompt, output and quality, because" in note.text
    again = dp.load(tmp_path / "rated.jsonl", quality_field="quality")
    assert again.quality.tolist() == [0.5, 0] and again.models == ("m", "m")
    [note] = write_subset(None, dp.Samples(outputs), [1], tmp_path / "plain.jsonl")
    assert "lines of output, because" in note.text
    assert (tmp_path / "plain.jsonl").read_bytes() == b'{"output": "two"}\n'


def test_sounds_can_be_kept_by_the_names_of_their_files(tmp_path):
    names = ["rain.wav", "wind.wav"]
    samples = dp.Samples(tuple(Audio(tmp_path / name) for name in names))
    for content in ("wind.wav", str(tmp_path / "wind.wav")):
        (tmp_path / "keep.txt").write_text(f"{content}\n")
        assert rows_in(tmp_path / "keep.txt", "keep", samples) == [1]


COMMAND_REFUSALS = [
    ((), b"--k must be the number of outputs"),
    (("-k", 3, "--per", "group"), b"--per must be prompt or model"),
    (("-k", 3, "--order", 17), b"--order must be from 0.1 to 16, or inf"),
    (("-k", 3, "--quality-field", "nothing"), b"has no field 'nothing' (--quality-field)"),
    (("-k", 3, "--quality-field", "model"), b"has a quality that is no number, a,"),
    (("-k", 3, "--by", "cluster_rke"), b"--by must be one of vendi"),
]


@pytest.mark.parametrize(("flags", "message"), COMMAND_REFUSALS)
def test_refusals_are_in_flags(vectors, flags, message):
    done = run("select", vectors / "in.jsonl", *FIELDS, *flags, "-q")
    assert done.returncode in (2, 4)
    assert message in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_result_writes_itself_in_the_layout_of_what_it_was_given(tmp_path):
    rows = [{"id": row, "embedding": [float(row), 1.0]} for row in range(6)]
    write(tmp_path, {"in.jsonl": jsonl(rows)})
    chosen = dp.select(str(tmp_path / "in.jsonl"), k=2, output="embedding")
    notes = chosen.write(tmp_path / "out.jsonl")
    ids = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert ids == sorted(chosen.indices)
    assert notes[0].code == "subset-written"
    loaded = dp.select(dp.load(tmp_path / "in.jsonl", output_field="embedding"), k=2)
    loaded.write(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    in_memory = dp.select(np.eye(4), k=2)
    in_memory.write(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["outputs"].shape == (2, 4)
