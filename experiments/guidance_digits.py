"""Does prompt-aware guidance do what the paper claims? Conditional Vendi, Table 1, on a tiny model.

    python -m experiments.guidance_digits --quick              # two minutes
    python -m experiments.guidance_digits --json digits.json   # more seeds, several strengths
    python -m experiments.guidance_digits --write              # updates docs/explanation/ too

A diffusion model learns the digits of scikit-learn from sentences that name them. It then generates
images without guidance and with the gradients of four scores, from the same noise and the same
prompts. The images are judged by features of a classifier that was trained on real digits only.
Needs torch, diffusers, scikit-learn and wordllama.
"""

import argparse
import json
import math
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import DPMSolverMultistepScheduler
from scipy.stats import t as student
from sklearn.datasets import load_digits

import divprism as dp
from divprism.guidance import Bank, DiversityGuidance
from divprism.guidance.objectives import objective
from experiments.world.digits import DIGITS
from experiments.world.networks import (
    PIXELS,
    Denoiser,
    Judge,
    Pictures,
    Pipeline,
    schedule,
    train_denoiser,
)

MARK = "<!-- made by experiments/guidance_digits.py -->"
TEMPLATES = ("a handwritten {}", "a {} written by hand", "the number {}", "a {}")
METHODS = ("none", "vendi", "rke", "conditional_vendi", "conditional_rke")
PAIRS = {"vendi": "conditional_vendi", "rke": "conditional_rke"}  # plain score: with prompts
# name: (title, factor in tables, decimals, direction that the paper claims: +1 is higher)
COLUMNS = {
    "alignment": ("alignment, %", 100, 2, 0),
    "kernel_distance": ("kernel distance x 100", 100, 2, -1),
    "conditional_vendi": ("Conditional-Vendi", 1, 2, 1),
    "vendi": ("Vendi", 1, 2, 1),
    "in_batch_similarity": ("in-batch similarity x 100", 100, 2, -1),
}
REACH = ("recall", "coverage")
SHARES = ("alignment", *REACH)  # between 0 and 1: intervals are clipped to that range
LEVEL = 0.95


@dataclass(frozen=True)
class Settings:
    """Everything that the numbers depend on.

    Each method runs at `strength` and, unless `strengths` is empty, at the best of these for the
    method, chosen on `tuning_seeds`.
    """

    train_steps: int = 5000
    train_batch: int = 128
    width: int = 192
    classifier_steps: int = 600
    sampling_steps: int = 30
    prompt_weight: float = 2.0  # of classifier-free guidance
    guide_every: int = 5
    window: int = 300
    batch: int = 50
    rounds: int = 10
    seeds: tuple[int, ...] = tuple(range(6))
    strength: float = 0.03  # that of Conditional Vendi, App. E.3
    strengths: tuple[float, ...] = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3)
    tuning_seeds: tuple[int, ...] = (100, 101, 102)
    tolerated: float = 0.005  # alignment that guidance may cost
    # Of prompts, in guidance and in scores: that of Conditional Vendi, App. E.3.
    bandwidth_t: float = 0.3


QUICK = Settings(train_steps=2000, train_batch=64, rounds=5, seeds=(0, 1, 2), strengths=())


class Digits(Pictures):
    """Real digits and the sentences that name them, by digit and then by template."""

    @classmethod
    def load(cls) -> "Digits":
        """Return all 1,797 images of scikit-learn."""
        dataset = load_digits()
        sentences = [template.format(digit) for digit in DIGITS for template in TEMPLATES]
        # Grey levels run from 0 to 16.
        images = torch.tensor(dataset.data / 8 - 1, dtype=torch.float32)
        prompts = torch.tensor(dp.WordLlama().embed_batch(sentences))
        places = torch.arange(len(sentences)).reshape(len(DIGITS), len(TEMPLATES))
        return cls(images, torch.tensor(dataset.target), prompts, places)


class DigitJudge(Judge):
    """A judge with the real digits that images are compared with."""

    def __init__(self, digits: "Digits", steps: int, *, raw: bool = False) -> None:
        super().__init__(digits, steps, raw=raw)
        self.images = digits.images.numpy()
        self.real, _ = self.look(digits.images)
        self.bandwidth = dp.StableScore().bandwidth(self.real)


