"""`select` at other orders than 1 and 2: exact gains, bounds, guarantees, refusals."""

import itertools
import math

import numpy as np
import pytest

import divprism as dp
from divprism.analysis.selection.gains import SpectralTerm
from divprism.analysis.selection.similarities import Similarities
from divprism.analysis.selection.traces import trace_of_order
from divprism.errors import ArgumentError
from divprism.scores.problem import pose
from divprism.scores.settings import Settings

BELOW_2 = [0.1, 0.5, 0.999, 1, 1.001, 1.5, 1.999]
ABOVE_2 = [2.001, 2.5, 3, 4.7, 16, math.inf]


def gaussian(x, bandwidth=1.0):
    squares = ((x[:, None] - x[None]) ** 2).sum(-1)
    return np.exp(-squares / (2 * bandwidth**2))


def entropy(kernel, order, zero=1e-15):
    """The entropy of a kernel matrix over its size, with nothing of the package."""
    values = np.linalg.eigvalsh(kernel) / len(kernel)
    values = values[values > zero]
    if math.isinf(order):
        return -math.log(values.max())
    if order == 1:
        return float(-(values * np.log(values)).sum())
    return math.log((values**order).sum()) / (1 - order)


def part(kernel, rows):
    return kernel[np.ix_(rows, rows)]


def rise_of(kernel, members, item, order, zero=1e-15):
    """m + 1 times the entropy with an item, over that with one that is unlike all others."""
    apart = np.eye(len(members) + 1)
    apart[:-1, :-1] = part(kernel, members)
    rise = entropy(part(kernel, [*members, item]), order, zero) - entropy(apart, order, zero)
    return (len(members) + 1) * rise


def term_of(x, kernel, members, order, num_steps=50):
    problem = pose(x, settings=Settings(kernel_x=kernel))
    similarities = Similarities.of(problem.x, np.arange(len(x)))
    term = SpectralTerm(similarities, num_steps, trace_of_order(order))
    for item in members:
        term.add(item)
    return term


# --- gains and bounds


@pytest.mark.parametrize("order", BELOW_2 + ABOVE_2)
@pytest.mark.parametrize("members", [1, 2, 9, 40])
@pytest.mark.parametrize("bandwidth", [0.5, 1.0])
def test_gains_are_those_of_recomputed_entropies(order, members, bandwidth):
    x = np.random.default_rng(members).normal(size=(members + 12, 5))
    kernel = gaussian(x, bandwidth)
    term = term_of(x, dp.Gaussian(bandwidth), range(members), order)
    others = np.arange(members, len(x))
    rises = term.rises(term.gains(others))
    expected = [rise_of(kernel, range(members), item, order) for item in others]
    assert rises == pytest.approx(np.array(expected), abs=1e-9)
    assert term.entropy() == pytest.approx(entropy(part(kernel, range(members)), order), abs=1e-9)


@pytest.mark.parametrize("order", [0.5, 1.5, 3, math.inf])
def test_gains_of_features_are_those_of_recomputed_entropies(order):
    x = np.random.default_rng(0).normal(size=(30, 5))
    unit = x / np.linalg.norm(x, axis=1)[:, None]
    term = term_of(x, dp.Cosine(), range(15), order)
    assert term._features is not None  # fifteen members, five features
    rises = term.rises(term.gains(np.arange(15, 30)))
    expected = [rise_of(unit @ unit.T, range(15), item, order, 1e-12) for item in range(15, 30)]
    # Ten eigenvalues are 0, and below order 1 rounding of them is seen in what an item adds.
    slack = max(1e-9, *(term.rounding(item) for item in range(15, 30)))
    assert slack < 1e-5
    assert rises == pytest.approx(np.array(expected), abs=slack)


@pytest.mark.parametrize("order", BELOW_2 + ABOVE_2)
@pytest.mark.parametrize("cosine", [False, True])
def test_bounds_are_never_below_gains(order, cosine):
    x = np.random.default_rng(1).normal(size=(50, 3))
    x[-1] = x[0] + 1e-9  # all but a copy of a member
    kernel = dp.Gaussian(1.0)
    if cosine:
        kernel = dp.Cosine()  # similarities of either sign
    term = term_of(x, kernel, [], order)
    for item in range(20):
        term.add(item)
        bounds = term.rises(term.bounds())
        gains = term.gains(np.arange(50))
        rises = term.rises(gains)
        slack = 1e-9 + np.array([term.rounding(other) for other in range(50)])
        assert (bounds >= rises - slack).all()
        # Without the latest gains, the bound from the largest eigenvalue alone.
        term.latest[:] = 0.0
        assert (term.rises(term.bounds()) >= rises - slack).all()
        if term.trace.is_submodular(not cosine):
            term.latest[:] = gains


