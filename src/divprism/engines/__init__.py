"""Where tiles are computed and which resources they may use. Nothing here changes a result."""

from divprism.engines.resources import RESOURCES, Progress, Resources, spell_bytes, spell_seconds
from divprism.engines.threads import blas_for, cores, in_order, one_blas_thread, side_by_side

__all__ = [
    "RESOURCES",
    "Progress",
    "Resources",
    "blas_for",
    "cores",
    "in_order",
    "one_blas_thread",
    "side_by_side",
    "spell_bytes",
    "spell_seconds",
]
