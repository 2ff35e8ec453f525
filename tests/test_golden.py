"""Agreement with independent implementations, to 1e-9, on all array libraries."""

import math

import numpy as np
import pytest
from cases import DATA, GOLDEN

import divprism as dp

TOLERANCE = 1e-9
# The shuffled baseline takes most of the time, and no value here depends on it.
UNSHUFFLED = {"num_permutations": 0}


def _arguments(row):
    if row.get("kernel") == "cosine":
        return UNSHUFFLED | {"kernel_x": dp.Cosine(), "kernel_t": dp.Cosine()}
    bandwidth_x, bandwidth_t = row["sigma"]
    kernels = {"kernel_x": dp.Gaussian(bandwidth_x), "kernel_t": dp.Gaussian(bandwidth_t)}
    return UNSHUFFLED | kernels


@pytest.mark.parametrize(
    "row",
    GOLDEN["conditional"],
    ids=lambda r: f"{r['data']}-{r['kernel']}-{r['sigma']}-{r['order']}",
)
def test_conditional_and_information_agree_with_the_published_code(row, library):
    x, t = (library(side) for side in DATA[row["data"]])
    result = dp.evaluate(x, t, order=row["order"], **_arguments(row))
    assert float(result.conditional_vendi) == pytest.approx(row["conditional_score"], rel=TOLERANCE)
    assert float(result.information_vendi) == pytest.approx(row["information_score"], rel=TOLERANCE)
    assert result.vendi.entropy == pytest.approx(row["H_X"], rel=TOLERANCE)


@pytest.mark.parametrize(
    "row", GOLDEN["truncated_conditional"], ids=lambda r: f"{r['data']}-{r['order']}-{r['t']}"
)
def test_truncated_conditional_agrees_with_the_published_code(row, library):
    x, t = (library(side) for side in DATA[row["data"]])
    result = dp.evaluate(x, t, order=row["order"], truncation=row["t"], **_arguments(row))
    assert result.conditional_vendi.entropy == pytest.approx(row["H_X_given_T"], rel=TOLERANCE)
    assert result.information_vendi.entropy == pytest.approx(row["I_X_T"], rel=TOLERANCE)


@pytest.mark.parametrize(
    "row", GOLDEN["truncated_vendi"], ids=lambda r: f"{r['data']}-{r['alpha']}-{r['t']}"
)
def test_truncated_vendi_agrees_with_the_published_code(row, library):
    x = library(DATA[row["data"]][0])
    result = dp.vendi(x, kernel=dp.Gaussian(row["sigma"]), order=row["alpha"], truncation=row["t"])
    assert float(result) == pytest.approx(row["score"], rel=TOLERANCE)


@pytest.mark.parametrize("row", GOLDEN["vendi_score"], ids=lambda r: str(r["q"]))
def test_a_kernel_matrix_scores_as_in_vendi_score(row, library):
    matrix = library(np.array(row["K"], float))
    assert float(dp.vendi(matrix, kernel=dp.Precomputed(), order=row["q"])) == pytest.approx(
        row["score"], rel=TOLERANCE
    )


EYE4 = np.repeat(np.eye(4), 5, axis=0)
BY_HAND = {
    "all different": (np.eye(20), 20, 5, 4),
    "outputs are the prompts": (EYE4, 4, 1, 4),
    "the same five under each prompt": (np.tile(np.eye(5), (4, 1)), 5, 5, 1),
    "all equal": (np.ones((20, 3)), 1, 1, 1),
}


@pytest.mark.parametrize("case", BY_HAND)
@pytest.mark.parametrize("order", [1, 2, math.inf])
@pytest.mark.parametrize("ids", [False, True], ids=["vectors", "ids"])
def test_four_prompts_five_outputs_each(case, order, ids, library):
    x, vendi, conditional, information = BY_HAND[case]
    t, kernel_t = library(EYE4), dp.Cosine()
    if ids:
        t, kernel_t = np.repeat(np.arange(4), 5), None
    result = dp.evaluate(
        library(x), t, kernel_x=dp.Cosine(), kernel_t=kernel_t, order=order, **UNSHUFFLED
    )
    values = [float(result.vendi), float(result.conditional_vendi), float(result.information_vendi)]
    assert values == pytest.approx([vendi, conditional, information], rel=1e-12)


def test_conditional_is_the_geometric_mean_over_equal_disjoint_prompts(library):
    x, _ = DATA["A"]
    ids = np.repeat(np.arange(10), 50)
    kernel = dp.Gaussian(8.0)
    inside = [math.log(float(dp.vendi(library(x[ids == i]), kernel=kernel))) for i in range(10)]
    assert float(dp.conditional_vendi(library(x), ids, kernel_x=kernel)) == pytest.approx(
        math.exp(np.mean(inside)), rel=1e-11
    )


LITTLE = [[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]
STEPS = np.array([0, 0, 10, 10, 20, 20])
QUOTED = [
    (np.exp(-np.abs(STEPS[:, None] - STEPS)), {}, 2.999999995877713),
    (LITTLE, {"order": 1}, 2.1573004833739833),
    (LITTLE, {"order": 2}, 1.9480519480519483),
    (LITTLE, {"order": math.inf}, 1.5789473684210527),
    (LITTLE, {"order": 0.5}, 2.420348357053285),
    (LITTLE, {"order": 1.5}, 2.025989355608411),
    (LITTLE, {"order": 5}, 1.7525115504482116),
    ([[1, 1, 0], [1, 1, 0], [0, 0, 1]], {}, 1.8898815748423097),
    ([[1, 0, 0], [0, 1, 0.5], [0, 0.5, 1]], {"weights": [0.1, 0.4, 0.5]}, 2.2855300172161153),
]


@pytest.mark.parametrize(("matrix", "arguments", "value"), QUOTED)
def test_values_that_other_readmes_quote(matrix, arguments, value, library):
    result = dp.vendi(library(np.array(matrix, float)), kernel=dp.Precomputed(), **arguments)
    assert float(result) == pytest.approx(value, rel=TOLERANCE)


def test_cosine_of_four_points(library):
    x = library(np.array([[100.0, 0], [99, 1], [1, 99], [0, 100]]))
    assert float(dp.vendi(x, kernel=dp.Cosine())) == pytest.approx(1.999897991279297, rel=TOLERANCE)
    assert float(dp.rke(x, kernel=dp.Cosine())) == pytest.approx(1.99979600163411, rel=TOLERANCE)


def test_iris(library):
    from sklearn.datasets import load_iris

    x = library(load_iris().data)
    assert float(dp.vendi(x, kernel=dp.Gaussian.from_gamma(0.1))) == pytest.approx(
        3.169734945125444, rel=TOLERANCE
    )
    assert float(dp.vendi(x, kernel=dp.Cosine())) == pytest.approx(
        1.2078299095671847, rel=TOLERANCE
    )


@pytest.mark.parametrize(
    ("bandwidth", "value"),
    [(1, 87.98666355123106), (2, 14.05375279818545), (4, 2.4098973094243132)],
)
def test_rke_of_a_normal_sample(bandwidth, value, library):
    x = library(np.random.RandomState(0).randn(100, 8))
    assert float(dp.rke(x, kernel=dp.Gaussian(bandwidth))) == pytest.approx(value, rel=TOLERANCE)
