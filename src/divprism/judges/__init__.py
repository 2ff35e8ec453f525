"""Models behind an endpoint that rate outputs: their scores are a quality of each output.

All names below are public: `divprism` exports them.
"""

from divprism.judges.base import QualityModel
from divprism.judges.chat import Judge
from divprism.judges.reward import RewardModel

__all__ = ["Judge", "QualityModel", "RewardModel"]
