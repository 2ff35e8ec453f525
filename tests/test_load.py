"""Every supported layout, and the pairs that `load` reads from it."""

import csv
import io
import json
import random
import sys
import types

import numpy as np
import pytest
from sample_files import ANSWERS, PROMPTS, image_bytes, jsonl, records, write, write_video

import divprism as dp
from divprism.data.items import Image, Video
from divprism.data.items import texts as text_items

PAIRS = [
    (prompt, answer)
    for prompt, two in zip(PROMPTS, (ANSWERS[:2], ANSWERS[2:]), strict=True)
    for answer in two
]


def texts(samples):
    return [
        (prompt.text, output.text)
        for prompt, output in zip(samples.prompts, samples.outputs, strict=True)
    ]


def separated(rows, delimiter):
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def parquet(rows):
    import pyarrow
    from pyarrow import parquet as module

    buffer = io.BytesIO()
    module.write_table(pyarrow.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


ROWS = records()
GROUPED = [
    {"instruction": prompt, "generations": ANSWERS[2 * i : 2 * i + 2]}
    for i, prompt in enumerate(PROMPTS)
]
CHAT = [
    {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "completion": [{"role": "assistant", "content": row["output"]}],
    }
    for row in ROWS
]
LM_EVAL_OLD = [
    {
        "doc_id": i,
        "doc": {},
        "arguments": [[prompt, {"until": ["."]}]],
        "resps": [ANSWERS[2 * i : 2 * i + 2]],
        "target": "",
    }
    for i, prompt in enumerate(PROMPTS)
]
LM_EVAL = [
    row | {"arguments": {"gen_args_0": {"arg_0": row["arguments"][0][0], "arg_1": {}}}}
    for row in LM_EVAL_OLD
]
TABLES = {
    "outputs.jsonl": jsonl(ROWS),
    "outputs.jsonl.gz": jsonl(ROWS),
    "windows.jsonl": b"\xef\xbb\xbf" + jsonl(ROWS).replace(b"\n", b"\r\n"),
    "list.json": json.dumps(ROWS),
    "named.json": json.dumps({"data": ROWS}),
    "outputs.csv": separated(ROWS, ","),
    "outputs.csv.gz": separated(ROWS, ","),
    "outputs.tsv": separated(ROWS, "\t"),
    "outputs.parquet": parquet(ROWS),
    "grouped.jsonl": jsonl(GROUPED),
    "grouped.parquet": parquet(GROUPED),
    "chat.jsonl": jsonl(CHAT),
    "samples_task_2026-01-02T03-04-05.678.jsonl": jsonl(LM_EVAL),
    "samples_old.jsonl": jsonl(LM_EVAL_OLD),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_gives_the_same_pairs(name, tmp_path):
    write(tmp_path, {name: TABLES[name]})
    assert texts(dp.load(tmp_path / name)) == PAIRS
    samples = dp.load(tmp_path)  # the only table of a folder
    assert texts(samples) == PAIRS
    assert "outputs from " in samples.notes[-1].text


def test_a_datasets_folder(tmp_path):
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(str(tmp_path / "flat"))
    assert texts(dp.load(tmp_path / "flat")) == PAIRS
    datasets.DatasetDict({"test": whole}).save_to_disk(str(tmp_path / "one"))
    assert texts(dp.load(tmp_path / "one")) == PAIRS
    datasets.DatasetDict({"test": whole, "train": whole}).save_to_disk(str(tmp_path / "two"))
    assert texts(dp.load(tmp_path / "two" / "train")) == PAIRS
    with pytest.raises(dp.DataError, match=r"contains the splits test, train; name one of them"):
        dp.load(tmp_path / "two")


def test_images_inside_a_table(tmp_path):
    rows = [
        {"prompt": PROMPTS[i % 2], "image": {"bytes": image_bytes(i), "path": None}}
        for i in range(4)
    ]
    write(tmp_path, {"a.parquet": parquet(rows)})
    samples = dp.load(tmp_path / "a.parquet")
    assert [type(output) for output in samples.outputs] == [Image] * 4
    assert samples.outputs[3].content().size == (40, 30)


def test_fields_are_recognised_by_name_or_given(tmp_path):
    rows = [
        {"question": "q", "better": "a", "worse": "b", "meta": {"who": "m", "t": 0.5}}
        for _ in range(2)
    ]
    write(tmp_path, {"a.jsonl": jsonl(rows)})
    with pytest.raises(
        dp.DataError,
        match=r"known to hold outputs \(it has question, better, worse, meta\); "
        r"name one with `output_field`",
    ):
        dp.load(tmp_path / "a.jsonl")
    samples = dp.load(
        tmp_path / "a.jsonl", output_field="better,worse", model_field="meta.who,meta.t"
    )
    assert texts(samples) == [("q", "a"), ("q", "b")] * 2
    assert samples.models == ("m / 0.5",) * 4
    with pytest.raises(
        dp.DataError, match=r"has no field 'best' \(`output_field`\); it has question"
    ):
        dp.load(tmp_path / "a.jsonl", output_field="best")
    with pytest.raises(dp.DataError, match=r"has no field 'meta.whom' .*; meta has who, t\."):
        dp.load(tmp_path / "a.jsonl", output_field="better", model_field="meta.whom")
    with pytest.raises(
        dp.ArgumentError,
        match=r"`output_kind` must be one of text, image, video, audio, embedding; got 'sound'",
    ):
        dp.load(tmp_path / "a.jsonl", output_kind="sound")


def test_field_paths_lead_into_objects_and_lists(tmp_path):
    rows = [
        {"q": f"q{i}", "choices": [{"message": {"content": f"a{i}"}}, {"message": {"content": ""}}]}
        for i in range(2)
    ]
    write(tmp_path, {"a.jsonl": jsonl(rows)})
    paths = {"output_field": "choices.0.message.content", "prompt_field": "q"}
    assert texts(dp.load(tmp_path / "a.jsonl", **paths)) == [("q0", "a0"), ("q1", "a1")]
    paths["output_field"] = "choices.-2.message.content"
    assert texts(dp.load(tmp_path / "a.jsonl", **paths)) == [("q0", "a0"), ("q1", "a1")]
    for path in ("choices.2.message", "choices.-3.message", "choices.x", "choices.0.text", "q.0"):
        with pytest.raises(dp.DataError, match=rf"no field '{path}' \(`output_field`\)"):
            dp.load(tmp_path / "a.jsonl", output_field=path)


def test_the_error_for_a_list_of_prompts_explains_how_to_score_it(tmp_path):
    write(tmp_path, {"p.jsonl": jsonl({"prompt": text} for text in PROMPTS)})
    with pytest.raises(
        dp.DataError, match=r"To score the prompts themselves, pass `output_field='prompt'`"
    ):
        dp.load(tmp_path / "p.jsonl")
    samples = dp.load(tmp_path / "p.jsonl", output_field="prompt")
    assert [output.text for output in samples.outputs] == PROMPTS
    assert samples.prompts is None


WRONG_VALUES = {
    "an object": (
        {"prompt": "p", "output": {"label": 1}},
        r"line 1 of .* has a dict where a text is expected, in the field 'output'; name another "
        r"field, or a part of it as 'output\.NAME', with `output_field`",
    ),
    "a list of prompts": (
        {"prompt": ["p", "q"], "output": "a"},
        r"line 1 of .* has 2 prompts in one field .*, in the field 'prompt'; .* `prompt_field`",
    ),
    "a number as a file": (
        {"prompt": "p", "image": 7},
        r"line 1 of .* has a int where a file name is expected, in the field 'image'",
    ),
    "a URL": (
        {"prompt": "p", "image": "https://example.org/a.png"},
        r"line 1 of .* names https://example\.org/a\.png, in the field 'image': nothing is "
        r"downloaded",
    ),
}


@pytest.mark.parametrize("row, message", WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_a_wrong_value_names_its_line_its_field_and_the_way_out(row, message, tmp_path):
    write(tmp_path, {"a.jsonl": jsonl([row])})
    with pytest.raises(dp.DataError, match=message):
        dp.load(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "source, message",
    [
        ("https://example.org/a.jsonl", r"https://example\.org/a\.jsonl is a URL, and nothing is"),
        ("hf://datasets/owner/name", r"is a URL, and nothing is downloaded"),
        ("owner/name", r"no file or folder owner/name, .* datasets\.load_dataset and pass it"),
    ],
)
def test_nothing_is_downloaded(source, message, tmp_path):
    with pytest.raises(dp.DataError, match=message):
        dp.load(source)
    with pytest.raises(dp.DataError, match=message):
        dp.evaluate(source)
    write(tmp_path, {"a.jsonl": jsonl(ROWS)})
    with pytest.raises(dp.DataError, match=message):
        dp.load(tmp_path / "a.jsonl", source)


def test_urls_of_images_are_not_scored_as_texts():
    with pytest.raises(dp.DataError, match=r"all outputs are URLs of images, .*first: https://a/0"):
        dp.evaluate([f"https://a/{number}.png" for number in range(3)])


def test_embeddings_inside_a_table(tmp_path):
    write(
        tmp_path, {"e.jsonl": jsonl({"prompt": "p", "embedding": [float(i), 1]} for i in range(3))}
    )
    np.testing.assert_array_equal(dp.load(tmp_path / "e.jsonl").outputs, [[0, 1], [1, 1], [2, 1]])
    write(tmp_path, {"e.jsonl": jsonl({"prompt": "p", "embedding": [1.0] * i} for i in (2, 3))})
    with pytest.raises(dp.DataError, match=r"have different lengths: 2, 3"):
        dp.load(tmp_path / "e.jsonl")


IMAGES = {f"{i}.png": image_bytes(i) for i in range(4)}
CAPTIONED = [{"file_name": f"{i}.png", "text": PROMPTS[i // 2]} for i in range(4)]
FOLDERS = {
    "metadata.jsonl": IMAGES | {"metadata.jsonl": jsonl(CAPTIONED)},
    "metadata.csv": IMAGES | {"metadata.csv": separated(CAPTIONED, ",")},
    "map": IMAGES | {"map.json": json.dumps({row["file_name"]: row["text"] for row in CAPTIONED})},
    "map of objects": IMAGES
    | {"map.json": json.dumps({row["file_name"]: {"prompt": row["text"]} for row in CAPTIONED})},
    "map of lists": IMAGES
    | {"map.json": json.dumps({PROMPTS[0]: ["0.png", "1.png"], PROMPTS[1]: ["2.png", "3.png"]})},
    "folder per prompt": {f"{PROMPTS[i // 2]}/{i}.png": image_bytes(i) for i in range(4)},
    "prompt-index": {f"{PROMPTS[i // 2]}-{i % 2}.png": image_bytes(i) for i in range(4)},
    "absolute in words": IMAGES
    | {"data.jsonl": jsonl({"prompt": r["text"], "path": r["file_name"]} for r in CAPTIONED)},
}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompt": ["a", "b"], "output": ["x"]}, "prompt 2, output 1. Repeat a prompt once for"),
        ({"prompt": ["a"], "n": [1, 2], "output": []}, "prompt 1, n 2, output 0"),
        ({"prompt": ["a"], "output": []} | {f"c{i}": [1] for i in range(9)}, "c2 1, ..."),
    ],
)
def test_columns_of_different_lengths_are_refused(tmp_path, columns, message):
    write(tmp_path, {"o.json": json.dumps(columns)})
    with pytest.raises(dp.DataError) as refused:
        dp.load(tmp_path / "o.json")
    assert "has columns of different lengths: " in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize("layout", FOLDERS)
def test_every_image_folder_pairs_each_file_with_its_prompt(layout, tmp_path):
    names = list(FOLDERS[layout])
    random.Random(7).shuffle(names)  # the order in which files are created must not matter
    write(tmp_path, {name: FOLDERS[layout][name] for name in names})
    samples = dp.load(tmp_path)
    pairs = {
        (prompt.text, output.digest())
        for prompt, output in zip(samples.prompts, samples.outputs, strict=True)
    }
    expected = {(PROMPTS[i // 2], Image(image_bytes(i)).digest()) for i in range(4)}
    assert pairs == expected
    # Without a table, files are in natural order of their names, where blue comes first.
    if layout not in ("folder per prompt", "prompt-index"):
        order = [PROMPTS.index(prompt.text) for prompt in samples.prompts]
        assert order == sorted(order)
    assert samples.warnings == ()


def test_prompts_in_a_list_beside_the_files(tmp_path):
    files = write(tmp_path / "images", {f"{i}.png": image_bytes(i) for i in (10, 2, 1, 0)})
    write(tmp_path, {"prompts.txt": "zero\none\n\ntwo\nten\n"})
    samples = dp.load(files, tmp_path / "prompts.txt")
    named = {
        prompt.text: output.source.name
        for prompt, output in zip(samples.prompts, samples.outputs, strict=True)
    }
    assert named == {"zero": "0.png", "one": "1.png", "two": "2.png", "ten": "10.png"}
    assert "natural order" in samples.notes[-1].text
    write(tmp_path, {"prompts.txt": "zero\none\n"})
    with pytest.raises(
        dp.DataError, match=r"4 files in .* and 2 prompts do not pair up one to one"
    ):
        dp.load(files, tmp_path / "prompts.txt")


@pytest.mark.parametrize("start", [0, 1])
def test_files_are_paired_by_the_prompt_number_in_their_names(start, tmp_path):
    files = write(
        tmp_path / "images", {f"{start + i // 2}_{i % 2}.png": image_bytes(i) for i in range(4)}
    )
    write(tmp_path, {"p.txt": "\n".join(PROMPTS)})
    assert [prompt.text for prompt in dp.load(files, tmp_path / "p.txt").prompts] == [
        p for p in PROMPTS for _ in range(2)
    ]


def test_prompts_joined_by_id(tmp_path):
    write(
        tmp_path,
        {
            "o.jsonl": jsonl(
                {"prompt_id": row["prompt_id"], "output": row["output"]} for row in ROWS[::-1]
            )
        },
    )
    write(
        tmp_path,
        {"p.jsonl": jsonl({"prompt_id": i, "prompt": text} for i, text in enumerate(PROMPTS))},
    )
    assert texts(dp.load(tmp_path / "o.jsonl", tmp_path / "p.jsonl")) == PAIRS[::-1]
    write(tmp_path, {"p.jsonl": jsonl([{"prompt_id": 0, "prompt": "only"}])})
    with pytest.raises(
        dp.DataError,
        match=r"2 outputs have a prompt_id that .*p.jsonl does not contain \(first: 1\)",
    ):
        dp.load(tmp_path / "o.jsonl", tmp_path / "p.jsonl")
    write(tmp_path, {"p.jsonl": jsonl({"prompt_id": i, "prompt": str(i)} for i in range(5))})
    (warning,) = dp.load(tmp_path / "o.jsonl", tmp_path / "p.jsonl").warnings
    assert "3 of 5 prompts in" in warning.text
    write(tmp_path, {"p.jsonl": jsonl({"prompt_id": 0, "prompt": str(i)} for i in range(5))})
    with pytest.raises(dp.DataError, match="has a prompt_id twice"):
        dp.load(tmp_path / "o.jsonl", tmp_path / "p.jsonl")


def test_images_can_be_the_prompts_of_captions(tmp_path):
    write(
        tmp_path,
        IMAGES | {"c.jsonl": jsonl({"image": f"{i}.png", "caption": ANSWERS[i]} for i in range(4))},
    )
    samples = dp.load(tmp_path / "c.jsonl", prompt_field="image", output_field="caption")
    assert [type(prompt) for prompt in samples.prompts] == [Image] * 4
    assert [output.text for output in samples.outputs] == ANSWERS
    write(tmp_path / "apart", IMAGES)
    write(tmp_path, {"o.txt": "\n".join(ANSWERS)})
    apart = dp.load(tmp_path / "o.txt", tmp_path / "apart", output_field="prompt")
    assert [prompt.source.name for prompt in apart.prompts] == list(IMAGES)


def test_videos_and_folders_of_frames(tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    for i in range(4):
        write_video(videos / f"{PROMPTS[i // 2]}-{i % 2}.mp4", i)
    samples = dp.load(videos)
    assert [type(output) for output in samples.outputs] == [Video] * 4
    assert {prompt.text for prompt in samples.prompts} == set(PROMPTS)
    assert len(samples.outputs[0].content(5)) == 5
    frames = write(
        tmp_path / "frames",
        {f"{PROMPTS[i // 2]}/{i}/{j}.png": image_bytes(i) for i in range(4) for j in (10, 9)},
    )
    samples = dp.load(frames, output_kind="video")
    for output in samples.outputs:
        assert [path.name for path in output.source] == ["9.png", "10.png"]
    assert len(samples) == 4
    flat = write(
        tmp_path / "flat",
        {f"{PROMPTS[i // 2]}-{i}/{j}.png": image_bytes(i) for i in range(4) for j in range(2)},
    )
    assert {prompt.text for prompt in dp.load(flat, output_kind="video").prompts} == set(PROMPTS)
    names = [f"frames/{PROMPTS[0]}/0/{j}.png" for j in (9, 10)]
    rows = [{"prompt": PROMPTS[0], "frames": names}]
    write(tmp_path, {"f.jsonl": jsonl(rows)})
    assert len(dp.load(tmp_path / "f.jsonl").outputs[0].source) == 2


def test_frames_of_a_short_video_are_repeated(tmp_path):
    write(tmp_path, {f"{i}.png": image_bytes(i) for i in range(2)})
    frames = Video((tmp_path / "0.png", tmp_path / "1.png")).content(4)
    assert frames[0] is frames[1] and frames[2] is frames[3] and frames[1] is not frames[2]


X = np.random.default_rng(0).standard_normal((6, 3))
T = np.ascontiguousarray(X[:, :2])


def test_arrays_and_their_prompts(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "t.npy", T)
    np.savez(tmp_path / "both.npz", outputs=X, prompts=T)
    from safetensors.numpy import save_file

    save_file({"x": X, "t": T}, tmp_path / "both.safetensors")
    for samples in (
        dp.load(tmp_path / "x.npy", tmp_path / "t.npy"),
        dp.load(tmp_path / "both.npz"),
        dp.load(tmp_path / "both.safetensors"),
    ):
        np.testing.assert_array_equal(samples.outputs, X)
        np.testing.assert_array_equal(samples.prompts, T)
    np.save(tmp_path / "short.npy", T[:5])
    with pytest.raises(
        dp.DataError, match=r"got 6 outputs in .*x.npy and 5 prompts in .*short.npy"
    ):
        dp.load(tmp_path / "x.npy", tmp_path / "short.npy")


def test_an_array_of_prompts_by_outputs(tmp_path):
    np.save(tmp_path / "x.npy", X.reshape(2, 3, 3))
    samples = dp.load(tmp_path / "x.npy")
    np.testing.assert_array_equal(samples.outputs, X)
    np.testing.assert_array_equal(samples.prompts, [0, 0, 0, 1, 1, 1])
    (note,) = samples.notes
    assert note.text == f"{tmp_path / 'x.npy'}: 2 prompts with 3 outputs each, 3 wide"


def test_an_array_of_strings_is_texts(tmp_path):
    np.save(tmp_path / "x.npy", np.array(ANSWERS))
    assert [output.text for output in dp.load(tmp_path / "x.npy").outputs] == ANSWERS


def test_the_repr_of_samples_is_one_short_line(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("b", "a")))} | FOLDERS["metadata.jsonl"])
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "t.npy", T)
    loaded = {
        "Samples(8 outputs of 2 models, 2 prompts, texts, from 'o.jsonl')": dp.load(
            tmp_path / "o.jsonl"
        ),
        "Samples(4 outputs, 2 prompts, images for texts, from 'metadata.jsonl')": dp.load(
            tmp_path / "metadata.jsonl"
        ),
        "Samples(6 outputs, no prompts, embeddings of width 3, from 'x.npy')": dp.load(
            tmp_path / "x.npy"
        ),
        "Samples(6 outputs, embeddings of width 3 for embeddings of width 2, from 'x.npy')": (
            dp.load(tmp_path / "x.npy", tmp_path / "t.npy")
        ),
    }
    for expected, samples in loaded.items():
        assert repr(samples) == expected
    given = dp.Samples(text_items("abcdef"), text_items("ppqqrr"))
    assert repr(dp.Samples(X, T, given=given)).startswith("Samples(6 outputs, 3 prompts, ")
    ids = dp.Samples(X, np.array([0, 0, 1, 1, 2, 2]), skipped=1)
    assert (
        repr(ids) == "Samples(6 outputs, 3 prompts, embeddings of width 3 for group ids, 1 skipped)"
    )


def test_samples_in_a_notebook_show_escaped_rows(tmp_path):
    rows = [{"prompt": "p", "output": f"<script>{i}</script>" + "x" * 500} for i in range(8)]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    page = dp.load(tmp_path / "o.jsonl")._repr_html_()
    assert "<script>" not in page and page.count("&lt;script&gt;") == 5
    assert "8 outputs" in page and "3 more rows" in page and "x" * 200 not in page
    warned = dp.Samples(X, warnings=(dp.Notice("odd", "<b>odd</b>"),))._repr_html_()
    assert "embedding of width 3" in warned and "Warning: odd: &lt;b&gt;odd&lt;/b&gt;" in warned


def test_samples_become_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    write(tmp_path, IMAGES | {"o.jsonl": jsonl(ROWS), "metadata.jsonl": jsonl(CAPTIONED)})
    frame = dp.load(tmp_path / "o.jsonl").to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["model", "prompt", "output"]
    assert list(zip(frame["prompt"], frame["output"], strict=True)) == PAIRS
    images = dp.load(tmp_path / "metadata.jsonl").to_frame()
    assert list(images["output"]) == [str(tmp_path / name) for name in IMAGES]
    vectors = dp.Samples(X).to_frame()
    np.testing.assert_array_equal(np.stack(vectors["output"]), X)


def test_a_data_frame_needs_pandas_or_polars(monkeypatch):
    samples = dp.Samples(X, np.arange(6))
    polars = types.ModuleType("polars")
    polars.DataFrame = dict
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", polars)
    assert list(samples.to_frame()) == ["prompt", "output"]
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(dp.MissingExtraError, match=r"needs pandas or polars.*pip install pandas"):
        samples.to_frame()


def test_samples_are_split_by_model(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("b", "a")))})
    samples = dp.load(tmp_path / "o.jsonl")
    assert list(samples.by_model()) == ["b", "a"]
    assert texts(samples.by_model()["a"]) == PAIRS
    limited = dp.load(tmp_path / "o.jsonl", limit=3)
    assert {model: len(part) for model, part in limited.by_model().items()} == {"b": 3, "a": 3}
    with pytest.raises(dp.ArgumentError, match="`limit` must be an integer of at least 1"):
        dp.load(tmp_path / "o.jsonl", limit=0)
    with pytest.raises(dp.ArgumentError, match="does not name the model of each output"):
        dp.Samples(samples.outputs).by_model()


def test_a_field_of_ids_is_not_taken_for_models():
    names = tuple(f"id {row}" for row in range(1200))
    samples = dp.Samples(np.zeros((1200, 2)), models=names, source="a.jsonl")
    match = "a.jsonl names 1,200 models for 1,200 outputs; at most 1,000 are read"
    with pytest.raises(dp.DataError, match=match):
        samples.by_model()


def _limit_notes(path, **options):
    return [str(note) for note in dp.load(path, **options).notes if "limited to" in str(note)]


def test_a_limit_is_one_for_each_model_and_says_so(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("b", "a"))), "p.jsonl": jsonl(records())})
    rows = [{"prompt": row["prompt"], "output": row["output"]} for row in records()]
    write(tmp_path, {"q.jsonl": jsonl(rows)})
    total = 2 * len(PAIRS)
    [note] = _limit_notes(tmp_path / "o.jsonl", limit=3)
    assert note == f"limited to the first 3 pairs of each of 2 models: 6 of {total}"
    assert _limit_notes(tmp_path / "o.jsonl", limit=total) == []
    [note] = _limit_notes(tmp_path / "p.jsonl", limit=1)
    assert note == f"limited to the first 1 pair: 1 of {len(PAIRS)}"
    [note] = _limit_notes(tmp_path / "q.jsonl", limit=1)
    assert note == f"limited to the first 1 pair of {tmp_path / 'q.jsonl'}"
    assert _limit_notes(tmp_path / "q.jsonl", limit=total) == []


