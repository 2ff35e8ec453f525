"""Convergence: each score against the number of samples, where its curve is heading, and how many samples would do.

Subsets are nested: a repeat is one random order of the units (pairs, or prompts with all their outputs), and its subsets are
the first m of it. The mean over orders of a score of m out of n units estimates without bias what m fresh units would give,
so the curve may be read as if each point had been sampled anew. It ends at the score of all n, the same in every repeat.
Further stretches of the same orders are scored too: halves, thirds, ... part the data, and in their mean most of the noise
of a single subset cancels. From single subsets alone, five orders leave most verdicts open.
Where pairs are the units and prompts repeat, the question is what more outputs under the same prompts would do. There a subset
has a like share of the outputs of every prompt, one at least, and prompts keep the shares that they have in all data: then the
squares of order 2 are a line in one over the size, whose slope is that of pairs under the same prompt alone.
Where the curve is heading, and how that is put into words: `extrapolation`.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.extrapolation import (
    EntropiesByKind,
    Reading,
    Verdict,
    curves,
    noun,
    summary,
    undetermined,
    verdict,
)
from divprism.analysis.inputs import (
    as_samples,
    describe_source,
    embed_samples,
    require_one_model,
)
from divprism.analysis.jackknife import units_of
from divprism.core.entropy import entropy_estimate
from divprism.core.operators import Operator
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError, Notice
from divprism.estimators import Entropy
from divprism.estimators.base import check_tolerance, whole_number
from divprism.scores.problem import Problem, check_factors, entropies, pose
from divprism.scores.score import assemble
from divprism.scores.settings import EmbeddedPairOptions, Settings, check_unit, read_options
from divprism.scores.spec import available

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Convergence", "Verdict", "converge"]

_FEWEST = 12  # units that a curve can be read from
_FEWEST_EACH = 3  # outputs of a prompt, on average, that a curve can be read from
_STEPS_EACH = 8  # outputs of a prompt up to which a curve has a point for each number of them
_STRETCHES = 8  # of an order that are scored for a size
_SPAN = 64  # between the ends of the default ladder
_ROUNDING = 1e-9  # of places in an order
_SHOWN = 5  # sizes in the printed table
_EXACT = {"exact", "dual"}


@dataclass(frozen=True, eq=False)
class Convergence:
    """Scores against the number of samples. `print(convergence)` shows the table and the verdicts.

    Attributes
    ----------
    sizes : ndarray of int, shape (s,)
        Numbers of units, increasing; the last is all of them.
    pairs : ndarray of int, shape (repeats, s)
        Numbers of outputs in the subsets: `sizes`, or more where a unit is a prompt with several.
    curves : dict
        For each score an array (repeats, s). The last column is the same in all repeats: there the subsets are the data.
    means : dict
        For each score an array (s,): mean over all subsets of a size. A repeat scores the first units of its order (`curves`),
        and then further stretches of it as long (at most eight), so these means are less noisy than those of `curves`.
    verdicts : dict
        For each score a `Verdict`.
    settings : Settings
        How the scores were computed, every default resolved; `truncation` is that of the truncated
        scores, `unit` what is added as a subset grows.
    tolerance : float
        Relative distance from its limit at which a score counts as converged.
    question : str
        What a limit is the limit of: more prompts, more outputs under the same prompts, or more pairs.
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
        """Standard deviation over the repeats. Subsets near n share most of their pairs: there it understates chance."""
        return {name: curve.std(axis=0, ddof=1) for name, curve in self.curves.items()}

    def plot(self, axes: Any = None) -> tuple[Any, Any]:
        """Draw the curves with bands of a standard deviation over the repeats: a panel for each kind of score.

        Parameters
        ----------
        axes : matplotlib Axes, three with prompts and else one, optional
            Where to draw; default a new figure.

        Returns
        -------
        (Figure, ndarray of Axes)
        """
        from divprism.report.plots import draw_convergence, new_panels

        figure, axes = new_panels(axes, 3 if "conditional_vendi" in self.means else 1)
        draw_convergence(axes, self.to_dict())
        return figure, axes

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        return {
            "schema": SCHEMA,
            "n": int(self.pairs[0, -1]),
            "sizes": self.sizes.tolist(),
            "pairs": self.pairs.tolist(),
            "curves": {name: curve.tolist() for name, curve in self.curves.items()},
            "means": {name: mean.tolist() for name, mean in self.means.items()},
            "verdicts": {name: asdict(verdict) for name, verdict in self.verdicts.items()},
            "deviations": {name: spread.tolist() for name, spread in self.deviations.items()},
            "noun": noun(self.settings),
            "summary": summary(
                self.verdicts,
                Reading(noun(self.settings), self.tolerance, self.settings.truncation),
                int(self.sizes[-1]),
            ),
            "question": self.question,
            "settings": self.settings.to_dict()
            | {
                "num_repeats": self.num_repeats,
                "tolerance": self.tolerance,
                "sizes": self.sizes.tolist(),
            },
            "data": self.data,
            "embedders": list(self.embedders),
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def __repr__(self) -> str:
        from divprism.report.table import terminal_width
        from divprism.report.tables import convergence_table

        return convergence_table(self.to_dict()).to_text(terminal_width())

    def _repr_html_(self) -> str:
        from divprism.report.tables import convergence_table

        return convergence_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The mean score of every size as a data frame (pandas or polars)."""
        from divprism.report.tables import convergence_table

        return convergence_table(self.to_dict(), wide=True).to_frame()


def converge(
    x: Any,
    t: Any = None,
    *,
    sizes: Sequence[int] | None = None,
    num_repeats: int = 5,
    unit: str | None = None,
    tolerance: float = 0.01,
    **options: "Unpack[EmbeddedPairOptions]",
) -> Convergence:
    """Whether there are enough samples, for which score, and how many would do: scores of nested subsets of growing size.

    All scores of `evaluate`, and the vendi scores truncated. The bandwidth is chosen once, on all data. With the default
    ladder and five repeats this costs about six times `evaluate` where that finds spectra, twenty times at order 2.

    Parameters
    ----------
    x, t
        Outputs and prompts of one model, as in `evaluate`.
    sizes : sequence of int, optional
        Numbers of units; all of them is added. Default: all, half, and on by factors of sqrt(2) to a 64th, at least 4; of
        outputs under the same prompts, at least one of each.
    num_repeats : int
        Random orders, at least 2.
    unit : "pair" or "prompt", optional
        What is added as a subset grows. With "prompt" every subset has the outputs per prompt that the data have, so that
        conditional scores of different sizes mean the same: the curve tells whether there are enough prompts. With "pair"
        subsets thin out the outputs of every prompt: the curve tells whether there are enough outputs under these prompts,
        and neither its limit nor its chance know of others. With fewer than 3 outputs of a prompt on average there is
        no telling. Default: "prompt" if there are at least 20 distinct prompts and
        some have several outputs, else "pair" (which is the same where every prompt has one).
    truncation : int, optional
        Eigenvalues that the truncated scores keep. Default: n / 8, so that the last three doublings lie beyond it (up to a
        sample of that size a truncated score equals the plain one). At order 2, which needs neither truncation nor
        eigenvalues, there are no truncated scores unless it is given.
    kernel_x, kernel_t, bandwidth_rule, order, estimator, rng, memory, progress
        As in `conditional_vendi`.
    tolerance : float
        Relative distance from its limit at which a score counts as converged.

    Returns
    -------
    Convergence

    Raises
    ------
    DataError, ArgumentError
        If the data or a setting cannot be used, or there are fewer than 12 units.

    Examples
    --------
    Sixty outputs, each of one of three kinds: enough for the three to be counted. As many that have nothing in common are not.

    >>> import numpy as np, divprism as dp
    >>> kinds = converge(np.tile(np.eye(3), (20, 1)), kernel_x=dp.Cosine(), tolerance=0.05)
    >>> kinds.verdicts["rke"].status, converge(np.eye(60), kernel_x=dp.Cosine()).verdicts["rke"].status
    ('converged', 'no limit')
    """
    check_tolerance(tolerance)
    num_repeats = whole_number(num_repeats, "num_repeats", 2)
    asked, resources = read_options(options, EmbeddedPairOptions, "converge")
    samples = as_samples(x, t, asked.kernel_t)
    require_one_model(samples, "a convergence curve is")
    embedded, asked = embed_samples(samples, asked, resources)
    x, t = embedded.outputs, embedded.prompts
    plain = replace(asked, truncation=None)
    whole = pose(x, t, settings=plain, resources=resources)
    unit, units = units_of(whole, check_unit(unit) or asked.unit)
    settings = replace(whole.settings, unit=unit, truncation=_truncation(asked.truncation, whole))
    prompts = _thinned_prompts(whole, unit, units)
    # Curves of fewer outputs per prompt need several outputs to begin with.
    readable = prompts is None or units.size >= _FEWEST_EACH * (prompts.max() + 1)
    what = noun(settings)
    if prompts is not None and readable:
        ladder = _ladder(sizes, units.size, what, int(prompts.max()) + 1)
        subsets = _thinned(prompts, ladder, num_repeats, settings.rng)
    else:
        ladder = _ladder(sizes, int(units.max()) + 1, what)
        subsets = _subsets(units, ladder, num_repeats, settings.rng)
    check_factors(_operators(whole), [])
    pair = _Pairs(x, t, whole.settings, replace(resources, progress=None))
    last = _entropies(pair, None, settings.truncation)
    shares = prompts if readable else None
    rows = _swept(pair.clean(), subsets, last, shares, whole, settings.truncation)
    pairs = np.array([[*(blocks[0].size for blocks in repeat), whole.n] for repeat in subsets])
    by_name = {
        curve.name: curve
        for curve in curves(rows, pairs, ladder, settings.order, settings.truncation)
    }
    reading = Reading(what, tolerance, settings.truncation)
    verdicts = {}
    for name, curve in by_name.items():
        verdicts[name] = verdict(curve, reading) if readable else undetermined(curve)
    return Convergence(
        sizes=ladder,
        pairs=pairs,
        curves={name: curve.scores for name, curve in by_name.items()},
        means={name: curve.means for name, curve in by_name.items()},
        verdicts=verdicts,
        settings=settings,
        tolerance=tolerance,
        question=_question(whole, unit, readable),
        warnings=(*embedded.warnings, *_warnings(last, whole)),
        data=describe_source(samples),
        embedders=embedded.embedders,
        notes=embedded.notes,
    )


def _truncation(asked: int | None, whole: Problem) -> int | None:
    """Of the truncated scores: that asked for, or n / 8; none at order 2 unless asked for."""
    if asked is not None:
        return asked
    if whole.settings.order == 2:
        return None
    return math.ceil(whole.n / 8)


def _thinned_prompts(whole: Problem, unit: str, units: np.ndarray) -> np.ndarray | None:
    """The prompt of each pair, where subsets thin out the outputs of repeated prompts."""
    if unit == "pair" and whole.t is not None and 1 < whole.t.size < units.size:
        return whole.t.index
    return None


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The data of a curve, to be posed again under other weights."""

    x: Any
    t: Any
    settings: Settings
    resources: Resources

    def clean(self) -> "_Pairs":
        """The same with validated data, so that hundreds of subsets do not validate them again."""
        assert self.settings.kernel_x is not None
        t = self.t
        if self.settings.kernel_t is not None:
            t = self.settings.kernel_t.clean(t, "t")
        return replace(self, x=self.settings.kernel_x.clean(self.x, "x"), t=t)

    def posed(self, weights: np.ndarray | None, truncation: int | None) -> Problem:
        """The problem under some weights."""
        settings = replace(self.settings, truncation=truncation)
        return pose(self.x, self.t, settings=settings, weights=weights, resources=self.resources)


def _operators(problem: Problem) -> list[Operator]:
    return [operator for operator in (problem.x, problem.t, problem.joint) if operator is not None]


def _warnings(found: EntropiesByKind, problem: Problem) -> tuple[Notice, ...]:
    """What `evaluate` warns of."""
    warnings: list[Notice] = []
    for spec in available(found["rke"]):
        kind = "vendi" if spec.order is None else "rke"
        warnings += assemble(spec, found[kind], problem).warnings
    return tuple(dict.fromkeys(warnings))


def _question(problem: Problem, unit: str, told: bool) -> str:
    if problem.t is None:
        return "A limit is that of more outputs."
    if problem.t.size == problem.n:
        return "A limit is that of more prompts, with one output each."
    if unit == "prompt":
        each = f"{problem.n / problem.t.size:.3g}"
        return f"A limit is that of more prompts, with as many outputs each as here ({each}); unit pair asks for more outputs."
    end = (
        "" if told else f"; with {problem.n / problem.t.size:.2g} of each here, neither can be told"
    )
    what = f"more outputs under the same {problem.t.size:,} prompts, not of other prompts"
    return f"A limit, and chance, are those of {what}{end}."


def _ladder(sizes: Sequence[int] | None, total: int, what: str, prompts: int = 0) -> np.ndarray:
    """Increasing sizes that end with all units; with `prompts`, those of outputs under so many, one of each at least."""
    if total < _FEWEST:
        way_out = ' Use unit="pair".' if what == "prompts" else ""
        raise DataError(f"a curve needs at least {_FEWEST} {what}; there are {total:,}.{way_out}")
    usual = _usual_ladder(total, prompts)
    if sizes is None:
        return usual
    wanted = [whole_number(size, "sizes", 2) for size in sizes]
    if any(size > total for size in wanted):
        raise ArgumentError(f"`sizes` go up to {max(wanted):,}, but there are {total:,} {what}.")
    ladder = np.unique([*wanted, total])
    if np.array_equal(ladder, usual):
        return ladder
    if ladder[0] < prompts:
        raise ArgumentError(
            f"`sizes` must leave one output of each of {prompts:,} prompts at least; got {wanted}."
        )
    most = max(total // 4, prompts)
    if ladder.size < 4 or ladder[0] > most:
        raise ArgumentError(
            f"`sizes` must name at least 3 sizes below all {total:,} {what}, the smallest at most {most:,}; got {wanted}."
        )
    return ladder


def _usual_ladder(total: int, prompts: int) -> np.ndarray:
    if not prompts:
        steps = int(2 * math.log2(min(_SPAN, total / 4)) + 1e-9)
        return np.unique(
            [*np.round(total * 2.0 ** (-np.arange(2, steps + 1) / 2)).astype(int), total]
        )
    each = total / prompts
    steps = int(2 * math.log2(min(_SPAN, each)) + 1e-9)
    counts = (
        np.arange(1, math.ceil(each))
        if each <= _STEPS_EACH
        else np.round(each * 2.0 ** (-np.arange(2, steps + 1) / 2))
    )
    return np.unique([*np.round(counts * prompts).astype(int), total])


def _subsets(
    units: np.ndarray, ladder: np.ndarray, num_repeats: int, seed: int
) -> list[list[list[np.ndarray]]]:
    """For each repeat and each size but the last, places of pairs: those of the first units of a random order, and of others.

    The others are further stretches of the order, of the same size and spread evenly over it. Where they part all units
    between them, whatever is a sum over units has the mean that it has on all data, and no noise.
    """
    draws, subsets, total = np.random.default_rng(seed), [], int(units.max()) + 1
    for _ in range(num_repeats):
        rank = draws.permutation(total)[units]
        repeat = []
        for size in ladder[:-1].tolist():
            starts = np.linspace(0, total - size, min(_STRETCHES, math.ceil(total / size))).astype(
                int
            )
            repeat.append(
                [np.flatnonzero((rank >= start) & (rank < start + size)) for start in starts]
            )
        subsets.append(repeat)
    return subsets


def _thinned(
    prompts: np.ndarray, ladder: np.ndarray, num_repeats: int, seed: int
) -> list[list[list[np.ndarray]]]:
    """The same for outputs under the same prompts: stretches of a random order of each prompt's outputs, one at least."""
    draws, subsets, total = np.random.default_rng(seed), [], prompts.size
    counts = np.bincount(prompts)
    for _ in range(num_repeats):
        by_prompt = draws.permutation(total)
        by_prompt = by_prompt[np.argsort(prompts[by_prompt], kind="stable")]
        place = np.empty(total)
        place[by_prompt] = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        place = (place + 0.5) / counts[
            prompts
        ]  # of an output among those of its prompt, from 0 to 1
        repeat = []
        for size in ladder[:-1].tolist():
            starts = np.linspace(0, 1 - size / total, min(_STRETCHES, math.ceil(total / size)))
            repeat.append(
                [_stretch(prompts, place, start, start + size / total) for start in starts]
            )
        subsets.append(repeat)
    return subsets


def _stretch(prompts: np.ndarray, place: np.ndarray, start: float, end: float) -> np.ndarray:
    """Outputs whose place among those of their prompt lies in a stretch, and the nearest of each prompt that has none there."""
    inside = (place >= start - _ROUNDING) & (place < end - _ROUNDING)
    for prompt in np.flatnonzero(
        np.bincount(prompts[inside], minlength=int(prompts.max()) + 1) == 0
    ):
        members = np.flatnonzero(prompts == prompt)
        inside[members[np.argmin(np.abs(place[members] - (start + end) / 2))]] = True
    return np.flatnonzero(inside)


def _swept(
    data: _Pairs,
    subsets: list[list[list[np.ndarray]]],
    last: EntropiesByKind,
    prompts: np.ndarray | None,
    whole: Problem,
    truncation: int | None,
) -> list[list[list[EntropiesByKind]]]:
    """Entropies for each repeat, size and stretch; those of all data, the last, end each repeat.

    With `prompts`, each keeps its share of all data.
    """
    sizes = [subset.size for repeat in subsets for blocks in repeat for subset in blocks]
    whole.resources.report_progress(
        f"converge: {len(sizes):,} subsets of up to {max(sizes):,} of {whole.n:,} outputs", 0
    )
    rows, done, work = [], 0, sum(size**2 for size in sizes)
    for repeat in subsets:
        row = []
        for blocks in repeat:
            found = []
            for subset in blocks:
                weights = np.bincount(subset, minlength=whole.n) / subset.size
                if prompts is not None:
                    weights *= (np.bincount(prompts) / np.bincount(prompts, weights=weights))[
                        prompts
                    ] / whole.n
                found.append(_entropies(data, weights, truncation))
                done += subset.size**2
                whole.resources.report_progress("scores of subsets", done / work)
            row.append(found)
        rows.append([*row, [last]])
    return rows


def _entropies(data: _Pairs, weights: np.ndarray | None, truncation: int | None) -> EntropiesByKind:
    """Entropies of K_X, K_T and their product: at the order given, at order 2, and at the order given truncated.

    Exact spectra serve all three; an estimator that draws spends its effort where the question is, and is asked again.
    """
    problem = data.posed(weights, None)
    names = ["x", "t", "joint"][: len(_operators(problem))]
    order = problem.settings.order
    question = problem.question([order, 2.0])
    if not question.squares_suffice:
        spectra = problem.settings.estimator.spectra(
            _operators(problem), question, problem.resources
        )
        asked = {"vendi": (order, None), "rke": (2.0, None), "truncated": (order, truncation)}
        found = {
            kind: {
                name: Entropy(entropy_estimate(s, *what), s.method)
                for name, s in zip(names, spectra, strict=True)
            }
            for kind, what in asked.items()
        }
        if all(set(spectrum.method.split("+")) <= _EXACT for spectrum in spectra):
            return found
    else:
        plain, second = entropies(problem, names, [order, 2.0])
        found = {"vendi": plain, "rke": second}
    if truncation is None:
        return found
    [cut] = entropies(data.posed(weights, truncation), names, [order])
    return found | {"truncated": cut}


def _doublings(sizes: np.ndarray) -> list[int]:
    """Places of the last size, of the one nearest to half of it, and so on: as many as a line takes."""
    wanted = [
        sizes[-1] / 2**power for power in range(_SHOWN) if sizes[-1] / 2**power >= sizes[0] * 0.9
    ]
    return sorted({int(np.argmin(np.abs(np.log(sizes / size)))) for size in wanted})
