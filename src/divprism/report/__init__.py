"""Result documents as text: a table for people, JSON, CSV, Markdown and LaTeX for everything else."""

from divprism.report.formats import FORMATS, MODEL_FORMATS, model_note, model_table, render, render_models

__all__ = ["FORMATS", "MODEL_FORMATS", "model_note", "model_table", "render", "render_models"]
