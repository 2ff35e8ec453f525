"""How much results depend on the bandwidths, in words: for notes below tables and for the page."""

from collections.abc import Collection, Sequence

from divprism.analysis.stability import FACTORS
from divprism.data.wording import SIDES
from divprism.report.documents import Document
from divprism.report.texts import number_of
from divprism.scores.spec import SCORES, ScoreSpec

__all__ = ["sensitivity_note", "stability_note"]

# The score that a short note is about: the first of these families that has a slope.
_MAIN = ("conditional", "vendi")


# The multiples between which `compare` repeats its ranking.
_WHOLE = FACTORS[0], FACTORS[-1]
_WHOLE_IN_WORDS = f"from {_WHOLE[0]:g} to {_WHOLE[1]:g} times"


def sensitivity_note(documents: Collection[Document], wide: bool) -> list[str]:
    """What one percent more bandwidth changes: of the main score in a line, of all in one per side.

    Of several models the smallest and the largest change. Empty without bandwidths, and for results
    of earlier versions, which have no sensitivity.
    """
    sensitivities = [document.get("sensitivity") for document in documents]
    present = [each for each in sensitivities if each]
    if not present:
        return []
    shared = set.intersection(*(set(each["scores"]) for each in present))
    specs = [spec for spec in SCORES if spec.name in shared]
    if not wide:
        specs = _main(specs)
    parts: list[str] = []
    for side, noun in SIDES.items():
        changes = _changes(side, specs, [each["scores"] for each in present])
        listed = ", ".join(f"{heading} {change}" for heading, change in changes.items())
        if listed and len(specs) == 1 and parts:
            # With one score its name needs no repetition.
            parts = [f"{parts[0]}, of the {noun} {changes[specs[0].heading]}"]
        elif listed:
            parts.append(f"one percent more bandwidth of the {noun} changes {listed}")
    # Otherwise the two numbers of a range would be read as an interval.
    reason = ""
    if any(" to " in part for part in parts):
        reason = ", depending on the model"
    return [f"{part}{reason}{_sampled(documents)}" for part in parts]


def _main(specs: Sequence[ScoreSpec]) -> list[ScoreSpec]:
    """The score of the order asked for that the table is about."""
    for family in _MAIN:
        for spec in specs:
            if spec.family == family and spec.order is None:
                return [spec]
    return []


def _changes(side: str, specs: Sequence[ScoreSpec], slopes: Sequence[Document]) -> dict[str, str]:
    """By heading, the change of each score that depends on the bandwidth of a side."""
    changes = {}
    for spec in specs:
        values = [each[spec.name].get(side) for each in slopes]
        known = [value for value in values if value is not None]
        if known:
            # Adding zero turns minus zero into zero.
            ends = dict.fromkeys(f"{round(end, 2) + 0.0:+.2f}" for end in (min(known), max(known)))
            changes[spec.heading] = f"by {' to '.join(ends)} %"
    return changes


def _sampled(documents: Collection[Document]) -> str:
    """On how many pairs of a model the changes were computed, where these are not all of them."""
    sampled = []
    for document in documents:
        sensitivity = document.get("sensitivity")
        if sensitivity and sensitivity["n"] < document["data"]["n"]:
            sampled.append(sensitivity["n"])
    if not sampled:
        return ""
    if len(documents) == 1:
        return f" (computed on a sample of {sampled[0]:,} pairs)"
    return f" (computed on at most {max(sampled):,} pairs of a model)"


# Ratios of equal scores differ from one by less than this.
_ROUNDING = 1e-6


def stability_note(document: Document) -> list[str]:
    """Over which bandwidths the order of the models holds, and how many clear differences do.

    Empty without bandwidths, and for results of earlier versions.
    """
    ranges = document.get("stable_range")
    if not ranges:
        return []
    if all(abs(each["ratio"] - 1) <= _ROUNDING for each in document["differences"]):
        return ["all models have the same score, so there is no order"]
    order = _order_in_words(ranges)
    clear = [each["stable_range"] for each in document["differences"] if each.get("stable_range")]
    if not clear:
        return [order]
    num_whole = sum(_is_whole(each) for each in clear)
    differences = number_of(len(clear), "clear difference")
    verb = "hold"
    if len(clear) == 1:
        verb = "holds"
    bandwidths = "either bandwidth"
    if len(ranges) == 1:
        bandwidths = "that bandwidth"
    counted = f"{num_whole:,} of {differences} {verb} {_WHOLE_IN_WORDS} {bandwidths}"
    if num_whole < len(clear):
        counted += "; report any other together with its bandwidths"
    return [f"{order}; {counted}"]


def _order_in_words(ranges: Document) -> str:
    """Over which bandwidths no two models change places."""
    if all(low == high for low, high in ranges.values()):
        bandwidths = "bandwidths"
        if len(ranges) == 1:
            bandwidths = "bandwidth"
        return f"the order of the models holds only at the {bandwidths} used"
    holding = [_range_in_words(side, ranges[side]) for side in SIDES if side in ranges]
    return f"the order of the models holds {' and '.join(holding)}"


def _range_in_words(side: str, ends: Sequence[float]) -> str:
    low, high = ends
    noun = f"the bandwidth of the {SIDES[side]}"
    if low == high:
        return f"only at {noun} used"
    return f"from {low:.2g} to {high:.2g} times {noun}"


def _is_whole(ranges: Document) -> bool:
    """Whether a finding holds at all bandwidths that were tried."""
    return all(tuple(ends) == _WHOLE for ends in ranges.values())
