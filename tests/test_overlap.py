"""Overlap of models: laws on paper, brute force, invariances, and what people see of it."""

import json
import math
from itertools import combinations

import numpy as np
import pandas
import pytest
from cases import LIBRARIES
from scipy.cluster.hierarchy import linkage

import divprism as dp
from divprism.analysis.model_squares import exchanged_members, random_deals
from divprism.errors import ArgumentError, DataError

pytestmark = pytest.mark.usefixtures("one_thread")
ORDERS = [0.5, 1.0, 1.5, 2.0, 3.0, math.inf]
KERNELS = {"kernel_x": dp.Gaussian(0.9), "kernel_t": dp.Gaussian(0.8)}
QUICK = {"num_permutations": 0}


def clouds(seed=0, models=3, prompts=6, each=3):
    """Models on the same prompts that differ in where their outputs are, and how far apart."""
    rng = np.random.default_rng(seed)
    t = np.repeat(rng.standard_normal((prompts, 2)), each, axis=0)
    shape = (prompts * each, 3)
    return {
        f"m{index}": dp.Samples((0.4 + 0.3 * index) * rng.standard_normal(shape) + 0.5 * index, t)
        for index in range(models)
    }


def modes(*numbers, prompts=5):
    """A model whose outputs to each prompt are the given modes, orthogonal to all others."""
    width = 12
    x = np.vstack([np.eye(width)[list(numbers)] for _ in range(prompts)])
    return dp.Samples(x, np.repeat(np.arange(prompts), len(numbers)))


def kernel_matrix(x, bandwidth):
    gaps = ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-gaps / (2 * bandwidth**2))


def by_hand(eigenvalues, order):
    positive = eigenvalues[eigenvalues > 1e-13]
    if order == 1:
        return float(-(positive * np.log(positive)).sum())
    if math.isinf(order):
        return -math.log(positive.max())
    return math.log((positive**order).sum()) / (1 - order)


def definition(models, order):
    """I(X; M | T) = [H(XT) - H(T)] - [H(XTM) - H(TM)] from four matrices of all outputs."""
    x = np.concatenate([samples.outputs for samples in models])
    t = np.concatenate([samples.prompts for samples in models])
    names = np.repeat(np.arange(len(models)), len(models[0].outputs))
    k_t = kernel_matrix(t, 0.8)
    k_xt = kernel_matrix(x, 0.9) * k_t
    same = names[:, None] == names[None, :]
    matrices = {"xt": k_xt, "t": k_t, "xtm": k_xt * same, "tm": k_t * same}
    h = {
        name: by_hand(np.linalg.eigvalsh(matrix / len(x)), order)
        for name, matrix in matrices.items()
    }
    return (h["xt"] - h["t"]) - (h["xtm"] - h["tm"])


@pytest.mark.parametrize("order", ORDERS)
def test_information_is_that_of_the_definition(order):
    """With models as one more variable, compared as ids; four kernel matrices by brute force."""
    models = clouds()
    found = dp.overlap(models, order=order, **KERNELS, **QUICK)
    for first, second in combinations(models, 2):
        expected = definition([models[first], models[second]], order)
        assert found.pair(first, second).information == pytest.approx(expected, abs=1e-9)
    assert found.joint.information == pytest.approx(
        definition(list(models.values()), order), abs=1e-9
    )


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_outputs_have_no_information_and_disjoint_ones_log_m(order):
    models = {"a": modes(0, 1), "b": modes(1, 0), "c": modes(2, 3)}
    found = dp.overlap(models, kernel_x=dp.Cosine(), order=order, **QUICK)
    assert found.pair("b", "a").information == pytest.approx(0, abs=1e-12)
    assert found.pair("a", "c").information == pytest.approx(math.log(2), abs=1e-12)
    assert found.pair("c", "b").new_share == pytest.approx(1, abs=1e-12)
    assert found.alone == pytest.approx(dict.fromkeys(models, 2.0))
    assert found.pair("a", "c").union == pytest.approx(4)
    assert found.pair("a", "c").gain == pytest.approx(2)
    assert found.pairs[0].models == ("a", "b")
    disjoint = {"a": modes(0, 1), "b": modes(4, 5), "c": modes(2, 3)}
    together = dp.overlap(disjoint, kernel_x=dp.Cosine(), order=order, **QUICK).joint
    assert together.factor == pytest.approx(3) and together.new_share == pytest.approx(1)


