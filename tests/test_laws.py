"""Laws that hold for all data, tested on data from hypothesis, on every array library."""

import math
from itertools import pairwise

import numpy as np
import pytest
from cases import DATA, LIBRARIES, sixty_pairs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import divprism as dp
from divprism.core.entropy import matrix_entropy, renyi_entropy
from divprism.core.spectrum import Spectrum

ORDERS = st.sampled_from([0.3, 0.999999, 1.0, 1.5, 2.0, 3.0, math.inf])
TRUNCATIONS = st.sampled_from([None, None, 1, 3, 7])
NAMES = ["vendi", "conditional_vendi", "information_vendi"]
TIGHT = 1e-9


@st.composite
def problems(draw):
    """Pairs with few distinct values, so that items repeat, with settings and an array library."""
    n = draw(st.integers(1, 12))
    entries = st.integers(-4, 4).map(lambda k: k / 2)
    x = draw(hnp.arrays(np.float64, (n, draw(st.integers(1, 3))), elements=entries))
    t = draw(hnp.arrays(np.float64, (n, draw(st.integers(1, 3))), elements=entries))
    kernels = st.sampled_from(
        [dp.Gaussian(0.7), dp.Gaussian(2.5), dp.Polynomial(2), dp.Categorical()]
    )
    arguments = {
        "kernel_x": draw(kernels),
        "kernel_t": draw(kernels),
        "order": draw(ORDERS),
        "truncation": draw(TRUNCATIONS),
        "num_permutations": 0,
    }
    return x, t, arguments, LIBRARIES[draw(st.sampled_from(list(LIBRARIES)))]


# These exist only where prompts repeat, which copying or merging pairs changes.
PER_PROMPT = {"per_prompt_vendi", "per_prompt_rke"}


def _entropies(x, t, library, **arguments):
    scores = dp.evaluate(library(x), library(t), **arguments).scores
    return {name: score.entropy for name, score in scores.items()}


def _assert_equal(entropies, expected, *, atol=TIGHT):
    """Every score of both results agrees, and both have all scores except those per prompt."""
    assert entropies.keys() ^ expected.keys() <= PER_PROMPT
    common = entropies.keys() & expected.keys()
    assert {"vendi", "conditional_vendi", "information_vendi"} <= common
    for name in common:
        assert entropies[name] == pytest.approx(expected[name], rel=1e-7, abs=atol), name


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(problem, random):
    x, t, arguments, library = problem
    shuffled = list(range(len(x)))
    random.shuffle(shuffled)
    _assert_equal(
        _entropies(x[shuffled], t[shuffled], library, **arguments),
        _entropies(x, t, library, **arguments),
    )


@given(problems(), st.integers(2, 3))
def test_duplicating_everything_changes_nothing(problem, times):
    x, t, arguments, library = problem
    twice = _entropies(np.tile(x, (times, 1)), np.tile(t, (times, 1)), library, **arguments)
    _assert_equal(twice, _entropies(x, t, library, **arguments))


@given(problems())
def test_merging_equal_pairs_into_weights_changes_nothing(problem):
    x, t, arguments, library = problem
    rows, counts = np.unique(np.hstack([x, t]), axis=0, return_counts=True)
    merged = rows[:, : x.shape[1]], rows[:, x.shape[1] :]
    _assert_equal(
        _entropies(*merged, library, weights=counts / len(x), **arguments),
        _entropies(x, t, library, **arguments),
    )


@given(problems(), st.integers(1, 4))
def test_items_of_weight_zero_are_ignored(problem, extra):
    x, t, arguments, library = problem
    n = len(x)
    padded = [
        np.vstack([side, 9 + np.arange(extra * side.shape[1]).reshape(extra, -1)])
        for side in (x, t)
    ]
    weights = np.r_[np.full(n, 1 / n), np.zeros(extra)]
    if n % 2:
        # Bandwidths by the rule, which must ignore these items too.
        arguments |= {"kernel_x": None, "kernel_t": None}
    _assert_equal(
        _entropies(*padded, library, weights=weights, **arguments),
        _entropies(x, t, library, **arguments),
    )


@given(problems(), st.sampled_from([1e-6, 0.25, 3.0, 1e5]))
def test_rescaling_data_with_the_bandwidth_changes_nothing(problem, factor):
    x, t, arguments, library = problem
    kernels = {"kernel_x": dp.Gaussian(0.7), "kernel_t": dp.Gaussian(2.5)}
    scaled = {"kernel_x": dp.Gaussian(0.7 * factor), "kernel_t": dp.Gaussian(2.5)}
    _assert_equal(
        _entropies(x * factor, t, library, **(arguments | scaled)),
        _entropies(x, t, library, **(arguments | kernels)),
        atol=1e-8,
    )


@given(problems())
def test_the_two_factors_multiply_to_vendi(problem):
    x, t, arguments, library = problem
    result = dp.evaluate(library(x), library(t), **arguments)
    for plain, conditional, information in (NAMES, ["rke", "conditional_rke", "information_rke"]):
        product = float(result.scores[conditional]) * float(result.scores[information])
        assert product == pytest.approx(float(result.scores[plain]), rel=TIGHT)


@given(problems())
def test_conditional_is_at_least_one_untruncated(problem):
    x, t, arguments, library = problem
    result = dp.evaluate(library(x), library(t), **(arguments | {"truncation": None}))
    assert float(result.conditional_vendi) >= 1 - TIGHT
    assert float(result.conditional_rke) >= 1 - TIGHT
    if arguments["order"] == 1:
        assert float(result.information_vendi) >= 1 - TIGHT


