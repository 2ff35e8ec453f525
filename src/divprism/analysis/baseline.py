"""Shuffled baseline: how much Information is left when outputs are paired with prompts at random.

With few outputs per prompt that is much of it: the bias of a small sample, not information.

At order 2 the mean and the variance over all pairings are known in closed form. At other orders a
pairing costs a joint spectrum. Pairings differ little from each other (0.0002 to 0.001 nats at a
thousand pairs of real captions and answers), so a few of them give the mean; they are added until
its standard error is small. The p-value needs many pairings but no spectrum: it compares
Information of order 2, which costs a sum of squares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.pairings import Pairings, pairing_moments
from divprism.core.arrays import eigvalsh
from divprism.core.entropy import renyi_entropy
from divprism.core.kernels import Categorical
from divprism.core.spectrum import Spectrum
from divprism.engines import blas_for, side_by_side
from divprism.errors import ArgumentError, Notice
from divprism.estimators import Auto, Entropy, Exact, Lanczos
from divprism.estimators.base import whole_number
from divprism.scores.normalization import normalized
from divprism.scores.problem import Problem, entropies, pose
from divprism.scores.score import combine
from divprism.scores.settings import PairOptions, Settings, read_options
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "FEW_OUTPUTS",
    "ShuffledBaseline",
    "default_permutations",
    "shuffled_baseline",
    "shuffled_from",
]

FEW_OUTPUTS = 5  # outputs per prompt, on average, below which Information is mostly bias
# The smallest p-value is 1 / (m + 1), so 19 pairings are the fewest that can reach 0.05.
_PAIRINGS = ((1000, 99), (5000, 19))  # pairs up to which this many pairings are affordable
_INFORMATION = score_spec("information_vendi")

# Joint spectra are added, this many at a time, until the mean over their pairings has a standard
# error of `_PRECISION` nats. From fewer than five, luck would take a wide spread for a small one.
_BATCH = 5
_PRECISION = 0.002

# Size of a joint matrix from which `Auto` leaves pairings to `Lanczos`: its error, 0.001 nats, is
# no larger than what pairings differ by, and at 3,000 pairs it takes a fifth of the time.
_LARGE = 1500

# Logarithms that differ by less are equal up to rounding.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class ShuffledBaseline:
    """Information that is left when outputs are paired with prompts at random.

    Attributes
    ----------
    excess_information : float
        Logarithm of the Information score minus its mean over random pairings, in nats: what the
        outputs reveal about their prompts.
    baseline : float
        That mean, as a score.
    p_value : float
        Share of pairings, the given one included, whose Information of order 2 (without truncation)
        is at least that of the given one, whatever the order of the score.
    num_permutations, order
        Number of random pairings behind the p-value, and order of the score.
    standard_deviation : float or None
        Of the logarithm over the random pairings, in nats. None for one pairing.
    standard_error : float or None
        Of the excess, in nats: that of a mean over `num_spectra` pairings, and of the estimator.
        None for one pairing.
    num_spectra : int
        Number of pairings whose joint spectrum was computed for the mean; 0 at order 2, where mean
        and standard deviation over all pairings are known in closed form.
    excess_information_rke : float or None
        The excess at order 2. In closed form: the mean of the logarithm up to the third power of
        its spread.
    """

    excess_information: float
    baseline: float
    p_value: float
    num_permutations: int
    order: float
    standard_deviation: float | None = None
    standard_error: float | None = None
    num_spectra: int = 0
    excess_information_rke: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every number finite."""
        plain = asdict(self)
        if math.isinf(self.order):
            plain["order"] = "inf"
        return plain


def shuffled_baseline(
    x: object, t: object, *, num_permutations: int = 99, **options: "Unpack[PairOptions]"
) -> ShuffledBaseline:
    """Information-Vendi against its value under random re-pairing of outputs and prompts.

    With few outputs per prompt the raw score is mostly bias: outputs that ignore their prompts
    score well above 1. What exceeds the shuffled value is information. The smallest possible
    p-value is 1 / (num_permutations + 1).

    At order 2 the mean over all pairings is known in closed form, and a pairing costs a sum over
    the kernel values. At other orders joint spectra are computed of the first pairings, five at
    least, until the mean over them has a standard error of 0.002 nats.

    Parameters
    ----------
    x, t : as in `information_vendi`
    num_permutations : int, optional
        Number of random pairings behind the p-value, and the most whose spectra are computed.
    **options
        Keywords of `information_vendi`, without `weights`.

    Examples
    --------
    Outputs that repeat their prompts, against chance:

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.arange(6), 10)
    >>> baseline = dp.shuffled_baseline(np.eye(6)[t], t, kernel_x=dp.Cosine())
    >>> round(baseline.baseline, 1), baseline.p_value
    (1.3, 0.01)
    """
    settings, resources = read_options(options, PairOptions, "shuffled_baseline")
    x, t, settings = normalized(x, t, settings)
    problem = pose(x, t, settings=settings, resources=resources)
    return shuffled_from(problem, whole_number(num_permutations, "num_permutations", 1))