def test_a_model_with_half_of_its_modes_in_common():
    """Modes 0..3 against 2..5, all orthogonal and of equal weight.

    Order 1: the pool has two modes of weight 1/4 and four of 1/8, so its entropy is
    (log 4 + log 8) / 2, and that of a model log 4: I = log(2) / 2. Order 2: squared norms
    2/16 + 4/64 = 3/16 against 1/4, so I_2 = log(4/3).
    """
    models = {"a": modes(0, 1, 2, 3), "b": modes(2, 3, 4, 5)}
    for order, expected in ((1, math.log(2) / 2), (2, math.log(4 / 3))):
        found = dp.overlap(models, kernel_x=dp.Cosine(), order=order, **QUICK)
        assert found.joint.information == pytest.approx(expected, abs=1e-12)


def test_a_model_that_takes_half_of_its_outputs_from_each_of_two_others():
    models = {"a": modes(0, 1, 2, 3), "b": modes(4, 5, 6, 7), "c": modes(0, 1, 4, 5)}
    found = dp.overlap(models, kernel_x=dp.Cosine(), **QUICK)
    of_mixture = [found.pair(other, "c").information for other in "ab"]
    assert of_mixture == pytest.approx([math.log(2) / 2] * 2)
    # Pool of all: modes 0, 1, 4, 5 of weight 1/6, the four others of 1/12.
    pooled = 2 / 3 * math.log(6) + 1 / 3 * math.log(12)
    assert found.joint.information == pytest.approx(pooled - math.log(4))


@pytest.mark.parametrize("order", [1.0, 2.0, 0.7])
def test_neither_the_order_of_rows_nor_that_of_models_matters(order):
    models = clouds(prompts=6, each=4)
    options = {**KERNELS, "order": order, "num_permutations": 20}
    found = dp.overlap(models, **options)
    rng = np.random.default_rng(1)
    shuffled = {}
    for name in reversed(models):
        rows = rng.permutation(24)
        shuffled[name] = dp.Samples(models[name].outputs[rows], models[name].prompts[rows])
    again = dp.overlap(shuffled, **options)
    for each in found.pairs:
        other = again.pair(*each.models)
        for name in ("information", "low", "high", "chance", "standard_error", "union"):
            assert getattr(other, name) == pytest.approx(getattr(each, name), abs=1e-9), name
        assert other.p_value == each.p_value
    assert again.joint.chance == pytest.approx(found.joint.chance, abs=1e-9)
    assert again.alone == pytest.approx(found.alone)
    ours, theirs = found.prompts(), again.prompts()
    assert [p.excess for p in ours] == pytest.approx([p.excess for p in theirs], abs=1e-9)


def test_containers_and_tables_give_the_same_overlap():
    models = clouds()
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "model": np.repeat(list(models), 18),
            "prompt": np.tile(np.repeat([f"p{i}" for i in range(6)], 3), 3),
            "output": [f"words {i % 7} of {i % 4}" for i in range(54)],
        }
    )
    embed = {"embedder_x": lambda texts: [[len(text), hash_of(text)] for text in texts]}
    options = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Categorical(), **QUICK, "order": 2}
    tables = dp.overlap(frame, **embed, **options)
    rows = frame.sample(frac=1, random_state=0)
    assert dp.overlap(rows, **embed, **options).information.sum() == pytest.approx(
        tables.information.sum()
    )


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_precision_and_array_library_do_not_matter(order, name):
    pytest.importorskip(name)
    library = LIBRARIES[name]
    models = clouds(models=2)
    given = {}
    for model, samples in models.items():
        parts = samples.outputs.astype(np.float32), samples.prompts.astype(np.float32)
        given[model] = dp.Samples(*map(library, parts))
    found, expected = (
        dp.overlap(each, order=order, num_permutations=19, **KERNELS) for each in (given, models)
    )
    # Rounding to single precision moves points by 1e-7 of their size.
    assert found.joint.information == pytest.approx(expected.joint.information, abs=1e-5)
    assert found.joint.p_value == expected.joint.p_value


