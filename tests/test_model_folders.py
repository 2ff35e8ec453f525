"""Model folders from strangers: nothing in them runs, and nothing in them fills the memory."""

import copy
import json
import os
import re
import shutil
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divprism.data.items import Image, Video, texts
from divprism.data.samples import Samples
from divprism.embedders._bundled import ALL_BUNDLED
from divprism.embedders.cache import Cache
from divprism.embedders.embedding import embed
from divprism.embedders.function import Function
from divprism.embedders.image import EfficientNetLite0
from divprism.embedders.multilingual import Multilingual
from divprism.embedders.pipeline import embed_items
from divprism.embedders.sentence_models import SentenceTransformers
from divprism.embedders.speech import SpeechEmbedding
from divprism.embedders.text import WordLlama
from divprism.embedders.transformer_models import Transformers
from divprism.errors import DataError, DivprismError, MissingModelError

pytest.importorskip("sentence_transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "the", "cat", "dog", "sat", "on", "mat"]
SENTINEL = "divprism_sentinel"
"""An importable module that leaves a file behind when it is imported."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A folder with a tiny sentence-transformers model: Transformer, Pooling, Dense."""
    target = tmp_path_factory.mktemp("models")
    with warnings.catch_warnings():
        # Names that all versions know are deprecated in the newest.
        warnings.simplefilter("ignore")
        _build(target)
    return target


def _build(folder: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    torch.manual_seed(0)
    logging.disable_progress_bar()
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    words.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=special)
    config = BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    BertModel(config).save_pretrained(folder / "bert")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=24
    )
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert")), Pooling(16, "mean"), Dense(16, 8)]
    SentenceTransformer(modules=modules).save(str(folder / "sentences"))
    logging.enable_progress_bar()


