"""Groups of prompts: what is inside each, their aggregate, and their order."""

import json
import math
import sys

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import divprism as dp
from divprism.analysis.groups.decomposition import prompt_groups
from divprism.analysis.groups.grouping import (
    EigenDirectionGrouping,
    EigenGrouping,
    ExactPromptGrouping,
    KMeansGrouping,
    LabelGrouping,
    rotation,
)
from divprism.analysis.groups.nested import nested_scores
from divprism.report.group_tables import groups_listing
from divprism.report.words import grouping_note

ORDERS = [0.5, 1.0, 1.0 + 1e-7, 1.01, 2.0, 3.5, math.inf]


def world(sizes, modes, rng=0):
    """Outputs, groups and modes: groups of given sizes and numbers of modes, rows shuffled."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    mode = np.concatenate(
        [np.arange(size) % count for size, count in zip(sizes, modes, strict=True)]
    )
    order = np.random.default_rng(rng).permutation(group.size)
    group, mode = group[order], mode[order]
    codes = np.unique(np.stack([group, mode]), axis=1, return_inverse=True)[1].ravel()
    return np.eye(codes.max() + 1)[codes], group, mode


def vectors_of(group, spread=0.0, rng=1):
    """Prompts of a group close together, groups far apart."""
    draws = np.random.default_rng(rng)
    centres = 100 * np.eye(group.max() + 1)
    return centres[group] + spread * draws.standard_normal((group.size, centres.shape[1]))


# --- laws on paper


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("grouping", ["labels", "prompts", "eigen", "directions"])
def test_disjoint_groups_add_up_to_the_conditional_score_exactly(order, grouping):
    rng = np.random.default_rng(5)
    group = np.repeat(
        [0, 1, 2, 3], [4, 9, 6, 11]
    )  # sizes all different: eigenvectors are the indicators
    x = rng.standard_normal((30, 3)) + group[:, None]
    ways = {
        "labels": LabelGrouping(group),
        "prompts": ExactPromptGrouping(),
        "eigen": EigenGrouping(),
        "directions": EigenDirectionGrouping(),
    }
    found = prompt_groups(x, group, ways[grouping], kernel_x=dp.Gaussian(1.5), order=order)
    assert found.gap == pytest.approx(
        0, abs=1e-9
    )  # near order 1 entropies are divided by 1 - order
    assert found.gap_rke == pytest.approx(0, abs=1e-12)
    assert found.coverage == pytest.approx(1, abs=1e-12)
    assert found.aggregate == pytest.approx(
        float(dp.conditional_vendi(x, group, kernel_x=dp.Gaussian(1.5), order=order))
    )


def test_the_aggregate_is_geometric_at_order_one_and_harmonic_by_squared_share_at_order_two():
    x, group, _ = world([2, 6], [2, 3])
    found = prompt_groups(x, group, ExactPromptGrouping(), kernel_x=dp.Cosine(), min_size=2)
    assert found.aggregate == pytest.approx(2 ** (2 / 8) * 3 ** (6 / 8), rel=1e-12)
    assert found.aggregate_rke == pytest.approx((4 + 36) / (4 / 2 + 36 / 3), rel=1e-12)
    assert found.cluster_vendi == pytest.approx((2 * 2 + 6 * 3) / 8, rel=1e-12)


def test_cluster_scores_are_those_of_the_functions():
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((40, 4)), rng.integers(0, 5, 40)
    found = prompt_groups(x, labels, LabelGrouping(labels), kernel_x=dp.Gaussian(2.0), order=1.7)
    assert found.cluster_vendi == pytest.approx(
        float(dp.cluster_vendi(x, labels, kernel=dp.Gaussian(2.0), order=1.7))
    )
    assert found.cluster_rke == pytest.approx(
        float(dp.cluster_rke(x, labels, kernel=dp.Gaussian(2.0)))
    )
    assert float(found.conditional_rke) == pytest.approx(
        float(dp.conditional_rke(x, labels, kernel_x=dp.Gaussian(2.0)))
    )


ROWS, KINDS = (
    np.random.default_rng(1).standard_normal((40, 3)),
    np.random.default_rng(2).integers(0, 5, 40),
)


@given(
    st.integers(0, 2**32 - 1),
    st.permutations(range(5)),
    st.sampled_from([0.5, 1.0, 2.0, math.inf]),
    st.integers(1, 3),
)
@settings(max_examples=30, deadline=None)
def test_cluster_scores_know_neither_names_nor_order_nor_copies(seed, names, order, copies):
    rows = np.random.default_rng(seed).permutation(np.tile(np.arange(40), copies))
    right = dp.cluster_vendi(ROWS, KINDS, kernel=dp.Gaussian(1.0), order=order)
    found = dp.cluster_vendi(
        ROWS[rows], np.array(names)[KINDS[rows]], kernel=dp.Gaussian(1.0), order=order
    )
    assert float(found) == pytest.approx(float(right), rel=1e-9)


@given(st.integers(0, 2**32 - 1), st.permutations(range(5)))
@settings(max_examples=15, deadline=None)
def test_groups_know_neither_names_nor_order(seed, names):
    rows = np.random.default_rng(seed).permutation(40)
    right, found = (
        prompt_groups(
            x, labels, LabelGrouping(labels), kernel_x=dp.Gaussian(1.0), min_size=2, num_modes=0
        )
        for x, labels in ((ROWS, KINDS), (ROWS[rows], np.array(names)[KINDS[rows]]))
    )
    scores = {group.name: group.vendi for group in found.groups}
    assert scores == pytest.approx(
        {str(names[int(group.name)]): group.vendi for group in right.groups}
    )
    assert (found.aggregate, found.cluster_rke) == pytest.approx(
        (right.aggregate, right.cluster_rke)
    )


@pytest.mark.parametrize("order", ORDERS)
def test_cluster_scores_lie_between_those_of_their_groups(order):
    inside = [
        float(dp.vendi(ROWS[kind == KINDS], kernel=dp.Gaussian(1.0), order=order))
        for kind in range(5)
    ]
    found = float(dp.cluster_vendi(ROWS, KINDS, kernel=dp.Gaussian(1.0), order=order))
    assert min(inside) < found < max(inside)
    assert found == pytest.approx(np.average(inside, weights=np.bincount(KINDS)))


def test_weights_of_outputs_weigh_their_clusters():
    """A cluster with all the weight is the score; outputs without weight are not there."""
    for kind in range(5):
        weights = (kind == KINDS) / (kind == KINDS).sum()
        found = dp.cluster_vendi(ROWS, KINDS, kernel=dp.Gaussian(1.0), weights=weights)
        assert float(found) == pytest.approx(
            float(dp.vendi(ROWS[kind == KINDS], kernel=dp.Gaussian(1.0)))
        )


def _default_grouping(t, counts, **options):
    """The class of the default grouping of prompts with these numbers of outputs."""
    repeated = np.repeat(np.asarray(t, dtype=float), counts)[:, None]
    found = prompt_groups(np.eye(len(repeated)), repeated, kernel_x=dp.Cosine(), **options)
    assert found.data["by_default"]
    return found


@pytest.mark.parametrize(
    ("counts", "bandwidth", "grouping", "reason"),
    [
        ([4] * 8, 0.1, "ExactPromptGrouping", "the kernel tells them apart"),
        # Few kinds because of unequal numbers of outputs, not because prompts are similar.
        ([60] + [3] * 7, 0.1, "ExactPromptGrouping", "the kernel tells them apart"),
        ([4] * 8, 3.0, "EigenGrouping", "fewer than half as many kinds"),
        ([2] * 8, 0.3, "EigenGrouping", "prompts have fewer than 3 outputs on average"),
    ],
)
def test_the_default_is_to_group_by_exact_prompt_where_these_can_be_judged(
    counts, bandwidth, grouping, reason
):
    found = _default_grouping(range(8), counts, kernel_t=dp.Gaussian(bandwidth))
    assert found.data["grouping"] == grouping
    [note] = grouping_note(found.to_dict())
    assert reason in note
    assert note in groups_listing(found.to_dict()).notes
    if grouping == "ExactPromptGrouping":
        assert len(found.groups) == 8
        assert found.min_size == 3
    else:
        assert found.min_size == 5


def test_a_grouping_that_was_asked_for_needs_no_note():
    t = np.repeat(np.arange(8.0), 4)[:, None]
    found = prompt_groups(np.eye(32), t, EigenGrouping(3), kernel_t=dp.Gaussian(0.3))
    assert grouping_note(found.to_dict()) == []


def test_prompts_that_share_a_vector_are_not_counted_as_fewer_than_their_groups():
    prompts = dp.data.items.texts(["half full or empty", "half empty or full", "tea"] * 4)
    found = dp.prompt_groups(dp.Samples(np.eye(12), prompts), kernel_x=dp.Cosine()).to_dict()
    title = groups_listing(found).title
    assert title.startswith("12 pairs, 2 distinct prompt vectors, 3 groups")


def test_the_number_of_groups_is_that_of_the_default_grouping():
    found = _default_grouping(range(8), [4] * 8, kernel_t=dp.Gaussian(3.0), num_groups=2)
    assert len(found.groups) == 2


def test_a_group_is_scored_as_its_outputs_alone():
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((40, 4)), np.repeat(["b", "a"], [25, 15])
    found = prompt_groups(x, labels, LabelGrouping(labels), kernel_x=dp.Gaussian(2.0), order=3)
    for group in found.groups:
        inside = x[labels == group.name]
        assert group.vendi == pytest.approx(
            float(dp.vendi(inside, kernel=dp.Gaussian(2.0), order=3))
        )
        assert group.rke == pytest.approx(float(dp.rke(inside, kernel=dp.Gaussian(2.0))))
        assert (group.size, group.share) == (len(inside), len(inside) / 40)


def test_plain_directions_are_the_eigenvectors_of_the_whole_matrix():
    """Against the paper's formula on all rows, nothing merged: K_X o v v'."""
    rng = np.random.default_rng(2)
    x, t = rng.standard_normal((30, 3)), rng.standard_normal((12, 2))[rng.integers(0, 12, 30)]
    found = prompt_groups(
        x,
        t,
        EigenDirectionGrouping(4),
        kernel_x=dp.Gaussian(1.0),
        kernel_t=dp.Gaussian(0.7),
        order=1,
    )
    values, vectors = np.linalg.eigh(reference.gaussian(t, 0.7) / 30)
    by_name = {group.name: group for group in found.groups}
    for place in range(4):
        value, v = values[-1 - place], vectors[:, -1 - place]
        group = by_name[f"direction {place + 1}"]
        assert group.share == pytest.approx(value, rel=1e-10)
        inside = reference.gaussian(x, 1.0) * np.outer(v, v)
        spectrum, modes = np.linalg.eigh(inside)
        kept = spectrum[spectrum > 1e-14]
        assert group.vendi == pytest.approx(math.exp(-(kept * np.log(kept)).sum()), rel=1e-8)
        assert group.rke == pytest.approx(1 / (inside**2).sum(), rel=1e-8)
        assert group.size == pytest.approx(1 / (v**4).sum(), rel=1e-8)
        assert [mode.share for mode in group.modes] == pytest.approx(spectrum[::-1][:3], rel=1e-8)
        assert group.modes[0].outputs[0] == np.abs(modes[:, -1]).argmax()
    assert found.cluster_vendi is None
    assert found.coverage == pytest.approx(values[-4:].sum())


def test_all_directions_together_are_the_joint_matrix():
    rng = np.random.default_rng(2)
    t = rng.standard_normal((8, 2))
    found = prompt_groups(
        np.zeros((8, 1)),
        t,
        EigenDirectionGrouping(8),
        kernel_x=dp.Gaussian(1.0),
        kernel_t=dp.Gaussian(0.5),
    )
    assert found.coverage == pytest.approx(1, abs=1e-12)
    assert found.aggregate == pytest.approx(
        1, abs=1e-12
    )  # equal outputs: nothing is the model's own
    assert found.gap == pytest.approx(0, abs=1e-9)


# --- groups that are found


@pytest.mark.parametrize("rng", range(5))
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_disjoint_groups_of_equal_size_are_recovered_exactly(rng, spread):
    """All eigenvalues are equal, so the eigenvectors are any rotation of the groups."""
    x, group, _ = world([12] * 7, [1, 2, 3, 4, 3, 2, 1], rng)
    t = vectors_of(group, spread, rng)
    found = prompt_groups(x, t, EigenGrouping(7), kernel_x=dp.Cosine(), kernel_t=dp.Gaussian(5.0))
    pairs = set(zip(found.labels, group.tolist(), strict=True))
    assert len(pairs) == len({name for name, _ in pairs}) == 7
    assert sorted(round(group.vendi, 6) for group in found.groups) == [1, 1, 2, 2, 3, 3, 4]
    assert found.gap == pytest.approx(
        0, abs=1e-2 if spread else 1e-9
    )  # prompts of a group are no longer the same
    assert found.warnings == ()


def test_groups_are_seen_through_a_wide_bandwidth():
    """Where the first eigenvector is everything at once."""
    x, group, _ = world([10, 20, 30], [1, 2, 3])
    t = np.eye(3)[group] + 0.05 * np.random.default_rng(0).standard_normal((60, 3))
    found = prompt_groups(x, t, EigenGrouping(3), kernel_x=dp.Cosine(), kernel_t=dp.Gaussian(3.0))
    assert sorted(group.size for group in found.groups) == [10, 20, 30]
    assert len(set(zip(found.labels, group.tolist(), strict=True))) == 3


def test_a_rotation_does_not_depend_on_how_the_columns_were_mixed():
    rng = np.random.default_rng(0)
    loadings, masses = rng.standard_normal((20, 4)) ** 3, np.full(20, 1 / 20)
    turned = [loadings @ np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(5)]
    simple = [np.sort(mixed @ rotation(mixed, masses), axis=1) for mixed in [loadings, *turned]]
    for one in simple:
        assert np.allclose(one, simple[0], atol=1e-6)
    turn = rotation(loadings, masses)
    assert np.allclose(turn @ turn.T, np.eye(4))


def test_a_cut_through_equal_eigenvalues_gives_a_warning():
    x, group, _ = world([5] * 6, [2] * 6)
    found = prompt_groups(x, group, EigenGrouping(4), kernel_x=dp.Cosine())
    assert any("eigenvalues 4 and 5" in notice.text for notice in found.warnings)
    assert any("10 outputs are in no group" in notice.text for notice in found.warnings)
    assert (found.data["grouped"], found.labels.count("")) == (20, 10)
    assert found.coverage == pytest.approx(20 / 30)


def test_prompts_that_have_nothing_in_common_are_not_forced_into_groups():
    """On a ring of 200 almost unrelated prompts, each has a 200th of the first eigenvector."""
    turn = 2 * np.pi * np.arange(200) / 200
    ring = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    with pytest.raises(dp.DataError, match="200 distinct prompts are all but unrelated"):
        prompt_groups(
            ring, ring, EigenGrouping(1), kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(0.01)
        )


def test_modes_share_no_outputs_and_show_only_what_is_theirs():
    """Three kinds of outputs, one of two outputs only: it is not filled up with those of others."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [12, 8, 2])
    x = 6.0 * np.eye(3)[kind] + 0.3 * rng.standard_normal((22, 3))
    found = prompt_groups(
        x,
        np.zeros(22, int),
        ExactPromptGrouping(),
        kernel_x=dp.Gaussian(1.5),
        num_modes=3,
        num_examples=6,
    )
    modes = found.groups[0].modes
    shown = [row for mode in modes for row in mode.outputs]
    assert len(shown) == len(set(shown))
    for mode in modes:
        assert len(set(kind[list(mode.outputs)])) == 1