def hash_of(text):
    return sum(ord(letter) * (1 + place) for place, letter in enumerate(text)) % 17


def test_chance_is_the_mean_over_exchanges_that_can_be_counted():
    """Two outputs of each of two models to a prompt: of the 4! deals to them 3 differ.

    With all outputs different, each prompt is independent, and at order 2 the mean of the sum
    inside models over all exchanges is known in closed form; enumerating three prompts checks it.
    """
    models = clouds(models=2, prompts=3, each=2)
    found = dp.overlap(models, order=2, num_permutations=5, **KERNELS)
    x = np.concatenate([samples.outputs for samples in models.values()])
    t = np.concatenate([samples.prompts for samples in models.values()])
    squares = (kernel_matrix(x, 0.9) * kernel_matrix(t, 0.8)) ** 2
    prompt = np.tile(np.repeat(np.arange(3), 2), 2)
    sums = []
    splits = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for choice in np.ndindex(6, 6, 6):
        signs = -np.ones(12)
        for number, split in enumerate(choice):
            signs[np.flatnonzero(prompt == number)[list(splits[split])]] = 1
        sums.append((squares.sum() + signs @ squares @ signs) / 2)
    expected = math.log(2 * np.mean(sums) / squares.sum())
    assert found.joint.chance == pytest.approx(expected, abs=1e-12)


def test_exchanges_keep_prompts_and_numbers_of_outputs():
    from divprism.analysis.matched_models import matched_models
    from divprism.analysis.model_squares import model_squares
    from divprism.analysis.model_states import ModelStates
    from divprism.data.readers.fields import Fields
    from divprism.engines import RESOURCES

    settings = dp.Settings(**KERNELS, order=2)
    columns = Fields(None, None, None, suffix="")
    kept = matched_models(clouds(), settings, RESOURCES, columns)
    states = ModelStates.of(kept, kept.settings, RESOURCES)
    dealt = exchanged_members(states, (0, 2), random_deals(states, 2, 4))
    for exchange in range(4):
        for prompt in range(6):
            given = dealt[:, states.prompts == prompt, exchange]
            assert np.bincount(given.ravel()).tolist() == [3, 3]
    # The sums under these exchanges, by brute force.
    squares = model_squares(states, 4)
    x = np.concatenate([part.outputs for part in kept.embedded.values()])
    t = np.concatenate([part.prompts for part in kept.embedded.values()])
    table = (kernel_matrix(x, 0.9) * kernel_matrix(t, 0.8)) ** 2
    everyone = exchanged_members(states, range(3), random_deals(states, 3, 4))
    for exchange in range(4):
        for members, given in (((0, 2), dealt), ((0, 1, 2), everyone)):
            rows = states.rows[list(members)].ravel()
            label = given[:, :, exchange].ravel()
            same = label[:, None] == label[None, :]
            expected = table[np.ix_(rows, rows)][same].sum()
            assert squares.exchanges_of(members)[exchange] == pytest.approx(expected)
    without = squares.without_prompts()
    keep = states.prompts != 2
    left = states.rows[0][keep], states.rows[2][keep]
    assert without[2, 0, 2] == pytest.approx(table[np.ix_(*left)].sum())