def test_warnings_count_the_samples_within_the_limit(tmp_path):
    rows = records(("b", "a"))
    rows[-1]["output"] = "I'm sorry, but I can't help with that."
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    codes = [warning.code for warning in dp.load(tmp_path / "o.jsonl").warnings]
    limited = [warning.code for warning in dp.load(tmp_path / "o.jsonl", limit=2).warnings]
    assert ("refusals" in codes, "refusals" in limited) == (True, False)


def test_empty_outputs_are_skipped_and_counted_or_refused_if_strict(tmp_path):
    rows = [
        *ROWS,
        {"model": "one", "prompt": "p", "output": "  "},
        {"model": "one", "prompt": "p", "output": None},
    ]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path / "o.jsonl")
    assert (len(samples), samples.skipped) == (4, 2)
    text = "2 of 6 outputs were skipped because the output or its prompt is empty."
    assert samples.warnings == (dp.Notice("outputs-skipped", text),)
    with pytest.raises(
        dp.DataError,
        match=r"line 5 of .*o.jsonl is empty, or its prompt is "
        r"\(an error because of `strict=True`\)",
    ):
        dp.load(tmp_path / "o.jsonl", strict=True)
    write(tmp_path, {"o.jsonl": jsonl([{"prompt": "p", "output": ""}])})
    with pytest.raises(
        dp.DataError, match=r"every output, or its prompt, is empty; there is nothing to score"
    ):
        dp.load(tmp_path / "o.jsonl")


