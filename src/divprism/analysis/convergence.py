"""Convergence: scores against the number of samples, their limits, and how many samples suffice.

Subsets are nested (`analysis/subsets.py`): a repeat is one random order of the units, which are
pairs, or prompts with all their outputs, and its subsets are the first m units. The mean over
orders of a score of m out of n units is an unbiased estimate of the score of m new units, so the
curve reads as if each point had been sampled independently. It ends at the score of all n, the
same in every repeat. Further stretches of the orders reduce the noise: from single subsets alone,
five orders leave most verdicts open.

Where pairs are the units and prompts repeat, the question is how more outputs under the same
prompts would change the scores. There a subset holds a similar share of the outputs of every
prompt, and prompts keep their weights in all data. The squares of order 2 are then a line in one
over the size, whose slope comes from pairs under the same prompt alone.

Limits: `analysis/extrapolation.py`; what they say about a curve: `analysis/verdicts.py`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.extrapolation import EntropiesByKind, curves
from divprism.analysis.growth import Plan, question, subset_weights
from divprism.analysis.inputs import (
    as_samples,
    describe_source,
    embed_model,
    with_rule_of,
)
from divprism.analysis.saved import Saved
from divprism.analysis.subsets import Subsets
from divprism.analysis.verdicts import (
    Criteria,
    Verdict,
    noun,
    summary,
)
from divprism.core.estimates import entropy_estimate
from divprism.core.operators import Operator
from divprism.core.spectrum import Spectrum
from divprism.engines import Resources
from divprism.errors import Notice
from divprism.estimators import Entropy
from divprism.estimators.base import check_tolerance, whole_number
from divprism.scores.problem import Problem, check_factors, entropies, pose
from divprism.scores.score import assemble
from divprism.scores.settings import EmbeddedPairOptions, Settings, check_unit, read_options
from divprism.scores.spec import available

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Convergence", "Verdict", "converge"]

_EXACT = {"exact", "dual"}  # methods whose spectra serve all orders and truncations


@dataclass(frozen=True, eq=False)
class Convergence(Saved):
    """Scores against the number of samples. `print(convergence)` shows the table and the verdicts.

    Attributes
    ----------
    sizes : ndarray of int, shape (s,)
        Numbers of units, increasing; the last is all of them.
    pairs : ndarray of int, shape (repeats, s)
        Numbers of outputs in the subsets: `sizes`, or more where a unit is a prompt with several.
    curves : dict of ndarray, shape (repeats, s)
        By score. The last column is the same in all repeats: there the subset is all data.
    means : dict of ndarray, shape (s,)
        By score, the mean over all subsets of a size. A repeat scores the first units of its order
        (`curves`) and up to eight stretches of the same size, so these means are less noisy than
        those of `curves`.
    verdicts : dict of Verdict
        By score.
    settings : Settings
        How the scores were computed, every default resolved; `truncation` is that of the truncated
        scores, `unit` what is added as a subset grows.
    tolerance : float
        Relative distance from its limit at which a score counts as converged.
    question : str
        What grows towards a limit: prompts, outputs under the same prompts, or outputs.
    warnings : tuple of Notice
        What a reader of the numbers should know.
    data, embedders, notes
        As in `Evaluation`.
    """

    sizes: np.ndarray
    pairs: np.ndarray
    curves: dict[str, np.ndarray]
    means: dict[str, np.ndarray]
    verdicts: dict[str, Verdict]
    settings: Settings
    tolerance: float
    question: str
    warnings: tuple[Notice, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[Notice, ...] = ()

    @property
    def num_repeats(self) -> int:
        """Number of random orders."""
        return int(self.pairs.shape[0])

    @property
    def deviations(self) -> dict[str, np.ndarray]:
        """Standard deviation over the repeats.

        Subsets near n share most of their pairs, so there it underestimates the sampling error.
        """
        return {name: curve.std(axis=0, ddof=1) for name, curve in self.curves.items()}

    def plot(self, axes: Any = None) -> tuple[Any, Any]:
        """Plot the curves with bands of a standard deviation over the repeats.

        There is a panel for each family of scores.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            Three with prompts, otherwise one. Default: a new figure.

        Returns
        -------
        (Figure, ndarray of Axes)
        """
        from divprism.report.plots import draw_convergence, new_panels

        num_panels = 1
        if self.settings.kernel_t is not None:
            num_panels = 3
        figure, axes = new_panels(axes, num_panels)
        draw_convergence(axes, self.to_dict())
        return figure, axes

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        criteria = Criteria(noun(self.settings), self.tolerance, self.settings.truncation)
        settings = self.settings.to_dict()
        settings["num_repeats"] = self.num_repeats
        settings["tolerance"] = self.tolerance
        settings["sizes"] = self.sizes.tolist()
        return {
            "schema": SCHEMA,
            "n": int(self.pairs[0, -1]),
            "sizes": self.sizes.tolist(),
            "pairs": self.pairs.tolist(),
            "curves": {name: curve.tolist() for name, curve in self.curves.items()},
            "means": {name: mean.tolist() for name, mean in self.means.items()},
            "verdicts": {name: asdict(verdict) for name, verdict in self.verdicts.items()},
            "deviations": {name: spread.tolist() for name, spread in self.deviations.items()},
            "noun": criteria.noun,
            "summary": summary(self.verdicts, criteria, int(self.sizes[-1])),
            "question": self.question,
            "settings": settings,
            "data": self.data,
            "embedders": list(self.embedders),
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def __repr__(self) -> str:
        from divprism.report.table import terminal_width
        from divprism.report.tables import convergence_table

        return convergence_table(self.to_dict()).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.tables import convergence_table

        return convergence_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The mean score of every size as a data frame (pandas or polars)."""
        from divprism.report.tables import convergence_table

        return convergence_table(self.to_dict(), wide=True).to_frame()


