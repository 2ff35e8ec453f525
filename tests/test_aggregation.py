"""Conditional scores as aggregates over groups of prompts (Conditional Vendi, App. B)."""

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

import divprism as dp
from divprism.analysis.aggregation import (
    aggregate,
    aggregation_error,
    separation,
    stated_separation,
    truncated_aggregate,
    truncated_aggregation_error,
)


@st.composite
def grouped_pairs(draw):
    """Pairs whose prompts are in a few groups: narrow or wide, far apart or close."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    num_groups = draw(st.integers(1, 4))
    sizes = rng.integers(2, 12, num_groups)
    labels = np.repeat(np.arange(num_groups), sizes)
    spread = draw(st.sampled_from([0.0, 0.001, 0.01, 0.1]))
    distance = draw(st.sampled_from([1.0, 3.0, 10.0]))
    centres = distance * rng.standard_normal((num_groups, 3))
    t = centres[labels] + spread * rng.standard_normal((labels.size, 3))
    x = rng.standard_normal((labels.size, 2))
    return x, t, labels


def _groups(x, t, labels):
    """Shares, centres and variances of groups of prompts, and their kernels on outputs."""
    shares, centres, variances, kernels = [], [], [], []
    for label in np.unique(labels):
        inside = labels == label
        shares.append(inside.mean())
        centres.append(t[inside].mean(axis=0))
        variances.append(((t[inside] - centres[-1]) ** 2).sum(axis=1).mean())
        kernels.append(reference.gaussian(x[inside], 1.0))
    return np.array(shares), np.array(centres), np.array(variances), kernels


def _conditional(x, t, order, truncation=None):
    kernel_t = reference.gaussian(t, 1.0)
    joint = reference.gaussian(x, 1.0) * kernel_t
    whole = reference.entropy(joint, order, truncation)
    return whole - reference.entropy(kernel_t, order, truncation)


@given(grouped_pairs(), st.sampled_from([2.0, 3.0]))
def test_a_conditional_score_is_as_near_its_aggregate_as_the_theorem_says(pairs, order):
    """Thm 5 and 6. They hold for every distribution, and a sample is one."""
    x, t, labels = pairs
    shares, centres, variances, kernels = _groups(x, t, labels)
    inside = [reference.entropy(kernel, order) for kernel in kernels]
    gamma = separation(shares, centres, variances, 1.0)
    difference = abs(_conditional(x, t, order) - aggregate(shares, inside, order))
    assert difference <= aggregation_error(gamma, shares, inside, order) + 1e-9


@given(grouped_pairs(), st.sampled_from([2, 5, 100]))
def test_a_truncated_score_is_as_near_the_union_of_spectra_as_the_theorem_says(pairs, t_max):
    """Thm 7, with what its proof compares with."""
    x, t, labels = pairs
    shares, centres, variances, kernels = _groups(x, t, labels)
    spectra = [np.linalg.eigvalsh(kernel / len(kernel)) for kernel in kernels]
    gamma = separation(shares, centres, variances, 1.0)
    union = truncated_aggregate(shares, spectra, t_max)
    difference = abs(_conditional(x, t, 1.0, t_max) - union)
    assert difference <= truncated_aggregation_error(gamma, t_max) + 1e-9


def test_the_mean_over_groups_is_not_the_truncated_score_of_separate_groups():
    """The proof of eq. 19 equates them. Two groups of eight outputs, all apart; four kept."""
    outputs = [np.full(8, 1 / 8)] * 2
    mean_inside = math.log(4)
    union = truncated_aggregate([0.5, 0.5], outputs, 4)
    assert union == pytest.approx(math.log(4) - math.log(2))
    assert union < mean_inside
    # Where nothing is cut off they are equal.
    assert truncated_aggregate([0.5, 0.5], outputs, 16) == pytest.approx(math.log(8))


def test_a_bound_is_tight_where_groups_are_points_far_apart():
    x = np.random.default_rng(0).standard_normal((12, 2))
    t = np.repeat([[0.0], [50.0]], 6, axis=0)
    shares, centres, variances, kernels = _groups(x, t, t[:, 0])
    gamma = separation(shares, centres, variances, 1.0)
    inside = [reference.entropy(kernel, 2.0) for kernel in kernels]
    assert aggregation_error(gamma, shares, inside) < 1e-12
    assert _conditional(x, t, 2.0) == pytest.approx(aggregate(shares, inside, 2.0), abs=1e-12)


def test_the_bound_of_close_groups_says_nothing():
    gamma = separation([0.5, 0.5], [[0.0], [0.5]], [0.1, 0.1], 1.0)
    assert aggregation_error(gamma, [0.5, 0.5], [1.0, 1.0]) == math.inf
    assert truncated_aggregation_error(gamma, 10) == math.inf


def test_close_centres_break_the_step_of_the_proof_that_is_not_used():
    """Eq. 17 bounds a projection by (i - 1) sum k^2. Two centres close together, one 3 away."""
    centres = np.array([[0.0], [0.001], [3.0]])
    squares = np.exp(-((centres - centres.T) ** 2))
    stated = 2 * squares[2, :2].sum()
    narrow = separation([1e-9, 1e-9, 1.0], centres, np.zeros(3), 1.0) / 4
    assert narrow > 2 * stated


def test_the_stated_gamma_is_larger_for_groups_far_apart():
    shares, centres, variances = [0.3, 0.3, 0.4], np.eye(3) * 5, [0.1, 0.2, 0.3]
    proven = separation(shares, centres, variances, 1.0)
    assert proven < stated_separation(shares, centres, variances, 1.0)


def test_groups_of_other_lengths_are_refused():
    with pytest.raises(dp.ArgumentError, match="a share, a centre and a variance for each group"):
        separation([0.5, 0.5], [[0.0]], [0.1, 0.1], 1.0)


def test_the_theorem_is_for_orders_from_two_on():
    with pytest.raises(dp.ArgumentError, match="`order` must be finite and at least 2 here"):
        aggregation_error(0.1, [1.0], [0.5], order=1.5)


def test_truncated_groups_are_those_of_the_definition():
    """The entropy of each group, truncated as that of all pairs (Thm 7)."""
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((60, 4)), np.repeat(np.arange(3), 20)
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Categorical()}
    found = dp.prompt_groups(x, labels, dp.ExactPromptGrouping(), truncation=7, **kernels)
    for group in found.groups:
        kernel = reference.gaussian(x[labels == int(group.name)], 1.0)
        assert group.vendi == pytest.approx(math.exp(reference.entropy(kernel, 1.0, 7)))
    assert found.conditional_vendi.truncation == 7
