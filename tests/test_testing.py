"""assert_diverse: passes, fails with one sentence, and refuses what it cannot check."""

import json

import numpy as np
import pytest

import divprism as dp
from divprism.testing import assert_diverse

# Ten prompts with five outputs each, all different.
X, T = np.eye(50), np.repeat(np.arange(10), 5)
COSINE = {"kernel_x": dp.Cosine()}


def message_of(*data, **keywords):
    with pytest.raises(AssertionError) as caught:
        assert_diverse(*data, **keywords)
    return str(caught.value)


def test_scores_at_their_limits_pass():
    assert_diverse(X, T, conditional_vendi=4.99, vendi=49.9, **COSINE)
    assert_diverse(X, vendi=49.9, **COSINE)
    # Without a limit of its own, a prompt should have four distinct outputs.
    assert_diverse(X, T, **COSINE)


def test_a_failure_names_the_score_its_value_its_interval_and_its_limit():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((60, 3)), np.repeat(np.arange(20), 3)
    result = dp.evaluate(x, t, interval=0.9)
    value, interval = result.conditional_vendi, result.intervals["conditional_vendi"]
    assert message_of(x, t, conditional_vendi=30, vendi=1, interval=0.9) == (
        f"conditional_vendi is {value:.4g} (90 % interval {interval.low:.4g} to "
        f"{interval.high:.4g}), below the limit of 30."
    )


def test_the_default_interval_is_that_of_95_percent():
    assert " (95 % interval " in message_of(X, T, vendi=51, **COSINE)
    settings = dp.Settings(interval=0.5, **COSINE)
    assert " (50 % interval " in message_of(X, T, vendi=51, settings=settings)


def test_without_an_interval_there_is_only_the_value():
    text = "vendi is 2, below the limit of 3."
    assert message_of(np.eye(2), vendi=3, **COSINE) == text  # too few for one
    text = "vendi is 50, below the limit of 51."
    assert message_of(X, T, vendi=51, interval=None, **COSINE) == text


def test_all_low_scores_are_in_the_sentence():
    text = message_of(X, T, vendi=51, rke=52, conditional_vendi=1, interval=None, **COSINE)
    assert text == "vendi is 50, below the limit of 51, and rke is 50, below the limit of 52."


def test_models_are_named(tmp_path):
    rows = [{"prompt": f"p{i % 5}", "output": f"text {i}", "llm": "ab"[i // 15]} for i in range(30)]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    text = message_of(path, vendi=31, model="llm", interval=None, embedder_x=len_and_last)
    assert text.startswith("vendi of a is ") and "and vendi of b is " in text


def len_and_last(texts):
    return np.array([[len(text), ord(text[-1]), 1.0] for text in texts])


def test_settings_of_an_earlier_result_are_used():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    baseline = dp.evaluate(x, kernel_x=dp.Gaussian(0.5))
    settings = dp.Settings.from_dict(json.loads(baseline.to_json())["settings"])
    value = float(baseline.vendi)
    assert_diverse(x, vendi=value * 0.999, settings=settings)
    assert message_of(x, vendi=value * 1.001, settings=settings).startswith(f"vendi is {value:.4g}")


@pytest.mark.parametrize(
    ("data", "keywords", "text"),
    [
        (
            (X,),
            {"conditional_vendi": 4},
            "`conditional_vendi` cannot be checked: the score needs pr",
        ),
        ((X,), {}, "`conditional_vendi` cannot be checked: the score needs prompts"),
        ((X, T), {"cluster_rke": 2}, "`cluster_rke` cannot be checked: the score needs labels"),
        ((X, np.arange(50)), {"per_prompt_rke": 2}, "the score needs prompts and repeated prompts"),
        ((X, T), {"vendi": float("nan")}, "`vendi` must be a finite number; got nan"),
        ((X, T), {"vendi": "many"}, "`vendi` must be a finite number; got 'many'"),
    ],
)
def test_what_cannot_be_checked_is_refused(data, keywords, text):
    # Not an AssertionError: nothing is known about the diversity.
    with pytest.raises(dp.ArgumentError, match=text):
        assert_diverse(*data, **keywords, **COSINE)


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'vendy'"):
        assert_diverse(X, T, vendy=3)
