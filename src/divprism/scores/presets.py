"""What the papers use for scoring, as presets: truncation, bandwidths, embedders.

A bandwidth depends on the scale of the vectors, and so on the embedder. A preset has a number only
for the embedders of its paper; for all others the papers' rule, `StableScore`, chooses. No preset
chooses an embedder, because none of the papers' models is installed with divprism, and a preset
must not download one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from divprism.errors import ArgumentError

__all__ = ["PRESETS", "PaperBandwidth", "Preset", "check_preset"]


@dataclass(frozen=True)
class PaperBandwidth:
    """The bandwidth of a paper for the vectors of one embedder.

    Attributes
    ----------
    embedder : str
        Pattern that the id of the embedder contains.
    bandwidth : float
        Of the Gaussian kernel exp(-d^2 / (2 bandwidth^2)).
    source : str
        Where the paper has it, and why this number.
    dimension : int or None
        Number of entries of a vector; models of one name come in several sizes. None for any.
    needs : str
        What the description of the preprocessing contains: which half of CLIP.
    unit_norm : bool
        Whether the number is meant for rows of norm one.
    """

    embedder: str
    bandwidth: float
    source: str
    dimension: int | None = None
    needs: str = ""
    unit_norm: bool = False

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Whether vectors with this record of an embedder are those of the paper."""
        name = str(record.get("id", "")).lower()
        # The mean over frames of an image model has another scale than its images.
        if not re.search(self.embedder, name) or name.endswith("-frames"):
            return False
        if self.dimension is not None and record.get("dimension") != self.dimension:
            return False
        return self.needs in str(record.get("preprocessing", ""))


@dataclass(frozen=True)
class Preset:
    """How a paper computes its scores.

    Attributes
    ----------
    name : str
        Name of the preset.
    truncation : int
        Number of eigenvalues kept.
    samples : int
        Number of pairs that the paper scores at a time.
    bandwidths : tuple of PaperBandwidth
        One for each embedder of the paper.
    embedders : str
        The embedders of the paper in words, and how to get them here.
    """

    name: str
    truncation: int
    samples: int
    bandwidths: tuple[PaperBandwidth, ...]
    embedders: str

    def bandwidth_of(self, record: Mapping[str, Any]) -> PaperBandwidth | None:
        """The bandwidth for the vectors of an embedder; None if the paper has none."""
        for candidate in self.bandwidths:
            if candidate.fits(record):
                return candidate
        return None


# `clip` as a word of its own: SigLIP and X-CLIP have other scales.
_CLIP = r"(?<![a-z])clip"

# Numbers of Conditional Vendi.
_CONDITIONAL = Preset(
    name="conditional-vendi",
    truncation=10_000,  # Sec. 7 and App. E.1
    samples=20_000,  # Sec. 7: stories for each temperature; Fig. 2 has up to 25,000
    bandwidths=(
        PaperBandwidth("dinov2", 25.0, "App. E.1: the middle of [20, 30] for images", 768),
        PaperBandwidth(
            _CLIP,
            0.3,
            "App. E.3: the only single number for texts, inside [0.1, 0.8] of App. E.1",
            needs="get_text_features",
            unit_norm=True,  # the vectors of `clip` are not normalised: nothing would be alike
        ),
        PaperBandwidth("gemini", 0.3, "App. E.3, inside [0.1, 0.8] of App. E.1", unit_norm=True),
        PaperBandwidth("i3d", 15.0, "App. E.1: the middle of [10, 20] for videos", 1024),
    ),
    embedders=(
        "The paper (Sec. 7) uses DINOv2 (dinov2) for images, CLIP (clip) or Gemini for texts, and "
        "I3D (onnx:PATH) for videos, which are not installed with divprism"
    ),
)
# Numbers of Truncated Vendi.
_TRUNCATED = Preset(
    name="truncated-vendi",
    truncation=10_000,  # Sec. 6.2
    samples=20_000,  # Sec. 6
    bandwidths=(
        PaperBandwidth(
            "dinov2", 35.0, "Fig. 3 and 12 (FFHQ), between 30 and 40 (ImageNet, Fig. 8, 13)", 768
        ),
        PaperBandwidth(_CLIP, 5.0, "App. C, Fig. 14 and 15", needs="get_image_features"),
        PaperBandwidth("swav", 1.0, "App. C, Fig. 16 and 17"),
        PaperBandwidth("text-embedding-3-large", 0.6, "Fig. 4 (0.5 in Fig. 9)", 3072),
        PaperBandwidth("i3d", 4.0, "Fig. 5 and 11", 1024),
    ),
    embedders=(
        "The paper (Sec. 6, App. C) uses DINOv2 (dinov2) or CLIP (clip) for images, "
        "openai:text-embedding-3-large for texts, and I3D (onnx:PATH) for videos, which are not "
        "installed with divprism"
    ),
)
PRESETS: dict[str, Preset] = {preset.name: preset for preset in (_CONDITIONAL, _TRUNCATED)}
"""The presets by name: Conditional Vendi (AISTATS 2026) and Truncated Vendi (UAI 2025)."""


def check_preset(name: object) -> str | None:
    """The name of a preset, or None for none."""
    if name is None or (isinstance(name, str) and name in PRESETS):
        return name
    raise ArgumentError(f"`preset` must be one of {', '.join(PRESETS)}; got {name!r}.")
