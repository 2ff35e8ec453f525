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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from divprism.analysis.extrapolation import (
    EntropiesByKind,
    Verdict,
    curves,
    figures,
    noun,
    summary,
    undetermined,
    verdict,
)
from divprism.analysis.jackknife import units_of
from divprism.core.entropy import entropy_estimate
from divprism.core.kernels import Kernel
from divprism.core.operators import Operator
from divprism.core.validation import check_truncation
from divprism.errors import ArgumentError, DataError
from divprism.estimators import Entropy, Estimator
from divprism.estimators.base import check_tolerance, whole_number
from divprism.scores import registry
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.problem import Problem, check_factors, entropies, pose
from divprism.scores.score import COMBINATIONS, score_from

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
    settings : dict
        Keyword arguments that give this result again, every default resolved.
    question : str
        What a limit is the limit of: more prompts, more outputs under the same prompts, or more pairs.
    warnings : tuple of str
        What a reader of the numbers should know.
    """

    sizes: np.ndarray
    pairs: np.ndarray
    curves: dict[str, np.ndarray]
    means: dict[str, np.ndarray]
    verdicts: dict[str, Verdict]
    settings: dict[str, Any]
    question: str
    warnings: tuple[str, ...] = ()

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
            "schema": 1,
            "n": int(self.pairs[0, -1]),
            "sizes": self.sizes.tolist(),
            "pairs": self.pairs.tolist(),
            "curves": {name: curve.tolist() for name, curve in self.curves.items()},
            "means": {name: mean.tolist() for name, mean in self.means.items()},
            "verdicts": {name: asdict(verdict) for name, verdict in self.verdicts.items()},
            "question": self.question,
            "settings": registry.spell_settings(self.settings),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        unit, shown = noun(self.settings), _doublings(self.sizes)
        rows = [[unit, *(f"{self.sizes[place]:,}" for place in shown)]]
        for name, mean in self.means.items():
            spread = self.deviations[name]
            cells = [
                figures(mean[place]) + (f" +-{spread[place]:.1g}" if place + 1 < mean.size else "")
                for place in shown
            ]
            rows.append([name, *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in rows
        ]
        repeats = self.pairs.shape[0]
        band = f"+-: standard deviation over {repeats} random orders; near {self.sizes[-1]:,} they share most {unit}."
        from divprism.report.formats import kernel_note

        note = kernel_note({"settings": registry.spell_settings(self.settings), "embedders": []})
        cut = f", truncation {self.settings['truncation']}" if self.settings["truncation"] else ""
        note = f"order {self.settings['order']:g}{cut}; {note}"
        verdicts = [verdict.sentence for verdict in self.verdicts.values()]
        told = summary(self.verdicts, self.settings, int(self.sizes[-1]))
        return "\n".join([*lines, band, note, "", told, self.question, *verdicts]) + "\n"


def converge(
    x: Any,
    t: Any = None,
    *,
    sizes: Sequence[int] | None = None,
    num_repeats: int = 5,
    unit: str | None = None,
    truncation: int | None = None,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    order: float = 1.0,
    estimator: Estimator | None = None,
    rng: Any = 0,
    tolerance: float = 0.01,
    memory: Any = None,
    progress: Callable[[str, float], None] | None = None,
) -> Convergence:
    """Whether there are enough samples, for which score, and how many would do: scores of nested subsets of growing size.

    All scores of `evaluate`, and the vendi scores truncated. The bandwidth is chosen once, on all data. With the default
    ladder and five repeats this costs about six times `evaluate` where that finds spectra, twenty times at order 2.

    Parameters
    ----------
    x : array (n, d)
        A row per output, or a kernel matrix under `Precomputed()`.
    t : array (n, d_t), or flat collection of n group ids, optional
        The prompt of each output, as in `conditional_vendi`.
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
    truncation = check_truncation(truncation)
    arguments = {
        "order": order,
        "estimator": estimator,
        "rng": rng,
        "bandwidth_rule": bandwidth_rule,
        "truncation": None,
    }
    whole = pose(
        x, t, kernel_x=kernel_x, kernel_t=kernel_t, memory=memory, progress=progress, **arguments
    )
    unit, units = units_of(whole, unit)
    settings = whole.settings | {
        "truncation": truncation
        or (None if whole.settings["order"] == 2 else math.ceil(whole.n / 8)),
        "unit": unit,
        "num_repeats": num_repeats,
        "tolerance": tolerance,
    }
    prompts = (
        whole.t.index
        if unit == "pair" and whole.t is not None and 1 < whole.t.size < units.size
        else None
    )
    told = prompts is None or units.size >= _FEWEST_EACH * (prompts.max() + 1)
    if prompts is not None and told:
        ladder = _ladder(sizes, units.size, settings, int(prompts.max()) + 1)
        subsets = _thinned(prompts, ladder, num_repeats, settings["rng"])
    else:
        ladder = _ladder(sizes, int(units.max()) + 1, settings)
        subsets = _subsets(units, ladder, num_repeats, settings["rng"])
    check_factors(_operators(whole), [])
    fixed = {name: settings[name] for name in ("kernel_x", "kernel_t", "order", "estimator", "rng")}
    fixed["memory"] = memory
    posed = partial(
        pose,
        fixed["kernel_x"].clean(x, "x"),
        None if t is None else fixed["kernel_t"].clean(t, "t"),
        **fixed,
    )
    last = _entropies(partial(pose, x, t, **fixed), settings)
    rows = _swept(posed, subsets, last, prompts if told else None, whole, settings)
    pairs = np.array([[*(blocks[0].size for blocks in repeat), whole.n] for repeat in subsets])
    settings["sizes"] = ladder.tolist()
    found = {curve.name: curve for curve in curves(rows, pairs, ladder, settings)}
    return Convergence(
        sizes=ladder,
        pairs=pairs,
        curves={name: curve.scores for name, curve in found.items()},
        means={name: curve.means for name, curve in found.items()},
        verdicts={
            name: verdict(curve, settings) if told else undetermined(curve)
            for name, curve in found.items()
        },
        settings=settings,
        question=_question(whole, settings["unit"], told),
        warnings=_warnings(last, whole),
    )


