"""ONNX models: they equal the networks they were exported from, and hostile files do nothing."""

import copy
import dataclasses
import gc
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")

import onnx
import onnx_files
from onnx import TensorProto, helper
from onnx_files import SETTINGS, added, constant, export, graph, network, node
from PIL import Image as Pillow

from divprism.data.items import Audio, Image, Video
from divprism.data.media import chosen_frames
from divprism.data.sounds import encode_sound
from divprism.embedders import _mel, _onnx_process
from divprism.embedders._mel_settings import MelSettings
from divprism.embedders._onnx_settings import OnnxSettings
from divprism.embedders.cache import Cache
from divprism.embedders.onnx_models import Onnx
from divprism.embedders.pipeline import embed_items
from divprism.errors import ArgumentError, DataError, DivprismError, MissingModelError
from divprism.scores import registry

KINDS = ("image", "video", "text", "audio")
TEXTS = ["a cat", "the dog sat on the mat", "", "very " * 30]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> dict[str, Path]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("onnx")
    return {kind: export(kind, folder / kind) for kind in KINDS}


def _pixels(shape: tuple[int, ...], count: int = 5) -> list[np.ndarray]:
    return list(np.random.default_rng(3).integers(0, 256, (count, *shape), dtype=np.uint8))


_RNG = np.random.default_rng(11)
SOUNDS = [_RNG.standard_normal(count).astype(np.float32) for count in (900, 2000, 3000, 40_000)]


def _embedder(kind: str, **changes: Any) -> Onnx:
    """Return an embedder whose file is not there: it prepares items, and runs no model."""
    return Onnx("absent.onnx", OnnxSettings(**{**SETTINGS[kind], **changes}))


def _items(kind: str) -> list[Any]:
    if kind == "text":
        return TEXTS
    if kind == "video":
        return _pixels((6, 24, 32, 3))
    if kind == "audio":
        return [_embedder("audio").prepare(sound) for sound in SOUNDS]
    return _pixels((32, 32, 3))


def _expected(kind: str, item: Any) -> np.ndarray:
    """Return the vector of one item by the network in torch."""
    import torch

    model = network(kind)
    with torch.inference_mode():
        if kind == "text":
            words = onnx_files.tokenizer()
            words.enable_truncation(12)
            ids = torch.tensor([words.encode(item).ids])
            return model(ids, torch.ones_like(ids))[0][0].mean(0).numpy()
        if kind == "audio":
            windows = torch.from_numpy(np.stack(item))[:, None]
            return torch.cat([model(window[None]) for window in windows]).mean(0).numpy()
        mean, std = (torch.tensor(SETTINGS[kind][name]) for name in ("mean", "std"))
        pixels = (torch.from_numpy(item).float() / 255 - mean) / std
        if kind == "image":
            return model(pixels.permute(2, 0, 1)[None])[0].numpy()
        return model(pixels.permute(3, 0, 1, 2)[None])[0].mean((1, 2, 3)).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_equal_those_of_the_network_in_torch(kind, exported):
    embedder = Onnx(str(exported[kind]))
    vectors = embedder.embed_batch(_items(kind))
    expected = np.stack([_expected(kind, item) for item in _items(kind)])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert embedder.dimension == expected.shape[1]
    assert embedder.modality == kind


@pytest.mark.parametrize("kind", ["video", "text"])
def test_the_exporter_of_the_documentation_gives_the_same_vectors(kind, exported, tmp_path):
    pytest.importorskip("onnxscript")
    path = export(kind, tmp_path, dynamo=True)
    items = _items(kind)
    expected = Onnx(str(exported[kind])).embed_batch(items)
    np.testing.assert_allclose(Onnx(str(path)).embed_batch(items), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_is_the_same_bit_for_bit_in_every_batch(kind, exported):
    embedder = Onnx(str(exported[kind]))
    items = _items(kind)
    together = embedder.embed_batch(items)
    alone = np.concatenate([embedder.embed_batch([item]) for item in items])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(embedder.embed_batch(items[::-1])[::-1], together)


def test_a_torchscript_archive_that_its_owner_trusts_can_be_exported(exported, tmp_path):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network("image"), onnx_files.example("image"))
        path = tmp_path / "model.onnx"
        torch.onnx.export(traced, onnx_files.example("image"), path, dynamo=False)
    (tmp_path / "model.json").write_text(json.dumps(SETTINGS["image"]))
    items = _items("image")
    expected = Onnx(str(exported["image"])).embed_batch(items)
    np.testing.assert_allclose(Onnx(str(path)).embed_batch(items), expected, atol=1e-5)


GUIDE = Path(__file__).parent.parent / "docs/how-to/onnx.md"


def _small_i3d(*_: Any, **__: Any) -> Any:
    """Stand in for the class of I3D: features (1, 16, 1, 1, 1) of 16 frames."""
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Conv3d(3, 16, 7, 8, 3), torch.nn.ReLU(), torch.nn.AvgPool3d((2, 28, 28), 1)
            )

        def extract_features(self, frames: Any) -> Any:
            return self.layers(frames)

        def load_state_dict(self, state: Any) -> None:
            assert state == "weights only"

    return Network()


