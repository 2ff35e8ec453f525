"""Quality beside diversity: laws on paper, containers, readers, refusals, and the command line."""

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import divprism as dp
from divprism.cli import app
from divprism.embedders.embedding import save_embedded
from divprism.testing import assert_diverse

COSINE = {"kernel_x": dp.Cosine()}
KERNELS = {"kernel_x": dp.Gaussian(1.5), "kernel_t": dp.Gaussian(1.0)}
PRODUCTS = {"quality_vendi": "vendi", "quality_conditional_vendi": "conditional_vendi"}


def pairs(n=40, rng=0):
    rng = np.random.default_rng(rng)
    return rng.standard_normal((n, 3)), np.repeat(rng.standard_normal((n // 2, 2)), 2, axis=0)


def quality_of(n=40, rng=1):
    return np.random.default_rng(rng).uniform(0, 1, n)


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, math.inf])
def test_a_product_is_the_mean_quality_times_the_score(order):
    q = quality_of()
    found = dp.evaluate(*pairs(), quality=q, order=order, **KERNELS)
    assert found.quality == pytest.approx(q.mean(), rel=1e-12)
    for product, score in PRODUCTS.items():
        expected = q.mean() * found.scores[score]
        assert found.scores[product] == pytest.approx(expected, rel=1e-12)


@given(st.floats(1e-6, 1e6))
@settings(max_examples=20)
def test_one_quality_for_all_multiplies_the_score_by_it(quality):
    found = dp.evaluate(np.eye(6), np.arange(6) // 2, quality=[quality] * 6, **COSINE)
    assert found.quality == pytest.approx(quality)
    assert found.quality_vendi == pytest.approx(6 * quality)
    assert found.quality_conditional_vendi == pytest.approx(2 * quality)


@given(st.floats(1e-3, 1e3))
@settings(max_examples=10)
def test_a_change_of_scale_scales_the_score_and_its_interval(factor):
    x, t = pairs()
    given = {"interval": 0.95, "num_permutations": 0, **KERNELS}
    one = dp.evaluate(x, t, quality=quality_of(), **given)
    other = dp.evaluate(x, t, quality=factor * quality_of(), **given)
    for name in ("quality", *PRODUCTS):
        assert other.scores[name] == pytest.approx(factor * one.scores[name], rel=1e-9)
        for end in ("low", "high"):
            expected = factor * getattr(one.intervals[name], end)
            assert getattr(other.intervals[name], end) == pytest.approx(expected, rel=1e-6)


def test_an_output_of_quality_zero_counts_as_an_output_but_has_no_mass():
    """Four different outputs, one of them useless: known on paper in both readings."""
    q = np.array([1.0, 1.0, 1.0, 0.0])
    mean = dp.quality_vendi(np.eye(4), q, kernel=dp.Cosine())
    assert mean == pytest.approx(0.75 * 4)
    masses = dp.vendi(np.eye(4), kernel=dp.Cosine(), weights=q / q.sum())
    assert masses == pytest.approx(3)
    # A useless copy lowers the first reading, and leaves the second as it is.
    x = np.eye(4)[[0, 1, 2, 2]]
    assert dp.quality_vendi(x, q, kernel=dp.Cosine()) < 0.75 * 3
    masses = dp.vendi(x, kernel=dp.Cosine(), weights=q / q.sum())
    assert masses == pytest.approx(3)


def test_masses_do_not_see_the_scale_of_the_quality():
    q = quality_of()
    weights = [scale * q / (scale * q).sum() for scale in (1.0, 10.0)]
    one, other = (dp.vendi(pairs()[0], kernel=dp.Gaussian(1.5), weights=w) for w in weights)
    assert one == pytest.approx(other)
    equal = np.full(40, 1 / 40)
    assert dp.vendi(pairs()[0], kernel=dp.Gaussian(1.5), weights=equal) == pytest.approx(
        dp.vendi(pairs()[0], kernel=dp.Gaussian(1.5))
    )


def test_weights_weigh_the_mean_quality_too():
    weights = np.array([0.5, 0.5, 0.0, 0.0])
    found = dp.evaluate(
        np.eye(4), [0, 0, 1, 1], quality=[1.0, 3.0, 9.0, 9.0], weights=weights, **COSINE
    )
    assert found.quality == pytest.approx(2)
    assert found.quality_vendi == pytest.approx(4)


def test_the_functions_agree_with_evaluate():
    x, t = pairs()
    q = quality_of()
    found = dp.evaluate(x, t, quality=q, **KERNELS)
    alone = dp.quality_conditional_vendi(x, t, q, **KERNELS)
    assert alone == pytest.approx(found.quality_conditional_vendi, rel=1e-12)
    assert alone.prompt_kinds == pytest.approx(found.prompt_vendi)
    alone = dp.quality_vendi(x, q, kernel=KERNELS["kernel_x"])
    assert alone == pytest.approx(found.quality_vendi, rel=1e-12)


def test_other_scores_and_the_hash_without_quality_stay_the_same():
    plain = dp.evaluate(*pairs(), interval=0.95, **KERNELS)
    rated = dp.evaluate(*pairs(), interval=0.95, quality=quality_of(), **KERNELS)
    for name, score in plain.scores.items():
        assert rated.scores[name] == score
    assert "quality" not in plain.scores and plain.quality is None
    assert plain.data["hash"] != rated.data["hash"]
    again = dp.evaluate(*pairs(), quality=1 - quality_of(), **KERNELS)
    assert again.data["hash"] != rated.data["hash"]


def test_the_interval_of_the_mean_is_that_of_the_mean():
    """The closed form is the error of a mean over independent units, known on paper."""
    q, n = quality_of(200), 200
    x = np.random.default_rng(3).standard_normal((n, 2))
    found = dp.evaluate(x, quality=q, interval=0.95, kernel_x=dp.Gaussian(1.0))
    assert found.intervals["quality"].standard_error == pytest.approx(
        q.std(ddof=1) / math.sqrt(n), rel=1e-9
    )
    # Of prompts with all their outputs: the mean over prompts.
    t = np.repeat(np.arange(100), 2)
    found = dp.evaluate(x, t, quality=q, interval=0.95, kernel_x=dp.Gaussian(1.0))
    means = q.reshape(100, 2).mean(axis=1)
    assert found.intervals["quality"].unit == "prompt"
    assert found.intervals["quality"].standard_error == pytest.approx(
        means.std(ddof=1) / 10, rel=1e-9
    )


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_errors_of_the_product_add_on_the_log_scale(order):
    """Independent quality and diversity: the squares of the relative errors add up."""
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((400, 2)), np.repeat(np.arange(200), 2)
    given = {"interval": 0.95, "order": order, "num_permutations": 0}
    found = dp.evaluate(x, t, quality=rng.uniform(0, 1, 400), kernel_x=dp.Gaussian(1.0), **given)
    relative = {
        name: found.intervals[name].standard_error / found.scores[name]
        for name in ("quality", "conditional_vendi", "quality_conditional_vendi")
    }
    expected = math.hypot(relative["quality"], relative["conditional_vendi"])
    # Estimated from twenty groups: the correlation of the two has an error of its own.
    assert relative["quality_conditional_vendi"] == pytest.approx(expected, rel=0.35)


def test_a_quality_that_does_not_vary_adds_no_error():
    found = dp.evaluate(*pairs(), quality=np.full(40, 0.5), interval=0.95, **KERNELS)
    interval = found.intervals["quality"]
    assert (interval.low, interval.high) == (0.5, 0.5)
    of_score = found.intervals["conditional_vendi"]
    of_product = found.intervals["quality_conditional_vendi"]
    assert 2 * of_product.standard_error == pytest.approx(of_score.standard_error, rel=1e-6)


def test_intervals_exist_where_one_output_alone_is_good():
    q = np.zeros(40)
    q[7] = 1.0
    found = dp.evaluate(*pairs(), quality=q, interval=0.95, **KERNELS)
    assert found.quality == pytest.approx(1 / 40)
    assert found.intervals["quality_vendi"].high < math.inf
    json.loads(found.to_json())


def test_the_order_of_rows_does_not_matter():
    x, t = pairs()
    q, order = quality_of(), np.random.default_rng(5).permutation(40)
    one = dp.evaluate(x, t, quality=q, interval=0.95, **KERNELS)
    other = dp.evaluate(x[order], t[order], quality=q[order], interval=0.95, **KERNELS)
    for name in ("quality", *PRODUCTS):
        assert other.scores[name] == pytest.approx(one.scores[name])
        assert other.intervals[name].low == pytest.approx(one.intervals[name].low)


def test_the_mean_of_scores_lies_in_its_interval():
    """Quality differs by prompt, so pairs of a prompt are not independent: 19 of 20 cover."""
    hits = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        q = np.clip(np.repeat(rng.normal(1, 0.3, 30), 2) + rng.normal(0, 0.1, 60), 0, None)
        x = rng.standard_normal((60, 2))
        found = dp.evaluate(
            x,
            np.repeat(np.arange(30), 2),
            quality=q,
            interval=0.95,
            order=2,
            num_permutations=0,
            kernel_x=dp.Gaussian(1.0),
        )
        hits += found.intervals["quality"].low <= 1 <= found.intervals["quality"].high
    assert 88 <= hits <= 99


CONTAINERS = {
    "array": np.asarray,
    "list": list,
    "tuple": tuple,
    "pandas": pd.Series,
    "polars": pl.Series,
    "single": lambda q: np.asarray(q, np.float32).astype(float),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_same_answer(container):
    q = np.arange(40) / 64
    found = dp.evaluate(*pairs(), quality=CONTAINERS[container](q), **KERNELS)
    assert found.quality == dp.evaluate(*pairs(), quality=q, **KERNELS).quality


def rows(n=24):
    table = []
    for row in range(n):
        answer = {"prompt": f"question {row // 2}", "output": f"answer {row % 5} of {row // 3}"}
        table.append({"model": "ab"[row % 2 == 0], **answer, "stars": (row % 4) / 2})
    return table


FRAMES = {"list of dicts": list, "pandas": pd.DataFrame, "polars": pl.DataFrame}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_column_of_a_table_is_the_quality(kind):
    table = FRAMES[kind](rows())
    found = dp.evaluate(table, model="model", quality="stars")
    for name, result in found.items():
        stars = [row["stars"] for row in rows() if row["model"] == name]
        assert result.quality == pytest.approx(np.mean(stars))


def test_a_function_gets_outputs_and_prompts():
    seen = []

    def length(outputs, prompts):
        seen.append((outputs, prompts))
        return [len(text) for text in outputs]

    texts = [row["output"] for row in rows()]
    prompts = [row["prompt"] for row in rows()]
    found = dp.evaluate(texts, prompts, quality=length)
    assert seen == [(texts, prompts)]
    assert found.quality == pytest.approx(np.mean([len(text) for text in texts]))
    both = dp.evaluate_models(rows(), quality=length)
    assert len(seen) == 2 and set(both) == {"a", "b"}
    x, t = pairs()
    found = dp.evaluate(x, t, quality=lambda x, t: np.abs(x[:, 0]), **KERNELS)
    assert found.quality == pytest.approx(np.abs(x[:, 0]).mean())


def write(path, table):
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return str(path)


def test_files_are_read_with_a_field_of_quality(tmp_path):
    path = write(tmp_path / "rated.jsonl", rows())
    samples = dp.load(path, quality_field="stars")
    assert samples.quality.tolist() == [row["stars"] for row in rows()]
    assert any("quality from 'stars'" in str(note) for note in samples.notes)
    assert dp.load(path).quality is None
    pd.DataFrame(rows()).to_csv(tmp_path / "rated.csv", index=False)
    from_csv = dp.load(tmp_path / "rated.csv", quality_field="stars")
    assert from_csv.quality.tolist() == samples.quality.tolist()
    assert samples.to_frame()["quality"].tolist() == samples.quality.tolist()
    assert samples.select([3, 0]).quality.tolist() == [samples.quality[3], samples.quality[0]]
    found = dp.evaluate_models(path, quality="stars")
    assert found["a"].quality == pytest.approx(samples.by_model()["a"].quality.mean())


def test_a_record_of_several_outputs_has_a_quality_for_each_or_one_for_all(tmp_path):
    table = [
        {"prompt": "p", "output": ["one", "two"], "judge": {"score": [1, 0.5]}},
        {"prompt": "q", "output": ["three", "four"], "judge": {"score": True}},
    ]
    samples = dp.load(write(tmp_path / "a.jsonl", table), quality_field="judge.score")
    assert samples.quality.tolist() == [1, 0.5, 1, 1]
    table[0]["judge"]["score"] = [1, 2, 3]
    with pytest.raises(dp.DataError, match=r"line 1 of .* has 3 qualities for 2 outputs, in the "):
        dp.load(write(tmp_path / "b.jsonl", table), quality_field="judge.score")


def test_empty_outputs_leave_with_their_quality(tmp_path):
    table = rows()
    table[5]["output"] = " "
    samples = dp.load(write(tmp_path / "a.jsonl", table), quality_field="stars")
    assert len(samples) == len(samples.quality) == 23
    assert samples.quality[5] == table[6]["stars"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "no quality"),
        ("", "no quality"),
        ("good", "a quality that is no number, good"),
        (-1, "a quality of -1, which must be finite and at least 0"),
        (1e300, r"a quality of 1e\+300, which must be at most 1e\+09"),
        ("inf", "a quality of inf, which must be finite"),
        ({"score": 1}, "a quality that is no number"),
    ],
)
def test_bad_qualities_are_refused_with_their_line(tmp_path, value, problem):
    table = rows()
    table[2]["stars"] = value
    where = rf"line 3 of .* has {problem}.*in the field 'stars'.*`quality_field`"
    with pytest.raises(dp.DataError, match=where):
        dp.load(write(tmp_path / "a.jsonl", table), quality_field="stars")
    with pytest.raises(dp.DataError, match=rf"row 2 of .* has {problem}.*in the column 'stars'"):
        dp.evaluate(table, quality="stars")


def test_a_record_without_a_quality_may_be_left_out():
    table = [*rows()[:2], {**rows()[2], "stars": None}]
    way_out = "; add it, leave the record out, or name another column with `quality`"
    with pytest.raises(dp.DataError, match=way_out):
        dp.evaluate(table, quality="stars")


X = np.eye(4)
REFUSED = [
    ([1, 2, 3], r"`quality` must have one number per output, shape \(4,\); got shape \(3,\)"),
    ([1, 2, -3, 4], r"`quality` must be finite and not negative; entry 2 is -3.0"),
    ([1, 2, math.nan, 4], r"`quality` must be finite and not negative; entry 2 is nan"),
    ([1, None, 2, 3], r"`quality` must hold a real number for each output; entry 1 is missing"),
    (["a", "b", "c", "d"], r"`quality` must hold a real number for each output; got dtype <U1"),
    ([0, 0, 0, 0], r"`quality` is 0 for every output, so every score with it would be 0"),
    ([1e308] * 4, r"`quality` must be at most 1e\+09; entry 0 is 1e\+308. Divide all qualities"),
    ([5e-324] * 4, r"`quality` must have a mean of at least 1e-100, and the largest is 4.9"),
    ("stars", r"`quality` names a column of a table or file, but `x` is a numpy.ndarray"),
    (
        "https://example.com/score",
        r"`quality` is a URL, which names no model: pass dp.Judge",
    ),
    (lambda x, t: None, r"the function `quality` returned None"),
    (lambda x, t: [1.0], r"`quality` must have one number per output, shape \(4,\); got shape"),
]


@pytest.mark.parametrize(("quality", "message"), REFUSED)
def test_bad_qualities_are_refused_in_one_sentence(quality, message):
    with pytest.raises((dp.DataError, dp.ArgumentError), match=message):
        dp.evaluate(X, [0, 0, 1, 1], quality=quality, **COSINE)


def test_the_error_of_a_product_with_a_constant_is_that_of_the_quality():
    # All outputs are equal, so the product is the quality. Of 200 outputs per prompt the jackknife
    # of entropies uses 25.
    t = np.repeat(np.arange(20), 200)
    q = np.random.default_rng(0).uniform(0, 1, t.size)
    found = dp.evaluate(
        np.ones((t.size, 1)),
        t,
        quality=q,
        interval=0.95,
        unit="prompt",
        num_permutations=0,
        **COSINE,
    )
    product, alone = found.intervals["quality_conditional_vendi"], found.intervals["quality"]
    assert product.standard_error == pytest.approx(alone.standard_error)


def test_a_model_of_quality_0_is_refused_by_its_name():
    x, t = np.eye(8), np.repeat([0, 1], 4)
    good, bad = dp.Samples(x, t, quality=np.ones(8)), dp.Samples(x, t, quality=np.zeros(8))
    pattern = r"all 8 outputs of the model 'bad' that would be scored have quality 0"
    with pytest.raises(dp.DataError, match=pattern):
        dp.compare({"good": good, "bad": bad}, **COSINE)
    names = ["good", "bad"] * 4
    both = dp.Samples(x, t, names, quality=np.tile([1, 0], 4))
    with pytest.raises(dp.DataError, match=r"all 4 outputs of the model 'bad'"):
        dp.evaluate_models(both, **COSINE)


def test_quality_that_no_longer_fits_is_refused():
    with pytest.raises(dp.DataError, match="1 output is empty and left out, so `quality` does not"):
        dp.evaluate(["a b", " ", "c d"], ["p", "p", "q"], quality=[1, 2, 3])
    with pytest.raises(dp.ArgumentError, match="quality_vendi needs the quality of each output"):
        dp.quality_vendi(X, None)


def test_arrays_have_no_field_of_quality(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(dp.ArgumentError, match=r"`quality_field` names a field, but .* has none"):
        dp.load(tmp_path / "x.npy", quality_field="stars")


def test_models_are_compared_with_the_quality_of_the_outputs_that_are_compared(tmp_path):
    path = write(tmp_path / "rated.jsonl", rows(80))
    compared = dp.compare(path, quality="stars", by="quality_conditional_vendi")
    assert compared.score == "quality_conditional_vendi"
    for model, result in compared.results.items():
        stars = [row["stars"] for row in rows(80) if row["model"] == model]
        assert result.quality == pytest.approx(np.mean(stars))
    first, second = compared.results.values()
    ratio = first.quality_conditional_vendi / second.quality_conditional_vendi
    assert compared.differences[0].ratio == pytest.approx(ratio)


def halves():
    x, t = np.eye(40), np.repeat(np.arange(20), 2)
    return {"one": dp.Samples(x, t), "two": dp.Samples(x[t], t)}


def test_the_quality_of_a_mapping_of_models_is_a_mapping():
    ones, twos = np.linspace(0, 1, 40), np.linspace(1, 2, 40)
    compared = dp.compare(halves(), quality={"one": ones, "two": twos}, **COSINE)
    assert compared.results["two"].quality == pytest.approx(1.5)
    with pytest.raises(dp.ArgumentError, match="must be a mapping with the names of `models`"):
        dp.compare(halves(), quality=ones, **COSINE)
    with pytest.raises(dp.ArgumentError, match="same names as `models`; only one of them has"):
        dp.compare(halves(), quality={"one": ones}, **COSINE)
    part = {**halves(), "one": dp.Samples(np.eye(40), halves()["one"].prompts, quality=ones)}
    with pytest.raises(dp.DataError, match="the outputs of 'two' have no quality, and those of"):
        dp.compare(part, **COSINE)
    with pytest.raises(dp.ArgumentError, match="quality_vendi needs a quality of each output"):
        dp.compare(halves(), by="quality_vendi", **COSINE)


def test_vectors_are_saved_and_read_with_their_quality(tmp_path):
    x, t = pairs()
    samples = dp.Samples(x, t, quality=quality_of())
    save_embedded(tmp_path / "vectors", samples, samples)
    again = dp.load(tmp_path / "vectors")
    assert again.quality.tolist() == samples.quality.tolist()


def test_outputs_that_are_left_out_of_a_comparison_do_not_change_the_mean_quality():
    # All outputs of a prompt are equal, and rated 0 or 1 by chance: `many` has more of them.
    rng = np.random.default_rng(0)
    models = {}
    for name, count in (("many", 6), ("few", 3)):
        t = np.repeat(np.arange(200), count)
        models[name] = dp.Samples(np.eye(200)[t], t, quality=rng.integers(0, 2, t.size))
    comparison = dp.compare(models, interval=None, **COSINE)
    # 600 of 1,200 draws without replacement: four standard errors of their mean.
    mean = models["many"].quality.mean()
    assert abs(comparison.results["many"].quality - mean) < 4 * 0.5 / math.sqrt(1200)
    assert comparison.results["few"].quality == pytest.approx(models["few"].quality.mean())


def test_equal_outputs_of_other_quality_are_kept_whatever_the_order_of_rows():
    x, t = np.eye(20)[np.repeat(np.arange(20), 2)], np.repeat(np.arange(20), 2)
    q = np.tile([0.2, 0.8], 20)
    once = dp.Samples(np.eye(20), np.arange(20), quality=np.ones(20))
    found = []
    for rows in (np.arange(40), np.arange(40)[::-1]):
        more = dp.Samples(x[rows], t[rows], quality=q[rows])
        compared = dp.compare({"once": once, "more": more}, num_permutations=0, **COSINE)
        found.append(compared.results["more"].quality)
    assert found[0] == found[1]
    # Neither the worse nor the better one of each prompt.
    assert 0.3 < found[0] < 0.7


def test_a_test_of_diversity_takes_the_quality():
    x, t = np.eye(40), np.repeat(np.arange(20), 2)
    assert_diverse(x, t, quality=np.ones(40), quality_conditional_vendi=1.9, **COSINE)
    with pytest.raises(AssertionError, match=r"quality_conditional_vendi is 1 .*below the limit"):
        assert_diverse(x, t, quality=np.full(40, 0.5), quality_conditional_vendi=1.9, **COSINE)
    with pytest.raises(dp.ArgumentError, match=r"needs .*a quality of each output"):
        assert_diverse(x, t, quality_conditional_vendi=1.9, **COSINE)


def test_commands_without_quality_have_no_such_flag(tmp_path):
    path = write(tmp_path / "rated.jsonl", rows())
    for command in ("converge", "groups", "bandwidth"):
        ended = CliRunner().invoke(app, [command, path, "--quality-field", "stars"])
        assert ended.exit_code == 2


def test_a_logged_result_holds_quality_and_products():
    logged = dp.evaluate(*pairs(), quality=quality_of(), **KERNELS).log_dict()
    assert {"divprism/quality", "divprism/quality_conditional_vendi"} <= set(logged)


def run(*arguments):
    return CliRunner().invoke(app, [*arguments, "--quiet"], catch_exceptions=False)


def test_the_command_line_reads_rates_and_gates(tmp_path):
    path = write(tmp_path / "rated.jsonl", [{**row, "model": "a"} for row in rows()])
    plain = run("score", path, "--quality-field", "stars", "--format", "json")
    scores = json.loads(plain.stdout)["scores"]
    assert scores["quality"]["value"] == pytest.approx(np.mean([row["stars"] for row in rows()]))
    product = scores["quality"]["value"] * scores["conditional_vendi"]["value"]
    assert scores["quality_conditional_vendi"]["value"] == pytest.approx(product)
    gate = ["--fail-under", "quality_conditional_vendi=100"]
    low = CliRunner().invoke(app, ["score", path, "--quality-field", "stars", *gate])
    assert low.exit_code == 5
    unchecked = CliRunner().invoke(app, ["score", path, *gate])
    assert unchecked.exit_code == 2


def test_compare_prints_the_front_and_the_page_shows_it(tmp_path):
    path, page = write(tmp_path / "rated.jsonl", rows(80)), tmp_path / "page.html"
    shown = run("compare", path, "--quality-field", "stars", "--report", str(page))
    assert shown.exit_code == 0
    assert "front" in shown.stdout and "on the front of quality and Conditional-Vendi" in (
        " ".join(shown.stdout.split())
    )
    assert "Quality against diversity" in page.read_text()
    listed = run("compare", path, "--quality-field", "stars", "--format", "csv")
    header = listed.stdout.splitlines()[0].split(",")
    assert {"front", "quality", "quality_conditional_vendi"} <= set(header)