@given(problems())
def test_vendi_lies_between_one_and_the_number_of_distinct_outputs(problem):
    x, _, arguments, library = problem
    settings = {name: arguments[name] for name in ("order", "truncation")}
    value = float(dp.vendi(library(x), kernel=arguments["kernel_x"], **settings))
    assert 1 - TIGHT <= value <= len(np.unique(x, axis=0)) * (1 + TIGHT)


@given(problems())
def test_vendi_falls_with_the_order(problem):
    x, _, arguments, library = problem
    values = [
        float(dp.vendi(library(x), kernel=arguments["kernel_x"], order=order))
        for order in (0.3, 1, 1.5, 2, 3, math.inf)
    ]
    assert all(low <= high * (1 + TIGHT) for high, low in pairwise(values))


@given(problems())
def test_constant_prompts_leave_the_plain_score(problem):
    x, t, arguments, library = problem
    result = dp.evaluate(library(x), library(np.ones_like(t)), **arguments)
    assert float(result.conditional_vendi) == pytest.approx(float(result.vendi), rel=TIGHT)
    assert float(result.information_vendi) == pytest.approx(1, rel=TIGHT)


@given(problems())
def test_truncation_beyond_the_number_of_items_changes_nothing(problem):
    x, t, arguments, library = problem
    cut = _entropies(x, t, library, **(arguments | {"truncation": len(x)}))
    _assert_equal(cut, _entropies(x, t, library, **(arguments | {"truncation": None})))


@pytest.mark.parametrize("order", [0.5, 1, 2, math.inf])
@pytest.mark.parametrize(
    "estimator",
    [
        dp.Auto(),
        dp.Exact(),
        dp.Lanczos(num_probes=8, depth=8),
        dp.Nystrom(30),
        dp.Fourier(16),
    ],
    ids=lambda each: type(each).__name__,
)
def test_keeping_as_many_eigenvalues_as_pairs_changes_no_bit(estimator, order):
    x, t = sixty_pairs()
    kernels = {"kernel_x": dp.Gaussian(3.0), "kernel_t": dp.Gaussian(2.0)}

    def numbers(truncation):
        result = dp.evaluate(
            np.float32(x),
            np.float32(t),
            order=order,
            estimator=estimator,
            truncation=truncation,
            num_permutations=20,
            interval=0.9,
            **kernels,
        )
        plain = result.to_dict()
        for score in plain["scores"].values():
            del score["truncation"]
        names = ("scores", "shuffled_baseline", "data", "warnings")
        return {name: plain.get(name) for name in names}

    whole = numbers(None)
    assert whole["scores"]["conditional_rke"]["interval"]
    assert numbers(60) == whole
    assert numbers(10_000) == whole


@pytest.mark.parametrize("kernel", [dp.Gaussian(3.0), dp.Cosine()], ids=["random", "exact"])
def test_a_stream_cut_beyond_its_length_changes_no_bit(kernel):
    x, _ = sixty_pairs()

    def numbers(truncation):
        metric = dp.Metric(kernel, num_features=16, truncation=truncation)
        metric.update(x)
        scores = metric.compute().scores.values()
        return [(score.value, score.standard_error) for score in scores]

    assert numbers(60) == numbers(None)


@given(problems())
def test_every_score_alone_is_the_score_of_evaluate(problem):
    x, t, arguments, library = problem
    result = dp.evaluate(library(x), library(t), **arguments)
    arguments.pop("num_permutations")
    for name in ("conditional_vendi", "information_vendi"):
        alone = getattr(dp, name)(library(x), library(t), **arguments)
        assert alone.entropy == pytest.approx(result.scores[name].entropy, abs=TIGHT)
    arguments.pop("order")
    for name in ("conditional_rke", "information_rke"):
        alone = getattr(dp, name)(library(x), library(t), **arguments)
        assert alone.entropy == pytest.approx(result.scores[name].entropy, abs=TIGHT)


def test_information_is_not_clamped_at_other_orders():
    x, t = DATA["A"]
    result = dp.information_vendi(
        x, t, kernel_x=dp.Gaussian(20.0), kernel_t=dp.Gaussian(15.0), order=math.inf
    )
    assert result.entropy == pytest.approx(-1.45e-5, rel=1e-2)


def test_truncated_information_is_not_monotone_in_t():
    x, t = DATA["A"]
    kernels = {"kernel_x": dp.Gaussian(8.0), "kernel_t": dp.Gaussian(6.0)}
    result = [
        dp.information_vendi(x, t, truncation=cut, **kernels).entropy for cut in (20, 50, 100, 200)
    ]
    assert result == pytest.approx([1.90, 2.21, 2.27, 2.26], abs=5e-3)


@pytest.mark.parametrize("order", [0.3, 1.0, 2.0, 3.0, math.inf])
def test_the_entropy_of_a_single_eigenvalue_is_zero_without_a_sign(order):
    one = Spectrum(np.ones(1), np.ones(1), "by hand", squares=1.0)
    entropies = [renyi_entropy(one, order), matrix_entropy(np.ones((1, 1)), np.ones(1), order)]
    assert [math.copysign(1.0, entropy) for entropy in entropies] == [1.0, 1.0]
    assert entropies == [0.0, 0.0]
