"""Scendi: an independent direct computation, laws on paper, invariances, and refusals."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import divprism as dp

COSINE = {"kernel_x": dp.Cosine(), "kernel_t": dp.Cosine()}


def pairs(n=40, rng=0, repeats=1):
    rng = np.random.default_rng(rng)
    t = np.repeat(rng.standard_normal((n // repeats, 4)), repeats, axis=0)
    return rng.standard_normal((n, 5)), t


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def squared(rows):
    """The features of the kernel (a'b)^2 of unit rows: all products of two entries."""
    return np.einsum("ni,nj->nij", unit(rows), unit(rows)).reshape(len(rows), -1)


def direct(x, t, ridge, weights=None):
    """By covariances of features, an eigenvalue at a time."""
    if weights is None:
        weights = np.full(len(x), 1 / len(x))
    xx, tt, xt = (a.T @ (weights[:, None] * b) for a, b in ((x, x), (t, t), (x, t)))
    schur = xx - xt @ np.linalg.solve(tt + ridge * np.eye(len(tt)), xt.T)
    values = [value for value in np.linalg.eigvalsh(schur) if value > 1e-13]
    total = sum(values)
    return np.exp(-sum(value * np.log(value / total) for value in values)), total


@pytest.mark.parametrize("ridge", [1e-12, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("repeats", [1, 4])
def test_the_kernel_form_agrees_with_covariances_of_features(ridge, repeats):
    x, t = pairs(repeats=repeats)
    found = dp.scendi(x, t, regularization=ridge, **COSINE)
    expected, total = direct(unit(x), unit(t), ridge)
    assert found == pytest.approx(expected, rel=1e-8)
    assert found.unexplained == pytest.approx(total, rel=1e-8)


def test_other_kernels_and_weights_agree_with_features():
    x, t = pairs()
    weights = np.random.default_rng(1).uniform(0, 1, 40)
    weights[3] = 0
    weights /= weights.sum()
    kernel = dp.Polynomial(degree=2, scale=1.0, offset=0.0)
    found = dp.scendi(
        unit(x), t, kernel_x=kernel, kernel_t=dp.Cosine(), regularization=1e-3, weights=weights
    )
    expected, _ = direct(squared(x), unit(t), 1e-3, weights)
    assert found == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("prompts", [1, 3, 5])
@pytest.mark.parametrize("each", [2, 4])
def test_different_outputs_of_exact_prompts_on_paper(prompts, each):
    """Each prompt explains its mean output, a share of 1 / each; the other directions are left."""
    n = prompts * each
    found = dp.scendi(np.eye(n), np.repeat(np.arange(prompts), each), kernel_x=dp.Cosine())
    assert found.unexplained == pytest.approx((each - 1) / each)
    assert found.residual_vendi == pytest.approx(prompts * (each - 1))
    assert found == pytest.approx((prompts * (each - 1)) ** ((each - 1) / each))
    # Conditional-Vendi counts outputs per kind of prompt, so the number of prompts is no matter.
    ids = np.repeat(np.arange(prompts), each)
    assert dp.conditional_vendi(np.eye(n), ids, kernel_x=dp.Cosine()) == pytest.approx(each)


def test_outputs_that_are_a_rotation_of_their_prompts_are_explained():
    t = np.random.default_rng(0).standard_normal((50, 4))
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    found = dp.scendi(t @ rotation, t, **COSINE)
    assert found == pytest.approx(1, abs=1e-9) and found.unexplained < 1e-9
    assert [notice.code for notice in found.warnings] == ["scendi-nothing-left"]


def test_outputs_that_prompts_determine_otherwise_are_not_explained():
    """Squares of the entries: a function of the prompt, but no linear one."""
    signs = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    t = np.repeat(signs, 5, axis=0)
    x = np.stack([t[:, 0] * t[:, 1], 1 - t[:, 0] * t[:, 1]], axis=1)
    found = dp.scendi(x, t, **COSINE)
    assert found.unexplained == pytest.approx(1)
    assert found == pytest.approx(dp.vendi(x, kernel=dp.Cosine()))
    by_ids = dp.scendi(x, np.repeat(np.arange(4), 5), kernel_x=dp.Cosine())
    assert by_ids == pytest.approx(1)
    ids = np.repeat(np.arange(4), 5)
    assert dp.conditional_vendi(x, ids, kernel_x=dp.Cosine()) == pytest.approx(1)


def test_unrelated_sides_leave_the_vendi_score():
    """Features of both sides that are orthogonal over the sample: nothing is regressed away."""
    t = np.tile([[1.0], [-1.0]], (6, 1))
    x = np.repeat(np.eye(6), 2, axis=0)
    found = dp.scendi(x, t, **COSINE)
    assert found.unexplained == pytest.approx(1)
    assert found == pytest.approx(dp.vendi(x, kernel=dp.Cosine())) == pytest.approx(6)


def test_prompts_that_do_not_repeat_explain_everything_under_a_gaussian_kernel():
    x, t = pairs()
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0)}
    found = dp.scendi(x, t, **kernels)
    assert found == pytest.approx(1, abs=1e-6)
    assert "each prompt has one output" in str(found.warnings[-1])
    assert dp.scendi(x, t, regularization=0.1, **kernels) > 1.5
    assert dp.conditional_vendi(x, t, **kernels) > 1.05


def test_a_strong_ridge_explains_nothing():
    x, t = pairs()
    found = dp.scendi(x, t, regularization=1e9, **COSINE)
    assert found == pytest.approx(dp.vendi(x, kernel=dp.Cosine()), rel=1e-6)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([1e-12, 1e-3, 0.3]))