def test_p_values_are_uniform_for_samples_of_one_model_and_small_for_others():
    """80 pairs of samples of one model: p at most 0.2 in about a fifth of them, by a binomial."""
    p_values, excesses = [], []
    t = np.repeat(np.arange(6), 5)
    centres = np.random.default_rng(0).standard_normal((6, 2))[t]
    for seed in range(80):
        rng = np.random.default_rng(seed)
        one, two = (centres + 0.5 * rng.standard_normal((30, 2)) for _ in range(2))
        models = {"one": dp.Samples(one, t), "two": dp.Samples(two, t)}
        found = dp.overlap(models, kernel_x=dp.Gaussian(0.6), order=2, num_permutations=19)
        p_values.append(found.joint.p_value)
        excesses.append(found.joint.excess)
    # Mean 16 and standard deviation 3.6.
    assert 6 <= np.sum(np.array(p_values) <= 0.2) <= 27
    # The excess of one model is zero on average, by its own spread.
    assert abs(np.mean(excesses)) < 3 * np.std(excesses) / math.sqrt(80)
    models["two"] = dp.Samples(two + 1.0, t)
    apart = dp.overlap(models, kernel_x=dp.Gaussian(0.6), order=2)
    assert apart.joint.p_value == 0.01 and apart.joint.excess > 0.1


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_the_error_is_the_spread_over_samples_of_prompts(order):
    """60 samples of 25 prompts: the stated error is within a third of their spread."""
    values, errors = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        spread = np.repeat(rng.uniform(0.1, 1.5, 25), 3)[:, None]
        t = np.repeat(np.arange(25), 3)
        models = {
            name: dp.Samples(shift * spread + spread * rng.standard_normal((75, 2)), t)
            for name, shift in (("a", 0.0), ("b", 1.0))
        }
        found = dp.overlap(models, kernel_x=dp.Gaussian(0.7), order=order, **QUICK).joint
        values.append(found.information)
        errors.append(found.standard_error)
    # The spread of 60 values is known to 9 %, and errors are estimates themselves.
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.33)


def test_a_subset_of_the_prompts_has_the_errors_of_all(monkeypatch):
    models = clouds(models=2, prompts=40, each=3)
    options = {**KERNELS, **QUICK}
    whole = dp.overlap(models, **options).joint.standard_error
    monkeypatch.setattr("divprism.analysis.overlap_errors._MOST_OUTPUTS", 120)
    part = dp.overlap(models, **options).joint.standard_error
    # Twenty prompts in place of forty: their spread is known to 16 %.
    assert part == pytest.approx(whole, rel=0.4) and part != whole


def test_prompts_on_which_models_differ_come_first():
    """Models agree on all prompts but the third, where they have nothing in common."""
    t = np.repeat(np.arange(5), 4)
    x = np.eye(12)[np.tile([0, 0, 1, 1], 5)]
    other = x.copy()
    other[t == 2] = np.eye(12)[[5, 5, 6, 6]]
    models = {"a": dp.Samples(x, t), "b": dp.Samples(other, t)}
    found = dp.overlap(models, kernel_x=dp.Cosine(), **QUICK)
    ranked = found.prompts("b", "a")
    assert ranked[0].prompt["id"] == "2"
    assert ranked[0].information == pytest.approx(math.log(2))
    assert ranked[-1].information == pytest.approx(0, abs=1e-12)
    # Each of the five prompts has a fifth of the weight.
    assert found.joint.information == pytest.approx(math.log(2) / 5)


def test_homogeneity_is_the_mean_similarity_by_brute_force():
    models = clouds(models=2)
    found = dp.overlap(models, **KERNELS, **QUICK).homogeneity
    x, y = (samples.outputs for samples in models.values())
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    between, within = [], []
    for start in range(0, 18, 3):
        rows = slice(start, start + 3)
        between.append((unit[0][rows] @ unit[1][rows].T).mean())
        own = unit[0][rows] @ unit[0][rows].T
        within.append((own.sum() - 3) / 6)
    assert found.cosine[0, 1] == pytest.approx(np.mean(between))
    assert found.cosine[0, 0] == pytest.approx(np.mean(within))
    k = kernel_matrix(np.concatenate([x, y]), 0.9)
    blocks = [k[start : start + 3, 18 + start : 21 + start].mean() for start in range(0, 18, 3)]
    assert found.kernel[0, 1] == pytest.approx(np.mean(blocks))


def test_one_output_per_prompt_has_no_similarity_within_a_model():
    models = clouds(models=2, each=1)
    found = dp.overlap(models, **KERNELS, **QUICK)
    assert found.to_dict()["homogeneity"]["cosine"]["within_a_model"] is None
    assert found.prompts() == ()
    json.loads(found.to_json(), parse_constant=pytest.fail)


def test_the_tree_is_that_of_average_linkage():
    found = dp.overlap(clouds(models=4), **KERNELS, num_permutations=9)
    matrix = found.excess
    matrix[matrix < 0] = 0
    expected = linkage(matrix[np.triu_indices(4, 1)], method="average")
    assert np.allclose(found.tree(), expected)
    assert np.allclose(found.distances, found.distances.T)


