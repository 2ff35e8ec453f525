"""A truncation that is chosen from the data."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command_line import run

import divprism as dp
from divprism.errors import ArgumentError
from divprism.scores.problem import choose_truncation
from divprism.scores.settings import Settings

RNG = np.random.default_rng(8)
T = np.repeat(RNG.normal(size=(24, 4)), 5, axis=0)
X = np.concatenate([T, RNG.normal(size=(120, 3))], axis=1)
KERNELS = {"kernel_x": dp.Gaussian(2.5), "kernel_t": dp.Gaussian(0.8)}
AUTO = {"truncation": "auto"}


def chosen(x: object, t: object = None, **options: object) -> int:
    return dp.evaluate(x, t, num_permutations=0, **(AUTO | options)).settings.truncation


def test_nothing_is_cut_off_where_half_of_the_pairs_score_the_same():
    # Three kinds in equal numbers, in each half as in all.
    kinds = np.tile(np.eye(3), (20, 1))
    assert chosen(kinds, kernel_x=dp.Cosine()) == 60
    plain = dp.vendi(kinds, kernel=dp.Cosine())
    assert float(dp.vendi(kinds, kernel=dp.Cosine(), **AUTO)) == float(plain)


def test_outputs_without_anything_in_common_keep_what_says_more_than_their_number():
    # Half of the eigenvalues or fewer would all be equal, whatever the outputs are.
    result = dp.evaluate(np.eye(60), kernel_x=dp.Cosine(), **AUTO)
    assert result.settings.truncation == 31
    assert not result.vendi.warnings


def test_the_score_of_half_of_the_pairs_settles_at_the_number_chosen():
    def growth(truncation: int | None) -> float:
        """From half of the pairs to all, over random halves, which are not those of the rule."""
        options = KERNELS | {"truncation": truncation}
        halves = []
        for seed in range(5):
            rows = np.random.default_rng(seed).permutation(120)
            for half in (rows[::2], rows[1::2]):
                halves.append(float(dp.conditional_vendi(X[half], T[half], **options)))
        return float(dp.conditional_vendi(X, T, **options)) / float(np.mean(halves)) - 1

    assert abs(growth(chosen(X, T, **KERNELS))) < 0.04
    assert growth(None) > 0.2


@pytest.mark.parametrize("kind", ["vectors", "ids", "matrix"])
def test_the_number_does_not_depend_on_the_order_of_rows_or_names(kind):
    order = np.random.default_rng(1).permutation(120)
    ids = np.repeat(np.arange(24), 5)
    names = np.array([f"prompt {(7 * number) % 24}" for number in ids])
    matrix = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 4)
    data = {
        "vectors": (X, T, X[order], T[order], KERNELS),
        "ids": (
            X,
            ids,
            X[order],
            names[order],
            {"kernel_x": dp.Gaussian(1.5), "kernel_t": dp.Categorical()},
        ),
        "matrix": (
            matrix,
            T,
            matrix[np.ix_(order, order)],
            T[order],
            {"kernel_x": dp.Precomputed()},
        ),
    }
    x, t, other_x, other_t, kernels = data[kind]
    first = dp.conditional_vendi(x, t, **kernels, **AUTO)
    second = dp.conditional_vendi(other_x, other_t, **kernels, **AUTO)
    assert 1 < first.truncation == second.truncation < 120
    assert float(first) == pytest.approx(float(second), rel=1e-12)


def test_every_container_and_precision_gives_the_number():
    pandas = pytest.importorskip("pandas")
    number = chosen(X, T, **KERNELS)
    single = X.astype(np.float32), T.astype(np.float32)
    assert chosen(X.tolist(), T.tolist(), **KERNELS) == number
    assert chosen(*single, **KERNELS) == number
    # Single precision data are held in double, although order 2 alone would not need it.
    assert chosen(*single, order=2, **KERNELS) == number
    ids = np.repeat(np.arange(24), 5)
    assert chosen(X, pandas.Series(ids)) == chosen(X, ids)


def test_every_command_of_python_has_the_same_number():
    samples = dp.Samples(X, T)
    number = chosen(samples)
    assert number == dp.converge(samples, **AUTO).settings.truncation
    assert number == dp.prompt_groups(samples, **AUTO).settings.truncation
    assert number == dp.bandwidth_sweep(samples, **AUTO).to_dict()["settings"]["truncation"]
    assert number == dp.conditional_vendi(X, T, **AUTO).truncation
    assert number == dp.information_rke(X, T, **AUTO).truncation
    assert chosen(X) == dp.vendi(X, **AUTO).truncation


def test_models_share_the_smallest_number_that_all_of_them_need():
    varied = replace(dp.Samples(X, T), models=("varied",) * 120)
    # Two outputs for each prompt, so that half of the pairs show all there is.
    plain = replace(dp.Samples(np.sign(X), T), models=("plain",) * 120)
    joined = dp.Samples(
        np.concatenate([X, np.sign(X)]), np.concatenate([T, T]), varied.models + plain.models
    )
    results = dp.evaluate_models(joined, **AUTO, **KERNELS, num_permutations=0)
    [number] = {result.settings.truncation for result in results.values()}
    settings = Settings(**KERNELS)
    ranges = [choose_truncation(part.outputs, T, settings) for part in (varied, plain)]
    assert number == max(min(r.highest for r in ranges), max(r.lowest for r in ranges))
    compared = dp.compare(joined, **AUTO, **KERNELS)
    assert {result.settings.truncation for result in compared.results.values()} == {number}
    assert dp.converge(joined, model="varied", **AUTO, **KERNELS).settings.truncation == number


def test_of_many_pairs_some_decide_on_the_share_of_eigenvalues(monkeypatch):
    whole = chosen(X, T, **KERNELS)
    monkeypatch.setattr("divprism.scores.truncation.MAX_PAIRS", 60)
    order = np.random.default_rng(2).permutation(120)
    number = chosen(X, T, **KERNELS)
    assert number == chosen(X[order], T[order], **KERNELS)
    assert number == pytest.approx(whole, rel=0.3)
    # Prompts that do not repeat, and one with all outputs.
    assert chosen(X, X[:, ::-1]) < 120
    assert chosen(X, np.zeros(120, int)) == chosen(X)
    assert chosen(np.eye(120), kernel_x=dp.Cosine()) == 62
    assert chosen(np.tile(np.eye(3), (40, 1)), kernel_x=dp.Cosine()) == 120


def test_a_choice_is_spelled_as_it_is_given_and_resolved_in_results():
    settings = Settings(truncation="auto")
    assert settings.to_dict()["truncation"] == "auto"
    assert Settings.from_dict(settings.to_dict()) == settings
    assert replace(settings, truncation=7).to_dict()["truncation"] == 7
    result = dp.evaluate(X, T, settings=settings, preset="conditional-vendi")
    assert 1 < result.settings.truncation < 120
    again = dp.evaluate(X, T, settings=result.settings)
    assert again.settings.truncation == result.settings.truncation
    assert float(again.conditional_vendi) == float(result.conditional_vendi)
    with pytest.raises(ArgumentError, match="`truncation` must be a whole number"):
        Settings(truncation="automatic")


def test_the_flag_takes_auto_and_states_refuse_it(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "t.npy", T)
    source = [tmp_path / "x.npy", "--prompts", tmp_path / "t.npy"]
    done = run("score", *source, *("--truncation", "auto", "--format", "json"))
    settings = json.loads(done.stdout)["settings"]
    assert settings["truncation"] == chosen(X, T)
    (tmp_path / "c.json").write_text('{"truncation": "auto"}')
    table = run("score", *source, "--config", tmp_path / "c.json").stdout.decode()
    assert f"truncation {settings['truncation']}" in table
    kernels = ("--bandwidth-x", 1, "--bandwidth-t", 1)
    refused = run("state", *source, "-o", tmp_path / "s.npz", *kernels, "--truncation", "auto")
    assert refused.returncode == 2
    assert b"--truncation must be a number, the same for all states" in refused.stderr
    wrong = run("score", *source, "--truncation", "half")
    assert wrong.returncode == 2
    assert b"--truncation must be a whole number, or auto; got 'half'." in wrong.stderr


@pytest.mark.parametrize("kind", ["prompts", "outputs", "matrix"])
def test_groups_that_are_alike_do_not_tie_the_number_to_the_order_of_rows(kind):
    """The same ten outputs for each of 40 prompts, and groups of equal size."""
    answers, ids = np.tile(X[:10], (40, 1)), np.repeat(np.arange(40), 10)
    labels = np.repeat(np.arange(4), 25)
    matrix = 0.95 * (labels[:, None] == labels) + 0.05
    found = set()
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(400)
        few = order[order < 100]
        data = {
            "prompts": (answers[order], ids[order], {"kernel_t": dp.Categorical()}),
            "outputs": (labels[few], None, {"kernel_x": dp.Categorical()}),
            "matrix": (matrix[np.ix_(few, few)], None, {"kernel_x": dp.Precomputed()}),
        }
        x, t, kernels = data[kind]
        found.add(chosen(x, t, **kernels))
    assert len(found) == 1


def test_no_truncation_replaces_one_that_is_chosen():
    settings = dp.Settings(truncation="auto")
    result = dp.vendi(X, kernel=dp.Gaussian(1.5), settings=settings, truncation=None)
    assert result.settings.truncation is None
