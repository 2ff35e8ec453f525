"""How two scores differ, in words: by how much, within which interval, and how likely by chance."""

import math

from divprism.analysis.intervals import SAME_RATIO
from divprism.data.wording import plain_number
from divprism.report.pairs import Pair
from divprism.report.texts import is_tiny, share_in_words
from divprism.report.words import SMALLEST_CHANCE
from divprism.scores.spec import score_spec

__all__ = ["are_equal", "by_how_much", "chance_in_words", "counted_as", "noun_of", "range_in_words"]

_MANY_TIMES = 2.0  # a ratio from which on "times as many" is easier to read than percent
_CERTAIN = 0.995  # a p-value from which on "100 of 100 samples" would be no news


def noun_of(score: str, value: str) -> str:
    """Return what a score counts, in the singular for 1; empty for a factor.

    >>> noun_of("vendi", "1"), noun_of("vendi", "2.50")
    ('distinct output', 'distinct outputs')
    """
    noun = score_spec(score).noun
    if value == "1":
        return noun.replace("outputs", "output", 1).replace("kinds", "kind", 1)
    return noun


def counted_as(score: str, value: str) -> str:
    """Return a score with what it counts.

    >>> counted_as("vendi", "2.50"), counted_as("information_vendi", "2.50")
    ('2.50 distinct outputs', '2.50')
    """
    return f"{value} {noun_of(score, value)}".rstrip()


def are_equal(pair: Pair) -> bool:
    """Return whether two scores differ by rounding at most."""
    return abs(math.log(pair.ratio)) <= SAME_RATIO


def by_how_much(ratio: float, score: str) -> str:
    r"""Return by how much a score is higher.

    >>> by_how_much(1.5, "vendi"), by_how_much(2.5, "information_vendi")
    ('50\xa0% more', '2.5 times as high')
    """
    many, more = "many", "more"
    # A factor is not counted.
    if not score_spec(score).noun:
        many, more = "high", "higher"
    if ratio >= _MANY_TIMES:
        return f"{plain_number(ratio, 2)} times as {many}"
    return f"{share_in_words(ratio - 1)} {more}"


def range_in_words(pair: Pair) -> str:
    """Return the interval of a ratio as percentages, before "that of" the other model."""
    assert pair.low is not None and pair.high is not None
    below, above = 1 - pair.low, pair.high - 1
    if is_tiny(below) and is_tiny(above):
        return f"within {share_in_words(0.001)} of"
    high = share_in_words(above)
    if pair.low < 1:
        return f"anything from {share_in_words(below)} lower to {high} higher than"
    if pair.low >= _MANY_TIMES:
        return f"{plain_number(pair.low, 2)} to {plain_number(pair.high, 2)} times"
    if is_tiny(-below):
        return f"up to {high} higher than"
    return f"{share_in_words(-below)} to {high} higher than"


def chance_in_words(pair: Pair) -> str:
    """Return the p-value as a number of samples; empty where it is not known, or no news."""
    if pair.p_value is None or pair.p_value >= _CERTAIN:
        return ""
    opening = "two equal models would differ at least this much in"
    if pair.p_value < SMALLEST_CHANCE:
        return f"; {opening} fewer than 1 of 1,000 samples ({_p('<', SMALLEST_CHANCE)})"
    if pair.p_value < 0.01:
        count, chance = f"{1000 * pair.p_value:.0f}", f"{pair.p_value:.1g}"
        return f"; {opening} about {count} of 1,000 samples ({_p('=', chance)})"
    count, chance = f"{100 * pair.p_value:.0f}", f"{pair.p_value:.2g}"
    return f"; {opening} about {count} of 100 samples ({_p('=', chance)})"


def _p(relation: str, chance: str | float) -> str:
    """Return a p-value that no line break can tear apart."""
    return f"p {relation} {chance}".replace(" ", "\N{NO-BREAK SPACE}")