def generate(
    model: Denoiser,
    digits: Digits,
    guide: DiversityGuidance | None,
    seed: int,
    settings: Settings,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return latents and the indices of their prompts; the seed decides noise and prompts.

    Every few steps the guide pushes each latent along the gradient of the score of the batch and
    the window of earlier images (Conditional Vendi, eq. 14).
    """
    generator = torch.Generator().manual_seed(seed)
    scheduler = schedule(DPMSolverMultistepScheduler)
    pipe = Pipeline(model, scheduler, settings.sampling_steps, settings.prompt_weight)
    batches, indices = [], []
    for _ in range(settings.rounds):
        chosen = torch.randint(len(digits.prompts), (settings.batch,), generator=generator)
        latents = torch.randn(settings.batch, PIXELS, generator=generator)
        prompts = digits.prompts[chosen]
        hook: AbstractContextManager[object] = nullcontext()
        if guide is not None:
            hook = guide.attach(pipe, prompts=prompts)
        with hook:
            batches.append(pipe(latents, prompts))
        indices.append(chosen)
    return torch.cat(batches), torch.cat(indices)


def guide_by(method: str, strength: float, settings: Settings) -> DiversityGuidance | None:
    """Return the guide of a method; its bandwidth on latents is their median distance."""
    if method == "none":
        return None
    score = objective(method)
    bandwidth_t = None
    if score.conditional:
        bandwidth_t = settings.bandwidth_t
    return DiversityGuidance(
        score,
        strength=strength,
        every=settings.guide_every,
        bandwidth_t=bandwidth_t,
        bank=Bank(settings.window),
    )


def measure(
    latents: torch.Tensor,
    indices: torch.Tensor,
    digits: Digits,
    judge: DigitJudge,
    settings: Settings,
) -> dict[str, float]:
    """Return the columns of Table 1 for a set of images, and its recall and coverage in pixels."""
    images = latents.clamp(-judge.limit, judge.limit)
    features, seen = judge.look(images)
    scores = dp.evaluate(
        features,
        digits.prompts[indices].numpy(),
        kernel_x=dp.Gaussian(judge.bandwidth),
        kernel_t=dp.Gaussian(settings.bandwidth_t),
    )
    return {
        "alignment": float((seen == indices.numpy() // len(TEMPLATES)).mean()),
        "kernel_distance": float(dp.kernel_distance(features, judge.real)),
        "conditional_vendi": float(scores.conditional_vendi),
        "vendi": float(scores.vendi),
        "in_batch_similarity": dp.in_batch_similarity(features, indices.numpy()),
        "recall": dp.recall(images.numpy(), judge.images),
        "coverage": dp.coverage(images.numpy(), judge.images),
    }


def interval(values: Sequence[float]) -> dict[str, float]:
    """Return the mean over seeds with its interval by Student's t."""
    mean, n = float(np.mean(values)), len(values)
    half = float(student.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _column(name: str, rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the interval of a column over seeds, within its range."""
    entry = interval([row[name] for row in rows])
    if name not in SHARES:
        return entry
    return {key: min(max(value, 0.0), 1.0) for key, value in entry.items()}


class Study:
    """The trained model and its judges. Images that were generated once are kept."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.digits = Digits.load()
        self.generated: dict[tuple[str, float, int], tuple[torch.Tensor, torch.Tensor]] = {}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model = train_denoiser(
                self.digits,
                width=settings.width,
                steps=settings.train_steps,
                batch=settings.train_batch,
            )
            self.judge = DigitJudge(self.digits, settings.classifier_steps)
            self.raw_judge = DigitJudge(self.digits, settings.classifier_steps, raw=True)

    def generate(
        self, method: str, strength: float, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return latents and the indices of their prompts."""
        key = method, strength, seed
        if key not in self.generated:
            guide = guide_by(method, strength, self.settings)
            self.generated[key] = generate(self.model, self.digits, guide, seed, self.settings)
        return self.generated[key]

    def rows(
        self, method: str, strength: float, seeds: Sequence[int], judge: DigitJudge
    ) -> list[dict[str, float]]:
        """Return the measurements for each seed."""
        rows = []
        for seed in seeds:
            latents, indices = self.generate(method, strength, seed)
            rows.append(measure(latents, indices, self.digits, judge, self.settings))
        mean_alignment = np.mean([row["alignment"] for row in rows])
        print(f"{method} at {strength:g}: alignment {mean_alignment:.4f}", file=sys.stderr)
        return rows

    def sweep(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return means over the tuning seeds: method -> strength -> column."""
        means: dict[str, dict[str, dict[str, float]]] = {}
        for method in METHODS:
            strengths = self.settings.strengths
            if method == "none":
                strengths = (0.0,)
            means[method] = {}
            for strength in strengths:
                rows = self.rows(method, strength, self.settings.tuning_seeds, self.judge)
                means[method][f"{strength:g}"] = _means(rows)
        return means


def _means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    means = {}
    for name in rows[0]:
        means[name] = float(np.mean([row[name] for row in rows]))
    return means


def chosen_strengths(sweep: dict, tolerated: float) -> dict[str, float]:
    """Return for each method the largest strength up to which alignment hardly suffers.

    Alignment may be lower by `tolerated` than without guidance, at this and all smaller strengths.
    """
    lowest = sweep["none"]["0"]["alignment"] - tolerated
    chosen = {}
    for method in METHODS[1:]:
        accepted = []
        for strength, means in sweep[method].items():
            if means["alignment"] < lowest:
                break
            accepted.append(float(strength))
        chosen[method] = max(accepted, default=min(map(float, sweep[method])))
    return chosen


def differences(rows: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return what prompts in the score change: each conditional score minus its plain one.

    The differences are taken seed by seed, because methods share noise and prompts.
    """
    entries: dict[str, dict[str, dict[str, float]]] = {}
    for plain, conditional in PAIRS.items():
        pairs = list(zip(rows[conditional], rows[plain], strict=True))
        entries[plain] = {}
        for name in (*COLUMNS, *REACH):
            entries[plain][name] = interval(
                [with_[name] - without[name] for with_, without in pairs]
            )
    return entries


def summary(study: Study, strengths: dict[str, float], judge: DigitJudge) -> dict:
    """Return every method on the seeds of the report, as in the JSON file."""
    rows = {}
    for method in METHODS:
        strength = strengths.get(method, 0.0)
        rows[method] = study.rows(method, strength, study.settings.seeds, judge)

    def columns(names: Sequence[str]) -> dict:
        entries = {}
        for method, method_rows in rows.items():
            entries[method] = {name: _column(name, method_rows) for name in names}
        return entries

    return {
        "strengths": strengths,
        "methods": columns(list(COLUMNS)),
        "reach": columns(REACH),
        "differences": differences(rows),
    }


def run(settings: Settings) -> dict:
    """Train, and report at one strength for all methods and at one chosen for each."""
    study = Study(settings)
    strengths = dict.fromkeys(METHODS[1:], settings.strength)
    results = summary(study, strengths, study.judge)
    results["settings"] = asdict(settings)
    results["judge"] = {"accuracy": study.judge.accuracy, "bandwidth": study.judge.bandwidth}
    results["raw"] = summary(study, strengths, study.raw_judge)
    if settings.strengths:
        results["sweep"] = study.sweep()
        own = chosen_strengths(results["sweep"], settings.tolerated)
        results["own_strengths"] = summary(study, own, study.judge)
    return results


def _cell(entry: dict[str, float], factor: float, decimals: int) -> str:
    mean, low, high = (f"{factor * entry[key]:.{decimals}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _header() -> list[str]:
    titles = [title for title, *_ in COLUMNS.values()]
    return [
        "| guidance | strength | " + " | ".join([*titles, *REACH]) + " |",
        "|---|---:|" + "---:|" * (len(titles) + 2),
    ]


def _table(results: dict) -> str:
    """Return Table 1 with intervals, recall and coverage."""
    lines = _header()
    for method, entries in results["methods"].items():
        cells = [f"{results['strengths'].get(method, 0):g}"]
        for name, (_, factor, decimals, _) in COLUMNS.items():
            cells.append(_cell(entries[name], factor, decimals))
        for name in REACH:
            cells.append(f"{results['reach'][method][name]['mean']:.2f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _verdict(entry: dict[str, float], sign: int) -> str:
    """Return whether a paired difference has the direction that the paper claims."""
    low, high = sorted((sign * entry["low"], sign * entry["high"]))
    if sign == 0:
        return "equal" if entry["low"] <= 0 <= entry["high"] else "differs"
    if low > 0:
        return "holds"
    if high < 0:
        return "the reverse"
    return "undecided"


def _claims(results: dict) -> str:
    """Return the paper's claims, column by column."""
    lines = [
        "| column | claimed | conditional_vendi - vendi | | conditional_rke - rke | |",
        "|---|---|---:|---|---:|---|",
    ]
    for name, (title, factor, decimals, sign) in COLUMNS.items():
        cells = []
        for plain in PAIRS:
            entry = results["differences"][plain][name]
            cells += [_cell(entry, factor, decimals), _verdict(entry, sign)]
        claim = {0: "equal", 1: "higher", -1: "lower"}[sign]
        lines.append(f"| {title} | {claim} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _sweep_table(sweep: dict) -> str:
    lines = _header()
    for method, strengths in sweep.items():
        for strength, means in strengths.items():
            cells = [strength]
            for name, (_, factor, decimals, _) in COLUMNS.items():
                cells.append(f"{factor * means[name]:.{decimals}f}")
            cells += [f"{means[name]:.2f}" for name in REACH]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(results: dict) -> str:
    """Return all tables, with the settings in words."""
    s = Settings(**results["settings"])
    judge = results["judge"]
    parts = [
        f"{len(s.seeds)} seeds with {s.batch * s.rounds} images each, {s.sampling_steps} steps of "
        f"DPM-Solver++, guidance every {s.guide_every} steps, window {s.window}, classifier-free "
        f"weight {s.prompt_weight:g}; denoiser trained for {s.train_steps:,} steps with batches of "
        f"{s.train_batch}. The judge recognises {100 * judge['accuracy']:.1f} % of held-out real "
        f"digits; bandwidth {judge['bandwidth']:.2f} for its features, {s.bandwidth_t:g} for "
        f"prompts. In brackets: {100 * LEVEL:g} % intervals over seeds, Student's t.",
        f"## One strength for all\n\n{_table(results)}",
        "Effect of prompts in the score, on the same noise and prompts:\n\n" + _claims(results),
        "## A judge that rewards contrast\n\nThe same images with pixels beyond black and white "
        f"unchanged, and features that grow with the contrast.\n\n{_claims(results['raw'])}",
    ]
    if "sweep" in results:
        own = results["own_strengths"]
        parts += [
            "## Each method at its own strength\n\nThe largest strength that costs at most "
            f"{100 * s.tolerated:g} points of alignment on the tuning seeds.\n\n"
            f"{_table(own)}\n\n{_claims(own)}",
            f"## Strengths\n\nMeans over the {len(s.tuning_seeds)} tuning seeds, which are not "
            f"used above.\n\n{_sweep_table(results['sweep'])}",
        ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, and write the requested files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="three seeds, fewer images, a shorter training, one strength",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to a file")
    parser.add_argument(
        "--write", action="store_true", help="replace the tables in docs/explanation"
    )
    options = parser.parse_args(arguments)
    # Sums over two threads round differently, and these networks are too small to gain from them.
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", dp.BandwidthWarning)
    if options.quick and options.write:
        parser.error("--write publishes the full run; drop --quick, which is shorter.")
    settings = Settings()
    if options.quick:
        settings = QUICK
    results = run(settings)
    print(page(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.write:
        file = Path(__file__).parent.parent / "docs" / "explanation" / "guidance_digits.md"
        head, _, _ = file.read_text().partition(MARK)
        file.write_text(f"{head}{MARK}\n\n{page(results)}")


if __name__ == "__main__":
    main()
