"""Result documents as text: a table for people, JSON, CSV, Markdown and LaTeX for everything else."""

from divprism.report.formats import FORMATS, render, render_models

__all__ = ["FORMATS", "render", "render_models"]
