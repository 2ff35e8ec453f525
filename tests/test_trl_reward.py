"""The diversity reward: known answers, its gradient in expectation, groups, chats, quality."""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from reward_workers import COMPLETIONS, PROMPTS, SHARES, length, one_hot, rewards_of, run_two

import divprism as dp
from divprism.guidance import marginal_gain
from divprism.integrations.trl import DiversityReward

LETTERS = "abcdefgh"


def letters(texts):
    """All letters are unlike each other."""
    return [[float(text == letter) for letter in LETTERS] for text in texts]


def of_letters(**settings):
    return DiversityReward(embedder=letters, kernel=dp.Cosine(), **settings)


def rewards(completions, **settings):
    return of_letters(**settings)(["p"] * len(completions), list(completions))


def vendi_of(counts, order=1.0):
    """Effective number of letters, from how often each occurs."""
    shares = np.array([count for count in counts if count]) / sum(counts)
    if order == 1:
        return math.exp(-shares @ np.log(shares))
    return (shares**order).sum() ** (1 / (1 - order))


def partitions(n, largest=None):
    if n == 0:
        yield []
    for first in range(min(n, largest or n), 0, -1):
        for rest in partitions(n - first, first):
            yield [first, *rest]


# Known on paper.


@pytest.mark.parametrize("order", [0.5, 1, 2, math.inf])
def test_unlike_completions_earn_the_weight_and_equal_ones_nothing(order):
    assert rewards("abcd", order=order, weight=3) == pytest.approx([3] * 4)
    assert rewards("aaaa", order=order) == [0] * 4


def test_copies_pay_for_each_other():
    root = 2 * math.sqrt(2)  # Vendi of the shares 1/2, 1/4, 1/4
    copy, single = root - 3, root - vendi_of([2, 1])
    assert rewards("abac") == pytest.approx([copy, single, copy, single])
    assert rewards("abac", order=2) == pytest.approx([8 / 3 - 3, 8 / 3 - 9 / 5] * 2)


def test_copies_earn_together_no_more_than_one_of_them_would():
    # Groups of up to eight; where one text fills a group, copies of a rare text may earn more.
    checked = 0
    for counts in partitions(8):
        texts = "".join(LETTERS[i] * count for i, count in enumerate(counts))
        for letter, count in zip(LETTERS, counts, strict=False):
            once = texts.replace(letter, "") + letter
            if 1 < count < 8:
                share = rewards(texts)[texts.index(letter)]
                assert count * share <= rewards(once)[-1] + 1e-12
                checked += 1
    assert checked == 40


def test_a_new_completion_earns_more_than_a_paraphrase_and_that_more_than_a_copy():
    texts = ["I like strong black tea.", "I like very strong black tea.", "The harbour is frozen."]
    reward = DiversityReward()
    like, _, new = reward(["p"] * 3, texts)
    copy, _, _ = reward(["p"] * 3, [texts[0], texts[0], texts[2]])
    assert new > like + 0.3
    assert like > copy + 0.01


