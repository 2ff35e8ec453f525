"""Which classes and settings the files of a model may name.

The libraries below import classes by the names that a model's files give, and the versions of them
differ in what they refuse. So every name is compared with a list here, before one is imported.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divprism.embedders._model_files import (
    Json,
    UnsafeModelError,
    quoted,
    read_dictionary,
    read_list,
    relative_folder,
    small_json_files,
)

__all__ = ["TEXT_TYPES", "Module", "check_settings", "sentence_modules"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TEXT_TYPES = _words(
    """albert bert big_bird camembert clip convbert data2vec-text deberta deberta-v2 distilbert
    electra ernie eurobert gemma gemma2 gemma3_text gpt2 gpt_neo gpt_neox gptj llama longformer
    mistral mobilebert modernbert modernbert-decoder mpnet mt5 nomic_bert nystromformer opt phi phi3
    qwen2 qwen3 roberta roberta-prelayernorm squeezebert t5 t5gemma umt5 xlm xlm-roberta
    xlm-roberta-xl xlnet xmod"""
)
"""Types of transformers models that sentence-transformers may load for us."""

# Each class of sentence-transformers and the file that version 5.4 and later keep it in. Left out:
# WordEmbeddings (imports the tokenizer that its file names), and what no current model uses.
_MODULE_FILES = {
    "Asym": ("base.modules.router",),
    "Dense": ("base.modules.dense", "sentence_transformer.modules.dense"),
    "Dropout": ("sentence_transformer.modules.dropout",),
    "LayerNorm": ("sentence_transformer.modules.layer_norm",),
    "Normalize": ("base.modules.normalize", "sentence_transformer.modules.normalize"),
    "Pooling": ("sentence_transformer.modules.pooling",),
    "Router": ("base.modules.router", "sentence_transformer.modules.router"),
    "StaticEmbedding": ("sentence_transformer.modules.static_embedding",),
    "Transformer": ("base.modules.transformer", "sentence_transformer.modules.transformer"),
}


def _module_classes() -> dict[str, str]:
    """Return the class of each dotted name under which a version knows it."""
    classes = {}
    for name, files in _MODULE_FILES.items():
        places = ["models", f"models.{name}", "base.modules", "sentence_transformer.modules"]
        for place in (*places, *files):
            classes[f"sentence_transformers.{place}.{name}"] = name
    return classes


_MODULE_CLASSES = _module_classes()
_ROUTERS = ("Asym", "Router")
_MAX_MODULES = 64  # of a model, those of its routers included
_MAX_DEPTH = 3  # of routers inside routers
_ACTIVATION = re.compile(
    r"torch\.nn\.modules\.(linear\.Identity|activation\."
    r"(ELU|GELU|Hardtanh|LeakyReLU|Mish|ReLU|ReLU6|SELU|Sigmoid|SiLU|Softplus|Softsign|Tanh))"
)

# What transformers looks up by name. Some other tokenizers start analysers of other packages.
_TOKENIZERS = re.compile(
    r"(Albert|Barthez|Bert|BigBird|Bloom|CLIP|Camembert|CodeLlama|Cohere|ConvBert|Deberta|DebertaV2"
    r"|DistilBert|Electra|GPT2|GPTNeoX|Gemma|Herbert|LayoutLM|Llama|Longformer|MBart|MBart50|MPNet"
    r"|MobileBert|NomicBert|Nystromformer|OpenAIGPT|PreTrained|Qwen2|Roberta|SeedOss|Siglip|Siglip2"
    r"|SqueezeBert|T5|XLMRoberta|XLNet)Tokenizer(Fast)?|TokenizersBackend"
)
_PROCESSORS = re.compile(
    r"(Auto|Bit|CLIP|ConvNext|DINOv3ViT|DeiT|Siglip|Siglip2|ViT|VideoMAE|XCLIP)"
    r"(ImageProcessor|FeatureExtractor|VideoProcessor|Processor)(Fast|Pil)?"
)
_CLASS_KEYS = {
    "tokenizer_class": _TOKENIZERS,
    "slow_tokenizer_class": _TOKENIZERS,
    "processor_class": re.compile(f"{_PROCESSORS.pattern}|{_TOKENIZERS.pattern}"),
    "image_processor_type": _PROCESSORS,
    "feature_extractor_type": _PROCESSORS,
    "video_processor_type": _PROCESSORS,
}
# Other values fetch code for a faster attention from the hub.
_ATTENTION_KEYS = (
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
    "_experts_implementation_internal",
)
_ATTENTIONS = (None, "eager", "sdpa")
# Any value but nothing runs code, reads other files, or needs a package that was not checked.
_REFUSED_KEYS = _words(
    """allow_all_kernels auto_map auto_mapping code_revision custom_generate gguf_file init_inputs
    kernel_config parent_library quantization_config tokenizer_name_or_path trust_remote_code
    use_kernels weights_only"""
)
# Files of settings for images, and the numbers that they may ask for. Real ones ask for sides of
# fewer than 1,100 pixels, and for 1,024 patches of 16 pixels.
_IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
_IMAGE_LIMITS = (
    (re.compile(r"max_num_patches"), 4096, "patches"),
    (re.compile(r"patch_size"), 64, "pixels"),
    (re.compile(r"\w*(size|edge|height|width)\w*"), 2048, "pixels"),
)
_MAX_NESTING = 32  # of settings; a file of JSON may be nested a thousand deep

# Settings of the module Transformer, and those that it hands on to transformers.
_TRANSFORMER_KEYS = _words(
    """max_seq_length do_lower_case transformer_task modality_config module_output_name
    processing_kwargs unpad_inputs query_length document_length query_expansion"""
)
_MAX_PADDED = 8192  # tokens of a text; memory grows with their square
_PASSED_ON = _words(
    "model_args tokenizer_args config_args model_kwargs processor_kwargs config_kwargs"
)
_PASSED_KEYS = _words(
    """add_pooling_layer add_prefix_space attn_implementation do_lower_case dtype is_causal
    is_decoder max_length model_max_length padding_side torch_dtype truncation_side use_cache
    use_fast use_safetensors"""
)


def check_settings(folder: Path) -> None:
    """Check the names in every file of settings in a model folder, at any depth.

    Raises
    ------
    UnsafeModelError
        If a file names code, a class that is not in the lists here, or settings that load more
        than the folder has.
    """
    for path, content in small_json_files(folder):
        # An adapter names the package that its classes are imported from.
        if path.name == "adapter_config.json":
            raise UnsafeModelError("it is an adapter to another model; merge them first")
        _check_values(content, path.name)
        if path.name.endswith(_IMAGE_FILES):
            _check_sides(content, path.name)
        if re.fullmatch(r"sentence_[\w-]+_config\.json", path.name):
            _check_transformer(content, path.name)
        if path.name == "config_sentence_transformers.json":
            _check_prompts(content)


def _check_values(content: object, where: str, depth: int = 0) -> None:
    if depth > _MAX_NESTING:
        raise UnsafeModelError(f"{where} is nested more than {_MAX_NESTING} deep")
    if isinstance(content, list):
        for value in content:
            _check_values(value, where, depth + 1)
    if isinstance(content, dict):
        for key, value in content.items():
            _check_setting(key, value, where)
            _check_values(value, where, depth + 1)


def _check_sides(content: object, where: str, key: str = "") -> None:
    """Refuse sides of images that are beyond any model; an image is enlarged to them."""
    if isinstance(content, dict):
        for name, value in content.items():
            _check_sides(value, where, str(name))
    if isinstance(content, list):
        for value in content:
            _check_sides(value, where, key)
    for pattern, limit, unit in _IMAGE_LIMITS:
        if not isinstance(content, int | float) or not pattern.fullmatch(key):
            continue
        # Written so that NaN is refused too.
        if not content <= limit:
            raise UnsafeModelError(
                f"{quoted(key)} in {where} is {quoted(content)}; at most {limit:,} {unit} are "
                "supported"
            )
        return


def _check_setting(key: str, value: object, where: str) -> None:
    if key in _REFUSED_KEYS and value not in (None, False, "", [], {}):
        raise UnsafeModelError(
            f"it requires its own code, or files and packages that are not checked ({key} in "
            f"{where}), which is never run"
        )
    if key in _CLASS_KEYS and value is not None:
        is_known = isinstance(value, str) and _CLASS_KEYS[key].fullmatch(value) is not None
        if not is_known:
            raise UnsafeModelError(f"{key} in {where} is {quoted(value)}, which is not supported")
    if key in _ATTENTION_KEYS:
        choices = list(value.values()) if isinstance(value, dict) else [value]
        if any(choice not in _ATTENTIONS for choice in choices):
            raise UnsafeModelError(f"{key} in {where} is {quoted(value)}, which may run code")
    if key == "fast_tokenizer_files":
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str) and re.fullmatch(r"[\w.-]+", name) for name in names):
            raise UnsafeModelError(f"{key} in {where} names files outside the folder")


def _check_transformer(content: object, where: str) -> None:
    """Check the settings that sentence-transformers hands on as keyword arguments."""
    if not isinstance(content, dict):
        raise UnsafeModelError(f"{where} is not readable")
    unknown = set(content) - _TRANSFORMER_KEYS - _PASSED_ON
    for key in _PASSED_ON & set(content):
        if not isinstance(content[key], dict):
            raise UnsafeModelError(f"{key} in {where} is {quoted(content[key])}")
        unknown |= set(content[key]) - _PASSED_KEYS
    if unknown:
        raise UnsafeModelError(f"{where} has the unknown setting {quoted(min(unknown))}")
    _check_processing(content.get("processing_kwargs"), where)
    length = content.get("max_seq_length")
    if length is not None and (not _is_count(length) or length > 1 << 20):
        raise UnsafeModelError(f"max_seq_length in {where} is {quoted(length)}")


def _check_processing(content: object, where: str) -> None:
    """Refuse padding to a length that no model has, at any depth of the options of a tokenizer."""
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        _check_processing(value, where)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not value <= _MAX_PADDED:
            raise UnsafeModelError(f"{quoted(key)} in {where} is {quoted(value)}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_prompts(content: object) -> None:
    where = "config_sentence_transformers.json"
    if not isinstance(content, dict):
        raise UnsafeModelError(f"{where} is not readable")
    kind = content.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise UnsafeModelError(f"it is a {quoted(kind)}, and only SentenceTransformer is supported")
    prompts = content.get("prompts", {})
    default = content.get("default_prompt_name")
    if not isinstance(prompts, dict):
        raise UnsafeModelError(f"prompts in {where} is {quoted(prompts)}, not a dictionary")
    for name, prompt in prompts.items():
        if prompt is not None and (not isinstance(prompt, str) or len(prompt) > 10_000):
            raise UnsafeModelError(f"the prompt {quoted(name)} in {where} is {quoted(prompt)}")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise UnsafeModelError(f"default_prompt_name in {where} is {quoted(default)}")
    width = content.get("truncate_dim")
    if width is not None and not _is_count(width):
        raise UnsafeModelError(f"truncate_dim in {where} is {quoted(width)}")


@dataclass(frozen=True)
class Module:
    """A part of a sentence-transformers model: the name of its class, and its folder.

    `is_inner` marks the parts that a router chooses from.
    """

    kind: str
    folder: Path
    is_inner: bool


def sentence_modules(folder: Path) -> list[Module]:
    """Return the modules of a model in order, after a check of all that their files name.

    Routers are followed to the modules that they choose from. Empty if there is no modules.json.
    """
    found: list[Module] = []
    for module in read_list(folder / "modules.json"):
        if not isinstance(module, dict):
            raise UnsafeModelError("modules.json is not readable")
        place = relative_folder(folder, module.get("path", ""))
        _check_module(place, module.get("type"), 0, found)
    return found


def _check_module(folder: Path, kind: object, depth: int, found: list[Module]) -> None:
    name = _class_name(kind)
    found.append(Module(name, folder, depth > 0))
    if len(found) > _MAX_MODULES or depth > _MAX_DEPTH:
        raise UnsafeModelError(f"it has more than {_MAX_MODULES} modules, or routers in routers")
    if name == "Dense":
        _check_activation(read_dictionary(folder / "config.json"))
    if name in _ROUTERS:
        # The library reads the first that has content; both are checked.
        for file in ("router_config.json", "config.json"):
            types: Any = read_dictionary(folder / file).get("types", {})
            if not isinstance(types, dict):
                raise UnsafeModelError(f"types in {file} is {quoted(types)}")
            for place, inner in types.items():
                _check_module(relative_folder(folder, place), inner, depth + 1, found)


def _class_name(kind: object) -> str:
    """Return the class of sentence-transformers that a dotted name stands for."""
    if not isinstance(kind, str) or kind not in _MODULE_CLASSES:
        raise UnsafeModelError(
            f"it requires its own code ({ascii(str(kind)[:80])[1:-1]}), which is never run"
        )
    return _MODULE_CLASSES[kind]


def _check_activation(config: Json) -> None:
    name = config.get("activation_function")
    if name is None:
        return
    if not isinstance(name, str) or _ACTIVATION.fullmatch(name) is None:
        raise UnsafeModelError(
            f"activation_function is {quoted(name)}, not one of torch.nn.modules.activation"
        )
