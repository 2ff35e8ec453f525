"""Where tiles are computed and which resources they may use. Nothing here changes a result."""

from divprism.engines.base import Arrays, Engine, Job, Report, Shared, Total, Tree, bundled
from divprism.engines.checkpoints import checked_folder
from divprism.engines.dask import Dask, cluster
from divprism.engines.resources import (
    RESOURCES,
    Progress,
    Resources,
    as_engine,
    spell_bytes,
    spell_seconds,
)
from divprism.engines.shown_progress import as_progress
from divprism.engines.threads import (
    Serial,
    Threads,
    blas_for,
    cores,
    in_order,
    one_blas_thread,
    side_by_side,
)

__all__ = [
    "RESOURCES",
    "Arrays",
    "Dask",
    "Engine",
    "Job",
    "Progress",
    "Report",
    "Resources",
    "Serial",
    "Shared",
    "Threads",
    "Total",
    "Tree",
    "as_engine",
    "as_progress",
    "blas_for",
    "bundled",
    "checked_folder",
    "cluster",
    "cores",
    "in_order",
    "one_blas_thread",
    "side_by_side",
    "spell_bytes",
    "spell_seconds",
]
