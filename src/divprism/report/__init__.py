"""Result documents as text: a table for people, JSON, CSV, Markdown and LaTeX for everything else, plots, and an HTML page."""

from divprism.report.formats import (
    FORMATS,
    MODEL_FORMATS,
    model_note,
    model_table,
    render,
    render_models,
)
from divprism.report.page import MARK, report_page
from divprism.report.words import comparison_sentences

__all__ = [
    "FORMATS",
    "MARK",
    "MODEL_FORMATS",
    "comparison_sentences",
    "model_note",
    "model_table",
    "render",
    "render_models",
    "report_page",
]
