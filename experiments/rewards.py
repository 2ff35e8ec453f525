"""Does a reward for diversity keep a policy from collapsing? GRPO of TRL on tiny language models.

    python -m experiments.rewards            # ten seeds, a few minutes
    python -m experiments.rewards --write    # updates docs/how-to/training.md too

The models name animals, tools, foods and places, two words for each answer. Quality is the share of
words that fit; it does not matter which ones, so every repetition is the choice of the optimiser.
Each seed trains a model with the quality alone, with `DiversityReward(quality=...)`, and with the
sum of both rewards. Needs TRL and wordllama.
"""

import argparse
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset
from scipy.stats import t as student
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

import divprism as dp
from divprism.integrations.trl import DiversityReward
from experiments.world.words import (
    LENGTH,
    PROMPTS,
    answers,
    language_model,
    share_that_fits,
    tokenizer,
)

MARK = "<!-- made by experiments/rewards.py -->"
PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "training.md"
NUM_ANSWERS = 64
LEVEL = 0.95
REWARDS: dict[str, Callable[[], object]] = {
    "quality": lambda: share_that_fits,
    "DiversityReward(quality=...)": lambda: DiversityReward(quality=share_that_fits),
    "quality + DiversityReward()": lambda: [share_that_fits, DiversityReward()],
}
COLUMNS = ("quality", "distinct answers", "distinct good answers", "Vendi")


def trained(
    reward: object, seed: int, steps: int, folder: str, prompts: Sequence[object] = PROMPTS
) -> GRPOTrainer:
    """A trainer after some steps of GRPO on a model with random weights."""
    settings = GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=LENGTH,
        learning_rate=0.02,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        logging_steps=max(1, steps // 3),
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=language_model(seed),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": list(prompts)}),
        reward_funcs=reward,
        processing_class=tokenizer(),
    )
    trainer.remove_callback(PrinterCallback)  # `state.log_history` has its lines
    trainer.train()
    return trainer


def measured(model: object, seed: int) -> dict[str, float]:
    """Means over the prompts: what 64 answers to each are like."""
    rows = []
    embedder = dp.WordLlama()
    for prompt in PROMPTS:
        texts = answers(model, prompt, NUM_ANSWERS, seed)
        quality = share_that_fits([prompt] * NUM_ANSWERS, texts)
        good = [text for text, share in zip(texts, quality, strict=True) if share == 1]
        # An answer may end before its first word, and then there is nothing to embed.
        spoken = [text for text in texts if text]
        vendi = 0.0
        if spoken:
            vendi = dp.vendi(embedder.embed_batch(spoken), kernel=dp.Gaussian(0.5))
        rows.append([float(np.mean(quality)), len(set(texts)), len(set(good)), vendi])
    return dict(zip(COLUMNS, np.mean(rows, axis=0).tolist(), strict=True))


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of the interval of Student's t, over seeds."""
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = student.ppf((1 + LEVEL) / 2, len(values) - 1) * error
    return f"{mean:.2f} ± {half:.2f}"


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """The means by reward, and the differences from quality alone, as Markdown."""
    lines = [f"| reward | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, runs in results.items():
        cells = [interval([run[column] for run in runs]) for column in COLUMNS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    baseline = results["quality"]
    for name, runs in results.items():
        if name == "quality":
            continue
        cells = []
        for column in COLUMNS:
            pairs = zip(runs, baseline, strict=True)
            cells.append(interval([run[column] - other[column] for run, other in pairs]))
        lines.append(f"| `{name}`, difference | {' | '.join(cells)} |")
    return "\n".join(lines)


def compared(seeds: Sequence[int], steps: int) -> dict[str, list[dict[str, float]]]:
    """What each reward leads to, by seed."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in REWARDS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            for name, make in REWARDS.items():
                model = trained(make(), seed, steps, folder).model
                results[name].append(measured(model, seed))
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the table, and write it into the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    # Notices about options that are not used here.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    text = table(compared(range(options.seeds), options.steps))
    print(text)
    if options.write:
        head, _, rest = PAGE.read_text().partition(MARK)
        _, _, tail = rest.partition("\n\n##")
        PAGE.write_text(f"{head}{MARK}\n\n{text}\n\n##{tail}")


if __name__ == "__main__":
    main()
