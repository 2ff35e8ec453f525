"""Nothing in silence: what a source leaves open is a warning with a code, or refused if strict."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from command_line import run
from sample_files import image_bytes, jsonl, write

import divprism as dp
from divprism.analysis.matching import match_prompts
from divprism.core.near_rows import equal_up_to
from divprism.data.items import texts
from divprism.data.readers.content_checks import is_refusal
from divprism.embedders.doubts import doubts_about

PROMPTS = [f"Tell me something about {thing}" for thing in ("cats", "rivers", "tea", "Mars")]


def answers(*models, field="model", per_prompt=3):
    """Rows with different outputs for every prompt and model."""
    rows = []
    for model in models:
        for prompt in PROMPTS:
            for number in range(per_prompt):
                output = f"{prompt[23:]} are number {number} of what {model} knows"
                rows.append({field: model, "prompt": prompt, "output": output})
    return rows


def scored(folder, *flags, name="o.jsonl"):
    """`divprism score` of a file or folder, as text: exit code, table and stderr."""
    done = run("score", folder / name, "--num-permutations", "0", *flags)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def warned(code, text):
    """The lines of a text that are the warning with this code."""
    return [line for line in text.splitlines() if line.startswith(f"warning: {code}:")]


def assert_warns_once_or_refuses(folder, code, *fragments, name="o.jsonl"):
    """A warning with a code, printed once, and exit code 4 with the same words if strict."""
    status, _, stderr = scored(folder, name=name)
    assert status == 0, stderr
    [line] = warned(code, stderr)
    for fragment in fragments:
        assert fragment in line
    status, _, stderr = scored(folder, "--strict", name=name)
    assert status == 4
    assert "(an error because of --strict)" in stderr
    assert fragments[0] in stderr


# --- guesses about the source


@pytest.mark.parametrize("field", ["llm", "engine", "system", "written_by"])
def test_models_in_a_field_that_is_not_recognised_are_not_pooled_in_silence(tmp_path, field):
    write(tmp_path, {"o.jsonl": jsonl(answers("first", "second", field=field))})
    way_out = f"Pass --model-field {field} to tell the models apart"
    assert_warns_once_or_refuses(tmp_path, "models-pooled", f"the field '{field}' of", way_out)
    status, table, stderr = scored(tmp_path, "--strict", "--model-field", field)
    assert status == 0
    assert "first" in table
    assert not warned("models-pooled", stderr)


def test_a_refusal_for_lack_of_models_names_the_field_that_holds_them(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(answers("first", "second", field="llm"))})
    done = run("compare", tmp_path / "o.jsonl")
    assert done.returncode == 4
    message = done.stderr.decode().splitlines()[-1]
    assert message.startswith("divprism: a comparison needs at least two models; got 1. The field")
    assert "Pass --model-field llm to tell the models apart." in message
    assert run("compare", tmp_path / "o.jsonl", "--model-field", "llm").returncode == 0
    done = run("groups", tmp_path / "o.jsonl", "--model", "first")
    assert done.returncode != 0
    assert b"Pass --model-field llm" in done.stderr
    with pytest.raises(dp.ArgumentError, match="Pass `model_field=llm`"):
        dp.compare(dp.load(tmp_path / "o.jsonl"))


def test_a_refusal_for_lack_of_models_names_the_folders_that_look_like_them(tmp_path):
    for model in ("sdxl", "flux-dev"):
        for name in ("a cat-0.png", "a cat-1.png", "a dog-0.png", "a dog-1.png"):
            write(tmp_path, {f"{model}/{name}": image_bytes()})
    done = run("compare", tmp_path)
    assert done.returncode == 4
    assert b"If they are models, compare them as sources of their own" in done.stderr


def test_a_refusal_for_lack_of_models_has_a_way_out(tmp_path):
    rows = [{"prompt": row["prompt"], "output": row["output"]} for row in answers("one")]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    done = run("compare", tmp_path / "o.jsonl")
    assert done.returncode == 4
    assert b"Name the field that holds the model (--model-field), or give a source" in done.stderr


@pytest.mark.parametrize(
    "field, value",
    [
        ("topic", lambda row, number: row["prompt"][-3:]),  # belongs to the prompt
        ("seed", lambda row, number: number % 3),
        ("rating", lambda row, number: str(number % 3)),
        ("finish_reason", lambda row, number: ["stop", "length"][number < 2]),
        ("uuid", lambda row, number: f"row-{number}"),
        ("remark", lambda row, number: f"{number % 2} " * 100),
    ],
)
def test_a_field_that_is_no_model_gives_no_warning(tmp_path, field, value):
    rows = [row | {field: value(row, n)} for n, row in enumerate(answers("", field="_"))]
    for row in rows:
        del row["_"]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    status, _, stderr = scored(tmp_path, "--strict")
    assert status == 0, stderr
    assert not warned("models-pooled", stderr)


def test_an_unused_field_of_few_values_is_noted_with_the_flag_that_uses_it(tmp_path):
    rows = [{"prompt": f"p {n}", "output": f"o {n}", "variant": "abc"[n % 3]} for n in range(9)]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    status, _, stderr = scored(tmp_path, "--strict")
    assert status == 0, stderr
    note = (
        "the field 'variant' has 3 values (a, b, c) and is not used; if it names the model, pass "
    )
    assert note + "--model-field variant" in " ".join(stderr.split())
    for number, row in enumerate(rows):
        row["variant"] = str(number)
    (note,) = dp.load(rows).notes
    assert "is not used" not in note.text


@pytest.mark.parametrize(
    "names, files",
    [
        (("sdxl-turbo", "flux-dev"), ("0", "1")),
        (("stable-diffusion-1.5", "kandinsky"), ("0", "1")),
        (("ours", "theirs"), ("a red fox-0", "a blue bird-0")),
    ],
)
def test_folders_that_look_like_models_are_not_read_as_prompts_in_silence(tmp_path, names, files):
    content = {}
    for name in names:
        for file in files:
            content[f"g/{name}/{file}.png"] = image_bytes(len(content))
    write(tmp_path, content)
    fragments = "look like models", "compare them as sources of their own", names[0]
    assert_warns_once_or_refuses(tmp_path, "model-folders-as-prompts", *fragments, name="g")


@pytest.mark.parametrize(
    "names, files",
    [
        (("apple", "llama", "pear"), ("0", "1")),
        (("a red fox in the snow", "a bird on a wire"), ("seed-0", "seed-1")),
        (("n01440764", "n01443537"), ("n01440764_1", "n01440764_2")),
    ],
)
def test_folders_of_prompts_give_no_warning(tmp_path, names, files):
    content = {}
    for name in names:
        for file in files:
            content[f"g/{name}/{file}.png"] = image_bytes(len(content))
    write(tmp_path, content)
    status, _, stderr = scored(tmp_path, "--strict", name="g")
    assert status == 0, stderr


def test_names_of_missing_files_are_not_scored_as_texts_in_silence(tmp_path):
    rows = [{"prompt": "a cat", "output": f"elsewhere/{n}.png"} for n in range(4)]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    fragments = "4 of 4 outputs look like names of image files", "--output-kind image"
    assert_warns_once_or_refuses(tmp_path, "file-names-as-texts", *fragments)
    status, _, stderr = scored(tmp_path, "--strict", "--output-kind", "text")
    assert status == 0, stderr


def test_paths_of_images_in_python_are_read_as_images(tmp_path):
    write(tmp_path, {f"{n}.png": image_bytes(n) for n in range(4)})
    paths = sorted(tmp_path.glob("*.png"))
    prompts = ["a", "a", "b", "b"]
    expected = dp.evaluate(paths, prompts)
    assert expected.embedders[0]["id"] == "efficientnet-lite0"
    for outputs in ([str(path) for path in paths], pd.Series([str(path) for path in paths])):
        found = dp.evaluate(outputs, prompts)
        assert float(found.vendi) == float(expected.vendi)
        note = "4 outputs name existing files, which are read as images"
        assert note in [notice.text for notice in found.notes]
    as_ids = dp.evaluate(np.eye(4), [str(path) for path in paths], kernel_t=dp.Categorical())
    assert as_ids.embedders == ()
    with pytest.raises(dp.DataError, match=r"output 0 names the file missing\.png"):
        dp.evaluate(["missing.png", str(paths[0])])
    missing = dp.evaluate(["missing.png", "lost.png"])
    assert [notice.code for notice in missing.warnings] == ["file-names-as-texts"]


# --- containers

SENTENCES = [f"{thing} number {n}" for thing in ("a cat", "tea", "the sea") for n in range(4)]
CONTAINERS = {
    "tuple": tuple,
    "array of strings": np.array,
    "array of objects": lambda values: np.array(values, dtype=object),
    "Series": pd.Series,
    "Series of objects": lambda values: pd.Series(values, dtype=object),
    "Series of another index": lambda values: pd.Series(values, index=range(5, 5 + len(values))),
    "categorical Series": lambda values: pd.Series(values, dtype="category"),
    "Index": pd.Index,
    "polars Series": pl.Series,
    "pyarrow Array": pa.array,
    "pyarrow ChunkedArray": lambda values: pa.chunked_array([values[:3], values[3:]]),
}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_of_texts_gives_the_answer_of_the_list(container):
    prompts = [text[:5] for text in SENTENCES]
    expected = dp.evaluate(SENTENCES, prompts)
    found = dp.evaluate(container(SENTENCES), container(prompts))
    assert found.to_dict()["scores"] == expected.to_dict()["scores"]
    assert found.warnings == expected.warnings
    # A single score embeds nothing: texts are ids in every container, and the result says so.
    by_id = dp.conditional_vendi(np.eye(12), container(prompts))
    assert float(by_id) == float(dp.conditional_vendi(np.eye(12), prompts))
    assert [notice.code for notice in by_id.warnings] == ["texts-as-ids"]


def test_a_column_of_any_library_is_a_container_like_any_other():
    class Series:
        """What divprism uses of a Series."""

        def __init__(self, values):
            self.values, self.shape = values, (len(values),)

        def __len__(self):
            return len(self.values)

        def to_list(self):
            return self.values

    found = dp.evaluate(Series(SENTENCES))
    assert float(found.vendi) == float(dp.evaluate(SENTENCES).vendi)


def test_a_column_of_vectors_is_a_matrix():
    rows = np.random.default_rng(0).standard_normal((8, 3))
    expected = dp.evaluate(rows, np.arange(8) // 2)
    found = dp.evaluate(pd.Series(list(rows)), pd.Series(np.arange(8) // 2))
    assert found.to_dict()["scores"] == expected.to_dict()["scores"]


def test_a_score_function_names_the_function_that_embeds_texts():
    with pytest.raises(dp.DataError, match=r"`x` holds texts.*evaluate"):
        dp.vendi(["one", "two"])


# --- what the outputs and prompts are


def test_refusals_are_counted(tmp_path):
    rows = answers("open", "closed")
    for row in rows[12:18]:
        row["output"] = f"I'm sorry, but I can't help with {row['prompt']}."
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    fragments = "6 of 24 outputs look like refusals, 6 of 12 of closed", "drop them"
    assert_warns_once_or_refuses(tmp_path, "refusals", *fragments)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that request.",
        "I\u2019m sorry, I cannot provide medical advice.",
        "Sorry, I can't help with that.",
        "I apologize, but I am not able to continue.",
        "As an AI language model, I do not have opinions.",
        "I can't fulfill this request.",
        "I cannot create content of that kind.",
        "Unfortunately, I'm unable to help here.",
        "I won't write that story.",
    ],
)
def test_a_refusal_is_recognised(text):
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry for your loss, and here is a poem.",
        "I can't wait to tell you about cats!",
        "Sorry seems to be the hardest word.",
        "I will not be king, said the prince.",
        "As an avid reader, I recommend three books.",
        "The model said: I cannot help you.",
        "I cannot remember the summer without the smell of rain.",
        "I can't believe this happened.",
        "I won't give up on you.",
        "I'm unable to sleep.",
        "As an artificial reef grows, fish arrive.",
    ],
)
def test_an_answer_is_not_taken_for_a_refusal(text):
    assert not is_refusal(text)


def test_a_long_run_of_blanks_is_no_refusal():
    assert not is_refusal("I" + " " * 10_000_000 + "can")


def test_empty_outputs_are_counted(tmp_path):
    rows = answers("one", field="note")
    for row in rows[:5]:
        row["output"] = "  "
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    status, _, stderr = scored(tmp_path)
    assert status == 0
    [line] = warned("outputs-skipped", stderr)
    assert "5 of 12 outputs were skipped" in line
    assert scored(tmp_path, "--strict")[0] == 4
    write(tmp_path, {"o.jsonl": jsonl([row | {"output": ""} for row in rows])})
    status, _, stderr = scored(tmp_path)
    assert (status, "there is nothing to score" in stderr) == (4, True)


def test_prompts_that_differ_by_white_space_or_case_are_counted(tmp_path):
    rows = answers("one")
    rows[0]["prompt"] += " "
    rows[1]["prompt"] = rows[1]["prompt"].replace(" ", "\u00a0")
    rows[3]["prompt"] = rows[3]["prompt"].lower()
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    differ = "2 groups of prompts differ only by case, white space or Unicode form"
    assert_warns_once_or_refuses(tmp_path, "prompts-nearly-equal", differ, "write them alike")


def test_prompts_in_two_unicode_forms_are_counted():
    t = ["a\u00f1o", "an\u0303o", "tea", "tea"]
    for prompts in (t, np.array(t)):
        found = dp.evaluate(np.eye(4), prompts)
        assert "prompts-nearly-equal" in [notice.code for notice in found.warnings]


def test_long_prompts_that_are_nearly_equal_are_shown_where_they_differ(tmp_path):
    rows = answers("one")
    start = "Please answer at length, with examples, and without repeating yourself: "
    for row in rows:
        row["prompt"] = start + row["prompt"]
    rows[0]["prompt"] = rows[0]["prompt"].replace("cats", "Cats")
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    _, _, stderr = scored(tmp_path)
    [line] = warned("prompts-nearly-equal", stderr)
    assert "something about Cats' and '..." in line
    assert "something about cats')" in line


def test_a_text_that_is_cut_in_a_warning_ends_in_dots(tmp_path):
    rows = answers("one")
    for row in rows[:6]:
        row["output"] = "I'm sorry, but I can't help with what you are asking me to do here, now."
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    _, _, stderr = scored(tmp_path)
    [line] = warned("refusals", stderr)
    assert "(first: \"I'm sorry, but I can't help with what you are asking me to d...\")" in line


# --- several models side by side


def test_unequal_numbers_of_outputs_are_said_in_the_table(tmp_path):
    rows = answers("long", "short")
    write(tmp_path, {"o.jsonl": jsonl(rows[:-4])})
    status, table, stderr = scored(tmp_path)
    assert status == 0
    [line] = warned("unequal-outputs", stderr)
    assert "from 8 (short) to 12 (long)" in line
    assert "compare the models" in line
    assert "the models differ in their prompts and numbers of outputs" in " ".join(table.split())
    [line] = warned("unequal-prompts", stderr)
    assert "3 of 4 are common to all" in line


def test_equal_models_get_no_note_on_their_numbers(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(answers("one", "two"))})
    status, table, stderr = scored(tmp_path)
    assert status == 0
    assert "differ in" not in table
    assert not warned("unequal-outputs", stderr)
    assert not warned("unequal-prompts", stderr)


def test_compare_keeps_outputs_by_their_content_whatever_the_seed_and_the_order():
    outputs = [f"{row['output']} and more" for row in answers("a", per_prompt=9)]
    prompts = np.repeat(np.arange(4), 9)
    few = dp.Samples(dp.data.items.texts(outputs[::3]), prompts[::3])
    expected = None
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(36)
        many = dp.Samples(dp.data.items.texts([outputs[row] for row in order]), prompts[order])
        found = dp.compare({"few": few, "many": many}, kernel_x=dp.Gaussian(0.5), rng=seed)
        scores = float(found.results["few"].vendi), float(found.results["many"].vendi)
        expected = expected or scores
        assert scores == pytest.approx(expected, rel=1e-12)


def test_outputs_that_are_equal_in_single_precision_are_kept_whatever_their_order():
    """Their hashes in single precision are the same, and must not leave the choice to the rows."""
    noise = np.random.default_rng(0).standard_normal((36, 3))
    outputs = np.ones((36, 3)) + 1e-9 * noise
    prompts = np.repeat(np.arange(4), 9)
    few = {"few": dp.Samples(outputs[::3], prompts[::3])}
    kept = []
    for order in (np.arange(36), np.arange(36)[::-1]):
        many = {"many": dp.Samples(outputs[order], prompts[order])}
        rows, _ = match_prompts(few | many)
        kept.append(set(order[rows["many"]].tolist()))
    assert kept[0] == kept[1]


@pytest.mark.parametrize("shared", [0, 1])
def test_the_advice_for_models_without_common_prompts_is_one_that_works(tmp_path, shared):
    rows = answers("one", "two", "three")
    for row in rows:
        if row["model"] == "three" or (row["model"] == "two" and not shared):
            row["prompt"] += f" for {row['model']}"
    del rows[-1]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    status, _, stderr = scored(tmp_path)
    assert status == 0
    [outputs] = warned("unequal-outputs", stderr)
    [prompts] = warned("unequal-prompts", stderr)
    # A comparison would be refused.
    assert "compare the models instead" not in outputs + prompts
    assert "keep the same number of outputs of each model (--limit 11)" in outputs
    limited = scored(tmp_path, "--limit", "11")[2]
    assert not warned("unequal-outputs", limited)
    refused = run("compare", tmp_path / "o.jsonl")
    assert refused.returncode == 4
    partners = "only models that share prompts, such as one and two, which share 4"
    assert (partners in prompts) == (partners in refused.stderr.decode()) == bool(shared)


def test_models_without_prompts_are_not_advised_to_be_compared(tmp_path):
    rows = [{"model": row["model"], "output": row["output"]} for row in answers("one", "two")]
    write(tmp_path, {"o.jsonl": jsonl(rows[:-2])})
    [line] = warned("unequal-outputs", scored(tmp_path)[2])
    assert "(--limit 10)" in line
    assert "compare" not in line


TEXTS = dp.data.items.texts(["a", "b", "a", "b"])
FORMS = {
    "texts": TEXTS,
    "ids that are numbers": np.array([0, 1, 0, 1]),
    "ids that are texts": np.array(["a", "b", "a", "b"]),
    "vectors of 2 numbers": np.eye(4)[:, :2],
    "vectors of 3 numbers": np.eye(4)[:, :3],
}


@pytest.mark.parametrize("form", list(FORMS)[1:])
def test_prompts_of_different_forms_are_refused_as_such(form):
    models = {"first": dp.Samples(np.eye(4), TEXTS), "second": dp.Samples(np.eye(4), FORMS[form])}
    with pytest.raises(dp.DataError, match=f"of first are texts and those of second are {form}"):
        dp.compare(models)


def test_vectors_of_different_widths_are_refused_as_such():
    models = {}
    for width in (2, 3):
        models[f"of {width}"] = dp.Samples(np.eye(4), FORMS[f"vectors of {width} numbers"])
    with pytest.raises(dp.DataError, match="vectors of one embedder"):
        dp.compare(models)


def test_prompts_that_differ_only_by_spelling_are_said_to():
    other = dp.data.items.texts([" A", "B ", " A", "B "])
    models = {"first": dp.Samples(np.eye(4), TEXTS), "second": dp.Samples(np.eye(4), other)}
    with pytest.raises(dp.DataError, match="2 prompts differ only by case, white space or"):
        dp.compare(models)


# --- embedders

FOREIGN = {
    "Cyrillic": "\u0421\u0435\u0433\u043e\u0434\u043d\u044f \u0445\u043e\u0440\u043e\u0448\u043e",
    "Han": "\u4eca\u5929\u5929\u6c14\u5f88\u597d",
    "Arabic": "\u0627\u0644\u0637\u0642\u0633 \u062c\u0645\u064a\u0644",
}


@pytest.mark.parametrize("script", FOREIGN)
def test_texts_in_scripts_that_the_default_embedder_does_not_know_are_counted(tmp_path, script):
    rows = answers("one")
    for number, row in enumerate(rows[:6]):
        row["output"] = f"{FOREIGN[script]} {number}"
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    status, _, stderr = scored(tmp_path)
    assert status == 0
    [line] = warned("unknown-script", stderr)
    assert "6 of 12 outputs are mostly in a script that wordllama was not trained on" in line
    assert f"({script})" in line
    assert "Pass multilingual (pip install 'divprism[multilingual]';" in line
    assert "or another multilingual model as --embedder-x" in line
    found = dp.evaluate([row["output"] for row in rows], embedder_x=lambda texts: np.eye(12))
    assert not [notice for notice in found.warnings if notice.code == "unknown-script"]


def test_prompts_alone_in_another_script_get_the_same_advice(tmp_path):
    rows = answers("one")
    numbers = {
        prompt: str(number)
        for number, prompt in enumerate(dict.fromkeys(r["prompt"] for r in rows))
    }
    for row in rows:
        row["prompt"] = f"{FOREIGN['Cyrillic']} {numbers[row['prompt']]}"
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    _, _, stderr = scored(tmp_path)
    [line] = warned("unknown-script", stderr)
    assert "prompts are mostly in a script that wordllama was not trained on (Cyrillic)" in line
    assert "pip install 'divprism[multilingual]'" in line
    assert "as --embedder-t." in line


def test_no_model_is_named_for_a_script_that_none_of_ours_knows():
    greek = ["\u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1", "\u03bd\u03b1\u03b9"]
    for embedder in (dp.WordLlama(), dp.Multilingual()):
        known = doubts_about(texts(greek), np.eye(2), embedder, "x")
        [text] = [notice.text for notice in known if notice.code == "unknown-script"]
        assert f"a script that {embedder.name} was not trained on (Greek)" in text
        assert text.endswith("Pass a model that was trained on it as `embedder_x`.")
    known = doubts_about(texts(list(FOREIGN.values())), np.eye(3), dp.Multilingual(), "x")
    assert not known


def test_accents_quotes_and_emoji_are_no_foreign_script():
    texts = [
        "d\u00e9j\u00e0 na\u00efve \u00fcber",
        "\u201cquoted\u201d \u2014 text",
        "\U0001f600\U0001f601 a",
    ]
    found = dp.evaluate(texts)
    assert not [notice for notice in found.warnings if notice.code == "unknown-script"]


def test_texts_that_the_embedder_cannot_tell_apart_are_counted(tmp_path):
    rows = answers("one")
    rows[0]["prompt"] = "Pick one: glass half full or glass half empty"
    rows[1]["prompt"] = "Pick one: glass half empty or glass half full"
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    status, _, stderr = scored(tmp_path)
    assert status == 0
    [line] = warned("items-share-a-vector", stderr)
    assert "6 different prompts have 5 different vectors" in line
    assert "pass another model as --embedder-t" in line


@pytest.mark.parametrize("number", [1e-320, 1e-45, 1e-30, 1.0, 1e30])
def test_vectors_of_any_scale_are_told_apart_without_a_warning_of_numpy(number):
    rng = np.random.default_rng(0)
    vectors = {text: number * rng.choice([1.0, 2.0, 3.0], 40) for text in "abcdefgh"}
    vectors["h"] = vectors["g"]

    def lookup(batch):
        return np.stack([vectors[text] for text in batch])

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        samples = dp.embed(
            dp.Samples(texts("abcdefgh")), embedder_x=dp.Function(lookup), cache=False
        )
    [notice] = [one for one in samples.warnings if one.code == "items-share-a-vector"]
    assert "8 different outputs have 7 different vectors" in notice.text


# --- small samples


def test_two_rows_have_no_interval(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(answers("one")[::6])})
    status, table, stderr = scored(tmp_path)
    assert status == 0
    [line] = warned("too-few-for-interval", stderr)
    assert "the sample (2 outputs of 2 prompts) is too small for intervals" in line
    assert "at least 10 prompts, or 10 outputs beyond the first of each prompt" in line
    assert "too few" in table
    assert " to " not in table.splitlines()[2]
    document = json.loads(scored(tmp_path, "--format", "json")[1])
    assert {score["interval"] is None for score in document["scores"].values()} == {True}
    # Without a question about intervals there is nothing to warn about.
    assert not warned("too-few-for-interval", scored(tmp_path, "--interval", "0")[2])


@pytest.mark.parametrize("flags", [(), ("--interval", "0")])
def test_a_single_row_is_not_called_exact(tmp_path, flags):
    write(tmp_path, {"o.jsonl": jsonl(answers("one")[:1])})
    status, table, stderr = scored(tmp_path, *flags)
    assert status == 0, stderr
    assert "exact" not in table
    assert bool(warned("too-few-for-interval", stderr)) == (flags == ())


def test_models_with_too_few_outputs_are_ranked_without_a_verdict(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(answers("one", "two", per_prompt=2))})
    done = run("compare", tmp_path / "o.jsonl", "--num-permutations", "0")
    assert done.returncode == 0, done.stderr
    table = " ".join(done.stdout.decode().split())
    assert "too few outputs to say whether models differ" in table
    assert "(too few outputs for an interval)" in table
    assert len(warned("too-few-for-interval", done.stderr.decode())) == 1
    page = tmp_path / "r.html"
    call = ("--format", "json", "--report", page, "--plot", tmp_path / "p.png")
    document = json.loads(run("compare", tmp_path / "o.jsonl", *call).stdout)
    [difference] = document["differences"]
    assert (difference["low"], difference["high"], difference["clear"]) == (None, None, False)
    assert document["ranks"] == {"one": [1, 2], "two": [1, 2]}
    assert "too few outputs to say whether models differ" in page.read_text()


@pytest.mark.parametrize("count", [5, 19])
def test_a_p_value_comes_with_the_least_that_its_pairings_can_show(tmp_path, count):
    rng = np.random.default_rng(0)
    t = rng.standard_normal((40, 2))
    np.savez(tmp_path / "o.npz", x=t + 0.01 * rng.standard_normal((40, 2)), t=t)
    page = tmp_path / "r.html"
    call = ("score", tmp_path / "o.npz", "--num-permutations", count, "--report", page)
    text = " ".join(run(*call).stdout.decode().split())
    assert f"p <= {1 / (count + 1):.2g}, the least that {count} random pairings can show" in text
    if count == 19:
        assert "the least that 19 random pairings can show" in " ".join(page.read_text().split())
    np.savez(tmp_path / "o.npz", x=rng.standard_normal((40, 2)), t=t)
    text = " ".join(run(*call).stdout.decode().split())
    assert "the least that" not in text
    assert f"{count} random pairings)" in text


@pytest.mark.parametrize("num_models", [3, 4, 5])
def test_a_correlation_over_models_takes_five_of_them(tmp_path, num_models):
    rows = answers(*(f"model{number}" for number in range(num_models)))
    for row in rows:
        number = int(row["model"][-1])
        row["output"] += " very" * number + f" {len(row['output']) * number}"
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    done = run("compare", tmp_path / "o.jsonl", "--num-permutations", "0")
    assert done.returncode == 0, done.stderr
    assert ("(Spearman)" in done.stdout.decode()) == (num_models >= 5)


def test_a_small_sample_with_clear_differences_says_how_both_are_true(tmp_path):
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(25), 2)
    for name, width in (("a", 3.0), ("b", 0.3)):
        np.savez(tmp_path / f"{name}.npz", x=width * rng.standard_normal((50, 3)), t=prompts)
    page = tmp_path / "r.html"
    sources = (tmp_path / "a.npz", tmp_path / "b.npz")
    flags = ("--bandwidth-x", "1", "--by", "vendi", "--report", page)
    done = run("compare", *sources, *flags)
    assert done.returncode == 0, done.stderr
    text = " ".join(page.read_text().split())
    assert "the two models differ clearly" in text
    # Nearly all outputs of the first model are distinct, so that more of them raise its Vendi.
    assert "they do not suffice for vendi" in text
    assert "is too small for the level of Vendi" in text
    assert "with more outputs they can grow or shrink" in text


def test_prompts_that_differ_by_rounding_are_reported():
    """Vectors of one text from two batches, in single precision."""
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((40, 6)), np.repeat(rng.standard_normal((8, 5)), 5, axis=0)
    t = t.astype(np.float32)
    assert "prompts-nearly-equal" not in [notice.code for notice in dp.evaluate(x, t).warnings]
    t[::2] = np.nextafter(t[::2], np.float32(np.inf))
    [notice] = [
        notice for notice in dp.evaluate(x, t).warnings if notice.code == "prompts-nearly-equal"
    ]
    assert "16 of 16 distinct prompts" in notice.text


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_prompts_of_one_direction_are_one_prompt_after_normalization(dtype):
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((40, 6)), np.repeat(rng.random((8, 5)) + 0.1, 5, axis=0)
    scaled = (t * rng.uniform(0.5, 2, (40, 1))).astype(dtype)
    result = dp.evaluate(x, scaled, normalize_t=True)
    assert result.data["prompts"] == 8
    expected = dp.evaluate(x, t, normalize_t=True)
    # Two roundings of a vector in half precision are apart by about a thousandth.
    assert float(result.per_prompt_vendi) == pytest.approx(float(expected.per_prompt_vendi))
    assert "prompts-nearly-equal" not in [notice.code for notice in result.warnings]


def test_images_in_the_prompts_of_chats_are_reported(tmp_path):
    rows = []
    for number in range(4):
        image = {"type": "image_url", "image_url": {"url": f"http://127.0.0.1/{number}.png"}}
        content = [{"type": "text", "text": "Describe"}, image]
        chat = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": f"a {number}"},
        ]
        rows.append({"messages": chat})
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    assert_warns_once_or_refuses(tmp_path, "prompt-parts-left-out", "4 prompts have images")


def test_a_table_with_names_of_a_batch_is_read_as_a_table(tmp_path):
    rows = [{"custom_id": n, "prompt": "p", "response": f"answer {n}"} for n in range(2)]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    outputs = dp.load(tmp_path / "o.jsonl").outputs
    assert [item.text for item in outputs] == ["answer 0", "answer 1"]


@pytest.mark.parametrize("missing", [pd.NA, pd.NaT, None])
def test_a_missing_text_in_a_list_of_dicts_is_left_out(missing):
    rows = [{"prompt": "p", "output": text} for text in ("a b", missing, "c d")]
    result = dp.evaluate(rows)
    assert (result.data["n"], result.data["skipped"]) == (2, 1)


def test_rows_far_from_the_origin_are_compared_too():
    """There the numbers of the cells that rows are sorted into exceed 64 bits."""
    rows = np.array([[1e9, 0.0], [2e9, 0.0], [3e9, 1.0], [3e9, 1.0], [2e9, 0.0]])
    assert equal_up_to(rows, 1e-15).tolist() == [0, 1, 2, 2, 1]