def test_the_recipes_of_the_documentation_give_vectors(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    swav = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    swav.add_module("fc", torch.nn.Linear(48, 5))
    program = _small_i3d().layers
    monkeypatch.setattr(torch.hub, "load", lambda *_: swav)
    monkeypatch.setattr(torch, "load", lambda *_, weights_only: "weights only")
    monkeypatch.setattr(
        torch.jit,
        "load",
        lambda *_, **__: torch.jit.trace(program, torch.zeros(1, 3, 16, 224, 224)),
    )
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text()
    settings = dict(re.findall(r"`(\w+)\.json`[^`]*```json\n(.*?)```", text, re.DOTALL))
    scripts = re.findall(r"```python\n(import torch.*?)```", text, re.DOTALL)
    assert sorted(settings) == ["i3d", "swav"]
    assert len(scripts) == 3
    widths = {"swav": 48, "i3d": 16}
    for script in scripts:
        (name,) = re.findall(r'"(\w+)\.onnx"', script)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(script, {"InceptionI3d": _small_i3d})
        Path(f"{name}.json").write_text(settings[name])
        embedder = Onnx(f"{name}.onnx")
        shape = embedder._shape
        assert embedder.embed_batch(_pixels(shape, 2)).shape == (2, widths[name])


# -------------------------------------------------------------------------------- preprocessing


@pytest.mark.parametrize("size", [(50, 80), (80, 50), (37, 37), (300, 33), (3, 2), (30_000, 1)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_an_image_is_resized_and_cropped_as_torchvision_does(size, interpolation):
    settings = OnnxSettings(**{**SETTINGS["image"], "interpolation": interpolation})
    down, across = np.mgrid[: size[1], : size[0]]
    waves = 127 + 100 * np.sin(down / 9 + across / 7)
    image = Pillow.fromarray(np.stack([waves, waves[::-1], 255 - waves], -1).astype(np.uint8))
    found = Onnx("nowhere.onnx", settings).prepare(image)
    assert found.shape == (32, 32, 3)
    if max(size) / min(size) > 100:
        return  # enlarged as a whole it would not fit in memory
    # Resize(36), then CenterCrop(32).
    shorter = min(size)
    whole = (int(36 * size[0] / shorter), int(36 * size[1] / shorter))
    enlarged = image.resize(whole, Pillow.Resampling[interpolation.upper()])
    left, top = round((whole[0] - 32) / 2), round((whole[1] - 32) / 2)
    expected = np.asarray(enlarged.crop((left, top, left + 32, top + 32)), int)
    assert np.abs(found.astype(int) - expected).max() <= 1  # of 255


def test_layouts_change_the_order_of_the_axes_and_nothing_else(tmp_path):
    flat = [node("Reshape", ["x", "shape"])]
    item = _pixels((2, 4, 5, 3), 1)[0]
    orders = {"ncthw": (3, 0, 1, 2), "ntchw": (0, 3, 1, 2), "nthwc": (0, 1, 2, 3)}
    for layout, order in orders.items():
        shape = [1, *(item.shape[axis] for axis in order)]
        inputs = [("x", TensorProto.FLOAT, shape)]
        path = _saved(graph(flat, [constant("shape", [1, -1])], inputs=inputs), tmp_path)
        settings = OnnxSettings(
            **{**SETTINGS["video"], "size": (4, 5), "num_frames": 2, "layout": layout},
        )
        settings = OnnxSettings(**{**vars(settings), "pooling": "none"})
        vector = Onnx(str(path), settings).embed_batch([item])[0]
        scaled = (item.astype(np.float32) / 255 - 0.5) / 0.5
        np.testing.assert_allclose(vector, scaled.transpose(order).reshape(-1), atol=1e-6)


def test_frames_are_those_of_the_stride_or_evenly_spaced():
    assert chosen_frames(100, 4, 1) == [48, 49, 50, 51]
    assert chosen_frames(100, 4, 8) == [37, 45, 53, 61]
    assert chosen_frames(4, 4, 1) == chosen_frames(4, 4) == [0, 1, 2, 3]
    assert chosen_frames(7, 4, 2) == [0, 2, 4, 6]
    assert chosen_frames(6, 4, 2) == chosen_frames(6, 4)
    for total in range(1, 40):
        for stride in range(5):
            frames = chosen_frames(total, 6, stride)
            assert len(frames) == 6
            assert frames == sorted(frames)
            assert frames[0] >= 0
            assert frames[-1] < total


def test_a_stride_reaches_the_frames_of_a_video(exported, tmp_path):
    paths = []
    for index, pixels in enumerate(_pixels((24, 32, 3), 12)):
        paths.append(tmp_path / f"{index:02}.png")
        Pillow.fromarray(pixels).save(paths[-1])
    video = Video(tuple(paths))
    settings = {**SETTINGS["video"], "stride": 1}
    embedder = Onnx(str(exported["video"]), OnnxSettings(**settings))
    middle = Video(tuple(paths[3:9]))
    by_stride, of_middle = embed_items([video, middle], embedder).vectors
    np.testing.assert_array_equal(by_stride, of_middle)
    evenly = embed_items([video], Onnx(str(exported["video"]))).vectors[0]
    assert np.abs(by_stride - evenly).max() > 1e-4


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", lambda tokens: tokens.mean(0)),
        ("first", lambda tokens: tokens[0]),
        ("last", lambda tokens: tokens[-1]),
    ],
)
@pytest.mark.parametrize("pad_id", [None, 0])
def test_pooling_and_padding_leave_padding_out(pooling, expected, pad_id, exported):
    torch = pytest.importorskip("torch")
    settings = {**SETTINGS["text"], "pooling": pooling, "pad_id": pad_id, "normalize": True}
    embedder = Onnx(str(exported["text"]), OnnxSettings(**settings))
    ids = torch.tensor([[2, 4, 6, 3]])  # [CLS] a cat [SEP]
    with torch.inference_mode():
        tokens = network("text")(ids, torch.ones_like(ids))[0][0].numpy()
    vector = expected(tokens) / np.linalg.norm(expected(tokens))
    np.testing.assert_allclose(embedder.embed_batch(["a cat"])[0], vector, atol=1e-5)


def test_an_image_model_embeds_the_frames_of_videos(exported, tmp_path):
    from divprism.embedders.image import FrameMean

    paths = []
    for index, pixels in enumerate(_pixels((40, 40, 3), 3)):
        paths.append(tmp_path / f"{index}.png")
        Pillow.fromarray(pixels).save(paths[-1])
    embedder = FrameMean(Onnx(str(exported["image"])), num_frames=3)
    vector = embed_items([Video(tuple(paths))], embedder).vectors[0]
    frames = embed_items([Image(path) for path in paths], embedder.frames).vectors
    np.testing.assert_allclose(vector, frames.mean(0), atol=1e-6)


# ---------------------------------------------------------------------------- names and the cache


def test_the_key_follows_the_content_and_the_settings_and_not_the_folder(exported, tmp_path):
    base = Onnx(str(exported["text"]))
    copied = tmp_path / "copy"
    copied.mkdir()
    for path in exported["text"].parent.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    assert Onnx(str(copied / "model.onnx")).key() == base.key()
    assert base.name == "onnx:model.onnx"
    changed = json.loads((copied / "model.json").read_text()) | {"pooling": "first"}
    (copied / "model.json").write_text(json.dumps(changed))
    assert Onnx(str(copied / "model.onnx")).key() != base.key()
    (copied / "model.json").write_bytes((exported["text"].parent / "model.json").read_bytes())
    (copied / "tokenizer.json").write_text(
        (copied / "tokenizer.json").read_text().replace('"mat"', '"rug"')
    )
    assert Onnx(str(copied / "model.onnx")).key() != base.key()
    other = export("text", tmp_path / "other", seed=1)
    assert Onnx(str(other)).key() != base.key()


def test_cached_vectors_need_no_process(exported, tmp_path, monkeypatch):
    items = [Image(_png(pixels), str(i)) for i, pixels in enumerate(_pixels((40, 50, 3)))]
    first = embed_items(items, Onnx(str(exported["image"])), cache=Cache(tmp_path))
    monkeypatch.setattr(_onnx_process, "_started", None)
    second = embed_items(items, Onnx(str(exported["image"])), cache=Cache(tmp_path))
    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert (second.computed, second.cached) == (0, 5)


def _png(pixels: np.ndarray) -> bytes:
    import io

    buffer = io.BytesIO()
    Pillow.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_the_registry_builds_the_embedder_from_its_spelling(exported):
    embedder = registry.embedder(f"onnx:{exported['image']}", batch_size=7, device=None)
    assert embedder == Onnx(str(exported["image"]), batch_size=7)
    assert embedder.spelling == f"onnx:{exported['image']}"
    with pytest.raises(ArgumentError, match="embedder onnx needs its model after a colon"):
        registry.embedder("onnx")


@pytest.mark.parametrize("spelling", ["torchscript", "torchscript:model.pt", "torchscript:/etc"])
def test_torchscript_is_refused_with_the_way_out(spelling):
    with pytest.raises(ArgumentError) as caught:
        registry.embedder(spelling)
    message = str(caught.value)
    assert "programs" in message and "torch.onnx.export" in message and "onnx:PATH" in message


# --------------------------------------------------------------------------------- the settings

BAD_SETTINGS: dict[str, dict[str, Any]] = {
    "`modality` must be": {"modality": "smell"},
    "`modality` must be image": {"modality": ["image"]},
    "there is no setting 'device'": {"device": "cuda"},
    "there is no setting '__class__'": {"__class__": "x"},
    "`size` must be": {"size": 10**9},
    "`size` must be a whole": {"size": True},
    "`size` must be a side": {"size": [1, 2, 3]},
    "`size` must be a whole number": {"size": [32, "32"]},
    "`size` is needed": {"size": None},
    '`resize` must be "stretch", or': {"resize": 31},
    '`resize` must be "stretch"': {"resize": "squash"},
    "`mean` must be three": {"mean": [0, 0]},
    "`mean` must be three finite": {"mean": [0, 0, True]},
    "`mean` must be three finite numbers": {"mean": [0, 0, 10**400]},
    "`std` must be positive": {"std": [1, 1, 0]},
    "`std` must be three": {"std": "111"},
    "`interpolation` must be": {"interpolation": "lanczos"},
    "`layout` must be": {"layout": "ncthw"},
    "`num_frames` does not apply to images": {"num_frames": 4},
    "`max_tokens` does not apply": {"max_tokens": 4},
    "`pooling` must be": {"pooling": "last"},
    "`pooling` must be none": {"pooling": {"a": 1}},
    "`normalize` must be": {"normalize": 1},
    "`output` must be": {"output": ""},
    "`output` must be the name": {"output": 3},
}


@pytest.mark.parametrize("message", BAD_SETTINGS)
def test_settings_are_validated_strictly(message, exported, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(exported["image"].read_bytes())
    (tmp_path / "model.json").write_text(json.dumps(SETTINGS["image"] | BAD_SETTINGS[message]))
    with pytest.raises(MissingModelError) as caught:
        Onnx(str(path))
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "`modality` is needed"),
        (b"{" * 100_000, "larger than"),
        (b"[" * 60_000, "not valid JSON"),
        (b'{"modality": "image", "modality": "text"}', "occurs twice"),
        (b'{"modality": "image", "mean": [NaN, 0, 0]}', "not a JSON number"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"\\u001b[31m": 1}', "there is no setting"),
    ],
)
def test_a_file_of_settings_is_untrusted(content, message, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"x")
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(MissingModelError, match=message) as caught:
        Onnx(str(tmp_path / "m.onnx"))
    assert str(caught.value).isprintable()


