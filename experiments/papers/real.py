"""Which experiments run on which public data sets, from raw files."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """An experiment on real data.

    Attributes
    ----------
    experiment : str
        Its id.
    path : str
        Folder or file inside the folder of all data, as in docs/reference/real-data.md.
    what : str
        What stands in for the data of the paper, as a heading ends.
    """

    experiment: str
    path: str
    what: str

    @property
    def name(self) -> str:
        """The name of its figure."""
        return f"{self.experiment}-{Path(self.path).parts[0]}"


SOURCES = (
    Source("fig5", "real_fruits", "photographs of four varieties of seven fruits"),
    Source("fig8", "t2v_fetv", "videos of four models and of cameras"),
    Source("fig12", "t2i_vague_objects", "images of two models for the same prompts"),
    Source("fig20", "coco_captioners", "captions of photographs by seven captioners"),
    Source("table2", "renze_temperature", "answers of six language models by temperature"),
    Source("table2", "tevet_temperature", "three tasks of a language model by temperature"),
    Source("text-bandwidth", "t2i_vague_objects", "images of two models for the same prompts"),
    Source("convergence", "noveltybench_curated/dev.jsonl.gz", "answers of thirteen models"),
    Source("text-classes", "noveltybench_curated/dev.jsonl.gz", "answers to up to 100 prompts"),
    Source("classes", "real_clothing", "photographs of ten kinds of clothing"),
)
"""The experiments on real data, in the order of the page."""
