"""Where tiles are computed, and what the computation may use. Nothing here changes an answer."""

from divprism.engines.resources import RESOURCES, Resources, spell_bytes, spell_seconds
from divprism.engines.threads import cores, in_order, one_blas_thread, side_by_side

__all__ = [
    "RESOURCES",
    "Resources",
    "cores",
    "in_order",
    "one_blas_thread",
    "side_by_side",
    "spell_bytes",
    "spell_seconds",
]