def test_the_join_is_checked(tmp_path):
    table = {"metadata.jsonl": jsonl(CAPTIONED)}
    write(
        tmp_path / "surplus",
        IMAGES | table | {"extra.png": image_bytes(9), "notes.txt": "not an output"},
    )
    samples = dp.load(tmp_path / "surplus")
    assert (
        samples.warnings[0].text.startswith("1 file is not named in")
        and "extra.png" in samples.warnings[0].text
    )
    with pytest.raises(
        dp.DataError, match=r"1 file is not named in .*\(an error because of `strict=True`\)"
    ):
        dp.load(tmp_path / "surplus", strict=True)
    write(tmp_path / "missing", {name: IMAGES[name] for name in list(IMAGES)[:3]} | table)
    with pytest.raises(
        dp.DataError, match=r"line 4 of .*metadata.jsonl names 3.png, but there is no such file"
    ):
        dp.load(tmp_path / "missing")
    write(tmp_path / "twice", IMAGES | {"metadata.jsonl": jsonl([*CAPTIONED, CAPTIONED[0]])})
    assert dp.load(tmp_path / "twice").warnings[0].text.startswith("1 file is named more than once")
    write(tmp_path / "case", {"A dog-0.png": image_bytes(0), "a dog-0.png": image_bytes(1)})
    assert [notice.text.split(" (")[0] for notice in dp.load(tmp_path / "case").warnings] == [
        "1 group of file names differs only by case",
        "1 group of prompts differs only by case, white space or Unicode form",
    ]
    write(tmp_path / "mixed", {"a-0.png": image_bytes(0), "b.png": image_bytes(1)})
    with pytest.raises(
        dp.DataError, match=r"1 of 2 files in .* is not named prompt-index \(first: b\)"
    ):
        dp.load(tmp_path / "mixed")


