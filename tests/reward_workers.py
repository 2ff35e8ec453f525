"""Two processes that share the groups of a reward; a module of its own, which both can import."""

import json
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed
import torch.multiprocessing

import divprism as dp
from divprism.integrations.trl import DiversityReward

WORDS = ["tea", "milk", "juice", "water"]
# The second group is spread over both processes, which have different numbers of completions.
PROMPTS = ["Drink?"] * 4 + ["And then?"] * 5
COMPLETIONS = ["tea", "tea", "milk", "", "juice", "water", "water", "juice", "juice"]
SHARES = [slice(0, 6), slice(6, 9)]


def one_hot(texts):
    """A vector for each word: all words are unlike each other."""
    return [[float(text == word) for word in WORDS] for text in texts]


def length(prompts, completions, **columns):
    """A quality that differs between the completions."""
    return [len(text) / 5 for text in completions]


def rewards_of(prompts, completions):
    """The rewards with and without quality, and without exchange between processes."""
    settings = {"embedder": one_hot, "kernel": dp.Cosine()}
    rewards = {
        "plain": DiversityReward(**settings),
        "quality": DiversityReward(**settings, quality=length),
        "alone": DiversityReward(**settings, gather=False),
    }
    return {name: reward(prompts, completions) for name, reward in rewards.items()}


def run(rank, folder):
    """Join the group, compute the rewards of this process, and write them to a file."""
    meeting = f"file://{folder}/meeting"
    torch.distributed.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(minutes=2)
    )
    try:
        found = rewards_of(PROMPTS[SHARES[rank]], COMPLETIONS[SHARES[rank]])
        # A process whose completions are all empty has vectors of no width.
        found["blank"] = DiversityReward()(["p"] * 2, [["a cat", "a dog"], ["", " "]][rank])
        Path(folder, f"{rank}.json").write_text(json.dumps(found))
    finally:
        torch.distributed.destroy_process_group()


def run_two(folder):
    """What each of two processes found."""
    # This process is the second one: the imports of another would take most of the time.
    other = torch.multiprocessing.spawn(run, (str(folder),), nprocs=1, join=False)
    run(1, str(folder))
    while not other.join():
        pass
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in (0, 1)]
