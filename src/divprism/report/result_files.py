"""Result documents in files, as `save` and the command line write them."""

import json
from pathlib import Path
from typing import Any

from divprism.analysis.evaluation import SCHEMA
from divprism.data.files import read_file
from divprism.data.strict_json import refuse_constant, unique_keys
from divprism.data.wording import escaped, first_line
from divprism.errors import DataError

__all__ = ["read_result"]

# Values of a document. A parsed value takes up to a hundred times the bytes of its text ("[]").
_MAX_VALUES = 5_000_000
_MAX_BYTES = 128 << 20  # a page of a hundred models with thumbnails has a fifth of them


def read_result(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, which must be of the schema that this version writes.

    An object without a schema is returned as it is: `report_page` and `--config` check the rest.
    """
    name = escaped(path)[:200]
    raw = read_file(path, _MAX_BYTES)
    # Before parsing, which would fill the memory.
    if sum(map(raw.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        raise DataError(f"{name} holds over {_MAX_VALUES:,} values, so it is not a result.")
    try:
        # Some editors put a byte order mark first, which `json` refuses.
        text = raw.decode("utf-8-sig")
        content = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique_keys)
    # Thousands of open brackets exhaust the stack of the parser.
    except (ValueError, RecursionError) as error:
        # The full text of a parse error counts characters from the start of the file.
        reason = escaped(getattr(error, "msg", first_line(error)))[:200]
        raise DataError(
            f"{name} is not a JSON file ({reason}); give the JSON of a result."
        ) from None
    if not isinstance(content, dict):
        raise DataError(f"{name} must hold a JSON object; it holds a {type(content).__name__}.")
    schema = content.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise DataError(
            f"{name} has schema {escaped(_short(schema))}, but this version reads {SCHEMA}: "
            "use the version that wrote it."
        )
    return content


def _short(value: object) -> str:
    # The digits of a huge integer are refused by str().
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return str(value)[:20]
        except ValueError:
            pass
    return f"of type {type(value).__name__}"
