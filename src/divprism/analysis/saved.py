"""What all results have in common: their document as JSON, on its own or in a file."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from divprism.data.files import write_text
from divprism.data.wording import json_text

__all__ = ["Saved"]


class Saved(ABC):
    """A result with a document."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""

    def to_json(self) -> str:
        """The result document as JSON text."""
        return json_text(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write the result document to a JSON file, in one step."""
        write_text(path, self.to_json() + "\n")
