"""Differences between models: modes, their shares, chance, groups, refusals."""

import json
import sys

import numpy as np
import pytest

import divprism as dp
from divprism.report.difference_tables import difference_sentences

BY_KIND = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}
QUICK = {"num_permutations": 19}


def of_kinds(counts, prompt="a digit", num_kinds=4):
    """Outputs of some kinds that have nothing in common, all for one prompt."""
    kinds = np.repeat(np.arange(len(counts)), counts)
    return dp.Samples(np.eye(num_kinds)[kinds], [prompt] * kinds.size)


def world(seed, planted=0.0, num_prompts=24, each=4, spread=0.3):
    """Outputs of five kinds at random, and a share of a sixth one."""
    rng = np.random.default_rng(seed)
    prompts = np.repeat(np.arange(num_prompts), each)
    kinds = rng.integers(0, 5, prompts.size)
    kinds[rng.random(prompts.size) < planted] = 5
    rows = 6 * np.eye(6)[kinds] + spread * rng.standard_normal((prompts.size, 6))
    return dp.Samples(rows, prompts), kinds


WIDE = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Categorical()}


def plain(result):
    """The document without rows, which follow the order of the data."""
    document = result.to_dict()
    found = dict(document["differences"])
    modes = []
    for mode in found["modes"]:
        modes.append({key: value for key, value in mode.items() if key != "examples"})
    return found | {"modes": modes}


# --- laws on paper


def test_eigenvalues_of_unrelated_kinds_are_differences_of_shares():
    a, b = of_kinds([5, 3, 2, 0]), of_kinds([2, 3, 1, 4])
    found = dp.diff(a, b, **BY_KIND, **QUICK)
    values = [mode.eigenvalue for mode in found.modes]
    assert values == pytest.approx([-0.4, 0.3, 0.1], abs=1e-12)
    shares = [(mode.share_first, mode.share_second) for mode in found.modes]
    assert np.allclose(shares, [(0, 0.4), (0.5, 0.2), (0.2, 0.1)])
    assert [mode.model for mode in found.modes] == ["second", "first", "first"]
    assert found.total == pytest.approx(0.4, abs=1e-12)


def test_a_ratio_takes_that_many_times_the_second_share():
    a, b = of_kinds([5, 3, 2, 0]), of_kinds([2, 3, 1, 4])
    found = dp.diff(a, b, ratio=2.0, **BY_KIND, **QUICK)
    positive = [mode for mode in found.modes if mode.model == "first"]
    assert [mode.eigenvalue for mode in positive] == pytest.approx([0.1], abs=1e-12)
    assert found.total == pytest.approx(0.1, abs=1e-12)
    assert min(mode.eigenvalue for mode in found.modes) == pytest.approx(-0.8, abs=1e-12)


@pytest.mark.parametrize("modes_of", ["pairs", "outputs"])
def test_equal_samples_have_no_difference(modes_of):
    samples, _ = world(0)
    order = np.random.default_rng(1).permutation(len(samples))
    found = dp.diff(samples, samples.select(order), modes_of=modes_of, **WIDE, **QUICK)
    assert found.modes == ()
    assert found.total == pytest.approx(0, abs=1e-9)
    assert found.p_value == 1
    assert "no modes: neither sample has more of anything" in repr(found)


def test_models_with_nothing_in_common_are_at_distance_one():
    found = dp.diff(of_kinds([3, 3, 0, 0]), of_kinds([0, 0, 3, 3]), **BY_KIND, **QUICK)
    assert found.total == pytest.approx(1, abs=1e-12)


def test_modes_of_pairs_tell_prompts_apart_that_modes_of_outputs_do_not():
    """Each model draws both kinds equally often, but for opposite prompts."""
    t = ["x"] * 4 + ["y"] * 4
    a = dp.Samples(np.eye(2)[[0] * 4 + [1] * 4], t)
    b = dp.Samples(np.eye(2)[[1] * 4 + [0] * 4], t)
    assert dp.diff(a, b, **BY_KIND, **QUICK).total == pytest.approx(0, abs=1e-12)
    assert dp.diff(a, b, modes_of="pairs", **BY_KIND, **QUICK).total == pytest.approx(1)


# --- a planted mode