def test_the_score_lies_between_one_and_its_limits(seed, ridge):
    x, t = pairs(n=12, rng=seed, repeats=2)
    found = dp.scendi(x, t, regularization=ridge, **COSINE)
    assert 1 <= found <= 12 and 0 <= found.unexplained <= 1 + 1e-12
    assert found == pytest.approx(found.residual_vendi**found.unexplained)
    whole = dp.scendi(x, t, regularization=ridge, unit_trace=True, **COSINE)
    assert whole == pytest.approx(found.residual_vendi) and whole >= found


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_neither_order_nor_copies_nor_scale_nor_rotation_matter(seed):
    x, t = pairs(n=12, rng=seed, repeats=2)
    rng = np.random.default_rng(seed)
    found = dp.scendi(x, t, regularization=1e-3, **COSINE)
    order = rng.permutation(12)
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    for changed in (
        (x[order], t[order]),
        (np.tile(x, (2, 1)), np.tile(t, (2, 1))),
        (3 * x, 7 * t),
        (x, t @ rotation),
        (x.tolist(), t.tolist()),
    ):
        assert dp.scendi(*changed, regularization=1e-3, **COSINE) == pytest.approx(found)


def test_a_score_names_its_settings_and_computes_again():
    x, t = pairs(repeats=4)
    found = dp.scendi(x, t, regularization=1e-3)
    again = dp.scendi(x, t, settings=found.settings, regularization=1e-3)
    assert again == found
    for part in ("gaussian(", "regularization 0.001", "n = 40", "unexplained"):
        assert part in str(found)
    assert json.loads(json.dumps(found.to_dict()))["value"] == found.value
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found and str(copy) == str(found)


X = np.eye(4)
REFUSED = [
    (lambda: dp.scendi(X, None), "scendi needs the prompt of each output, but `t` is None"),
    (lambda: dp.scendi(X, [0, 0, 1]), "must pair up row by row; got 4 outputs and 3 prompts"),
    (
        lambda: dp.scendi(X, [0, 0, 1, 1], regularization=0),
        "`regularization` must be positive and finite; got 0",
    ),
    (
        lambda: dp.scendi(X, [0, 0, 1, 1], settings=dp.Settings(order=2)),
        "`order` must be 1, the order of scendi; got 2",
    ),
    (lambda: dp.scendi(X, [0, 0, 1, 1], truncation=2), "scendi takes no `truncation`"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_scendi_cannot_use_is_refused(call, message):
    with pytest.raises((dp.ArgumentError, dp.DataError), match=message):
        call()
