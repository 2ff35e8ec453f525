"""Bad input gets one sentence: the argument, the demand, what it got, the way out."""

import warnings

import numpy as np
import pytest

import divprism as dp

X = np.random.default_rng(0).standard_normal((6, 3))
T = np.arange(6) // 2
RAGGED = [[1.0], [2.0, 3.0]]


def _with_nan(rows):
    x = X.copy()
    x[rows, 1] = np.nan
    return x


DATA = [
    (
        lambda: dp.evaluate(X, T[:5]),
        r"must pair up row by row; got 6 outputs and 5 prompts. Repeat a prompt once per output",
    ),
    (
        lambda: dp.cluster_vendi(X, T[:5]),
        r"`x` and `labels` must pair up row by row; got 6 outputs and 5 labels",
    ),
    (
        lambda: dp.vendi(_with_nan([4])),
        r"1 of 6 rows of `x` contains NaN or infinity \(first: row 4\)",
    ),
    (
        lambda: dp.vendi(_with_nan([1, 4])),
        r"2 of 6 rows of `x` contain NaN or infinity \(first: row 1\)",
    ),
    (lambda: dp.vendi(X * [1, 1, np.inf]), r"6 of 6 rows"),
    (lambda: dp.evaluate(X, _with_nan([0])), r"rows of `t` contains NaN"),
    (
        lambda: dp.vendi((-1.0) ** np.arange(6)[:, None] * [1e308, 1.0]),
        r"6 of 6 rows of `x` contain numbers beyond 1e\+299 \(first: row 0\). Distances between",
    ),
    (
        lambda: dp.vendi(X * (np.arange(6) != 2)[:, None], kernel=dp.Cosine()),
        r"row 2 of `x` is all zeros, so its cosine",
    ),
    (
        lambda: dp.vendi(X * (np.arange(6) != 2)[:, None], kernel=dp.Polynomial(offset=0)),
        r"row 2 of `x` is all zeros",
    ),
    (lambda: dp.vendi([[1, 0], [1, 0], [0, 0]], kernel=dp.Cosine()), r"row 2 of `x` is all zeros"),
    (
        lambda: dp.vendi(X, kernel=dp.Precomputed()),
        r"must be a square kernel matrix under Precomputed\(\); got shape \(6, 3\)",
    ),
    (
        lambda: dp.vendi(np.triu(np.ones((3, 3))), kernel=dp.Precomputed()),
        r"must be symmetric \(to 1e-08\); .* differ by 1",
    ),
    (
        lambda: dp.vendi(2 * np.eye(3), kernel=dp.Precomputed()),
        r"ones on its diagonal \(to 1e-08\); `x`\[0, 0\] is 2",
    ),
    (lambda: dp.vendi(X.astype(object)), r"`x` must hold real numbers; got dtype object"),
    (lambda: dp.vendi(X + 1j), r"`x` must hold real numbers; got dtype complex128"),
    (lambda: dp.vendi(X.astype(str)), r"`x` must hold real numbers; got dtype <U"),
    (
        lambda: dp.vendi(np.zeros((0, 3))),
        r"`x` must have at least one row and one column; got shape \(0, 3\)",
    ),
    (
        lambda: dp.vendi(np.zeros((3, 0))),
        r"`x` must have at least one row and one column; got shape \(3, 0\)",
    ),
    (lambda: dp.vendi([]), r"`x` must have at least one row and one column; got shape \(0,\)"),
    (lambda: dp.evaluate(["a", {}], [0, 1]), r"list of strings and nothing else"),
    (lambda: dp.evaluate(["a", None], [0, 1]), r"1 output is missing \(first: output 1\)"),
    (
        lambda: dp.vendi([1.0, 2.0]),
        r"`x` must have shape \(n, d\), a row per item; got shape \(2,\). For a single feature",
    ),
    (lambda: dp.vendi(np.zeros((2, 3, 4))), r"got shape \(2, 3, 4\). Flatten each item"),
    (lambda: dp.vendi(RAGGED), r"`x` is not a rectangular array"),
    (lambda: dp.evaluate(RAGGED), r"`x` is not a rectangular array"),
    (lambda: dp.evaluate(X, RAGGED * 3), r"`t` is not a rectangular array"),
    (lambda: dp.converge(RAGGED), r"`x` is not a rectangular array"),
    (lambda: dp.bandwidth_sweep(RAGGED), r"`x` is not a rectangular array"),
    (lambda: dp.prompt_groups(RAGGED, [0, 1]), r"`x` is not a rectangular array"),
    (lambda: dp.compare({"a": RAGGED, "b": RAGGED}), r"`x` is not a rectangular array"),
    (lambda: dp.vendi(np.ma.masked_less(X, 0)), r"`x` is a masked array with masked entries"),
    (
        lambda: dp.evaluate(X, np.linspace(0, 1, 6)),
        r"`t` must hold group ids .* got dtype float64. For a single feature pass t\[",
    ),
    (lambda: dp.evaluate(X, [None] * 6), r"6 prompts are missing \(first: prompt 0\)"),
    (lambda: dp.conditional_vendi(X, [None] * 6), r"`t` must hold group ids"),
    (lambda: dp.evaluate(X, []), r"`t` is empty"),
    (
        lambda: dp.cluster_vendi(X, X),
        r"`labels` must be flat, one group per output; got shape \(6, 3\)",
    ),
    (
        lambda: dp.vendi(X, weights=np.ones(5) / 5),
        r"`weights` must have one entry per output, shape \(6,\); got shape \(5,\)",
    ),
    (
        lambda: dp.vendi(X, weights=np.ones(6)),
        r"`weights` must sum to one; they sum to 6. Divide them by their sum",
    ),
    (lambda: dp.vendi(X, weights=[1.5, -0.5, 0, 0, 0, 0]), r"not negative; entry 1 is -0.5"),
    (
        lambda: dp.vendi(X, weights=[np.nan, 1, 0, 0, 0, 0]),
        r"must be finite and not negative; entry 0 is nan",
    ),
    (
        lambda: dp.vendi(X, weights=list("abcdef")),
        r"`weights` must hold real numbers; got dtype <U1",
    ),
]

