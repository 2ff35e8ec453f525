"""The kernel that an adapter is given: as an object, or by the bandwidth of a Gaussian one."""

from divprism.core.kernels import Gaussian, Kernel
from divprism.errors import ArgumentError

__all__ = ["given_kernel"]


def given_kernel(
    kernel: Kernel | None, bandwidth: float | None, *, names: tuple[str, str]
) -> Kernel | None:
    """The kernel of two arguments, of which one at most may be given; None without both.

    `names` are those of the arguments: of the kernel, then of the bandwidth.
    """
    if kernel is not None and bandwidth is not None:
        raise ArgumentError(f"`{names[0]}` and `{names[1]}` were both given; drop one of them.")
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ArgumentError(f"`{names[0]}` must be a kernel such as dp.Cosine(); got {kernel!r}.")
    if bandwidth is not None:
        return Gaussian(bandwidth)
    return kernel
