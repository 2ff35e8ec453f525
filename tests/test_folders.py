"""Folders without a table: the prompt of each file, warnings, and ambiguous layouts."""

import json
import os
import unicodedata
from pathlib import Path

import pytest
from sample_files import PROMPTS, image_bytes, jsonl, records, write, write_video

import divprism as dp
from divprism.data.items import Image, Video


def image_files(*names):
    return {f"{name}.png": image_bytes(seed) for seed, name in enumerate(names)}


def named(samples):
    return {
        output.source.stem: prompt.text
        for prompt, output in zip(samples.prompts, samples.outputs, strict=True)
    }


def listed(folder, names, prompts):
    """Return the samples of files with these names and a list of prompts."""
    write(folder / "images", image_files(*names))
    write(folder, {"prompts.txt": "\n".join(prompts)})
    return dp.load(folder / "images", folder / "prompts.txt")


# --- a list of prompts beside the files


@pytest.mark.parametrize("join", ["{}-0", "{}_0", "{} (1)", "{}"])
def test_files_named_after_listed_prompts_get_them_whatever_their_order(join, tmp_path):
    prompts = ["zebra", "apple", "a cat/dog"]
    names = [join.format(text) for text in ("zebra", "apple", "a cat_dog")]
    samples = listed(tmp_path, names, prompts)
    assert named(samples) == dict(zip(names, prompts, strict=True))
    assert "named after the prompts, 3 prompts" in samples.notes[-1].text and samples.warnings == ()


def test_a_file_without_prompt_is_refused_instead_of_paired_by_order(tmp_path):
    with pytest.raises(
        dp.DataError,
        match=r"1 of 3 files in .*images matches no prompt .*\(first: cow-0\).*metadata",
    ):
        listed(tmp_path, ["zebra-0", "apple-0", "cow-0"], ["zebra", "apple", "dog"])


def test_a_file_name_that_fits_two_prompts_matches_neither(tmp_path):
    with pytest.raises(dp.DataError, match=r"1 of 3 files .*\(first: a cat_dog-0\)"):
        listed(tmp_path, ["a cat_dog-0", "x-0", "y-0"], ["a cat/dog", "a cat:dog", "x", "y"])
    both = listed(tmp_path / "exact", ["a cat_dog-0", "x-0"], ["a cat/dog", "a cat_dog", "x"])
    assert named(both) == {"a cat_dog-0": "a cat_dog", "x-0": "x"}
    assert both.warnings[0].text.startswith("1 of 3 prompts has no file in")


def test_names_and_prompts_match_in_any_unicode_form(tmp_path):
    names = [unicodedata.normalize("NFD", "café-0"), "apple-0"]
    assert list(named(listed(tmp_path, names, ["café", "apple"])).values()) == ["apple", "café"]


def test_a_prompt_that_ends_like_an_index_is_distinguished_from_one(tmp_path):
    assert named(listed(tmp_path / "whole", ["route", "route 66"], ["route 66", "route"])) == {
        "route": "route",
        "route 66": "route 66",
    }
    with pytest.raises(dp.DataError, match=r"route 66 .*fits two prompts"):
        listed(tmp_path / "both", ["route", "route 66", "apple-0"], ["route 66", "route", "apple"])


def test_spaces_and_punctuation_may_be_replaced_in_names(tmp_path):
    prompts = ["What is this?", "a dog, running", "a cat"]
    names = ["What_is_this-0", "a_dog_running-0", "a cat-0"]
    assert named(listed(tmp_path, names, prompts)) == dict(zip(names, prompts, strict=True))


def test_numbers_that_fit_counting_from_0_and_from_1_are_refused(tmp_path):
    names = [f"{i}_{j}" for i in (1, 2, 3) for j in (0, 1)]
    with pytest.raises(
        dp.DataError,
        match=r"number their prompts 1 to 3, of 4 given, which fits counting from 0 and from 1",
    ):
        listed(tmp_path / "both", names, "abcd")
    assert set(named(listed(tmp_path / "one", names, "abc")).items()) >= {
        ("1_0", "a"),
        ("3_1", "c"),
    }
    zero = listed(tmp_path / "zero", [*names, "0_0"], "abcd")
    assert named(zero)["1_1"] == "b" and zero.warnings == ()
    with pytest.raises(
        dp.DataError,
        match=r"number their prompts 0 to 3, of 3 given; the list of prompts is too short",
    ):
        listed(tmp_path / "beyond", [*names, "0_0"], "abc")