def test_the_settings_of_a_result_give_it_again():
    models = clouds()
    found = dp.overlap(models, order=2, num_permutations=9)
    again = dp.overlap(models, settings=found.settings)
    assert again.pairs == found.pairs and again.settings.num_permutations == 9


def test_few_prompts_have_no_interval_and_say_so():
    found = dp.overlap(clouds(prompts=4), **KERNELS, **QUICK)
    assert found.joint.low is None and found.joint.standard_error is None
    assert [notice.code for notice in found.warnings] == ["too-few-for-interval"]


REFUSED = [
    (lambda m: dp.overlap(m, truncation=5), ArgumentError, "got truncation 5. Leave out"),
    (lambda m: dp.overlap(m, truncation="auto"), ArgumentError, "got truncation auto"),
    (lambda m: dp.compare(m, overlap=True, truncation=5), ArgumentError, "got truncation 5"),
    (lambda m: dp.overlap(m, kernel_x=dp.Precomputed()), ArgumentError, "is Precomputed"),
    (lambda m: dp.overlap({"m0": m["m0"]}), DataError, "at least two models; got 1"),
    (lambda m: dp.overlap(m, **KERNELS).pair("m0", "m0"), ArgumentError, "two of the models 'm0'"),
    (lambda m: dp.overlap(m, **KERNELS).prompts("m0"), ArgumentError, "at least two of 'm0'"),
    (lambda m: dp.overlap(m, **KERNELS).prompts("m0", "x"), ArgumentError, "at least two of"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_bad_arguments_get_one_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call(clouds())


def test_a_comparison_has_overlap_only_if_asked():
    models = clouds()
    plain = dp.compare(models, **KERNELS, num_permutations=0)
    assert plain.overlap is None and "overlap" not in plain.to_dict()
    asked = dp.compare(models, overlap=True, **KERNELS, num_permutations=0)
    assert asked.overlap is not None
    document = asked.to_dict()
    alone = document.pop("overlap")
    assert alone["joint"]["factor"] == asked.overlap.joint.factor
    for part in (document, reference := plain.to_dict()):
        for model in part["models"].values():
            model.pop("runtime")
    assert document == reference
    # The conditional scores of the comparison are those of each model alone.
    for name, result in asked.results.items():
        assert asked.overlap.alone[name] == pytest.approx(float(result.conditional_vendi))


def on_one_line(result):
    return " ".join(repr(result).split())


def test_tables_name_the_closest_models():
    models = {"a": modes(0, 1, 0, 1), "b": modes(0, 1, 1, 0), "c": modes(4, 5, 4, 5)}
    found = dp.overlap(models, kernel_x=dp.Cosine(), order=2)
    text = on_one_line(found)
    assert "a and b overlap most: together they count as 1.00 models of 2" in text
    assert "c overlap least" in text
    without = on_one_line(dp.overlap(models, kernel_x=dp.Cosine(), **QUICK))
    assert "by chance" not in without and "count as 2.00 models of 2" in without
    two = on_one_line(dp.overlap({name: models[name] for name in "ab"}, kernel_x=dp.Cosine()))
    assert "they may be the same model" in two
    many = {f"m{i}": modes(i % 6, 6 + i % 5) for i in range(9)}
    table = on_one_line(dp.overlap(many, kernel_x=dp.Cosine(), order=2))
    assert "not shown: 26 pairs" in table
    frame = found.to_frame()
    assert len(frame) == 3 and "counts_as" in frame.columns
    assert "<table" in found._repr_html_()


def test_the_page_shows_a_heat_map_and_a_tree_and_checks_what_it_reads():
    from divprism.report.page import report_page

    models = {name: clouds()[key] for name, key in (("<b>x", "m0"), ("y", "m1"), ("$z$", "m2"))}
    document = dp.compare(models, overlap=True, **KERNELS, order=2).to_dict()
    page = report_page(document)
    assert "Heat map: as how many models" in page and "Tree of the models" in page
    assert "overlap most: together they count as" in page and "<b>x" not in page
    figure, _ = dp.overlap(models, **KERNELS, **QUICK).plot()
    assert len(figure.axes) == 2
    changes = [
        (["joint", "factor"], -1.0, "overlap.joint.factor"),
        (["pairs", 0, "models"], ["y", "y"], "two models of the result"),
        (["pairs", 0, "models"], ["y", "q"], "two models of the result"),
        (["pairs", 1, "models"], list(document["overlap"]["pairs"][0]["models"]), "occurs once"),
        (["models"], ["y", "y", "$z$"], "the models of the result"),
        (["alone"], {"y": 1.0}, "a score for each model"),
        (["pairs", 0, "chance"], None, "given together"),
        (["prompts", "most_apart"], [{"prompt": {"row": -1}}], "a whole number"),
    ]
    for path, value, message in changes:
        changed = json.loads(json.dumps(document))
        part = changed["overlap"]
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        with pytest.raises(DataError, match=message):
            report_page(changed)


def test_the_command_prints_a_second_table(tmp_path):
    from typer.testing import CliRunner

    from divprism.cli import app

    rows = []
    for name, samples in clouds(prompts=5).items():
        for x, t in zip(samples.outputs, samples.prompts, strict=True):
            rows.append({"model": name, "output": x.tolist(), "prompt": t.tolist()})
    file = tmp_path / "m.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ["compare", str(file), "--overlap", "--order", "2", "-q"]
    shown = CliRunner().invoke(app, common)
    assert shown.exit_code == 0 and "Overlap of 3 models on 5 prompts" in shown.output
    as_json = CliRunner().invoke(app, [*common, "--format", "json"])
    assert json.loads(as_json.stdout)["overlap"]["joint"]["counts_as"] >= 1


def test_prompts_without_a_name_are_rows_of_the_source_of_the_first_model():
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((6, 2)), 2, axis=0)
    kernels = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(1.0)}
    # The second model has no outputs to the first two prompts.
    models = {
        "a": dp.Samples(rng.standard_normal((12, 3)), t),
        "b": dp.Samples(rng.standard_normal((8, 3)), t[4:]),
    }
    shared = dp.overlap(models, num_permutations=0, **kernels)
    assert {label["row"] for label in shared.labels} == {4, 6, 8, 10}
    mixed = dp.mixture(models, per_group="prompt", num_permutations=0, **kernels)
    assert {group.group for group in mixed.per_group} == {"row 4", "row 6", "row 8", "row 10"}
    for label in shared.labels:
        alone = {name: _with_prompt(each, t[label["row"]]) for name, each in models.items()}
        [group] = [each for each in mixed.per_group if each.group == f"row {label['row']}"]
        again = dp.mixture(alone, num_permutations=0, **kernels)
        assert again.score == pytest.approx(group.score, rel=1e-5)


