"""The tables that divprism shows, built from result documents (`to_dict()` of a result).

Documents are plain values, so a table looks the same whether its result was just computed or read
from a file.
"""

import math
from collections.abc import Iterable, Sequence

from divprism.analysis.baseline import FEW_OUTPUTS
from divprism.core.kernels import Gaussian
from divprism.data.wording import SIDES, plain_number
from divprism.errors import Notice
from divprism.report.bandwidth_words import sensitivity_note, stability_note
from divprism.report.documents import Document, Documents, models_of
from divprism.report.fidelity_tables import (
    fidelity_columns,
    fidelity_notes,
    fidelity_records,
    fidelity_rows,
)
from divprism.report.front_tables import front_cells, front_notes
from divprism.report.kinds import ends_of, kinds_note, kinds_sentence, most_per_prompt
from divprism.report.scendi_tables import scendi_columns, scendi_records, scendi_rows
from divprism.report.table import SCORE, Cell, Column, Measured, Table
from divprism.report.texts import number_of, ranked
from divprism.report.words import (
    at_equal_size,
    comparison_sentences,
    equal_size_note,
    group_title,
    length_note,
    p_value_of,
)
from divprism.scores import registry
from divprism.scores.spec import SCORES, ScoreSpec, is_score, score_spec

__all__ = [
    "caption",
    "comparison_table",
    "convergence_table",
    "curves_table",
    "differences_table",
    "evaluation_table",
    "groups_table",
    "interval_note",
    "interval_remarks",
    "kernel_notes",
    "meaning_in",
    "models_of",
    "order_note",
    "remarks",
    "results_table",
    "scores_table",
    "sweep_table",
    "warnings_in",
]

_INFORMATIVE = 10.0  # times the score: a bound that reaches further says nothing
# Which scores of the default table leave a narrow terminal first: those with the highest number.
_PRIORITIES = {
    "conditional": 0,
    "quality": 0,
    "quality_conditional": 0,
    "vendi": 1,
    "information": 2,
    "prompts": 3,
    "per_prompt": 5,
    "quality_vendi": 6,
}
_SHOWN_SIZES = 5  # sizes of a convergence curve in its table


def _is_headline(spec: ScoreSpec) -> bool:
    """Scores of a fixed order stand beside those of the order asked for: only in wide tables."""
    return spec.order is None


def _computed(documents: Iterable[Document], wide: bool) -> list[ScoreSpec]:
    """The scores that any document holds, those of the default table or all."""
    names = {name for document in documents for name in document["scores"]}
    return [spec for spec in SCORES if spec.name in names and (wide or _is_headline(spec))]


def _measured(score: Document | None) -> Measured | None:
    """A score with its interval where there is one, else with the error of its estimator."""
    if score is None:
        return None
    interval = score["interval"]
    if interval is not None:
        return Measured(score["value"], interval["low"], interval["high"])
    # An error of zero means exact: files then have no column of errors.
    return Measured(score["value"], error=score["standard_error"] or None)


def warnings_in(document: Document) -> tuple[Notice, ...]:
    """Return the warnings of a result document."""
    # By name: a document from a file may have other keys as well.
    keys = ("code", "text", "severity")
    warnings = []
    for warning in document.get("warnings", ()):
        warnings.append(Notice(**{key: warning[key] for key in keys}))
    return tuple(warnings)


def evaluation_table(document: Document, wide: bool = False) -> Table:
    """The scores of one model, a row each, with what they mean."""
    rows: list[tuple[Cell, ...]] = []
    for spec in _computed([document], wide):
        score = document["scores"][spec.name]
        rows.append((spec.name, score["value"], _error(spec, document), meaning_in(spec, document)))
    rows += scendi_rows(document)
    rows += fidelity_rows(document)
    # Only the meaning may be left out: without it the table still answers the question.
    columns = (
        Column("score", "score"),
        Column("value", "value", ".4f"),
        Column("interval", _error_title(document)),
        Column("meaning", "reads as", priority=1),
    )
    sensitivity = sensitivity_note([document], wide)
    notes = [*remarks(document), *kernel_notes(document), *sensitivity, *fidelity_notes(document)]
    connection = kinds_sentence(document)
    if connection:
        notes.insert(0, connection)
    return Table(columns, tuple(rows), caption(document), tuple(notes), warnings_in(document))


