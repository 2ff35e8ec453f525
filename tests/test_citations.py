"""Citations of the papers in the source name numbers that exist.

A citation belongs to the paper that was named last before it in the same file.
"""

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "divprism"
# Cites figures of the paper on its network.
OTHERS = {"_inception.py"}


def _numbers(last: int) -> set[str]:
    return {str(number) for number in range(1, last + 1)}


# The appendix of an earlier version is cited for what the published paper leaves out.
PAPERS = {
    "Conditional Vendi": {
        "eq": _numbers(27),
        "Thm": _numbers(7),
        "Cor": _numbers(1),
        "Prop": _numbers(1),
        "Lemma": _numbers(5) | set("AB"),
        "Def": set(),
        "Sec": _numbers(8) | {"3.1", "3.2"},
        "App": set("ABCDEFG")
        | {"A.1", "A.2", "A.3", "A.4", "A.4.1", "A.4.2", "A.4.3"}
        | {"E.1", "E.2", "E.3", "G.1", "G.2", "G.3", "G.4"},
        "Fig": _numbers(24),
        "Table": _numbers(5),
    },
    "Truncated Vendi": {
        "eq": _numbers(10),
        "Thm": _numbers(3),
        "Cor": _numbers(2),
        "Prop": set(),
        "Lemma": _numbers(4),
        "Def": _numbers(2),
        "Sec": _numbers(7) | {"1.1", "1.2", "3.1", "3.2", "3.3", "6.1", "6.2"},
        "App": set("ABC") | {"A.1", "A.2", "A.3", "A.4", "A.5", "B.1"},
        "Fig": _numbers(17),
        "Table": _numbers(3),
    },
    "Conditional Vendi, earlier version": {
        "Thm": _numbers(1),
        "Cor": _numbers(1),
        "Prop": _numbers(1),
        "Lemma": _numbers(1),
        "App": set("ABCD")
        | {"C.1", "C.2", "C.3"}
        | {"D.1", "D.2", "D.3", "D.4", "D.5", "D.6", "D.7"},
        "Fig": {str(number) for number in range(7, 23)},
    },
}

PAPER = r"(?:Conditional|Truncated) Vendi(?:, earlier version)?"
KIND = (
    r"[Ee]qs?|Equations?|Thms?|Theorems?|Cor|Corollar\w+|Props?|Propositions?|Lemmas?|"
    r"Defs?|Definitions?|Secs?|Sections?|Apps?|Appendix|Figs?|Figures?|Tables?"
)
NUMBER = r"(?:[A-H](?:\.\d+)*|\d+(?:\.\d+)*)\b"
CITATION = re.compile(
    rf"(?P<paper>{PAPER})|\b(?P<kind>{KIND})\.? (?P<numbers>{NUMBER}(?:(?:, | and |-){NUMBER})*)"
)


def _kind(word: str) -> str:
    known = ("eq", "Thm", "Cor", "Prop", "Lemma", "Def", "Sec", "App", "Fig", "Table")
    word = word.replace("Theorem", "Thm").replace("Eq", "eq")
    return next(kind for kind in known if word.startswith(kind))


def wrong_citations(source: str) -> list[str]:
    """Return the citations whose number does not exist, or whose paper is not named."""
    # Citations break over lines, and lines of comments begin with a hash.
    text = re.sub(r"\s+(?:# )?\s*", " ", source)
    paper, wrong = None, []
    for match in CITATION.finditer(text):
        if match["paper"]:
            paper = match["paper"]
            continue
        kind = _kind(match["kind"])
        # Both ends of a range exist or not like all that is between them.
        for number in re.split(r", | and |-", match["numbers"]):
            if paper is None or number not in PAPERS[paper].get(kind, set()):
                wrong.append(f"{paper}, {kind} {number}")
    return wrong


def test_every_citation_in_the_source_names_a_number_that_exists():
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        wrong = wrong_citations(path.read_text(encoding="utf-8"))
        if wrong and path.name not in OTHERS:
            found[str(path.relative_to(SOURCES))] = wrong
    assert found == {}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("# Truncated Vendi, eq. 12", ["Truncated Vendi, eq 12"]),
        ("# Conditional\n# Vendi, eq. 9 and 28", ["Conditional Vendi, eq 28"]),
        ("Conditional Vendi, Thm 5-8; Truncated Vendi, Fig. 17", ["Conditional Vendi, Thm 8"]),
        ("Conditional Vendi, App. E.4 and Section 3.2", ["Conditional Vendi, App E.4"]),
        ("Theorem 4 of Truncated Vendi", ["None, Thm 4"]),
        (
            "Conditional Vendi, earlier version, App. E",
            ["Conditional Vendi, earlier version, App E"],
        ),
        ("Conditional Vendi, Tables 1 and 3; Truncated Vendi, Thm 3 (a)", []),
    ],
)
def test_wrong_numbers_and_unnamed_papers_are_found(source, wrong):
    assert wrong_citations(source) == wrong
