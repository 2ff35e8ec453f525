"""Lazy trace-one matrices, whose entropies the scores combine.

With point masses w (sum one) an operator is the matrix M = W^(1/2) K W^(1/2), W = diag(w). Equal
items are merged first and their masses added: the non-zero spectrum stays the same (M = A A' and
A' A share it), and the matrix shrinks to the number of distinct items. K_T therefore costs the
number of distinct prompts, not the number of pairs.
"""

from divprism.core.operators.base import Operator
from divprism.core.operators.hadamard import HadamardOperator
from divprism.core.operators.kernel import KernelOperator
from divprism.core.operators.matrices import (
    ColumnNoise,
    dense,
    in_single,
    matrix_noise,
    require_definite,
    require_positive,
    second_moment,
)
from divprism.core.operators.pairs import is_identity, on_pairs

__all__ = [
    "ColumnNoise",
    "HadamardOperator",
    "KernelOperator",
    "Operator",
    "dense",
    "in_single",
    "is_identity",
    "matrix_noise",
    "on_pairs",
    "require_definite",
    "require_positive",
    "second_moment",
]