@pytest.fixture
def folder(plain, tmp_path, monkeypatch) -> Path:
    """A copy of the sentence model, in a process where the sentinel can be imported."""
    code = tmp_path / "code"
    code.mkdir()
    lines = [
        "import pathlib",
        "pathlib.Path(__file__).with_name('sprung').touch()",
        "class Module:",
        "    load = staticmethod(lambda *a, **k: Module())",
    ]
    (code / f"{SENTINEL}.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(code))
    monkeypatch.delitem(sys.modules, SENTINEL, raising=False)
    copied = tmp_path / "model"
    shutil.copytree(plain / "sentences", copied)
    shutil.copy(code / f"{SENTINEL}.py", copied)
    return copied


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Replace the content of a JSON file by what a function makes of it."""
    content: Any = {}
    if path.exists():
        content = json.loads(path.read_text())
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(change(copy.deepcopy(content))))


def refused(folder: Path) -> str:
    """Return the one sentence with which a folder is refused, before anything in it ran."""
    with pytest.raises(DivprismError) as caught:
        SentenceTransformers(str(folder)).embed_batch(["a cat"])
    message = str(caught.value)
    assert not (folder.parent / "code" / "sprung").exists()
    assert not (folder / "sprung").exists()
    assert SENTINEL not in sys.modules
    assert message.isprintable()
    assert len(message) < 1000
    return message


def test_the_plain_model_loads(folder):
    vectors = SentenceTransformers(str(folder)).embed_batch(["a cat", "the dog"])
    assert vectors.shape == (2, 8)


TYPES = [
    f"{SENTINEL}.Module",
    "joblib.Memory",
    "subprocess.Popen",
    "os.system",
    "sentence_transformers.models.Transformer.os.system",
    "sentence_transformers.util.import_from_string",
    "sentence_transformers.util.misc.importlib.import_module",
    f"sentence_transformers.models.{SENTINEL}",
    "sentence_transformers.models.WordEmbeddings",
    "sentence_transformers.models..Transformer",
    "sentence_transformers.models.Transformer ",
    "sentence_transformers.models.transformer",
    "sentence_transformers.cross_encoder.CrossEncoder",
    "sentence_transformers",
    "",
    "\x1b[31m.Evil",
    None,
    7,
    ["sentence_transformers.models.Pooling"],
    {"name": "sentence_transformers.models.Pooling"},
]


@pytest.mark.parametrize("kind", TYPES, ids=repr)
def test_a_module_of_another_class_is_refused(folder, kind):
    extra = {"idx": 3, "name": "3", "path": "3_Extra", "type": kind}
    edit(folder / "modules.json", lambda modules: [*modules, extra])
    (folder / "3_Extra").mkdir()
    assert "its own code" in refused(folder)


@pytest.mark.parametrize("file", ["router_config.json", "config.json"])
@pytest.mark.parametrize("router", ["Router", "Asym"])
@pytest.mark.parametrize("kind", TYPES[:8], ids=repr)
def test_a_router_to_another_class_is_refused(folder, kind, router, file):
    router_type = f"sentence_transformers.models.{router}"
    listed = [{"idx": 0, "name": "0", "path": "router", "type": router_type}]
    edit(folder / "modules.json", lambda _: listed)
    routes = {"types": {"query_0": kind}, "structure": {"query": ["query_0"]}, "parameters": {}}
    edit(folder / "router" / file, lambda _: routes)
    (folder / "router" / "query_0").mkdir()
    assert "its own code" in refused(folder)


def test_a_router_inside_a_router_is_followed(folder):
    router = "sentence_transformers.models.Router"
    listed = [{"idx": 0, "name": "0", "path": "r", "type": router}]
    edit(folder / "modules.json", lambda _: listed)
    place = folder / "r"
    for _ in range(2):
        edit(place / "router_config.json", lambda _: {"types": {"r": router}})
        place = place / "r"
        place.mkdir()
    edit(place / "config.json", lambda _: {"types": {"x": f"{SENTINEL}.Module"}})
    assert "its own code" in refused(folder)


def test_a_router_to_known_classes_loads(folder, tmp_path):
    shutil.copytree(folder, folder / "r" / "query_0")
    router = "sentence_transformers.models.Router"
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling"}
    pooling["type"] = "sentence_transformers.models.Pooling"
    first = {"idx": 0, "name": "0", "path": "r", "type": router}
    edit(folder / "modules.json", lambda _: [first, pooling])
    routes = {
        "types": {"query_0": "sentence_transformers.models.Transformer"},
        "structure": {"query": ["query_0"]},
        "parameters": {"default_route": "query", "allow_empty_key": True},
    }
    edit(folder / "r" / "router_config.json", lambda _: routes)
    assert SentenceTransformers(str(folder)).embed_batch(["a cat"]).shape == (1, 16)


ACTIVATIONS = [
    f"{SENTINEL}.Module",
    "os.system",
    "torch.utils.cpp_extension.os.system",
    f"torch.{SENTINEL}",
    "torch.hub.load",
    "torch.nn.modules.activation.Tanh.os",
    3,
    ["torch.nn.modules.activation.Tanh"],
]


@pytest.mark.parametrize("name", ACTIVATIONS, ids=repr)
def test_another_activation_is_refused(folder, name):
    edit(folder / "2_Dense" / "config.json", lambda config: {**config, "activation_function": name})
    assert "activation_function" in refused(folder)


SETTINGS: list[tuple[str, str, Any]] = [
    ("config.json", "auto_map", {"AutoModel": f"{SENTINEL}.Module"}),
    ("config.json", "auto_map", {"AutoConfig": f"../code/{SENTINEL}--x.Module"}),
    ("config.json", "attn_implementation", "acme/kernel"),
    ("config.json", "_attn_implementation", {"": "acme/kernel"}),
    ("config.json", "attn_implementation", "flash_attention_2"),
    ("config.json", "quantization_config", {"quant_method": "gptq"}),
    ("config.json", "model_type", "timm_wrapper"),
    ("config.json", "model_type", SENTINEL),
    ("config.json", "model_type", ["bert"]),
    ("config.json", "tokenizer_class", "BertJapaneseTokenizer"),
    ("tokenizer_config.json", "auto_map", {"AutoTokenizer": [f"{SENTINEL}.Module", None]}),
    ("tokenizer_config.json", "auto_map", [f"{SENTINEL}.Module", None]),
    ("tokenizer_config.json", "tokenizer_class", "pipeline"),
    ("tokenizer_config.json", "tokenizer_class", f"{SENTINEL}.Module"),
    ("tokenizer_config.json", "tokenizer_class", {"a": 1}),
    ("tokenizer_config.json", "init_inputs", ["/etc/passwd"]),
    ("tokenizer_config.json", "fast_tokenizer_files", ["../tokenizer.9.json"]),
    ("preprocessor_config.json", "image_processor_type", f"{SENTINEL}.Module"),
    ("processor_config.json", "processor_class", "os.system"),
    ("adapter_config.json", "auto_mapping", {"parent_library": SENTINEL}),
    ("adapter_config.json", "peft_type", "LORA"),
    ("sentence_bert_config.json", "tokenizer_name_or_path", "acme/other"),
    ("sentence_bert_config.json", "backend", "onnx"),
    ("sentence_bert_config.json", "model_args", {"trust_remote_code": True}),
    ("sentence_bert_config.json", "model_kwargs", {"attn_implementation": "acme/kernel"}),
    ("sentence_bert_config.json", "model_kwargs", {"weights_only": False}),
    ("sentence_bert_config.json", "model_kwargs", {"gguf_file": "x.gguf"}),
    ("sentence_bert_config.json", "config_kwargs", ["trust_remote_code"]),
    ("sentence_bert_config.json", "max_seq_length", -1),
    ("sentence_bert_config.json", "max_seq_length", 10**12),
    ("sentence_bert_config.json", "max_seq_length", "256"),
    ("config_sentence_transformers.json", "prompts", ["query: "]),
    ("config_sentence_transformers.json", "prompts", {"query": 7}),
    ("config_sentence_transformers.json", "prompts", {"query": {"a": []}}),
    ("config_sentence_transformers.json", "prompts", {"query": "x" * 10**6}),
    ("config_sentence_transformers.json", "default_prompt_name", ["query"]),
    ("config_sentence_transformers.json", "default_prompt_name", "none such"),
    ("config_sentence_transformers.json", "model_type", "SparseEncoder"),
    ("config_sentence_transformers.json", "truncate_dim", -3),
]


@pytest.mark.parametrize(("file", "key", "value"), SETTINGS)
def test_settings_that_load_more_than_the_folder_are_refused(folder, file, key, value):
    edit(folder / file, lambda content: {**content, key: value})
    refused(folder)


def test_an_activation_that_transformers_lacks_is_named_in_a_sentence(folder):
    edit(folder / "config.json", lambda content: {**content, "hidden_act": "swish9"})
    assert re.search(r"cannot load .*: [a-z ]+'swish9'", refused(folder))


@pytest.mark.parametrize("path", ["../code", "/tmp", "1_Pooling/../../code", "..\\code", "C:x", 7])
def test_a_module_outside_the_folder_is_refused(folder, path):
    def change(modules: Any) -> Any:
        modules[1]["path"] = path
        return modules

    edit(folder / "modules.json", change)
    assert "names a folder" in refused(folder)


def test_links_out_of_the_folder_are_refused(folder, tmp_path):
    outside = tmp_path / "outside"
    shutil.copytree(folder / "1_Pooling", outside)
    shutil.rmtree(folder / "1_Pooling")
    (folder / "1_Pooling").symlink_to(outside)
    assert "is a link" in refused(folder)
    (folder / "1_Pooling").unlink()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").symlink_to(outside / "config.json")
    assert "is a link out of the folder" in refused(folder)


def test_a_snapshot_in_the_hub_cache_may_link_to_its_files(folder, tmp_path):
    blobs = tmp_path / "models--acme--x" / "blobs"
    snapshot = blobs.parent / "snapshots" / ("c" * 40)
    blobs.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.rglob("*"))):
        target = snapshot / path.relative_to(folder)
        if path.is_file():
            shutil.copy(path, blobs / str(number))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(os.path.relpath(blobs / str(number), target.parent))
    assert SentenceTransformers(str(snapshot)).embed_batch(["a cat"]).shape == (1, 8)


JSON_FILES = ["modules.json", "config.json", "tokenizer_config.json", "sentence_bert_config.json"]


@pytest.mark.parametrize("file", JSON_FILES)
def test_huge_deep_and_broken_settings_are_refused(folder, file):
    path = folder / file
    contents = [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"\xff\xfe\x00",
        b"",
        b"null",
        b"3",
        b'"' + b"x" * 1000,
    ]
    for content in contents:
        path.write_bytes(content)
        refused(folder)
    path.unlink()
    with path.open("wb") as sparse:
        sparse.truncate(100 << 20)
    assert "bytes; at most" in refused(folder)
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in refused(folder)


# ----------------------------------------------------------------------------- numbers and weights

NUMBERS: list[tuple[str, Any]] = [
    ("num_hidden_layers", 10**7),
    ("num_hidden_layers", 500),
    ("num_hidden_layers", -2),
    ("num_hidden_layers", 1e7),
    ("num_hidden_layers", "10000000"),
    ("num_hidden_layers", [2]),
    ("num_hidden_layers", float("nan")),
    ("num_hidden_layers", float("inf")),
    ("hidden_size", 10**9),
    ("hidden_size", 10**30),
    ("hidden_size", 0),
    ("hidden_size", -16),
    ("hidden_size", 16.5),
    ("hidden_size", "wide"),
    ("hidden_size", 3200),
    ("intermediate_size", 10**9),
    ("intermediate_size", 4000),
    ("num_attention_heads", 0),
    ("num_attention_heads", 10**9),
    ("vocab_size", 10**12),
    ("vocab_size", 3),
    ("vocab_size", -64),
    ("max_position_embeddings", 10**12),
    ("max_position_embeddings", 10**7),
    ("max_position_embeddings", -1),
    ("type_vocab_size", 10**9),
    ("num_labels", 10**9),
    ("pad_token_id", 10**20),
    ("layer_norm_eps", float("nan")),
]


@pytest.mark.parametrize(("key", "value"), NUMBERS)
def test_numbers_that_do_not_fit_the_weights_are_refused(folder, key, value):
    edit(folder / "config.json", lambda config: {**config, key: value})
    refused(folder)
    with pytest.raises(DivprismError):
        Transformers(str(folder)).embed_batch(["a cat"])


@pytest.mark.parametrize("value", [10**12, -1, 8.5, "8", None, 5000])
def test_a_dense_module_that_does_not_fit_its_weights_is_refused(folder, value):
    edit(folder / "2_Dense" / "config.json", lambda config: {**config, "out_features": value})
    refused(folder)


def header(tensors: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


FLOATS = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HEADERS = [
    b"",
    b"\x00" * 7,
    header({}, length=2**63),
    header({}, length=10**8),
    header({"a": FLOATS}),
    header({"a": FLOATS}, b"\0" * 7),
    header({"a": FLOATS}, b"\0" * 9),
    header({"a": {**FLOATS, "shape": [2**40, 2**40]}}, b"\0" * 8),
    header({"a": {**FLOATS, "shape": [2**63]}}, b"\0" * 8),
    header({"a": {**FLOATS, "shape": [-2]}}, b"\0" * 8),
    header({"a": {**FLOATS, "shape": [2.0]}}, b"\0" * 8),
    header({"a": {**FLOATS, "data_offsets": [8, 0]}}, b"\0" * 8),
    header({"a": {**FLOATS, "data_offsets": [0, 10**15]}}, b"\0" * 8),
    header({"a": FLOATS, "b": {**FLOATS, "data_offsets": [4, 12]}}, b"\0" * 12),
    header({"a": {**FLOATS, "dtype": "PICKLE"}}, b"\0" * 8),
    header({"a": 3}, b"\0" * 8),
    header([1, 2]),
    struct.pack("<Q", 200_000) + b"[" * 100_000 + b"]" * 100_000,
    b"PK\x03\x04" + b"\0" * 100,
]


@pytest.mark.parametrize("number", range(len(HEADERS)))
def test_weight_files_that_lie_are_refused(folder, number):
    (folder / "model.safetensors").write_bytes(HEADERS[number])
    refused(folder)


@pytest.mark.parametrize("file", ["model.safetensors", "2_Dense/model.safetensors"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_weights_are_refused(folder, file, share):
    path = folder / file
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "weight file" in refused(folder)


class Trap:
    """A pickle that creates a file if an unrestricted unpickler opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", [".", "2_Dense"])
def test_pickles_with_code_are_refused(folder, place):
    import torch

    (folder / place / "model.safetensors").unlink()
    weights = folder / place / "pytorch_model.bin"
    for legacy in (False, True):
        trap = {"a": Trap(folder / "sprung")}
        torch.save(trap, weights, _use_new_zipfile_serialization=not legacy)
        refused(folder)


def test_compressed_pickles_are_refused(folder):
    import torch
    from safetensors.torch import load_file

    weights = folder / "pytorch_model.bin"
    torch.save(load_file(folder / "model.safetensors"), folder / "stored")
    (folder / "model.safetensors").unlink()
    packed = zipfile.ZipFile(weights, "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(folder / "stored") as stored, packed:
        for entry in stored.infolist():
            packed.writestr(entry.filename, stored.read(entry) + b"\0" * 10**5)
    assert "is compressed" in refused(folder)


def test_an_old_torch_opens_no_pickles(folder, monkeypatch):
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert SentenceTransformers(str(folder)).embed_batch(["a cat"]).shape == (1, 8)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.5.1")
    assert "may run code" in refused(folder)


def test_weights_beyond_the_memory_are_refused_before_they_are_read(folder):
    entries = 1 << 38
    big = {"dtype": "F32", "shape": [entries], "data_offsets": [0, 4 * entries]}
    text = header({"a": big})
    path = folder / "model.safetensors"
    path.write_bytes(text)
    try:
        # A file of holes: it takes no room on the disk.
        os.truncate(path, len(text) + 4 * entries)
    except OSError:
        pytest.skip("the file system has no files of this size")
    assert "GB of memory" in refused(folder)
    with pytest.raises(MissingModelError, match="more than the memory of this computer"):
        SentenceTransformers(str(folder)).key()


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", 7, None, "a/b"])
def test_an_index_of_shards_stays_in_the_folder(folder, name):
    index = {"weight_map": {"embeddings.word_embeddings.weight": name}}
    edit(folder / "model.safetensors.index.json", lambda _: index)
    refused(folder)
    edit(folder / "model.safetensors.index.json", lambda _: {"weight_map": [name]})
    refused(folder)


def test_tokens_beyond_the_vocabulary_are_one_sentence(folder):
    def change(content: Any) -> Any:
        content["model"]["vocab"]["cat"] = 10**6
        return content

    edit(folder / "tokenizer.json", change)
    assert "it fails on these items" in refused(folder)


def test_vectors_do_not_change_where_a_text_is_cut(folder):
    rng = np.random.default_rng(0)
    embedder = SentenceTransformers(str(folder))
    words = ["a", "the", "cat", "dog", "mat,", "xyz" * 30, "\n\n   ", "sat."]
    limit = embedder.max_characters
    for _ in range(20):
        text = " ".join(rng.choice(words, 4000))
        assert len(text) > limit
        whole = embedder.embed_batch([text])
        np.testing.assert_array_equal(embedder.embed_batch([embedder.prepare(text)]), whole)


# ------------------------------------------------------------------------------ bundled weights


@pytest.mark.parametrize("bundled", ALL_BUNDLED, ids=lambda bundled: Path(bundled.path).name)
def test_other_weights_under_the_same_name_are_refused(bundled, tmp_path, monkeypatch):
    text, image, windows = (
        "a cat",
        np.zeros((224, 224, 3), np.uint8),
        np.zeros((1, 12_512), np.float32),
    )
    kinds: dict[str, tuple[Any, Any]] = {
        "text": (WordLlama, text),
        "multilingual": (Multilingual, text),
        "images": (EfficientNetLite0, image),
        "audio": (SpeechEmbedding, windows),
    }
    embedder, item = kinds[bundled.extra]
    installed = bundled.file()
    package = tmp_path / "package"
    shutil.copytree(installed.parents[1], package)
    monkeypatch.setattr("divprism.embedders._bundled.package_folder", lambda *_: package)
    path = package / bundled.path
    good = path.read_bytes()
    assert embedder().revision
    changed = bytearray(good)
    changed[-5] ^= 1
    for content in (bytes(changed), good[: len(good) // 2], good + b"\0", b""):
        path.write_bytes(content)
        for use in (lambda: embedder().revision, lambda: embedder().embed_batch([item])):
            with pytest.raises(DataError, match=r"is not the weight file of .* reinstall it by"):
                use()
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        _ = embedder().revision
    path.write_bytes(good)
    assert embedder().embed_batch([item]).shape == (1, embedder().dimension)


def test_the_extras_pin_the_packages_of_bundled_weights():
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text()
    page = Path(__file__).parents[1].joinpath("docs", "reference", "models.md").read_text()
    for bundled in ALL_BUNDLED:
        assert f'"{bundled.package}=={bundled.version}"' in text
        for fact in (bundled.package, bundled.version, bundled.sha256, bundled.licence):
            assert fact in page


# ------------------------------------------------------------------------------------- long texts


def test_a_text_beyond_the_limit_is_cut_and_reported():
    base = "The quick brown fox jumps over the lazy dog. "
    text = base * 25_000
    limit = WordLlama().max_characters
    assert len(text) > limit
    samples = Samples(texts([text, text[:limit], "a cat"]))
    embedded = embed(samples, WordLlama(), cache=False)
    np.testing.assert_array_equal(embedded.outputs[0], embedded.outputs[1])
    cut = [notice for notice in embedded.warnings if notice.code == "texts-cut"]
    assert len(cut) == 1
    assert "1 of 3 outputs have more than 1,000,000 characters" in cut[0].text
    # The mean over the rest would hardly differ: a million characters are two books.
    short = embed(Samples(texts([base])), WordLlama(), cache=False)
    assert float(short.outputs[0] @ embedded.outputs[0]) > 0.99


def test_many_long_texts_are_tokenized_a_few_at_a_time():
    seen = []
    embedder = WordLlama()
    tokenizer, table = embedder._model

    class Tokenizer:
        def encode_batch(self, batch: list[str], **options: Any) -> Any:
            seen.append(sum(map(len, batch)))
            return tokenizer.encode_batch(batch, **options)

    together = [f"{'cat ' * 60_000}{number}" for number in range(9)] + ["a dog"]
    expected = np.concatenate([embedder.embed_batch([text]) for text in together])
    embedder.__dict__["_model"] = (Tokenizer(), table)
    np.testing.assert_array_equal(embedder.embed_batch(together), expected)
    assert max(seen) <= embedder.max_characters


# ----------------------------------------------------------------------- files that change


def _png(path: Path, colour: str) -> bytes:
    from PIL import Image as Pillow

    Pillow.new("RGB", (8, 8), colour).save(path, "PNG")
    return path.read_bytes()


def _colours(images: Any) -> Any:
    return [np.asarray(image).mean((0, 1)) for image in images]


def test_an_image_that_changes_while_it_is_read_is_cached_under_its_own_hash(tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    path = tmp_path / "a.png"
    red, blue = _png(path, "red"), _png(tmp_path / "b.png", "blue")
    path.write_bytes(red)
    embedder = Function(_colours, "image", "colours", version="1")
    digest = Image.digest

    def then_changed(item: Image) -> bytes:
        found = digest(item)
        path.write_bytes(blue)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Image, "digest", then_changed)
        first = embed_items([Image(path)], embedder, cache=Cache(tmp_path / "cache")).vectors
    np.testing.assert_array_equal(first, [[255, 0, 0]])
    path.write_bytes(red)
    again = embed_items([Image(path)], embedder, cache=Cache(tmp_path / "cache"))
    assert again.cached == 1
    np.testing.assert_array_equal(again.vectors, [[255, 0, 0]])


def test_frames_that_change_while_they_are_read_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    frame = tmp_path / "0.png"
    _png(frame, "red")
    content = Video.content

    def after_a_change(item: Video, num_frames: int, stride: int, rate: int) -> Any:
        _png(frame, "blue")
        return content(item, num_frames, stride)

    monkeypatch.setattr(Video, "content", after_a_change)
    embedder = Function(lambda videos: [_colours(video)[0] for video in videos], "video")
    with pytest.raises(DataError, match="clip changed while it was read"):
        embed_items([Video((frame,), "clip")], embedder)


def test_a_file_replaced_by_a_link_after_the_check_is_not_read(tmp_path):
    pytest.importorskip("PIL")
    secret = tmp_path / "secret.png"
    _png(secret, "blue")
    folder = tmp_path / "data"
    folder.mkdir()
    _png(folder / "a.png", "red")
    (folder / "link.png").symlink_to(folder / "a.png")
    plain, linked = Image(folder / "a.png", "a"), Image(folder / "link.png", "link")
    frames = Video((folder / "a.png",), "frames")
    video = Video(folder / "a.png", "video")
    # A link that was checked stays what it was, wherever it leads later.
    (folder / "link.png").unlink()
    (folder / "link.png").symlink_to(secret)
    assert np.asarray(linked.content())[0, 0].tolist() == [255, 0, 0]
    (folder / "a.png").unlink()
    (folder / "a.png").symlink_to(secret)
    for read in (plain.digest, plain.content, plain.snapshot, frames.digest, video.digest):
        with pytest.raises(DataError, match="replaced by a link"):
            read()
    for item in (frames, video):
        with pytest.raises(DataError, match="replaced by a link"):
            item.content(1)
    (folder / "a.png").unlink()
    os.mkfifo(folder / "a.png")
    with pytest.raises(DataError, match="not a regular file"):
        plain.digest()


# ------------------------------------------------------- weights, tokenizers and sizes that mislead


def _rewritten(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def _without(part: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in tensors.items() if part not in name}


LOST_TENSORS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a layer": lambda tensors: _without("layer.1.", tensors),
    "a bias": lambda tensors: _without("layer.0.output.dense.bias", tensors),
    "all names": lambda tensors: {f"other.{k}": v for k, v in tensors.items()},
}


@pytest.mark.parametrize("lost", LOST_TENSORS)
def test_weights_that_lack_tensors_are_refused_instead_of_filled_at_random(folder, lost):
    _rewritten(folder, LOST_TENSORS[lost])
    assert "weights lack" in refused(folder)


def test_weights_without_a_pooler_load(folder):
    before = SentenceTransformers(str(folder)).embed_batch(["a cat"])
    _rewritten(folder, lambda tensors: _without("pooler", tensors))
    after = SentenceTransformers(str(folder)).embed_batch(["a cat"])
    np.testing.assert_array_equal(after, before)


def test_loading_a_model_leaves_transformers_as_it_was(folder):
    from transformers import PreTrainedModel

    before = PreTrainedModel.__dict__["from_pretrained"]
    SentenceTransformers(str(folder)).embed_batch(["a cat"])
    assert PreTrainedModel.__dict__["from_pretrained"] is before


@pytest.mark.parametrize("key", ["num_labels", "num_hidden_layers", "hidden_size"])
@pytest.mark.parametrize("absent", ["max_position_embeddings", "hidden_size"])
def test_numbers_are_refused_before_defaults_are_looked_up(folder, key, absent):
    def change(config: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in config.items() if name != absent}
        return {**kept, key: 10**9}

    edit(folder / "config.json", change)
    embedder = Transformers(str(folder))
    with pytest.raises(MissingModelError, match=r"no model has|a number between"):
        _ = embedder.dimension, embedder.max_characters


def test_a_link_to_itself_is_one_sentence(folder):
    (folder / "loop").symlink_to("loop")
    assert "cannot be read" in refused(folder)


def _replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


_TEXT = {"Sequence": {"id": "A", "type_id": 0}}
_SPECIAL = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
_PADDING = {"direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}


def _template(pieces: list[dict[str, Any]], count: int = 1) -> dict[str, Any]:
    token = {"id": "[CLS]", "ids": [2] * count, "tokens": ["[CLS]"] * count}
    special = {"[CLS]": token}
    return {"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": special}


TOKENIZERS: dict[str, tuple[str, Any]] = {
    "replacements": ("normalizer", _sequence(*[_replace("a" * 10)] * 9)),
    "sequences in sequences": ("normalizer", _sequence(*[_sequence(*[_replace("aaaa")] * 3)] * 3)),
    "one replacement": ("normalizer", _replace("a" * 1000)),
    "empty pattern": ("normalizer", _sequence(*[_replace("xx", String="")] * 30)),
    "expression": ("normalizer", _sequence(*[_replace("xx", Regex="x*")] * 30)),
    "without a type": ("normalizer", {"normalizers": [_replace("a" * 1000)]}),
    "prepended": ("normalizer", {"type": "Prepend", "prepend": "a" * 10_000}),
    "normal forms": ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "A" * 4000}),
    "bytes of bytes": (
        "pre_tokenizer",
        {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 20},
    ),
    "text twice": ("post_processor", _template([_TEXT, _TEXT])),
    "many tokens": ("post_processor", _template([_SPECIAL] * 10_000 + [_TEXT])),
    "long tokens": ("post_processor", _template([_SPECIAL, _TEXT], 10_000)),
    "fixed padding": ("padding", {**_PADDING, "strategy": {"Fixed": 10**9}}),
    "padding to a multiple": (
        "padding",
        {**_PADDING, "strategy": "BatchLongest", "pad_to_multiple_of": 10**9},
    ),
    "overlap": ("truncation", {"max_length": 1, "stride": 10, "strategy": "LongestFirst"}),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_tokenizers_that_make_texts_many_times_longer_are_refused(folder, case):
    part, value = TOKENIZERS[case]
    edit(folder / "tokenizer.json", lambda tokenizer: {**tokenizer, part: value})
    assert "tokenizer" in refused(folder)


def test_the_steps_of_real_tokenizers_are_accepted(folder):
    # Those of LLaMA, CLIP, ALBERT and XLM-RoBERTa.
    steps = [
        {"type": "Prepend", "prepend": "\u2581"},
        _replace("\u2581", String=" "),
        _replace(" ", Regex=r"\s+"),
        _replace('"', String="``"),
        {"type": "NFKD"},
        {"type": "Lowercase"},
    ]
    part = {"normalizer": _sequence(*steps)}
    edit(folder / "tokenizer.json", lambda tokenizer: {**tokenizer, **part})
    assert SentenceTransformers(str(folder)).embed_batch(["a cat"]).shape == (1, 8)


def test_padding_to_a_length_that_no_model_has_is_refused(folder):
    options = {"text": {"padding": "max_length", "max_length": 10**9}}
    edit(
        folder / "sentence_bert_config.json",
        lambda config: {**config, "processing_kwargs": options},
    )
    assert "max_length" in refused(folder)


def test_a_panic_of_a_library_in_rust_is_one_sentence(folder, monkeypatch):
    class PanicException(BaseException):
        pass

    embedder = SentenceTransformers(str(folder))

    def fail(*_: object, **__: object) -> None:
        raise PanicException("attempt to divide by zero")

    monkeypatch.setattr(embedder._model, "encode", fail)
    with pytest.raises(MissingModelError, match=r"make a library fail .attempt to divide"):
        embedder.embed_batch(["a cat"])


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    """A folder with a tiny CLIP model that takes images of 32 x 32 pixels."""
    from transformers import CLIPConfig, CLIPModel
    from transformers.utils import logging

    target = tmp_path_factory.mktemp("clip")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    sizes["num_attention_heads"] = 2
    logging.disable_progress_bar()
    CLIPModel(
        CLIPConfig(
            text_config={**sizes, "vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2},
            vision_config={**sizes, "image_size": 32, "patch_size": 8},
            projection_dim=8,
        )
    ).save_pretrained(target)
    logging.enable_progress_bar()
    processor = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_size": {"height": 32, "width": 32},
    }
    (target / "preprocessor_config.json").write_text(json.dumps(processor))
    return target


SIZES: list[tuple[str, Any]] = [
    ("size", {"height": 100_000, "width": 100_000}),
    ("size", {"shortest_edge": 50_000}),
    ("size", {"shortest_edge": 32, "longest_edge": 10**9}),
    ("size", 10**6),
    ("crop_size", {"height": 1, "width": 10**8}),
    ("crop_size", [10**5, 10**5]),
    ("pad_size", {"height": 20_000, "width": 20_000}),
    ("image_processor", {"size": {"height": 10**5, "width": 10**5}}),
    ("size", {"height": float("nan"), "width": 32}),
]


@pytest.mark.parametrize(("key", "value"), SIZES)
def test_images_are_not_enlarged_beyond_any_model(clip, tmp_path, key, value):
    pytest.importorskip("PIL")
    copied = tmp_path / "clip"
    shutil.copytree(clip, copied)
    edit(copied / "preprocessor_config.json", lambda settings: {**settings, key: value})
    _png(tmp_path / "a.png", "red")
    with pytest.raises(MissingModelError, match="pixels are supported"):
        embed_items([Image(tmp_path / "a.png", "a")], Transformers(str(copied)))


def test_the_ends_of_a_long_image_are_cut_before_it_is_enlarged(clip, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(0).integers(0, 255, (6, 1201, 3), dtype=np.uint8)
    embedder = Transformers(str(clip))
    long = embedder.prepare(image.fromarray(noise))
    monkeypatch.setattr("divprism.embedders._image_processors._MAX_ASPECT", 10**6)
    whole = embedder.prepare(image.fromarray(noise))
    # The scale of the enlarged image is rounded to whole pixels, so colours differ a little.
    assert np.abs(long - whole).mean() < 0.02 * np.abs(whole).mean()


def test_a_line_of_pixels_takes_little_memory(clip):
    image = pytest.importorskip("PIL.Image")
    from divprism.embedders._image_processors import without_ends

    cut = without_ends(image.new("RGB", (1, 30_000)), Transformers(str(clip))._processor)
    assert max(cut.size) <= 64
    assert Transformers(str(clip)).prepare(image.new("RGB", (1, 30_000))).shape == (3, 32, 32)
