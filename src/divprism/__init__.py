"""divprism: how diverse is a prompt-guided generative model beyond what its prompts bring?"""

from divprism.bandwidth import BandwidthRule, MedianDistance
from divprism.errors import ArgumentError, DataError, DivprismError, MissingExtraError
from divprism.estimators import Auto, Dual, Estimator, Exact, Fourier, Lanczos, Nystrom, Subsample
from divprism.evaluation import Evaluation, evaluate
from divprism.groups import cluster_rke, cluster_vendi, kmeans_labels
from divprism.kernels import Categorical, Cosine, Gaussian, Kernel, Polynomial, Precomputed
from divprism.metric import Metric
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
    "Categorical",
    "Cosine",
    "DataError",
    "DivprismError",
    "Dual",
    "Estimator",
    "Evaluation",
    "Exact",
    "Fourier",
    "Gaussian",
    "Kernel",
    "Lanczos",
    "MedianDistance",
    "Metric",
    "MissingExtraError",
    "Nystrom",
    "Polynomial",
    "Precomputed",
    "Score",
    "Subsample",
    "__version__",
    "cluster_rke",
    "cluster_vendi",
    "conditional_rke",
    "conditional_vendi",
    "evaluate",
    "information_rke",
    "information_vendi",
    "kmeans_labels",
    "rke",
    "vendi",
]