def _operators(problem: Problem) -> list[Operator]:
    return [operator for operator in (problem.x, problem.t, problem.joint) if operator is not None]


def _warnings(found: EntropiesByKind, problem: Problem) -> tuple[str, ...]:
    """What `evaluate` warns of."""
    order = problem.settings["order"]
    names = [name for name, signs in COMBINATIONS.items() if set(signs) <= set(found["rke"])]
    scores = [
        score_from(name, found["rke" if name.endswith("rke") else "vendi"], problem, order)
        for name in names
    ]
    return tuple(dict.fromkeys(text for score in scores for text in score.warnings))


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


def _ladder(
    sizes: Sequence[int] | None, total: int, settings: dict[str, Any], prompts: int = 0
) -> np.ndarray:
    """Increasing sizes that end with all units; with `prompts`, those of outputs under so many, one of each at least."""
    what = noun(settings)
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
    posed: Callable[..., Problem],
    subsets: list[list[list[np.ndarray]]],
    last: EntropiesByKind,
    prompts: np.ndarray | None,
    whole: Problem,
    settings: dict[str, Any],
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
                found.append(_entropies(partial(posed, weights=weights), settings))
                done += subset.size**2
                whole.resources.report_progress("scores of subsets", done / work)
            row.append(found)
        rows.append([*row, [last]])
    return rows


def _entropies(posed: Callable[..., Problem], settings: dict[str, Any]) -> EntropiesByKind:
    """Entropies of K_X, K_T and their product: at the order given, at order 2, and at the order given truncated.

    Exact spectra serve all three; an estimator that draws spends its effort where the question is, and is asked again.
    """
    problem = posed(truncation=None)
    names = ["x", "t", "joint"][: len(_operators(problem))]
    order, truncation = settings["order"], settings["truncation"]
    question = problem.question([order, 2.0])
    if not question.squares_suffice:
        spectra = settings["estimator"].spectra(_operators(problem), question, problem.resources)
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
    [cut] = entropies(posed(truncation=truncation), names, [order])
    return found | {"truncated": cut}


def _doublings(sizes: np.ndarray) -> list[int]:
    """Places of the last size, of the one nearest to half of it, and so on: as many as a line takes."""
    wanted = [
        sizes[-1] / 2**power for power in range(_SHOWN) if sizes[-1] / 2**power >= sizes[0] * 0.9
    ]
    return sorted({int(np.argmin(np.abs(np.log(sizes / size)))) for size in wanted})