def test_files_beside_the_model_must_not_be_links_out_of_the_folder(exported, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(SETTINGS["image"]))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(exported["image"].read_bytes())
    (folder / "m.json").symlink_to(secret)
    with pytest.raises(MissingModelError, match="a link out of the folder"):
        Onnx(str(folder / "m.onnx"))
    (folder / "m.json").write_text(json.dumps(SETTINGS["text"]))
    (folder / "tokenizer.json").symlink_to(exported["text"].parent / "tokenizer.json")
    with pytest.raises(MissingModelError, match="a link out of the folder"):
        Onnx(str(folder / "m.onnx")).key()


def test_what_is_missing_is_named(tmp_path, exported):
    with pytest.raises(MissingModelError, match="there is no such file"):
        Onnx(str(tmp_path / "none.onnx"))
    path = tmp_path / "m.onnx"
    path.write_bytes(exported["text"].read_bytes())
    with pytest.raises(MissingModelError, match=r"settings in 'm.json' beside it"):
        Onnx(str(path))
    (tmp_path / "m.json").write_text(json.dumps(SETTINGS["text"]))
    with pytest.raises(MissingModelError, match=r"needs tokenizer\.json beside it"):
        Onnx(str(path)).key()
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(MissingModelError, match="named pipe"):
        Onnx(str(tmp_path / "pipe.onnx"), OnnxSettings(**SETTINGS["image"])).key()