@pytest.mark.parametrize("order", [1, 2])
def test_texts_that_share_a_vector_are_different_prompts(order):
    """As if their vectors differed by next to nothing."""
    texts = [f"p{number}" for number in range(8)]
    rng = np.random.default_rng(3)
    table = pandas.DataFrame(
        {
            "prompt": texts * 6,
            "output": [str(value) for value in rng.integers(0, 9, 48)],
            "model": ["m"] * 24 + ["k"] * 24,
        }
    )
    found = []
    for apart in (0.0, 1e-7):
        options = {
            "embedder_x": lambda outputs: np.array([[float(each), 1.0] for each in outputs]),
            "embedder_t": lambda prompts, apart=apart: np.array(
                [[int(each[1]) // 2 + apart * int(each[1]), 1.0] for each in prompts]
            ),
            "kernel_x": dp.Gaussian(1.0),
            "kernel_t": dp.Gaussian(1.0),
            "num_permutations": 0,
            "order": order,
            "cache": False,
        }
        shared = dp.overlap(table, **options)
        assert {label["text"] for label in shared.labels} == set(texts)
        joint = shared.joint
        found.append((joint.information, joint.standard_error, joint.low, joint.high))
        groups = {text: str(int(text[1]) % 2) for text in texts}
        mixed = dp.mixture(table, per_group=groups, **options)
        assert [(part.group, part.num_prompts) for part in mixed.per_group] == [("0", 4), ("1", 4)]
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def _with_prompt(samples, prompt):
    return samples.select(np.flatnonzero((samples.prompts == prompt).all(axis=1)))