def meaning_in(spec: ScoreSpec, document: Document) -> str:
    """What a score counts; per exact prompt of how many outputs, Information beside chance."""
    if spec.family == "per_prompt":
        return f"{spec.meaning}, of {most_per_prompt(document)}"
    baseline = document["baseline"]
    # The random pairings are scored at the order of the settings.
    if spec.name == "information_vendi" and baseline is not None:
        return f"{spec.meaning}; {plain_number(baseline['baseline'])} by chance"
    return spec.meaning


def _error(spec: ScoreSpec, document: Document) -> str:
    """The interval of a score, or the error of its estimator, as a text."""
    score = document["scores"][spec.name]
    if score["interval"] is not None:
        return ends_of(score["interval"], spec) or "does not vary"
    # Where an interval was asked for, "exact" would be read as one.
    if _is_too_small(document):
        return "too few"
    if score["standard_error"]:
        return f"{score['standard_error']:.2g}"
    # One output says nothing about others: its score is 1 whatever it is.
    if document["data"]["n"] == 1:
        return "one output"
    return "exact"


def _error_title(document: Document) -> str:
    interval = _any_interval([document])
    if interval is not None:
        return f"{interval['level']:.0%} interval"
    if _is_too_small(document):
        return "interval"
    return "error"


def _is_too_small(document: Document) -> bool:
    """Whether intervals were asked for, and the sample is too small for them."""
    return any(notice.code == "too-few-for-interval" for notice in warnings_in(document))


def _any_interval(documents: Iterable[Document]) -> Document | None:
    """One of the intervals, which share their level; None if there are none."""
    for document in documents:
        for score in document["scores"].values():
            if score["interval"]:
                interval: Document = score["interval"]
                return interval
    return None


def results_table(documents: Documents, wide: bool = False, ratios: bool = False) -> Table:
    """The scores of several models, a row per model; with `ratios`, no column of logarithms."""
    specs = _computed(documents.values(), wide)
    # Kinds of prompt belong beside the number of prompts, before what is counted per kind.
    specs.sort(key=lambda spec: (not _is_headline(spec), spec.family != "prompts"))
    columns = [Column("model", "model"), Column("n", "n", ",d")]
    columns.append(Column("prompts", "prompts", ",d", priority=4))
    for index, spec in enumerate(specs):
        priority = 10 + index
        if _is_headline(spec):
            priority = _PRIORITIES.get(spec.family, 10)
        columns.append(Column(spec.name, spec.heading, SCORE, priority))
    has_baseline = any(document["baseline"] for document in documents.values())
    if has_baseline:
        columns.append(_excess_column(ratios))
    beside, cells = fidelity_columns(documents)
    prompted, explained = scendi_columns(documents)
    columns += [*prompted, *beside]
    rows = []
    for model, document in documents.items():
        row: list[Cell] = [model, document["data"]["n"], document["data"]["prompts"]]
        row += [_cell_of(spec, document) for spec in specs]
        if has_baseline:
            row.append(_excess_cell(document, ratios))
        rows.append((*row, *explained[model], *cells[model]))
    first = next(iter(documents.values()))
    notes = [
        *_inequality_note(documents),
        *_legend(first["settings"], specs),
        *kinds_note(documents),
        *kernel_notes(first),
        *sensitivity_note(documents.values(), wide),
        *interval_note(documents),
        *fidelity_notes(first),
    ]
    if prompted:
        notes.append("scendi: diversity that prompts do not explain linearly; order 1")
    if has_baseline:
        notes.append(_excess_note(documents, ratios))
    every = [notice for document in documents.values() for notice in warnings_in(document)]
    warnings = tuple(dict.fromkeys(every))
    return Table(tuple(columns), tuple(rows), notes=tuple(notes), warnings=warnings)


