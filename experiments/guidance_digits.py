"""Does prompt-aware guidance do what the paper says? Conditional Vendi, Table 1, on a model small enough for two cores.

    python experiments/guidance_digits.py --quick              # two minutes
    python experiments/guidance_digits.py --json digits.json   # more seeds, and strengths compared
    python experiments/guidance_digits.py --write              # the same, and puts the tables into docs/guidance_digits.md

A diffusion model learns the digits that come with scikit-learn from sentences that name them. It then draws pictures without
guidance and with the gradients of four scores, from the same noise and the same prompts. What comes out is judged by features
of a classifier that has seen real digits only. Needs torch, diffusers, scikit-learn and wordllama.
"""

import argparse
import json
import math
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import DDPMScheduler, DPMSolverMultistepScheduler
from scipy.stats import t as student
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import divprism as dp
from divprism.guidance import Bank, DiversityGuidance

MARK = "<!-- made by experiments/guidance_digits.py -->"
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEMPLATES = ("a handwritten {}", "a {} written by hand", "the number {}", "a {}")
METHODS = ("none", "vendi", "rke", "conditional_vendi", "conditional_rke")
COLUMNS = {  # name: (title, factor in tables, decimals, +1 if the claim is that it rises)
    "alignment": ("alignment, %", 100, 2, 0),
    "kernel_distance": ("kernel distance x 100", 100, 2, -1),
    "conditional_vendi": ("Conditional-Vendi", 1, 2, 1),
    "vendi": ("Vendi", 1, 2, 1),
    "in_batch_similarity": ("in-batch similarity x 100", 100, 2, -1),
}
REACH = ("recall", "coverage")
SHARES = ("alignment", *REACH)  # between 0 and 1, and so are the ends of their intervals
PIXELS = 64
LEVEL = 0.95


@dataclass(frozen=True)
class Settings:
    """All that the numbers depend on. Each method is seen at `strength` and, if there are any, at its own of `strengths`.

    Those are chosen on `tuning_seeds`.
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
    bandwidth_t: float = (
        0.3  # of prompts, in guidance and in scores: that of Conditional Vendi, App. E.3
    )


QUICK = Settings(train_steps=2000, train_batch=64, rounds=5, seeds=(0, 1, 2), strengths=())


@dataclass(frozen=True, eq=False)
class Digits:
    """Real pictures as rows in [-1, 1], what they show, and the sentences: embeddings, digit by digit, template by template."""

    pictures: torch.Tensor
    labels: torch.Tensor
    prompts: torch.Tensor

    @classmethod
    def load(cls) -> "Digits":
        """All 1,797 pictures of scikit-learn."""
        found = load_digits()
        sentences = [template.format(digit) for digit in DIGITS for template in TEMPLATES]
        embedded = torch.tensor(dp.WordLlama().embed_batch(sentences))
        return cls(
            torch.tensor(found.data / 8 - 1, dtype=torch.float32),
            torch.tensor(found.target),
            embedded,
        )


class Denoiser(nn.Module):
    """A residual network on 64 pixels that is told the time and the prompt."""

    def __init__(self, width: int, prompt_width: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, -math.log(1e4), 32)))
        self.told = nn.Sequential(
            nn.Linear(64 + prompt_width, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.first = nn.Linear(PIXELS, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
            )
            for _ in range(3)
        )
        self.last = nn.Linear(width, PIXELS)

    def forward(
        self, latents: torch.Tensor, times: torch.Tensor, prompts: torch.Tensor
    ) -> torch.Tensor:
        """The velocity that the schedulers ask for."""
        angles = times[:, None].float() * self.frequencies
        told = self.told(torch.cat([angles.sin(), angles.cos(), 4 * prompts], dim=1))
        hidden = self.first(latents)
        for block in self.blocks:
            hidden = hidden + block(hidden + told)
        return self.last(hidden)


def _schedule(kind: type) -> DDPMScheduler | DPMSolverMultistepScheduler:
    return kind(1000, beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction")


def train_denoiser(digits: Digits, settings: Settings) -> Denoiser:
    """A denoiser with a moving average of the weights; one prompt in ten is left out, for classifier-free guidance."""
    model = Denoiser(settings.width, digits.prompts.shape[1])
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
    schedule, size = _schedule(DDPMScheduler), settings.train_batch
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3, fused=True)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=settings.train_steps)
    for step in range(settings.train_steps):
        rows, times = torch.randint(len(digits.pictures), (size,)), torch.randint(1000, (size,))
        sentences = digits.labels[rows] * len(TEMPLATES) + torch.randint(len(TEMPLATES), (size,))
        prompts = digits.prompts[sentences] * (torch.rand(size, 1) > 0.1)
        pictures, noise = digits.pictures[rows], torch.randn(size, PIXELS)
        wanted = schedule.get_velocity(pictures, noise, times)
        loss = nn.functional.mse_loss(
            model(schedule.add_noise(pictures, noise, times), times, prompts), wanted
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rate.step()
        if step % 4 == 0:
            average.update_parameters(model)
    return average.module.eval()


class Judge:
    """A classifier of real digits; its features, all of one length, are what pictures are compared by.

    One real digit in five is held out of its training. A raw judge looks at pixels beyond black and white as well, and its
    features grow with the contrast; those of real digits have the same mean square as otherwise.
    """

    def __init__(self, digits: Digits, steps: int, *, raw: bool = False) -> None:
        self.limit = math.inf if raw else 1.0
        end = nn.ReLU() if raw else nn.LayerNorm(64, elementwise_affine=False)
        self.body = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 64), end)
        self.head = nn.Linear(64, 10)
        held_out = torch.arange(len(digits.pictures)) % 5 == 0
        pictures, labels = digits.pictures[~held_out], digits.labels[~held_out]
        optimiser = torch.optim.AdamW(
            [*self.body.parameters(), *self.head.parameters()], 1e-3, weight_decay=0.05
        )
        for _ in range(steps):
            rows = torch.randint(len(pictures), (128,))
            noisy = pictures[rows] + 0.2 * torch.randn(128, PIXELS)
            loss = nn.functional.cross_entropy(self.head(self.body(noisy)), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            self.unit = float(self.body(digits.pictures).square().mean().sqrt())
        self.pictures = digits.pictures.numpy()
        self.real, seen = self.look(digits.pictures)
        self.bandwidth = dp.StableScore().bandwidth(self.real)
        self.accuracy = float((seen == digits.labels.numpy())[held_out.numpy()].mean())

    @torch.no_grad()
    def look(self, pictures: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Features, and which digit each picture shows."""
        features = self.body(pictures)
        return (features / self.unit).numpy(), self.head(features).argmax(dim=1).numpy()


