"""Logs of inspect and lm-eval, in the layouts of the versions that tests/sample_files.py names."""

import json
import zipfile

import pytest
from sample_files import (
    ANSWERS,
    PROMPTS,
    inspect_header,
    inspect_log,
    inspect_sample,
    inspect_samples,
    jsonl,
    lm_eval_samples,
    write,
)

import divprism as dp

pytest.importorskip("backports.zstd")

PAIRS = [(PROMPTS[i // 2], answer) for i, answer in enumerate(ANSWERS)]
START = {"version": 2, "eval": inspect_header()["eval"]}
LOGS = {
    "a.eval": inspect_log(),
    "deflate.eval": inspect_log(method=zipfile.ZIP_DEFLATED),
    "interrupted.eval": inspect_log(start=START),
    "a.json": json.dumps(inspect_header() | {"samples": inspect_samples()}),
}


def texts(samples):
    pairs = zip(samples.prompts, samples.outputs, strict=True)
    return [(prompt.text, output.text) for prompt, output in pairs]


@pytest.mark.parametrize("name", LOGS)
def test_epochs_are_outputs_and_the_model_is_that_of_the_header(name, tmp_path):
    write(tmp_path, {name: LOGS[name]})
    for source in (tmp_path / name, tmp_path):
        samples = dp.load(source)
        assert sorted(texts(samples)) == sorted(PAIRS)
        assert samples.models == ("mockllm/model",) * 4
        # The run of one log was interrupted.
        expected = ["log-not-finished"] * (name == "interrupted.eval")
        assert [notice.code for notice in samples.warnings] == expected
        assert "samples of inspect" in samples.notes[0].text


def test_samples_of_a_log_are_in_natural_order(tmp_path):
    samples = [inspect_sample(i, 1, f"p{i}", [f"a{i}"], "m") for i in (10, 9, 2, 1)]
    write(tmp_path, {"a.eval": inspect_log(samples)})
    assert [prompt for prompt, _ in texts(dp.load(tmp_path))] == ["p1", "p2", "p9", "p10"]


def test_a_folder_of_logs_has_a_model_per_header(tmp_path):
    for model in ("one", "two"):
        log = inspect_log(inspect_samples(model), inspect_header(model))
        write(tmp_path, {f"{model}.eval": log})
    parts = dp.load(tmp_path).by_model()
    assert {name: texts(part) for name, part in parts.items()} == {"one": PAIRS, "two": PAIRS}
    assert list(dp.load(tmp_path / "*.eval").by_model()) == ["one", "two"]


def test_of_several_runs_the_successful_one_is_read(tmp_path):
    failed = inspect_log(inspect_samples()[:1], inspect_header(status="error"))
    write(tmp_path, {"1.eval": failed, "2.eval": inspect_log(), "3.eval": inspect_log(start=START)})
    samples = dp.load(tmp_path)
    assert texts(samples) == PAIRS
    assert any("2 logs left out: attempts that did not succeed" in str(n) for n in samples.notes)
    write(tmp_path, {"4.eval": inspect_log()})
    with pytest.raises(
        dp.DataError, match=r"contains 4 runs of shapes by mockllm/model; name the file to read"
    ):
        dp.load(tmp_path)


def test_samples_that_failed_are_counted(tmp_path):
    samples = inspect_samples()
    samples[0]["error"] = {"message": "TimeoutError()", "traceback": "..."}
    write(tmp_path, {"a.eval": inspect_log(samples)})
    loaded = dp.load(tmp_path)
    assert len(loaded) == 3
    (warning,) = loaded.warnings
    assert warning.code == "samples-failed"
    assert "1 of 4 samples in" in warning.text
    assert "(first: samples/1_epoch_1.json of" in warning.text
    assert "TimeoutError()" in warning.text


def test_chats_choices_and_attachments_of_a_sample(tmp_path):
    sample = inspect_sample(1, 1, "x", ["attachment://7", "b"], "m")
    parts = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "c"}]
    sample["output"]["choices"][1]["message"]["content"] = parts
    sample["input"] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "attachment://8"},
    ]
    sample["attachments"] = {"7": "a", "8": "a long prompt"}
    write(tmp_path, {"a.eval": inspect_log([sample])})
    prompt = "Be brief.\na long prompt"
    assert texts(dp.load(tmp_path)) == [(prompt, "a"), (prompt, "c")]


def test_other_fields_of_a_sample_can_be_named(tmp_path):
    write(tmp_path, {"a.eval": inspect_log()})
    named = {"output_field": "scores.match.answer", "prompt_field": "target"}
    assert texts(dp.load(tmp_path / "a.eval", **named))[0] == ("x", ANSWERS[0])


def test_zstd_is_an_extra_that_explains_itself(tmp_path, monkeypatch):
    write(tmp_path, {"a.eval": LOGS["a.eval"], "b.eval": LOGS["deflate.eval"]})
    monkeypatch.setitem(__import__("sys").modules, "backports.zstd.zipfile", None)
    monkeypatch.delattr(zipfile, "ZIP_ZSTANDARD", raising=False)
    with pytest.raises(dp.MissingExtraError, match=r"pip install 'divprism\[inspect\]'"):
        dp.load(tmp_path / "a.eval")
    assert texts(dp.load(tmp_path / "b.eval")) == PAIRS


RUN = "2026-11-18T19-29-37.691094"


def lm_eval_root(folder):
    """Write what `lm_eval run --log_samples --output_path` writes for two models and two tasks."""
    others = [answer.upper() for answer in ANSWERS]
    for model, answers in (("org__one", ANSWERS), ("org__two", others)):
        files = {f"results_{RUN}.json": json.dumps({"model_name": model, "results": {}})}
        for task in ("forms", "shapes"):
            files[f"samples_{task}_{RUN}.jsonl"] = jsonl(lm_eval_samples(answers))
        write(folder, {f"{model}/{name}": content for name, content in files.items()})
    return folder


def test_an_output_root_of_lm_eval_has_a_folder_per_model(tmp_path):
    lm_eval_root(tmp_path)
    samples = dp.load(tmp_path)
    parts = samples.by_model()
    assert {name: len(part) for name, part in parts.items()} == {"org__one": 8, "org__two": 8}
    assert texts(parts["org__one"])[:4] == PAIRS
    assert texts(parts["org__two"])[0] == (PROMPTS[0], ANSWERS[0].upper())
    assert any("a folder per model, org__one, org__two" in str(note) for note in samples.notes)
    alone = dp.load(tmp_path / "org__one")
    assert texts(alone) == texts(parts["org__one"])


def test_two_runs_of_a_task_by_a_model_are_refused(tmp_path):
    lm_eval_root(tmp_path)
    again = "samples_forms_2026-11-19T01-02-03.456789.jsonl"
    write(tmp_path, {f"org__two/{again}": jsonl(lm_eval_samples())})
    with pytest.raises(dp.DataError, match=r"org__two contains 2 runs of samples_forms"):
        dp.load(tmp_path)


def test_a_linked_folder_outside_is_no_model(tmp_path):
    lm_eval_root(tmp_path / "elsewhere")
    root = lm_eval_root(tmp_path / "root")
    (root / "three").symlink_to(tmp_path / "elsewhere" / "org__one")
    assert list(dp.load(root).by_model()) == ["org__one", "org__two"]
    assert "three" in dp.load(root, allow_outside=True).by_model()