@pytest.mark.parametrize("order", [0.1, 0.5, 1, 1.5, 1.9])
def test_below_order_2_an_item_never_adds_more_to_a_larger_subset(order):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(7, 3))
        unit = x / np.linalg.norm(x, axis=1)[:, None]
        for kernel in (gaussian(x), unit @ unit.T + 1e-3 * np.eye(7)):
            trace = trace_of_order(order)
            totals = [trace.total(np.linalg.eigvalsh(part(kernel, rows))) for rows in SUBSETS]
            small, small_with, large, large_with = totals
            assert large_with - large <= small_with - small + 1e-9


SUBSETS = ([0, 1], [0, 1, 6], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6])


def total_of(kernel, rows, order):
    return trace_of_order(order).total(np.maximum(np.linalg.eigvalsh(part(kernel, rows)), 0.0))


def test_order_3_adds_more_to_a_larger_subset_only_with_negative_similarities():
    angles = np.deg2rad([0.0, 48.0, 96.0])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    kernel = x @ x.T  # the first and the last are unlike, and both like the one between them
    alone = total_of(kernel, [1, 2], 3) - total_of(kernel, [1], 3)
    beside = total_of(kernel, [0, 1, 2], 3) - total_of(kernel, [0, 1], 3)
    assert beside > alone + 0.01
    kernel = np.abs(kernel)
    alone = total_of(kernel, [1, 2], 3) - total_of(kernel, [1], 3)
    beside = total_of(kernel, [0, 1, 2], 3) - total_of(kernel, [0, 1], 3)
    assert beside < alone
    assert trace_of_order(3).is_submodular(nonnegative=True)
    assert not trace_of_order(3).is_submodular(nonnegative=False)
    assert not trace_of_order(2.5).is_submodular(nonnegative=True)


def test_order_infinity_has_no_diminishing_returns():
    kernel = np.eye(4)
    kernel[0, 1] = kernel[1, 0] = 0.9
    kernel[2, 3] = kernel[3, 2] = 0.5
    alone = total_of(kernel, [2, 3], math.inf) - total_of(kernel, [2], math.inf)
    beside = total_of(kernel, [0, 1, 2, 3], math.inf) - total_of(kernel, [0, 1, 2], math.inf)
    # The largest eigenvalue is that of the first pair, whatever happens to the second.
    assert (alone, beside) == pytest.approx((-0.5, 0.0))
    assert not trace_of_order(math.inf).is_submodular(nonnegative=True)


# --- choices


@pytest.mark.parametrize("order", [0.1, 0.5, 1.5, 2.5, 3, math.inf])
@pytest.mark.parametrize("cosine", [False, True])
def test_each_choice_is_the_best_of_all_candidates(order, cosine):
    x = np.random.default_rng(3).normal(size=(66, 12))
    kernel, options = gaussian(x, 2.0), {"kernel_x": dp.Gaussian(2.0)}
    if cosine:
        unit = x / np.linalg.norm(x, axis=1)[:, None]
        kernel, options = unit @ unit.T, {"kernel_x": dp.Cosine()}
    result = dp.select(x, k=8, order=order, **options)
    assert result.settings.order == order
    chosen = [result.indices[0]]
    for step, index in enumerate(result.indices[1:], start=1):
        values = {}
        for row in set(range(66)) - set(chosen):
            values[row] = entropy(part(kernel, [*chosen, row]), order)
        assert values[index] >= max(values.values()) - 1e-8
        chosen.append(index)
        assert result.scores[step] == pytest.approx(math.exp(values[index]), abs=1e-9)


@pytest.mark.parametrize("by", ["conditional_vendi", "information_vendi", "prompt_vendi"])
@pytest.mark.parametrize("order", [0.5, 3, math.inf])
def test_choices_with_prompts_are_those_of_recomputing_every_score(by, order):
    rng = np.random.default_rng(4)
    x, t = rng.normal(size=(66, 3)), np.repeat(rng.normal(size=(22, 2)), 3, axis=0)
    kernels = {"kernel_x": dp.Gaussian(0.7), "kernel_t": dp.Gaussian(0.5), "order": order}
    result = dp.select(x, t, 5, by=by, **kernels)
    first = list(result.indices[:4])
    values = {}
    for row in sorted(set(range(66)) - set(first)):
        rows = [*first, row]
        scores = dp.evaluate(x[rows], t[rows], num_permutations=0, **kernels).scores
        values[row] = float(scores[by])
    assert values[result.indices[4]] == pytest.approx(max(values.values()), abs=1e-9)
    assert result.score == pytest.approx(max(values.values()), abs=1e-9)