def default_permutations(problem: Problem) -> tuple[int, tuple[Notice, ...]]:
    """The default number of random pairings, and a warning where they would be too expensive.

    Where prompts have fewer than five outputs on average: 99 up to 1,000 pairs, 19 up to 5,000.
    None elsewhere, and none where pairs have weights of their own, which cannot be shuffled.
    """
    pairs = problem.x.index.size
    if problem.t is None or pairs < 2 or not _has_equal_weights(problem):
        return 0, ()
    # Pairs of weight zero are gone here, so the count is that of the pairs that are scored.
    outputs_per_prompt = pairs / problem.t.size
    if outputs_per_prompt >= FEW_OUTPUTS:
        return 0, ()
    for largest, count in _PAIRINGS:
        if pairs <= largest:
            return count, ()
    text = (
        f"prompts have {outputs_per_prompt:.1f} outputs on average, so Information may be mostly "
        f"the bias of a small sample. Pass `num_permutations={_PAIRINGS[-1][1]}` to compare it "
        "with random pairings; that takes longer, because some of them need their own spectrum."
    )
    return 0, (Notice("information-unchecked", text),)


def _has_equal_weights(problem: Problem) -> bool:
    # Weights are normalised to sum to one, so equal weights may differ in their last digit.
    return bool(np.ptp(problem.weights) <= 1e-12)


def shuffled_from(
    problem: Problem, num_permutations: int, solved: Mapping[str, Entropy] | None = None
) -> ShuffledBaseline:
    """The baseline of a problem; `solved` holds the entropies at its order, if they are known."""
    if problem.t is None:
        raise ArgumentError("`num_permutations` was given, but there are no prompts to shuffle.")
    if not _has_equal_weights(problem):
        raise ArgumentError("`weights` cannot be shuffled: the baseline needs equal weights.")
    order = problem.settings.order
    if solved is None:
        [solved] = entropies(problem, list(_INFORMATION.terms), [order])
    with blas_for(problem.x.index.size):
        return _compare(problem, solved, num_permutations)


def _compare(
    problem: Problem, solved: Mapping[str, Entropy], num_permutations: int
) -> ShuffledBaseline:
    """The baseline, from the entropies of the given pairing."""
    assert problem.t is not None
    given = combine(_INFORMATION, solved).estimate
    n = problem.x.index.size
    generator = np.random.default_rng(problem.settings.rng)
    orders = [generator.permutation(n) for _ in range(num_permutations)]
    pairings = Pairings(problem.x, problem.t, problem.weights, problem.resources)
    moments = pairing_moments(problem.x, problem.t)
    log_norm = math.log(pairings.squared_norm(np.arange(n)))
    # The mean of the logarithm, to second order in the spread.
    variance = moments.variance / moments.mean**2
    excess_rke = log_norm - (math.log(moments.mean) - variance / 2)
    mean = _Mean(given.value - excess_rke, math.sqrt(variance), 0.0, 0)
    squares_suffice = problem.question([problem.settings.order]).squares_suffice
    if not squares_suffice or not problem.settings.estimator.squares_are_exact:
        # Shuffling moves neither marginal: only the joint entropy is computed again.
        marginals = given.value + solved["joint"].estimate.value
        mean = _mean_over_spectra(problem, pairings, orders, marginals)
    error = mean.standard_error
    if error is not None:
        error = math.hypot(error, given.standard_error)
    return ShuffledBaseline(
        excess_information=given.value - mean.value,
        baseline=math.exp(mean.value),
        p_value=_share_above(log_norm, [pairings.squared_norm(order) for order in orders]),
        num_permutations=num_permutations,
        order=problem.settings.order,
        standard_deviation=mean.standard_deviation,
        standard_error=error,
        num_spectra=mean.num_spectra,
        excess_information_rke=excess_rke,
    )


