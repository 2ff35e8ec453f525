"""What the embedders of sounds hear, and whether scores of sounds follow a known truth.

    python -m experiments.audio            # three seeds, a few minutes
    python -m experiments.audio --write    # updates docs/how-to/audio.md too

Melodies are synthesised (experiments/world/sounds.py): eight instruments, four rhythms, three
registers, random notes. Generators know 1, 2, 4 or 8 of the instruments. Vague prompts name the
rhythm alone, specific ones the instrument, too. With the package espeakng-loader, sentences spoken
by several voices are compared as well.
"""

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import divprism as dp
from divprism.data.items import Audio, texts
from divprism.data.sounds import encode_sound
from divprism.embedders.pipeline import embed_items
from experiments.world.sounds import INSTRUMENTS, RATE, REGISTERS, RHYTHMS, combinations, melody

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "audio.md"
EMBEDDERS: tuple[dp.Embedder, ...] = (dp.LogMel(), dp.SpeechEmbedding())
COUNTS = (1, 2, 4, 8)
REGISTER = "middle"
SCORES = ("vendi", "conditional_vendi", "information_vendi")


def vectors(sounds: Sequence[np.ndarray], embedder: dp.Embedder) -> np.ndarray:
    """One vector per sound of 16,000 samples per second."""
    items = [Audio(encode_sound(sound, RATE), f"{row}") for row, sound in enumerate(sounds)]
    return embed_items(items, embedder).vectors.astype(np.float64)


def accuracies(rows: np.ndarray, labels: np.ndarray, column: int) -> tuple[float, float]:
    """How often the nearest sound has the same label, and the nearest that shares no other."""
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    truth = labels[:, column]
    nearest = truth[distances.argmin(axis=1)] == truth
    shares = np.zeros(distances.shape, bool)
    for other in set(range(labels.shape[1])) - {column}:
        shares |= labels[:, None, other] == labels[None, :, other]
    distances[shares] = np.inf
    across = truth[distances.argmin(axis=1)] == truth
    return float(nearest.mean()), float(across.mean())


def retrieval(title: str, sounds: Sequence[np.ndarray], labels: np.ndarray, names: Sequence[str]):
    """Rows of the table of what the embedders hear in one collection."""
    found = [vectors(sounds, embedder) for embedder in EMBEDDERS]
    rows = []
    for column, name in enumerate(names):
        chance = 1 / len(np.unique(labels[:, column]))
        cells = [title, name, f"{chance:.2f}"]
        for matrix in found:
            cells += [f"{value:.2f}" for value in accuracies(matrix, labels, column)]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def retrieval_table(copies: int) -> str:
    """What the embedders hear, as Markdown."""
    names = [embedder.name for embedder in EMBEDDERS]
    header = ["sounds", "same", "by chance"]
    for name in names:
        header += [f"`{name}`", f"`{name}`, all else differs"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    rng = np.random.default_rng(0)
    known = list(combinations()) * copies
    melodies = [melody(*entry, rng, gain=rng.uniform(0.2, 1)) for entry in known]
    tables = [list(INSTRUMENTS), list(RHYTHMS), list(REGISTERS)]
    labels = [[table.index(name) for table, name in zip(tables, row, strict=True)] for row in known]
    parts = ("instrument", "rhythm", "register")
    lines += retrieval(f"{len(known)} melodies", melodies, np.array(labels), parts)
    if importlib.util.find_spec("espeakng_loader") is not None:
        lines += _speech_rows()
    return "\n".join(lines)


def _speech_rows() -> list[str]:
    from experiments.world.speech import SENTENCES, VOICES, spoken

    sounds, labels = [], []
    for number, sentence in enumerate(SENTENCES):
        for voice_number, voice in enumerate(VOICES):
            for speed, pitch in ((150, 40), (175, 60)):
                sounds.append(spoken(sentence, voice, speed, pitch))
                labels.append([number, voice_number])
    title = f"{len(sounds)} spoken sentences"
    return retrieval(title, sounds, np.array(labels), ("sentence", "voice"))


def generated(count: int, copies: int, rng: np.random.Generator) -> tuple[list, list, list]:
    """Sounds of a generator of some instruments, with vague and with specific prompts."""
    sounds, vague, specific = [], [], []
    known = list(INSTRUMENTS)[:count]
    for rhythm in RHYTHMS:
        for number in range(copies):
            instrument = known[number % count]
            sounds.append(melody(instrument, rhythm, REGISTER, rng))
            vague.append(f"a melody with a {rhythm} rhythm")
            specific.append(f"a melody with a {rhythm} rhythm, played by a {instrument}")
    return sounds, vague, specific


def scored(copies: int, seed: int) -> dict[str, list[list[float]]]:
    """The scores of every generator, by the kind of prompts."""
    rng = np.random.default_rng(seed)
    outputs, prompts, models = [], {"vague": [], "specific": []}, []
    for count in COUNTS:
        sounds, vague, specific = generated(count, copies, rng)
        outputs += [Audio(encode_sound(sound, RATE), f"{count}") for sound in sounds]
        prompts["vague"] += vague
        prompts["specific"] += specific
        models += [str(count)] * len(sounds)
    found = {}
    for kind, side in prompts.items():
        samples = dp.Samples(tuple(outputs), texts(side), tuple(models))
        results = dp.evaluate_models(samples)
        rows = []
        for count in COUNTS:
            scores = results[str(count)]
            rows.append([float(getattr(scores, name)) for name in SCORES])
        found[kind] = rows
    return found


def score_table(runs: Sequence[dict[str, list[list[float]]]]) -> str:
    """Means over seeds, as Markdown; the number after ± is the largest deviation from them."""
    header = ["prompts", "instruments", "per prompt", "Vendi", "Conditional", "Information"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for kind in ("vague", "specific"):
        values = np.array([run[kind] for run in runs])
        means, spreads = values.mean(axis=0), np.abs(values - values.mean(axis=0)).max(axis=0)
        for row, count in enumerate(COUNTS):
            truth = count if kind == "vague" else 1
            cells = [kind, str(count), str(truth)]
            for mean, spread in zip(means[row], spreads[row], strict=True):
                cells.append(f"{mean:.2f} ± {spread:.2f}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def replaced(page: str, mark: str, table: str) -> str:
    """The page with another table after a mark."""
    head, found, rest = page.partition(mark)
    if not found:
        raise SystemExit(f"docs/how-to/audio.md has no line {mark!r}.")
    _, _, tail = rest.lstrip("\n").partition("\n\n")
    return f"{head}{mark}\n\n{table}\n\n{tail}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables, and write them into the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--copies", type=int, default=24, help="sounds per prompt of a generator")
    parser.add_argument("--repeats", type=int, default=3, help="melodies of each combination")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    heard = retrieval_table(options.repeats)
    print(heard, flush=True)
    scores = score_table([scored(options.copies, seed) for seed in range(options.seeds)])
    print(f"\n{scores}")
    if options.write:
        page = PAGE.read_text()
        page = replaced(page, "<!-- heard: made by experiments/audio.py -->", heard)
        PAGE.write_text(replaced(page, "<!-- scores: made by experiments/audio.py -->", scores))


if __name__ == "__main__":
    main()