def test_repeated_numbers_count_prompts_even_if_there_is_a_prompt_per_file(tmp_path):
    samples = listed(tmp_path, ["0_0", "0_1", "1_0", "1_1"], "abcd")
    assert named(samples) == {"0_0": "a", "0_1": "a", "1_0": "b", "1_1": "b"}
    assert samples.warnings[0].text.startswith("2 of 4 prompts have no file in")
    with pytest.raises(
        dp.DataError, match=r"1 of 4 files in .* is not named number_index \(first: last\)"
    ):
        listed(tmp_path / "mixed", ["0_0", "0_1", "1_0", "last"], "abcd")


def test_numbers_that_never_repeat_pair_one_to_one(tmp_path):
    samples = listed(tmp_path, ["00000-99123", "00001-77", "00010-5"], "abc")
    assert (
        list(named(samples).values()) == ["a", "b", "c"]
        and "natural order" in samples.notes[-1].text
    )


def test_names_of_digits_are_not_prompts(tmp_path):
    write(tmp_path, image_files("00000-99123", "00001-99124"))
    with pytest.raises(
        dp.DataError,
        match=r"are only numbers \(first: 00000-99123\).*as `prompts`.*metadata\.jsonl",
    ):
        dp.load(tmp_path)


# --- folders inside the folder


def test_images_two_folders_deep_are_videos_only_on_request(tmp_path):
    write(
        tmp_path,
        {
            f"model {m}/video {p}/{i}.png": image_bytes(i)
            for m in "ab"
            for p in "12"
            for i in range(2)
        },
    )
    with pytest.raises(
        dp.DataError,
        match=r"frames of a video, pass `output_kind='video'`; "
        r"if the folder is a prompt, name .*model a",
    ):
        dp.load(tmp_path)
    samples = dp.load(tmp_path, output_kind="video")
    assert [type(output) for output in samples.outputs] == [Video] * 4
    assert {prompt.text for prompt in samples.prompts} == {"model a", "model b"}
    assert {prompt.text for prompt in dp.load(tmp_path / "model a").prompts} == {
        "video 1",
        "video 2",
    }


def models_and_prompts(*models, prompts=PROMPTS):
    return {f"{m}/{p}/{i}.png": image_bytes(i) for m in models for p in prompts for i in range(2)}


def test_folders_of_models_with_the_same_folders_of_prompts_are_models(tmp_path):
    write(tmp_path, models_and_prompts("ours", "theirs"))
    samples = dp.load(tmp_path)
    parts = samples.by_model()
    assert list(parts) == ["ours", "theirs"]
    for name, part in parts.items():
        alone = dp.load(tmp_path / name)
        assert [*map(str, part.outputs), *map(str, part.prompts)] == [
            *map(str, alone.outputs),
            *map(str, alone.prompts),
        ]
    assert "a folder per model (ours, theirs)" in samples.notes[0].text
    assert samples.warnings == ()
    # Most prompts in common suffice; an empty folder is reported.
    write(tmp_path, {"theirs/another prompt/0.png": image_bytes(3), "logs/run.txt": ""})
    (warning,) = dp.load(tmp_path).warnings
    assert (warning.code, "(first: logs)" in warning.text) == ("ignored-folders", True)
    with pytest.raises(dp.DataError, match=r"has a folder per prompt; leave out `prompts`"):
        (tmp_path / "p.txt").write_text("a\nb\n")
        dp.load(tmp_path, tmp_path / "p.txt")


def test_folders_of_models_with_videos_or_as_geneval_writes_them(tmp_path):
    for model in "ab":
        for prompt in PROMPTS:
            (tmp_path / "v" / model / prompt).mkdir(parents=True)
            write_video(tmp_path / "v" / model / prompt / "0.mp4")
        write(tmp_path / "g" / model, geneval())
    for kind in (None, "video"):
        videos = dp.load(tmp_path / "v", output_kind=kind)
        assert videos.models == ("a", "a", "b", "b")
        assert [prompt.text for prompt in videos.prompts] == sorted(PROMPTS) * 2
    geneval_models = dp.load(tmp_path / "g").by_model()
    assert {name: named(part) for name, part in geneval_models.items()} == dict.fromkeys(
        "ab", named(dp.load(tmp_path / "g" / "a"))
    )