def test_a_planted_mode_is_the_first_one_and_has_its_share():
    (a, _), (b, kinds) = world(1), world(2, planted=0.2)
    found = dp.diff(a, b, **WIDE)
    mode = found.modes[0]
    planted = float((kinds == 5).mean())
    # Outputs of a kind are 0.3 apart in each of six numbers: a mean similarity of about 0.87.
    assert mode.model == "second" and 0.8 * planted < mode.share_second < planted
    assert mode.share_first < 0.001
    assert mode.low < -0.85 * planted < mode.high < 0
    assert mode.p_value == 0.01 and mode.agreement > 0.98
    assert found.clear_modes == (mode,)
    for example in mode.examples:
        assert kinds[example.row] == 5
        assert b.prompts[example.row] == a.prompts[example.nearest]


def test_small_modes_beside_a_large_one_are_found():
    """The large one makes exchanged models differ by more than the small one is."""
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(50), 6)
    shares = {"first": [0.75, 0.05, 0.2, 0.0], "second": [0.2, 0.05, 0.65, 0.1]}
    parts = {}
    for name, of_kind in shares.items():
        parts[name] = dp.Samples(np.eye(4)[rng.choice(4, t.size, p=of_kind)], t)
    found = dp.diff(parts, **BY_KIND)
    sides = [mode.model for mode in found.clear_modes]
    assert sorted(sides) == ["first", "second", "second"]


def test_the_nearest_output_of_the_other_model_has_the_same_prompt():
    t = ["x", "x", "y", "y"]
    a = dp.Samples(np.array([[0.0], [1.0], [8.0], [9.0]]), t)
    b = dp.Samples(np.array([[5.0], [2.0], [0.1], [30.0]]), t)
    found = dp.diff(a, b, kernel_x=dp.Gaussian(3.0), kernel_t=dp.Categorical(), **QUICK)
    nearest = {0: 1, 1: 1, 2: 2, 3: 2}
    for mode in found.modes:
        if mode.model == "first":
            assert all(nearest[example.row] == example.nearest for example in mode.examples)


def test_the_reference_has_its_share_in_each_mode():
    a, b = of_kinds([5, 5, 0, 0]), of_kinds([5, 2, 3, 0])
    reference = np.eye(4)[[0, 1, 1, 1]]
    found = dp.diff(a, b, reference=reference, **BY_KIND, **QUICK)
    shares = [(mode.eigenvalue, mode.share_reference) for mode in found.modes]
    assert sorted(np.round(shares, 9).tolist()) == [[-0.3, 0.0], [0.3, 0.75]]
    without = dp.diff(a, b, **BY_KIND, **QUICK)
    assert found.total == pytest.approx(without.total, abs=1e-12)


# --- independent computation


@pytest.mark.parametrize("modes_of", ["pairs", "outputs"])
@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_modes_are_those_of_the_dense_matrix(modes_of, ratio):
    rng = np.random.default_rng(3)
    t = rng.standard_normal((40, 3))
    a, b = rng.standard_normal((2, 40, 4))
    kernels = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.5)}
    found = dp.diff(
        dp.Samples(a, t),
        dp.Samples(b, t),
        modes_of=modes_of,
        ratio=ratio,
        num_modes=200,
        **kernels,
        **QUICK,
    )
    x, both = np.concatenate([a, b]), np.concatenate([t, t])
    matrix = np.exp(-((x[:, None] - x) ** 2).sum(-1) / 8)
    if modes_of == "pairs":
        matrix *= np.exp(-((both[:, None] - both) ** 2).sum(-1) / 4.5)
    signed = np.repeat([1 / 40, -ratio / 40], 40)
    # K D is similar to K^(1/2) D K^(1/2), so its eigenvalues are real.
    right = np.linalg.eigvals(matrix * signed).real
    assert found.total == pytest.approx(right[right > 0].sum(), abs=1e-9)
    ours = np.sort([mode.eigenvalue for mode in found.modes])
    theirs = np.sort(right[np.abs(right) > 1e-9])
    assert np.allclose(ours, theirs, atol=1e-9)
    for mode in found.modes:
        difference = mode.share_first - ratio * mode.share_second
        assert difference == pytest.approx(mode.eigenvalue, abs=1e-10)


