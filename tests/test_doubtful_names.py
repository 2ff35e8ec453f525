"""Names of files, folders and fields that may be no prompts or no models."""

import pytest
from sample_files import (
    ANSWERS,
    PROMPTS,
    image_bytes,
    inspect_header,
    inspect_log,
    inspect_sample,
    jsonl,
    response,
    write,
)

import divprism as dp


def codes(samples):
    return [notice.code for notice in samples.warnings]


def notes(samples):
    return " ".join(notice.text for notice in samples.notes)


def images(tmp_path, *names):
    return write(tmp_path, {f"{name}.png": image_bytes(n) for n, name in enumerate(names)})


# --- files whose names hold a model, a camera or a seed


DOUBTFUL = {
    "models": (("sd15_0", "sd15_1", "sdxl_0"), "sd15, sdxl"),
    "models with a hyphen": (("sdxl-0", "flux-dev-0", "flux-dev-1"), "flux-dev, sdxl"),
    "models before prompts": (("sd15_a cat_0", "sd15_a dog_0"), "sd15_a cat"),
    "two cameras": (("IMG_0001", "IMG_0002", "DSC_0001"), "DSC, IMG"),
    "one camera with a hyphen": (("IMG-0001", "IMG-0002"), "IMG"),
    "dates of a camera": (("IMG_20260101_1", "VID_20260101_2"), "IMG_20260101, VID_20260101"),
    "numbered samples": (("sample-1", "sample-2", "grid-1"), "grid, sample"),
    "a word for the seed": (("a cat_seed_1", "a dog_seed_2"), "a cat_seed, a dog_seed"),
    "an index and a seed": (("a cat_0_71", "a cat_1_83", "a dog_0_55"), "a cat_0, a cat_1, a dog_"),
    "the same with hyphens": (("a cat-0-71", "a cat-1-83"), "a cat-0, a cat-1"),
}


@pytest.mark.parametrize(("names", "examples"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_names_of_files_that_may_be_no_prompts_give_a_warning(names, examples, tmp_path):
    samples = dp.load(images(tmp_path, *names))
    (warning,) = samples.warnings
    assert warning.code == "file-names-as-prompts"
    assert f"look like those of models, cameras or seeds ({examples}" in warning.text
    assert "but each is read as a prompt" in warning.text
    assert "pass a list of prompts as `prompts`, or add a metadata.jsonl" in warning.text
    with pytest.raises(dp.DataError, match=r"models, cameras or seeds .* because of `strict=True`"):
        dp.load(tmp_path, strict=True)
    write(tmp_path, {"prompts/prompts.txt": "\n".join(f"p {n}" for n in range(len(names)))})
    listed = dp.load(tmp_path, tmp_path / "prompts" / "prompts.txt")
    assert "file-names-as-prompts" not in codes(listed)


@pytest.mark.parametrize(
    "names",
    [
        ("a red fox_0", "a red fox_1", "a blue bird_0"),
        ("a_llama_in_a_hat-0", "a_llama_in_a_hat-1", "an_image_of_flux-0"),
        ("highway 66-0", "highway 67-0"),
        ("route_66_0", "an owl_0"),
        ("n01440764_0", "n01443537_0"),
    ],
)
def test_names_of_files_that_hold_prompts_give_none(names, tmp_path):
    samples = dp.load(images(tmp_path, *names), strict=True)
    assert samples.prompts is not None


# --- folders in folders


def grid(tmp_path, outer, inner):
    files = {f"g/{a}/{b}/{n}.png": image_bytes(n) for a in outer for b in inner for n in range(2)}
    return write(tmp_path, files) / "g"


CROSSED = {
    "models inside": (("a red fox", "a blue bird"), ("sdxl", "flux-dev")),
    "words alone": (("cat", "dog"), ("ours", "theirs")),
    "models on both sides": (("sdxl", "flux-dev"), ("gpt-4o", "qwen-7b")),
    "more words outside": (("a red fox", "a blue bird"), ("ours", "theirs")),
}


@pytest.mark.parametrize(("outer", "inner"), CROSSED.values(), ids=CROSSED)
def test_a_grid_of_folders_that_may_be_read_both_ways_gives_a_warning(outer, inner, tmp_path):
    samples = dp.load(grid(tmp_path, outer, inner))
    assert set(samples.models) == set(outer)
    (warning,) = samples.warnings
    assert warning.code == "folders-ambiguous"
    read = f"{', '.join(sorted(outer))} are read as models, and {', '.join(sorted(inner))} as pro"
    assert read in warning.text
    assert "make the models the outer folders, or add a metadata.jsonl" in warning.text
    with pytest.raises(dp.DataError, match=r"either could be the models.*strict=True"):
        dp.load(tmp_path / "g", strict=True)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (("sdxl", "flux-dev"), ("cat", "dog")),
        (("ours", "theirs"), ("a red fox", "a blue bird")),
        (("ours", "theirs"), ("a_red_fox", "a_blue_bird")),
    ],
)
def test_a_grid_whose_names_settle_it_gives_none(outer, inner, tmp_path):
    assert set(dp.load(grid(tmp_path, outer, inner), strict=True).models) == set(outer)


def test_folders_of_geneval_below_models_are_no_riddle(tmp_path):
    for model in ("ours", "theirs"):
        for number, prompt in enumerate(PROMPTS):
            folder = f"g/{model}/{number:05}"
            write(tmp_path, {f"{folder}/metadata.jsonl": jsonl([{"prompt": prompt}])})
            write(tmp_path, {f"{folder}/samples/0.png": image_bytes(number)})
    assert set(dp.load(tmp_path / "g", strict=True).models) == {"ours", "theirs"}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_all_folders_decide_whether_models_are_those_of_geneval(names, tmp_path):
    """The folder that is no model comes first or last: the answer is the same."""
    genuine, other = names
    write(tmp_path, {f"g/{genuine}/00000/metadata.jsonl": jsonl([{"prompt": "a fox"}])})
    write(tmp_path, {f"g/{genuine}/00000/samples/0.png": image_bytes(0)})
    write(tmp_path, {f"g/{other}/frames/{n}.png": image_bytes(n) for n in range(2)})
    with pytest.raises(dp.DataError, match="two folders deep"):
        dp.load(tmp_path / "g")


# --- fields that are none


def test_what_a_model_was_given_is_not_proposed_as_its_name(tmp_path):
    pytest.importorskip("backports.zstd")
    answers = [response(answer) for answer in ANSWERS]
    for number, answer in enumerate(answers):
        answer["input"] = PROMPTS[number // 2]
        del answer["model"]
    alpaca = [{"instruction": f"Say {n}", "input": "ab"[n % 2], "output": str(n)} for n in range(8)]
    samples = [inspect_sample(n, e, PROMPTS[n], ["a", "b"], "m") for n in (0, 1) for e in (1, 2)]
    header = inspect_header()
    del header["eval"]["model"]
    write(tmp_path, {"a.eval": inspect_log(samples, header)})
    for source in (answers, alpaca, tmp_path / "a.eval"):
        assert "is not used" not in notes(dp.load(source))