def test_folders_with_different_prompts_are_no_models(tmp_path):
    write(tmp_path, models_and_prompts("cats", prompts=("a tabby", "a siamese")))
    write(tmp_path, models_and_prompts("dogs", prompts=("a poodle", "a beagle")))
    with pytest.raises(dp.DataError, match=r"images two folders deep"):
        dp.load(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ("a red fox_0", "a red fox_1", "a blue bird_0"),
        ("a_red_fox_0", "a_red_fox_1", "a_blue_bird_0"),
    ],
)
def test_prompts_are_read_from_names_with_an_underscore_before_the_index(names, tmp_path):
    write(tmp_path, image_files(*names))
    samples = dp.load(tmp_path)
    assert {prompt.text for prompt in samples.prompts} == {"a red fox", "a blue bird"}
    assert "files named prompt_index, 2 prompts" in samples.notes[-1].text


@pytest.mark.parametrize(
    "names", [("IMG_0001", "IMG_0002"), ("0_1", "1_2"), ("a cat_1", "a dog_1", "cover")]
)
def test_names_that_may_hold_no_prompt_are_not_read_as_prompts(names, tmp_path):
    write(tmp_path, image_files(*names))
    samples = dp.load(tmp_path)
    assert samples.prompts is None
    assert "names contain no prompt" in samples.notes[-1].text


@pytest.mark.parametrize("kind", [None, "video"])
def test_videos_two_folders_deep_are_refused(kind, tmp_path):
    (tmp_path / "model" / "a dog").mkdir(parents=True)
    write_video(tmp_path / "model" / "a dog" / "0.mp4")
    with pytest.raises(
        dp.DataError, match=r"contains videos two folders deep; name .*model, .*a folder per prompt"
    ):
        dp.load(tmp_path, output_kind=kind)


def geneval(count=2):
    lines = {
        f"{i:05}/metadata.jsonl": jsonl([{"tag": "colors", "prompt": PROMPTS[i]}])
        for i in range(count)
    }
    grids = {f"{i:05}/grid.png": image_bytes(90 + i) for i in range(count)}
    return (
        lines
        | grids
        | {
            f"{i:05}/samples/{j:04}.png": image_bytes(4 * i + j)
            for i in range(count)
            for j in range(4)
        }
    )


def test_geneval_folders_give_each_sample_the_prompt_of_its_metadata(tmp_path):
    write(tmp_path, geneval())
    samples = dp.load(tmp_path, strict=True)
    assert [type(output) for output in samples.outputs] == [Image] * 8
    assert [prompt.text for prompt in samples.prompts] == [
        text for text in PROMPTS for _ in range(4)
    ]
    assert "GenEval" in samples.notes[-1].text
    write(
        tmp_path,
        {"00002/metadata.jsonl": jsonl([{"prompt": "p"}]), "00000/other.png": image_bytes(8)},
    )
    warnings = dp.load(tmp_path).warnings
    assert (
        "no outputs in 1 of 3 folders" in warnings[0].text and "(first: 00002)" in warnings[0].text
    )
    assert warnings[1].text.startswith("ignored 1 file or folder")
    assert "other.png" in warnings[1].text


@pytest.mark.parametrize(
    "content", [b"", jsonl([{"prompt": "a"}] * 2), jsonl([{"tag": "a"}]), jsonl([{"prompt": 3}])]
)
def test_geneval_metadata_without_a_prompt_is_refused(content, tmp_path):
    write(tmp_path, geneval() | {"00001/metadata.jsonl": content})
    with pytest.raises(
        dp.DataError, match=r"00001/metadata.jsonl must be one line with the prompt in 'prompt'"
    ):
        dp.load(tmp_path)
    (tmp_path / "00001" / "metadata.jsonl").unlink()
    with pytest.raises(dp.DataError, match=r"00001 has samples/ but no metadata.jsonl"):
        dp.load(tmp_path)


PER_PROMPT = {f"{PROMPTS[i // 2]}/{i}.png": image_bytes(i) for i in range(4)}


def warned(folder, *words, **options):
    """Return the samples of a folder that gives one warning, which `strict` makes an error."""
    samples = dp.load(folder, **options)
    assert len(samples.warnings) == 1 and all(word in samples.warnings[0].text for word in words), (
        samples.warnings
    )
    with pytest.raises(dp.DataError, match=r"\(an error because of `strict=True`\)"):
        dp.load(folder, strict=True, **options)
    return samples


def test_a_stray_image_beside_the_folders_is_ignored_with_a_warning(tmp_path):
    write(tmp_path, PER_PROMPT | {"contact_sheet.png": image_bytes(9)})
    samples = warned(tmp_path, "ignored 1 file beside the folders", "contact_sheet.png")
    assert len(samples) == 4 and {prompt.text for prompt in samples.prompts} == set(PROMPTS)


