"""Presets of guidance: the settings of published experiments, each with its source.

Sections are those of the Conditional Vendi paper. It quotes the settings of c-VSG, the guidance of
Askari Hemmat et al. (2024), in its App. E.3.
"""

import dataclasses
from typing import Any

from divprism.core.kernels import Cosine
from divprism.errors import ArgumentError
from divprism.guidance.bank import Bank
from divprism.guidance.features import Features, as_features
from divprism.guidance.objectives import OBJECTIVES

__all__ = ["C_VSG_STRENGTHS", "PRESETS", "preset_settings"]

# App. E.3: "sliding window of 300 most recently generated samples". Stated for c-VSG; the other
# paragraphs name no window, so it serves them too.
_WINDOW = 300
# App. E.3, all paragraphs "latent ... Guidance": sigma_img, eta, and the steps between updates.
_LATENT = {"bandwidth_z": 0.8, "strength": 0.03, "every": 10}
# App. E.3, "latent Conditional-RKE Guidance": sigma_text. None is given for Conditional-Vendi. The
# truncation of 10,000 (App. E.1) keeps every eigenvalue of the window and is left out.
_TEXT = {"bandwidth_t": 0.3}
# App. E.3, "c-VSG": Vendi without prompts, a guidance frequency of 5.
_C_VSG_NAME = "c-vsg"
_C_VSG = {"score": "vendi", "every": 5}
C_VSG_STRENGTHS = (0.04, 0.05, 0.06, 0.07)
"""The scales above 0 that App. E.3 chose from by validation; which was chosen is not stated."""


def _presets() -> dict[str, dict[str, Any]]:
    presets: dict[str, dict[str, Any]] = {}
    for name, objective in OBJECTIVES.items():
        presets[name] = {"score": name, **_LATENT}
        if objective.conditional:
            presets[name].update(_TEXT)
    presets[_C_VSG_NAME] = {**_C_VSG, "strength": C_VSG_STRENGTHS[1]}
    return presets


PRESETS = _presets()
"""Settings of `DiversityGuidance` by the name of a preset."""


def preset_settings(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a preset with some changes, and with an empty bank of its own.

    >>> preset_settings("rke", {"bank": None})
    {'score': 'rke', 'bandwidth_z': 0.8, 'strength': 0.03, 'every': 10, 'bank': None}
    """
    # Other types may have no hash, without which `in` raises.
    if not isinstance(name, str) or name not in PRESETS:
        raise ArgumentError(
            f"there is no guidance preset {name!r}; choose from {', '.join(PRESETS)}."
        )
    settings = {**PRESETS[name], "bank": Bank(_WINDOW), **changes}
    if name == _C_VSG_NAME:
        settings["features"] = _compared_by_cosine(settings)
    return settings


def _compared_by_cosine(settings: dict[str, Any]) -> Features:
    """Return the features in some settings, with the cosine kernel unless another is chosen."""
    features = as_features(settings.get("features"))
    if features is None:
        raise ArgumentError(
            f"the preset {_C_VSG_NAME!r} compares samples in a feature space: pass features=..., "
            "for example Features.of_images(pipe, encoder)."
        )
    # App. E.3 names no kernel for c-VSG. The cosine, which App. E.2 calls the other standard kernel
    # beside the Gaussian, needs no bandwidth, of which none is given either.
    if features.kernel is None and settings.get("bandwidth_z") is None:
        return dataclasses.replace(features, kernel=Cosine())
    return features