# --- invariances


@pytest.mark.parametrize("modes_of", ["pairs", "outputs"])
def test_swapping_the_models_swaps_the_signs(modes_of):
    (a, _), (b, _) = world(1), world(2, planted=0.2)
    there = dp.diff(a, b, modes_of=modes_of, **WIDE, **QUICK)
    back = dp.diff(b, a, modes_of=modes_of, **WIDE, **QUICK)
    assert back.total == pytest.approx(there.total, abs=1e-9)
    for one, other in zip(there.modes, back.modes, strict=True):
        assert other.eigenvalue == pytest.approx(-one.eigenvalue, abs=1e-9)
        assert other.share_first == pytest.approx(one.share_second, abs=1e-6)
        assert other.held_out == pytest.approx(-one.held_out, abs=1e-6)
        assert other.p_value == one.p_value


@pytest.mark.parametrize("each", [1, 4])
def test_the_order_of_rows_does_not_matter(each):
    (a, _), (b, _) = world(1, each=each), world(2, planted=0.2, each=each)
    right = plain(dp.diff(a, b, **WIDE, **QUICK))
    rng = np.random.default_rng(0)
    shuffled = [part.select(rng.permutation(len(part))) for part in (a, b)]
    found = plain(dp.diff(*shuffled, **WIDE, **QUICK))
    for one, other in zip(right["modes"], found["modes"], strict=True):
        assert one.pop("model") == other.pop("model")
        del one["share_reference"], other["share_reference"]
        assert one == pytest.approx(other, abs=1e-7)
    assert right["baseline"] == pytest.approx(found["baseline"], abs=1e-9)


def test_copies_of_all_outputs_change_no_mode():
    (a, _), (b, _) = world(1, num_prompts=6), world(2, num_prompts=6, planted=0.3)
    rows = np.tile(np.arange(len(a)), 2)
    once = dp.diff(a, b, **WIDE, **QUICK)
    twice = dp.diff(a.select(rows), b.select(rows), **WIDE, **QUICK)
    assert twice.total == pytest.approx(once.total, abs=1e-9)
    values = [mode.eigenvalue for mode in once.modes]
    assert [mode.eigenvalue for mode in twice.modes] == pytest.approx(values, abs=1e-9)


COPIES = np.random.default_rng(5).standard_normal((7, 4))


def with_copies(seed, num_prompts, each):
    """Outputs of seven kinds, so that the models have many outputs in common."""
    t = np.repeat(np.arange(num_prompts), each)
    rng = np.random.default_rng(seed)
    return dp.Samples(COPIES[rng.integers(0, 7, t.size)], t)


@pytest.mark.parametrize(("num_prompts", "each"), [(6, 8), (24, 3), (15, 1)])
@pytest.mark.parametrize("modes_of", ["pairs", "outputs"])
def test_copies_that_models_share_do_not_tell_them_apart(num_prompts, each, modes_of):
    """Neither the order of rows nor that of the models changes p-values, halves and intervals."""
    a, b = (with_copies(seed, num_prompts, each) for seed in (0, 1))
    right = dp.diff(a, b, modes_of=modes_of, **WIDE, **QUICK)
    rng = np.random.default_rng(0)
    shuffled = [part.select(rng.permutation(len(part))) for part in (a, b)]
    there = dp.diff(*shuffled, modes_of=modes_of, **WIDE, **QUICK)
    back = dp.diff(b, a, modes_of=modes_of, **WIDE, **QUICK)
    for found in (there, back):
        assert found.p_value == right.p_value
        assert found.baseline == pytest.approx(right.baseline, abs=1e-9)
        sign = 1 if found is there else -1
        sizes = [round(abs(mode.eigenvalue), 9) for mode in right.modes]
        for size, one, other in zip(sizes, right.modes, found.modes, strict=True):
            # Modes with equal eigenvalues have any order.
            if sizes.count(size) == 1 and size != sizes[-1]:
                assert other.p_value == one.p_value
                assert sign * other.held_out == pytest.approx(one.held_out, abs=1e-7)


