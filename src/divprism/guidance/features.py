"""Features: a torch function of latents in which samples are compared, with its derivative.

With f = features(x) of the clean latents x, the gradient of a score in x is J^T g, where g is its
closed-form gradient in f and J = df / dx. One vector-Jacobian product of torch gives it: no graph
of kernels or eigenvectors is recorded.
"""

import copy
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from divprism.core.kernels import Cosine, Gaussian
from divprism.core.validation import require_dense, whole_number
from divprism.errors import ArgumentError, DataError
from divprism.guidance._hooks import Pipeline

__all__ = ["Features", "TracedFeatures", "as_features"]

_Graph = tuple[torch.Tensor, torch.Tensor]  # a leaf with latents, and their features


@dataclass(frozen=True, eq=False)
class Features:
    """A feature space in which guidance compares samples, such as that of an image encoder.

    Features are scaled to norm one before they are compared. The function must be deterministic,
    and treat each sample alone: one that mixes samples, such as batch normalisation in training
    mode, gives wrong gradients.

    Parameters
    ----------
    function : callable
        Takes clean latents, shape (b, ...), in the dtype and on the device of the pipeline, and
        returns a tensor of shape (b, ...) made by differentiable operations of torch.
    kernel : Gaussian, Cosine or None
        Kernel on the scaled features. None takes a Gaussian with the `bandwidth_z` of the guidance.
    batch_size : int or None
        Number of samples that pass through the function together. The memory of the backward pass
        is proportional to it; in return, more samples than this are evaluated twice. None takes
        all.

    Examples
    --------
    Latents compared by their means over space:

    >>> pooled = Features(lambda latents: latents.mean((2, 3)), kernel=Cosine(), batch_size=4)
    >>> pooled.values(torch.ones(2, 3, 8, 8)).shape
    torch.Size([2, 3])
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    kernel: Gaussian | Cosine | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentError(
                "`features` must be a function from latents to a tensor, or Features; "
                f"got {type(self.function).__name__}."
            )
        if self.kernel is not None and not isinstance(self.kernel, Gaussian | Cosine):
            raise ArgumentError(
                f"`kernel` of features must be Gaussian, Cosine or None; got {self.kernel!r}."
            )
        if self.batch_size is not None:
            whole_number(self.batch_size, "batch_size", 1)

    @classmethod
    def of_images(
        cls,
        pipe: Pipeline,
        encoder: Callable[[torch.Tensor], torch.Tensor],
        *,
        kernel: Gaussian | Cosine | None = None,
        batch_size: int | None = 1,
    ) -> "Features":
        """Return the features that an encoder finds in the decoded images of a pipeline.

        For pipelines whose latents of shape (b, c, h, w) are decoded by `pipe.vae` after a scale
        and a shift: SD, SDXL, SD3, PixArt. Decoding takes most of the memory and time of guidance,
        so one image is decoded at a time. Autoencoders in float16 overflow where their
        configuration says so (`force_upcast`, as in SDXL): a copy in single precision decodes then.

        Parameters
        ----------
        pipe : DiffusionPipeline
        encoder : callable
            Takes images, shape (b, 3, height, width), with values around [0, 1], and returns a
            tensor with a row per image. Resizing and normalising the images is part of it.
        kernel, batch_size
            As in `Features`.
        """
        config = getattr(getattr(pipe, "vae", None), "config", {})
        if "scaling_factor" not in config or config.get("latents_mean") is not None:
            raise ArgumentError(
                f"{type(pipe).__name__} does not decode its latents by a scale and a shift: "
                "pass a function that decodes them as `features`."
            )

        @functools.cache
        def decoder() -> Any:
            # At the first use, when the pipeline is on its device.
            return _without_overflow(pipe.vae)

        def encode(latents: torch.Tensor) -> torch.Tensor:
            if latents.ndim != 4:
                raise DataError(
                    "decoding needs latents of shape (b, c, h, w); "
                    f"got shape {tuple(latents.shape)}. Unpack them in a function of your own."
                )
            # Some configurations have the key with the value None.
            shift = config.get("shift_factor") or 0.0
            vae = decoder()
            scaled = latents.to(vae.dtype) / config["scaling_factor"] + shift
            images = vae.decode(scaled, return_dict=False)[0]
            # Not clamped: pixels beyond the range would have no slope.
            return encoder(images / 2 + 0.5)

        return cls(encode, kernel, batch_size)

    def values(self, latents: torch.Tensor) -> torch.Tensor:
        """Return the features of latents without a graph, in batches."""
        batches = []
        # Leaving inference mode turns gradients on.
        with torch.inference_mode(False), torch.no_grad():
            for batch in self._split(latents):
                batches.append(self._checked(batch))
            return torch.cat(batches)

    def trace(self, latents: torch.Tensor) -> "TracedFeatures":
        """Return the features of latents, ready for a vector-Jacobian product."""
        if len(self._split(latents)) > 1:
            return TracedFeatures(self, latents, self.values(latents), None)
        graph = self._graph(latents)
        return TracedFeatures(self, latents, graph[1].detach(), graph)

    def _split(self, latents: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(latents, self.batch_size or len(latents))

    def _graph(self, latents: torch.Tensor) -> _Graph:
        # Pipelines run without gradients, some users in inference mode, whose tensors cannot be
        # part of a graph; clones made outside of it can.
        with torch.inference_mode(False), torch.enable_grad():
            leaf = latents.clone().detach().requires_grad_()
            values = self._checked(leaf)
        if not values.requires_grad:
            raise ArgumentError(
                "`features` returned a tensor without a gradient. It must consist of "
                "differentiable operations of torch, without no_grad, detach or NumPy."
            )
        return leaf, values

    def _checked(self, latents: torch.Tensor) -> torch.Tensor:
        values = self.function(latents)
        if not isinstance(values, torch.Tensor) or not values.is_floating_point():
            raise ArgumentError(
                f"`features` must return a floating-point tensor; got {_described(values)}."
            )
        if values.ndim < 2 or len(values) != len(latents) or 0 in values.shape:
            raise DataError(
                "`features` must return a row for each of the "
                f"{len(latents)} latents; got shape {tuple(values.shape)}."
            )
        require_dense(values, "features")
        if not bool(torch.isfinite(values).all()):
            raise DataError(
                "`features` returned NaN or infinity. "
                "If a model overflows in half precision, use it in single precision."
            )
        if isinstance(self.kernel, Cosine) and not bool(values.flatten(1).any(1).all()):
            raise DataError(
                "`features` returned a row of zeros, which has no cosine with others. "
                "Use Features(..., kernel=Gaussian(bandwidth))."
            )
        return values


@dataclass(frozen=True, eq=False)
class TracedFeatures:
    """Features of a batch, and the way back from their slopes to slopes of the latents.

    Attributes
    ----------
    values : tensor, shape (b, ...)
    """

    features: Features
    latents: torch.Tensor
    values: torch.Tensor
    graph: _Graph | None

    def pullback(self, slopes: torch.Tensor) -> torch.Tensor:
        """Return J^T slopes in double precision, shape (b, size of a latent).

        Samples whose product overflows get zeros, with a warning.
        """
        product = self._product(slopes)
        finite = torch.isfinite(product).all(dim=1, keepdim=True)
        if not bool(finite.all()):
            lost = (~finite).flatten().nonzero().flatten().tolist()
            warnings.warn(
                f"the gradient of the features is NaN or infinite for samples {lost} of the batch:"
                " they are not pushed.",
                stacklevel=3,
            )
        return torch.where(finite, product, 0.0)

    def _product(self, slopes: torch.Tensor) -> torch.Tensor:
        if self.graph is not None:
            return _product(self.graph, slopes)
        # A graph at a time: this is what bounds the memory.
        batches = self.features._split(self.latents)
        sizes = [len(batch) for batch in batches]
        products = []
        for batch, part in zip(batches, torch.split(slopes, sizes), strict=True):
            products.append(_product(self.features._graph(batch), part))
        return torch.cat(products)


def _product(graph: _Graph, slopes: torch.Tensor) -> torch.Tensor:
    leaf, values = graph
    cotangents = slopes.reshape(values.shape).to(values)
    with torch.inference_mode(False):
        (product,) = torch.autograd.grad(values, leaf, cotangents)
    # On the device of the slopes, where double precision exists.
    return product.detach().to(slopes.device).double().flatten(1)


def _without_overflow(vae: Any) -> Any:
    """Return an autoencoder, or a copy in single precision if it overflows in float16.

    A copy, because pipelines convert their latents for an autoencoder in float16 only.
    """
    if vae.dtype != torch.float16 or not vae.config.get("force_upcast"):
        return vae
    return copy.deepcopy(vae).requires_grad_(False).to(torch.float32)


def as_features(features: object) -> Features | None:
    """Return the `features` argument of a public function as `Features`, or None."""
    if features is None or isinstance(features, Features):
        return features
    function: Any = features
    return Features(function)


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"dtype {str(value.dtype).split('.')[-1]}"
    return type(value).__name__
