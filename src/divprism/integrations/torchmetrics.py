"""Scores as metrics of torchmetrics, for training loops: sums that processes add up.

A metric keeps what `divprism.Metric` keeps, second moments of features, as tensors on its device.
For the same kernels and seed both give the same number.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from divprism.analysis._stream_features import StreamFeatures
from divprism.analysis._stream_scores import stream_scores
from divprism.analysis._stream_state import StreamState, operators_of
from divprism.core.arrays import plain_mode, to_numpy
from divprism.core.kernels import Kernel
from divprism.core.moments import FeatureMoments
from divprism.core.validation import check_truncation
from divprism.errors import ArgumentError, DataError, MissingExtraError
from divprism.scores.settings import Settings
from divprism.scores.spec import PROMPTS, ScoreSpec, available, score_spec

try:
    import torch
    from torch import Tensor
    from torchmetrics import Metric
    from torchmetrics.utilities.distributed import gather_all_tensors
except ImportError:
    raise MissingExtraError(
        "metrics for training loops need torchmetrics, which is not installed: "
        "pip install 'divprism[torchmetrics]'."
    ) from None

__all__ = [
    "AllScores",
    "RKE",
    "ConditionalRKE",
    "ConditionalVendi",
    "InformationRKE",
    "InformationVendi",
    "PromptRKE",
    "PromptVendi",
    "StreamedScore",
    "Vendi",
]

_PRECISIONS = (torch.float32, torch.float64)
_DIFFERENT = (
    "these metrics cannot be added up: their kernels, seeds, numbers of features or numbers of "
    "columns differ. Construct them alike in all processes."
)


class AllScores(Metric):
    """Every score of all items of all processes, as a dictionary by name; each spectrum once.

    Memory does not depend on the number of items. For Gaussian kernels the features are random
    Fourier features, Cosine and Polynomial have exact ones. `update` costs O(n size^2) for n items
    and features of that size, `compute` an eigendecomposition of O(size^3). `forward` also computes
    the score of the batch alone, so call `update` in loops that do not need it.

    States are in double precision. `set_dtype(torch.float32)` halves them, at an error of about
    1e-6; half precision cannot hold sums, and leaves them as they are.

    Parameters
    ----------
    kernel_x, kernel_t : Kernel
        Kernels of outputs and prompts, both Gaussian or neither, with their bandwidths. Without
        `kernel_t` there are only scores of the outputs, and prompts are ignored.
    num_features : int
        Number of random frequencies.
    order : float, optional
        Order of the entropies, 1 by default; the RKE scores have order 2 whatever it is.
    truncation : int, optional
        As in `vendi`.
    rng : int or Generator
        Seed of the frequencies. All processes need the same.
    **kwargs
        Keywords of `torchmetrics.Metric`.

    Raises
    ------
    ArgumentError
        For kernels that a stream cannot use.
    DataError
        For rows that cannot be scored, or processes that were constructed differently.

    Examples
    --------
    Two prompts with two outputs each, all different:

    >>> import torch, divprism as dp
    >>> from divprism.integrations.torchmetrics import AllScores
    >>> metric = AllScores(dp.Cosine(), dp.Cosine())
    >>> metric.update(torch.eye(4), torch.eye(2).repeat_interleave(2, dim=0))
    >>> scores = metric.compute()
    >>> round(scores["conditional_vendi"].item(), 6), round(scores["vendi"].item(), 6)
    (2.0, 4.0)
    """

    is_differentiable = False
    higher_is_better: bool | None = None
    full_state_update = False
    # All scores but Information are at least 1, and that is not far below.
    plot_lower_bound = 0.0

    n: Tensor
    noise: Tensor
    identity: Tensor
    moments_x: Tensor

    def __init__(
        self,
        kernel_x: Kernel,
        kernel_t: Kernel | None = None,
        *,
        num_features: int = 1000,
        order: float | None = None,
        truncation: int | None = None,
        rng: int | np.random.Generator = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if order is None:
            order = 1.0
        self._features = StreamFeatures(kernel_x, kernel_t, num_features, rng)
        self._settings = Settings(
            kernel_x=kernel_x,
            kernel_t=kernel_t,
            order=order,
            truncation=check_truncation(truncation),
            estimator=self._features.estimator,
            rng=self._features.seed,
        )
        self.add_state("n", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("noise", torch.zeros((), dtype=torch.float64), dist_reduce_fx="max")
        # Beside the widths, which are not known before the first chunk.
        identity = torch.tensor([_fingerprint(self._features), 0, 0])
        self.add_state("identity", identity, dist_reduce_fx=_shared)
        for operator in operators_of(self._features.kernels):
            # A single zero: added to a moment of any size it is broadcast, and changes nothing.
            moment = torch.zeros((1, 1), dtype=torch.float64)
            self.add_state(_state_of(operator), moment, dist_reduce_fx="sum")

    def update(self, x: object, t: object = None) -> None:
        """Add a batch of outputs, one row each, and their prompts.

        Tensors are taken on any device, and arrays of NumPy as well.
        """
        if "t" not in self._features.kernels:
            t = None  # a collection gives all its metrics the same arguments
        widths = {}
        if int(self.n):
            _, width_x, width_t = self.identity.tolist()
            widths = {"x": width_x, "t": width_t}
        with plain_mode():
            rows = self._features.clean(x, t, widths)
            found = {name: int(side.shape[1]) for name, side in rows.items()}
            self._features.sizes(found)  # refuses too many, before they are computed
            features, noise = self._features.features(rows)
            moments = {}
            for operator, block in features.items():
                total = getattr(self, _state_of(operator))
                product = torch.as_tensor(block.T @ block, dtype=total.dtype, device=total.device)
                moments[operator] = total + product
        # From here on nothing can fail: a batch is added as a whole or not at all.
        for operator, total in moments.items():
            setattr(self, _state_of(operator), total)
        fingerprint = int(self.identity[0])
        self.identity = self.identity.new_tensor([fingerprint, found["x"], found.get("t", 0)])
        self.noise = self.noise.clamp(min=noise)
        self.n = self.n + len(rows["x"])

    def compute(self) -> Any:
        """The scores of all items so far, of all processes, by name."""
        return self._scores(available(operators_of(self._features.kernels)))

    def _scores(self, specs: Sequence[ScoreSpec]) -> dict[str, Tensor]:
        """Some scores as tensors like the states."""
        n, noise = int(self.n), float(self.noise)
        like = self.moments_x
        # From order 1 on, eigenvalues at the level of rounding add as little as they are.
        is_sensitive = any(spec.order_under(self._settings.order) < 1 for spec in specs)
        if is_sensitive and like.dtype == torch.float32:
            noise = max(noise, torch.finfo(torch.float32).eps)
        moments = {}
        for operator in dict.fromkeys(name for spec in specs for name in spec.terms):
            total = to_numpy(getattr(self, _state_of(operator))).astype(np.float64)
            empty = FeatureMoments(len(total), self._features.is_random)
            moments[operator] = empty.restored(total, float(n))
        state = StreamState(n=n, noise=noise, moments=moments)
        scores = stream_scores(state, specs, self._settings)
        return {name: like.new_tensor(score.value) for name, score in scores.items()}

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the scores, or a list of earlier ones, as all metrics of torchmetrics do."""
        return self._plot(val, ax)

    def _sync_dist(
        self,
        dist_sync_fn: Callable[..., list[Tensor]] = gather_all_tensors,
        process_group: Any = None,
    ) -> None:
        # A process without items has moments of another shape, which cannot be stacked.
        super()._sync_dist(partial(_gathered, dist_sync_fn), process_group)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        # torchmetrics recognises casts by the text of the function, which a partial contains.
        return super()._apply(partial(_moved, fn), exclude_state)


