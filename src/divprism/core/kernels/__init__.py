"""Kernels: how similar two items are. Each kernel is a frozen description that holds no data.

A kernel k has k(a, a) = 1 and is positive semidefinite, so that K / n is a trace-one matrix
(Conditional Vendi, Sec. 3.2). It turns items into `Points` once (centring, normalising, coding) and
evaluates blocks of the kernel matrix between points. All names below are public: `divprism` exports
them, and `scores.registry` spells kernels by the names of their classes.
"""

from divprism.core.kernels.base import Kernel
from divprism.core.kernels.categorical import Categorical
from divprism.core.kernels.cosine import Cosine
from divprism.core.kernels.gaussian import Gaussian
from divprism.core.kernels.points import Points
from divprism.core.kernels.polynomial import Polynomial
from divprism.core.kernels.precomputed import Precomputed

__all__ = [
    "Categorical",
    "Cosine",
    "Gaussian",
    "Kernel",
    "Points",
    "Polynomial",
    "Precomputed",
]