ARGUMENTS = [
    (lambda: dp.vendi(X, order=-1), r"`order` must be positive \(or math.inf\); got -1"),
    (lambda: dp.vendi(X, order=0), r"`order` must be positive"),
    (lambda: dp.evaluate({"model": X}), r"to score several models, pass it to dp.compare"),
    (lambda: dp.compare({"a": (X, X), "b": (X, X)}), r"as dp.Samples\(x, t\), not as a tuple"),
    (lambda: dp.vendi(X, order=float("nan")), r"`order` must be positive"),
    (
        lambda: dp.vendi(X, order="two"),
        r"`order` must be a positive number \(or math.inf\); got 'two'",
    ),
    (
        lambda: dp.vendi(X, truncation=0),
        r"`truncation` must be a whole number of at least 1 \(leave it out to keep all\); got 0",
    ),
    (lambda: dp.vendi(X, truncation=2.5), r"`truncation` must be a whole number"),
    (lambda: dp.vendi(X, truncation=True), r"`truncation` must be a whole number"),
    (
        lambda: dp.vendi(X, rng="now"),
        r"`rng` must be a non-negative integer or a numpy.random.Generator; got 'now'",
    ),
    (lambda: dp.vendi(X, rng=-1), r"`rng` must be"),
    (
        lambda: dp.vendi(X, kernel="cosine"),
        r"the kernel of `x` must be an object such as dp.Gaussian\(1.0\); got 'cosine'",
    ),
    (lambda: dp.evaluate(X, kernel_t=dp.Cosine()), r"`kernel_t` was given, but no prompts `t`"),
    (
        lambda: dp.vendi(X, estimator="exact"),
        r"`estimator` must be an object such as dp.Auto\(\); got 'exact'",
    ),
    (
        lambda: dp.vendi(X, bandwidth_rule="median"),
        r"`bandwidth_rule` must be an object such as dp.StableScore\(\)",
    ),
    (
        lambda: dp.vendi(X, kernel=dp.Gaussian(1.0), estimator=dp.Dual()),
        r"Dual\(\) needs a finite feature map, which Gaussian",
    ),
    (lambda: dp.Gaussian(0), r"`bandwidth` must be positive and finite; got 0"),
    (lambda: dp.Gaussian("wide"), r"`bandwidth` must be positive and finite; got 'wide'"),
    (lambda: dp.Gaussian.from_gamma("wide"), r"`gamma` must be positive and finite; got 'wide'"),
    (
        lambda: dp.Polynomial(scale="a"),
        r"`scale` must be positive and finite, or None for 1 / d; got 'a'",
    ),
    (lambda: dp.Polynomial(offset="a"), r"`offset` must be finite and not negative; got 'a'"),
    (
        lambda: dp.Polynomial(scale=1e-80),
        r"`scale` must be between 1e-30 and 1e\+30, or None for 1 / d; got 1e-80",
    ),
    (
        lambda: dp.Polynomial(offset=1e77),
        r"`offset` must be 0, or between 1e-30 and 1e\+30; got 1e\+77",
    ),
    (lambda: dp.Gaussian(float("inf")), r"`bandwidth` must be positive and finite"),
    (lambda: dp.Gaussian.from_gamma(-1), r"`gamma` must be positive and finite; got -1"),
    (lambda: dp.Polynomial(degree=0), r"`degree` must be a whole number of at least 1; got 0"),
    (
        lambda: dp.Polynomial(scale=0),
        r"`scale` must be positive and finite, or None for 1 / d; got 0",
    ),
    (
        lambda: dp.Polynomial(offset=-1),
        r"`offset` must be finite and not negative, or the kernel is indefinite; got -1",
    ),
    (lambda: dp.StableScore(threshold=0.0), "`threshold` must be positive and finite; got 0.0"),
    (lambda: dp.DistinctPrompts(across=1.0), "`across` must be between 0 and 1; got 1.0"),
    (lambda: dp.DistinctPrompts(across="a"), "`across` must be positive and finite; got 'a'"),
    (lambda: dp.DistinctPrompts(companions=0), "`companions` must be positive and finite; got 0"),
    (
        lambda: dp.StableScore(num_samples=1),
        "`num_samples` must be a whole number of at least 2; got 1",
    ),
    (
        lambda: dp.MedianDistance(max_rows=1),
        r"`max_rows` must be a whole number of at least 2; got 1",
    ),
    (
        lambda: dp.kmeans_labels(X, 7),
        r"`num_clusters` must be a whole number from 1 to the number of distinct prompts, 6; got 7",
    ),
]


