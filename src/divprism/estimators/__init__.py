"""Estimators: methods to compute the spectrum of an operator, passed as `estimator=`.

All names below are public: `divprism` exports them, and `scores.registry` spells estimators by the
names of their classes.
"""

from divprism.estimators.auto import Auto
from divprism.estimators.base import Cost, Entropy, Estimator, Question
from divprism.estimators.dual import Dual
from divprism.estimators.exact import Exact
from divprism.estimators.fourier import Fourier
from divprism.estimators.lanczos import Lanczos
from divprism.estimators.nystrom import Nystrom
from divprism.estimators.subsample import Subsample

__all__ = [
    "Auto",
    "Cost",
    "Dual",
    "Entropy",
    "Estimator",
    "Exact",
    "Fourier",
    "Lanczos",
    "Nystrom",
    "Question",
    "Subsample",
]
