"""ONNX files for tests: small networks of torch as exported, and graphs that lie."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "the", "cat", "dog", "sat", "on", "mat", "very"]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SETTINGS: dict[str, dict[str, Any]] = {
    "image": {"modality": "image", "size": 32, "resize": 36, "mean": MEAN, "std": STD},
    "video": {
        "modality": "video",
        "size": [24, 32],
        "resize": "stretch",
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "num_frames": 6,
        "pooling": "mean",
    },
    "audio": {
        "modality": "audio",
        "sample_rate": 8000,
        "seconds": 0.25,
        "windows": 3,
        "mel": {
            "bands": 16,
            "window": 200,
            "hop": 80,
            "fft": 256,
            "low": 50,
            "high": 4000,
            "scale": "slaney",
            "log": "db",
            "center": True,
            "mean": -40,
            "std": 20,
        },
    },
    "text": {"modality": "text", "max_tokens": 12, "output": "hidden", "pooling": "mean"},
}


def network(kind: str, seed: int = 0) -> Any:
    """Return a small network: a CNN, also of spectrograms, a 3D CNN as I3D is, or a transformer."""
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(len(WORDS), 16)
            self.positions = nn.Embedding(12, 16)
            self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
            self.norm = nn.LayerNorm(16)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            places = torch.arange(12)[: input_ids.shape[1]]
            x = self.words(input_ids) + self.positions(places)
            scores = self.query(x) @ self.key(x).transpose(1, 2) / 4
            hidden = (1 - attention_mask.float())[:, None] * -1e9
            x = x + torch.softmax(scores + hidden, -1) @ self.value(x)
            return self.norm(x), x[:, 0]

    torch.manual_seed(seed)
    if kind == "text":
        return Words().eval()
    if kind == "video":
        layers = [nn.Conv3d(3, 8, 3, (1, 2, 2), 1), nn.BatchNorm3d(8), nn.ReLU()]
        layers += [nn.MaxPool3d((1, 2, 2)), nn.Conv3d(8, 16, 3, 2, 1)]
        return nn.Sequential(*layers).eval()
    channels = 3 if kind == "image" else 1
    layers = [
        nn.Conv2d(channels, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
    ]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)]
    return nn.Sequential(*layers).eval()


def example(kind: str) -> tuple[Any, ...]:
    """Return the input that a network is exported with."""
    import torch

    if kind == "text":
        return torch.ones(1, 7, dtype=torch.int64), torch.ones(1, 7, dtype=torch.int64)
    if kind == "video":
        return (torch.zeros(1, 3, 6, 24, 32),)
    if kind == "audio":
        return (torch.zeros(1, 1, 26, 16),)
    return (torch.zeros(1, 3, 32, 32),)


def export(kind: str, folder: Path, seed: int = 0, *, dynamo: bool = False) -> Path:
    """Export a network with its settings into a folder, and return the path of the model."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    names: dict[str, Any] = {}
    if kind == "text":
        names = {
            "input_names": ["input_ids", "attention_mask"],
            "output_names": ["hidden", "pooled"],
        }
        length = {1: "length"}
        if dynamo:
            axis = torch.export.Dim("length", min=1, max=12)
            names["dynamic_shapes"] = ({1: axis}, {1: axis})
        else:
            names["dynamic_axes"] = dict.fromkeys(["input_ids", "attention_mask", "hidden"], length)
        (folder / "tokenizer.json").write_text(tokenizer().to_str())
    with warnings.catch_warnings():
        # The old exporter, which needs no other package, is deprecated.
        warnings.simplefilter("ignore")
        options = {"dynamo": dynamo, "external_data": False, "verbose": False, **names}
        torch.onnx.export(network(kind, seed), example(kind), path, **options)
    (folder / "model.json").write_text(json.dumps(SETTINGS[kind]))
    return path


def tokenizer() -> Any:
    """Return a tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    words.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=special)
    return words


# ------------------------------------------------------------------------------ graphs by hand


def node(operator: str, inputs: list[str], output: str = "y", **attributes: Any) -> Any:
    """Return an operator."""
    from onnx import helper

    return helper.make_node(operator, inputs, [output], **attributes)


def constant(name: str, values: Any) -> Any:
    """Return a weight."""
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(values), name)


def graph(nodes: list[Any], weights: list[Any] = (), **changes: Any) -> Any:  # type: ignore
    """Return a model of pixels (1, 3, 4, 4) by the name x, whose output is called y."""
    from onnx import TensorProto, helper

    given = changes.get("inputs", [("x", TensorProto.FLOAT, [1, 3, 4, 4])])
    inputs = [helper.make_tensor_value_info(*entry) for entry in given]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    body = helper.make_graph(nodes, "graph", inputs, outputs, list(weights))
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(body, opset_imports=versions, ir_version=8)


def added(*nodes: Any, weights: list[Any] = ()) -> Any:  # type: ignore[assignment]
    """Return a model that adds the sum of a value called big to its input."""
    total = [node("ReduceSum", ["big"], "sum", keepdims=0), node("Cast", ["sum"], "float", to=1)]
    return graph([*nodes, *total, node("Add", ["x", "float"])], weights)
