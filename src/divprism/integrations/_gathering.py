"""Tables of all processes of a training run, one below the other."""

import sys

import numpy as np

from divprism.core.arrays import Array

__all__ = ["gathered"]


def gathered(table: np.ndarray) -> tuple[np.ndarray, int]:
    """Rows of all processes in the order of their ranks, and the index of the first own row.

    Tables may differ in their numbers of rows and columns: missing columns are zeros. Every process
    has to call this the same number of times. Without several processes the table is returned.
    """
    # Who has not imported torch takes part in no group of processes.
    torch = sys.modules.get("torch")
    if torch is None:
        return table, 0
    group = torch.distributed
    if not group.is_available() or not group.is_initialized() or group.get_world_size() == 1:
        return table, 0
    device = _device(torch)
    shape = torch.tensor(table.shape, device=device)
    shapes = [torch.empty_like(shape) for _ in range(group.get_world_size())]
    group.all_gather(shapes, shape)
    num_rows, num_columns = torch.stack(shapes).max(dim=0).values.tolist()
    # Tensors that are exchanged must have one shape.
    padded = np.zeros((num_rows, num_columns), table.dtype)
    padded[: table.shape[0], : table.shape[1]] = table
    own = torch.as_tensor(padded, device=device)
    tensors = [torch.empty_like(own) for _ in shapes]
    group.all_gather(tensors, own)
    lengths = [int(each[0]) for each in shapes]
    tables = []
    for tensor, length in zip(tensors, lengths, strict=True):
        tables.append(tensor[:length].cpu().numpy())
    start = sum(lengths[: group.get_rank()])
    return np.concatenate(tables), start


def _device(torch: Array) -> Array:
    """Where the backend of the group exchanges tensors."""
    backend = str(torch.distributed.get_backend())
    if "gloo" in backend or "mpi" in backend:
        return torch.device("cpu")
    # NCCL exchanges tensors of its devices only.
    return torch.device("cuda", torch.cuda.current_device())