@pytest.mark.parametrize("order", [0.7, 1.0, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("kernel", [dp.Gaussian(1.5), dp.Cosine()])
def test_the_gain_is_that_of_guidance(kernel, order):
    rng = np.random.default_rng(0)
    rows = dict(zip(LETTERS, rng.standard_normal((8, 3)), strict=True))
    texts = "abcdeacc"
    reward = DiversityReward(
        embedder=lambda batch: [rows[text] for text in batch], kernel=kernel, order=order
    )
    x = np.array([rows[text] for text in texts])
    score = dp.guidance.Objective(order=order)
    right = marginal_gain(x, score=score, kernel_x=kernel, log=False)
    # Below order 1 the eigenvalues that copies make zero count by their rounding.
    found = np.array(reward(["p"] * 8, list(texts)))
    assert found == pytest.approx(np.clip(right, -1, 1), abs=1e-5 if order < 1 else 1e-9)


def _expectation(logits, function, n):
    """The mean of a function of n texts that a policy draws, and of it times the slope of log p."""
    p = np.exp(logits) / np.exp(logits).sum()
    value, gradient = 0.0, np.zeros_like(logits)
    for group in itertools.product(range(len(p)), repeat=n):
        mass = math.prod(p[list(group)])
        slopes = np.eye(len(p))[list(group)] - p  # of log p(text) in the logits
        found = np.asarray(function(group))
        value += mass * found.mean()
        gradient += mass * (found @ slopes)
    return value, gradient


def _slope_of_expected_score(logits, n, step=1e-5):
    def expected(at):
        def score(group):
            return np.full(n, vendi_of(np.bincount(group)))

        return _expectation(at, score, n)[0]

    steps = step * np.eye(len(logits))
    return np.array([(expected(logits + e) - expected(logits - e)) / (2 * step) for e in steps])


def test_rewards_climb_the_expected_score_of_a_group():
    logits = np.array([0.3, -0.5, 1.0])

    def gains(group):
        return np.array(rewards([LETTERS[i] for i in group]))

    def centred(group):
        return gains(group) - gains(group).mean()

    _, found = _expectation(logits, gains, 4)
    assert found == pytest.approx(_slope_of_expected_score(logits, 4), abs=1e-8)
    # GRPO subtracts the mean of the group: that is the gradient for a group of one fewer.
    _, found = _expectation(logits, centred, 4)
    assert found == pytest.approx(_slope_of_expected_score(logits, 3), abs=1e-8)


# Ranges and invariances.


@given(
    st.lists(st.sampled_from(["", *LETTERS]), min_size=1, max_size=12),
    st.sampled_from([0.3, 1.0, 2.0, math.inf]),
    st.randoms(use_true_random=False),
)
def test_rewards_are_bounded_and_do_not_depend_on_the_order(texts, order, random):
    found = rewards(texts, order=order)
    assert all(-1 <= value <= 1 for value in found)
    positions = list(range(len(texts)))
    random.shuffle(positions)
    shuffled = rewards([texts[i] for i in positions], order=order)
    assert shuffled == [found[i] for i in positions]  # to the last bit


def test_low_gains_are_clipped():
    # Order infinity: a second copy halves the score of five, 1 / (2 / 6) - 5 = -2.
    assert rewards("aabcde", order=math.inf)[0] == -1


def test_groups_are_prompts_of_equal_content_wherever_they_are():
    reward = of_letters()
    assert reward(["p", "q", "p", "q"], list("aaba")) == pytest.approx([1, 0, 1, 0])
    chat = [{"role": "user", "content": [{"type": "text", "text": "p"}]}]
    same = [{"content": [{"text": "p", "type": "text", "image": None}], "role": "user"}]
    other = [{"role": "system", "content": [{"type": "text", "text": "p"}]}]
    assert reward([chat, same, other], list("aab")) == [0, 0, 0]
    assert reward([chat, same, other], list("abb")) == pytest.approx([1, 1, 0])


def test_prompts_with_images_are_told_apart_by_their_pixels():
    def prompt(colour):
        part = {"type": "image", "image": Image.new("RGB", (2, 2), colour)}
        return [{"role": "user", "content": [part]}]

    found = of_letters()([prompt("red"), prompt("red"), prompt("blue")], list("abb"))
    assert found == pytest.approx([1, 1, 0])


def test_parts_of_prompts_do_not_run_together():
    assert of_letters()([["ab", "c"], ["a", "bc"], ["abc"]], list("abc")) == [0, 0, 0]


# Completions.


def test_completions_are_texts_or_what_the_assistant_says():
    def said(content):
        return {"role": "assistant", "content": content}

    chats = [
        [said("a")],
        [{"content": "a"}],
        [said([{"type": "text", "text": "a"}])],
        [said(None), {"role": "tool", "content": "b"}, said("a")],
        "b",
    ]
    assert of_letters()(["p"] * 5, chats) == rewards("aaaab")


def test_empty_completions_earn_the_least_and_do_not_count():
    blank = [[{"role": "assistant", "content": None}], "", " \n"]
    reward = of_letters(weight=2)
    assert reward(["p"] * 5, [*blank, "a", "b"]) == pytest.approx([-2, -2, -2, 2, 2])
    assert reward(["p"] * 3, blank) == [-2, -2, -2]
    assert rewards(["a", "", "b"], quality=lambda **columns: [1, 1, 0.5])[1] == 0


@pytest.mark.parametrize("text", ["\u200b", "\u2060\xad", "\ufeff \x07", "\u2028\u3000", "\u200e"])
def test_completions_that_nobody_sees_are_empty(text):
    assert rewards([text, "a", "b"]) == pytest.approx([-1, 1, 1])


def test_a_single_completion_earns_nothing():
    assert rewards("a") == [0]
    assert rewards(["a", ""]) == [0, -1]
    assert rewards([]) == []


def test_half_a_character_does_not_end_a_run():
    assert DiversityReward()(["p"] * 2, ["a \ud83d cat", "the \udc00 moon"]) == pytest.approx(
        [1, 1], abs=0.2
    )


# Quality.


def quality(values):
    return lambda prompts, completions, **columns: values


def test_quality_is_multiplied():
    found = rewards("ab", quality=quality([0.5, 0.5]), weight=0.5)
    assert found == pytest.approx([0.75, 0.75])


def test_worthless_completions_earn_nothing_and_hide_no_repetition():
    # Without quality `b` and `c` would earn the most.
    found = rewards("aabc", quality=quality([1, 1, 0, 0]))
    assert found == [1, 1, 0, 0]


def test_better_completions_count_in_proportion_to_their_quality():
    a, copy, b = rewards("aab", quality=quality([0.8, 0.8, 0.4]))
    assert b == pytest.approx(0.4 * (1 + vendi_of([1.6, 0.4]) - 1))
    # For `a` the worse `b` counts as much as `a` itself.
    assert a == copy == pytest.approx(0.8 * (1 + vendi_of([2, 1]) - 2))


def test_the_best_completion_does_not_lose_because_others_are_worse():
    """All masses count as 1 for the first; for the others it counts as ten of them."""
    best, *others = rewards(LETTERS, quality=quality([1] + [0.1] * 7))
    assert best == pytest.approx(2)
    gain = vendi_of([10, *[1] * 7]) - vendi_of([10, *[1] * 6])
    assert others == pytest.approx([0.1 * (1 + gain)] * 7)


QUALITIES = st.one_of(st.floats(0.01, 1), st.sampled_from([0, 0.1, 0.5, 1]))


@given(
    st.lists(st.tuples(st.sampled_from(LETTERS), QUALITIES), min_size=2, max_size=8),
    st.sampled_from([0.5, 1.0, 2.0, math.inf]),
)
@example([("a", 1), *[(letter, 0.1) for letter in LETTERS[1:]]], 1.0)
def test_no_completion_unlike_all_others_earns_less_than_a_worse_one(pairs, order):
    texts, values = zip(*pairs, strict=True)
    found = rewards(texts, quality=quality(values), order=order)
    for text, value, reward in zip(texts, values, found, strict=True):
        if texts.count(text) == 1:
            worse = [at for other, at in zip(values, found, strict=True) if other <= value]
            assert reward >= max(worse) - 1e-9


@given(
    st.lists(st.sampled_from(LETTERS), min_size=2, max_size=8),
    st.floats(0.01, 1),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_equal_qualities_have_the_gains_without_quality(texts, value, order):
    expected = [value * (1 + gain) for gain in rewards(texts, order=order)]
    assert rewards(texts, quality=quality([value] * len(texts)), order=order) == pytest.approx(
        expected, abs=1e-9
    )


@given(st.lists(st.tuples(st.sampled_from("bcdef"), QUALITIES), min_size=1, max_size=6))
def test_a_copy_earns_less_than_another_new_completion_would(others):
    texts, values = zip(*others, strict=True)
    copied = rewards(["a", "a", *texts], quality=quality([1, 1, *values]))
    new = rewards(["a", "g", *texts], quality=quality([1, 1, *values]))
    assert copied[0] == copied[1] < new[1]


@given(st.lists(st.tuples(st.sampled_from(LETTERS), st.floats(0, 1)), min_size=2, max_size=8))
def test_no_good_completion_earns_less_than_a_worthless_one(pairs):
    texts, values = zip(*pairs, strict=True)
    for found, value in zip(rewards(texts, quality=quality(values)), values, strict=True):
        assert 0 <= found <= 2 * value


def test_completions_that_quality_does_not_apply_to_are_ignored():
    found = rewards("aab", quality=quality([1, None, float("nan")]))
    assert found == [1, None, None]


def test_quality_gets_what_the_trainer_passes():
    seen = {}

    def keep(**columns):
        seen.update(columns)
        return [1.0, 1.0]

    of_letters(quality=keep)(["p"] * 2, ["a", "b"], completion_ids=[[1], [2]], answer=[3, 4])
    expected = {"completion_ids": [[1], [2]], "answer": [3, 4]}
    assert seen == {"prompts": ["p"] * 2, "completions": ["a", "b"], **expected}


# Trainers.


def test_the_score_of_the_groups_is_logged():
    logged = {}
    reward = of_letters(name="variety")
    reward(["p", "p", "q", "q"], list("abcc"), log_metric=logged.__setitem__)
    assert reward.__name__ == "variety"
    assert logged == {"variety/vendi": pytest.approx(1.5)}


def test_the_reward_is_pickled():
    reward = pickle.loads(pickle.dumps(DiversityReward(bandwidth=0.3, order=2)))
    assert reward == DiversityReward(bandwidth=0.3, order=2)


def test_embedders_are_chosen_by_name():
    texts = ["a red boat", "a red ship", "no"]
    by_name = DiversityReward(embedder="wordllama", bandwidth=0.5)(["p"] * 3, texts)
    assert by_name == DiversityReward()(["p"] * 3, texts)


def test_groups_spread_over_processes_count_as_one(tmp_path):
    processes = run_two(tmp_path)
    right = rewards_of(PROMPTS, COMPLETIONS)
    for name in ("plain", "quality"):
        assert processes[0][name] + processes[1][name] == right[name]
    # Without exchange, each process sees its own part of the second group.
    for share, process in zip(SHARES, processes, strict=True):
        assert process["alone"] == rewards_of(PROMPTS[share], COMPLETIONS[share])["plain"]
    assert processes[0]["alone"] + processes[1]["alone"] != right["plain"]
    assert processes[0]["blank"] == DiversityReward()(["p"] * 2, ["a cat", "a dog"])
    assert processes[1]["blank"] == [-1, -1]


# Refusals.


async def slow(**columns):
    return []


class Slow:
    async def __call__(self, **columns):
        return []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embedder": one_hot}, "with `embedder`, `bandwidth` or `kernel` must be given"),
        ({"bandwidth": 1.0, "kernel": dp.Cosine()}, "were both given"),
        ({"kernel": "cosine"}, "`kernel` must be a kernel such as"),
        ({"bandwidth": -1}, "`bandwidth` must be positive"),
        ({"embedder": "worldlama", "bandwidth": 1.0}, "worldlama"),
        ({"embedder": dp.EfficientNetLite0(), "bandwidth": 1.0}, "must embed texts"),
        ({"order": 0}, "`order` must be positive"),
        ({"weight": 0}, "`weight` must be positive"),
        ({"weight": 1.5, "quality": length}, "`weight` must be at most 1 with `quality`"),
        ({"quality": slow}, "not a coroutine"),
        ({"quality": Slow()}, "not a coroutine"),
        ({"quality": 3}, "`quality` must be a function"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(dp.ArgumentError, match=message):
        DiversityReward(**settings)


@pytest.mark.parametrize(
    ("prompts", "completions", "message"),
    [
        (["p"], ["a", "b"], "must have the same length; got 1 and 2"),
        (["p"], [3], "completion 0 is or contains one of type int"),
        (["p"], [["a"]], "completion 0 is or contains one of type str"),
        (["p"], [[{"content": [{"type": "image"}]}]], "completion 0 has a part that is no text"),
        (["p"], [[{"content": 3}]], "completion 0 is or contains one of type int"),
        ([object()], ["a"], "prompts must be texts or chats"),
    ],
)
def test_completions_that_are_no_texts_are_refused(prompts, completions, message):
    with pytest.raises(dp.DataError, match=message):
        of_letters()(prompts, completions)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1], dp.DataError, "a reward for each of the 2 completions; it returned 1"),
        ([1, -0.5], dp.DataError, "numbers of at least 0; it returned -0.5"),
        ([1, math.inf], dp.ArgumentError, "returns finite numbers"),
    ],
)
def test_quality_that_cannot_be_used_is_refused(values, kind, message):
    with pytest.raises(kind, match=message):
        rewards("ab", quality=quality(values))
