"""Choosing models while sampling: estimates by brute force, convergence, refusals."""

import math

import numpy as np
import pytest

import divprism as dp
from divprism.analysis.simplex import least_square
from divprism.errors import ArgumentError, DataError

pytestmark = pytest.mark.usefixtures("one_thread")
LAW = np.array([[0.6, 0.4, 0, 0, 0, 0], [0.6, 0.4, 0, 0, 0, 0], [0, 0, 0.25, 0.25, 0.25, 0.25]])


def run(seed, size, exploration=0.1, law=LAW):
    """A bandit after some samples of models with orthogonal answers."""
    rng = np.random.default_rng(seed)
    names = [f"m{index}" for index in range(len(law))]
    bandit = dp.MixtureBandit(names, dp.Cosine(), exploration=exploration)
    for _ in range(size):
        name = bandit.choose()
        answer = rng.choice(law.shape[1], p=law[names.index(name)])
        bandit.update(name, np.eye(law.shape[1])[[answer]])
    return bandit


def regret(bandit, law=LAW):
    gram = law @ law.T
    counts = np.array(list(bandit.counts.values()))
    shares = counts / counts.sum()
    best = least_square(gram).weights
    return float(shares @ gram @ shares - best @ gram @ best)


def test_estimates_are_means_over_pairs_of_different_samples():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((12, 3)), rng.standard_normal((12, 2))
    kernels = dp.Gaussian(0.9), dp.Gaussian(1.1)
    bandit = dp.MixtureBandit(["a", "b"], *kernels)
    for name, rows in (("a", [0, 1, 2]), ("b", [3]), ("a", [4]), ("b", [5, 6, 7, 8, 9, 10, 11])):
        bandit.update(name, x[rows], t[rows])

    def squares(data, bandwidth):
        gaps = ((data[:, None] - data[None]) ** 2).sum(axis=2)
        return np.exp(-gaps / bandwidth**2)

    table = squares(x, 0.9) * squares(t, 1.1)
    a, b = [0, 1, 2, 4], [3, 5, 6, 7, 8, 9, 10, 11]
    within = (table[np.ix_(a, a)].sum() - 4) / 12
    assert bandit.gram[0, 0] == pytest.approx(within)
    assert bandit.gram[0, 1] == pytest.approx(table[np.ix_(a, b)].mean())
    assert bandit.score == pytest.approx(12 * 11 / (table.sum() - 12))


def test_ids_are_equal_across_updates_and_containers():
    """Answers x, z and x, y: of the four pairs between the models one is equal."""
    bandit = dp.MixtureBandit(["a", "b"], dp.Categorical())
    bandit.update("a", ["x"])
    bandit.update("b", np.array(["x", "y"]))
    bandit.update("a", ("z",))
    np.testing.assert_allclose(bandit.gram, [[0, 1 / 4], [1 / 4, 0]])
    assert bandit.score == pytest.approx(4 * 3 / 2)


def test_prompts_that_are_ids_count_as_equal_rows_do():
    x = np.eye(2)[[0, 0, 1, 0, 0]]
    by_id = dp.MixtureBandit(["a", "b"], dp.Cosine(), dp.Categorical())
    by_row = dp.MixtureBandit(["a", "b"], dp.Cosine(), dp.Categorical())
    for name, rows in (("a", [0]), ("b", [1, 2]), ("a", [3, 4])):
        prompts = np.array([7, 7, 7, 8, 7])[rows]
        by_id.update(name, x[rows], prompts)
        by_row.update(name, x[rows], prompts[:, None])
    # Of model a, rows 0 and 4; between the models, rows 0 and 1, and 4 and 1.
    np.testing.assert_allclose(by_id.gram, [[2 / 6, 2 / 6], [2 / 6, 0]])
    np.testing.assert_allclose(by_row.gram, by_id.gram)


