"""The diversity reward in the trainer of TRL, on a language model of one layer."""

import logging
import re

import pytest
import trl
from datasets import Dataset

from divprism.integrations.trl import DiversityReward
from experiments import rewards
from experiments.world.words import PROMPTS, language_model, share_that_fits, tokenizer

# Notices of other libraries, which their next version may word in another way.
pytestmark = pytest.mark.filterwarnings("ignore")


def last_log(trainer):
    """The last line of the log with rewards: the line after it sums up the run."""
    return [line for line in trainer.state.log_history if "reward" in line][-1]


def test_the_trainer_calls_and_logs_the_reward(tmp_path):
    seen = []

    def watched(prompts, completions, **columns):
        seen.append((list(prompts), list(completions)))
        return share_that_fits(prompts, completions)

    reward = DiversityReward()
    trainer = rewards.trained([watched, reward], seed=0, steps=2, folder=str(tmp_path))
    log = last_log(trainer)
    [_, (prompts, completions)] = seen
    # Four prompts with eight completions each, one prompt after the other.
    assert len(set(prompts)) == 4
    expected = reward(prompts, completions)
    assert log["rewards/diversity/mean"] == pytest.approx(sum(expected) / 32, abs=1e-6)
    assert 1 <= log["diversity/vendi"] <= 8


def test_chats_are_rewarded_as_texts_are(tmp_path):
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    reward = DiversityReward()
    found = []
    for prompts in (PROMPTS, chats):
        trainer = rewards.trained(reward, 0, 1, str(tmp_path), prompts)
        found.append(last_log(trainer)["rewards/diversity/mean"])
    assert found[0] == found[1] != 0


def test_the_lines_of_the_guide_build_a_trainer(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(from trl.*?)```", rewards.PAGE.read_text(), re.DOTALL)
    # What the lines leave to the reader: where the trainer runs and writes, and its tokenizer.
    monkeypatch.chdir(tmp_path)
    trainer_of_trl, config_of_trl = trl.GRPOTrainer, trl.GRPOConfig

    def small_trainer(**options):
        return trainer_of_trl(**options, processing_class=tokenizer())

    def small_config(**options):
        size = {"max_completion_length": 2, "per_device_train_batch_size": 8, "max_steps": 1}
        return config_of_trl(**options, **size, use_cpu=True, report_to=[], save_strategy="no")

    monkeypatch.setattr(trl, "GRPOTrainer", small_trainer)
    monkeypatch.setattr(trl, "GRPOConfig", small_config)
    scope = {
        "model": language_model(0),
        "dataset": Dataset.from_dict({"prompt": PROMPTS}),
        "my_reward": share_that_fits,
    }
    exec(code, scope)
    scope["trainer"].train()
    assert "rewards/diversity/mean" in last_log(scope["trainer"])


def test_the_experiment_compares_rewards(capsys):
    logging.disable(logging.NOTSET)
    try:
        rewards.main(["--seeds", "2", "--steps", "1"])
    finally:
        logging.disable(logging.NOTSET)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 3 + 2
    # After one step the model still answers nearly at random: about a quarter of its words fit.
    quality, distinct, *_ = lines[2].split("|")[2:]
    assert 0.1 < float(quality.split()[0]) < 0.5
    assert float(distinct.split()[0]) > 30


def test_random_models_differ_by_their_seed_only():
    def weight(seed):
        return next(language_model(seed).parameters())

    assert (weight(0) == weight(0)).all()
    assert (weight(0) != weight(1)).any()