def converge(
    x: object,
    t: object = None,
    *,
    model: str | None = None,
    sizes: Sequence[int] | None = None,
    num_repeats: int = 5,
    unit: str | None = None,
    tolerance: float = 0.01,
    **options: "Unpack[EmbeddedPairOptions]",
) -> Convergence:
    """Whether there are enough samples for each score, and how many would be enough.

    All scores of `evaluate`, and the Vendi scores truncated, on nested subsets of growing size.
    The bandwidths are chosen once, on all data. With the default ladder and five repeats this costs
    about six times `evaluate` where spectra are computed, and twenty times at order 2.

    Parameters
    ----------
    x, t
        Outputs and prompts, as in `evaluate`.
    model : str, optional
        Which model, where `x` holds several; bandwidths are chosen on all of them.
    sizes : sequence of int, optional
        Numbers of units; the number of all units is added. Default: all, half, and on by factors
        of sqrt(2) down to a 64th, at least 4; of outputs under the same prompts, at least one of
        each.
    num_repeats : int
        Number of random orders, at least 2.
    unit : "pair" or "prompt", optional
        What is added as a subset grows. With "prompt" a prompt keeps all its outputs, so that
        conditional scores of different sizes mean the same; the curve shows whether there are
        enough prompts. With "pair" subsets thin out the outputs of every prompt; the curve shows
        whether there are enough outputs under these prompts, and neither its limit nor its sampling
        error covers other prompts. With fewer than 3 outputs per prompt on average it stays
        undetermined. Default: "prompt" if there are at least 20 distinct prompts and some have
        several outputs, otherwise "pair" (which is the same where every prompt has one output).
    tolerance : float
        Relative distance from its limit at which a score counts as converged.
    truncation : int, optional
        Number of eigenvalues that the truncated scores keep. Default: n / 8, so that the last
        three doublings lie beyond it (up to a sample of that size a truncated score equals the
        plain one). At order 2, which needs neither truncation nor eigenvalues, there are truncated
        scores only if it is given.
    kernel_x, kernel_t, bandwidth_rule, order, estimator, rng, settings, memory, progress
        As in `conditional_vendi`.
    embedder_x, embedder_t, cache, num_workers
        As in `embed`.

    Returns
    -------
    Convergence

    Raises
    ------
    DataError, ArgumentError
        If the data or a setting cannot be used, or there are fewer than 12 units.

    Examples
    --------
    Sixty outputs of three kinds are enough to count the kinds. Sixty outputs that have nothing in
    common are not enough to count anything.

    >>> import numpy as np, divprism as dp
    >>> kinds = np.tile(np.eye(3), (20, 1))
    >>> converge(kinds, kernel_x=dp.Cosine(), tolerance=0.05).verdicts["rke"].status
    'converged'
    >>> converge(np.eye(60), kernel_x=dp.Cosine()).verdicts["rke"].status
    'no limit'
    """
    check_tolerance(tolerance)
    num_repeats = whole_number(num_repeats, "num_repeats", 2)
    settings, resources = read_options(options, EmbeddedPairOptions, "converge")
    samples = as_samples(x, t, settings.kernel_t)
    purpose = "a convergence curve is"
    embedded, settings = embed_model(samples, model, purpose, settings, resources)
    plan = Plan.of(embedded, settings, resources, check_unit(unit))
    if model is not None:
        plan = replace(plan, settings=with_rule_of(settings, plan.settings))
    ladder, subsets = plan.subsets(sizes, num_repeats)
    # Checked once on all data: parts of a positive semidefinite matrix are so, too.
    check_factors(_operators(plan.whole), [])
    # The curve reports its own progress, which hundreds of small problems would drown.
    quiet = replace(resources, progress=None)
    data = _Data(embedded.outputs, embedded.prompts, plan.whole.settings, quiet)
    # All data are the last subset of every repeat, and are solved once.
    # They are posed without weights, as `evaluate` poses them, so that both agree.
    last = _entropies(data, None, plan.settings.truncation)
    rows = _entropies_of_subsets(data.validated(), subsets, last, plan)
    pairs = np.array([_numbers_of_pairs(repeat, plan.whole.n) for repeat in subsets])
    order, truncation = plan.settings.order, plan.settings.truncation
    by_name = {curve.name: curve for curve in curves(rows, pairs, ladder, order, truncation)}
    criteria = Criteria(noun(plan.settings), tolerance, truncation)
    return Convergence(
        sizes=ladder,
        pairs=pairs,
        curves={name: curve.scores for name, curve in by_name.items()},
        means={name: curve.means for name, curve in by_name.items()},
        verdicts={name: plan.verdict(curve, criteria) for name, curve in by_name.items()},
        settings=plan.settings,
        tolerance=tolerance,
        question=question(plan),
        warnings=(*embedded.warnings, *_warnings_of_scores(last, plan.whole)),
        data=describe_source(embedded),
        embedders=embedded.embedders,
        notes=embedded.notes,
    )