def test_unreadable_folders_are_refused_with_a_reason(tmp_path):
    write(tmp_path / "two", {"a.jsonl": jsonl(ROWS), "b.jsonl": jsonl(ROWS)})
    with pytest.raises(
        dp.DataError, match=r"contains 2 tables \(a.jsonl, b.jsonl\); name the one to read"
    ):
        dp.load(tmp_path / "two")
    write(
        tmp_path / "runs",
        {f"samples_task_2026-01-0{i}T00-00-00.jsonl": jsonl(LM_EVAL) for i in (1, 2)},
    )
    with pytest.raises(dp.DataError, match=r"contains 2 runs of samples_task; name the file"):
        dp.load(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(dp.DataError, match="contains neither a table nor images"):
        dp.load(tmp_path / "empty")
    with pytest.raises(dp.DataError, match=r"cannot read .*nowhere: No such file"):
        dp.load(tmp_path / "nowhere")
    write(tmp_path, {"a.png": image_bytes(), "a.xyz": b"?"})
    with pytest.raises(dp.DataError, match="is a single output, but diversity needs several"):
        dp.load(tmp_path / "a.png")
    with pytest.raises(dp.ArgumentError, match=r"the suffix of a.xyz is not supported"):
        dp.load(tmp_path / "a.xyz")


def test_log_likelihoods_are_not_outputs(tmp_path):
    rows = [row | {"resps": [[[-1.5, False]]]} for row in LM_EVAL]
    write(tmp_path, {"samples_mc.jsonl": jsonl(rows)})
    with pytest.raises(
        dp.DataError, match=r"line 1 of .* contains log-likelihoods, not generated texts"
    ):
        dp.load(tmp_path / "samples_mc.jsonl")


def test_records_from_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(jsonl(ROWS))))
    assert texts(dp.load("-")) == PAIRS