@dataclass(frozen=True, eq=False)
class Pipeline:
    """From noise to digits, as a pipeline of diffusers does it: a model, and the scheduler that `attach` looks for."""

    model: Denoiser
    scheduler: DPMSolverMultistepScheduler
    settings: Settings

    @torch.no_grad()
    def __call__(self, latents: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
        """Latents at the end of a run."""
        self.scheduler.set_timesteps(self.settings.sampling_steps)
        for time in self.scheduler.timesteps:
            latents = self.scheduler.step(
                self._velocity(latents, time, prompts), time, latents
            ).prev_sample
        return latents

    def _velocity(
        self, latents: torch.Tensor, time: torch.Tensor, prompts: torch.Tensor
    ) -> torch.Tensor:
        """What the model says, led away from what it says without prompts."""
        times = time.repeat(len(latents))
        both = torch.cat([torch.zeros_like(prompts), prompts])
        free, told = self.model(latents.repeat(2, 1), times.repeat(2), both).chunk(2)
        return free + self.settings.prompt_weight * (told - free)


def generate(
    model: Denoiser, digits: Digits, method: str, strength: float, seed: int, settings: Settings
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents and the places of their prompts, batch after batch; noise and prompts depend on the seed only.

    Every few steps each latent is pushed along the gradient of the score of batch and earlier pictures, the window (Conditional
    Vendi, eq. 14), with the median distance for bandwidth.
    """
    source = torch.Generator().manual_seed(seed)
    pipe = Pipeline(model, _schedule(DPMSolverMultistepScheduler), settings)
    guide = None if method == "none" else _guide(method, strength, settings)
    drawn, places = [], []
    for _ in range(settings.rounds):
        chosen = torch.randint(len(digits.prompts), (settings.batch,), generator=source)
        latents, prompts = (
            torch.randn(settings.batch, PIXELS, generator=source),
            digits.prompts[chosen],
        )
        with nullcontext() if guide is None else guide.attach(pipe, prompts=prompts):
            drawn.append(pipe(latents, prompts))
        places.append(chosen)
    return torch.cat(drawn), torch.cat(places)


def _guide(method: str, strength: float, settings: Settings) -> DiversityGuidance:
    bandwidth_t = settings.bandwidth_t if method.startswith("conditional") else None
    return DiversityGuidance(
        method,
        strength=strength,
        every=settings.guide_every,
        bandwidth_t=bandwidth_t,
        bank=Bank(settings.window),
    )


def measure(
    latents: torch.Tensor, places: torch.Tensor, digits: Digits, judge: Judge, settings: Settings
) -> dict[str, float]:
    """The columns of Table 1 for one set of pictures, and how much of the real data it reaches (in pixels)."""
    pictures = latents.clamp(-judge.limit, judge.limit)
    features, seen = judge.look(pictures)
    scores = dp.evaluate(
        features,
        digits.prompts[places].numpy(),
        kernel_x=dp.Gaussian(judge.bandwidth),
        kernel_t=dp.Gaussian(settings.bandwidth_t),
    )
    return {
        "alignment": float((seen == places.numpy() // len(TEMPLATES)).mean()),
        "kernel_distance": float(dp.kernel_distance(features, judge.real)),
        "conditional_vendi": float(scores.conditional_vendi),
        "vendi": float(scores.vendi),
        "in_batch_similarity": dp.in_batch_similarity(features, places.numpy()),
        "recall": dp.recall(pictures.numpy(), judge.pictures),
        "coverage": dp.coverage(pictures.numpy(), judge.pictures),
    }


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean over seeds with its interval by Student's t."""
    mean, n = float(np.mean(values)), len(values)
    half = float(student.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _column(name: str, rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """A column of the table, over seeds."""
    found = interval([row[name] for row in rows])
    return (
        {key: min(max(value, 0.0), 1.0) for key, value in found.items()}
        if name in SHARES
        else found
    )


class Study:
    """The trained model and its judge; `rows` draws and measures. What is drawn once is kept."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.digits = Digits.load()
        self.drawn: dict[tuple[str, float, int], tuple[torch.Tensor, torch.Tensor]] = {}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model = train_denoiser(self.digits, settings)
            self.judge = Judge(self.digits, settings.classifier_steps)
            self.raw_judge = Judge(self.digits, settings.classifier_steps, raw=True)

    def draw(self, method: str, strength: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents and the places of their prompts."""
        key = method, strength, seed
        if key not in self.drawn:
            self.drawn[key] = generate(
                self.model, self.digits, method, strength, seed, self.settings
            )
        return self.drawn[key]

    def rows(
        self, method: str, strength: float, seeds: Sequence[int], judge: Judge
    ) -> list[dict[str, float]]:
        """What is measured, for each seed."""
        drawn = [self.draw(method, strength, seed) for seed in seeds]
        found = [
            measure(latents, places, self.digits, judge, self.settings) for latents, places in drawn
        ]
        print(
            f"{method} at {strength:g}: alignment {np.mean([row['alignment'] for row in found]):.4f}",
            file=sys.stderr,
        )
        return found

    def sweep(self) -> dict[str, dict[str, dict[str, float]]]:
        """Means over the tuning seeds: method -> strength -> column."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for method in METHODS:
            for strength in self.settings.strengths if method != "none" else (0.0,):
                rows = self.rows(method, strength, self.settings.tuning_seeds, self.judge)
                means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
                found.setdefault(method, {})[f"{strength:g}"] = means
        return found


def chosen_strengths(sweep: dict, tolerated: float) -> dict[str, float]:
    """For each method the largest strength up to which alignment stays within what is tolerated of that without guidance."""
    least = sweep["none"]["0"]["alignment"] - tolerated
    found = {}
    for method in METHODS[1:]:
        kept = []
        for strength, means in sweep[method].items():
            if means["alignment"] < least:
                break
            kept.append(float(strength))
        found[method] = max(kept, default=min(map(float, sweep[method])))
    return found


def differences(rows: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """What prompts in the score change, seed by seed: each conditional score less its plain one."""
    found = {}
    for plain in ("vendi", "rke"):
        pairs = list(zip(rows[f"conditional_{plain}"], rows[plain], strict=True))
        found[plain] = {
            name: interval([there[name] - here[name] for there, here in pairs])
            for name in (*COLUMNS, *REACH)
        }
    return found


def summary(study: Study, strengths: dict[str, float], judge: Judge) -> dict:
    """Every method on the seeds of the report, as the JSON has it."""
    rows = {
        method: study.rows(method, strengths.get(method, 0.0), study.settings.seeds, judge)
        for method in METHODS
    }

    def columns(names: Sequence[str]) -> dict:
        return {
            method: {name: _column(name, found) for name in names} for method, found in rows.items()
        }

    return {
        "strengths": strengths,
        "methods": columns(list(COLUMNS)),
        "reach": columns(REACH),
        "differences": differences(rows),
    }


def run(settings: Settings) -> dict:
    """Train, and report at one strength for all and, if there are any to choose from, at one for each."""
    study = Study(settings)
    strengths = dict.fromkeys(METHODS[1:], settings.strength)
    found = summary(study, strengths, study.judge)
    judged = {"accuracy": study.judge.accuracy, "bandwidth": study.judge.bandwidth}
    found.update(
        settings=asdict(settings), judge=judged, raw=summary(study, strengths, study.raw_judge)
    )
    if settings.strengths:
        sweep = study.sweep()
        own = summary(study, chosen_strengths(sweep, settings.tolerated), study.judge)
        found.update(sweep=sweep, own_strengths=own)
    return found


def _cell(entry: dict[str, float], factor: float, decimals: int) -> str:
    mean, low, high = (f"{factor * entry[key]:.{decimals}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _table(found: dict) -> str:
    """Table 1, with intervals, and what is reached of the real data."""
    titles = [title for title, *_ in COLUMNS.values()]
    lines = [
        "| guidance | strength | " + " | ".join([*titles, *REACH]) + " |",
        "|---|---:|" + "---:|" * (len(titles) + 2),
    ]
    for method, entries in found["methods"].items():
        cells = [
            _cell(entries[name], factor, decimals)
            for name, (_, factor, decimals, _) in COLUMNS.items()
        ]
        cells += [f"{found['reach'][method][name]['mean']:.2f}" for name in REACH]
        lines.append(
            f"| {method} | {found['strengths'].get(method, 0):g} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


def _verdict(entry: dict[str, float], sign: int) -> str:
    """Whether a paired difference goes the way that the paper says."""
    low, high = sorted((sign * entry["low"], sign * entry["high"]))
    if sign == 0:
        return "equal" if entry["low"] <= 0 <= entry["high"] else "differs"
    return "holds" if low > 0 else "the reverse" if high < 0 else "undecided"


def _claims(found: dict) -> str:
    """The paper's claims, column by column."""
    lines = [
        "| column | claimed | conditional_vendi - vendi | | conditional_rke - rke | |",
        "|---|---|---:|---|---:|---|",
    ]
    for name, (title, factor, decimals, sign) in COLUMNS.items():
        cells = []
        for plain in ("vendi", "rke"):
            entry = found["differences"][plain][name]
            cells += [_cell(entry, factor, decimals), _verdict(entry, sign)]
        lines.append(
            f"| {title} | {('equal', 'higher', 'lower')[sign]} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


def _sweep_table(sweep: dict) -> str:
    titles = [title for title, *_ in COLUMNS.values()]
    lines = [
        "| guidance | strength | " + " | ".join([*titles, *REACH]) + " |",
        "|---|---:|" + "---:|" * (len(titles) + 2),
    ]
    for method, strengths in sweep.items():
        for strength, means in strengths.items():
            cells = [
                f"{factor * means[name]:.{decimals}f}"
                for name, (_, factor, decimals, _) in COLUMNS.items()
            ]
            cells += [f"{means[name]:.2f}" for name in REACH]
            lines.append(f"| {method} | {strength} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(found: dict) -> str:
    """All tables, with the settings in words."""
    s = Settings(**found["settings"])
    n = s.batch * s.rounds
    parts = [
        f"{len(s.seeds)} seeds, {n} pictures each, {s.sampling_steps} steps of DPM-Solver++, guidance every {s.guide_every}, "
        f"window {s.window}, classifier-free weight {s.prompt_weight:g}; denoiser trained for {s.train_steps:,} steps of "
        f"{s.train_batch}. The judge knows {100 * found['judge']['accuracy']:.1f} % of held-out real digits; bandwidth "
        f"{found['judge']['bandwidth']:.2f} of its features, {s.bandwidth_t:g} of prompts. In brackets: {100 * LEVEL:g} % "
        "intervals over seeds, Student's t.",
        f"## One strength for all\n\n{_table(found)}",
        f"What prompts in the score change, on the same noise and prompts:\n\n{_claims(found)}",
        "## A judge that contrast impresses\n\nThe same pictures, pixels beyond black and white left as they are, features "
        f"that grow with the contrast.\n\n{_claims(found['raw'])}",
    ]
    if "sweep" in found:
        own = found["own_strengths"]
        parts += [
            f"## Each at its own strength\n\nThe largest that costs at most {100 * s.tolerated:g} points of alignment, "
            f"on the seeds that strengths are chosen on.\n\n{_table(own)}\n\n{_claims(own)}",
            f"## Strengths\n\nMeans over {len(s.tuning_seeds)} other seeds, on which strengths are chosen.\n\n"
            f"{_sweep_table(found['sweep'])}",
        ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, and write what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="three seeds, fewer pictures, a shorter training, one strength",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to a file")
    parser.add_argument(
        "--write", action="store_true", help="replace the figures in docs/guidance_digits.md"
    )
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(
        1
    )  # sums of two threads round differently, and these networks are too small to gain
    warnings.simplefilter("ignore", dp.BandwidthWarning)
    if chosen.quick and chosen.write:
        parser.error("--write is for the figures of the full run, and --quick is a shorter one.")
    found = run(QUICK if chosen.quick else Settings())
    print(page(found))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.write:
        file = Path(__file__).parent.parent / "docs" / "guidance_digits.md"
        head, _, _ = file.read_text().partition(MARK)
        file.write_text(f"{head}{MARK}\n\n{page(found)}")


if __name__ == "__main__":
    main()
