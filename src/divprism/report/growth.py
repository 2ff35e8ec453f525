"""What a convergence curve of the whole sample shows: whether it suffices, and how scores grow."""

from dataclasses import dataclass

from divprism.report.documents import Document

__all__ = ["Growth", "growth_of"]


@dataclass(frozen=True)
class Growth:
    """What twice as many outputs would do to a score.

    Attributes
    ----------
    suffices : bool
        Whether the sample is large enough for the score.
    change : float or None
        Of the score, as a share of it; None where it is not known.
    reach : float or None
        Half the width of the interval, as a share of the score; None without an interval.
    """

    suffices: bool
    change: float | None
    reach: float | None

    @property
    def exceeds_interval(self) -> bool:
        """Whether the change is larger than the interval allows; False where it is not known."""
        if self.change is None or self.reach is None:
            return False
        return abs(self.change) > self.reach


def growth_of(document: Document, score: str) -> Growth | None:
    """Return how a score grows; None without curves, or where they are of a part of the sample.

    A random subset grows faster than the whole sample, which may suffice where the subset does not.
    """
    curves = (document.get("details") or {}).get("convergence") or {}
    verdict = curves.get("verdicts", {}).get(score)
    if verdict is None or (curves.get("drawn_from") or curves["n"]) > curves["n"]:
        return None
    value, interval = document["scores"][score]["value"], document["scores"][score]["interval"]
    reach = None
    if interval is not None:
        reach = (interval["high"] - interval["low"]) / (2 * value)
    return Growth(verdict["status"] == "converged", verdict.get("change"), reach)
