"""The experiments run and write their tables, in a setting too small for meaningful numbers."""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "experiments"

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning:diffusers"
)


@pytest.fixture(scope="module")
def guidance():
    for package in ("torch", "diffusers", "sklearn", "wordllama"):
        pytest.importorskip(package)
    module = importlib.import_module("experiments.guidance_digits")
    every = module.Digits.load()
    few = every.images[:200], every.labels[:200], every.prompts, every.sentences
    load = module.Digits.load
    module.Digits.load = lambda: module.Digits(*few)
    yield module
    module.Digits.load = load


@pytest.fixture(scope="module")
def tiny(guidance):
    return guidance.Settings(
        train_steps=20,
        train_batch=32,
        width=16,
        classifier_steps=30,
        sampling_steps=4,
        guide_every=2,
        window=20,
        batch=12,
        rounds=2,
        seeds=(0, 1),
        strengths=(0.01, 0.02),
        tuning_seeds=(5,),
        tolerated=1.0,
    )


def test_guidance_of_digits_fills_the_table(guidance, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(guidance, "QUICK", tiny)
    monkeypatch.setattr(guidance.torch, "set_num_threads", lambda threads: None)
    guidance.main(["--quick", "--json", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    columns = {"alignment", "kernel_distance", "conditional_vendi", "vendi", "in_batch_similarity"}
    for table in (result, result["raw"], result["own_strengths"]):
        assert set(table["methods"]) == set(guidance.METHODS)
        for entries in table["methods"].values():
            assert set(entries) == columns
            for entry in entries.values():
                assert entry["low"] <= entry["mean"] <= entry["high"]
    assert set(result["strengths"].values()) == set(result["raw"]["strengths"].values()) == {0.03}
    # Any loss of alignment is tolerated, so every method gets the largest strength.
    assert set(result["own_strengths"]["strengths"].values()) == {0.02}
    output = capsys.readouterr().out
    # Once in the table of own strengths, and once in the sweep.
    assert output.count("| conditional_rke | 0.02 |") == 2
    assert guidance.Settings(**result["settings"]).train_steps == 20


def test_a_quick_run_has_one_strength_and_is_not_published(
    guidance, tiny, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(guidance, "QUICK", dataclasses.replace(tiny, strengths=()))
    monkeypatch.setattr(guidance.torch, "set_num_threads", lambda threads: None)
    guidance.main(["--quick", "--json", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    assert len(set(result["strengths"].values())) == 1
    assert "sweep" not in result
    with pytest.raises(SystemExit):
        guidance.main(["--quick", "--write"])


def test_guidance_of_digits_moves_samples_from_the_same_start(guidance, tiny):
    study = guidance.Study(dataclasses.replace(tiny, strengths=()))

    def generate(method, strength):
        guide = guidance.guide_by(method, strength, study.settings)
        return guidance.generate(study.model, study.digits, guide, 3, study.settings)

    start = generate("none", 0.0)
    for method in guidance.METHODS:
        still, moved, again = (generate(method, strength) for strength in (0.0, 0.05, 0.05))
        assert (still[0] == start[0]).all()
        assert (moved[1] == start[1]).all()
        assert (moved[0] == again[0]).all()
        assert bool((moved[0] == start[0]).all()) == (method == "none")


def test_intervals_over_seeds_are_those_of_student(guidance):
    """t = 4.303 for three seeds: 2 +- 4.303 x 1 / sqrt(3)."""
    result = guidance.interval([1.0, 2.0, 3.0])
    assert result["mean"] == 2
    assert np.allclose(
        [result["low"], result["high"]], [2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5]
    )


def test_a_strength_is_chosen_only_if_no_smaller_one_costs_alignment(guidance):
    def means(*alignments):
        entries = [{"alignment": value} for value in alignments]
        return dict(zip(("0.1", "0.2", "0.3"), entries, strict=True))

    sweep = {
        "none": {"0": {"alignment": 1.0}},
        "vendi": means(1.0, 0.996, 0.9),
        "rke": means(0.9, 1.0, 1.0),
    }
    sweep |= {"conditional_vendi": means(1.0, 0.9, 1.0), "conditional_rke": means(1.0, 1.0, 1.0)}
    expected = {"vendi": 0.2, "rke": 0.1, "conditional_vendi": 0.1, "conditional_rke": 0.3}
    assert guidance.chosen_strengths(sweep, 0.005) == expected


@pytest.mark.parametrize(
    ("low", "high", "sign", "verdict"),
    [
        (1, 2, 1, "holds"),
        (-2, -1, -1, "holds"),
        (1, 2, -1, "the reverse"),
        (-1, 1, 1, "undecided"),
        (-1, 1, 0, "equal"),
    ],
)
def test_verdicts_follow_the_interval(guidance, low, high, sign, verdict):
    assert guidance._verdict({"low": low, "high": high}, sign) == verdict


def test_the_table_of_small_samples_has_a_line_for_each_size(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("small_samples", FOLDER / "small_samples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["small_samples.py", "--draws", "2"])
    module.main()
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == list(module.KINDS)
    assert len(lines) == len(module.SIZES)
    # Two pairs show the jackknife no spread, so that their intervals are points.
    assert lines[0].split()[-3:] == ["0.00"] * 3


def test_the_experiment_on_sounds_fills_its_tables(monkeypatch, capsys, tmp_path):
    pytest.importorskip("av")
    pytest.importorskip("wordllama")
    audio = importlib.import_module("experiments.audio")
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path))
    monkeypatch.setattr(audio, "EMBEDDERS", audio.EMBEDDERS[:1])
    monkeypatch.setattr(audio, "COUNTS", (1, 8))
    page = tmp_path / "audio.md"
    page.write_text(audio.PAGE.read_text())
    monkeypatch.setattr(audio, "PAGE", page)
    audio.main(["--seeds", "1", "--copies", "8", "--repeats", "1", "--write"])
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if "|" in line]
    conditional = {(row[0].strip(), row[1].strip()): row[-2] for row in rows if len(row) == 6}
    value = {key: float(text.split()[0]) for key, text in conditional.items() if "±" in text}
    # What the model adds grows with its instruments, unless the prompts ask for them.
    assert value["vague", "8"] > 2 * value["vague", "1"]
    assert value["specific", "8"] < 1.2 * value["specific", "1"]
    instrument = next(row for row in rows if row[1].strip() == "instrument")
    assert float(instrument[3]) > 4 * float(instrument[2])
    assert "## Formats and limits" in page.read_text()
    assert page.read_text().count("| vague |") == 2


def test_functions_of_the_embedder_comparison_only_change_their_names():
    texts = importlib.import_module("experiments.embedder_texts")
    source = "def total(numbers, start=1):\n    found = start\n    for number in numbers:\n"
    source += "        found += abs(number)\n    return found"
    renamed = texts.renamed(source)
    assert not {"total", "numbers", "found"} & set(renamed.replace("(", " ").split())
    spaces: list[dict] = [{}, {}]
    exec(source, spaces[0])
    exec(renamed, spaces[1])
    assert spaces[0]["total"]([2, -3]) == spaces[1]["v0"]([2, -3]) == 6


def test_catalogues_of_translations_leave_out_what_is_uncertain():
    texts = importlib.import_module("experiments.embedder_texts")
    catalogue = (
        'msgid ""\nmsgstr ""\n"Language: fr\\n"\n\n'
        '#: a.py:1\nmsgid "Save"\nmsgstr "Enregistrer"\n\n'
        'msgid ""\n"Two "\n"lines"\nmsgstr "Deux "\n"lignes"\n\n'
        '#, fuzzy\nmsgid "Maybe"\nmsgstr "Peut-\u00eatre"\n\n'
        'msgid "one"\nmsgid_plural "many"\nmsgstr[0] "un"\nmsgstr[1] "plusieurs"\n'
    )
    found = dict(texts.entries(catalogue))
    assert found.pop("").startswith("Language")
    assert found == {"Save": "Enregistrer", "Two lines": "Deux lignes"}


def test_differences_of_planted_kinds_fill_the_table(capsys):
    module = importlib.import_module("experiments.differences")
    module.main(["--only", "planted", "--no-digits", "--seeds", "1"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| kinds")]
    assert [row.split("|")[2].strip() for row in rows] == ["0.0%", "5.0%", "10.0%", "20.0%"]
    assert rows[-1].split("|")[5].strip() == "1 of 1"