def test_linked_folders_count_as_folders_unless_they_lead_outside(tmp_path):
    write(
        tmp_path,
        {f".kept/{name}": content for name, content in PER_PROMPT.items()}
        | {"in/sheet.png": image_bytes(9)},
    )
    write(tmp_path / "in", {f".kept/{name}": content for name, content in PER_PROMPT.items()})
    for text in PROMPTS:
        (tmp_path / "in" / text).symlink_to(tmp_path / "in" / ".kept" / text)
    assert len(warned(tmp_path / "in", "ignored 1 file beside the folders", "sheet.png")) == 4
    write(tmp_path / "out", image_files("a-0", "a-1"))
    (tmp_path / "out" / "link").symlink_to(tmp_path / ".kept" / PROMPTS[0])
    assert dp.load(tmp_path / "out").warnings == ()  # links outside are not outputs


def test_a_folder_of_grids_beside_the_images_is_ignored_with_a_warning(tmp_path):
    write(tmp_path, image_files("a-0", "a-1", "b-0", "b-1") | {"grids/0.png": image_bytes(7)})
    assert len(warned(tmp_path, "ignored 1 folder", "(first: grids)")) == 4
    write(tmp_path, {"p.txt": "b\na", **{f"grids/{i}.png": image_bytes(i) for i in range(20)}})
    assert len(dp.load(tmp_path, tmp_path / "p.txt")) == 4  # a list of prompts goes with files


def test_similar_numbers_of_images_beside_and_inside_folders_are_refused(tmp_path):
    write(tmp_path, PER_PROMPT | image_files("a-0", "b-0", "c-0"))
    with pytest.raises(
        dp.DataError, match=r"contains 3 outputs, and 4 more in folders beside them; .*separate"
    ):
        dp.load(tmp_path)


def test_previews_beside_folders_of_frames_are_ignored_with_a_warning(tmp_path):
    write(
        tmp_path,
        {f"a-{i}/{j}.png": image_bytes(j) for i in range(2) for j in range(2)}
        | image_files("x", "y", "z"),
    )
    assert len(warned(tmp_path, "ignored 3 files beside the folders", output_kind="video")) == 2
    write(tmp_path / "in", {"a-0/0.png": image_bytes(), "a-0/thumbs/0.png": image_bytes()})
    assert (
        len(warned(tmp_path / "in", "ignored 1 file or folder", "thumbs", output_kind="video")) == 1
    )


def test_prompt_folders_without_outputs_get_a_warning(tmp_path):
    write(tmp_path, PER_PROMPT)
    (tmp_path / "an empty folder").mkdir()
    warned(tmp_path, "no outputs in 1 of 3 folders", "(first: an empty folder)")


@pytest.mark.parametrize("subfolder", ["", "a red square"])
def test_dangling_links_loops_and_pipes_get_a_warning(subfolder, tmp_path):
    write(tmp_path, PER_PROMPT if subfolder else image_files("a-0", "a-1"))
    inside = tmp_path / subfolder
    (inside / "a-5.png").symlink_to(tmp_path / "nowhere.png")
    (inside / "a-6.png").symlink_to(inside / "a-6.png")
    os.mkfifo(inside / "a-7.png")
    (inside / "b").symlink_to(tmp_path / "no folder")
    warned(tmp_path, "cannot read 4 files or links", "(first: ", "a-5.png)")


def test_images_in_unsupported_formats_get_a_warning(tmp_path):
    write(tmp_path, image_files("a-0", "a-1") | {"a-2.heic": b"?", "notes.md": "no output"})
    warned(tmp_path, "ignored 1 media file", "unsupported", "a-2.heic")
    write(tmp_path / "only", {"a-2.heic": b"?"})
    with pytest.raises(
        dp.DataError,
        match=r"contains neither a table nor images.* ignored 1 media file .*a-2\.heic",
    ):
        dp.load(tmp_path / "only")


# --- JSON files that are not tables


ARGUMENTS = {
    "seed": 1,
    "weights": __file__,
    "from": "../p.txt",
    "list": "p.txt",
    "sizes": [1, 2],
    "nested": {"steps": 20},
}