def _excess_column(ratios: bool) -> Column:
    if ratios:
        return Column("information_ratio", "times chance", ".3f", priority=6)
    return Column("excess_information", "excess info", ".3f", priority=6)


def _excess_cell(document: Document, ratios: bool) -> float | None:
    if document["baseline"] is None:
        return None
    excess: float = document["baseline"]["excess_information"]
    if ratios:
        return math.exp(excess)
    return excess


def _excess_note(documents: Documents, ratios: bool) -> str:
    """What the column of excess information holds, and why some of its cells are empty."""
    note = "excess info: nats above random pairings; near 0 where prompts are ignored"
    if ratios:
        note = (
            "times chance: Information divided by that of random pairings; near 1 where prompts "
            "are ignored"
        )
    if all(document["baseline"] for document in documents.values()):
        return note
    return f"{note}; by default only where prompts have fewer than {FEW_OUTPUTS} outputs on average"


def _legend(settings: Document, specs: Sequence[ScoreSpec]) -> list[str]:
    """The order, and what the headings of the default scores mean."""
    families = {spec.family for spec in specs}
    if "conditional" not in families:
        return [order_note(settings)]
    meaning = "vendi = conditional x information; conditional: distinct outputs per kind of prompt"
    if "quality" in families:
        meaning += "; quality: mean of the outputs"
    return [f"{order_note(settings)}; {meaning}"]


def _inequality_note(documents: Documents) -> list[str]:
    """What models have unequal numbers of; empty where they were scored on the same."""
    codes: set[str] = set()
    for document in documents.values():
        codes.update(notice.code for notice in warnings_in(document))
    nouns = {"unequal-prompts": "prompts", "unequal-outputs": "numbers of outputs"}
    unequal = [noun for code, noun in nouns.items() if code in codes]
    if not unequal:
        return []
    return [
        f"the models differ in their {' and '.join(unequal)}, so their scores are not comparable"
    ]


def _cell_of(spec: ScoreSpec, document: Document) -> Measured | None:
    """A score in a table of models."""
    measured = _measured(document["scores"].get(spec.name))
    if measured is not None and spec.family == "prompts":
        # The models share their prompts: an error that is the same in every row says nothing.
        return Measured(measured.value)
    return measured


def scores_table(documents: Documents) -> Table:
    """Everything about every score, a row per model and score: for files and data frames."""
    columns = (
        Column("model", "model"),
        Column("score", "score"),
        Column("n", "n", ",d"),
        Column("value", "value", ".6g"),
        Column("low", "low", ".6g"),
        Column("high", "high", ".6g"),
        Column("level", "level", "g"),
        Column("standard_error", "error", ".2g"),
        Column("entropy", "entropy", ".6g"),
        # Without a format: an infinite order is a text in documents.
        Column("order", "order"),
        Column("truncation", "truncation", "d"),
        Column("method", "method"),
    )
    rows = []
    for model, document in documents.items():
        for name, score in document["scores"].items():
            interval = score["interval"] or {}
            ends = [interval.get(end) for end in ("low", "high", "level")]
            rest = [score[key] for key in ("standard_error", "entropy")]
            how = [score["order"], score["truncation"], score["method"]]
            rows.append((model, name, document["data"]["n"], score["value"], *ends, *rest, *how))
        beside = [(name, value, None) for name, value in scendi_records(document)]
        for name, value, error in [*beside, *fidelity_records(document)]:
            size = document["data"]["n"]
            empty = (None,) * 4
            rows.append((model, name, size, value, *empty[:3], error, *empty))
    return Table(columns, tuple(rows))