@pytest.mark.parametrize(("call", "message"), DATA, ids=[message for _, message in DATA])
def test_data_that_cannot_be_scored(call, message):
    with pytest.raises(dp.DataError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("call", "message"), ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_settings_that_make_no_sense(call, message):
    with pytest.raises(dp.ArgumentError, match=message):
        call()


INDEFINITE = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.9], [0.0, 0.9, 1.0]])


@pytest.mark.parametrize("order", [1, 2])
def test_a_matrix_with_negative_eigenvalues_is_refused_on_either_side(order, library):
    matrix, x = library(INDEFINITE), library(np.eye(3))
    with pytest.raises(
        dp.DataError, match="`x` is not a kernel matrix: it has eigenvalues below zero"
    ):
        dp.vendi(matrix, kernel=dp.Precomputed(), order=order)
    with pytest.raises(dp.DataError, match="`x` is not a kernel matrix"):
        dp.cluster_vendi(matrix, [0, 0, 1], kernel=dp.Precomputed(), order=order)
    with pytest.raises(dp.DataError, match="`t` is not a kernel matrix"):
        dp.conditional_vendi(
            x, matrix, kernel_x=dp.Cosine(), kernel_t=dp.Precomputed(), order=order
        )
    with pytest.raises(dp.DataError, match="`x` is not a kernel matrix"):
        dp.conditional_vendi(
            matrix, x, kernel_x=dp.Precomputed(), kernel_t=dp.Cosine(), order=order
        )


def test_a_slightly_asymmetric_single_precision_matrix_is_taken():
    matrix = np.array([[1, 0.5], [0.5, 1]], np.float32)
    matrix[0, 1] += 1e-6
    assert float(dp.vendi(matrix, kernel=dp.Precomputed())) == pytest.approx(
        float(dp.vendi(np.array([[1, 0.5], [0.5, 1]]), kernel=dp.Precomputed())), rel=1e-5
    )
    with pytest.raises(dp.DataError, match="symmetric"):
        dp.vendi(matrix.astype(np.float64), kernel=dp.Precomputed())


def test_two_libraries_in_one_call_are_refused():
    import array_api_strict
    import torch

    with pytest.raises(dp.DataError, match="must be in one array library and on one device"):
        dp.evaluate(torch.ones(3, 2), array_api_strict.asarray(np.eye(3)))
    with pytest.raises(dp.DataError, match="must be in one array library"):
        dp.conditional_vendi(np.ones((3, 2)), torch.eye(3))
    # `evaluate` reads tensors in host memory as arrays, whichever side they are on.
    kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Cosine()}
    assert float(dp.evaluate(np.eye(3), torch.eye(3), **kernels).vendi) == pytest.approx(3)