class StreamedScore(AllScores):
    """One score of all items of all processes, as a number; the base of the classes below.

    In a `MetricCollection` scores share their states if all of them have the same arguments,
    `kernel_t` included, but each computes its own spectra: for several, `AllScores` is faster.

    Parameters
    ----------
    kernel_x, kernel_t : Kernel
        As in `AllScores`; only `Vendi` and `RKE` do without `kernel_t`.
    order : float, optional
        Order of the entropies, 1 by default; the RKE metrics have order 2 and take none.
    **kwargs
        As in `AllScores`.

    Raises
    ------
    ArgumentError
        For a missing `kernel_t`, or an order that the score does not take.
    """

    spec: ClassVar[ScoreSpec]
    higher_is_better: bool | None = True

    def __init__(
        self,
        kernel_x: Kernel,
        kernel_t: Kernel | None = None,
        *,
        order: float | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if kernel_t is None and PROMPTS in self.spec.needs:
            raise ArgumentError(f"{name} needs `kernel_t`, the kernel of the prompts.")
        if order is not None and self.spec.order is not None:
            raise ArgumentError(f"{name} has order {self.spec.order:g}: leave `order` out.")
        super().__init__(kernel_x, kernel_t, order=order, **kwargs)

    def compute(self) -> Tensor:
        """The score of all items so far, of all processes."""
        return self._scores([self.spec])[self.spec.name]


class Vendi(StreamedScore):
    """Effective number of distinct outputs, whatever their prompts.

    Examples
    --------
    Four directions, in two batches:

    >>> import torch, divprism as dp
    >>> from divprism.integrations.torchmetrics import Vendi
    >>> metric = Vendi(dp.Cosine())
    >>> metric.update(torch.eye(4)[:2])
    >>> metric.update(torch.eye(4)[2:])
    >>> round(metric.compute().item(), 6)
    4.0
    """

    spec = score_spec("vendi")


class ConditionalVendi(StreamedScore):
    """Effective number of distinct outputs per kind of prompt: the model's own diversity.

    Examples
    --------
    Two prompts with two outputs each, all different:

    >>> import torch, divprism as dp
    >>> from divprism.integrations.torchmetrics import ConditionalVendi
    >>> metric = ConditionalVendi(dp.Cosine(), dp.Cosine())
    >>> metric.update(torch.eye(4), torch.eye(2).repeat_interleave(2, dim=0))
    >>> round(metric.compute().item(), 6)
    2.0
    """

    spec = score_spec("conditional_vendi")


class InformationVendi(StreamedScore):
    """Factor by which the prompts raise the number of distinct outputs.

    Neither a high nor a low value is better: it depends on how different the prompts are.
    """

    spec = score_spec("information_vendi")
    higher_is_better = None


class PromptVendi(StreamedScore):
    """Effective number of kinds of prompt, which says nothing about the model."""

    spec = score_spec("prompt_vendi")
    higher_is_better = None


class RKE(StreamedScore):
    """Effective number of distinct outputs at order 2, where frequent outputs count most."""

    spec = score_spec("rke")


class ConditionalRKE(StreamedScore):
    """Effective number of distinct outputs per kind of prompt, at order 2."""

    spec = score_spec("conditional_rke")


class InformationRKE(StreamedScore):
    """Factor by which the prompts raise the number of distinct outputs, at order 2."""

    spec = score_spec("information_rke")
    higher_is_better = None


class PromptRKE(StreamedScore):
    """Effective number of kinds of prompt at order 2, which says nothing about the model."""

    spec = score_spec("prompt_rke")
    higher_is_better = None


def _state_of(operator: str) -> str:
    """The name of the state that holds the moments of an operator."""
    return f"moments_{operator}"


def _fingerprint(features: StreamFeatures) -> int:
    """A positive number for the settings of features.

    As part of the state it keeps processes with different settings from adding up, and collections
    from sharing states between metrics whose first batches have equal moments by chance.
    """
    kernels = sorted(features.kernels.items())
    text = repr((kernels, features.num_features, features.seed))
    # Seven bytes fit into a signed integer of torch, and 0 would fit any other in `_shared`.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + 1


def _shared(stacked: Tensor) -> Tensor:
    """The identity of all processes; zeros stand for widths that are not known yet."""
    common = stacked.max(dim=0).values
    if not bool(((stacked == common) | (stacked == 0)).all()):
        raise DataError(_DIFFERENT)
    return common


def _gathered(
    gather: Callable[..., list[Tensor]], tensor: Tensor, group: Any = None
) -> list[Tensor]:
    """A state of all processes, in one shape."""
    tensors = gather(tensor, group=group)
    # Only a moment without items, a single zero, may expand; `_shared` refuses other widths.
    largest = max(tensors, key=Tensor.numel)
    try:
        return [each.expand(largest.shape) for each in tensors]
    except RuntimeError:
        raise DataError(_DIFFERENT) from None


def _moved(fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """A state on another device or in another precision, if that precision can hold it."""
    moved = fn(tensor)
    if tensor.is_floating_point() and moved.dtype in _PRECISIONS:
        return moved
    return tensor.to(moved.device)