def test_a_reference_changes_no_p_value(monkeypatch):
    """Directions that only real data have are none in which models are compared."""
    monkeypatch.setattr(sys.modules["divprism.analysis.differences.chance"], "_TESTED", 4)
    (a, _), (b, _) = world(1), world(2, planted=0.3)
    reference = 3 + 6 * np.random.default_rng(0).standard_normal((300, 6))
    right = dp.diff(a, b, **WIDE, **QUICK)
    found = dp.diff(a, b, reference=reference, **WIDE, **QUICK)
    assert found.p_value == right.p_value
    for one, other in zip(right.modes, found.modes, strict=True):
        assert other.eigenvalue == pytest.approx(one.eigenvalue, abs=1e-9)
        assert other.held_out == pytest.approx(one.held_out, abs=1e-7)
        assert other.p_value == one.p_value


# --- landmarks


def basis_module():
    return sys.modules["divprism.analysis.differences.basis"]


def test_landmarks_at_all_points_change_nothing(monkeypatch):
    (a, _), (b, _) = world(1, num_prompts=6), world(2, num_prompts=6, planted=0.3)
    right = dp.diff(a, b, **WIDE, **QUICK)
    monkeypatch.setattr(basis_module(), "_EXACT", 10)
    found = dp.diff(a, b, **WIDE, **QUICK)
    assert found.unseen == pytest.approx(0, abs=1e-9)
    assert found.total == pytest.approx(right.total, abs=1e-7)
    values = [mode.eigenvalue for mode in right.modes]
    assert [mode.eigenvalue for mode in found.modes] == pytest.approx(values, abs=1e-7)


def test_few_landmarks_find_large_modes_and_say_what_they_miss(monkeypatch):
    (a, _), (b, _) = world(1, spread=1.0), world(2, planted=0.3, spread=1.0)
    right = dp.diff(a, b, **WIDE, **QUICK)
    monkeypatch.setattr(basis_module(), "_EXACT", 10)
    monkeypatch.setattr(basis_module(), "_LANDMARKS", 40)
    monkeypatch.setattr(basis_module(), "_BLOCK_ENTRIES", 1 << 10)
    found = dp.diff(a, b, **WIDE, **QUICK)
    assert 0.05 < found.unseen < 0.6
    # A compression has smaller eigenvalues of either sign.
    assert right.total - found.unseen < found.total < right.total
    assert abs(found.modes[0].eigenvalue) < abs(right.modes[0].eigenvalue)
    assert found.modes[0].eigenvalue == pytest.approx(right.modes[0].eigenvalue, rel=0.2)
    assert [notice.code for notice in found.warnings if notice.code == "modes-unseen"]


def test_landmarks_give_one_total_in_both_directions(monkeypatch):
    (a, _), (b, _) = world(1, spread=1.0), world(2, planted=0.3, spread=1.0)
    monkeypatch.setattr(basis_module(), "_EXACT", 10)
    monkeypatch.setattr(basis_module(), "_LANDMARKS", 40)
    there = dp.diff(a, b, **WIDE, **QUICK)
    back = dp.diff(b, a, **WIDE, **QUICK)
    assert back.total == pytest.approx(there.total, abs=1e-9)
    assert back.baseline == pytest.approx(there.baseline, abs=1e-9)
    assert back.p_value == there.p_value


# --- chance


def test_samples_of_one_model_rarely_have_a_clear_mode():
    """Of 60 pairs of samples, 3 are expected at p <= 0.05; 8 or more have a chance of 1 %."""
    significant, totals, held_out = 0, [], []
    for seed in range(60):
        (a, _), (b, _) = (world(2 * seed + part, num_prompts=20, each=2) for part in (0, 1))
        found = dp.diff(a, b, num_modes=12, **WIDE, **QUICK)
        significant += any(mode.p_value <= 0.05 for mode in found.modes)
        totals.append(found.total - found.baseline)
        first = next(mode for mode in found.modes if mode.model == "first")
        assert first.eigenvalue > 0
        held_out.append(first.held_out)
    assert significant <= 7
    for values in (totals, held_out):
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        assert abs(np.mean(values)) < 3.5 * error


