"""Table: typed columns and rows, with notes; and its renderings.

Every table that divprism prints is a `Table` first. Text for a terminal, Markdown, LaTeX, CSV,
HTML and data frames are renderings of it, so a new column appears in all of them.
"""

import csv
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

from divprism.errors import ArgumentError, MissingExtraError, Notice
from divprism.report.texts import (
    latex_literal,
    literal,
    number_of,
    one_line,
    visible,
    without_formula,
)

__all__ = [
    "RENDERINGS",
    "Cell",
    "Column",
    "Measured",
    "Table",
    "stdout_has_color",
    "stdout_width",
    "terminal_width",
]

# One blank would not separate columns: texts in cells hold single blanks too.
_GAP = 2  # blanks between columns
SCORE = "score"
"""Format of scores in a table: three digits."""

_SHORT = 20  # cells that names are shortened to before a column is left out
_NARROWEST = 8  # cells that a shortened column of texts keeps
_WIDEST = 200  # cells up to which a width is tried at which shortened names differ
_ROUNDING = 1e-9  # relative to the value: a smaller error is rounding


def terminal_width() -> int:
    """Columns of the terminal; 100 where there is none."""
    # Also reads COLUMNS, by which users set a width where there is no terminal.
    return shutil.get_terminal_size((100, 24)).columns


def stdout_width() -> int | None:
    """Columns that text on stdout may have; None, any number, for a pipe or a file."""
    # Only a screen has a width to fit: `grep` and files must get whole rows.
    if sys.stdout.isatty():
        return terminal_width()
    return None


def stdout_has_color() -> bool:
    """Whether stdout is a terminal, and NO_COLOR (https://no-color.org) is not set."""
    # Any value but the empty text counts, as the convention asks.
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@dataclass(frozen=True)
class Measured:
    """A number with its error: the ends of an interval, or a standard error."""

    value: float
    low: float | None = None
    high: float | None = None
    error: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval, else the standard error; None for an exact number."""
        if self.low is not None and self.high is not None:
            return (self.high - self.low) / 2
        return self.error


Cell = str | int | float | Measured | None


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes
    ----------
    key : str
        Its name in CSV files and data frames.
    title : str
        Its heading for people.
    form : str
        Format of its numbers, such as ".4g"; empty for texts.
    priority : int
        0 for columns that are always shown. Where the terminal is too narrow, columns with the
        highest number are left out first.
    """

    key: str
    title: str
    form: str = ""
    priority: int = 0

    @property
    def is_text(self) -> bool:
        """Whether the column holds texts, which are aligned to the left."""
        return not self.form

    @property
    def alignment(self) -> Literal["left", "right"]:
        """The side that the cells are aligned to: texts to the left, numbers to the right."""
        if self.is_text:
            return "left"
        return "right"

    def show(self, cell: Cell) -> str:
        """A cell for people."""
        if cell is None:
            return ""
        if isinstance(cell, str):
            return one_line(cell)
        if isinstance(cell, Measured):
            text = _number(cell.value, self.form)
            half = cell.half_width
            # Resampling equal numbers leaves a spread of rounding errors, which is no uncertainty.
            if half is None or half <= _ROUNDING * abs(cell.value):
                return text
            return f"{text} ±{_error_digits(half)}"
        return _number(cell, self.form)


def _number(value: float, form: str) -> str:
    """A number in a format of Python, or in `SCORE`: three digits, zeros at the end included.

    >>> _number(1.0, SCORE), _number(17.04, SCORE), _number(122.66, SCORE)
    ('1.00', '17.0', '123')
    """
    if form != SCORE:
        return format(value, form)
    # The limits are where rounding adds a digit: 9.996 with two decimals would be 10.00.
    decimals = 2
    if abs(value) >= 9.995:
        decimals = 1
    if abs(value) >= 99.95:
        decimals = 0
    return f"{value:,.{decimals}f}"


