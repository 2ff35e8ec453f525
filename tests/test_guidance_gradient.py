"""Gradients of the scores: laws on paper, autograd, finite differences, precision, refusals."""

import math
import subprocess
import sys

import numpy as np
import pytest
import reference
import torch
from cases import LIBRARIES, read_only
from hypothesis import given, settings
from hypothesis import strategies as st

import divprism as dp
from divprism.core.arrays import to_numpy
from divprism.guidance import Bank, Objective, marginal_gain, objectives, score_gradient
from divprism.guidance._latents import prompt_rows

pytestmark = pytest.mark.usefixtures("one_thread")

RNG = np.random.default_rng(5)
NEW, OLD = read_only(RNG.standard_normal((4, 5)) + 1), read_only(RNG.standard_normal((9, 5)) + 1)
T_NEW, T_OLD = read_only(RNG.standard_normal((4, 3))), read_only(RNG.standard_normal((9, 3)))

SCORES = [
    "vendi",
    "vendi(order=0.7)",
    "vendi(order=3)",
    "vendi(order='inf')",
    "vendi(truncation=3)",
    "rke",
    "rke(truncation=3)",
    "conditional_vendi",
    "conditional_vendi(truncation=1)",
    "conditional_vendi(truncation=4)",
    "conditional_vendi(truncation=99)",
    "conditional_vendi(order=1.001, truncation=4)",
    "conditional_vendi(order=0.8)",
    "conditional_rke",
]
KERNELS = {"gaussian": (dp.Gaussian(1.7), dp.Gaussian(1.2)), "cosine": (dp.Cosine(), dp.Cosine())}


