"""divprism: how diverse is a prompt-guided generative model beyond what its prompts bring?"""

from typing import TYPE_CHECKING, Any

from divprism import _interrupts  # noqa: F401  # before what takes a while to import

__version__ = "0.1.0"  # first, so that the rooms can import it while this package is imported

from divprism import embedders as _embedders
from divprism import estimators as _estimators
from divprism import judges as _judges
from divprism.analysis.bandwidth_sweep import BandwidthSweep, bandwidth_sweep
from divprism.analysis.baseline import ShuffledBaseline, shuffled_baseline
from divprism.analysis.comparison import Comparison, Difference, compare
from divprism.analysis.convergence import Convergence, Verdict, converge
from divprism.analysis.differences import (
    DifferenceMode,
    Differences,
    GroupDifference,
    ModeExample,
    NearCopy,
    Novelty,
    diff,
    novelty,
)
from divprism.analysis.evaluate import evaluate, evaluate_models
from divprism.analysis.evaluation import Evaluation, Results
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
from divprism.analysis.mixture import mixture
from divprism.analysis.mixture_result import GroupMixture, Mixture
from divprism.analysis.online_mixture import MixtureBandit
from divprism.analysis.overlap import overlap
from divprism.analysis.overlap_result import ModelOverlap, Overlap, PromptOverlap
from divprism.analysis.pareto import pareto
from divprism.analysis.pareto_front import ParetoFront, ParetoPoint
from divprism.analysis.selection import Selection, select
from divprism.core import kernels as _kernels
from divprism.core.kernels import *  # noqa: F403  # a new kernel is public
from divprism.data.examples import demo_samples
from divprism.data.readers import load
from divprism.data.samples import Samples
from divprism.embedders import *  # noqa: F403  # a new embedder is public
from divprism.embedders.embedding import embed
from divprism.engines import Dask
from divprism.errors import (
    ArgumentError,
    BandwidthWarning,
    DataError,
    DivprismError,
    EngineError,
    GateError,
    MissingExtraError,
    MissingModelError,
    Notice,
)
from divprism.estimators import *  # noqa: F403  # a new estimator is public
from divprism.judges import *  # noqa: F403
from divprism.scores import functions as _functions
from divprism.scores.bandwidth import (
    BandwidthRule,
    DistinctPrompts,
    MedianDistance,
    StableScore,
)
from divprism.scores.functions import *  # noqa: F403  # every score of the table is a function
from divprism.scores.scendi import ScendiScore, scendi
from divprism.scores.score import Score
from divprism.scores.settings import Settings

if TYPE_CHECKING:
    from divprism.report.details import html_report

__all__ = [
    "ArgumentError",
    "BandwidthRule",
    "BandwidthSweep",
    "BandwidthWarning",
    "Comparison",
    "Convergence",
    "Dask",
    "DataError",
    "Difference",
    "DifferenceMode",
    "Differences",
    "DivprismError",
    "DistinctPrompts",
    "EigenDirectionGrouping",
    "EigenGrouping",
    "EngineError",
    "Evaluation",
    "ExactPromptGrouping",
    "GateError",
    "GroupDifference",
    "GroupMixture",
    "Interval",
    "KMeansGrouping",
    "KernelDistance",
    "LabelGrouping",
    "MedianDistance",
    "Metric",
    "MissingExtraError",
    "MissingModelError",
    "Mixture",
    "MixtureBandit",
    "ModeExample",
    "ModelOverlap",
    "NearCopy",
    "NestedScores",
    "Notice",
    "Novelty",
    "Overlap",
    "ParetoFront",
    "ParetoPoint",
    "PromptGroups",
    "PromptOverlap",
    "Results",
    "Samples",
    "ScendiScore",
    "Score",
    "Selection",
    "Settings",
    "ShuffledBaseline",
    "StableScore",
    "Verdict",
    "__version__",
    "alignment",
    "bandwidth_sweep",
    "compare",
    "converge",
    "coverage",
    "demo_samples",
    "diff",
    "embed",
    "evaluate",
    "evaluate_models",
    "html_report",
    "in_batch_similarity",
    "kernel_distance",
    "kmeans_labels",
    "load",
    "mixture",
    "nested_scores",
    "novelty",
    "overlap",
    "pareto",
    "prompt_groups",
    "recall",
    "scendi",
    "select",
    "shuffled_baseline",
]
__all__ += _embedders.__all__
__all__ += _estimators.__all__
__all__ += _functions.__all__
__all__ += _judges.__all__
__all__ += _kernels.__all__


def __getattr__(name: str) -> Any:
    """Import the report when it is asked for: most programs never render a page."""
    if name == "html_report":
        from divprism.report.details import html_report

        return html_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
