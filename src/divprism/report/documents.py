"""Validation of result documents, which are read from files that anybody may have written.

A document that passes has every key that tables, sentences and plots read, with values of the
right type and within a range that can be drawn. Other keys may hold anything.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.pareto_front import DIVERSITY, standing_below
from divprism.errors import DataError
from divprism.report.checks import (
    Check,
    all_of,
    boolean,
    list_of,
    mapping_of,
    maybe,
    number,
    one_of,
    positive,
    record,
    refuse,
    short_text,
    text,
    whole,
)
from divprism.report.texts import shortened, visible
from divprism.scores.spec import QUALITY, curve_spec, is_score, score_spec

__all__ = [
    "Document",
    "Documents",
    "check_details",
    "check_result",
    "models_of",
    "visible_document",
    "visible_values",
]

Document = Mapping[str, Any]
"""A result document, or a part of one: `to_dict()` of a result, or JSON read from a file."""
Documents = Mapping[str, Document]
"""Result documents by model."""

_DEEPEST = 50  # levels of a document; ours have fewer than ten


def models_of(document: Document) -> Documents:
    """Return the documents of a result by model; a result of one model is a mapping of one."""
    models: Documents = document.get("models", {"": document})
    return models


def visible_values(node: Any, depth: int = 0) -> Any:
    """Return plain values with every text as `visible` leaves it; keys stay as they are."""
    # Otherwise a hostile document would end in a RecursionError, here or in a later function.
    if depth > _DEEPEST:
        raise DataError(
            f"this is not a result that divprism wrote: it is nested deeper than {_DEEPEST} levels."
        )
    if isinstance(node, str):
        return visible(node)
    if isinstance(node, Mapping):
        # Two keys that differ in a hidden letter only would become one, and a value would be lost.
        # Where a key is shown, it is cleaned there.
        return {str(key): visible_values(value, depth + 1) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [visible_values(value, depth + 1) for value in node]
    return node


# Parts of a result that name models in values, which keys name elsewhere; and where they do.
_NAMING_PARTS = ("differences", "overlap", "front", "per_group")
_NAMING_KEYS = (
    "first",
    "second",
    "model",
    "models",
    "best",
    "dominated_by",
    "clearly_dominated_by",
)


def visible_document(document: Any) -> Any:
    """Return a result as `visible_values` does, with names of models as its keys have them.

    Otherwise a difference would be about a model that no key names. Where names are shown, they
    are replaced by ones that can be read (`distinct_names`).
    """
    cleaned = visible_values(document)
    if not isinstance(cleaned, dict):
        return cleaned
    for part in _NAMING_PARTS:
        if part in cleaned:
            _restore_names(document[part], cleaned[part])
    # An overlap or a mixture that stands alone.
    if "homogeneity" in cleaned or "per_group" in cleaned:
        _restore_names(document, cleaned)
    return cleaned


def _restore_names(given: Any, cleaned: Any) -> None:
    """Put names of models into cleaned values as they were given."""
    if isinstance(cleaned, list):
        for before, after in zip(given, cleaned, strict=True):
            _restore_names(before, after)
    if not isinstance(cleaned, dict):
        return
    for before, value in given.items():
        key = str(before)
        if key not in _NAMING_KEYS:
            _restore_names(value, cleaned[key])
        elif isinstance(value, str):
            cleaned[key] = value
        elif isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
            cleaned[key] = list(value)


_NUMBER = number()
_ERROR = number(0.0)
_LOGARITHM = number(-100.0, 100.0)  # in nats; the page takes exp of it
_SHARE = number(0.0, 1.0 + 1e-6)  # shares are sums, which rounding may carry beyond 1
# Empty lists are refused: a plot of no points has no range.
_NUMBERS = list_of(_NUMBER, 1)
_POSITIVES = list_of(positive, 1)
_MAYBE_TEXT = maybe(text)


def _check_order(value: object, path: str) -> None:
    # JSON has no infinity: the order `math.inf` is written as a text.
    if value != "inf":
        positive(value, path)


_INTERVAL = record(
    {"low": _NUMBER, "high": _NUMBER, "level": _SHARE, "unit": text, "num_units": whole()}
)
_BOUND = record({"low": _NUMBER, "high": maybe(_NUMBER), "theorem": text})
_SCORE = record(
    {
        # Bars and sentences divide scores by each other and show them on log axes.
        "value": positive,
        "standard_error": _ERROR,
        "interval": maybe(_INTERVAL),
    },
    {"bound": maybe(_BOUND)},
)
_BASELINE = record(
    {
        "excess_information": _LOGARITHM,
        "baseline": positive,
        "p_value": _SHARE,
        "num_permutations": whole(1),
    },
    {
        "standard_deviation": maybe(_ERROR),
        "standard_error": maybe(_ERROR),
        "num_spectra": whole(),
        "excess_information_rke": maybe(_LOGARITHM),
    },
)
# Sentences look up a score by its name, and a side by its letter.
_SENSITIVITY = record(
    {"n": whole(1), "scores": mapping_of(record({}, {"x": _NUMBER, "t": _NUMBER}))},
)
_FIDELITY = record(
    {
        "kernel_distance": record(
            {"value": _NUMBER, "standard_error": _ERROR, "n_reference": whole(1)}
        ),
        "recall": _SHARE,
        "coverage": _SHARE,
        "alignment": maybe(_NUMBER),
        "in_batch_similarity": maybe(_NUMBER),
        "batches": one_of("prompt", "all"),
        "absent": mapping_of(text),
    }
)
_NOTICE = record({"code": text, "text": text, "severity": text})
NOTICES = list_of(_NOTICE)
# Notes below tables read these settings; all others are only printed.
SETTINGS = record(
    {
        "kernel_x": _MAYBE_TEXT,
        "kernel_t": _MAYBE_TEXT,
        "bandwidth_x": maybe(positive),
        "bandwidth_t": maybe(positive),
        "bandwidth_rule": _MAYBE_TEXT,
        "order": _check_order,
        "truncation": maybe(whole(1)),
    },
    {"quality_from": maybe(record({"id": text}))},
)
EMBEDDERS = list_of(record({"side": one_of("x", "t"), "id": text}))


def _check_split(value: Any, path: str) -> None:
    """Require vendi, and the two factors of it together."""
    # The first sentence of the page and the bars read all three.
    scores = value["scores"]
    if "vendi" not in scores:
        refuse(f"{path}.scores", "an object with the key 'vendi'", sorted(scores))
    if ("conditional_vendi" in scores) != ("information_vendi" in scores):
        requirement = "an object with both of conditional_vendi and information_vendi"
        refuse(f"{path}.scores", requirement, sorted(scores))


def _check_pair(value: Any, path: str) -> None:
    """Require a rarefied score and its error together."""
    if (value["rarefied"] is None) != (value["rarefied_error"] is None):
        refuse(f"{path}.rarefied_error", "given with `rarefied`", value["rarefied_error"])


# Previews are not checked here: one that is not of ours is left out (`is_thumbnail`).
ENTRY = record(
    {"row": whole()},
    {"text": _MAYBE_TEXT, "file": _MAYBE_TEXT, "where": _MAYBE_TEXT, "id": _MAYBE_TEXT},
)
_GROUP = all_of(
    record(
        {
            "name": _MAYBE_TEXT,
            "share": _NUMBER,
            "size": positive,
            "vendi": positive,
            "rke": positive,
            "standard_error": _ERROR,
            "rarefied": maybe(positive),
            "rarefied_error": maybe(_ERROR),
            "small": boolean,
            "num_prompts": whole(),
            "prompts": list_of(ENTRY),
            "modes": list_of(record({"share": _NUMBER, "outputs": list_of(ENTRY)})),
        }
    ),
    _check_pair,
)
_GROUPS = record(
    {
        "groups": list_of(_GROUP, 1),
        "aggregate": _NUMBER,
        "gap": _LOGARITHM,
        "aggregate_rke": _NUMBER,
        "gap_rke": _LOGARITHM,
        "conditional_vendi": _NUMBER,
        "conditional_rke": _NUMBER,
        "equal_size": whole(),
        "min_size": whole(),
        "num_small": whole(),
        "data": record(
            {"n": whole(1)},
            {"prompts": maybe(whole(1)), "grouping": _MAYBE_TEXT, "by_default": maybe(boolean)},
        ),
        "settings": SETTINGS,
    },
    {
        "embedders": EMBEDDERS,
        "warnings": NOTICES,
        "prompt_vendi": maybe(positive),
        "num_hidden": whole(),
    },
)


def _check_lengths(columns: Mapping[str, Sequence[object]], length: int, path: str) -> None:
    # Otherwise NumPy would complain about shapes while a plot is half drawn.
    for name, values in columns.items():
        if len(values) != length:
            refuse(f"{path}.{name}", f"a list of {length:,}", list(values))


def _check_spectrum(value: Any, path: str) -> None:
    _check_lengths({"weights": value["weights"]}, len(value["values"]), path)
    if value["values"][0] <= 0:
        # The first eigenvalue is the largest: a log axis needs one that is positive.
        refuse(f"{path}.values[0]", "positive", value["values"][0])


_SPECTRUM = all_of(record({"values": _NUMBERS, "weights": _NUMBERS}), _check_spectrum)


def _check_side(value: Any, path: str) -> None:
    # Names choose colours and headings: another name would be a KeyError while drawing.
    for name in value["scores"]:
        if not is_score(name):
            refuse(f"{path}.scores", "an object of scores", name)
    _check_lengths(value["scores"], len(value["bandwidths"]), f"{path}.scores")


_SIDE = all_of(
    record({"bandwidths": _POSITIVES, "scores": mapping_of(_POSITIVES), "chosen": positive}),
    _check_side,
)
_SWEEP = record({"x": _SIDE, "t": maybe(_SIDE), "n": whole(1), "drawn_from": whole(1)})


def _check_curves(value: Any, path: str) -> None:
    for key in ("means", "deviations", "verdicts"):
        for name in value[key]:
            _check_curve_name(name, f"{path}.{key}")
    for key in ("means", "deviations"):
        _check_lengths(value[key], len(value["sizes"]), f"{path}.{key}")
    # Every curve is drawn with its band.
    if set(value["means"]) != set(value["deviations"]):
        refuse(f"{path}.deviations", "given for each of `means`", sorted(value["deviations"]))
    # Panels are for families that curves belong to; without vendi there might be none.
    if "vendi" not in value["means"]:
        refuse(f"{path}.means", "an object with the key 'vendi'", sorted(value["means"]))


def _check_curve_name(name: str, path: str) -> None:
    try:
        curve_spec(name)
    except KeyError:
        refuse(path, "an object of scores", name)


_CONVERGENCE = all_of(
    record(
        {
            "n": whole(1),
            "sizes": list_of(whole(1), 1),
            "means": mapping_of(_POSITIVES),
            "deviations": mapping_of(list_of(_ERROR, 1)),
            "verdicts": mapping_of(
                record({"status": text, "sentence": text}, {"change": maybe(_NUMBER)})
            ),
            "noun": short_text,
            "summary": text,
            "settings": record({"order": _check_order}),
        },
        {"drawn_from": maybe(whole(1))},
    ),
    _check_curves,
)
_REPEATED = record({"output": ENTRY, "count": whole(1)})
_LEAST_DIVERSE = record(
    {
        "vendi": positive,
        "median": positive,
        "num_outputs": whole(1),
        "is_sampled": boolean,
        "num_prompts": whole(1),
        "prompts": list_of(ENTRY, 1),
    },
    # Absent from results of earlier versions.
    {
        "worst": list_of(
            record(
                {
                    "prompt": ENTRY,
                    "vendi": positive,
                    "size": whole(1),
                    "repeated": maybe(_REPEATED),
                }
            )
        ),
        "num_compared": whole(1),
        "num_small": whole(),
    },
)
_DETAILS = record(
    {},
    {
        "spectra": maybe(mapping_of(_SPECTRUM)),
        "sweep": maybe(_SWEEP),
        "convergence": maybe(_CONVERGENCE),
        "groups": maybe(_GROUPS),
        "least_diverse_prompts": maybe(_LEAST_DIVERSE),
        "most_repeated": maybe(list_of(_REPEATED)),
        "absent": maybe(mapping_of(text)),
    },
)
_EVALUATION = all_of(
    record(
        {
            "scores": mapping_of(_SCORE),
            "baseline": maybe(_BASELINE),
            "data": record(
                {"n": whole(1), "prompts": maybe(whole(1))},
                {
                    "source": _MAYBE_TEXT,
                    "model": _MAYBE_TEXT,
                    "hash": _MAYBE_TEXT,
                    "fewest_outputs": maybe(whole(1)),
                    "most_outputs": maybe(whole(1)),
                    "kinds_as_ids": maybe(positive),
                    "outputs_as_ids": maybe(positive),
                },
            ),
            "settings": SETTINGS,
            "embedders": EMBEDDERS,
            "runtime": record({}, {"command": _MAYBE_TEXT, "divprism": text}),
            "warnings": NOTICES,
        },
        {
            "details": maybe(_DETAILS),
            "sensitivity": maybe(_SENSITIVITY),
            "fidelity": maybe(_FIDELITY),
            "scendi": maybe(record({"value": positive})),
        },
    ),
    _check_split,
)


def _check_ends(value: Any, path: str) -> None:
    # `list_of` has a minimum only, and sentences unpack two numbers.
    if len(value) != 2:
        refuse(path, "the smallest and the largest multiple", value)


# The smallest and the largest multiple of a bandwidth; absent from results of earlier versions.
_RANGE = all_of(list_of(positive, 2), _check_ends)
_RANGES = record({}, {"x": _RANGE, "t": _RANGE})
_DIFFERENCE = record(
    {
        "first": text,
        "second": text,
        # Ratios, of which the page takes logarithms.
        "ratio": positive,
        "low": maybe(positive),
        "high": maybe(positive),
        "clear": boolean,
    },
    {"stable_range": _RANGES, "p_value": maybe(_SHARE), "standard_error": maybe(_ERROR)},
)
_POINT = record(
    {
        "model": text,
        "quality": positive,
        "diversity": positive,
        "quality_interval": maybe(list_of(_NUMBER, 2)),
        "diversity_interval": maybe(list_of(_NUMBER, 2)),
        "dominated_by": list_of(text),
        "clearly_dominated_by": list_of(text),
        "standing": one_of("front", "dominated", "open"),
    }
)
_FRONT = record(
    {
        "quality": text,
        "diversity": text,
        "level": maybe(_SHARE),
        "is_paired": boolean,
        "points": list_of(_POINT, 1),
    }
)
_COMPARISON = record(
    {
        "score": text,
        "ranks": mapping_of(list_of(whole(1), 2)),
        # A sentence is about the first of them, so there must be one.
        "differences": list_of(_DIFFERENCE, 1),
        "lengths": mapping_of(number(0.0)),
        "length_correlation": maybe(number(-1.0, 1.0)),
    },
    {"stable_range": _RANGES, "front": maybe(_FRONT)},
)
# The outputs of a model under one prompt, and how often each occurs.
_CELL = record(
    {
        "vendi": maybe(positive),
        "size": whole(1),
        "outputs": list_of(all_of(ENTRY, record({"count": whole(1)}))),
    }
)
_BESIDE = record(
    {
        "prompts": list_of(
            record({"prompt": ENTRY, "reason": text, "models": mapping_of(_CELL)}), 1
        ),
        "num_prompts": whole(1),
    }
)
_PARTS: Mapping[str, Check] = {"groups": _GROUPS, "convergence": _CONVERGENCE, "sweep": _SWEEP}


def check_result(document: Document) -> None:
    """Raise `DataError`, one sentence, unless a document is a result with scores.

    Of one model, of several, or of a comparison; of the schema that this version writes.
    """
    # This also refuses what is no object at all, on which `get` below would fail.
    record({}, {"warnings": NOTICES})(document, "result")
    # The schema comes before the contents: a result of another version is not a broken one, and the
    # message must say so.
    schema = document.get("schema")
    if schema != SCHEMA:
        raise DataError(
            f"the result has schema {shortened(repr(schema), 20)}, but this version of divprism "
            f"reads schema {SCHEMA}: use the version that wrote the result."
        )
    if "models" not in document:
        _EVALUATION(document, "result")
        return
    mapping_of(_EVALUATION)(document["models"], "models")
    if not document["models"]:
        raise DataError("a report needs at least one model, and this result has none.")
    if document.get("side_by_side") is not None:
        _BESIDE(document["side_by_side"], "side_by_side")
        _check_beside(document["side_by_side"], document["models"])
    # Models that were scored apart have no ranks: they are listed, not compared.
    if "ranks" in document:
        _COMPARISON(document, "result")
        _check_models(document)
        if document.get("front") is not None:
            _check_front(document["front"], document["models"])


def _check_models(document: Document) -> None:
    """Require that the parts of a comparison are about the models that it holds."""
    models = document["models"]
    if set(document["ranks"]) != set(models):
        refuse("ranks", "an object with a rank for each model", sorted(document["ranks"]))
    for model, rank in document["ranks"].items():
        # `list_of` has a minimum only, and `ranked` unpacks two numbers.
        if len(rank) != 2:
            refuse(f"ranks.{model}", "the best and the worst rank", rank)
    # Only texts have a length in words: for images the object is empty.
    if document["lengths"] and set(document["lengths"]) != set(models):
        refuse("lengths", "an object with a length for each model", sorted(document["lengths"]))
    for difference in document["differences"]:
        _check_model_names([difference["first"], difference["second"]], models)
    for model, result in models.items():
        if not is_score(document["score"]) or document["score"] not in result["scores"]:
            refuse("score", f"a score of the model {model!r}", document["score"])


def _check_front(front: Document, models: Documents) -> None:
    """Require that a front is about the scores and the models of the result, each once."""
    named = [point["model"] for point in front["points"]]
    if sorted(named) != sorted(models):
        refuse("front.points", "a list with each model of the result once", named)
    if not any(point["standing"] == "front" for point in front["points"]):
        refuse("front.points", "a list with a model on the front", named)
    if not is_score(front["quality"]) or QUALITY not in score_spec(front["quality"]).needs:
        refuse("front.quality", "a score of the quality", front["quality"])
    if not is_score(front["diversity"]) or score_spec(front["diversity"]).family not in DIVERSITY:
        refuse("front.diversity", "a score that counts distinct outputs", front["diversity"])
    for index, point in enumerate(front["points"]):
        _check_point(front, point, models, f"front.points[{index}]")


def _check_point(front: Document, point: Document, models: Documents, where: str) -> None:
    """Require that a point has the scores of its model, and that its parts go together."""
    for axis in ("quality", "diversity"):
        score = models[point["model"]]["scores"].get(front[axis], {})
        if not math.isclose(point[axis], score.get("value", math.nan)):
            refuse(f"{where}.{axis}", "the score of its model", point[axis])
        ends = point[f"{axis}_interval"]
        # `list_of` has a minimum only, and plots unpack two numbers.
        if ends is not None and (len(ends) != 2 or ends[0] > ends[1]):
            refuse(where, "intervals of two ends", ends)
    above, clearly = point["dominated_by"], point["clearly_dominated_by"]
    if not set(above) <= set(models) - {point["model"]} or not set(clearly) <= set(above):
        refuse(where, "about other models of the result", [*above, *clearly])
    standing = standing_below(above, clearly)
    if point["standing"] != standing:
        refuse(f"{where}.standing", repr(standing), point["standing"])


def _check_model_names(names: Sequence[str], models: Collection[str]) -> None:
    for name in names:
        if name not in models:
            refuse("differences", "a list about models of the result", name)


def _check_beside(beside: Document, models: Collection[str]) -> None:
    """Require that the models side by side are those of the result."""
    for index, shown in enumerate(beside["prompts"]):
        for name in shown["models"]:
            if name not in models:
                refuse(f"side_by_side.prompts[{index}]", "about models of the result", name)


def check_details(part: str, document: Document) -> None:
    """Raise `DataError`, one sentence, unless a document is a result of this part of the details.

    `part` is "groups", "convergence" or "sweep".
    """
    # A sweep has no schema of its own.
    schema = document.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise DataError(
            f"the {part} document has schema {shortened(repr(schema), 20)}, but this version of "
            f"divprism reads schema {SCHEMA}: use the version that wrote it."
        )
    _PARTS[part](document, part)
