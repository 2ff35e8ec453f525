"""The page of what models share, without their scores."""

from divprism import __version__
from divprism.analysis.evaluation import SCHEMA
from divprism.report.checks import list_of, maybe, record, refuse
from divprism.report.checks import text as any_text
from divprism.report.documents import Document
from divprism.report.downloads import csv_file, json_file
from divprism.report.overlap_tables import overlap_table
from divprism.report.overlap_views import check_overlap, overlap_section, renamed_overlap
from divprism.report.sections import LONGEST_NAME
from divprism.report.texts import distinct_names, number_of
from divprism.report.verdict import Verdict
from divprism.report.view import PageView, reproduce, warnings_of

__all__ = ["overlap_page"]

# Beyond what `check_overlap` requires of an overlap inside of a comparison.
_ALONE = record(
    {"models": list_of(any_text, 2)}, {"runtime": record({}, {"command": maybe(any_text)})}
)


def overlap_page(given: Document) -> PageView:
    """Return what the template shows of an overlap that stands alone."""
    if given.get("schema") != SCHEMA:
        refuse("schema", str(SCHEMA), given.get("schema"))
    _ALONE(given, "overlap")
    check_overlap(given, given["models"])
    names = distinct_names(given["models"], LONGEST_NAME)
    document = renamed_overlap(given, dict(zip(given["models"], names, strict=True)))
    section = overlap_section(document)
    warnings = warnings_of(document, {})
    contents = [("verdict", "Verdict"), ("overlap", "Overlap")]
    if warnings:
        contents.insert(1, ("warnings", "Warnings"))
    contents += [("downloads", "Downloads"), ("reproduce", "How to reproduce")]
    outputs = number_of(document["num_outputs"], "output")
    kept = {key: value for key, value in given.items() if key != "runtime"}
    full = {"runtime": {}, **document, "embedders": [], "data": {}}
    return PageView(
        title=f"Overlap of {number_of(len(names), 'model')}",
        subtitle=f"{outputs} of each for {number_of(document['num_prompts'], 'prompt')}",
        verdict=Verdict(section.sentences[0], (), "", (), ()),
        contents=tuple(contents),
        warnings=warnings,
        comparison=None,
        overlap=section,
        beside=None,
        models=(),
        downloads=(
            csv_file("All pairs of models, a row each", "pairs.csv", overlap_table(given, True)),
            json_file("Overlap and settings", "overlap.json", kept),
        ),
        reproduce=tuple(reproduce({"": full})),
        version=__version__,
    )
