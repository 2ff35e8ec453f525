"""Diversity scores as losses of torch, differentiated in closed form."""

import dataclasses
from typing import Any

from divprism.core.kernels import Kernel
from divprism.core.validation import clean_ids
from divprism.errors import ArgumentError, MissingExtraError
from divprism.guidance.gradient import score_gradient
from divprism.guidance.objectives import OBJECTIVES, Objective, as_objective
from divprism.integrations._kernels import given_kernel

try:
    import torch
    from torch import Tensor
except ImportError:
    raise MissingExtraError(
        "losses need torch, which is not installed: pip install torch."
    ) from None

__all__ = ["diversity_loss"]


def diversity_loss(
    x: Tensor,
    t: object = None,
    *,
    score: Objective | str = "vendi",
    order: float | None = None,
    bandwidth: float | None = None,
    bandwidth_t: float | None = None,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bank: object = None,
) -> Tensor:
    """Minus the logarithm of a diversity score: minimising it makes outputs more diverse.

    Add it to another loss, times a weight, to keep the outputs of a model apart:
    `loss + 0.1 * diversity_loss(x, bandwidth=2.0)`. It is between -log n, where all outputs are
    distinct, and 0, where all are the same. Conditional scores compare outputs of similar prompts
    only, so differences between prompts do not lower it.

    The gradient is that of `score_gradient`, in closed form and without a graph over eigenvectors.
    So it is finite where rows repeat and eigenvalues coincide. It exists at orders above 1/2. By
    symmetry it is 0 between two copies, which it does not push apart: start from outputs that
    differ. Second derivatives are refused. Prompts and the bank have no gradient.

    At order 2 a batch of n rows costs O(n^2 d), otherwise O(n^3) more for eigenvectors.

    Parameters
    ----------
    x : tensor, shape (n, ...)
        Outputs, on any device.
    t : tensor, shape (n, ...), or ids, length n
        Their prompts, for conditional scores: embeddings, whole numbers or texts.
    score : str or Objective
        "vendi", "rke", "conditional_vendi", "conditional_rke", or an `Objective`.
    order : float, optional
        Order of the entropies, 1 by default; the RKE scores have order 2 and take none.
    bandwidth, bandwidth_t : float, optional
        Of Gaussian kernels of outputs and prompts. No rule chooses one for each batch: it would
        shrink together with the outputs, and nothing would keep them apart. Take those of an
        evaluation, `result.settings.kernel_x.bandwidth`.
    kernel_x, kernel_t : Kernel, optional
        In place of bandwidths: Gaussian or Cosine; for prompts also Categorical, which is the
        default for ids.
    bank : Bank, array, or pair of arrays, optional
        Earlier outputs that count as well, such as those of the last batches; see `Bank`.

    Returns
    -------
    tensor, shape ()
        In the dtype of `x`; for half precision in float32.

    Raises
    ------
    ArgumentError
        For settings that do not fit together, or at a second derivative.
    DataError
        For rows that cannot be scored.

    Examples
    --------
    Two outputs at a distance of one bandwidth move apart:

    >>> import math, torch
    >>> from divprism.integrations.torch import diversity_loss
    >>> x = torch.tensor([[0.0], [1.0]], requires_grad=True)
    >>> loss = diversity_loss(x, score="rke", bandwidth=1.0)
    >>> round(math.exp(-loss.item()), 6) == round(2 / (1 + math.exp(-1)), 6)
    True
    >>> loss.backward()
    >>> x.grad
    tensor([[ 0.5379],
            [-0.5379]])
    """
    if not isinstance(x, Tensor):
        raise ArgumentError(f"`x` must be a tensor; got {type(x).__name__}.")
    objective = _objective(score, order)
    side_x = _kernel("x", "bandwidth", bandwidth, kernel_x)
    side_t = kernel_t
    if objective.conditional and (bandwidth_t is not None or not _are_ids(t)):
        side_t = _kernel("t", "bandwidth_t", bandwidth_t, kernel_t)
    elif bandwidth_t is not None:
        raise ArgumentError(
            "`bandwidth_t` was given, but the score does not use prompts. "
            "Drop it, or choose a conditional score."
        )
    settings = {"bank": bank, "score": objective, "kernel_x": side_x, "kernel_t": side_t}
    apply: Any = _Loss.apply
    if torch.compiler.is_compiling():
        # The gradient is in closed form already, and its validation depends on the values.
        disable: Any = torch.compiler.disable
        apply = disable(apply)
    loss: Tensor = apply(x, t, settings)[0]
    return loss


class _Loss(torch.autograd.Function):
    """The loss, and its gradient as a second output, which only `backward` uses."""

    @staticmethod
    def forward(x: Tensor, t: object, settings: dict[str, Any]) -> tuple[Tensor, Tensor]:
        # Both are outputs: beside a `setup_context`, nothing else of forward reaches `backward`.
        found = score_gradient(x, t, **settings)
        # Half precision holds three digits, which is too few for a loss.
        dtype = torch.promote_types(x.dtype, torch.float32)
        if not x.dtype.is_floating_point:
            dtype = torch.float64
        # A difference, because -0.0 would be printed where all outputs are the same.
        return torch.tensor(0.0 - found.value, dtype=dtype, device=x.device), -found.gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, slopes = output
        ctx.mark_non_differentiable(slopes)
        ctx.save_for_backward(inputs[0], slopes)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: object) -> tuple[Tensor, None, None]:
        x, slopes = ctx.saved_tensors
        apply: Any = _Product.apply
        return apply(upstream, x, slopes), None, None


class _Product(torch.autograd.Function):
    """The chain rule, which knows that the slopes depend on `x` and have no derivative here."""

    @staticmethod
    def forward(upstream: Tensor, x: Tensor, slopes: Tensor) -> Tensor:
        # Multiplied in the precision of the loss: a loss scale may exceed the range of `x`.
        return (upstream * slopes.to(upstream.dtype)).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep nothing: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise ArgumentError(
            "diversity_loss has no second derivative. Leave it out of penalties on gradients, or "
            "compute these on the other part of the loss."
        )


def _objective(score: Objective | str, order: float | None) -> Objective:
    """The score, at the order given."""
    objective = as_objective(score)
    if order is None:
        return objective
    name = "Objective"
    if isinstance(score, str):
        name = score
    # Names that imply an order, and objects that hold one.
    if name not in OBJECTIVES or OBJECTIVES[name].order != 1:
        raise ArgumentError(
            f"`order` was given, but {name} has the order {objective.order:g}: leave it out."
        )
    return dataclasses.replace(objective, order=order)


def _are_ids(t: object) -> bool:
    """Whether prompts are ids, which are compared without a bandwidth, or absent."""
    return t is None or clean_ids(t, "t") is not None


def _kernel(side: str, name: str, bandwidth: float | None, kernel: Kernel | None) -> Kernel:
    """The kernel of a side, which has to be given."""
    given = given_kernel(kernel, bandwidth, names=(f"kernel_{side}", name))
    if given is None:
        raise ArgumentError(
            f"`{name}` or `kernel_{side}` must be given. dp.evaluate of some outputs chooses one: "
            f"result.settings.kernel_{side}."
        )
    return given