@pytest.mark.parametrize(("order", "least"), [(0.5, 0.98), (1.5, 0.98), (3, 0.96), (math.inf, 0.9)])
def test_greedy_is_near_the_best_subset(order, least):
    ratios = []
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(10, 2))
        kernel = gaussian(x)
        subsets = itertools.combinations(range(10), 4)
        best = max(entropy(part(kernel, rows), order) for rows in subsets)
        chosen = dp.select(x, k=4, order=order, kernel_x=dp.Gaussian(1.0))
        ratios.append(chosen.score / math.exp(best))
    # Measured on 200 sets (experiments/selection.py): 0.997 at order 0.5, 0.92 at infinity.
    assert min(ratios) > least
    assert max(ratios) <= 1 + 1e-9


def test_order_2_of_vendi_is_rke_and_orders_beside_it_choose_the_same():
    x = np.random.default_rng(5).normal(size=(80, 4))
    options = {"k": 12, "kernel_x": dp.Gaussian(2.0)}
    squares = dp.select(x, by="rke", **options)
    for order in (2, 2 - 1e-7, 2 + 1e-7):
        assert dp.select(x, order=order, **options).indices == squares.indices
    entropies = dp.select(x, **options)
    for order in (1 - 1e-7, 1 + 1e-7):
        assert dp.select(x, order=order, **options).indices == entropies.indices


@pytest.mark.parametrize("order", [0.5, 1.5, 3, math.inf])
def test_the_order_of_rows_changes_nothing(order):
    rng = np.random.default_rng(6)
    x = rng.integers(0, 3, size=(90, 3)).astype(float)  # points of a grid: copies and exact ties
    options = {"k": 40, "order": order, "kernel_x": dp.Gaussian(1.5)}
    first = dp.select(x, **options)
    for seed in range(3):
        order_of_rows = np.random.default_rng(seed).permutation(90)
        other = dp.select(x[order_of_rows], rng=seed, **options)
        chosen = x[order_of_rows][list(other.indices)]
        assert np.array_equal(chosen, x[list(first.indices)])


@pytest.mark.parametrize("order", [0.1, 0.5, 3, math.inf])
def test_copies_come_last(order):
    blocks = np.repeat(np.arange(5), [7, 1, 4, 2, 6])
    result = dp.select(np.eye(5)[blocks], k=6, order=order, kernel_x=dp.Cosine())
    assert sorted(blocks[list(result.indices[:5])]) == [0, 1, 2, 3, 4]
    assert result.scores[:5] == pytest.approx((1, 2, 3, 4, 5))
    masses = np.array([2, 1, 1, 1, 1]) / 6
    expected = 3.0 if math.isinf(order) else (masses**order).sum() ** (1 / (1 - order))
    assert result.scores[5] == pytest.approx(expected)


# --- refusals

X = np.random.default_rng(7).normal(size=(8, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 2, "order": 0.05}, "`order` must be from 0.1 to 16, or inf.*; got 0.05"),
        ({"k": 2, "order": 17}, "`order` must be from 0.1 to 16, or inf.*; got 17"),
        ({"k": 400, "order": 3}, "`k` must be at most 300 at order 3, .*got 400.*`by=rke`"),
        ({"k": 4000, "order": 0.5}, "`k` must be at most 3,000 at order 0.5, .*`by=rke`"),
    ],
)
def test_what_takes_hours_or_is_not_exact_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        dp.select(X, **options)


@pytest.mark.parametrize("order", [0.1, 1.0, 2.5, math.inf])
@pytest.mark.parametrize("n", [12, 90])
def test_equal_outputs_of_different_quality_are_chosen_in_any_order_of_rows(order, n):
    quality = np.random.default_rng(0).uniform(size=n)
    x = np.ones((n, 2))
    chosen = []
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(n)
        found = dp.select(x, k=5, quality=quality[rows], order=order, kernel_x=dp.Gaussian(1.0))
        chosen.append(rows[list(found.indices)].tolist())
    assert chosen[0] == chosen[1] == chosen[2]