def test_no_exchanges_give_no_p_values_and_nothing_is_clear():
    (a, _), (b, _) = world(1), world(2, planted=0.3)
    found = dp.diff(a, b, num_permutations=0, **WIDE)
    assert found.p_value is None and found.baseline is None
    assert found.clear_modes == ()
    assert all(mode.p_value is None for mode in found.modes)
    assert "without exchanges" in repr(found)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_permutations": 9}, "10 modes; with 9 exchanges no p-value can be 0.05 or less"),
        ({"num_permutations": 19}, "none of 10 modes is clear: samples of one model differ this"),
    ],
)
def test_the_reason_why_no_mode_is_clear_is_the_right_one(options, text):
    (a, _), (b, _) = world(1), world(2)
    assert text in " ".join(repr(dp.diff(a, b, **WIDE, **options)).split())


def test_a_mode_that_other_data_do_not_show_is_no_chance_of_one_model():
    """Of one output of each model there is no other half."""
    found = dp.diff(of_kinds([9, 0, 0, 0]), of_kinds([0, 9, 0, 0]), **BY_KIND, **QUICK)
    document = found.to_dict()
    for mode in document["differences"]["modes"]:
        mode["clear"] = False
    [text, _] = difference_sentences(document)
    assert text == "none of 2 modes is clear: on other data, differences this large may be chance"


# --- halves


@pytest.mark.parametrize("unit", [None, "pair", "prompt"])
@pytest.mark.parametrize("modes_of", ["pairs", "outputs"])
def test_each_half_has_outputs_of_both_models_where_each_prompt_has_one(unit, modes_of):
    """Kinds that have nothing in common differ as much on either half."""
    t = ["a digit"] * 12
    if modes_of == "outputs":
        t = np.arange(12)
    a, b = (dp.Samples(np.eye(2)[[kind] * 12], t) for kind in (0, 1))
    found = dp.diff(a, b, unit=unit, modes_of=modes_of, **BY_KIND, **QUICK)
    values = [(mode.eigenvalue, mode.held_out) for mode in found.modes]
    assert np.allclose(values, [(1, 1), (-1, -1)])


def test_a_mode_of_pairs_of_a_single_prompt_is_found():
    """Exchanging all of a prompt changes no eigenvalue of modes that are of one prompt each."""
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(24), 12)
    a, b = rng.integers(0, 4, (2, t.size))
    b[(t == 7) & (rng.random(t.size) < 0.9)] = 4
    parts = [dp.Samples(np.eye(5)[kinds], t) for kinds in (a, b)]
    found = dp.diff(*parts, modes_of="pairs", **BY_KIND, **QUICK)
    assert found.unit == "pair"
    mode = found.modes[0]
    assert mode in found.clear_modes and {t[example.row] for example in mode.examples} == {7}
    assert dp.diff(*parts, modes_of="pairs", unit="prompt", **BY_KIND, **QUICK).p_value == 1


# --- groups


def test_the_difference_is_found_in_the_group_where_it_is():
    rng = np.random.default_rng(0)
    t = np.repeat(["dog", "cat", "cow"], 40)
    a, b = (np.eye(4)[rng.integers(0, 3, t.size)] for _ in range(2))
    b[np.flatnonzero(t == "cat")[:30]] = np.eye(4)[3]
    found = dp.diff(
        dp.Samples(a, t), dp.Samples(b, t), grouping=dp.ExactPromptGrouping(), **BY_KIND, **QUICK
    )
    first, *others = found.groups
    assert first.name == "cat"
    assert (first.size, first.p_value) == (40, 0.05)
    assert first.modes[0].model == "second"
    assert first.modes[0].share_second == pytest.approx(0.75, abs=1e-9)
    assert all(t[example.row] == "cat" for example in first.modes[0].examples)
    assert all(abs(group.excess) < 0.2 < first.excess for group in others)


# --- sources


def test_models_of_one_source_are_named():
    (a, _), (b, _) = world(1), world(2, planted=0.3)
    right = plain(dp.diff({"one": a, "two": b}, **WIDE, **QUICK))
    models = np.repeat(["one", "two", "three"], len(a))
    rows = np.concatenate([a.outputs, b.outputs, a.outputs])
    both = dp.Samples(rows, np.tile(a.prompts, 3), tuple(models))
    found = dp.diff(both, first="one", second="two", **WIDE, **QUICK)
    assert plain(found) == right
    assert (found.first, found.second) == ("one", "two")