# --------------------------------------------------------------------------------- hostile files

FOUR = OnnxSettings(
    "image", size=4, resize="stretch", mean=(0, 0, 0), std=(1, 1, 1), pooling="mean"
)
BLANK = np.zeros((4, 4, 3), np.uint8)


def _saved(model: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _refusal(content: Any, folder: Path, settings: OnnxSettings = FOUR) -> str:
    """Return the one sentence with which a model is refused."""
    path = folder / "model.onnx"
    if not isinstance(content, bytes):
        content = content.SerializeToString()
    path.write_bytes(content)
    with pytest.raises(DivprismError) as caught:
        Onnx(str(path), settings).embed_batch([BLANK])
    message = str(caught.value)
    assert isinstance(caught.value, MissingModelError)
    assert message.isprintable()
    assert len(message) < 1000
    return message


def test_the_plain_graph_runs(tmp_path):
    path = _saved(graph([node("Relu", ["x"])]), tmp_path)
    assert Onnx(str(path), FOUR).embed_batch([BLANK]).tolist() == [[0, 0, 0]]


def _external(location: str, *, in_attribute: bool = False) -> Any:
    """Return a model whose weight is in another file."""
    weight = constant("w", np.ones((1, 3, 4, 4), np.float32))
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "192")):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    if in_attribute:
        return graph([node("Constant", [], "w", value=weight), node("Add", ["x", "w"])])
    return graph([node("Add", ["x", "w"])], [weight])


@pytest.mark.parametrize("in_attribute", [False, True])
@pytest.mark.parametrize(
    "location",
    ["../secret", "/etc/passwd", "weights", "./weights", "*/_ORT_MEM_ADDR_/*", "", "\x1b[31m"],
)
def test_no_weight_is_read_from_another_file(location, in_attribute, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "secret", folder / "weights"):
        path.write_bytes(b"\0" * 192)
    message = _refusal(_external(location, in_attribute=in_attribute), folder)
    assert "weights are in another file" in message
    assert "external_data=False" in message


def test_references_to_other_files_are_refused_under_any_location(tmp_path):
    model = _external("weights")
    weight = model.graph.initializer[0]
    weight.data_location = TensorProto.DEFAULT
    weight.raw_data = b"\0" * 192
    assert "another file" in _refusal(model, tmp_path)


def _loop() -> Any:
    body = helper.make_graph([node("Identity", ["c"], "d")], "body", [], [])
    return graph([helper.make_node("Loop", ["n", "c", "x"], ["y"], body=body)])


def _hidden_graph() -> Any:
    inner = helper.make_graph([node("Relu", ["x"], "z")], "inner", [], [])
    return graph([node("Relu", ["x"], then_branch=inner)])


def _function() -> Any:
    model = graph([node("Relu", ["x"])])
    body = [node("Relu", ["a"], "b")]
    version = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("", "Relu", ["a"], ["b"], body, version))
    return model


def _sparse() -> Any:
    model = graph([node("Relu", ["x"])])
    values = constant("s", np.ones(1, np.float32))
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, constant("i", [0]), [1 << 40])
    )
    return model


