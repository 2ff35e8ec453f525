"""Tables in memory as samples: data frames of any library, data sets, lists of dicts.

Data frames are read through narwhals, which is imported when a frame is passed. What is read are
plain Python values, by the rules for files, so that a table gives the answer of its file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.data.readers.fields import FIELD_NAMES, Fields, Findings
from divprism.data.readers.guards import Root, shown
from divprism.data.readers.records import samples_from_records
from divprism.data.readers.tables import Record
from divprism.data.samples import Samples
from divprism.data.wording import counted, first_line
from divprism.errors import ArgumentError, DataError

__all__ = ["is_table", "read_table_in_memory", "type_name"]

_BATCH = 1_000  # rows of a data set that are converted at a time


def is_table(x: object, *, is_named: bool) -> bool:
    """Whether `x` is a table, rather than a matrix or a collection of outputs.

    A data frame of numbers is a matrix, unless the caller names columns or their names are known.

    >>> is_table([{"prompt": "p", "output": "o"}], is_named=False)
    True
    >>> is_table(["a text"], is_named=False)
    False
    """
    if isinstance(x, list | tuple):
        return len(x) > 0 and isinstance(x[0], Mapping)
    if _is_data_set(x):
        return True
    repeated = _repeated_column(x)
    if repeated is not None:
        # Columns of a matrix need no names of their own.
        if not is_named and _holds_numbers(x) and repeated.lower() not in FIELD_NAMES:
            return False
        raise DataError(
            f"several columns of the {type_name(x)} are called {repeated!r}; rename them, or keep "
            "one of them."
        )
    frame = _as_frame(x)
    if frame is None:
        return False
    return is_named or not _is_matrix(frame)


def type_name(x: object) -> str:
    """Return what messages call an object.

    >>> type_name([{"prompt": "p"}]), type_name(np.eye(2)), type_name(["a"])
    ('list of dicts', 'numpy.ndarray', 'list')
    """
    kind = type(x)
    if isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], Mapping):
        return f"{kind.__name__} of dicts"
    library = kind.__module__.partition(".")[0]
    if library == "builtins":
        return kind.__name__
    return f"{library}.{kind.__name__}"


def read_table_in_memory(
    table: Any, fields: Fields, findings: Findings, limit: int | None
) -> Samples:
    """Return the pairs of a table.

    Parameters
    ----------
    table : data frame, data set or list of dicts
        For which `is_table` holds.
    fields : Fields
        The columns to read.
    findings : Findings
        Receives notes and warnings.
    limit : int, optional
        Stop after this number of pairs, if no column names the model.
    """
    name = type_name(table)
    # Whoever holds an object in memory may read the files that it names, as with a list of paths.
    root = Root(Path(), allow_outside=True)
    fields = replace(fields, noun="column")
    records = _records(table, name)
    samples, _ = samples_from_records(
        records, fields, root, findings, f"the {name}", limit, is_typed=True
    )
    return samples


def _is_data_set(x: object) -> bool:
    """Whether `x` is a Data Set of Hugging Face, judged without importing their library."""
    if type(x).__module__.partition(".")[0] != "datasets":
        return False
    return hasattr(x, "with_format") or isinstance(x, Mapping)


def _as_frame(x: object) -> Any:
    """Return `x` as a frame of narwhals; None if it is none."""
    # Asked of the type, because lazy frames compute their columns. Arrays have none, so that
    # narwhals is not imported for them.
    if not hasattr(type(x), "columns") and not hasattr(type(x), "__narwhals_dataframe__"):
        return None
    import narwhals

    frame = narwhals.from_native(x, pass_through=True)
    if isinstance(frame, narwhals.LazyFrame):
        return frame.collect()
    if isinstance(frame, narwhals.DataFrame):
        return frame
    return None


def _repeated_column(x: object) -> str | None:
    """Return a name that several columns of a frame of pandas or pyarrow share; None without one.

    Other libraries allow no such frame.
    """
    if type(x).__module__.partition(".")[0] not in ("pandas", "pyarrow"):
        return None
    names: Any = getattr(x, "columns", ())
    names = getattr(x, "column_names", names)  # of pyarrow, whose `columns` are the data
    seen = set()
    for name in map(str, names):  # as messages and arguments spell them: 0 and "0" are alike
        if name in seen:
            return name
        seen.add(name)
    return None


def _holds_numbers(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "biuf"


def _is_matrix(frame: Any) -> bool:
    """Whether all columns are numbers, and none has the name of outputs or prompts."""
    if {str(name).lower() for name in frame.columns} & FIELD_NAMES:
        return False
    return all(kind.is_numeric() for kind in frame.schema.values())


def _records(table: Any, name: str) -> Iterator[Record]:
    for number, row in enumerate(_rows(table, name)):
        yield Record(row, f"row {number:,} of the {name}")


def _rows(table: Any, name: str) -> Iterator[dict[str, Any]]:
    if isinstance(table, list | tuple):
        return _rows_of_list(table, name)
    if _is_data_set(table):
        return _rows_of_data_set(table)
    return _rows_of_frame(_as_frame(table), name)


def _rows_of_list(table: Any, name: str) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(table):
        if not isinstance(row, Mapping):
            raise DataError(
                f"row {number:,} of the {name} is a {type_name(row)}, unlike the rows before it."
            )
        yield {str(key): _plain(value) for key, value in row.items()}


def _rows_of_frame(frame: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yield rows by whole columns: libraries convert those best, and know what is missing."""
    try:
        columns = {str(column): _values(frame.get_column(column)) for column in frame.columns}
    except Exception as error:  # of whichever library it is
        raise DataError(f"cannot read the columns of the {name}: {first_line(error)}.") from error
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def _values(column: Any) -> list[Any]:
    """Return a column as Python values, None where one is missing."""
    values = [_plain(value) for value in column.to_list()]
    # Libraries have markers of their own for what is missing, such as NaN and pandas.NA.
    for row, is_missing in enumerate(column.is_null().to_list()):
        if is_missing:
            values[row] = None
    return values


def _rows_of_data_set(table: Any) -> Iterator[dict[str, Any]]:
    if isinstance(table, Mapping):
        splits = ", ".join(shown(split) for split in table)
        raise ArgumentError(
            f"the {type_name(table)} has {counted(len(table), 'split', 'splits')} ({splits}); "
            "pass one of them."
        )
    # As Arrow: images stay the bytes of their files, which decoding them would change.
    for batch in table.with_format("arrow").iter(batch_size=_BATCH):
        yield from batch.to_pylist()


def _plain(value: Any) -> Any:
    """Return arrays, numbers and dates of NumPy as Python values, also inside of lists."""
    # Markers of pandas, which also stand in lists of dicts; equal to nothing, not even themselves.
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value.tolist()]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
