"""The experiments of the papers: their registry, their runner, and those that need no model."""

import sys

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("torch")
pytest.importorskip("diffusers")

from experiments.papers import __main__ as runner
from experiments.papers import page
from experiments.papers.base import VERDICTS, Outcome, Request, experiments

# Quick runs of these take a second; the others are run by `make papers QUICK=--quick`.
FAST = ("aggregation", "bounds-conditional", "fig11")


@pytest.fixture(scope="module")
def by_id():
    return {each.id: each for each in experiments()}


def test_every_experiment_states_its_claim_and_what_stands_in(by_id):
    for each in by_id.values():
        assert each.claim.endswith(".") and each.stand_in.endswith(".")
        assert any(word in each.shows for word in ("Fig", "Table", "Thm"))


@pytest.mark.parametrize("name", FAST)
def test_an_experiment_ends_in_a_verdict_a_table_and_a_figure(by_id, name, tmp_path):
    outcome = by_id[name].run(Request(quick=True))
    assert outcome.verdict in VERDICTS
    assert outcome.reason.endswith(".")
    assert outcome.table.rows
    outcome.figure.savefig(tmp_path / "figure.png")


def test_a_verdict_is_one_of_four(by_id):
    outcome = by_id["aggregation"].run(Request(quick=True))
    with pytest.raises(ValueError, match="no verdict"):
        Outcome("proves", outcome.reason, outcome.table, outcome.figure)


def _run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["papers", *arguments])
    runner.main()


def test_the_runner_prints_the_claim_and_the_verdict(monkeypatch, capsys, tmp_path):
    _run(monkeypatch, "run", "aggregation", "--quick", "--output", str(tmp_path))
    printed = capsys.readouterr().out
    assert "claim: Where prompts are in groups" in printed
    assert "HOLDS: No difference exceeds" in printed
    assert (tmp_path / "aggregation.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "fig99"), "no experiment fig99"),
        (("run", "fig11", "--data", "."), "fig11 needs no models: it takes no --data."),
        (("run", "fig12", "fig11", "--data", "."), "--data is for one experiment."),
        (("run", "fig12", "--data", "nowhere"), "nowhere does not exist."),
    ],
)
def test_the_runner_refuses_in_one_sentence(monkeypatch, capsys, arguments, message):
    with pytest.raises(SystemExit):
        _run(monkeypatch, *arguments)
    assert message in capsys.readouterr().err


def test_the_page_has_all_sections(monkeypatch, by_id, tmp_path):
    monkeypatch.setattr(page, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr(page, "FIGURES", tmp_path / "figures")
    page.PAGE.write_text(f"# Title\n\n{page.MARK}\nold results\n")
    known = by_id["aggregation"]
    page.write_page([page.Finished(known, known.run(Request(quick=True)), 60.0)], quick=True)
    written = page.PAGE.read_text()
    assert written.startswith("# Title\n") and "old results" not in written
    assert "| [aggregation](#aggregation) | Conditional Vendi | Thm 5-7 | holds |" in written
    assert "with few samples" in written and "**Verdict: holds.**" in written
    assert (tmp_path / "figures" / "aggregation.png").exists()