OPERATORS = {
    "a custom domain": (graph([node("Evil", ["x"], domain="evil")]), "of 'evil'"),
    "microsoft": (graph([node("FusedMatMul", ["x"], domain="com.microsoft")]), "of 'com.micro"),
    "escape codes": (graph([node("\x1b]0;x\x07", ["x"], domain="\u202e")]), "operator"),
    "reads beyond its input": (graph([node("OneHot", ["x", "n", "v"])]), "operator 'OneHot'"),
    "unknown": (graph([node("Nothing", ["x"])]), "operator 'Nothing'"),
    "random": (graph([node("RandomNormalLike", ["x"])]), "random numbers"),
    "a loop": (_loop(), "operator 'Loop'"),
    "a branch": (graph([node("If", ["x"])]), "operator 'If'"),
    "training": (graph([node("Dropout", ["x", "r", "t"])]), "dropout is that of training"),
    "a graph inside": (_hidden_graph(), "has a graph inside"),
    "a function": (_function(), "functions of its own"),
    "sparse": (_sparse(), "sparse tensors"),
    "many": (graph([node("Relu", ["x"])] * 50_001), "50,001 operators"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_only_arithmetic_of_onnx_itself_is_run(name, tmp_path):
    model, reason = OPERATORS[name]
    assert reason in _refusal(model, tmp_path)


def _declared(shape: list[int], content: bytes = b"", data_type: int = TensorProto.FLOAT) -> Any:
    weight = constant("w", np.float32(1))
    weight.raw_data = content
    weight.data_type = data_type
    weight.ClearField("dims")
    weight.dims.extend(shape)
    return graph([node("Add", ["x", "w"])], [weight])


WEIGHTS = {
    "huge": (_declared([1 << 40]), "another size"),
    "overflow": (_declared([1 << 32, 1 << 32]), "another size"),
    "zero by overflow": (_declared([1 << 62, 4]), "another size"),
    "too few bytes": (_declared([3], b"\0" * 11), "another size"),
    "too many bytes": (_declared([3], b"\0" * 16), "another size"),
    "negative": (_declared([-1], b"\0" * 4), "impossible shape"),
    "many axes": (_declared([1] * 1000, b"\0" * 4), "impossible shape"),
    "texts": (_declared([1], data_type=TensorProto.STRING), "not read"),
    "unknown type": (_declared([1], b"\0" * 4, 77), "not read"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_have_the_size_of_their_shape(name, tmp_path):
    model, reason = WEIGHTS[name]
    assert reason in _refusal(model, tmp_path)


def _doubled() -> Any:
    nodes = [node("Concat", ["x", "x"], "v0", axis=1)]
    for index in range(40):
        nodes.append(node("Concat", [f"v{index}"] * 2, f"v{index + 1}", axis=1))
    return graph([*nodes, node("Relu", ["v40"])])


LARGE = {
    "constant": added(node("ConstantOfShape", ["n"], "big"), weights=[constant("n", [1 << 40])]),
    "overflow": added(node("ConstantOfShape", ["n"], "big"), weights=[constant("n", [1 << 62])]),
    "range": added(
        node("Range", ["from", "to", "step"], "big"),
        weights=[constant("from", 0), constant("to", 1 << 60), constant("step", 1)],
    ),
    "expand": graph([node("Expand", ["x", "n"])], [constant("n", [1 << 40, 3, 4, 4])]),
    "tile": graph([node("Tile", ["x", "n"])], [constant("n", [1, 1 << 20, 1 << 10, 1 << 10])]),
    "resize": graph(
        [node("Resize", ["x", "", "n"], mode="linear")],
        [constant("n", np.array([1, 1, 1e5, 1e5], np.float32))],
    ),
    "doubled 40 times": _doubled(),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_graph_does_not_fill_the_memory(name, tmp_path):
    message = _refusal(LARGE[name], tmp_path)
    assert "more memory" in message or "fails" in message


def test_a_graph_does_not_run_forever(tmp_path, monkeypatch):
    monkeypatch.setattr(_onnx_process, "LOAD_SECONDS", 1.0)
    shape = constant("n", [4000, 4000])
    products = [node("MatMul", [f"b{i}", f"b{i}"], f"b{i + 1}") for i in range(200)]
    model = added(
        node("ConstantOfShape", ["n"], "b0"),
        *products,
        node("Relu", ["b200"], "big"),
        weights=[shape],
    )
    assert "it takes more than 1 s" in _refusal(model, tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_refused(share, exported, tmp_path):
    content = exported["image"].read_bytes()
    settings = OnnxSettings(**SETTINGS["image"])
    message = _refusal(content[: int(share * len(content))], tmp_path, settings)
    assert "is not an ONNX model" in message or "other size" in message


def _other_format() -> bytes:
    """Return the start of a file in the own format of onnxruntime."""
    return b"\x10\0\0\0ORTM" + b"\0" * 100


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04" + b"\0" * 50, b"\x80\x04cos\nsystem\n.", _other_format(), b"\xff" * 5000],
)
def test_other_files_are_refused(content, tmp_path):
    assert "it is not an ONNX model" in _refusal(content, tmp_path)


INPUTS = {
    "two inputs": [("x", 1, [1, 3, 4, 4]), ("z", 1, [1])],
    "whole numbers": [("x", 7, [1, 3, 4, 4])],
    "another rank": [("x", 1, [1, 3, 4, 4, 4])],
    "another size": [("x", 1, [1, 3, 5, 4])],
    "another layout": [("x", 1, [1, 4, 4, 3])],
    "a fixed batch": [("x", 1, [8, 3, 4, 4])],
    "texts": [("x", 8, [1])],
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_the_settings_do_not_fit_are_named(name, tmp_path):
    model = graph([node("Identity", ["x"])], inputs=INPUTS[name])
    message = _refusal(model, tmp_path)
    assert "input" in message or "cannot run it" in message


def test_outputs_that_the_settings_do_not_fit_are_named(exported, tmp_path):
    settings = OnnxSettings(**{**vars(FOUR), "output": "\x1b[31mfeatures"})
    assert "one of its outputs, 'y'" in _refusal(graph([node("Relu", ["x"])]), tmp_path, settings)
    settings = OnnxSettings(**{**vars(FOUR), "pooling": "none"})
    assert "`pooling` must not be none" in _refusal(
        graph([node("Relu", ["x"])]), tmp_path, settings
    )
    settings = OnnxSettings(**{**vars(FOUR), "pooling": "first"})
    assert "not for `pooling` first" in _refusal(graph([node("Relu", ["x"])]), tmp_path, settings)
    settings = OnnxSettings(**{**vars(FOUR), "normalize": True})
    assert "zeros only" in _refusal(graph([node("Relu", ["x"])]), tmp_path, settings)
    flat = graph([node("Reshape", ["x", "n"])], [constant("n", [-1])])
    assert "batch of one" in _refusal(flat, tmp_path)


def test_numbers_that_are_not_finite_are_refused_and_not_cached(tmp_path):
    path = _saved(graph([node("Log", ["x"])]), tmp_path)
    item = Image(_png(BLANK), "black")
    with pytest.raises(DataError, match="returned NaN or infinity for black"):
        embed_items([item], Onnx(str(path), FOUR), cache=Cache(tmp_path / "cache"))


def test_a_file_that_changes_is_not_run(tmp_path):
    path = _saved(graph([node("Relu", ["x"])]), tmp_path)
    embedder = Onnx(str(path), FOUR)
    embedder.key()
    _saved(graph([node("Neg", ["x"])]), tmp_path)
    with pytest.raises(MissingModelError, match="changed while it was read"):
        embedder.embed_batch([BLANK])


def test_a_graph_that_aborts_onnxruntime_is_refused(tmp_path):
    # Ends the whole process in onnxruntime 1.31.
    _refusal(graph([node("DepthToSpace", ["x"], blocksize=1 << 40)]), tmp_path)


def test_a_crash_ends_neither_this_process_nor_the_embedder(tmp_path):
    embedder = Onnx(str(_saved(graph([node("Relu", ["x"])]), tmp_path)), FOUR)
    embedder.embed_batch([BLANK])
    embedder._runner._child.kill()
    with pytest.raises(MissingModelError, match="onnxruntime crashed"):
        embedder.embed_batch([BLANK] * 50)
    assert embedder.embed_batch([BLANK]).shape == (1, 3)


def test_after_an_interrupt_no_item_gets_the_vector_of_another(tmp_path, monkeypatch):
    embedder = Onnx(str(_saved(graph([node("Relu", ["x"])]), tmp_path)), FOUR)
    items = [np.full_like(BLANK, value) for value in (0, 51, 102, 153, 204)]
    expected = embedder.embed_batch(items)
    answer = _onnx_process.Runner._answer
    calls = []

    def interrupted(runner: Any) -> Any:
        calls.append(runner)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answer(runner)

    with monkeypatch.context() as patched:
        patched.setattr(_onnx_process.Runner, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            embedder.embed_batch(items)
    assert calls[0]._child.poll() is not None
    np.testing.assert_array_equal(embedder.embed_batch(items[::-1])[::-1], expected)


def test_the_process_ends_with_its_embedder(tmp_path):
    embedder = Onnx(str(_saved(graph([node("Relu", ["x"])]), tmp_path)), FOUR)
    embedder.embed_batch([BLANK])
    child = embedder._runner._child
    del embedder
    gc.collect()
    assert child.poll() is not None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_gets_no_key_and_opens_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    embedder = Onnx(str(_saved(graph([node("Relu", ["x"])]), tmp_path)), FOUR)
    embedder.embed_batch([BLANK])
    process = Path("/proc") / str(embedder._runner._child.pid)
    assert b"secret-key" not in (process / "environ").read_bytes()
    limits = (process / "limits").read_text().splitlines()
    by_name = {line[:26].strip(): line[26:].split()[:2] for line in limits}
    assert by_name["Max open files"] == ["0", "0"]
    assert by_name["Max file size"] == ["0", "0"]
    assert by_name["Max address space"][0].isdigit()


def test_damaged_bytes_are_read_or_refused(exported, tmp_path):
    content = exported["image"].read_bytes()
    rng = np.random.default_rng(11)
    settings = OnnxSettings(**SETTINGS["image"])
    for _ in range(10):
        damaged = bytearray(content)
        for index in rng.integers(0, len(content), 4):
            damaged[index] = rng.integers(256)
        (tmp_path / "model.onnx").write_bytes(damaged)
        try:
            embedder = Onnx(str(tmp_path / "model.onnx"), settings)
            embedder.embed_batch([np.zeros((32, 32, 3), np.uint8)])
        except DivprismError as error:
            assert str(error).isprintable()
            assert len(str(error)) < 1000


def test_a_hostile_tokenizer_is_refused(exported, tmp_path):
    for name in ("model.onnx", "model.json"):
        (tmp_path / name).write_bytes((exported["text"].parent / name).read_bytes())
    base = json.loads((exported["text"].parent / "tokenizer.json").read_text())
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
    grown = copy.deepcopy(base) | {"normalizer": {"type": "Sequence", "normalizers": [step] * 4}}
    # Tokens beyond the vocabulary of the model fail when it runs.
    beyond = copy.deepcopy(base)
    beyond["model"]["vocab"]["cat"] = 4_000_000_000
    for content in (json.dumps(grown), json.dumps(beyond), "{}", "", "[" * 100_000):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(MissingModelError) as caught:
            Onnx(str(tmp_path / "model.onnx")).embed_batch(["a cat"])
        assert str(caught.value).isprintable()


def test_the_command_line_scores_with_an_onnx_model_in_one_sentence_or_numbers(exported, tmp_path):
    lines = [
        json.dumps({"prompt": f"p{i % 4}", "output": f"{TEXTS[i % 2]} {i}"}) for i in range(16)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    call = [sys.executable, "-m", "divprism", "score", "a.jsonl", "--format", "json", "-q"]
    environment = {**os.environ, "DIVPRISM_CACHE": str(tmp_path / "cache")}
    done = []
    for spelling in (f"onnx:{exported['text']}", "onnx:none.onnx", "torchscript:model.pt"):
        done.append(
            subprocess.run(
                [*call, "--embedder-x", spelling],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
            )
        )
    assert done[0].returncode == 0, done[0].stderr
    record = json.loads(done[0].stdout)["embedders"][0]
    assert record["id"] == "onnx:model.onnx"
    assert [run.returncode for run in done[1:]] == [3, 2]
    for run in done[1:]:
        assert len(run.stderr.strip().splitlines()) == 1
        assert "Traceback" not in run.stderr


def test_no_operator_of_the_list_is_unknown_to_onnx():
    from divprism.embedders._onnx_graph import OPERATORS

    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert known >= OPERATORS
    assert not OPERATORS & {"Loop", "If", "Scan", "RandomNormal", "Bernoulli", "ImageDecoder"}


# ---------------------------------------------------------------------------------------- sounds


def test_a_spectrogram_is_that_of_librosa_by_its_definition():
    """Mirrored ends, windows in the middle of transforms, filters of area one, decibels."""
    sound = SOUNDS[1]
    (found,) = _embedder("audio").prepare(sound)
    assert found.shape == (26, 16)
    padded = np.pad(sound.astype(float), 128, mode="reflect")
    window = np.zeros(256)
    window[28:228] = np.hanning(201)[:200]
    frames = np.stack([padded[80 * i : 80 * i + 256] * window for i in range(26)])
    power = np.abs(np.fft.rfft(frames)) ** 2
    filters = _mel.mel_filters(16, 256, 8000, 50, 4000, scale="slaney")
    levels = 10 * np.log10(np.maximum(power @ filters.T, 1e-10))
    np.testing.assert_allclose(found, (levels + 40) / 20, rtol=1e-4, atol=1e-5)


def test_filters_of_slaney_are_linear_below_a_thousand_hertz():
    filters = _mel.mel_filters(10, 8000, 8000, 0, 1000, scale="slaney")
    np.testing.assert_allclose(np.diff(filters.argmax(axis=1)), 1000 / 11, atol=1)
    above = _mel.mel_filters(10, 80_000, 80_000, 1000, 32_000, scale="slaney").argmax(axis=1)
    np.testing.assert_allclose(above[1:] / above[:-1], (above[-1] / above[0]) ** (1 / 9), rtol=1e-2)


@pytest.mark.parametrize(
    ("count", "starts"), [(900, [0]), (2000, [0]), (3000, [0, 1000]), (40_000, [0, 19_000, 38_000])]
)
def test_windows_cover_a_sound_from_start_to_end(count, starts):
    settings = {"modality": "audio", "sample_rate": 8000, "seconds": 0.25, "windows": 3}
    embedder = Onnx("absent.onnx", OnnxSettings(**settings))
    sound = np.arange(1, count + 1, dtype=np.float32)
    windows = embedder.prepare(sound)
    assert [int(window[0]) - 1 for window in windows] == starts
    assert all(len(window) == 2000 for window in windows)
    assert count >= 2000 or not windows[0][count:].any()
    one = dataclasses.replace(embedder, settings=OnnxSettings(**{**settings, "windows": 1}))
    assert int(one.prepare(sound)[0][0]) - 1 == max(0, count - 2000) // 2


LAYOUTS = [("nt", [1, 2000]), ("t", [2000]), ("nct", [1, 1, 2000])]


@pytest.mark.parametrize(("layout", "shape"), LAYOUTS)
def test_a_network_may_take_samples(layout, shape, tmp_path):
    """Means of 500 samples each: with a layout without a batch, the frames are its first axis."""
    nodes = [
        node("Reshape", ["x", "shape"], "parts"),
        node("ReduceMean", ["parts"], "y", axes=[-1], keepdims=0),
    ]
    parts = [1, 4, 500] if layout != "t" else [2, 2, 500]
    inputs = [("x", TensorProto.FLOAT, shape)]
    model = graph(nodes, [constant("shape", np.array(parts))], inputs=inputs)
    onnx.save(model, tmp_path / "a.onnx")
    options = {"sample_rate": 8000, "seconds": 0.25, "layout": layout}
    if layout == "t":
        options["pooling"] = "mean"
    embedder = Onnx(str(tmp_path / "a.onnx"), OnnxSettings("audio", **options))
    sound = SOUNDS[1]
    means = sound.reshape(4, 500).mean(axis=1)
    expected = means if layout != "t" else means.reshape(2, 2).mean(axis=0)
    found = embedder.embed_batch([embedder.prepare(sound)])
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    vectors = embed_items([Audio(encode_sound(sound, 8000), "a")], embedder).vectors
    np.testing.assert_allclose(vectors[0], expected, atol=1e-6)


def test_means_of_windows_have_unit_length_if_vectors_have(exported):
    settings = OnnxSettings(**SETTINGS["audio"], normalize=True)
    embedder = Onnx(str(exported["audio"]), settings)
    vectors = embedder.embed_batch([embedder.prepare(sound) for sound in SOUNDS])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": None}, "`seconds` is needed for the modality audio"),
        ({"seconds": 0}, "`seconds` must be above 0, and at most 60; got 0"),
        ({"seconds": float("nan")}, "`seconds` must be a finite number"),
        ({"sample_rate": 10}, "`sample_rate` must be a whole number from 2,000"),
        ({"windows": 0}, "`windows` must be a whole number from 1"),
        ({"size": 3}, "`size` does not apply to sounds"),
        ({"layout": "nchw"}, "`layout` must be nctf or ncft or ntf or nft"),
        ({"mel": 3}, "`mel` must be settings; got 3"),
        ({"mel": {"bands": 4}}, "`mel.window` is needed"),
        ({"mel": {"bands": 4, "x": 1}}, "there is no setting 'mel.x'"),
    ],
)
def test_bad_settings_of_sounds_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        OnnxSettings(**{**SETTINGS["audio"], **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bands": 0}, "`mel.bands` must be a whole number from 1"),
        ({"window": 300}, "`mel.window` must be a whole number from 2 to 256"),
        ({"high": 5000}, "`mel.high` must be at most half of `sample_rate`, 4000"),
        ({"low": 4000}, "`mel.high` must be above `mel.low`"),
        ({"scale": "bark"}, "`mel.scale` must be htk or slaney"),
        ({"log": "log2"}, "`mel.log` must be ln or log10 or db"),
        ({"std": 0}, "`mel.std` must be positive"),
        ({"floor": 0}, "`mel.floor` must be positive"),
        ({"offset": -1}, "`mel.offset` must be at least 0"),
        ({"mean": float("inf")}, "`mel.mean` must be a finite number"),
        ({"center": 1}, "`mel.center` must be true or false"),
        ({"fft": 1 << 16}, "`mel.fft` must be a whole number"),
    ],
)
def test_bad_settings_of_spectrograms_are_refused(changes, message):
    mel = {**SETTINGS["audio"]["mel"], **changes}
    with pytest.raises(ArgumentError, match=re.escape(message)):
        OnnxSettings(**{**SETTINGS["audio"], "mel": mel})


def test_an_input_of_another_length_is_refused(exported):
    embedder = Onnx(str(exported["audio"]), OnnxSettings(**{**SETTINGS["audio"], "seconds": 0.5}))
    with pytest.raises(MissingModelError, match=r"\(1, 1, 26, 16\), .* \(1, 1, 51, 16\)"):
        embedder.embed_batch([embedder.prepare(SOUNDS[0])])


def test_the_settings_of_the_guide_to_sounds_have_the_shapes_that_it_states():
    text = (GUIDE.parent / "audio.md").read_text()
    blocks = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    found = [OnnxSettings(**json.loads(block)) for block in blocks]
    assert [settings.sound_shape for settings in found] == [
        [15_600],
        [1, 1, 96, 64],
        [1, 1, 1001, 64],
    ]
    for settings in found:
        embedder = Onnx("absent.onnx", settings)
        (window,) = embedder.prepare(np.zeros(1000, np.float32))
        assert window.size == np.prod(settings.sound_shape)


@pytest.mark.parametrize(
    ("window", "fft", "samples"),
    [(400, 512, 4000), (401, 512, 4000), (551, 1024, 3999), (400, 401, 4000)],
)
def test_centred_frames_are_those_of_librosa(window, fft, samples):
    """Half a transform is mirrored at each end, and the window is in the middle of each frame."""
    sound = np.random.default_rng(0).standard_normal(samples)
    settings = MelSettings(20, window, 160, fft, 0.0, 8000.0, center=True)
    padded = np.pad(sound, fft // 2, mode="reflect")
    hann = np.zeros(fft)
    left = (fft - window) // 2
    hann[left : left + window] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    starts = range(0, len(padded) - fft + 1, 160)
    frames = np.stack([padded[start : start + fft] * hann for start in starts])
    power = np.abs(np.fft.rfft(frames)) ** 2
    filters = _mel.mel_filters(20, fft, 16_000, 0.0, 8000.0, scale="htk")
    levels = settings.spectrogram(sound, 16_000)
    assert settings.num_frames(samples) == levels.shape[1] == len(frames)
    assert levels == pytest.approx(np.log(np.maximum(filters @ power.T, 1e-10)), abs=1e-5)