def test_texts_come_with_their_prompts():
    t = ["a fruit", "a fruit", "a drink", "a drink"]
    first = dp.Samples(["red apple", "green apple", "black tea", "green tea"], t)
    second = dp.Samples(["red apple", "yellow banana", "black tea", "cold milk"], t)
    document = dp.diff(first, second, **QUICK).to_dict()
    json.dumps(document, allow_nan=False)
    example = document["differences"]["modes"][0]["examples"][0]
    assert set(example) == {"output", "prompt", "nearest", "weight", "similarity"}
    assert example["prompt"]["text"] in t


SAMPLES = dp.Samples(np.eye(4), np.arange(4))
IDS = dp.Samples(np.arange(4), np.arange(4))
OF_IDS = {"kernel_x": dp.Categorical(), "kernel_t": dp.Categorical()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dp.diff(SAMPLES, SAMPLES, modes_of="rows"), "`modes_of` must be pairs or outputs"),
        (lambda: dp.diff(SAMPLES, SAMPLES, ratio=0), "`ratio` must be positive and finite"),
        (lambda: dp.diff(SAMPLES, SAMPLES, ratio=1e7), "`ratio` must be at most 1,000,000; got"),
        (lambda: dp.diff(SAMPLES, SAMPLES, num_modes=0), "`num_modes` must be a whole number"),
        (lambda: dp.diff(SAMPLES, SAMPLES, first="a"), "leave out `b`, or them"),
        (lambda: dp.diff({"a": SAMPLES}), "a difference needs two models; got one"),
        (
            lambda: dp.diff({"a": SAMPLES, "b": SAMPLES, "c": SAMPLES}),
            "must name the two models to compare; there are 3: a, b, c",
        ),
        (lambda: dp.diff({"a": SAMPLES, "b": SAMPLES}, first="a", second="c"), "`second` must be"),
        (lambda: dp.diff({"a": SAMPLES, "b": SAMPLES}, first="a", second="a"), "name two models"),
        (lambda: dp.diff(SAMPLES, SAMPLES, grouping="prompt"), "`grouping` must be an object"),
        (
            lambda: dp.diff(SAMPLES, SAMPLES, grouping=dp.LabelGrouping([1] * 4)),
            "`grouping` cannot be labels",
        ),
        (
            lambda: dp.diff(SAMPLES, SAMPLES, reference=np.eye(4), modes_of="pairs"),
            "`reference` has no prompts",
        ),
        (
            lambda: dp.diff(SAMPLES, SAMPLES, reference=np.eye(3), **BY_KIND),
            "`reference` has 3 numbers in a row",
        ),
        (
            lambda: dp.diff(SAMPLES, SAMPLES, reference=np.ones(4), **BY_KIND),
            "`reference` must have shape",
        ),
        (
            lambda: dp.diff(SAMPLES, SAMPLES, reference=np.ones((0, 4)), **BY_KIND),
            "`reference` must have at least one row",
        ),
        (
            lambda: dp.diff(SAMPLES, SAMPLES, reference=np.full((2, 4), np.nan), **BY_KIND),
            "2 of 2 rows of `reference` contain NaN",
        ),
        (
            lambda: dp.diff(IDS, IDS, reference=np.arange(4), **OF_IDS),
            "`reference` needs outputs that are vectors",
        ),
        (
            lambda: dp.diff(SAMPLES, SAMPLES, kernel_x=dp.Precomputed()),
            r"`kernel_x` is Precomputed\(\)",
        ),
        (
            lambda: dp.diff(SAMPLES, dp.Samples(np.eye(4), np.arange(4) + 9), **BY_KIND),
            "no prompt in common",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(call, message):
    with pytest.raises((dp.ArgumentError, dp.DataError), match=message):
        call()


def test_overlapping_groups_are_refused():
    (a, _), (b, _) = world(1), world(2)
    vectors = np.random.default_rng(0).standard_normal((24, 3))[a.prompts]
    with pytest.raises(dp.ArgumentError, match="must not overlap"):
        dp.diff(
            dp.Samples(a.outputs, vectors),
            dp.Samples(b.outputs, vectors),
            grouping=dp.EigenDirectionGrouping(2),
            **QUICK,
        )