def comparison_table(document: Document, wide: bool = False, ratios: bool = False) -> Table:
    """The ranking of a comparison, a row per model; `ratios` as in `results_table`."""
    models = document["models"]
    table = results_table(models, wide, ratios)
    columns = [table.columns[0], Column("rank", "rank"), *table.columns[1:]]
    rows = []
    for row in table.rows:
        rank = ranked(document["ranks"][row[0]])
        rows.append([row[0], rank, *row[1:]])
    if document["lengths"]:
        columns.append(Column("words", "words", ".0f", priority=1))
        for complete in rows:
            complete.append(document["lengths"][complete[0]])
    front = document.get("front")
    if front:
        columns.insert(2, Column("front", "front"))
        cells = front_cells(front)
        for complete in rows:
            complete.insert(2, cells[str(complete[0])])
    stability = stability_note(document)
    notes = [*table.notes, *length_note(document), *comparison_sentences(document), *stability]
    if front:
        notes += front_notes(front)
    if stability and not wide:
        # Over which bandwidths the order holds says more than by how much all scores change.
        notes = [note for note in notes if note not in sensitivity_note(models.values(), wide)]
    return Table(
        tuple(columns),
        tuple(tuple(row) for row in rows),
        notes=tuple(notes),
        warnings=warnings_in(document),
    )


def differences_table(document: Document) -> Table:
    """The ratio of the scores of every pair of models in a comparison, with its interval."""
    columns = (
        Column("first", "first"),
        Column("second", "second"),
        Column("ratio", "ratio", ".3f"),
        Column("low", "low", ".3f", priority=1),
        Column("high", "high", ".3f", priority=1),
        Column("clear", "clear"),
    )
    rows = []
    for difference in document["differences"]:
        clear = "yes" if difference["clear"] else "no"
        values = [difference[column.key] for column in columns[:-1]]
        rows.append((*values, clear))
    return Table(columns, tuple(rows))


def convergence_table(document: Document, wide: bool = False) -> Table:
    """Mean scores of growing subsets, a row per score and a column per size."""
    sizes = document["sizes"]
    chosen = list(range(len(sizes))) if wide else _doublings(sizes)
    columns = [Column("score", document["noun"])]
    for rank, index in enumerate(reversed(chosen)):
        # The largest size has priority 0: it is the whole sample, and stays to the last.
        columns.insert(1, Column(str(sizes[index]), f"{sizes[index]:,}", ".4g", priority=rank))
    rows = []
    for name, means in document["means"].items():
        row: list[Cell] = [name]
        for index in chosen:
            row.append(Measured(means[index], error=document["deviations"][name][index] or None))
        rows.append(tuple(row))
    band = (
        f"±: standard deviation over {len(document['pairs'])} random orders; subsets near "
        f"{sizes[-1]:,} share most {document['noun']}, so their ± is too small."
    )
    settings = [_order_of_curves(document["settings"]), *kernel_notes(document)]
    verdicts = [verdict["sentence"] for verdict in document["verdicts"].values()]
    notes = (band, *settings, document["summary"], document["question"], *verdicts)
    return Table(tuple(columns), tuple(rows), notes=notes, warnings=warnings_in(document))


def _order_of_curves(settings: Document) -> str:
    """The order, and the truncation, which only the scores named after it have."""
    order = order_note({**settings, "truncation": None})
    if settings["truncation"] is None:
        return order
    eigenvalues = number_of(settings["truncation"], "eigenvalue")
    return f"{order}; truncated scores keep {eigenvalues}"


def _doublings(sizes: Sequence[int]) -> list[int]:
    """The index of the last size, of the one nearest to half of it, and so on."""
    chosen = set()
    for power in range(_SHOWN_SIZES):
        wanted = sizes[-1] / 2**power
        if wanted >= 0.9 * sizes[0]:
            # Nearest by ratio, because the sizes grow by a factor.
            ratios = [max(size / wanted, wanted / size) for size in sizes]
            chosen.add(ratios.index(min(ratios)))
    return sorted(chosen)


def curves_table(document: Document) -> Table:
    """Everything about every curve, a row per score and size: for files."""
    columns = (
        Column("score", "score"),
        Column("size", document["noun"], ",d"),
        Column("outputs", "outputs", ",.0f"),
        Column("mean", "mean", ".6g"),
        Column("standard_deviation", "deviation", ".2g"),
    )
    repeats = document["pairs"]
    rows = []
    for name, means in document["means"].items():
        for index, size in enumerate(document["sizes"]):
            outputs = sum(repeat[index] for repeat in repeats) / len(repeats)
            deviation = document["deviations"][name][index]
            rows.append((name, size, outputs, means[index], deviation))
    return Table(columns, tuple(rows))


