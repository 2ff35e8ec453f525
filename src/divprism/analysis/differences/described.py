"""Measured modes as they are reported: shares, errors, and outputs that show them."""

from collections.abc import Callable, Mapping

import numpy as np

from divprism.analysis.differences.measured import Measured
from divprism.analysis.differences.result import DifferenceMode, ModeExample
from divprism.analysis.differences.states import States
from divprism.errors import Notice

__all__ = ["MakeExample", "described", "unseen_warnings"]

MakeExample = Callable[[int, int, float], ModeExample]
"""side, row of the states, squared cosine with the mode -> the example."""

_MUCH_UNSEEN = 0.1  # of the outputs, from which a warning says so
_CLEAR = 0.5  # share of the largest cosine below which an output is no example of a mode


def described(
    measured: Measured,
    names: Mapping[int, str],
    num_modes: int,
    num_examples: int,
    make_example: MakeExample,
) -> tuple[DifferenceMode, ...]:
    """The modes of all sides, the largest first; `names` are the samples by their side."""
    states, found = measured.states, []
    for modes in measured.modes:
        own = np.flatnonzero(states.side == modes.sign)
        for number, value in enumerate(modes.values):
            loadings = measured.loadings[modes.sign][:, number]
            shares = _shares(states, loadings)
            held_out = measured.held_out[modes.sign][number]
            examples = []
            for row in _typical_rows(loadings, states.index, own, num_examples):
                weight = min(1.0, float(loadings[row] ** 2))
                examples.append(make_example(modes.sign, int(row), weight))
            found.append(
                DifferenceMode(
                    model=names[modes.sign],
                    eigenvalue=float(value),
                    share_first=shares[1],
                    share_second=shares[-1],
                    share_reference=shares.get(0),
                    held_out=held_out.value,
                    low=held_out.low,
                    high=held_out.high,
                    agreement=held_out.agreement,
                    p_value=measured.p_values[modes.sign][number],
                    examples=tuple(examples),
                )
            )
    # Rounded, so that equal eigenvalues keep their order on every machine.
    found.sort(key=lambda mode: -round(abs(mode.eigenvalue), 9))
    return tuple(found[:num_modes])


def _shares(states: States, loadings: np.ndarray) -> dict[int, float]:
    """The mean squared cosine of each sample with a mode, by its side."""
    squares = loadings**2
    return {int(side): float(squares[states.side == side].mean()) for side in set(states.side)}


def _typical_rows(
    loadings: np.ndarray, points: np.ndarray, own: np.ndarray, count: int
) -> np.ndarray:
    """The rows among `own` that show a mode best: the largest cosines, no two of one point."""
    # The sign of an eigenvector is arbitrary. Of two opposite kinds, the more extreme is shown.
    sign = 1.0
    if float((loadings[own] ** 3).sum()) < 0:
        sign = -1.0
    cosines = sign * loadings[own]
    # Rounded, so that the last bits do not decide between copies.
    order = own[np.lexsort((own, -cosines.round(9)))]
    _, firsts = np.unique(points[order], return_index=True)
    order = order[np.sort(firsts)][:count]
    largest = float(sign * loadings[order[0]])
    return np.asarray(order[sign * loadings[order] >= _CLEAR * largest])


def unseen_warnings(unseen: float) -> tuple[Notice, ...]:
    """A warning where landmarks miss much of the outputs."""
    if unseen <= _MUCH_UNSEEN:
        return ()
    text = (
        f"landmarks miss {unseen:.0%} of the outputs, so modes may be larger than shown and the "
        "total is a lower bound: use a larger bandwidth, or a part of the data."
    )
    return (Notice("modes-unseen", text),)