def test_numpy_prompts_follow_the_outputs_into_their_library(pairs):
    import torch

    x, t = pairs
    assert float(dp.conditional_vendi(torch.from_numpy(np.array(x)), t)) == pytest.approx(
        float(dp.conditional_vendi(x, t))
    )


def test_a_sparse_tensor_is_refused():
    import torch

    with pytest.raises(
        dp.DataError,
        match=r"`x` is a sparse tensor; scores need a dense one: call to_dense\(\) first",
    ):
        dp.vendi(torch.eye(3).to_sparse())
    with pytest.raises(dp.DataError, match="`x` is a sparse tensor"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own CSR support beta
        dp.vendi(torch.eye(3).to_sparse_csr())


def test_reversed_numpy_prompts_join_tensors(pairs):
    import torch

    x, t = pairs
    found = dp.conditional_vendi(torch.from_numpy(np.array(x)), t[::-1])
    assert float(found) == pytest.approx(float(dp.conditional_vendi(x, t[::-1])))


def test_a_missing_extra_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.cluster", None)
    with pytest.raises(dp.MissingExtraError, match=r"pip install 'divprism\[cluster\]'") as caught:
        dp.kmeans_labels(X, 2)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("mixed", [[1, "1"] * 6, ("True", True) * 6, ["1.5", 1.5] * 6])
def test_ids_that_mix_texts_and_numbers_are_refused(mixed):
    x = np.random.default_rng(0).standard_normal((12, 2))
    by_id = {"kernel_t": dp.Categorical()}
    calls = [
        lambda: dp.prompt_vendi(mixed),
        lambda: dp.conditional_vendi(x, mixed),
        lambda: dp.cluster_vendi(x, mixed),
        lambda: dp.evaluate(x, mixed, **by_id),
        lambda: dp.prompt_groups(x, mixed, **by_id),
        lambda: dp.Samples(x, mixed),
    ]
    for call in calls:
        with pytest.raises(dp.DataError, match="mixes texts with other values"):
            call()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_whole_numbers_that_floats_would_round_are_refused_as_rows(dtype):
    ids = np.array([2**60, 2**60 + 1, 2**60 + 2], dtype)
    assert round(dp.prompt_vendi(ids)) == 3
    for call in (
        lambda: dp.prompt_vendi(ids[:, None], kernel=dp.Categorical()),
        lambda: dp.per_prompt_vendi(np.eye(6), np.repeat(ids, 2)[:, None]),
        lambda: dp.vendi(ids[:, None], kernel=dp.Gaussian(1.0)),
        lambda: dp.vendi(np.array([[np.iinfo(dtype).max]], dtype)),
    ):
        with pytest.raises(dp.DataError, match=r"beyond 2\^53, which floating point rounds"):
            call()


@pytest.mark.parametrize("name", ["conditional_vendi", "information_vendi", "conditional_rke"])
def test_a_score_of_pairs_without_prompts_is_refused(name):
    with pytest.raises(dp.ArgumentError, match=f"{name} needs the prompt of each output"):
        getattr(dp, name)(np.eye(4), None)


def test_outputs_and_groups_that_are_none_are_refused():
    with pytest.raises(dp.ArgumentError, match="needs the group of each output"):
        dp.cluster_vendi(np.eye(4), None)
    several = (dp.evaluate_models, dp.compare, dp.diff, dp.overlap, dp.mixture)
    for call in (dp.evaluate, dp.converge, dp.prompt_groups, *several):
        with pytest.raises(dp.ArgumentError, match="`x` is None; pass outputs"):
            call(None)


@pytest.mark.parametrize("value", [True, False, np.True_, b"1", bytearray(b"1")])
def test_booleans_and_bytes_are_no_numbers(value):
    for call in (
        lambda: dp.vendi(np.eye(4), order=value),
        lambda: dp.Gaussian(value),
        lambda: dp.Polynomial(2, scale=value),
        lambda: dp.Polynomial(2, offset=value),
    ):
        with pytest.raises(dp.ArgumentError, match="must be"):
            call()


def test_a_tolerance_that_no_float_holds_is_refused():
    for estimator in (dp.Auto, dp.Lanczos):
        with pytest.raises(dp.ArgumentError, match="`tolerance` must be positive and finite"):
            estimator(tolerance=10**400)
