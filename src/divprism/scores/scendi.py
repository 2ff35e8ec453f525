"""Scendi, the Schur complement entropy diversity: what prompts do not explain linearly.

With C_XX, C_TT and C_XT the covariances, not centred, of the features of outputs and prompts, the
Schur complement L = C_XX - C_XT (C_TT + r I)^-1 C_TX is what is left of the outputs after the ridge
regression of their features on those of the prompts. Scendi is exp(-sum l log(l / sum l)) over its
eigenvalues l (Ospanov, Jalali and Farnia, ICCV 2025, arXiv 2412.18645; read from the code of the
authors, github.com/aziksh-ospanov/scendi-score, `schur_vendi_from_eigs`).

Here without features. L has the nonzero eigenvalues of (I - P)^(1/2) A (I - P)^(1/2), with
A = K_X / n, B = K_T / n and P = B (B + r I)^-1, as both are products of the same factors. So any
kernel will do, and prompts that repeat cost as much as their distinct ones.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.core.arrays import eigvalsh, plain_mode, to_numpy
from divprism.core.kernels import Kernel
from divprism.core.kernels.base import positive_number
from divprism.core.operators import KernelOperator, dense
from divprism.errors import ArgumentError, Notice
from divprism.scores.normalization import normalized
from divprism.scores.problem import Problem, check_factors, pose
from divprism.scores.settings import ScoreOptions, Settings, read_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ScendiScore", "scendi"]

# The ridge of the authors' code, on covariances of trace one.
_REGULARIZATION = 1e-12

# Unexplained shares up to this one are reported as none: the score is 1 whatever the outputs do.
_NOTHING_LEFT = 1e-6


class ScendiScore(float):
    """A Scendi score: a float, with its two factors and the settings that it was computed with.

    Attributes
    ----------
    unexplained : float
        Trace of the Schur complement, from 0 to 1: the share of the outputs that prompts do not
        explain by a linear map between features.
    residual_vendi : float
        exp H(L / tr L): the effective number of directions of what is left; 1 if nothing is.
    unit_trace : bool
        Whether the score is `residual_vendi`; otherwise it is residual_vendi^unexplained.
    regularization : float
        The ridge r.
    n : int
        Number of pairs.
    settings : Settings
        With kernels and bandwidths resolved.
    warnings : tuple of Notice
        What a reader of the number should know.
    """

    unexplained: float
    residual_vendi: float
    unit_trace: bool
    regularization: float
    n: int
    settings: Settings
    warnings: tuple[Notice, ...]

    def __new__(cls, value: float, **attributes: Any) -> "ScendiScore":
        """A score with its attributes."""
        score = super().__new__(cls, value)
        score.__dict__.update(attributes)
        return score

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (float(self), self.__dict__)

    @property
    def value(self) -> float:
        """The score as a plain float."""
        return float(self)

    def __repr__(self) -> str:
        return f"<ScendiScore {self}>"

    def __str__(self) -> str:
        plain = self.settings.to_dict()
        kernels = []
        for side in ("x", "t"):
            width = plain[f"bandwidth_{side}"]
            bandwidth = ""
            if width is not None:
                bandwidth = f"({width:.4g})"
            kernels.append(f"{plain[f'kernel_{side}']}{bandwidth}")
        form = ""
        if self.unit_trace:
            form = ", unit trace"
        return (
            f"scendi = {self.value:.4f} (unexplained {self.unexplained:.3g}, residual vendi "
            f"{self.residual_vendi:.4g}{form}; kernels {' and '.join(kernels)}, regularization "
            f"{self.regularization:g}, n = {self.n:,})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every number finite."""
        return {
            "value": self.value,
            "unexplained": self.unexplained,
            "residual_vendi": self.residual_vendi,
            "unit_trace": self.unit_trace,
            "regularization": self.regularization,
            "n": self.n,
            "settings": self.settings.to_dict(),
            "warnings": [notice.to_dict() for notice in self.warnings],
        }


def _restore(value: float, attributes: dict[str, Any]) -> ScendiScore:
    return ScendiScore(value, **attributes)