def sweep_table(document: Document) -> Table:
    """Scores against the bandwidth of either side, a row per bandwidth.

    The bandwidth nearest to the choice of the rule is marked.
    """
    names = list(document["x"]["scores"])
    columns = [Column("rule", ""), Column("side", "side"), Column("bandwidth", "bandwidth", ".4g")]
    columns += [Column(name, score_spec(name).heading, ".3f") for name in names]
    rows = []
    for side, noun in SIDES.items():
        swept = document[side]
        if swept is None:
            continue
        ratios = [abs(width / swept["chosen"] - 1) for width in swept["bandwidths"]]
        nearest = ratios.index(min(ratios))
        for index, bandwidth in enumerate(swept["bandwidths"]):
            mark = ">" if index == nearest else ""
            scores = [swept["scores"][name][index] for name in names]
            rows.append((mark, noun, bandwidth, *scores))
    noun = "pair"
    if document["t"] is None:
        noun = "output"
    title = number_of(document["n"], noun)
    if document.get("data", {}).get("num_models"):
        title += f" of {document['data']['num_models']:,} models together"
    if document["n"] < document["drawn_from"]:
        title += f", a sample of {document['drawn_from']:,}"
    title += f"; {order_note(document['settings'])}; k = {Gaussian.formula}"
    return Table(
        tuple(columns),
        tuple(rows),
        title=title,
        notes=tuple(_sweep_notes(document)),
        warnings=warnings_in(document),
    )


def _sweep_notes(document: Document) -> list[str]:
    """The choice of the rule on either side, which the other side keeps while one is swept."""
    notes = []
    for side, noun in SIDES.items():
        swept = document[side]
        if swept is not None:
            notes.append(
                f"bandwidth of {noun}: {swept['chosen']:.4g} by the rule (> marks the nearest); "
                f"median distance {swept['median']:.4g}"
            )
    if document["t"] is not None:
        notes.append(
            "while the bandwidth of one side varies, the other side keeps the bandwidth of the rule"
        )
    rule = f"rule: {registry.short_rule(document['settings']['bandwidth_rule'])}"
    entries = document.get("embedders", ())
    sides = [f"{SIDES[entry['side']]} embedded by {entry['id']}" for entry in entries]
    return [*notes, "; ".join([rule, *sides])]


def groups_table(document: Document) -> Table:
    """The diversity inside each group of prompts, the least diverse first."""
    fair = at_equal_size(document)
    columns = [Column("group", "group")]
    if fair:
        columns.append(Column("rarefied", f"vendi of {document['equal_size']}", ".2f"))
    columns += [
        Column("vendi", "vendi", ".2f"),
        Column("rke", "rke", ".2f", priority=3),
        Column("share", "share", ".1%", priority=2),
        Column("size", "outputs", ",.0f", priority=1),
        Column("num_prompts", "prompts", ",d", priority=1),
    ]
    rows = []
    for group in document["groups"]:
        row: list[Cell] = [group_title(group)]
        row += [group[column.key] for column in columns[1:]]
        rows.append(tuple(row))
    notes = kernel_notes(document)
    if fair:
        notes.insert(0, equal_size_note(document))
    return Table(tuple(columns), tuple(rows), notes=tuple(notes), warnings=warnings_in(document))


def caption(document: Document) -> str:
    """What was scored and how, in one line."""
    data = document["data"]
    subject = number_of(data["n"], "output")
    if data["prompts"] is not None:
        subject = f"{number_of(data['n'], 'pair')}, {number_of(data['prompts'], 'distinct prompt')}"
    return f"{subject}; {order_note(document['settings'])}"


def order_note(settings: Document) -> str:
    """The order and the truncation."""
    order = settings["order"]
    text = "order inf" if order == "inf" else f"order {order:g}"
    if settings["truncation"] is not None:
        text += f", truncation {settings['truncation']}"
    if settings.get("preset") is not None:
        text += f", preset {settings['preset']}"
    return text