def _swapped(samples):
    return [(output, prompt) for prompt, output in texts(samples)]


def test_prompts_without_an_id_cannot_be_joined(tmp_path):
    outputs = [{"output": "of two", "prompt_id": 2}, {"output": "of one", "prompt_id": 1}]
    write(
        tmp_path,
        {
            "o.jsonl": jsonl(outputs),
            "p.jsonl": jsonl([{"prompt": "one", "prompt_id": 1}, {"prompt": "two"}]),
        },
    )
    with pytest.raises(
        dp.DataError, match=r"1 of 2 prompts in .*p.jsonl has no prompt_id to join the outputs by"
    ):
        dp.load(tmp_path / "o.jsonl", tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    "last", [{}, {"prompt_id": None}, {"prompt_id": ""}, {"id": 2}], ids=["no", "null", "", "id"]
)
def test_outputs_without_an_id_cannot_be_joined(tmp_path, last):
    ids = [{"prompt_id": 2}, {"prompt_id": 1}, last]
    write(
        tmp_path,
        {
            "o.jsonl": jsonl({"output": f"o{i}", **key} for i, key in enumerate(ids)),
            "p.jsonl": jsonl({"prompt": f"p{i}", "prompt_id": i} for i in range(3)),
            # A missing id on both sides is no id that they share.
            "q.jsonl": jsonl({"prompt": f"p{i}", **key} for i, key in enumerate(ids)),
        },
    )
    for prompts in ("p.jsonl", "q.jsonl"):
        with pytest.raises(
            dp.DataError,
            match=r"1 of 3 outputs in .*o.jsonl has no prompt_id to join the prompts by; add it",
        ):
            dp.load(tmp_path / "o.jsonl", tmp_path / prompts)


