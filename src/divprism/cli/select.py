"""`divprism select`: a diverse subset of outputs, written in the layout that they came in."""

from pathlib import Path
from typing import Any

from divprism.analysis.selection import select as select_outputs
from divprism.cli.job import Job, command, flag
from divprism.cli.messages import say
from divprism.data.files import require_different
from divprism.data.subsets import layout_of, rows_in
from divprism.report.selection_tables import selection_records, selection_table

_WITHOUT = ("interval", "unit", "num_permutations", "fail_under")


@command(*_WITHOUT, "output", "workers", "scheduler", "resume", "wide", "estimator", "truncation")
def select(
    job: Job,
    k: int | None = flag(
        "Scoring", None, "Outputs to choose, of each group with --per.", "--k", "-k"
    ),
    by: str = flag("Scoring", "vendi", "Score to maximise: divprism ls scores."),
    per: str | None = flag("Scoring", None, "Choose k from each.", metavar="prompt|model"),
    keep: str | None = flag("Input", None, "File with rows or outputs to choose in any case."),
    drop: str | None = flag("Input", None, "File with rows or outputs not to choose."),
    near_duplicates: float | None = flag("Scoring", None, "Leave out copies this similar: 0.95."),
    subset: Path | None = flag(
        "Output", None, "New file or folder for the subset.", "--output", "-o"
    ),
) -> None:
    """Choose a diverse subset of the outputs, and write it in the layout that they came in."""
    require_different(filter(None, (subset, job.plot, job.report)))
    samples = job.read()
    layout = layout_of(job.source, samples, joined=job.prompts is not None)
    if subset is not None:
        layout.check(subset)  # before anything is embedded
    options: dict[str, Any] = {"settings": job.settings(samples), "memory": job.max_memory}
    options |= {"k": k, "by": by, "per": per}
    options |= {"near_duplicates": near_duplicates}
    for name, path in (("keep", keep), ("drop", drop)):
        if path is not None:
            options[name] = rows_in(path, name, samples)
    result = job.run(select_outputs, samples, **options)
    if subset is not None:
        say(layout.write(sorted(result.positions), subset), job.quiet)
    document = result.to_dict()
    job.show(result, document, selection_table(document), selection_records(document))