def _data(
    banked: bool, copies: bool
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """New samples and prompts, and a bank; copies are in the batch, in the bank and in both."""
    x, t, old, t_old = NEW.copy(), T_NEW.copy(), OLD.copy(), T_OLD.copy()
    if copies:
        x[1], t[1] = x[0], t[0]
        old[2:4], t_old[2:4] = old[0], t_old[0]
        x[2], t[2] = old[5], t_old[5]
    if not banked:
        return x, t, None
    return x, t, (old, t_old)


def _autograd(x, t, bank, objective, kernels, log=True):
    """The definition in torch, differentiated by torch."""
    new = torch.tensor(np.array(x), dtype=torch.float64, requires_grad=True)
    rows, prompts = new, torch.tensor(np.array(t), dtype=torch.float64)
    if bank is not None:
        rows = torch.cat([torch.tensor(np.array(bank[0]), dtype=torch.float64), rows])
        prompts = torch.cat([torch.tensor(np.array(bank[1]), dtype=torch.float64), prompts])
    k_x, k_t = _torch_kernel(kernels[0], rows), _torch_kernel(kernels[1], prompts)
    if objective.conditional:
        value = _torch_entropy(k_x * k_t / len(rows), objective)
        value = value - _torch_entropy(k_t / len(rows), objective)
    else:
        value = _torch_entropy(k_x / len(rows), objective)
    if not log:
        value = value.exp()
    value.backward()
    return value.item(), new.grad.numpy()


def _torch_kernel(kernel, rows):
    if isinstance(kernel, dp.Cosine):
        unit = rows / rows.norm(dim=1, keepdim=True)
        return unit @ unit.T
    return torch.exp(-((rows[:, None] - rows[None]) ** 2).sum(-1) / (2 * kernel.bandwidth**2))


def _torch_entropy(matrix, objective):
    values = torch.linalg.eigvalsh(matrix).flip(0)
    values = values[values > 1e-13]
    t, order = objective.truncation, objective.order
    if t is not None and t < len(values):
        values = values[:t] + (1 - values[:t].sum()) / t
    if order == 1:
        return -(values * values.log()).sum()
    if math.isinf(order):
        return -values[0].log()
    return (values**order).sum().log() / (1 - order)


def _plain_value(x, t, bank, objective, kernels):
    """The log score from tests/reference.py, for finite differences."""
    rows, prompts = x, t
    if bank is not None:
        rows, prompts = np.concatenate([bank[0], x]), np.concatenate([bank[1], t])
    order, truncation = objective.order, objective.truncation
    k_x, k_t = _reference_kernel(kernels[0], rows), _reference_kernel(kernels[1], prompts)
    if not objective.conditional:
        return reference.entropy(k_x, order, truncation)
    joint = reference.entropy(k_x * k_t, order, truncation)
    return joint - reference.entropy(k_t, order, truncation)


def _reference_kernel(kernel, rows):
    if isinstance(kernel, dp.Cosine):
        return reference.cosine(rows)
    return reference.gaussian(rows, kernel.bandwidth)


def _differences(value, x, step=1e-4):
    """Gradient by central differences of the fourth order."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        ends = []
        for k in (-2, -1, 1, 2):
            moved = x.copy()
            moved[index] += k * step
            ends.append(value(moved))
        gradient[index] = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step)
    return gradient


def _close(result, expected, tolerance):
    assert np.linalg.norm(result - expected) <= tolerance * max(np.linalg.norm(expected), 1e-3)


@pytest.mark.parametrize("copies", [False, True], ids=["distinct", "copies"])
@pytest.mark.parametrize("banked", [False, True], ids=["alone", "bank"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("score", SCORES)
def test_gradients_agree_with_autograd_and_with_differences(score, kernel, banked, copies):
    x, t, bank = _data(banked, copies)
    objective, kernels = objectives.objective(score), KERNELS[kernel]
    kernel_t = None
    if objective.conditional:
        kernel_t = kernels[1]
    for log in (True, False):
        result = score_gradient(
            x, t, bank=bank, score=score, kernel_x=kernels[0], kernel_t=kernel_t, log=log
        )
        value, gradient = _autograd(x, t, bank, objective, kernels, log)
        assert result.value == pytest.approx(value, rel=1e-12, abs=1e-12)
        _close(result.gradient, gradient, 1e-9)
        differences = _differences(
            lambda moved: _plain_value(moved, t, bank, objective, kernels), x
        )
        if not log:
            differences = value * differences
        _close(result.gradient, differences, 1e-6)


@pytest.mark.parametrize(
    "score", ["vendi", "conditional_vendi(truncation=3)", "rke", "conditional_rke"]
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_value_is_the_score(score, kernel):
    objective, (kernel_x, kernel_t) = objectives.objective(score), KERNELS[kernel]
    x, t = np.concatenate([OLD, NEW]), np.concatenate([T_OLD, T_NEW])
    settings = {"order": objective.order, "truncation": objective.truncation}
    if objective.conditional:
        expected = dp.conditional_vendi(x, t, kernel_x=kernel_x, kernel_t=kernel_t, **settings)
    else:
        expected, kernel_t = dp.vendi(x, kernel=kernel_x, **settings), None
    result = score_gradient(
        NEW, T_NEW, bank=(OLD, T_OLD), score=score, kernel_x=kernel_x, kernel_t=kernel_t, log=False
    )
    assert result.value == pytest.approx(float(expected), rel=1e-10)


def test_two_samples_separate_along_the_line_between_them():
    """log RKE = log 2 / (1 + k^2): a push is 2 k^2 / (1 + k^2) / bandwidth^2 times the gap."""
    x, bandwidth = np.array([[0.0, 1.0], [2.0, 0.0]]), 1.5
    squared = math.exp(-5 / bandwidth**2)
    push = 2 * squared / (1 + squared) / bandwidth**2 * (x[0] - x[1])
    result = score_gradient(x, score="rke", kernel_x=dp.Gaussian(bandwidth))
    np.testing.assert_allclose(result.gradient, [push, -push], rtol=1e-12)


@pytest.mark.parametrize("score", SCORES)
def test_pushes_balance_under_a_translation_invariant_kernel(score):
    objective = objectives.objective(score)
    result = score_gradient(NEW, T_NEW, score=objective, kernel_x=dp.Gaussian(1.5)).gradient
    np.testing.assert_allclose(result.sum(axis=0), 0, atol=1e-13)
    torque = np.einsum("ai,aj->ij", NEW, result)
    np.testing.assert_allclose(torque, torque.T, atol=1e-13)


@pytest.mark.parametrize("score", SCORES)
def test_lengths_do_not_matter_to_cosines(score):
    result = score_gradient(
        NEW, T_NEW, bank=(OLD, T_OLD), score=score, kernel_x=dp.Cosine()
    ).gradient
    np.testing.assert_allclose(np.einsum("ai,ai->a", NEW, result), 0, atol=1e-11)


@pytest.mark.parametrize("kernel", [dp.Gaussian(1.0), dp.Cosine(), None])
@pytest.mark.parametrize(
    "score", ["vendi", "vendi(order=0.5)", "vendi(order=0.1)", "rke", "vendi(truncation=2)"]
)
def test_copies_alone_do_not_move(score, kernel):
    result = score_gradient(np.tile(NEW[:1], (4, 1)), score=score, kernel_x=kernel)
    assert result.value == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(result.gradient, 0, atol=1e-12)


@pytest.mark.parametrize("score", ["vendi", "rke", "vendi(truncation=2)"])
def test_the_corners_of_a_simplex_are_pushed_outwards_equally(score):
    result = score_gradient(np.eye(4), score=score, kernel_x=dp.Gaussian(1.0)).gradient
    outwards = np.eye(4) - 0.25
    size = np.vdot(result, outwards) / np.vdot(outwards, outwards)
    np.testing.assert_allclose(result, size * outwards, atol=1e-13)
    assert size > 0


@pytest.mark.parametrize("score", SCORES)
def test_a_subset_has_the_same_gradient_as_within_the_whole(score):
    x, t = np.concatenate([OLD, NEW]), np.concatenate([T_OLD, T_NEW])
    whole = score_gradient(x, t, score=score, kernel_x=dp.Gaussian(1.5))
    part = score_gradient(NEW, T_NEW, bank=(OLD, T_OLD), score=score, kernel_x=dp.Gaussian(1.5))
    assert part.value == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(part.gradient, whole.gradient[9:], atol=1e-12)


@given(seed=st.integers(0, 10**6), score=st.sampled_from(SCORES))
@settings(max_examples=40, deadline=None)
def test_the_order_of_batch_and_bank_does_not_matter(seed, score):
    rng = np.random.default_rng(seed)
    new, old = rng.permutation(4), rng.permutation(9)
    x, t, bank = _data(True, True)
    first = score_gradient(x, t, bank=bank, score=score)
    second = score_gradient(x[new], t[new], bank=(bank[0][old], bank[1][old]), score=score)
    assert second.value == pytest.approx(first.value, rel=1e-11)
    np.testing.assert_allclose(second.gradient, first.gradient[new], atol=1e-11)


@given(factor=st.floats(1e-3, 1e3), score=st.sampled_from(SCORES))
@settings(max_examples=30, deadline=None)
def test_rescaling_samples_rescales_the_gradient(factor, score):
    first = score_gradient(NEW, T_NEW, bank=(OLD, T_OLD), score=score)
    second = score_gradient(NEW * factor, T_NEW, bank=(OLD * factor, T_OLD), score=score)
    assert second.kernel_x.bandwidth == pytest.approx(factor * first.kernel_x.bandwidth)
    np.testing.assert_allclose(second.gradient * factor, first.gradient, rtol=1e-7, atol=1e-10)


# With a single eigenvalue kept the score is constant.
@pytest.mark.parametrize("score", [s for s in SCORES if "truncation=1)" not in s])
def test_a_small_step_uphill_raises_the_score(score):
    arguments = {"bank": (OLD, T_OLD), "score": score, "kernel_x": dp.Gaussian(2.0)}
    before = score_gradient(NEW, T_NEW, **arguments)
    after = score_gradient(NEW + 1e-3 * before.gradient, T_NEW, **arguments)
    # The tolerance is for the second order of the step.
    expected = 1e-3 * np.vdot(before.gradient, before.gradient)
    assert after.value - before.value == pytest.approx(expected, rel=0.02)


def _tied():
    """Two prompts with two samples each at the same angle: eigenvalues (1 +- c) / 4, each twice."""
    x = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [0, 1, 0], [0, 0.6, 0.8]])
    return x, np.array([0, 0, 1, 1])


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0])
def test_at_a_tie_across_the_cut_the_gradient_is_a_subgradient(order):
    x, t = _tied()
    arguments = {"score": Objective(True, order, truncation=3), "kernel_x": dp.Cosine()}
    result = score_gradient(x, t, **arguments)
    rng, gaps = np.random.default_rng(0), []
    for _ in range(50):
        direction = rng.standard_normal(x.shape)
        there = score_gradient(x + 1e-6 * direction, t, **arguments)
        gaps.append((there.value - result.value) / 1e-6 - np.vdot(result.gradient, direction))
    assert min(gaps) > -1e-4  # the slope in every direction is at least that of the gradient
    assert max(gaps) > 1e-2  # it is a kink: in some directions the slope is larger
    # Tied eigenvalues get equal shares, so the gradient does not depend on the order of samples.
    swapped = score_gradient(x[[2, 3, 0, 1]], t, **arguments)
    np.testing.assert_allclose(swapped.gradient, result.gradient[[2, 3, 0, 1]], atol=1e-12)


def test_the_gradient_is_that_of_equations_24_to_27():
    x, t = np.concatenate([OLD, NEW]), np.concatenate([T_OLD, T_NEW])
    k_x, k_t = reference.gaussian(x, 1.5), reference.gaussian(t, 1.2)
    values, vectors = np.linalg.eigh(k_x * k_t / len(x))
    top, v = values[::-1][:4], vectors[:, ::-1][:, :4]
    logs = np.log(top + (1 - top.sum()) / 4)
    slope = (-(v * logs) @ v.T + logs.mean() * v @ v.T) * k_t / len(x)  # eq. 24 and 26
    grad_k = -k_x[-1][:, None] * (x[-1] - x) / 1.5**2
    expected = (slope[:-1, -1] + slope[-1, :-1]) @ grad_k[:-1]  # eq. 27
    result = score_gradient(
        NEW[-1:],
        T_NEW[-1:],
        bank=(x[:-1], t[:-1]),
        score="conditional_vendi(truncation=4)",
        kernel_x=dp.Gaussian(1.5),
        kernel_t=dp.Gaussian(1.2),
    )
    np.testing.assert_allclose(result.gradient[0], expected, rtol=1e-10)


@pytest.mark.parametrize("score", SCORES)
def test_every_library_gives_the_same_numbers(score, library):
    x, t, bank = _data(True, True)
    expected = score_gradient(x, t, bank=bank, score=score)
    result = score_gradient(library(x), library(t), bank=tuple(map(library, bank)), score=score)
    assert type(result.gradient) is type(library(x))
    assert result.value == pytest.approx(expected.value, rel=1e-11)
    np.testing.assert_allclose(np.asarray(result.gradient), expected.gradient, atol=1e-11)
    gains = marginal_gain(library(x), library(t), bank=tuple(map(library, bank)), score=score)
    np.testing.assert_allclose(
        np.asarray(gains), marginal_gain(x, t, bank=bank, score=score), atol=1e-11
    )


HALVES = [
    lambda a: a.astype(np.float16),
    lambda a: torch.tensor(a, dtype=torch.float16),
    lambda a: torch.tensor(a, dtype=torch.bfloat16),
]


@pytest.mark.parametrize(
    "score", ["vendi", "rke", "conditional_vendi(truncation=4)", "conditional_rke"]
)
@pytest.mark.parametrize("half", HALVES, ids=["numpy", "float16", "bfloat16"])
@pytest.mark.parametrize("kernel", [None, dp.Cosine()])
def test_half_precision_stays_half_and_finite(half, score, kernel):
    x, t, bank = _data(True, True)
    given = half(x), half(t), tuple(map(half, bank))
    result = score_gradient(given[0], given[1], bank=given[2], score=score, kernel_x=kernel)
    assert result.gradient.dtype == given[0].dtype
    exact = [to_numpy(a).astype(np.float64) for a in (given[0], given[1], *given[2])]
    expected = score_gradient(
        exact[0], exact[1], bank=tuple(exact[2:]), score=score, kernel_x=kernel
    )
    assert result.value == pytest.approx(expected.value, rel=1e-5)
    # bfloat16 has eight bits.
    _close(to_numpy(result.gradient).astype(np.float64), expected.gradient, 1e-2)


def test_a_gradient_beyond_half_precision_is_clipped_to_its_range():
    x = np.array([[0.0], [6e-8]], np.float16)  # next to each other in float16
    result = score_gradient(x, score="rke", kernel_x=dp.Gaussian(6e-8), log=False).gradient
    assert result.dtype == np.float16
    assert result.ravel().tolist() == [-65504, 65504]


def test_single_precision_data_far_from_the_origin_are_resolved():
    """A thousand spreads from the origin, squares in single precision would cancel."""
    x, old = (a.astype(np.float32) + np.float32(1000) for a in (NEW, OLD))
    result = score_gradient(x, bank=old, score="rke", kernel_x=dp.Gaussian(1.0))
    expected = score_gradient(
        x.astype(float), bank=old.astype(float), score="rke", kernel_x=dp.Gaussian(1.0)
    )
    assert result.gradient.dtype == np.float32
    _close(result.gradient, expected.gradient, 1e-5)


@pytest.mark.parametrize(
    "score",
    ["vendi", "rke", "conditional_vendi", "conditional_vendi(truncation=2)", "conditional_rke"],
)
@pytest.mark.parametrize("bandwidth", [1e-3, 1.0, 1e3, 1e6])
def test_gradients_are_finite_at_every_bandwidth(score, bandwidth):
    x, t, bank = _data(True, True)
    result = score_gradient(x, t, bank=bank, score=score, kernel_x=dp.Gaussian(bandwidth))
    assert math.isfinite(result.value)
    assert np.isfinite(result.gradient).all()


def test_a_wide_bandwidth_has_the_gradient_of_its_leading_terms():
    """1 - RKE^-1 is about the mean squared distance over bandwidth^2: samples leave the mean."""
    result = score_gradient(NEW, bank=OLD, score="rke", kernel_x=dp.Gaussian(1e3)).gradient
    mean = np.concatenate([NEW, OLD]).mean(axis=0)
    # The next term is smaller by (spread / bandwidth)^2.
    _close(result, 4 / 13 / 1e6 * (NEW - mean), 1e-5)


def test_the_bandwidth_is_the_median_distance_of_bank_and_batch(library):
    x, t, bank = _data(True, True)
    result = score_gradient(
        library(x), library(t), bank=tuple(map(library, bank)), score="conditional_rke"
    )
    rule = dp.MedianDistance()
    bandwidth_x = rule.bandwidth(np.concatenate([bank[0], x]))
    bandwidth_t = rule.bandwidth(np.concatenate([bank[1], t]))
    assert result.kernel_x.bandwidth == pytest.approx(bandwidth_x, rel=1e-12)
    assert result.kernel_t.bandwidth == pytest.approx(bandwidth_t, rel=1e-12)
    alone = score_gradient(library(x), score="rke")
    assert alone.kernel_x.bandwidth == pytest.approx(rule.bandwidth(x), rel=1e-12)


def test_the_median_of_a_large_bank_is_that_of_its_latest_samples():
    old = np.random.default_rng(1).standard_normal((2100, 2))
    result = score_gradient(NEW[:, :2], bank=old, score="rke")
    latest = np.concatenate([old, NEW[:, :2]])[-dp.MedianDistance().max_rows :]
    right = dp.MedianDistance().bandwidth(latest)
    assert result.kernel_x.bandwidth == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("score", ["conditional_vendi(truncation=4)", "conditional_rke"])
def test_prompts_as_ids_are_the_limit_of_narrow_kernels(score):
    ids, old_ids = np.array([3, 3, 7, 9]), np.array([3, 7, 7, 1, 1, 1, 9, 3, 2])
    names = [f"prompt {i}" for i in ids]
    old_names = [f"prompt {i}" for i in old_ids]
    points = np.eye(10)
    arguments = {"score": score, "kernel_x": dp.Gaussian(1.5)}
    expected = score_gradient(
        NEW, points[ids], bank=(OLD, points[old_ids]), kernel_t=dp.Gaussian(1e-2), **arguments
    )
    for t, t_old, kernel in [
        (ids, old_ids, None),
        (names, old_names, dp.Categorical()),
        (points[ids], points[old_ids], dp.Categorical()),
    ]:
        result = score_gradient(NEW, t, bank=(OLD, t_old), kernel_t=kernel, **arguments)
        assert isinstance(result.kernel_t, dp.Categorical)
        assert result.value == pytest.approx(expected.value, rel=1e-12)
        np.testing.assert_allclose(result.gradient, expected.gradient, atol=1e-12)


def test_constant_prompts_leave_the_plain_score():
    t, old = np.ones((4, 2)), np.ones((9, 2))
    for plain, conditional in (("rke", "conditional_rke"), ("vendi", "conditional_vendi")):
        first = score_gradient(NEW, t, bank=(OLD, old), score=conditional)
        second = score_gradient(NEW, bank=OLD, score=plain)
        assert first.value == pytest.approx(second.value, rel=1e-12)
        np.testing.assert_allclose(first.gradient, second.gradient, atol=1e-12)


def test_samples_keep_their_shape_and_tensors_need_no_graph():
    x = torch.tensor(np.random.default_rng(0).standard_normal((3, 4, 2, 2)), requires_grad=True)
    result = score_gradient(x, score="rke")
    assert result.gradient.shape == x.shape
    assert not result.gradient.requires_grad
    flat = score_gradient(x.detach().reshape(3, 16), score="rke")
    assert torch.equal(result.gradient.reshape(3, 16), flat.gradient)


@pytest.mark.parametrize("name", LIBRARIES)
def test_inputs_are_not_written_to(name):
    make = LIBRARIES[name]
    x, t, bank = _data(True, True)
    given = [make(a.copy()) for a in (x, t, *bank)]
    for score in ("conditional_vendi(truncation=3)", "conditional_rke"):
        score_gradient(given[0], given[1], bank=tuple(given[2:]), score=score, kernel_x=dp.Cosine())
        score_gradient(given[0], given[1], bank=tuple(given[2:]), score=score)
    for array, before in zip(given, (x, t, *bank), strict=True):
        assert (np.asarray(array) == before).all()


@pytest.mark.parametrize("score", SCORES)
def test_a_gain_is_the_score_with_minus_the_score_without(score):
    x, t, bank = _data(True, True)
    arguments = {"score": score, "kernel_x": dp.Gaussian(1.5), "log": False}
    if objectives.objective(score).conditional:
        arguments["kernel_t"] = dp.Gaussian(1.0)
    gains = marginal_gain(x, t, bank=bank, **arguments)
    total = score_gradient(x, t, bank=bank, **arguments).value
    for index, gain in enumerate(gains):
        others, prompts = np.delete(x, index, 0), np.delete(t, index, 0)
        without = score_gradient(others, prompts, bank=bank, **arguments).value
        assert gain == pytest.approx(total - without, abs=1e-11)
    logs = marginal_gain(x, t, bank=bank, **(arguments | {"log": True}))
    np.testing.assert_allclose(np.log(total) - logs, np.log(total - gains), rtol=1e-11)


def test_a_new_direction_gains_one_and_a_copy_nothing():
    axes = np.eye(5)
    plain = {"kernel_x": dp.Cosine(), "log": False}
    alone = marginal_gain(axes[3:4], bank=axes[:3], score="vendi", **plain)
    assert alone == pytest.approx(1)
    together = marginal_gain(axes[2:4], bank=axes[:2], score="rke", **plain)
    assert together == pytest.approx(1)
    assert marginal_gain(axes[:1], bank=axes[:3], score="rke", kernel_x=dp.Cosine())[0] < 0


def test_objectives_are_read_from_their_names():
    assert objectives.objective("conditional_vendi( truncation=5 )") == Objective(True, 1.0, 5)
    assert objectives.objective(" rke ") == Objective(order=2)
    assert objectives.objective("vendi(order='inf')").order == math.inf
    for text, message in [
        (
            "mmd",
            "there is no objective 'mmd'; choose from " + ", ".join(objectives.OBJECTIVES),
        ),
        ("rke(order=3)", "objective rke has no setting 'order'; it takes truncation"),
        ("vendi(3)", r"cannot read the settings of objective 'vendi\(3\)'"),
        ("vendi(order=3", "there is no objective"),
    ]:
        with pytest.raises(dp.ArgumentError, match=message):
            objectives.objective(text)


def _appended(bank, *samples):
    bank.append(*samples)
    return bank


REFUSED = [
    (lambda: score_gradient(NEW), "a conditional score needs the prompts `t` of the new samples"),
    (
        lambda: score_gradient(NEW, T_NEW[:3]),
        "must pair up row by row; got 4 outputs and 3 prompts",
    ),
    (
        lambda: score_gradient(NEW, T_NEW, bank=OLD),
        "needs prompts in the bank too: append them together with the samples",
    ),
    (
        lambda: score_gradient(NEW, T_NEW, bank=(OLD[:, :4], T_OLD)),
        r"samples of shape \(5,\) do not fit a bank of samples of shape \(4,\). Use a bank for",
    ),
    (
        lambda: score_gradient(NEW, T_NEW, bank=(OLD, T_OLD[:3])),
        "must pair up row by row; got 9 outputs and 3 prompts",
    ),
    (
        lambda: score_gradient(NEW, [1, 2, 3, 4], bank=(OLD, T_OLD)),
        "new prompts are numbers and those in the bank embeddings of width 3",
    ),
    (
        lambda: score_gradient(NEW, T_NEW[:, :2], bank=(OLD, T_OLD)),
        "new prompts are embeddings of width 2 and those in the bank embeddings of width 3",
    ),
    (lambda: score_gradient(NEW * np.nan, score="rke"), "4 of 4 rows of `x` contain NaN"),
    (
        lambda: score_gradient(NEW, bank=OLD * np.nan, score="rke"),
        "9 of 9 rows of `bank` contain NaN",
    ),
    (
        lambda: score_gradient(NEW * 0, score="rke", kernel_x=dp.Cosine()),
        "row 0 of `x` is all zeros",
    ),
    (
        lambda: score_gradient(NEW, bank=OLD * 0, score="rke", kernel_x=dp.Cosine()),
        "row 0 of `bank` is all zeros",
    ),
    (lambda: score_gradient(NEW, T_NEW * 0, kernel_t=dp.Cosine()), "row 0 of `t` is all zeros"),
    (
        lambda: score_gradient(NEW * 1e200, score="rke"),
        "squared distances between samples overflow float64. Rescale",
    ),
    (
        lambda: score_gradient(NEW.astype(np.float32) * np.float32(1e30), score="rke"),
        "overflow float32",
    ),
    (
        lambda: score_gradient(torch.tensor(NEW), bank=_appended(Bank(9), OLD), score="rke"),
        "must be in one array library",
    ),
    (lambda: marginal_gain(NEW[:1], score="rke"), "a gain needs at least two samples"),
    (
        lambda: score_gradient(np.zeros(3), score="rke"),
        r"`x` must have a row per sample; got shape \(3,\). A single sample is x\[None\]",
    ),
    (
        lambda: score_gradient(NEW[:1], "a dog"),
        "`t` must be a list with a prompt for each sample; got the text 'a dog'",
    ),
    (
        lambda: score_gradient(NEW.reshape(4, 5, 1), bank=OLD.reshape(9, 1, 5), score="rke"),
        r"samples of shape \(5, 1\) do not fit a bank of samples of shape \(1, 5\)",
    ),
    (
        lambda: score_gradient(
            NEW[:3], [0, 1, 2], bank=_appended(Bank(), OLD[:3], ["a", "b", "c"])
        ),
        "new prompts are numbers and those in the bank texts; pass prompts of the kind",
    ),
    (
        lambda: score_gradient(NEW, 1e6 * T_NEW, bank=_appended(Bank(dtype="float16"), OLD, T_OLD)),
        "some `t` are too large for float16. Create the bank with dtype='float32'",
    ),
]
WRONG = [
    (
        lambda: marginal_gain(NEW, Bank()),
        "`t` must be the prompts of the new samples; got a Bank, which is passed as bank=",
    ),
    (
        lambda: score_gradient(NEW, score=3),
        "`score` must be a name such as 'conditional_rke', or an Objective; got 3",
    ),
    (
        lambda: score_gradient(NEW, score="rke", kernel_t=dp.Cosine()),
        "`kernel_t` was given, but the score does not use prompts",
    ),
    (
        lambda: score_gradient(NEW, score="rke", kernel_x="cosine"),
        "`kernel_x` must be Gaussian or Cosine in guidance; got 'cos",
    ),
    (
        lambda: score_gradient(NEW, score="rke", kernel_x=dp.Categorical()),
        "`kernel_x` must be Gaussian or Cosine in guidance",
    ),
    (
        lambda: score_gradient(NEW, T_NEW, kernel_t=dp.Polynomial()),
        "`kernel_t` must be Gaussian or Cosine or Categorical",
    ),
    (
        lambda: score_gradient(NEW, [1, 2, 3, 4], kernel_t=dp.Gaussian(1.0)),
        "`kernel_t` must be Categorical where prompts are ids",
    ),
    (lambda: Objective(conditional="yes"), "`conditional` must be True or False; got 'yes'"),
    (lambda: Objective(order=0), "`order` must be positive"),
    (lambda: Objective(truncation=0), "`truncation` must be a whole number of at least 1"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_samples_that_do_not_fit_are_refused(call, message):
    with pytest.raises(dp.DataError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_invalid_settings_are_refused(call, message):
    with pytest.raises(dp.ArgumentError, match=message):
        call()


def test_guidance_needs_neither_torch_nor_diffusers():
    code = (
        "import sys, divprism.guidance\n"
        "heavy = ('torch', 'diffusers', 'scipy.linalg')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kernel", [dp.Gaussian(2.0), dp.Cosine()], ids=repr)
@pytest.mark.parametrize(
    "score", ["vendi(order=0.6)", "vendi", "conditional_vendi", "conditional_vendi(truncation=3)"]
)
def test_copies_cost_no_digits_in_single_precision(score, kernel):
    """Weights of zero eigenvalues are large and cancel over copies, but not in single precision."""
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    x[1], x[3] = x[0], x[2]
    t = ["a", "a", "a", "b", "b", "b"]
    single, double = (
        score_gradient(a, t, score=score, kernel_x=kernel).gradient
        for a in (x, x.astype(np.float64))
    )
    assert single.dtype == np.float32
    assert np.linalg.norm(single - double) < 1e-6 * np.linalg.norm(double)


@pytest.mark.parametrize("far", [1e3, 1e5])
def test_a_second_cluster_far_away_costs_no_digits(far):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 4)) + far * np.repeat([[0.0], [1.0]], 6, axis=0) + far
    x = x.astype(np.float32)
    single, double = (
        score_gradient(a, score="rke", kernel_x=dp.Gaussian(4.0)).gradient
        for a in (x, x.astype(np.float64))
    )
    assert np.linalg.norm(single - double) < 1e-6 * np.linalg.norm(double)


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e150])
def test_cosine_gradients_scale_inversely_with_length(scale):
    plain, scaled = (
        score_gradient(a, score="rke", kernel_x=dp.Cosine()) for a in (NEW, scale * NEW)
    )
    assert scaled.value == pytest.approx(plain.value)
    assert np.allclose(scaled.gradient * scale, plain.gradient)


@pytest.mark.parametrize(("bandwidth", "value"), [(1e200, 1.0), (1e-170, 4.0)])
def test_bandwidths_whose_square_leaves_the_range_give_the_limits(bandwidth, value):
    result = score_gradient(NEW, score="rke", kernel_x=dp.Gaussian(bandwidth), log=False)
    assert result.value == pytest.approx(value)
    assert (result.gradient == 0).all()


def test_texts_with_lone_surrogates_are_accepted():
    result = score_gradient(NEW[:2], ["a\ud800", "b"])
    assert result.value == score_gradient(NEW[:2], ["a", "b"]).value


def test_texts_that_differ_by_a_null_character_are_different_prompts():
    t = ["a", "a\0", "a", "b"]
    score = math.log(dp.conditional_rke(NEW, t, kernel_x=dp.Gaussian(1.0)))
    result = score_gradient(NEW, t, score="conditional_rke", kernel_x=dp.Gaussian(1.0))
    assert result.value == pytest.approx(score)
    # As the callback of a pipeline takes them, too.
    rows = prompt_rows(t, 4, torch.device("cpu"))
    result = score_gradient(NEW, rows, score="conditional_rke", kernel_x=dp.Gaussian(1.0))
    assert result.value == pytest.approx(score)


def test_infinity_may_be_spelled_without_quotes():
    result = score_gradient(NEW, score="vendi(order=inf)", kernel_x=dp.Gaussian(1.0))
    expected = score_gradient(NEW, score=Objective(order=np.inf), kernel_x=dp.Gaussian(1.0))
    assert result.value == expected.value


def test_autocast_has_no_effect():
    torch.manual_seed(0)
    middle = torch.randn(64)
    x, bank = middle + 0.1 * torch.randn(4, 64), middle + 0.1 * torch.randn(30, 64)
    arguments = {"bank": bank, "score": "rke", "kernel_x": dp.Gaussian(1.0)}
    plain = score_gradient(x, **arguments), marginal_gain(x, **arguments)
    with torch.autocast("cpu", torch.bfloat16):
        cast = score_gradient(x, **arguments), marginal_gain(x, **arguments)
    assert torch.equal(plain[0].gradient, cast[0].gradient)
    assert torch.equal(plain[1], cast[1])
