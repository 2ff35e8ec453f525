"""Result documents as tables, text, plots and one HTML page."""

from divprism.report.page import MARK, report_page
from divprism.report.table import RENDERINGS, Column, Measured, Table
from divprism.report.words import comparison_sentences

__all__ = [
    "MARK",
    "RENDERINGS",
    "Column",
    "Measured",
    "Table",
    "comparison_sentences",
    "report_page",
]
