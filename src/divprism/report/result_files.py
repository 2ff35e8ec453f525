"""Result documents in files, as `save` and the command line write them."""

import json
from pathlib import Path
from typing import Any

from divprism.analysis.evaluation import SCHEMA
from divprism.data.readers.guards import MAX_JSON, shown
from divprism.errors import DataError

__all__ = ["read_result"]


def read_result(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, which must be of the schema that this version writes.

    An object without a schema is returned as it is: `report_page` and `--config` check the rest.
    """
    try:
        # Before reading: a file of many gigabytes would fill the memory.
        if path.stat().st_size > MAX_JSON:
            raise DataError(f"{path} is larger than {MAX_JSON:,} bytes, so it is not a result.")
        # Some editors put a byte order mark first, which `json` refuses.
        text = path.read_text(encoding="utf-8-sig")
        content = json.loads(text, parse_constant=_refuse_constant)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    # Thousands of open brackets exhaust the stack of the parser.
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):  # which is a ValueError too
            raise
        # The full text of a parse error counts characters from the start of the file.
        reason = getattr(error, "msg", error)
        raise DataError(
            f"{path} is not a JSON file ({reason}); give the JSON of a result."
        ) from None
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a JSON object; it holds a {type(content).__name__}.")
    schema = content.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise DataError(
            f"{path} has schema {shown(str(schema)[:20])}, but this version reads {SCHEMA}: "
            "use the version that wrote it."
        )
    return content


def _refuse_constant(name: str) -> None:
    # Python reads NaN and Infinity, which are not JSON and which no result holds.
    raise ValueError(f"{name} is not a JSON number")