def _share_above(log_norm: float, shuffled: Sequence[float]) -> float:
    """Share of the squared norms, the given one included, that are at least the given one."""
    # Equal up to rounding counts as "at least": pairings of equal items are the given one.
    at_least = sum(math.log(norm) >= log_norm - _ROUNDING for norm in shuffled)
    # If outputs and prompts are independent, the given pairing is as likely as each random one.
    # Unless it is counted among them, the p-value can be zero, and the test exceeds its level.
    return (1 + at_least) / (1 + len(shuffled))


@dataclass(frozen=True)
class _Mean:
    """Mean of the logarithm of Information over random pairings, and what it rests on."""

    value: float
    standard_deviation: float | None
    standard_error: float | None
    num_spectra: int


def _mean_over_spectra(
    problem: Problem, pairings: Pairings, orders: Sequence[np.ndarray], marginals: float
) -> _Mean:
    """The mean over as many of the pairings as its precision needs."""
    logs: list[float] = []
    for start in range(0, len(orders), _BATCH):
        batch = range(start, min(start + _BATCH, len(orders)))
        joint_entropies = _joint_entropies(problem, pairings, orders, batch)
        logs += [marginals - entropy for entropy in joint_entropies]
        if len(logs) > 1 and float(np.std(logs, ddof=1)) <= _PRECISION * math.sqrt(len(logs)):
            break
    # The mean of the logarithms is the bias that random pairings have in common.
    mean = math.fsum(logs) / len(logs)
    if len(logs) == 1:  # one pairing has no standard deviation
        return _Mean(mean, None, None, 1)
    spread = float(np.std(logs, ddof=1))
    return _Mean(mean, spread, spread / math.sqrt(len(logs)), len(logs))


def _joint_entropies(
    problem: Problem, pairings: Pairings, orders: Sequence[np.ndarray], batch: Sequence[int]
) -> list[float]:
    """The joint entropy of some pairings, at the order of the problem."""
    if _is_solved_densely(problem):
        solve = partial(_dense_entropy, problem, pairings)
        with problem.resources.workers() as executor:
            return side_by_side(solve, [orders[index] for index in batch], executor)
    values = []
    for index in batch:
        settings = _pairing_settings(problem, index)
        shuffled = replace(problem, joint=pairings.joint(orders[index]), settings=settings)
        [entropy] = entropies(shuffled, ["joint"], [settings.order])
        values.append(entropy["joint"].estimate.value)
    return values


def _is_connected(problem: Problem) -> bool:
    """Whether the joint matrix is one block, and has no finite features."""
    assert problem.joint is not None
    is_split = any(isinstance(factor.kernel, Categorical) for factor in problem.joint.factors)
    return not is_split and problem.joint.feature_dimension is None


def _is_solved_densely(problem: Problem) -> bool:
    """Whether the estimator computes all eigenvalues of a small joint matrix."""
    assert problem.joint is not None
    is_exact = isinstance(problem.settings.estimator, Exact | Auto)
    return is_exact and problem.joint.size <= _LARGE and _is_connected(problem)


def _pairing_settings(problem: Problem, index: int) -> Settings:
    """The settings under which the spectrum of a pairing is computed."""
    assert problem.joint is not None
    settings = problem.settings
    estimator = settings.estimator
    if isinstance(estimator, Auto) and problem.joint.size > _LARGE and _is_connected(problem):
        # Probes of their own, so that their errors are part of the spread over pairings.
        lanczos = Lanczos(tolerance=estimator.tolerance)
        return replace(settings, estimator=lanczos, rng=settings.rng + 1 + index)
    return settings


def _dense_entropy(problem: Problem, pairings: Pairings, order: np.ndarray) -> float:
    """The joint entropy of a pairing, from the kernel matrices that all pairings share."""
    settings, joint = problem.settings, pairings.joint(order)
    matrix = joint.combine(pairings.kernels)
    roots = np.sqrt(joint.masses)
    eigenvalues = eigvalsh(matrix * roots[:, None] * roots[None, :])
    spectrum = Spectrum.from_eigenvalues(eigenvalues, noise=joint.noise, method="exact")
    return renyi_entropy(spectrum, settings.order, problem.truncation)
