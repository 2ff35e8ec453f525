"""Warnings about what is not as in the paper of a preset."""

from collections.abc import Mapping
from typing import Any

from divprism.core.validation import clean_ids
from divprism.data.wording import SIDES, counted
from divprism.errors import Notice
from divprism.scores.presets import Preset
from divprism.scores.settings import Settings

__all__ = ["departures", "departures_of_arrays", "open_sides"]

_UNKNOWN = "vectors of unknown origin"


def open_sides(x: Any, t: Any, settings: Settings) -> list[str]:
    """The sides ("x", "t") whose bandwidth a preset chooses."""
    chosen = []
    for side, data in (("x", x), ("t", t)):
        # What was given overrides the preset, and ids have no bandwidth.
        is_given = settings.kernel(side) is not None or settings.bandwidth_rule is not None
        if data is None or is_given:
            continue
        if side == "x" or clean_ids(data, side) is None:
            chosen.append(side)
    return chosen


def departures(
    paper: Preset, settings: Settings, unknown: Mapping[str, str | None], largest: int
) -> tuple[Notice, ...]:
    """Warnings about a preset that cannot do what its paper does.

    Parameters
    ----------
    paper
        The preset.
    settings
        With its truncation.
    unknown
        Sides without a bandwidth of the paper, and the embedder of each if it is known.
    largest
        Number of pairs of the largest model.
    """
    notices = []
    if unknown:
        named = [f"{SIDES[side]} ({name or _UNKNOWN})" for side, name in unknown.items()]
        text = (
            f"the preset {paper.name} has no bandwidth for {' and '.join(named)}, so the papers' "
            f"rule, stable, chooses it. {paper.embedders}; choose them by `embedder_x` and "
            "`embedder_t`."
        )
        notices.append(Notice("preset-not-of-paper", text))
    if settings.truncation is not None and largest <= settings.truncation:
        text = (
            f"the truncation of {settings.truncation:,} keeps all eigenvalues of "
            f"{counted(largest, 'pair', 'pairs')}, so nothing is truncated; the paper scores "
            f"{paper.samples:,} pairs at a time."
        )
        notices.append(Notice("preset-not-truncated", text))
    return tuple(notices)


def departures_of_arrays(x: Any, t: Any, settings: Settings, n: int) -> tuple[Notice, ...]:
    """`departures` where nothing but n vectors of each side is given; none without a preset."""
    if settings.paper is None:
        return ()
    return departures(settings.paper, settings, dict.fromkeys(open_sides(x, t, settings)), n)