def kernel_notes(document: Document) -> list[str]:
    """How each side is embedded and compared, a line each, and what a bandwidth means."""
    settings = document["settings"]
    embedders = {entry["side"]: entry["id"] for entry in document.get("embedders", ())}
    notes = []
    for side, noun in SIDES.items():
        kernel, bandwidth = settings[f"kernel_{side}"], settings[f"bandwidth_{side}"]
        if kernel is None:
            continue
        parts = [f"{kernel} kernel"]
        if side in embedders:
            parts.insert(0, f"embedded by {embedders[side]}")
        if settings.get(f"normalize_{side}"):
            parts.insert(-1, "rows scaled to norm 1")
        if bandwidth is not None:
            parts.append(f"bandwidth {bandwidth:.6g}")
        notes.append(f"{noun}: {', '.join(parts)}")
    if settings.get("quality_from"):
        notes.append(f"quality: rated by {settings['quality_from']['id']}")
    explained = _formulas(settings)
    if settings["bandwidth_rule"] is not None:
        rule = registry.short_rule(settings["bandwidth_rule"])
        # The settings do not hold which of two bandwidths was given.
        explained.append(f"bandwidths chosen by the rule {rule!r} unless given")
    if explained:
        notes.append("; ".join(explained))
    return notes


def _formulas(settings: Document) -> list[str]:
    """What the bandwidths mean; without it they are ambiguous: other libraries leave out the 2."""
    with_bandwidth = []
    for side in SIDES:
        if settings[f"bandwidth_{side}"] is not None:
            with_bandwidth.append(str(settings[f"kernel_{side}"]))
    formulas = {kernel: registry.formula(kernel) for kernel in with_bandwidth}
    if len(formulas) == 1:
        return [f"k = {formula}" for formula in formulas.values() if formula]
    return [f"{kernel} k = {formula}" for kernel, formula in formulas.items() if formula]


def interval_note(documents: Documents) -> list[str]:
    """What the errors in a table of models mean; empty without intervals."""
    interval = _any_interval(documents.values())
    if interval is None:
        return []
    units = set()
    for document in documents.values():
        for score in document["scores"].values():
            if score["interval"]:
                units.add(f"{score['interval']['unit']}s")
    return [
        f"±: half the width of the {interval['level']:.0%} interval, resampling "
        f"{' or '.join(sorted(units))}, at these bandwidths"
    ]


def remarks(document: Document) -> list[str]:
    """What stands below the scores of a model: the meaning of the intervals, and the baseline."""
    lines = interval_remarks(document)
    baseline = document["baseline"]
    if baseline is not None:
        count = number_of(baseline["num_permutations"], "random pairing")
        excess = baseline["excess_information"]
        direction = "more"
        if excess < 0:
            direction = "less"
        lines.append(
            f"excess information: {abs(excess):.3f} nats {direction} than {count} of "
            f"outputs and prompts, with information_vendi {baseline['baseline']:.4f} "
            f"({p_value_of(baseline)})"
        )
    return lines


def interval_remarks(document: Document) -> list[str]:
    """What the intervals of one model mean, and the papers' bounds; empty without intervals."""
    interval = _any_interval([document])
    if interval is None:
        return []
    unit = interval["unit"]
    if unit == "pair" and document["data"]["prompts"] is None:
        unit = "output"
    units = number_of(interval["num_units"], unit)
    lines = [
        "intervals: for the mean over other samples of this size at these bandwidths, resampling "
        f"{units}"
    ]
    bounds = _bounds_in_words(document)
    if bounds:
        lines.append(
            "bounds for infinitely many samples of any distribution, at "
            f"{interval['level']:.0%}: {bounds}"
        )
    return lines


def _bounds_in_words(document: Document) -> str:
    """The papers' bounds that end within ten times the score; wider ones say nothing."""
    parts = []
    for name, score in document["scores"].items():
        bound = score.get("bound")
        if not bound or bound["high"] is None or not is_score(name):
            continue
        if bound["high"] <= _INFORMATIVE * score["value"]:
            ends = f"{bound['low']:.2f} to {bound['high']:.2f}"
            parts.append(f"{name} {ends} ({bound['theorem']})")
    return ", ".join(parts)