def test_rows_that_contradict_their_ids_are_refused(tmp_path):
    outputs = [{"output": f"o{i}", "prompt_id": i % 2} for i in range(4)]
    write(tmp_path, {"o.jsonl": jsonl(outputs), "p.txt": "a\na\nb\nb\n", "q.txt": "a\nb\na\nb\n"})
    with pytest.raises(
        dp.DataError,
        match=r"with the same prompt_id \(0\) would get different prompts; "
        r"add the prompt_id to those in .*p.txt",
    ):
        dp.load(tmp_path / "o.jsonl", tmp_path / "p.txt")
    samples = dp.load(tmp_path / "o.jsonl", tmp_path / "q.txt")
    assert _swapped(samples) == [("o0", "a"), ("o1", "b"), ("o2", "a"), ("o3", "b")]
    assert samples.notes[-1].text.endswith("q.txt, row by row")


def test_empty_rows_do_not_shift_the_others(tmp_path):
    outputs = [{"output": text} for text in ("o1", "o2", "o3", "", "o5")]
    write(tmp_path, {"o.jsonl": jsonl(outputs), "p.txt": "p1\n\np3\np4\np5\n\n"})
    samples = dp.load(tmp_path / "o.jsonl", tmp_path / "p.txt")
    assert _swapped(samples) == [("o1", "p1"), ("o3", "p3"), ("o5", "p5")]
    assert samples.skipped == 2
    own = [
        {"output": "a", "prompt": "x"},
        {"output": "b", "prompt": ""},
        {"output": "c", "prompt": "z"},
    ]
    write(
        tmp_path,
        {"o.jsonl": jsonl(own), "p.jsonl": jsonl([{"prompt": f"e{i}"} for i in (1, 2, 3)])},
    )
    assert _swapped(dp.load(tmp_path / "o.jsonl", tmp_path / "p.jsonl")) == [
        ("a", "e1"),
        ("b", "e2"),
        ("c", "e3"),
    ]


