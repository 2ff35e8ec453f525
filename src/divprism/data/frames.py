"""Columns as a DataFrame of whichever library is installed."""

import importlib
from collections.abc import Sequence
from typing import Any

from divprism.errors import MissingExtraError

__all__ = ["data_frame"]

# pandas first: where both are installed, the answer must not depend on which was imported before.
_LIBRARIES = ("pandas", "polars")


def data_frame(columns: dict[str, Sequence[object]]) -> Any:
    """Return columns of equal length as a pandas DataFrame, or a polars one without pandas.

    Raises
    ------
    MissingExtraError
        If neither library is installed.
    """
    for name in _LIBRARIES:
        # Imported here: a DataFrame library would dominate the time of `import divprism`.
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        return library.DataFrame(columns)
    raise MissingExtraError(
        "Making a DataFrame needs pandas or polars, neither of which is installed: "
        "pip install pandas."
    )
