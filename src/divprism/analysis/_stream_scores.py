"""Scores of a stream, from the sums that it keeps."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from divprism.analysis._stream_state import StreamState
from divprism.core.entropy import truncation_of
from divprism.core.estimates import entropy_estimate
from divprism.core.spectrum import Spectrum
from divprism.errors import DataError
from divprism.estimators import Entropy
from divprism.scores.score import Score, combine, kinds_in
from divprism.scores.settings import Settings
from divprism.scores.spec import ScoreSpec

__all__ = ["stream_scores"]

_ROUNDING_OF_SUMS = 4 * float(np.finfo(np.float64).eps)  # of one term, relative to the sum


def stream_scores(
    state: StreamState, specs: Iterable[ScoreSpec], settings: Settings
) -> dict[str, Score]:
    """Some scores by name; the state has the moments of all their operators."""
    if state.n == 0:
        raise DataError("nothing has been seen yet: call update first.")
    # Sums of n terms round by about sqrt(n) of that, in an order that chunks decide.
    noise = max(state.noise, _ROUNDING_OF_SUMS * math.sqrt(state.n))
    spectra = {name: moments.spectrum(noise) for name, moments in state.moments.items()}
    scores = {}
    for spec in specs:
        order = spec.order_under(settings.order)
        entropies = {}
        for name in spec.terms:
            is_random = state.moments[name].is_random
            entropies[name] = _entropy(spectra[name], order, settings, state.n, is_random)
        entropy = combine(spec, entropies)
        scores[spec.name] = Score(
            spec.name,
            entropy,
            order=order,
            n=state.n,
            settings=settings,
            prompt_kinds=kinds_in(spec, entropies),
        )
    return scores


def _entropy(
    spectrum: Spectrum, order: float, settings: Settings, n: int, is_random: bool
) -> Entropy:
    estimate = entropy_estimate(spectrum, order, truncation_of(settings.truncation, n))
    if is_random:
        # An extrapolation may leave the entropies that n items can have.
        value = min(max(estimate.value, 0.0), math.log(n))
        estimate = replace(estimate, value=value)
    return Entropy(estimate, spectrum.method)