def _error_digits(half: float) -> str:
    """An error with one significant digit, or two if the first is 1: enough to judge it by.

    >>> _error_digits(0.0712), _error_digits(0.148)
    ('0.07', '0.15')
    """
    # The digit before rounding: 0.096 begins with 9, though it rounds to 0.1.
    first = f"{half:e}"[0]
    return f"{half:.2g}" if first == "1" else f"{half:.1g}"


@dataclass(frozen=True)
class Table:
    """Typed columns and rows, a title, notes below, and warnings last.

    Attributes
    ----------
    columns : tuple of Column
    rows : tuple of tuples
        A cell for each column: a text, a number, a `Measured`, or None for an empty cell.
    title : str
        One line above the table.
    notes : tuple of str
        Sentences below the table: what the numbers are and how they were computed.
    warnings : tuple of Notice
        What a reader of the numbers should know.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()

    def __post_init__(self) -> None:
        # A row of another length would put its cells under the wrong headings.
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ArgumentError(
                    f"a row of a table has {len(row)} cells; it has {len(self.columns)} columns."
                )

    def head(self, count: int) -> "Table":
        """The first rows of the table; a note counts the others."""
        left_out = len(self.rows) - count
        if left_out <= 0:
            return self
        note = f"not shown: {number_of(left_out, 'more row')}; to_frame() has all of them"
        return replace(self, rows=self.rows[:count], notes=(note, *self.notes))

    def render(self, form: str, width: int | None = None, color: bool = False) -> str:
        """The table in one of `RENDERINGS`; `width` and `color` are for "table" alone."""
        if form == "table":
            return self.to_text(width, color)
        return RENDERINGS[form](self)

    def to_text(self, width: int | None = None, color: bool = False) -> str:
        """The table for a terminal: a line per row, never wrapped.

        Where it is wider than `width`, columns of low priority are left out, then texts are
        shortened; a note names the columns that are missing.
        """
        # Imported here: rich takes time to load, and most calls print no table.
        from rich.console import Console
        from rich.table import Table as RichTable

        kept, cells = self._fit(width)
        # Frames and padding at the edges would cost cells that narrow terminals need for columns.
        grid = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        for index in kept:
            column = self.columns[index]
            title = _plain(one_line(column.title), "bold")
            grid.add_column(title, justify=column.alignment, no_wrap=True)
        for row in cells:
            grid.add_row(*map(_plain, row))
        buffer = io.StringIO()
        colors: Literal["standard"] | None = None
        if color:
            colors = "standard"
        console = Console(
            force_jupyter=False,  # else a notebook shows each line, beside the table
            file=buffer,
            # rich wants a width; without one from us no line may break.
            width=width or 100_000,
            color_system=colors,
            # The buffer is no terminal, and FORCE_COLOR is not asked: the caller has decided.
            force_terminal=color,
            # rich would colour numbers and paths inside names.
            highlight=False,
        )
        if self.title:
            console.print(_plain(one_line(self.title), "bold"), soft_wrap=width is None)
        console.print(grid)
        for note in self._notes(kept):
            console.print(_plain(one_line(note), "dim"), soft_wrap=width is None)
        # rich pads the last column, and the blanks would stay in whatever is pasted.
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"

    def _fit(self, width: int | None) -> tuple[list[int], list[list[str]]]:
        """The columns that fit into a width, and their cells."""
        shown = self._shown_rows()
        widths = self._natural_widths(shown)
        kept = list(range(len(self.columns)))
        if width is None:
            return kept, shown

        def excess() -> int:
            return sum(widths[index] + _GAP for index in kept) - _GAP - width

        def priority(index: int) -> tuple[int, int]:
            return self.columns[index].priority, index

        texts = [index for index in kept if self.columns[index].is_text]
        if excess() > 0:
            # Long names give way before columns do, as far as they stay distinct.
            for index in texts:
                widths[index] = min(widths[index], _distinct_width(row[index] for row in shown))
        # Of columns with the same priority, the last one goes first.
        droppable = [index for index in sorted(kept, key=priority) if self.columns[index].priority]
        while excess() > 0 and droppable:
            kept.remove(droppable.pop())
        # Only texts can be shortened: a number that is cut would be another number.
        texts = [index for index in texts if index in kept]
        for index in sorted(texts, key=widths.__getitem__, reverse=True):
            # After a column was dropped the excess is negative: the widest text regains the cells.
            widths[index] = max(_NARROWEST, widths[index] - excess())
        rows = []
        for row in shown:
            rows.append([_shorten(row[index], widths[index]) for index in kept])
        return kept, rows

    def _natural_widths(self, shown: Sequence[Sequence[str]]) -> list[int]:
        """The width of every column in cells of a terminal; a Chinese letter takes two."""
        from rich.cells import cell_len

        widths = []
        for index, column in enumerate(self.columns):
            lengths = [cell_len(row[index]) for row in shown]
            widths.append(max([cell_len(column.title), *lengths]))
        return widths

    def _notes(self, kept: Sequence[int]) -> list[str]:
        """The notes, and which columns did not fit."""
        missing = [column.title for index, column in enumerate(self.columns) if index not in kept]
        notes = list(self.notes)
        if missing:
            notes.append(f"not shown, for lack of width: {', '.join(missing)}")
        return notes

    def to_markdown(self) -> str:
        """A Markdown table, the notes below it."""
        rules = {"left": "---", "right": "---:"}
        aligned = [rules[column.alignment] for column in self.columns]
        lines = [_markdown_row(self._titles()), f"|{'|'.join(aligned)}|"]
        for row in self._shown_rows():
            lines.append(_markdown_row(row))
        if self.title:
            lines = [literal(self.title), "", *lines]
        if self.notes:
            # Without a blank line between them they would become one paragraph.
            lines += [line for note in self.notes for line in ("", literal(note))]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """A LaTeX table in the style of booktabs, title and notes as comments."""
        comments = [r"% needs \usepackage{booktabs}"]
        for text in (self.title, *self.notes):
            if text:
                # A line break would end the comment, and the rest would be typeset.
                comments.append(f"% {one_line(text)}")
        # booktabs names the alignments by their first letters.
        alignment = "".join(column.alignment[0] for column in self.columns)
        lines = [*comments, rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
        lines += [_latex_row(self._titles()), r"\midrule"]
        for row in self._shown_rows():
            lines.append(_latex_row(row))
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def to_csv(self) -> str:
        """Comma-separated values at full precision; an interval has columns of its own."""
        names, records = self._records()
        buffer = io.StringIO()
        # By default csv ends lines with \r\n, which Unix tools take for a part of the last cell.
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([_csv_cell(name) for name in names])
        for record in records:
            writer.writerow([_csv_cell(value) for value in record])
        return buffer.getvalue()

    def to_html(self) -> str:
        """An HTML table without scripts or colours of its own; every text is escaped."""
        # Notebooks differ in how they align cells, so each cell has its own alignment.
        styles = [f'style="text-align: {column.alignment}"' for column in self.columns]
        pairs = zip(styles, self._titles(), strict=True)
        heads = "".join(f"<th {style}>{escape(title)}</th>" for style, title in pairs)
        lines = ["<table>"]
        if self.title:
            lines.append(f"<caption>{escape(visible(self.title))}</caption>")
        lines.append(f"<thead><tr>{heads}</tr></thead>")
        lines.append("<tbody>")
        for row in self._shown_rows():
            aligned = zip(styles, row, strict=True)
            cells = [f"<td {style}>{escape(text)}</td>" for style, text in aligned]
            lines.append(f"<tr>{''.join(cells)}</tr>")
        lines += ["</tbody>", "</table>"]
        # A notebook shows this and nothing else, so the warnings belong here; the command line
        # prints them on stderr.
        below = [escape(visible(note)) for note in (*self.notes, *map(str, self.warnings))]
        if below:
            lines.append("<ul>")
            lines += [f"<li>{note}</li>" for note in below]
            lines.append("</ul>")
        return "\n".join(lines) + "\n"

    def to_frame(self) -> Any:
        """A data frame with a column for every number: pandas, or polars if only that is there."""
        names, records = self._records()
        columns = {}
        for index, name in enumerate(names):
            columns[name] = [record[index] for record in records]
        for package in ("pandas", "polars"):
            try:
                module = __import__(package)
            except ImportError:
                continue
            return module.DataFrame(columns)
        raise MissingExtraError(
            "A data frame needs pandas or polars, and neither is installed: pip install pandas."
        )

    def _titles(self) -> list[str]:
        return [one_line(column.title) for column in self.columns]

    def _shown_rows(self) -> list[list[str]]:
        rows = []
        for row in self.rows:
            rows.append([column.show(cell) for column, cell in zip(self.columns, row, strict=True)])
        return rows

    def _records(self) -> tuple[list[str], list[list[str | int | float | None]]]:
        """Names and values for machines: a measured number becomes several columns."""
        names: list[str] = []
        records: list[list[str | int | float | None]] = [[] for _ in self.rows]
        for index, column in enumerate(self.columns):
            cells = [row[index] for row in self.rows]
            parts = _parts_of(cells)
            names += [f"{column.key}{suffix}" for suffix in parts]
            for record, cell in zip(records, cells, strict=True):
                record += [part(cell) for part in parts.values()]
        return names, records


def _parts_of(cells: Sequence[Cell]) -> dict[str, Callable[[Cell], str | int | float | None]]:
    """The columns that some cells need in a file, by the suffix of their names."""
    # Decided for the whole column: a single row without an interval must not shift its cells.
    measured = [cell for cell in cells if isinstance(cell, Measured)]
    parts: dict[str, Callable[[Cell], str | int | float | None]] = {"": _value}
    if any(cell.low is not None for cell in measured):
        parts["_low"] = _attribute("low")
        parts["_high"] = _attribute("high")
    if any(cell.error is not None for cell in measured):
        parts["_error"] = _attribute("error")
    return parts


def _value(cell: Cell) -> str | int | float | None:
    if isinstance(cell, Measured):
        return cell.value
    return cell


def _attribute(name: str) -> Callable[[Cell], float | None]:
    def read(cell: Cell) -> float | None:
        value: float | None = getattr(cell, name, None)
        return value

    return read


def _distinct_width(texts: Iterable[str]) -> int:
    """The smallest width, from `_SHORT` on, at which shortened texts differ as the texts do."""
    from rich.cells import cell_len

    distinct = set(texts)
    widest = max(map(cell_len, distinct), default=0)
    # A name of a hundred thousand letters would take minutes to try, and no terminal is so wide.
    for width in range(_SHORT, min(widest, _WIDEST)):
        if len({_shorten(text, width) for text in distinct}) == len(distinct):
            return width
    # Short texts, and long ones that no cut keeps apart, ask for their full width.
    return max(widest, _NARROWEST)


def _shorten(text: str, width: int) -> str:
    """A text of at most `width` cells of a terminal, cut in the middle: both ends identify it."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    # Letters are one or two cells wide, or none, so the number that fits is found by trying. More
    # than four letters to a cell are no text.
    keep = min(len(text), 4 * width)
    while keep > 2:
        keep -= 1
        front = (keep + 1) // 2
        short = f"{text[:front]}…{text[len(text) - (keep - front) :]}"
        if cell_len(short) <= width:
            return short
    return text[:1]


def _plain(text: str, style: str = "") -> Any:
    """A text that rich prints as it is: square brackets in it are no markup."""
    from rich.text import Text

    return Text(text, style=style)


def _csv_cell(value: str | int | float | None) -> str | int | float:
    """A value as a spreadsheet may open it: a text is neither a formula nor drives a terminal."""
    if value is None:
        return ""
    # A guard before a negative number would turn the number into a text.
    if not isinstance(value, str):
        return value
    return without_formula(value)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(literal, cells))} |"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_literal, cells)) + r" \\"


RENDERINGS: dict[str, Callable[[Table], str]] = {
    "table": Table.to_text,
    "csv": Table.to_csv,
    "md": Table.to_markdown,
    "latex": Table.to_latex,
    "html": Table.to_html,
}
"""Renderings by the name that the command line gives them."""