def _numbers_of_pairs(repeat: list[list[np.ndarray]], n: int) -> list[int]:
    """The number of pairs in the first subset of each size, and in all data."""
    return [*(stretches[0].size for stretches in repeat), n]


@dataclass(frozen=True, eq=False)
class _Data:
    """The data of a curve, to be posed again under other weights."""

    x: object
    t: object
    settings: Settings
    resources: Resources

    def validated(self) -> "_Data":
        """The same with validated data, so that hundreds of subsets do not validate them again."""
        assert self.settings.kernel_x is not None
        t = self.t
        if self.settings.kernel_t is not None:
            t = self.settings.kernel_t.clean(t, "t")
        return replace(self, x=self.settings.kernel_x.clean(self.x, "x"), t=t)

    def pose(self, weights: np.ndarray | None, truncation: int | None) -> Problem:
        """The problem under some weights."""
        settings = replace(self.settings, truncation=truncation)
        return pose(self.x, self.t, settings=settings, weights=weights, resources=self.resources)


def _operators(problem: Problem) -> list[Operator]:
    return [operator for operator in (problem.x, problem.t, problem.joint) if operator is not None]


def _warnings_of_scores(solved: EntropiesByKind, problem: Problem) -> tuple[Notice, ...]:
    """The warnings of `evaluate` about the scores of all data, each once."""
    warnings: list[Notice] = []
    for spec in available(solved["rke"]):
        kind = "rke"
        if spec.order is None:
            kind = "vendi"
        warnings += assemble(spec, solved[kind], problem).warnings
    return tuple(dict.fromkeys(warnings))


def _entropies_of_subsets(
    data: _Data, subsets: Subsets, last: EntropiesByKind, plan: Plan
) -> list[list[list[EntropiesByKind]]]:
    """Entropies for each repeat, size and stretch; each repeat ends with those of all data."""
    sizes = [rows.size for repeat in subsets for stretches in repeat for rows in stretches]
    report = plan.whole.resources.report_progress
    count = f"{len(sizes):,} subsets of up to {max(sizes):,} of {plan.whole.n:,} outputs"
    report(f"effect of the sample size: scoring {count}", 0)
    # Progress counts kernel entries, because large subsets take most of the time.
    done, work = 0, sum(size**2 for size in sizes)
    repeats = []
    for repeat in subsets:
        solved_repeat = []
        for stretches in repeat:
            solved = []
            for rows in stretches:
                weights = subset_weights(rows, plan)
                solved.append(_entropies(data, weights, plan.settings.truncation))
                done += rows.size**2
                report("scores of subsets", done / work)
            solved_repeat.append(solved)
        repeats.append([*solved_repeat, [last]])
    return repeats


def _entropies(data: _Data, weights: np.ndarray | None, truncation: int | None) -> EntropiesByKind:
    """Entropies of K_X, K_T and their product: at the order, at order 2, and truncated.

    Exact spectra serve all three. A random estimator chooses its effort by the question, so it is
    asked again for the truncated entropies.
    """
    problem = data.pose(weights, None)
    operators = _operators(problem)
    # Prompts and pairs are there together or not at all, so these are one or three names.
    names = ["x", "t", "joint"][: len(operators)]
    order = problem.settings.order
    question = problem.question([order, 2.0])
    if question.squares_suffice:
        plain, second = entropies(problem, names, [order, 2.0])
        solved = {"vendi": plain, "rke": second}
    else:
        spectra = problem.settings.estimator.spectra(operators, question, problem.resources)
        by_name = dict(zip(names, spectra, strict=True))
        solved = {
            "vendi": _entropies_of_spectra(by_name, order, None),
            "rke": _entropies_of_spectra(by_name, 2.0, None),
            "truncated": _entropies_of_spectra(by_name, order, truncation),
        }
        # Random probes are chosen for the order and the truncation of the question; reused for a
        # truncated entropy they may miss its tolerance.
        if all(set(spectrum.method.split("+")) <= _EXACT for spectrum in spectra):
            return solved
    if truncation is None:
        return solved
    [truncated] = entropies(data.pose(weights, truncation), names, [order])
    return solved | {"truncated": truncated}


def _entropies_of_spectra(
    spectra: dict[str, Spectrum], order: float, truncation: int | None
) -> dict[str, Entropy]:
    solved = {}
    for name, spectrum in spectra.items():
        solved[name] = Entropy(entropy_estimate(spectrum, order, truncation), spectrum.method)
    return solved