def scendi(
    x: object,
    t: object,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    regularization: float = _REGULARIZATION,
    unit_trace: bool = False,
    **options: "Unpack[ScoreOptions]",
) -> ScendiScore:
    """Diversity that prompts do not explain linearly, by a Schur complement.

    L = C_XX - C_XT (C_TT + r I)^-1 C_TX of the features of the kernels, and with its eigenvalues l
    scendi = exp(-sum l log(l / sum l)), which is (exp H(L / tr L))^(tr L). From 1 (prompts explain
    the outputs, or nothing is left) to n. Exact; O(n^3) time, O(n^2) memory. For comparison with
    `conditional_vendi`, which asks another question: docs/explanation/scendi.md.

    **A kernel with more features than there are different prompts**, such as a Gaussian one,
    explains everything where prompts do not repeat: the score is 1 whatever the outputs are, with
    the warning `scendi-nothing-left`. Give prompts several outputs each, a `Cosine` kernel with
    fewer features than prompts, or a larger `regularization`.

    Parameters
    ----------
    x : array (n, d)
        The outputs.
    t : array (n, d_t), or flat collection of n ids
        The prompt of each output.
    kernel_x, kernel_t : Kernel, optional
        As in `conditional_vendi`; the paper uses cosine and Gaussian kernels of CLIP vectors.
    regularization : float, optional
        The ridge r on covariances of trace one, above 0. Default 1e-12, that of the authors' code.
    unit_trace : bool, optional
        Leave out how much is unexplained: exp H(L / tr L).
    **options
        `weights`, `settings`, `bandwidth_rule`, `normalize`, `memory` and others as in
        `conditional_vendi`. There is no other order than 1, and no truncation.

    Returns
    -------
    ScendiScore

    Raises
    ------
    DataError, ArgumentError
        If the data or a setting cannot be used; the message names the reason and the way out.

    Examples
    --------
    One prompt with four different outputs. Their mean is explained, a quarter of each; three
    directions are left:

    >>> import numpy as np, divprism as dp
    >>> score = dp.scendi(np.eye(4), ["p"] * 4, kernel_x=dp.Cosine())
    >>> round(score.unexplained, 9), round(score.residual_vendi, 9)
    (0.75, 3.0)
    >>> round(score, 6) == round(3**0.75, 6)
    True
    """
    ridge = positive_number(regularization, "regularization")
    rest = dict(options)
    weights = rest.pop("weights", None)
    settings, resources = read_options(rest, ScoreOptions, "scendi")
    if settings.order != 1:
        raise ArgumentError(f"`order` must be 1, the order of scendi; got {settings.order:g}.")
    if settings.truncation is not None or settings.auto_truncation:
        raise ArgumentError("scendi takes no `truncation`; leave it out.")
    if t is None:
        raise ArgumentError("scendi needs the prompt of each output, but `t` is None.")
    changes: dict[str, Any] = {}
    for name, kernel in (("kernel_x", kernel_x), ("kernel_t", kernel_t)):
        if kernel is not None:
            changes[name] = kernel
    x, t, settings = normalized(x, t, replace(settings, **changes))
    problem = pose(x, t, settings=settings, weights=weights, resources=resources)
    assert problem.t is not None
    with plain_mode():
        check_factors([problem.x, problem.t], [])
        eigenvalues = _schur_eigenvalues(problem, ridge)
    unexplained = float(eigenvalues.sum())
    residual_vendi = 1.0
    if eigenvalues.size:
        shares = eigenvalues / unexplained
        residual_vendi = math.exp(-float(shares @ np.log(shares)))
    warnings = list(problem.warnings)
    if unexplained <= _NOTHING_LEFT:
        warnings.append(_nothing_left(problem))
    value = residual_vendi
    if not unit_trace:
        # exp(-sum l log(l / s)) with s = sum l is exp(s H(l / s)).
        value = residual_vendi**unexplained
    return ScendiScore(
        value,
        unexplained=unexplained,
        residual_vendi=residual_vendi,
        unit_trace=unit_trace,
        regularization=ridge,
        n=problem.n,
        settings=problem.settings,
        warnings=tuple(warnings),
    )


def _nothing_left(problem: Problem) -> Notice:
    text = "prompts explain the outputs, so scendi is 1"
    if problem.t is not None and problem.t.size == problem.t.index.size:
        text += (
            ": each prompt has one output, and a kernel with as many features as there are prompts "
            "explains any outputs. Give prompts several outputs each, or a larger `regularization`"
        )
    return Notice("scendi-nothing-left", f"{text}.")


def _schur_eigenvalues(problem: Problem, ridge: float) -> np.ndarray:
    """The nonzero eigenvalues of the Schur complement; their sum is at most 1."""
    assert problem.t is not None
    of_outputs = _by_pair(problem.x, problem.weights)
    values, vectors = np.linalg.eigh(_matrix(problem.t))
    # Beside a tiny ridge, eigenvalues that are rounding would explain a part of the outputs.
    values[values <= values.size * np.finfo(float).eps * values[-1]] = 0.0
    # (I - P)^(1/2) = I - U D U', with U the eigenvectors of B, a row for each pair.
    explained = 1 - np.sqrt(ridge / (values + ridge))
    roots = np.sqrt(problem.weights / problem.t.masses[problem.t.index])
    spread = roots[:, None] * vectors[problem.t.index]
    left = of_outputs - (spread * explained) @ (spread.T @ of_outputs)
    # The same from the right.
    left -= ((left @ spread) * explained) @ spread.T
    # Symmetric on paper; `eigvalsh` reads one half, and rounding differs between both.
    eigenvalues = eigvalsh((left + left.T) / 2)
    # What rounding leaves of a matrix of trace one.
    floor = eigenvalues.size * np.finfo(float).eps
    return np.asarray(eigenvalues[eigenvalues > floor])


def _matrix(operator: KernelOperator) -> np.ndarray:
    """The matrix of an operator on its distinct points, in double precision."""
    double = operator.sample(np.arange(operator.size), double=True)
    return np.asarray(to_numpy(next(dense([double]))), np.float64)


def _by_pair(operator: KernelOperator, weights: np.ndarray) -> np.ndarray:
    """W^(1/2) K W^(1/2) with a row for each pair, where `operator` has one for equal items."""
    matrix = _matrix(operator)
    roots = np.sqrt(weights / operator.masses[operator.index])
    return matrix[np.ix_(operator.index, operator.index)] * np.outer(roots, roots)
