"""Embedders turn texts, images, videos and sounds into vectors, and a cache keeps the vectors.

All names below are public: `divprism` exports them.
"""

from divprism.embedders._mel_settings import MelSettings
from divprism.embedders._onnx_settings import OnnxSettings
from divprism.embedders.base import Embedder
from divprism.embedders.cache import Cache
from divprism.embedders.function import Function
from divprism.embedders.http import OpenAI
from divprism.embedders.image import EfficientNetLite0, FrameMean
from divprism.embedders.inception import Inception
from divprism.embedders.logmel import LogMel
from divprism.embedders.multilingual import Multilingual
from divprism.embedders.onnx_models import Onnx
from divprism.embedders.sentence_models import SentenceTransformers
from divprism.embedders.speech import SpeechEmbedding
from divprism.embedders.text import WordLlama
from divprism.embedders.transformer_models import Transformers

__all__ = [
    "Cache",
    "EfficientNetLite0",
    "Embedder",
    "FrameMean",
    "Function",
    "Inception",
    "LogMel",
    "MelSettings",
    "Multilingual",
    "Onnx",
    "OnnxSettings",
    "OpenAI",
    "SentenceTransformers",
    "SpeechEmbedding",
    "Transformers",
    "WordLlama",
]
