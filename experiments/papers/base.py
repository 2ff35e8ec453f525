"""What an experiment is: a claim of a paper, a way to test it, and a verdict."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from divprism.report.table import Table
from divprism.scores.spec import SCORES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONDITIONAL = "Conditional Vendi"
EARLIER = "Conditional Vendi, earlier versions"
TRUNCATED = "Truncated Vendi"

HOLDS = "holds"
FAILS = "does not hold"
PARTLY = "holds in part"
UNTESTED = "cannot be tested here"

VERDICTS = (HOLDS, PARTLY, FAILS, UNTESTED)

SETTLED = 0.02
"""Growth of a score over the last step up to which it counts as settled, and above as growing."""

# Share of its largest value from which on Vendi says nothing more about the outputs.
_SATURATED = 0.95

TITLES = {spec.name: spec.title for spec in SCORES}
"""Names of the scores for people."""

# Modules of this package that hold no experiment.
_OTHERS = ("__main__", "base", "page", "plots", "real", "setups")


@dataclass(frozen=True)
class Request:
    """How to run an experiment.

    Attributes
    ----------
    quick : bool
        Whether to use few samples: seconds, and rough numbers.
    data : Path or None
        A folder with real outputs, in place of the stand-in.
    """

    quick: bool = False
    data: Path | None = None

    def choose(self, full: int, quick: int) -> int:
        """A size, by whether the run is quick."""
        if self.quick:
            return quick
        return full


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an experiment found.

    Attributes
    ----------
    verdict : str
        One of `VERDICTS`.
    reason : str
        The numbers that decided, in a sentence or two.
    table : Table
        All numbers.
    figure : Figure
        The same as a picture.
    """

    verdict: str
    reason: str
    table: Table
    figure: "Figure"

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"no verdict: {self.verdict!r}")


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper.

    Attributes
    ----------
    id : str
        Its name on the command line.
    paper : str
        `CONDITIONAL`, `EARLIER` or `TRUNCATED`.
    shows : str
        The figures, tables or theorems that it repeats.
    claim : str
        What the paper says, in our words.
    stand_in : str
        What replaces the models and data of the paper.
    run : callable
        Request -> Outcome.
    data : str
        What `--data` names, in words; empty if the experiment needs no models.
    """

    id: str
    paper: str
    shows: str
    claim: str
    stand_in: str
    run: Callable[[Request], Outcome]
    data: str = ""


def judged(claims: Mapping[str, bool], central: Collection[str] = ()) -> tuple[str, list[str]]:
    """The verdict on a claim of several parts, and the parts that do not hold.

    Parameters
    ----------
    claims
        Whether each part holds, by its name.
    central
        Names of the parts without which the claim does not hold, whatever the others show.
    """
    unknown = [part for part in central if part not in claims]
    if unknown:
        raise ValueError(f"no part of the claim: {', '.join(unknown)}")
    failed = [part for part, holds in claims.items() if not holds]
    if not failed:
        return HOLDS, failed
    if len(failed) == len(claims) or any(part in central for part in failed):
        return FAILS, failed
    return PARTLY, failed


def rounded(ratio: float) -> str:
    """A large ratio with two digits."""
    return f"{float(f'{ratio:.2g}'):,.0f}"


def is_saturated(vendi: float, most: int) -> bool:
    """Whether nearly every output counts as a kind of its own.

    Parameters
    ----------
    vendi
        Vendi of the outputs: the product of Conditional-Vendi and Information-Vendi.
    most
        The most that it can be: the number of outputs, or of eigenvalues that are kept.
    """
    return vendi >= _SATURATED * most


def but_not(failed: Sequence[str]) -> str:
    """A sentence that names what does not hold; empty if everything does."""
    if not failed:
        return ""
    return f" Parts that do not hold: {'; '.join(failed)}."


_registered: dict[str, Experiment] = {}


def experiment(
    name: str, paper: str, shows: str, *, claim: str, stand_in: str, data: str = ""
) -> Callable[[Callable[[Request], Outcome]], Callable[[Request], Outcome]]:
    """Register a function as an experiment."""

    def register(run: Callable[[Request], Outcome]) -> Callable[[Request], Outcome]:
        if name in _registered:
            raise ValueError(f"two experiments are called {name}")
        _registered[name] = Experiment(name, paper, shows, claim, stand_in, run, data)
        return run

    return register


def experiments() -> list[Experiment]:
    """All experiments, by paper and by the first figure that they show."""
    folder = Path(__file__).parent
    for module in pkgutil.iter_modules([str(folder)]):
        if module.name not in _OTHERS:
            importlib.import_module(f"experiments.papers.{module.name}")
    return sorted(_registered.values(), key=_place)


def _place(each: Experiment) -> tuple[int, int, int, str]:
    kinds = ("Fig", "Table", "Thm")
    kind = next(index for index, word in enumerate(kinds) if word in each.shows)
    papers = (CONDITIONAL, EARLIER, TRUNCATED)
    number = re.search(r"\d+", each.shows)
    assert number is not None
    return papers.index(each.paper), kind, int(number[0]), each.id
