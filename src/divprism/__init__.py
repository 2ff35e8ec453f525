"""divprism: how diverse is a prompt-guided generative model beyond what its prompts bring?"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"  # first, so that the rooms can import it while this package is imported

from divprism.analysis.bandwidth_sweep import BandwidthSweep, bandwidth_sweep
from divprism.analysis.baseline import ShuffledBaseline, shuffled_baseline
from divprism.analysis.comparison import Comparison, Difference, compare
from divprism.analysis.convergence import Convergence, Verdict, converge
from divprism.analysis.evaluation import Evaluation, Results, evaluate, evaluate_models
from divprism.analysis.fidelity import (
    KernelDistance,
    alignment,
    coverage,
    in_batch_similarity,
    kernel_distance,
    recall,
)
from divprism.analysis.groups import (
    EigenDirectionGrouping,
    EigenGrouping,
    ExactPromptGrouping,
    KMeansGrouping,
    LabelGrouping,
    NestedScores,
    PromptGroups,
    nested_scores,
    prompt_groups,
)
from divprism.analysis.groups.kmeans import kmeans_labels
from divprism.analysis.intervals import Interval
from divprism.analysis.metric import Metric
from divprism.core.kernels import Categorical, Cosine, Gaussian, Kernel, Polynomial, Precomputed
from divprism.data.readers import load
from divprism.data.samples import Samples
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
from divprism.embedders.embedding import embed
from divprism.errors import (
    ArgumentError,
    BandwidthWarning,
    DataError,
    DivprismError,
    GateError,
    MissingExtraError,
    MissingModelError,
    Notice,
)
from divprism.estimators import Auto, Dual, Estimator, Exact, Fourier, Lanczos, Nystrom, Subsample
from divprism.scores import functions as _functions
from divprism.scores.bandwidth import (
    BandwidthRule,
    DistinctPrompts,
    MedianDistance,
    StableScore,
)
from divprism.scores.functions import *  # noqa: F403  # every score of the table is a function
from divprism.scores.score import Score
from divprism.scores.settings import Settings

if TYPE_CHECKING:
    from divprism.report.details import html_report

__all__ = [
    "ArgumentError",
    "Auto",
    "BandwidthRule",
    "BandwidthSweep",
    "BandwidthWarning",
    "Cache",
    "Categorical",
    "Comparison",
    "Convergence",
    "Cosine",
    "DataError",
    "Difference",
    "DivprismError",
    "DistinctPrompts",
    "Dual",
    "EfficientNetLite0",
    "EigenDirectionGrouping",
    "EigenGrouping",
    "Embedder",
    "Estimator",
    "Evaluation",
    "Exact",
    "ExactPromptGrouping",
    "Fourier",
    "FrameMean",
    "Function",
    "GateError",
    "Gaussian",
    "Inception",
    "Interval",
    "KMeansGrouping",
    "Kernel",
    "KernelDistance",
    "LabelGrouping",
    "Lanczos",
    "MedianDistance",
    "Metric",
    "MissingExtraError",
    "MissingModelError",
    "NestedScores",
    "Notice",
    "Nystrom",
    "OpenAI",
    "Polynomial",
    "Precomputed",
    "PromptGroups",
    "Results",
    "Samples",
    "Score",
    "SentenceTransformers",
    "Settings",
    "ShuffledBaseline",
    "StableScore",
    "Subsample",
    "Transformers",
    "Verdict",
    "WordLlama",
    "__version__",
    "alignment",
    "bandwidth_sweep",
    "compare",
    "converge",
    "coverage",
    "embed",
    "evaluate",
    "evaluate_models",
    "html_report",
    "in_batch_similarity",
    "kernel_distance",
    "kmeans_labels",
    "load",
    "nested_scores",
    "prompt_groups",
    "recall",
    "shuffled_baseline",
]
__all__ += _functions.__all__


def __getattr__(name: str) -> Any:
    """Import the report when it is asked for: most programs never render a page."""
    if name == "html_report":
        from divprism.report.details import html_report

        return html_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
