"""Estimators: ways to get the spectrum of an operator. Each is a frozen value, passed as `estimator=`."""

from divprism.estimators.auto import Auto
from divprism.estimators.base import Estimator
from divprism.estimators.dual import Dual
from divprism.estimators.exact import Exact

__all__ = ["Auto", "Dual", "Estimator", "Exact"]