def test_a_json_object_that_names_no_file_is_not_a_table(tmp_path):
    args = {"args.json": json.dumps(ARGUMENTS)}
    write(tmp_path / "flat", image_files("a-0", "b-0") | args | {"p.txt": "a\nb", "../p.txt": "a"})
    samples = dp.load(tmp_path / "flat", strict=True)
    assert [prompt.text for prompt in samples.prompts] == ["a", "b"]
    assert any(
        "args.json: not read, because it names no file" in note.text for note in samples.notes
    )
    write(tmp_path / "deep", PER_PROMPT | args)
    assert len(dp.load(tmp_path / "deep")) == 4
    rows = [{"file_name": f"{name}.png", "prompt": "p"} for name in ("x", "y")]
    write(tmp_path / "table", image_files("x", "y") | args | {"data.jsonl": jsonl(rows)})
    samples = dp.load(tmp_path / "table")
    assert len(samples) == 2 and any("args.json: not read" in note.text for note in samples.notes)


@pytest.mark.parametrize(
    "content", [{"gone.png": "a"}, {"a prompt": ["gone.png"]}, {"gone.png": {"prompt": "a"}}]
)
def test_a_map_of_missing_files_is_still_a_map(content, tmp_path):
    write(tmp_path, image_files("0", "1") | {"map.json": json.dumps(content)})
    with pytest.raises(dp.DataError, match=r"names gone.png, but there is no such file"):
        dp.load(tmp_path)


def test_invalid_json_and_json_without_images_are_refused(tmp_path):
    write(tmp_path / "broken", image_files("0", "1") | {"map.json": "{"})
    with pytest.raises(dp.DataError, match="is not JSON"):
        dp.load(tmp_path / "broken")
    write(tmp_path / "alone", {"args.json": json.dumps(ARGUMENTS)})
    with pytest.raises(dp.DataError, match="maps 'seed' to a number"):
        dp.load(tmp_path / "alone")


# --- folders of `datasets`


def arrow(path: Path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pyarrow.ipc.new_stream(str(path), table.schema) as stream:
        stream.write_table(table)


def state(*names):
    return {
        "state.json": json.dumps(
            {"_data_files": [{"filename": name} for name in names], "_split": None}
        )
    }


def test_a_datasets_folder_is_read_without_its_caches(tmp_path):
    write(tmp_path, state("data-00000-of-00002.arrow", "data-00001-of-00002.arrow"))
    for name in (
        "cache-0123.arrow",
        "data-00000-of-00002.arrow",
        "data-00001-of-00002.arrow",
        "tmp.arrow",
    ):
        arrow(tmp_path / name, records())
    assert len(dp.load(tmp_path)) == 2 * len(records())


def test_mapping_a_dataset_does_not_change_the_saved_one(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(records()).save_to_disk(str(tmp_path / "saved"))
    datasets.load_from_disk(str(tmp_path / "saved")).map(
        lambda row: {"output": row["output"] + "!"}
    )
    assert list((tmp_path / "saved").glob("cache-*.arrow"))
    assert [output.text for output in dp.load(tmp_path / "saved").outputs] == [
        row["output"] for row in records()
    ]


def test_a_state_cannot_name_files_outside_its_folder(tmp_path):
    arrow(tmp_path / "out.arrow", records())
    write(tmp_path / "in", state("../out.arrow"))
    with pytest.raises(dp.DataError, match=r"state.json leads to .*out.arrow, outside"):
        dp.load(tmp_path / "in")
    write(tmp_path / "whole", {"dataset_dict.json": "{}"})
    write(tmp_path / "apart", state("a.arrow"))
    arrow(tmp_path / "apart" / "a.arrow", records())
    (tmp_path / "whole" / "test").symlink_to(tmp_path / "apart")
    with pytest.raises(dp.DataError, match=r"leads to .*apart, outside"):
        dp.load(tmp_path / "whole")


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"_data_files": 3}', '{"_data_files": [{"name": "a"}]}']
)
def test_a_state_without_files_is_refused(content, tmp_path):
    write(tmp_path, {"state.json": content})
    with pytest.raises(
        dp.DataError,
        match=r"state.json does not list its files under '_data_files', as `save_to_disk` writes",
    ):
        dp.load(tmp_path)
    write(tmp_path, state("gone.arrow"))
    with pytest.raises(
        dp.DataError, match=r"state.json names gone.arrow, but there is no such file"
    ):
        dp.load(tmp_path)
    write(tmp_path, state())
    with pytest.raises(dp.DataError, match=r"is a datasets folder without any .arrow file"):
        dp.load(tmp_path)