def test_estimates_are_unbiased():
    """The mean over 200 sets of 6 samples each is the truth, within three standard errors."""
    grams = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        bandit = dp.MixtureBandit(["m0", "m2"], dp.Cosine())
        for name, row in (("m0", 0), ("m2", 2)):
            bandit.update(name, np.eye(6)[rng.choice(6, size=6, p=LAW[row])])
        grams.append(bandit.gram[[0, 1, 0], [0, 1, 1]])
    truth = [LAW[0] @ LAW[0], LAW[2] @ LAW[2], 0.0]
    errors = np.std(grams, axis=0) / math.sqrt(200)
    assert (np.abs(np.mean(grams, axis=0) - truth) <= 3 * errors + 1e-12).all()


def test_the_shares_approach_the_best_ones():
    """The twins are best drawn in 32 % of the cases, whichever of them."""
    late = [regret(run(seed, 300)) for seed in range(4)]
    early = [regret(run(seed, 30)) for seed in range(4)]
    uniform = regret(type("Even", (), {"counts": {"m0": 1, "m1": 1, "m2": 1}})())
    assert np.mean(late) < 0.1 * uniform and np.mean(late) < np.mean(early)
    bandit = run(0, 300)
    # a' G a = 0.52 s^2 + 0.25 (1 - s)^2 has its least value at s = 0.25 / 0.77.
    counts = bandit.counts
    assert (counts["m0"] + counts["m1"]) / 300 == pytest.approx(0.325, abs=0.07)
    weights = bandit.best_weights()
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["m2"] == pytest.approx(0.675, abs=0.1)


def test_more_exploration_draws_models_that_do_not_help_more_often():
    law = np.array([[1.0, 0, 0], [0.9, 0.1, 0], [0, 0.5, 0.5]])
    little, much = (run(0, 200, exploration, law).counts for exploration in (0.05, 1.0))
    assert min(much.values()) > min(little.values()) >= 2


def test_choices_are_deterministic_and_the_first_ones_cover_all_models():
    assert run(3, 60).counts == run(3, 60).counts
    bandit = dp.MixtureBandit(["a", "b", "c"], dp.Gaussian(1.0))
    chosen = []
    for number in range(6):
        chosen.append(bandit.choose())
        bandit.update(chosen[-1], [[float(number)]])
    assert chosen == ["a", "b", "c", "a", "b", "c"]


def test_outputs_that_all_differ_have_no_finite_score():
    bandit = dp.MixtureBandit(["a", "b"], dp.Cosine())
    bandit.update("a", np.eye(3))
    assert bandit.score == math.inf and np.isnan(bandit.gram[0, 1])


def bandit_of(**options):
    return dp.MixtureBandit(["a", "b"], dp.Gaussian(1.0), **options)


REFUSED = [
    (lambda: dp.MixtureBandit(["a"], dp.Cosine()), ArgumentError, "at least two different names"),
    (lambda: dp.MixtureBandit(["a", "a"], dp.Cosine()), ArgumentError, "two different names"),
    (lambda: dp.MixtureBandit(["a", "b"], None), ArgumentError, "`kernel_x` must be a kernel"),
    (lambda: dp.MixtureBandit("ab", dp.Precomputed()), ArgumentError, "a kernel of vectors"),
    (lambda: bandit_of(exploration=0), ArgumentError, "`exploration` must be positive"),
    (lambda: bandit_of().update("c", [[1.0]]), ArgumentError, "must be one of 'a', 'b'; got 'c'"),
    (lambda: bandit_of().update("a", [[1.0]], [[1.0]]), ArgumentError, "exactly if there is"),
    (lambda: bandit_of(kernel_t=dp.Cosine()).update("a", [[1.0]]), ArgumentError, "exactly if"),
    (lambda: bandit_of().update("a", [[math.nan]]), DataError, "NaN or infinity"),
    (lambda: bandit_of().score, DataError, "takes two samples; got 0"),
    (lambda: bandit_of().best_weights(), DataError, "2 samples of each model; 'a' has fewer"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_bad_arguments_get_one_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_rows_of_another_width_are_refused():
    bandit = bandit_of()
    bandit.update("a", [[1.0, 2.0]])
    with pytest.raises(DataError, match="`outputs` must have 2 columns, as those before; got 3"):
        bandit.update("b", [[1.0, 2.0, 3.0]])
