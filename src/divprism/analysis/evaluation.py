"""Evaluation and Results: the scores of one model, or of several, and how they were computed."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism import __version__
from divprism.analysis.baseline import ShuffledBaseline
from divprism.analysis.bounds import Bound
from divprism.analysis.intervals import Interval
from divprism.analysis.reference import Fidelity
from divprism.analysis.saved import Saved
from divprism.analysis.sensitivity import Sensitivity
from divprism.core.spectrum import Spectrum
from divprism.data.samples import Samples
from divprism.errors import Notice
from divprism.scores.scendi import ScendiScore
from divprism.scores.score import Score
from divprism.scores.settings import Settings
from divprism.scores.spec import SCORES, is_score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "SCHEMA",
    "SHOWN_MODELS",
    "Evaluation",
    "Results",
    "runtime_since",
]

SCHEMA = 2
"""Version of the result documents that `to_dict` and `to_json` write."""

SHOWN_MODELS = 10
"""Number of models in the short text of a result."""


@dataclass(frozen=True, eq=False)
class Evaluation(Saved):
    """All scores of one set of outputs, and everything that is needed to compute them again.

    Every score of the table is an attribute: `evaluation.conditional_vendi`. It is None where the
    data lack what the score needs: prompts, repeated prompts, or labels.

    Attributes
    ----------
    scores : dict of Score
        The scores that were computed, by name.
    settings : Settings
        Settings that reproduce it: `evaluate(x, t, settings=evaluation.settings)`.
    data : dict
        Number of pairs, of distinct outputs and prompts, and a hash of the input.
    runtime : dict
        Seconds spent and versions used.
    warnings : tuple of Notice
        What a reader of the numbers should know.
    embedders : tuple of dict
        How vectors were made from texts, images and videos; empty for arrays of your own.
    notes : tuple
        How files were understood, and what was embedded.
    intervals : dict of Interval
        By score, if asked for: where its expectation lies.
    bounds : dict of Bound
        With the intervals, for independent pairs: where the score of infinitely many samples lies
        whatever their distribution, for the scores that a theorem of the papers covers.
    baseline : ShuffledBaseline, optional
        Where prompts have few outputs, or if asked for: Information in excess of that of outputs
        paired with prompts at random.
    sensitivity : Sensitivity, optional
        By score and side, the change in percent with one percent more bandwidth; computed when it
        is first read. None where no side has a Gaussian kernel.
    fidelity : Fidelity, optional
        With a reference: distance from it, recall, coverage, alignment, in-batch similarity.
    scendi : ScendiScore, optional
        With `--scendi` of the command line; in Python, call `dp.scendi`.
    samples : Samples, optional
        What was scored, as vectors, and what these were made from.
    """

    scores: dict[str, Score]
    settings: Settings
    data: dict[str, Any]
    runtime: dict[str, Any] = field(repr=False)
    warnings: tuple[Notice, ...] = ()
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[Notice, ...] = field(default=(), repr=False)
    intervals: dict[str, Interval] = field(default_factory=dict)
    baseline: ShuffledBaseline | None = None
    bounds: dict[str, Bound] = field(default_factory=dict)
    sensitivity: Sensitivity | None = field(default=None, repr=False)
    fidelity: Fidelity | None = None
    scendi: ScendiScore | None = field(default=None, repr=False)
    samples: Samples | None = field(default=None, repr=False)

    def __getattr__(self, name: str) -> Score | None:
        # Only called for names that are no fields: every score of the table is an attribute.
        if is_score(name):
            # Not `self.scores`: while a copy or a pickle is rebuilt there are no fields yet, and
            # asking for one would call this method again, without end.
            score: Score | None = self.__dict__.get("scores", {}).get(name)
            return score
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(spec.name for spec in SCORES)})

    @property
    def excess_information(self) -> float | None:
        """Information in excess of that of random pairings, in nats; None without `baseline`."""
        if self.baseline is None:
            return None
        return self.baseline.excess_information

    @property
    def spectra(self) -> dict[str, Spectrum]:
        """Eigenvalues of the outputs ("x"), the prompts ("t") and the pairs ("joint").

        Empty where no eigenvalue was needed.
        """
        # Scores of the same operators share their spectra, so the last one wins without loss.
        spectra: dict[str, Spectrum] = {}
        for score in self.scores.values():
            spectra |= score.spectra
        return spectra

    @property
    def model(self) -> str:
        """The name of the model; empty if the data do not name one."""
        return str(self.data.get("model") or "")

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot how vendi splits into conditional and information, as a bar on a log axis.

        Without prompts, the spectrum of the outputs.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot into. Default: a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.plots import plot_evaluation

        return plot_evaluation(self, ax)

    def __repr__(self) -> str:
        from divprism.report.table import terminal_width
        from divprism.report.tables import evaluation_table

        return evaluation_table(self.to_dict()).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.notebooks import with_bars
        from divprism.report.tables import evaluation_table

        document = self.to_dict()
        return with_bars(evaluation_table(document), {"": document})

    def to_frame(self) -> Any:
        """The scores as a data frame, a row each (pandas or polars, whichever is installed)."""
        from divprism.report.tables import scores_table

        return scores_table({self.model: self.to_dict()}).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        baseline = None
        if self.baseline is not None:
            baseline = self.baseline.to_dict()
        sensitivity = None
        if self.sensitivity is not None:
            sensitivity = self.sensitivity.to_dict()
        document = {
            "schema": SCHEMA,
            "scores": {name: self._score_to_dict(name) for name in self.scores},
            "baseline": baseline,
            "sensitivity": sensitivity,
            "data": self.data,
            "settings": self.settings.to_dict(),
            "embedders": list(self.embedders),
            "runtime": self.runtime,
            "warnings": [notice.to_dict() for notice in self.warnings],
        }
        # Only where there is a reference: most results have none.
        if self.fidelity is not None:
            document["fidelity"] = self.fidelity.to_dict()
        if self.scendi is not None:
            document["scendi"] = self.scendi.to_dict()
        return document

    def log_dict(self, prefix: str = "divprism/") -> dict[str, float]:
        """The scores as plain floats by name, as loggers of experiments take them.

        An interval adds its ends as `..._low` and `..._high`.

        Parameters
        ----------
        prefix : str
            Beginning of each name; most loggers make a section of what precedes a slash.

        Examples
        --------
        >>> import numpy as np, divprism as dp
        >>> dp.evaluate(np.eye(4), kernel_x=dp.Cosine()).log_dict()
        {'divprism/vendi': 4.0, 'divprism/rke': 4.0}
        """
        logged = {}
        for name, score in self.scores.items():
            logged[prefix + name] = score.value
            if name in self.intervals:
                logged[f"{prefix}{name}_low"] = float(self.intervals[name].low)
                logged[f"{prefix}{name}_high"] = float(self.intervals[name].high)
        return logged

    def _score_to_dict(self, name: str) -> dict[str, Any]:
        entry = self.scores[name].to_dict() | {"interval": None, "bound": None}
        if name in self.intervals:
            entry["interval"] = asdict(self.intervals[name])
        if name in self.bounds:
            entry["bound"] = self.bounds[name].to_dict()
        return entry


@dataclass(frozen=True, eq=False, repr=False)
class Results(Mapping[str, Evaluation], Saved):
    """The evaluations of several models, or of one: a mapping from model to `Evaluation`.

    Attributes
    ----------
    evaluations : dict of Evaluation
        By model, in order of first appearance. A single model without a name is called "".
    """

    evaluations: dict[str, Evaluation]

    @classmethod
    def of(cls, evaluation: Evaluation) -> "Results":
        """A mapping of one."""
        return cls({evaluation.model: evaluation})

    def __getitem__(self, model: str) -> Evaluation:
        return self.evaluations[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    @property
    def first(self) -> Evaluation:
        """The first evaluation; all share their settings."""
        return next(iter(self.evaluations.values()))

    @property
    def settings(self) -> Settings:
        """The settings that all models share."""
        return self.first.settings

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """The warnings of all models, each once."""
        # dict.fromkeys keeps the order of first appearance, which a set would lose.
        every = [notice for result in self.values() for notice in result.warnings]
        return tuple(dict.fromkeys(every))

    def __repr__(self) -> str:
        from divprism.report.table import terminal_width
        from divprism.report.tables import results_table

        return results_table(self.documents()).head(SHOWN_MODELS).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.notebooks import with_bars
        from divprism.report.tables import results_table

        documents = self.documents()
        return with_bars(results_table(documents), documents)

    def to_frame(self) -> Any:
        """All scores as a data frame, a row per model and score (pandas or polars)."""
        from divprism.report.tables import scores_table

        return scores_table(self.documents()).to_frame()

    def documents(self) -> dict[str, dict[str, Any]]:
        """The result document of every model."""
        return {model: result.to_dict() for model, result in self.items()}

    def to_dict(self) -> dict[str, Any]:
        """The result document: that of the evaluation for a single model, else one per model."""
        if len(self) == 1:
            return self.first.to_dict()
        shared = self.settings.to_dict()
        return {"schema": SCHEMA, "models": self.documents(), "settings": shared}

    def log_dict(self, prefix: str = "divprism/") -> dict[str, float]:
        """`Evaluation.log_dict` of all models, as "divprism/MODEL/vendi".

        A single model goes without its name, so that runs of different models share a chart.
        """
        if len(self) == 1:
            return self.first.log_dict(prefix)
        logged: dict[str, float] = {}
        for model, result in self.items():
            logged |= result.log_dict(f"{prefix}{model}/")
        return logged


def runtime_since(start: float) -> dict[str, Any]:
    """Seconds since `start`, and the versions that a number may depend on."""
    seconds = round(time.perf_counter() - start, 6)
    return {"seconds": seconds, "divprism": __version__, "numpy": np.__version__}