def test_skipped_outputs_are_counted_for_the_model_that_made_them(tmp_path):
    rows = [*ROWS, {"model": "one", "prompt": "p", "output": ""}]
    rows += [dict(row, model="two") for row in ROWS]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    parts = dp.load(tmp_path / "o.jsonl").by_model()
    assert {model: part.skipped for model, part in parts.items()} == {"one": 1, "two": 0}


def test_an_empty_first_value_does_not_decide_the_kind(tmp_path):
    rows = [
        {"image": None, "prompt": "p"},
        *({"image": f"{i}.png", "prompt": "p"} for i in range(2)),
    ]
    write(tmp_path, {f"{i}.png": image_bytes(i) for i in range(2)} | {"m.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path / "m.jsonl")
    assert [output.modality for output in samples.outputs] == ["image"] * 2 and samples.skipped == 1
    vectors = [{"embedding": None, "prompt": "p"}, {"embedding": [1.0, 2.0], "prompt": "p"}]
    write(tmp_path, {"v.jsonl": jsonl(vectors)})
    with pytest.raises(
        dp.DataError,
        match=r"line 1 of .*v.jsonl has no list of numbers where an embedding is expected",
    ):
        dp.load(tmp_path / "v.jsonl")


def test_the_reference_answer_is_not_an_output(tmp_path):
    write(
        tmp_path,
        {"o.jsonl": jsonl([{"question": "q", "answer": "gold", "generations": ["a", "b"]}])},
    )
    assert _swapped(dp.load(tmp_path / "o.jsonl")) == [("a", "q"), ("b", "q")]


def test_tasks_of_lm_eval_have_filters_of_their_own(tmp_path):
    tasks = {"a": ["none"], "b": ["strict-match", "flexible-extract"]}
    for task, filters in tasks.items():
        rows = [
            {"arguments": [[f"{task}{i}", {}]], "resps": [[f"o{i}"]], "filter": name}
            for name in filters
            for i in range(2)
        ]
        write(tmp_path, {f"samples_{task}_2026-01-02T03-04-05.678.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path)
    assert texts(samples) == [("a0", "o0"), ("a1", "o1"), ("b0", "o0"), ("b1", "o1")]


def test_lm_eval_repeats_a_document_for_each_filter(tmp_path):
    rows = [
        {"doc_id": i, "arguments": [[f"p{i}", {}]], "resps": [[f"o{i}"]], "filter": name}
        for i in range(2)
        for name in ("strict-match", "flexible-extract")
    ]
    write(tmp_path, {"samples_gsm8k.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path / "samples_gsm8k.jsonl")
    assert _swapped(samples) == [("o0", "p0"), ("o1", "p1")]
    assert any(
        "only lines of filter strict-match; those of flexible-extract repeat them" in note.text
        for note in samples.notes
    )


def test_texts_are_found_in_messages_objects_and_missing_values(tmp_path):
    parts = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": "u"}],
        }
    ]
    rows = [
        {"prompt": parts, "output": "a"},
        {"prompt": parts, "output": [{"role": "assistant", "content": None}]},
        {"prompt": parts, "output": float("nan")},
        {"prompt": parts, "output": {"text": "b"}},
    ]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path / "o.jsonl")
    assert _swapped(samples) == [("a", "hi"), ("b", "hi")]
    assert samples.skipped == 2
    alpaca = [
        {"instruction": "Add.", "input": "1 + 1", "output": "2"},
        {"instruction": "Say hi.", "input": "", "output": "hi"},
    ]
    write(tmp_path, {"a.jsonl": jsonl(alpaca)})
    assert _swapped(dp.load(tmp_path / "a.jsonl")) == [("2", "Add.\n\n1 + 1"), ("hi", "Say hi.")]


def test_every_field_name_makes_a_csv_a_table(tmp_path):
    for header in ("question,answer", "text_in,generation", "query,responses"):
        write(tmp_path, {"o.csv": f"{header}\np,a\nq,b\n"})
        assert _swapped(dp.load(tmp_path / "o.csv")) == [("a", "p"), ("b", "q")]


def test_an_array_of_prompts_by_outputs_takes_one_prompt_each(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(24.0).reshape(2, 3, 4))
    np.save(tmp_path / "t.npy", np.eye(2))
    write(tmp_path, {"p.txt": "first\nsecond\n"})
    samples = dp.load(tmp_path / "x.npy", tmp_path / "t.npy")
    assert samples.outputs.shape == (6, 4)
    np.testing.assert_array_equal(samples.prompts, np.repeat(np.eye(2), 3, axis=0))
    listed = dp.load(tmp_path / "x.npy", tmp_path / "p.txt").prompts
    assert [prompt.text for prompt in listed] == ["first"] * 3 + ["second"] * 3


def test_prompt_field_refers_to_the_table_of_prompts(tmp_path):
    outputs, prompts = (
        [{"output": "a", "id": 1}, {"output": "b", "id": 2}],
        [{"my_text": "p", "id": 1}, {"my_text": "q", "id": 2}],
    )
    write(tmp_path, {"o.jsonl": jsonl(outputs), "p.jsonl": jsonl(prompts)})
    assert _swapped(
        dp.load(tmp_path / "o.jsonl", tmp_path / "p.jsonl", prompt_field="my_text")
    ) == [("a", "p"), ("b", "q")]


def test_the_key_of_a_map_is_the_file(tmp_path):
    entries = {f"{i}.png": {"prompt": f"p{i}", "file_name": "elsewhere.png"} for i in range(2)}
    write(
        tmp_path, {f"{i}.png": image_bytes(i) for i in range(2)} | {"map.json": json.dumps(entries)}
    )
    samples = dp.load(tmp_path)
    assert [output.source.name for output in samples.outputs] == ["0.png", "1.png"]


def test_reading_stops_at_the_limit(tmp_path):
    rows = [{"prompt": "p", "output": f"o{i}"} for i in range(3)]
    write(tmp_path, {"o.jsonl": jsonl(rows) + b"broken"})
    assert len(dp.load(tmp_path / "o.jsonl", limit=2)) == 2
    with pytest.raises(dp.DataError, match=r"line 4 of .* is not JSON"):
        dp.load(tmp_path / "o.jsonl")


@pytest.mark.parametrize(
    ("skipped", "warnings"),
    [("abc", []), (None, []), (-1, []), (0, None), (0, [5]), (0, [{"code": "a"}])],
    ids=lambda value: repr(value),
)
def test_an_invalid_embedding_json_is_refused(skipped, warnings, tmp_path):
    content = {"embedders": [], "skipped": skipped, "warnings": warnings, "skipped_models": []}
    write(tmp_path, {"embedding.json": json.dumps(content)})
    np.save(tmp_path / "outputs.npy", np.eye(2))
    with pytest.raises(dp.DataError, match=r"embedding.json is not what `divprism embed` writes"):
        dp.load(tmp_path)


def test_embedded_folders_do_not_follow_links_outside(tmp_path):
    np.save(tmp_path / "secret.npy", np.eye(2))
    content = {"embedders": [], "skipped": 0, "warnings": [], "skipped_models": []}
    write(tmp_path / "in", {"embedding.json": json.dumps(content)})
    (tmp_path / "in" / "outputs.npy").symlink_to(tmp_path / "secret.npy")
    with pytest.raises(dp.DataError, match=r"leads to .*secret.npy, outside"):
        dp.load(tmp_path / "in")


# --- videos in objects, as `datasets` stores files


@pytest.mark.parametrize("name", ["video", "clips"])
def test_an_object_with_the_path_of_a_video_is_a_video(name, tmp_path):
    rows = []
    for number in range(2):
        write_video(tmp_path / f"{number}.mp4", number)
        rows.append({"prompt": "p", name: {"bytes": None, "path": f"{number}.mp4"}})
    write(tmp_path, {"rows.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path / "rows.jsonl", output_field=name)
    assert [type(item) for item in samples.outputs] == [Video, Video]
    assert [item.source.name for item in samples.outputs] == ["0.mp4", "1.mp4"]


def test_a_field_called_video_holds_videos_whatever_their_suffix(tmp_path):
    rows = [{"prompt": "p", "video": f"clip{number}"} for number in range(2)]
    write(tmp_path, {"rows.jsonl": jsonl(rows), "clip0": b"0", "clip1": b"1"})
    samples = dp.load(tmp_path / "rows.jsonl")
    assert [type(item) for item in samples.outputs] == [Video, Video]


def test_the_bytes_of_a_video_are_refused_as_what_they_are():
    rows = [{"prompt": "p", "output": {"bytes": b"...", "path": None}}] * 2
    with pytest.raises(dp.DataError, match=r"row 0 .* has the bytes of a video.*files"):
        dp.load(rows, output_kind="video")