def test_groups_of_one_size_are_ranked_by_their_exact_score():
    """Forty outputs each, more than groups are compared at where sizes differ: nothing is drawn."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((160, 3)) * np.repeat([1.0, 1.02, 1.01, 0.99], 40)[:, None]
    found = prompt_groups(
        x,
        np.repeat(np.arange(4), 40),
        ExactPromptGrouping(),
        kernel_x=dp.Gaussian(1.0),
        num_modes=0,
    )
    assert [group.rarefied for group in found.groups] == [group.vendi for group in found.groups]
    assert [group.vendi for group in found.groups] == sorted(group.vendi for group in found.groups)
    assert {group.rarefied_error for group in found.groups} == {0.0}
    assert found.equal_size == 40


def test_a_group_knows_how_many_prompts_it_has():
    x, t = np.eye(12), np.repeat(np.arange(6), 2)
    found = prompt_groups(x, t, LabelGrouping(t // 3), kernel_x=dp.Cosine(), num_modes=0)
    assert [group.num_prompts for group in found.groups] == [3, 3]


def test_kmeans_groups_are_those_of_the_labels():
    x, group, _ = world([10, 20, 30], [1, 2, 3])
    found = prompt_groups(x, vectors_of(group), KMeansGrouping(3), kernel_x=dp.Cosine())
    assert [(group.size, round(group.vendi, 9)) for group in found.groups] == [
        (10, 1),
        (20, 2),
        (30, 3),
    ]


def test_prompts_are_compared_by_their_text_and_not_by_their_vectors():
    texts = ["one dog", "One  dog", "one dog", "a cat"]
    found = prompt_groups(
        np.eye(4),
        texts,
        ExactPromptGrouping(),
        kernel_x=dp.Cosine(),
        min_size=2,
        embedder_t=_lengths,
    )
    assert sorted((group.name, group.size) for group in found.groups) == [
        ("One  dog", 1),
        ("a cat", 1),
        ("one dog", 2),
    ]


def _lengths(texts):
    return np.array([[len(text.replace(" ", "")), 1.0] for text in texts])


@pytest.mark.parametrize(
    "grouping",
    [EigenGrouping(3), EigenDirectionGrouping(3), KMeansGrouping(3), ExactPromptGrouping()],
)
def test_the_same_seed_gives_the_same_result(grouping, pairs):
    first, again = (prompt_groups(*pairs, grouping, rng=3) for _ in range(2))
    assert first.to_dict() == again.to_dict()


def test_every_library_gives_the_same_groups(library, pairs):
    for grouping in (EigenGrouping(3), EigenDirectionGrouping(3), ExactPromptGrouping()):
        settings = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(1.0), "min_size": 2}
        right = prompt_groups(*pairs, grouping, **settings)
        found = prompt_groups(*(library(np.array(side)) for side in pairs), grouping, **settings)
        assert [group.prompts for group in found.groups] == [
            group.prompts for group in right.groups
        ]
        assert [group.vendi for group in found.groups] == pytest.approx(
            [group.vendi for group in right.groups]
        )


def test_large_sets_of_prompts_are_solved_by_lanczos_alike(monkeypatch):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, 300)
    t = vectors_of(group, 1.0)
    settings = {"kernel_x": dp.Gaussian(2.0), "kernel_t": dp.Gaussian(20.0), "num_modes": 0}
    right = prompt_groups(t, t, EigenGrouping(4), **settings)
    monkeypatch.setattr(sys.modules[EigenGrouping.__module__], "_DENSE", 100)
    assert prompt_groups(t, t, EigenGrouping(4), **settings).labels == right.labels


# --- what is told of a group


def test_modes_are_the_kinds_of_outputs_with_their_shares():
    x, group, mode = world([12, 12], [3, 2])
    found = prompt_groups(x, group, ExactPromptGrouping(), kernel_x=dp.Cosine())
    two, three = found.groups
    assert [round(one.share, 9) for one in two.modes] == [0.5, 0.5]
    assert [round(one.share, 9) for one in three.modes] == [round(1 / 3, 9)] * 3
    for one in found.groups:
        assert len({(group[m.outputs[0]], mode[m.outputs[0]]) for m in one.modes}) == len(one.modes)


def test_there_are_no_more_modes_than_kinds():
    rng = np.random.default_rng(0)
    x = np.concatenate([1e-3 * rng.standard_normal((20, 3)), 100 * np.eye(3)[np.arange(20) % 2]])
    found = prompt_groups(
        x, np.repeat([0, 1], 20), ExactPromptGrouping(), kernel_x=dp.Gaussian(1.0), num_modes=5
    )
    assert [len(group.modes) for group in found.groups] == [1, 2]
    assert (
        prompt_groups(x, np.repeat([0, 1], 20), ExactPromptGrouping(), num_modes=0).groups[0].modes
        == ()
    )


def test_typical_prompts_lie_in_the_middle_of_their_group():
    t = np.array([[0.0], [1.0], [0.5], [0.5], [10.0], [11.0], [10.4]])
    found = prompt_groups(
        np.eye(7), t, LabelGrouping([0, 0, 0, 0, 1, 1, 1]), kernel_t=dp.Gaussian(1.0), min_size=2
    )
    assert {group.name: group.prompts[0] for group in found.groups} == {"0": 2, "1": 6}
    assert all(len(set(group.prompts)) == 3 for group in found.groups)


def test_the_least_diverse_come_first_and_small_groups_last():
    x, group, _ = world([20, 20, 20, 1, 2], [5, 1, 3, 1, 1])
    found = prompt_groups(x, group, ExactPromptGrouping(), kernel_x=dp.Cosine(), min_size=5)
    assert [one.name for one in found.groups][:3] == ["1", "2", "0"]
    assert [one.small for one in found.groups] == [False] * 3 + [True] * 2
    assert (found.num_small, found.equal_size) == (2, 20)
    assert all(one.rarefied is None for one in found.groups[3:])


def test_groups_are_compared_at_equal_size():
    """Two groups of the same ten kinds are equally diverse, however many outputs they have."""
    rng = np.random.default_rng(0)
    kinds = np.eye(10)
    x = np.concatenate(
        [
            kinds[rng.permutation(10)],
            kinds[rng.integers(0, 10, 500)],
            kinds[rng.integers(0, 4, 300)],
        ]
    )
    found = prompt_groups(
        x, np.repeat([0, 1, 2], [10, 500, 300]), ExactPromptGrouping(), kernel_x=dp.Cosine()
    )
    one = {group.name: group for group in found.groups}
    assert found.equal_size == 10
    assert [group.name for group in found.groups] == ["2", "1", "0"]
    assert (one["0"].rarefied, one["0"].rarefied_error) == (one["0"].vendi, 0)
    # ten draws from ten kinds with replacement: the mean of exp(entropy) by brute force
    counts = (
        np.array([np.bincount(rng.integers(0, 10, 10), minlength=10) for _ in range(20_000)]) / 10
    )
    right = np.exp(-(counts * np.log(np.maximum(counts, 1e-300))).sum(axis=1)).mean()
    assert one["1"].rarefied == pytest.approx(right, abs=4 * one["1"].rarefied_error)
    assert one["1"].vendi > 9.5 > one["1"].rarefied


def test_the_error_of_a_comparison_is_honest():
    """Over seeds the rarefied score spreads as its standard error says."""
    x = np.random.default_rng(0).standard_normal((200, 2))
    settings = {"kernel_x": dp.Gaussian(0.5), "num_modes": 0}
    found = [
        prompt_groups(
            x, np.repeat([0, 1], [190, 10]), ExactPromptGrouping(), rng=seed, **settings
        ).groups
        for seed in range(40)
    ]
    large = [next(group for group in groups if group.name == "0") for groups in found]
    spread = np.std([group.rarefied for group in large], ddof=1)
    assert np.mean([group.rarefied_error for group in large]) == pytest.approx(
        spread, rel=0.4
    )  # 40 draws: 11 % twice, and more


def test_the_document_is_plain_and_names_what_rows_stand_for():
    texts = ["a", "b", "c", "d"] * 3
    found = prompt_groups(
        texts,
        ["p"] * 6 + ["q"] * 6,
        ExactPromptGrouping(),
        embedder_x=_letters,
        embedder_t=_letters,
        order=math.inf,
    )
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    group = document["groups"][0]
    assert group["prompts"][0]["text"] == group["name"]
    assert group["modes"][0]["outputs"][0]["text"] in texts
    assert document["settings"]["order"] == "inf"
    assert document["data"]["grouping"] == "ExactPromptGrouping"


def _letters(texts):
    return np.eye(26)[[ord(text[0]) - ord("a") for text in texts]]


# --- labels of a table


class Column:
    """Labels that are found by names of their own, as a column of a table is."""

    def __init__(self, values):
        self.values, self.index = values, {place + 3: value for place, value in enumerate(values)}

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, name):
        return self.index[name]


def test_labels_are_read_by_position():
    labels = ["b"] * 4 + ["a"] * 4 + ["c"] * 4
    found = prompt_groups(
        np.eye(12), np.arange(12), kernel_x=dp.Cosine(), grouping=LabelGrouping(Column(labels))
    )
    assert {group.name for group in found.groups} == {"a", "b", "c"} and found.labels == tuple(
        labels
    )


# --- nested subsets


def test_kernel_matrices_are_scored_on_nested_subsets_as_vectors_are():
    generator = np.random.default_rng(0)
    x, labels = generator.standard_normal((24, 3)), np.arange(24) // 6
    square = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    right = nested_scores(x, labels, labels, kernel_x=dp.Gaussian(1.0))
    found = nested_scores(np.exp(-square / 2), labels, labels, kernel_x=dp.Precomputed())
    assert found.conditional_vendi == pytest.approx(right.conditional_vendi)
    assert found.cluster_rke == pytest.approx(right.cluster_rke)


def test_conditional_and_cluster_rise_together_where_groups_are_disjoint():
    x, group, _ = world([6, 8, 10, 12, 14], [1, 2, 3, 4, 5])
    order = np.argsort(group, kind="stable")  # the least diverse group appears first
    found = nested_scores(x[order], group[order], group[order], kernel_x=dp.Cosine())
    assert found.sizes == (6, 14, 24, 36, 50)
    assert found.spearman == pytest.approx({"vendi": 1.0, "rke": 1.0})
    assert found.pearson["vendi"] > 0.98
    at = order[:24]
    assert found.conditional_vendi[2] == pytest.approx(
        float(dp.conditional_vendi(x[at], group[at], kernel_x=dp.Cosine()))
    )
    assert found.cluster_rke[2] == pytest.approx(
        float(dp.cluster_rke(x[at], group[at], kernel=dp.Cosine()))
    )


def test_correlations_are_those_of_scipy():
    from scipy import stats

    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((60, 2)), rng.standard_normal((60, 2))
    rows = [
        rng.permutation(60)[:60] if size == 60 else np.arange(size)
        for size in (5, 8, 20, 25, 40, 60)
    ]
    found = nested_scores(
        x, t, np.arange(60) % 4, rows, kernel_x=dp.Gaussian(0.8), kernel_t=dp.Gaussian(1.0)
    )
    for score in ("vendi", "rke"):
        both = getattr(found, f"conditional_{score}"), getattr(found, f"cluster_{score}")
        assert found.pearson[score] == pytest.approx(stats.pearsonr(*both).statistic)
        assert found.spearman[score] == pytest.approx(stats.spearmanr(*both).statistic)


def test_a_constant_score_has_no_correlation():
    found = nested_scores(
        np.zeros((9, 1)), np.arange(9) // 3, np.arange(9) // 3, kernel_x=dp.Gaussian(1.0)
    )
    assert found.pearson == found.spearman == {"vendi": None, "rke": None}
    json.dumps(found.to_dict(), allow_nan=False)


# --- refusals

X = np.random.default_rng(0).standard_normal((12, 3))
T = np.arange(12) // 4


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((X,), {}, "groups need prompts, and there are none: add `t`"),
        ((X, T, "eigen"), {}, "`grouping` must be an object such as EigenGrouping"),
        ((X, T, EigenGrouping(0)), {}, "`num_groups` must be a whole number of at least 1"),
        ((X, T, KMeansGrouping(2)), {}, "K-means needs a row of numbers per prompt"),
        ((X, X, KMeansGrouping(99)), {}, "`num_clusters` must be a whole number from 1 to"),
        ((X, X, KMeansGrouping(True)), {}, "`num_clusters` must be a whole .*got True"),
        ((X, T, LabelGrouping([1, 2])), {}, "must pair up row by row; got 12 outputs and 2 labels"),
        ((X, T, LabelGrouping(X)), {}, "`labels` must be flat"),
        ((X, T), {"num_modes": -1}, "`num_modes` must be a whole number of at least 0"),
        ((X, T), {"num_examples": 0}, "`num_examples`"),
        ((X, T), {"min_size": 1}, "`min_size`"),
        ((X, T), {"order": 0}, "`order` must be positive"),
        (
            (X, X),
            {"memory": 1000},
            r"eigenvectors of 12 distinct prompts need .* above the memory budget",
        ),
        (
            (X, T, ExactPromptGrouping()),
            {"memory": 200, "order": 2},
            r"outputs of a group need .* num_modes=0 leaves the modes out",
        ),
    ],
)
def test_what_cannot_be_grouped_is_refused(arguments, settings, message):
    kernels = (
        {"kernel_x": dp.Gaussian(1.0), "estimator": dp.Lanczos()} if "memory" in settings else {}
    )
    if "memory" in settings and arguments[1] is X:
        kernels["kernel_t"] = dp.Gaussian(1.0)
    with pytest.raises(ValueError, match=message):
        prompt_groups(*arguments, **settings, **kernels)


def test_several_models_are_refused_with_the_way_to_one():
    samples = dp.Samples(X, T, models=("one", "two") * 6)
    with pytest.raises(
        dp.DataError,
        match=r"2 models, but groups are of one model: select it with dp.load\(...\).by_model",
    ):
        prompt_groups(samples)


@pytest.mark.parametrize(
    ("subsets", "message"),
    [
        ([[0], [0, 1]], "at least 3"),
        ([[0, 1], [1, 2], [0, 1, 2]], "must be nested; subset 1"),
        ([[0], [0, 1], [0, 1, 12]], "subset 2 of `subsets` must hold rows from 0 to 11"),
        ([[], [0, 1], [0, 1, 2]], "subset 0"),
        ([np.arange(12) < size for size in (3, 6, 12)], "whole numbers.*got values of type bool"),
        ([[0.0, 1.9], [0, 1, 2], [0, 1, 2, 3]], "subset 0.*got values of type float64"),
        ([[0], [0, 1], ["a"]], "subset 2 of `subsets` must hold whole numbers"),
    ],
)
def test_subsets_must_be_nested(subsets, message):
    with pytest.raises(dp.ArgumentError, match=message):
        nested_scores(X, T, T, subsets, kernel_x=dp.Gaussian(1.0))


def test_vectors_that_were_kept_know_their_texts(tmp_path):
    """What `divprism embed` wrote is grouped by the texts that it was made from."""
    from sample_files import jsonl, records, write

    from divprism.embedders.embedding import save_embedded

    source = write(tmp_path, {"a.jsonl": jsonl(records() * 3)}) / "a.jsonl"
    samples = dp.load(source)
    save_embedded(tmp_path / "kept", samples, dp.embed(samples, cache=False))
    found = dp.prompt_groups(
        dp.load(tmp_path / "kept"), grouping=dp.ExactPromptGrouping()
    ).to_dict()
    assert {entry["text"] for group in found["groups"] for entry in group["prompts"]} == {
        "a red square",
        "a blue circle",
    }
    first = found["groups"][0]["modes"][0]["outputs"][0]
    assert first["text"] in {record["output"] for record in records()}


@pytest.mark.parametrize("order", [1e3, 1e10])
def test_the_aggregate_of_a_high_order_is_close_to_that_of_infinity(order):
    # Groups whose shares and entropies pull in opposite directions: both powers underflow.
    x = np.eye(12)[[*range(10), 10, 10, 10, 11]]
    t = np.repeat([0, 1], [10, 4])
    values = []
    for each in (order, math.inf):
        groups = dp.prompt_groups(x, t, kernel_x=dp.Cosine(), order=each, min_size=2)
        values.append(groups.to_dict()["aggregate"])
    assert values[0] == pytest.approx(values[1], rel=0.01)
