"""Data sets in shards: patterns and folders, parts of the rows, and states that are merged."""

import gc
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from sample_files import image_bytes, jsonl, write

import divprism as dp
from divprism.data.inputs import as_samples
from divprism.data.parts import Shard
from divprism.data.readers import joined_arrays, npy, read_arrays
from divprism.data.readers.natural_order import natural
from divprism.data.readers.shards import require_same_parts

ROWS = np.random.default_rng(5).normal(size=(40, 3)).astype(np.float32)
PROMPTS = np.random.default_rng(6).normal(size=(40, 2))
CUTS = [0, 7, 7, 30, 40]  # unequal, and one of them empty


def save_parts(folder, rows, name="part-{}.npy", cuts=CUTS):
    """Write consecutive rows to files that are numbered from 8, so that one has two digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (start, stop) in enumerate(pairwise(cuts), 8):
        np.save(folder / name.format(number), rows[start:stop])
    return folder


# --- patterns and folders of arrays


def with_a_gap(folder, name, numbers, rows):
    folder.mkdir(exist_ok=True)
    for part, number in enumerate(numbers):
        np.save(folder / name.format(number), rows[10 * part : 10 * part + 10])


@pytest.mark.parametrize(
    ("source", "prompts"),
    [("s", None), ("s/outputs-*.npy", "s/prompts-*.npy"), ("s/outputs-*.npy", "s")],
)
def test_shards_of_both_sides_that_differ_in_their_numbers_are_refused(source, prompts, tmp_path):
    with_a_gap(tmp_path / "s", "outputs-{:02}.npy", [9, 10, 12], ROWS)
    with_a_gap(tmp_path / "s", "prompts-{}.npy", [9, 10, 11], PROMPTS)
    given = prompts and tmp_path / prompts
    with pytest.raises(dp.DataError, match=r"number 3 .*outputs-12\.npy .*prompts-11\.npy"):
        dp.load(tmp_path / source, given)
    (tmp_path / "s" / "prompts-11.npy").rename(tmp_path / "s" / "prompts-12.npy")
    assert len(dp.load(tmp_path / source, given)) == 30


def test_shards_in_numbered_folders_and_with_names_pair_up_by_what_varies(tmp_path):
    for number in (1, 3):
        with_a_gap(tmp_path / f"part{number}", "x-512.npy", [0], ROWS)
    for number in (1, 2):
        with_a_gap(tmp_path / f"part{number}", "t-64.npy", [0], PROMPTS)
    with pytest.raises(dp.DataError, match="number 2 of the outputs"):
        dp.load(tmp_path / "part*/x-512.npy", tmp_path / "part*/t-64.npy")
    for text in "ab":
        (tmp_path / f"answers-{text}.jsonl").write_text('{"output": "one"}\n{"output": "two"}\n')
    for text in "ac":
        (tmp_path / f"questions-{text}.txt").write_text(f"{text} one\n{text} two\n")
    with pytest.raises(dp.DataError, match=r"answers-b\.jsonl .*questions-c\.txt"):
        dp.load(tmp_path / "answers-*.jsonl", tmp_path / "questions-*.txt")


def test_shards_cut_differently_pair_up_unless_one_is_missing(tmp_path):
    with_a_gap(tmp_path / "s", "outputs-{}.npy", [0, 1, 2, 3], ROWS)
    with_a_gap(tmp_path / "t", "prompts-{}.npy", [0, 1], PROMPTS.reshape(20, 4))
    for number in (0, 1):
        halves = np.load(tmp_path / "t" / f"prompts-{number}.npy").reshape(20, 2)
        np.save(tmp_path / "s" / f"prompts-{number}.npy", halves)
    assert np.array_equal(dp.load(tmp_path / "s").prompts, PROMPTS)
    (tmp_path / "s" / "prompts-1.npy").rename(tmp_path / "s" / "prompts-2.npy")
    with pytest.raises(dp.DataError, match="same numbers"):
        dp.load(tmp_path / "s")


@pytest.mark.parametrize("flag", ["labels", "weights"])
def test_shards_of_labels_and_weights_have_the_numbers_of_the_outputs(flag, tmp_path):
    with_a_gap(tmp_path / "s", "x-{}.npy", [0, 1, 3], ROWS)
    values = {"labels": np.arange(30) % 3, "weights": np.full(30, 1 / 30)}[flag]
    with_a_gap(tmp_path / "v", "v-{}.npy", [0, 1, 2], values)
    for source in ("s", "s/*.npy"):
        words = ("score", tmp_path / source, f"--{flag}", tmp_path / "v" / "*.npy", "-q")
        done = run(*words)
        assert done.returncode == 4
        assert b"x-3.npy" in done.stderr
        assert b"v-2.npy" in done.stderr


@pytest.mark.parametrize("source", ["shards/*.npy", "shards", "shards/part-*.npy", "sh*/*.npy"])
def test_shards_are_one_array_in_the_natural_order_of_their_names(source, tmp_path):
    save_parts(tmp_path / "shards", ROWS)
    samples = dp.load(tmp_path / source)
    np.testing.assert_array_equal(samples.outputs, ROWS)
    assert samples.outputs.dtype == ROWS.dtype and not samples.outputs.flags.writeable
    assert "4 shards as one data set, part-8.npy to part-11.npy" in samples.notes[0].text


def test_shards_of_outputs_and_prompts_pair_up_whatever_their_cuts(tmp_path):
    save_parts(tmp_path / "x", ROWS)
    save_parts(tmp_path / "t", PROMPTS, cuts=[0, 20, 40])
    whole = dp.evaluate(ROWS, PROMPTS, interval=None)
    for x, t in (("x/*.npy", "t/*.npy"), ("x", "t"), ("x", "t/*.npy")):
        result = dp.evaluate(tmp_path / x, tmp_path / t, interval=None)
        assert result.conditional_vendi == whole.conditional_vendi
    with pytest.raises(dp.DataError, match=r"40 outputs in .*x/\*.npy and 20 prompts in"):
        dp.load(tmp_path / "x/*.npy", tmp_path / "t/part-8.npy")


def test_a_folder_may_hold_the_shards_of_both_sides(tmp_path):
    save_parts(tmp_path, ROWS, "outputs-{}.npy")
    save_parts(tmp_path, PROMPTS, "prompts-{}.npy", [0, 39, 40])
    write(tmp_path, {"run.json": '{"seed": 3}', "notes.txt": "hello"})
    samples = dp.load(tmp_path)
    np.testing.assert_array_equal(samples.outputs, ROWS)
    np.testing.assert_array_equal(samples.prompts, PROMPTS)
    assert any("run.json: not read" in note.text for note in samples.notes)


def test_arrays_with_names_that_differ_in_more_than_a_number_are_not_joined(tmp_path):
    for name in ("train.npy", "test.npy"):
        np.save(tmp_path / name, ROWS)
    with pytest.raises(dp.DataError, match=r"different names \(test.npy and train.npy\).*pattern"):
        dp.load(tmp_path)
    assert len(dp.load(f"{tmp_path}/t*.npy").outputs) == 80  # a pattern is explicit


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    np.save(tmp_path / "run[1].npy", ROWS)
    np.save(tmp_path / "run1.npy", ROWS[:5])
    assert len(dp.load(tmp_path / "run[1].npy")) == 40
    assert len(dp.load(tmp_path / "run?.npy")) == 5


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (ROWS[:, :2], "2 values of float32 per row, but .*part-8.npy has 3 values of float32"),
        (ROWS.astype(float), "3 values of float64 per row"),
        (ROWS[:, 0], "single values of float32 per row"),
        (ROWS.reshape(20, 2, 3), "2 x 3 values of float32 per row"),
        (np.float32(3), "contains a single number"),
        (np.array([{}], dtype=object), "contains pickled objects"),
    ],
)
def test_a_shard_that_does_not_fit_is_refused_by_name(bad, words, tmp_path):
    save_parts(tmp_path, ROWS)
    np.save(tmp_path / "part-9.npy", bad, allow_pickle=True)
    for source in (tmp_path, f"{tmp_path}/*.npy"):
        with pytest.raises(dp.DataError, match=f"part-9.npy.*{words}"):
            dp.load(source)


def test_a_truncated_shard_is_refused_by_name(tmp_path):
    save_parts(tmp_path, ROWS)
    content = (tmp_path / "part-10.npy").read_bytes()
    (tmp_path / "part-10.npy").write_bytes(content[:-1])
    with pytest.raises(dp.DataError, match=r"part-10.npy is truncated"):
        dp.load(tmp_path)


@pytest.mark.parametrize("pattern", ["no*.npy", "no/*/x.npy", "a\0b/*", "*" * 300])
def test_a_pattern_that_matches_nothing_is_refused(pattern, tmp_path):
    with pytest.raises(dp.DataError, match=r"^no file matches .*\.$"):
        dp.load(f"{tmp_path}/{pattern}")


def test_hidden_and_unfinished_files_are_no_shards(tmp_path):
    save_parts(tmp_path, ROWS)
    np.save(tmp_path / ".part-1.npy", ROWS)
    (tmp_path / ".x.npy.partial").write_bytes(b"half")
    assert len(dp.load(tmp_path)) == len(dp.load(f"{tmp_path}/*.npy")) == 40


def test_links_out_of_the_folder_of_a_pattern_are_refused(tmp_path):
    np.save(tmp_path / "secret.npy", ROWS)
    folder = save_parts(tmp_path / "shards", ROWS)
    (folder / "part-12.npy").symlink_to(tmp_path / "secret.npy")
    for source in (folder, folder / "*.npy"):
        with pytest.raises(dp.DataError, match=r"part-12.npy leads to .*secret.npy, outside"):
            dp.load(source)
        assert len(dp.load(source, allow_outside=True)) == 80
    # The folder of this pattern is the one above, in which the link stays.
    assert len(dp.load(tmp_path / "shard?/*.npy")) == 80


def test_files_of_different_formats_are_not_one_data_set(tmp_path):
    save_parts(tmp_path, ROWS)
    write(tmp_path, {"part-1.jsonl": jsonl([{"output": "a"}]), "a.png": b"x", "b.png": b"x"})
    with pytest.raises(dp.DataError, match=r"part-1.jsonl and .*part-8.npy have different formats"):
        dp.load(f"{tmp_path}/part-*")
    with pytest.raises(dp.DataError, match=r"a.png is a single output"):
        dp.load(f"{tmp_path}/*.png")
    (tmp_path / "part-x").mkdir()
    with pytest.raises(dp.DataError, match=r"folders and files"):
        dp.load(f"{tmp_path}/part-*")
    with pytest.raises(dp.DataError, match=r"part-x is a folder without embedding.json"):
        dp.load(f"{tmp_path}/part-?")


def test_archives_and_strings_are_read_in_shards_too(tmp_path):
    for number in (1, 2):
        rows = slice(20 * number - 20, 20 * number)
        np.savez(tmp_path / f"{number}.npz", x=ROWS[rows], t=PROMPTS[rows])
        np.save(tmp_path / f"ids-{number}.npy", np.array(["a" * number] * 2))
    samples = dp.load(f"{tmp_path}/*.npz")
    np.testing.assert_array_equal(samples.outputs, ROWS)
    np.testing.assert_array_equal(samples.prompts, PROMPTS)
    assert read_arrays(f"{tmp_path}/ids-*.npy", "labels").tolist() == ["a", "a", "aa", "aa"]


def test_a_quoted_pattern_on_the_command_line_gives_the_scores_of_the_whole(tmp_path):
    save_parts(tmp_path / "x", ROWS)
    save_parts(tmp_path / "t", PROMPTS, cuts=[0, 20, 40])
    save_parts(tmp_path / "labels", np.arange(40) % 3)
    flags = ("--interval", "0", "--format", "json", "--labels", "labels/*.npy")
    done = run("score", "x/*.npy", "--prompts", "t/*.npy", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    whole = dp.evaluate(ROWS, PROMPTS, labels=np.arange(40) % 3, interval=None)
    scores = json.loads(done.stdout)["scores"]
    assert scores["cluster_vendi"]["value"] == whole.cluster_vendi
    assert scores["conditional_vendi"]["value"] == whole.conditional_vendi


# --- more rows than are read into memory


@pytest.fixture
def small_memory(monkeypatch, tmp_path):
    """Let 100 bytes be what is read into memory, and return the folder of temporary files."""
    monkeypatch.setattr(npy, "MAX_READ", 100)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(joined_arrays.tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("order", ["C", "F"])
def test_many_rows_stay_on_disk_and_leave_no_file(order, small_memory, tmp_path):
    parts = tmp_path / "shards"
    save_parts(parts, ROWS)
    np.save(parts / "part-10.npy", np.asarray(ROWS[7:30], order=order))
    samples = dp.load(parts)
    assert isinstance(samples.outputs, np.memmap)
    np.testing.assert_array_equal(samples.outputs, ROWS)
    kernel = dp.Gaussian(1.0)
    assert dp.rke(samples.outputs, kernel=kernel) == dp.rke(ROWS, kernel=kernel)
    part = samples.select(range(3, 9))
    assert len(os.listdir(small_memory)) == 1
    del samples
    gc.collect()
    np.testing.assert_array_equal(part.outputs, ROWS[3:9])  # a part keeps the file
    del part
    gc.collect()
    assert os.listdir(small_memory) == []


def test_a_disk_without_room_is_one_sentence_and_leaves_no_file(small_memory, tmp_path):
    save_parts(tmp_path / "shards", ROWS)

    def write_too_much(file):
        file.write(b"some")
        raise OSError(28, "No space left on device")

    with pytest.raises(dp.DataError, match=r"No space left.*; set TMPDIR"):
        joined_arrays.stored_rows((1,), np.dtype(float), write_too_much)
    assert os.listdir(small_memory) == []


# --- Dask arrays


def lazy(array, chunks):
    """Return a NumPy array as one of Dask."""
    return pytest.importorskip("dask.array").from_array(array, chunks=chunks)


def test_dask_arrays_give_the_scores_of_the_numpy_arrays():
    x, t = lazy(ROWS, (7, 2)), lazy(PROMPTS, (13, 1))
    expected = dp.evaluate(ROWS, PROMPTS, interval=None)
    for found in (
        dp.evaluate(x, t, interval=None),
        dp.evaluate(x, PROMPTS, interval=None),
        dp.evaluate(dp.Samples(x, t), interval=None),
        # Selected by a condition, so that the number of rows is not known before.
        dp.evaluate(x[x[:, 0] < 9], t[x[:, 0] < 9], interval=None),
    ):
        assert found.to_dict()["scores"] == expected.to_dict()["scores"]
    ids = np.arange(40) // 4
    kernel = dp.Categorical()
    by_ids = dp.evaluate(x, lazy(ids, 9), kernel_t=kernel, interval=None)
    assert by_ids.vendi == dp.evaluate(ROWS, ids, kernel_t=kernel, interval=None).vendi


def test_a_large_dask_array_stays_on_disk_and_leaves_no_file(small_memory):
    samples = as_samples(lazy(ROWS, (7, 2)), lazy(PROMPTS, (13, 1)), None)
    for side, expected in ((samples.outputs, ROWS), (samples.prompts, PROMPTS)):
        assert isinstance(side, np.memmap)
        np.testing.assert_array_equal(side, expected)
    del side, samples
    gc.collect()
    assert os.listdir(small_memory) == []


def test_what_a_dask_array_would_lose_is_refused():
    da = pytest.importorskip("dask.array")
    values = np.random.default_rng(0).normal(size=(12, 3))
    lazy = da.from_array(values, chunks=(5, 3))
    with pytest.raises(dp.DataError, match="masked"):
        dp.evaluate(da.ma.masked_greater(lazy, 0.5), kernel_x=dp.Gaussian(1.0))
    complex_inside = lazy.map_blocks(lambda block: block + 1j, dtype=np.float64)
    with pytest.raises(dp.DataError, match="real numbers"):
        dp.evaluate(complex_inside, kernel_x=dp.Gaussian(1.0))
    with pytest.raises(dp.DataError, match=r"`x\.compute\(\)`"):
        dp.vendi(lazy, kernel=dp.Gaussian(1.0))


def test_a_dask_array_that_fails_is_one_sentence(small_memory):
    def fail(block):
        raise RuntimeError("the disk of worker 3 is gone")

    def shrink(block):
        return block[:1]

    # With `meta`, so that Dask does not call the function to find out what it returns.
    broken = lazy(ROWS, (7, 3)).map_blocks(fail, dtype=ROWS.dtype, meta=ROWS[:0])
    with pytest.raises(dp.DataError, match=r"^`x` is a Dask array .*the disk of worker 3 is gone"):
        dp.evaluate(broken, PROMPTS)
    short = lazy(ROWS, (7, 3)).map_blocks(shrink, dtype=ROWS.dtype, meta=ROWS[:0])
    with pytest.raises(
        dp.DataError, match=r"`x` is a Dask array with a chunk of the shape \(1, 3\)"
    ):
        dp.evaluate(short, PROMPTS)
    assert os.listdir(small_memory) == []


def test_more_rows_than_the_disk_has_room_for_are_refused_before_they_are_copied(
    small_memory, tmp_path, monkeypatch
):
    parts = save_parts(tmp_path / "shards", ROWS)
    usage = shutil.disk_usage(tmp_path)._replace(free=ROWS.nbytes - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(dp.DataError, match=r"480 bytes do not fit into .*; set TMPDIR"):
        dp.load(parts)
    assert os.listdir(small_memory) == []


# --- tables


def test_a_pattern_of_tables_is_one_table(tmp_path):
    rows = [{"prompt": f"p{index % 2}", "output": f"o{index}"} for index in range(12)]
    write(tmp_path, {f"{10 - part}.jsonl": jsonl(rows[part::3]) for part in (2, 1, 0)})
    samples = dp.load(f"{tmp_path}/*.jsonl")
    expected = [row["output"] for part in (2, 1, 0) for row in rows[part::3]]
    assert [item.text for item in samples.outputs] == expected
    assert len(dp.load(f"{tmp_path}/*.jsonl", limit=5)) == 5


def test_tables_in_several_folders_may_hold_texts_but_name_no_files(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        row = {"prompt": "p", "output": f"text {name}"}
        files = {"texts.jsonl": jsonl([row]), "files.jsonl": jsonl([{"file_name": "0.png"}])}
        write(tmp_path / name, {**files, "0.png": image_bytes(seed)})
    assert [item.text for item in dp.load(tmp_path / "?/texts.jsonl").outputs] == [
        "text a",
        "text b",
    ]
    # Each has its own 0.png, so the first folder would have served for both.
    with pytest.raises(dp.DataError, match=r"names a file, and its table is one of several"):
        dp.load(tmp_path / "?/files.jsonl")


def test_a_folder_of_parquet_shards_is_one_table(tmp_path):
    table = pytest.importorskip("pyarrow").table
    parquet = pytest.importorskip("pyarrow.parquet")
    for number in (9, 10):
        texts = [f"{number}-{row}" for row in range(3)]
        columns = {"prompt": ["p"] * 3, "output": texts}
        parquet.write_table(table(columns), tmp_path / f"train-{number}-of-2.parquet")
    for source in (tmp_path, f"{tmp_path}/*.parquet"):
        samples = dp.load(source)
        assert [item.text for item in samples.outputs] == [
            *("9-0", "9-1", "9-2"),
            *("10-0", "10-1", "10-2"),
        ]
        assert "2 shards as one data set" in samples.notes[0].text
    parquet.write_table(table(columns), tmp_path / "test-1-of-1.parquet")
    with pytest.raises(dp.DataError, match=r"contains 3 tables"):
        dp.load(tmp_path)


# --- parts of the rows


@pytest.mark.parametrize(("n", "count"), [(1, 1), (7, 3), (16, 16), (1000, 7), (5, 5)])
def test_shards_of_rows_are_contiguous_and_of_nearly_equal_size(n, count):
    parts = [Shard(index, count).rows(n) for index in range(1, count + 1)]
    assert [row for part in parts for row in part] == list(range(n))
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "3", "3/", "a/b", "1/0", "-1/3", "1/3/5", "\u0661/\u0663"]
)
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(dp.ArgumentError, match=r"`shard` must be .* such as 3/16"):
        Shard.parse(text)


# --- embedding by several jobs


def write_answers(folder, n=50):
    """Write texts with repeated prompts, and one empty output; returns their file."""
    rows = [{"prompt": f"prompt {row % 7}", "output": f"answer {row % 45}"} for row in range(n)]
    path = folder / "answers.jsonl"
    path.write_bytes(jsonl([*rows, {"prompt": "prompt 0", "output": ""}]))
    return path


def run_all(*calls, cwd):
    """Run commands at the same time, and require that each succeeds."""
    with ThreadPoolExecutor(len(calls)) as threads:
        done = list(threads.map(lambda call: run(*call, cwd=cwd), calls))
    for result in done:
        assert result.returncode == 0, result.stderr
    return done


def test_jobs_that_share_a_cache_leave_nothing_to_embed(tmp_path, monkeypatch):
    source, cache = write_answers(tmp_path), tmp_path / "cache"
    call = ("embed", source, "--cache", cache, "--shard")
    done = run_all(*((*call, f"{part}/4") for part in range(1, 5)), cwd=tmp_path)
    assert done[0].stdout == b"cached: outputs (13, 256), prompts (13, 256)\n"
    assert run("cache", "verify", "--cache", cache).returncode == 0

    def refuse(*arguments):
        raise AssertionError("the model was called")

    monkeypatch.setattr(dp.WordLlama, "embed_batch", refuse)
    cached = dp.embed(dp.load(source), cache=cache)
    monkeypatch.undo()
    expected = dp.embed(dp.load(source), cache=False)
    np.testing.assert_array_equal(cached.outputs, expected.outputs)
    np.testing.assert_array_equal(cached.prompts, expected.prompts)


def test_folders_of_all_shards_are_read_as_the_whole(tmp_path):
    source = write_answers(tmp_path)
    call = ("embed", source, "--cache", tmp_path / "cache")
    jobs = [(*call, "--shard", f"{part}/11", "-o", f"v/{part}") for part in range(1, 12)]
    run_all((*call, "-o", "whole"), cwd=tmp_path)
    run_all(*jobs[:4], cwd=tmp_path)
    run_all(*jobs[4:], cwd=tmp_path)
    whole, parts = dp.load(tmp_path / "whole"), dp.load(tmp_path / "v/*")
    np.testing.assert_array_equal(parts.outputs, whole.outputs)
    np.testing.assert_array_equal(parts.prompts, whole.prompts)
    assert parts.skipped == whole.skipped == 1 and parts.embedders == whole.embedders
    assert parts.warnings == whole.warnings[:1]  # the other one is about all vectors together
    assert parts.given.outputs == tuple(
        replace(text, where=part.where)
        for text, part in zip(whole.given.outputs, parts.given.outputs, strict=True)
    )
    alone = dp.load(tmp_path / "v/3")
    assert "holds shard 3/11 alone" in str(alone.warnings[-1])
    (tmp_path / "v/2/embedding.json").rename(tmp_path / "moved.json")
    with pytest.raises(dp.DataError, match=r"2 is a folder without embedding.json"):
        dp.load(tmp_path / "v/*")


def test_shards_of_different_sources_get_a_warning(tmp_path):
    source = write_answers(tmp_path)
    shutil.copy(source, tmp_path / "other.jsonl")
    for part, name in (("1", source), ("2", tmp_path / "other.jsonl")):
        call = ("embed", name, "--no-cache", "--shard", f"{part}/2", "-o", tmp_path / "v" / part)
        assert run(*call).returncode == 0
    codes = [notice.code for notice in dp.load(tmp_path / "v/*").warnings]
    assert "shards-of-several-sources" in codes


def test_a_missing_doubled_or_foreign_shard_is_refused(tmp_path):
    source = write_answers(tmp_path)
    call = ("embed", source, "--cache", tmp_path / "cache")
    jobs = [(*call, "--shard", f"{part}/3", "-o", f"v/{part}") for part in (1, 2, 3)]
    run_all(*jobs, (*call, "-o", "v/all"), (*call, "--shard", "1/2", "-o", "v/half"), cwd=tmp_path)
    names = {
        "v/[13]": r"1 of 3 shards is missing beside .*v/1: 2\.",
        "v/*": r"v/1 holds shard 1/3, but .*v/all no shard",
        "v/[13]*f": r"no file matches",
        "v/[1h]*": r"v/1 holds shard 1/3, but .*v/half shard 1/2",
    }
    for name, words in names.items():
        with pytest.raises(dp.DataError, match=words):
            dp.load(tmp_path / name)
    shutil.copytree(tmp_path / "v/2", tmp_path / "v/22")
    with pytest.raises(
        dp.DataError, match=r"v/3 holds shard 3/3, but is number 3|22 holds shard 2"
    ):
        dp.load(tmp_path / "v/[123]*")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--shard", "5/4"), 2, "--shard must be a part and the number of parts, such as 3/16"),
        (("--shard", "1/51"), 2, "--shard must be one of at most 50 parts"),
        (("--no-cache",), 2, "vectors are not kept without a cache; give a folder"),
        (("--cache", "/dev/null/x"), 4, "cannot write vectors to the cache /dev/null/x"),
    ],
)
def test_what_keeps_no_vectors_is_refused(flags, code, words, tmp_path):
    done = run("embed", write_answers(tmp_path), "-q", *flags, cwd=tmp_path)
    assert done.returncode == code and words in done.stderr.decode()
    np.save(tmp_path / "x.npy", ROWS)
    assert b"there is nothing to embed" in run("embed", tmp_path / "x.npy").stderr


# --- states of independent jobs


WIDTHS = ("--bandwidth-x", "1.5", "--bandwidth-t", "0.7", "--num-features", "40")


@pytest.fixture
def pairs(tmp_path):
    """Return a folder with all rows, and with the same rows in five unequal shards."""
    np.savez(tmp_path / "all.npz", x=ROWS, t=PROMPTS)
    for number, (start, stop) in enumerate(pairwise([0, 1, 12, 13, 33, 40]), 8):
        np.savez(tmp_path / f"{number}.npz", x=ROWS[start:stop], t=PROMPTS[start:stop])
    return tmp_path


def make_states(folder, calls, *flags):
    """Run `divprism state` for some inputs, and return the names of the files."""
    jobs = []
    for number, call in enumerate(calls):
        jobs.append(("state", *call, *(flags or WIDTHS), "-o", f"state-{number}.npz", "-q"))
    run_all(*jobs, cwd=folder)
    return [job[-2] for job in jobs]


def merged(folder, *names):
    """Return the scores of `divprism merge` as JSON."""
    done = run("merge", *names, "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "calls",
    [
        [("all.npz",)],
        [("all.npz", "--shard", "1/2"), ("all.npz", "--shard", "2/2")],
        [("all.npz", "--shard", f"{part}/5") for part in range(1, 6)],
        [(f"{number}.npz",) for number in range(8, 13)],
        [("[89].npz",), ("1?.npz",)],
    ],
    ids=["one", "two parts", "five parts", "five unequal files", "two patterns"],
)
@pytest.mark.parametrize("order", [1, 2, "inf"])
def test_merged_states_are_one_metric_of_all_rows(calls, order, pairs):
    names = make_states(pairs, calls, *WIDTHS, "--order", order)
    metric = dp.Metric(dp.Gaussian(1.5), dp.Gaussian(0.7), num_features=40, order=float(order))
    metric.update(ROWS, PROMPTS)
    document = merged(pairs, *names)
    expected = metric.compute().to_dict()
    assert document["data"]["n"] == 40 and document["settings"] == expected["settings"]
    assert document["scores"].keys() == expected["scores"].keys()
    for name, score in expected["scores"].items():
        assert document["scores"][name]["value"] == pytest.approx(score["value"], rel=1e-12)


def test_exact_features_merge_without_prompts(tmp_path):
    save_parts(tmp_path, ROWS)
    calls = [(f"part-{number}.npy",) for number in (8, 10, 11)]
    names = make_states(tmp_path, calls, "--kernel-x", "cosine")
    value = merged(tmp_path, *names)["scores"]["vendi"]["value"]
    assert value == pytest.approx(float(dp.vendi(ROWS, kernel=dp.Cosine())), rel=1e-6)


def test_neither_the_order_nor_the_names_of_states_change_a_bit(pairs):
    names = make_states(pairs, [(f"{number}.npz",) for number in range(8, 13)])
    scores = [merged(pairs, *names)["scores"], merged(pairs, *reversed(names))["scores"]]
    for name, new in zip(names, "cbeda", strict=True):
        (pairs / name).rename(pairs / f"{new}.npz")
    scores.append(merged(pairs, "[a-e].npz")["scores"])
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--order", "2"), "the order"),
        (("--rng", "1"), "the rng"),
        (("--truncation", "3"), "the truncation"),
        (("--bandwidth-x", "2"), "the kernels"),
        (("--num-features", "41"), "the num_features"),
    ],
)
def test_states_of_other_settings_are_refused_by_both_names(flags, words, pairs):
    make_states(pairs, [("8.npz",)])
    (pairs / "state-0.npz").rename(pairs / "first.npz")
    make_states(pairs, [("9.npz",)], *WIDTHS, *flags)
    done = run("merge", "first.npz", "state-0.npz", cwd=pairs)
    text = done.stderr.decode()
    assert done.returncode == 4 and done.stdout == b""
    assert "first.npz" in text and "state-0.npz" in text and words in text
    assert len(text.splitlines()) == 1


def test_states_of_other_widths_or_sides_are_refused_by_both_names(pairs):
    np.savez(pairs / "wide.npz", x=PROMPTS, t=PROMPTS)
    np.save(pairs / "alone.npy", ROWS)
    make_states(pairs, [("8.npz",), ("wide.npz",)])
    alone = ("--bandwidth-x", "1.5", "--num-features", "40", "-o", "alone-state.npz")
    assert run("state", "alone.npy", *alone, cwd=pairs).returncode == 0
    for other, words in (("state-1.npz", "different widths"), ("alone-state.npz", "kernels")):
        done = run("merge", "state-0.npz", other, cwd=pairs)
        text = done.stderr.decode()
        assert done.returncode == 4 and len(text.splitlines()) == 1
        assert "state-0.npz" in text and other in text and words in text


def test_a_state_that_is_named_twice_is_counted_once_or_never(pairs):
    make_states(pairs, [("8.npz",), ("9.npz",)])
    shutil.copy(pairs / "state-0.npz", pairs / "copy.npz")
    for names in (("state-0.npz", "state-0.npz"), ("copy.npz", "state-1.npz", "state-0.npz")):
        done = run("merge", *names, cwd=pairs)
        assert done.returncode == 4 and b"hold the same state" in done.stderr


def test_what_is_no_state_is_refused_by_name(pairs):
    make_states(pairs, [("8.npz",)])
    (pairs / "empty.npz").touch()
    for other in ("9.npz", "empty.npz", "nowhere.npz", "no*.npz"):
        done = run("merge", "state-0.npz", other, cwd=pairs)
        assert done.returncode == 4 and other in done.stderr.decode()


def test_states_need_bandwidths_before_anything_is_embedded(tmp_path):
    source = write_answers(tmp_path)
    call = ("state", source, "--cache", tmp_path / "cache", "-o", tmp_path / "state.npz")
    for flags, words in (
        ((), "--bandwidth-x must be given, and be the same for all states"),
        (("--bandwidth-x", "1"), "--bandwidth-t must be given"),
        (("--kernel-x", "cosine", "--bandwidth-t", "1"), "both be Gaussian or neither"),
        (("--bandwidth-x", "1", "--kernel-t", "categorical"), "Categorical has none"),
    ):
        done = run(*call, *flags)
        assert done.returncode == 2 and words in done.stderr.decode()
    assert not (tmp_path / "cache").exists() and not (tmp_path / "state.npz").exists()


def test_bandwidths_of_an_earlier_result_serve_all_states(tmp_path):
    source = write_answers(tmp_path)
    flags = ("--cache", tmp_path / "cache")
    score = ("score", source, *flags, "--interval", 0, "--format", "json", "-o", "first.json")
    assert run(*score, cwd=tmp_path).returncode == 0
    calls = [(source, *flags, "--shard", f"{part}/2") for part in (1, 2)]
    names = make_states(tmp_path, calls, "--config", "first.json", "--num-features", 200)
    done = run("merge", *names, "-o", "merged.json", "--fail-under", "vendi=1000", cwd=tmp_path)
    assert done.returncode == 5
    first, last = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("first", "merged")
    )
    assert last["settings"]["bandwidth_x"] == first["settings"]["bandwidth_x"]
    for name in ("vendi", "conditional_vendi"):
        score = last["scores"][name]
        # Four standard errors of the random features.
        difference = abs(score["value"] - first["scores"][name]["value"])
        assert difference < 4 * score["standard_error"]


def test_a_state_is_of_one_model(tmp_path):
    rows = [{"model": f"m{row % 2}", "output": ROWS[row].tolist()} for row in range(40)]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    call = ("state", "o.jsonl", "--bandwidth-x", 1, "-o", "state.npz")
    done = run(*call, cwd=tmp_path)
    assert done.returncode == 2 and b"--model must be one of the models" in done.stderr
    assert run(*call, "--model", "m1", cwd=tmp_path).stdout == b"state.npz: 20 rows\n"


def test_long_numbers_come_before_letters_as_short_ones_do():
    names = ["5.npy", "10.npy", "1999999999999999999.npy", "a5.npy", "a10.npy"]
    backwards = [Path(name) for name in reversed(names)]
    assert [path.name for path in sorted(backwards, key=natural)] == names


@pytest.mark.parametrize("command", ["embed", "state"])
def test_an_empty_shard_is_refused_and_not_read_as_all_rows(command, tmp_path):
    write(tmp_path, {"in.jsonl": jsonl([{"output": f"text {row}"} for row in range(4)])})
    options = ["--config", tmp_path / "config.json"] * (command == "state")
    write(tmp_path, {"config.json": b'{"bandwidth_x": 1.0}'})
    target = tmp_path / "out.npz"
    done = run(command, tmp_path / "in.jsonl", "--shard", "", *options, "-o", target)
    assert done.returncode == 2 and b"--shard must be a part" in done.stderr
    assert not target.exists()


def test_shards_cut_differently_may_have_numbers_of_any_length():
    start = 10**20
    outputs = [Path(f"x-{start + number}.npy") for number in range(3)]
    prompts = [Path(f"t-{start + number}.npy") for number in range(2)]
    require_same_parts(outputs, prompts, "prompts")
    with pytest.raises(dp.DataError, match="shards pair up in their order"):
        require_same_parts(outputs[::2], prompts[:1] + outputs, "prompts")
