"""divprism: how diverse is a prompt-guided generative model beyond what its prompts bring?"""

from divprism.bandwidth import BandwidthRule, MedianDistance
from divprism.embedders import (
    Cache,
    EfficientNetLite0,
    Embedder,
    FrameMean,
    Function,
    Inception,
    OpenAI,
    SentenceTransformers,
    Transformers,
    WordLlama,
)
from divprism.embedding import embed
from divprism.errors import ArgumentError, DataError, DivprismError, MissingExtraError, MissingModelError
from divprism.estimators import Auto, Dual, Estimator, Exact, Fourier, Lanczos, Nystrom, Subsample
from divprism.evaluation import Evaluation, evaluate, evaluate_models
from divprism.groups import cluster_rke, cluster_vendi, kmeans_labels
from divprism.kernels import Categorical, Cosine, Gaussian, Kernel, Polynomial, Precomputed
from divprism.metric import Metric
from divprism.readers import load
from divprism.samples import Samples
from divprism.scores import (
    Score,
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    rke,
    vendi,
)
from divprism.version import __version__

__all__ = [
    "ArgumentError",
    "Auto",
    "BandwidthRule",
    "Cache",
    "Categorical",
    "Cosine",
    "DataError",
    "DivprismError",
    "Dual",
    "EfficientNetLite0",
    "Embedder",
    "Estimator",
    "Evaluation",
    "Exact",
    "Fourier",
    "FrameMean",
    "Function",
    "Gaussian",
    "Inception",
    "Kernel",
    "Lanczos",
    "MedianDistance",
    "Metric",
    "MissingExtraError",
    "MissingModelError",
    "Nystrom",
    "OpenAI",
    "Polynomial",
    "Precomputed",
    "Samples",
    "Score",
    "SentenceTransformers",
    "Subsample",
    "Transformers",
    "WordLlama",
    "__version__",
    "cluster_rke",
    "cluster_vendi",
    "conditional_rke",
    "conditional_vendi",
    "embed",
    "evaluate",
    "evaluate_models",
    "information_rke",
    "information_vendi",
    "kmeans_labels",
    "load",
    "rke",
    "vendi",
]
