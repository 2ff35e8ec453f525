"""Validation of samples and prompts: any shape comes in, rows or stable ids go out."""

import hashlib
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, array_namespace, device_of, is_array_api_obj, to_numpy
from divprism.core.validation import as_numpy, clean_ids, clean_rows, require_dense, text_ids
from divprism.errors import DataError

__all__ = ["Prompts", "clean_prompts", "flat_rows", "require_shape", "require_together"]


def flat_rows(x: Array, name: str) -> tuple[Array, tuple[int, ...]]:
    """Return items as clean rows, and the shape of an item.

    Shape (n, 4, 8, 8) becomes rows of shape (n, 256), and (4, 8, 8).
    """
    if not is_array_api_obj(x):
        x = as_numpy(x, name)
    # Before the reshape below, which such tensors refuse with errors of their own.
    require_dense(x, name)
    # An empty list is one-dimensional too, and gets the message about empty data below.
    if x.ndim == 1 and x.shape[0]:
        raise DataError(
            f"`{name}` must have a row per sample; got shape {tuple(x.shape)}. "
            f"A single sample is {name}[None]."
        )
    if x.ndim <= 2:
        rows = clean_rows(x, name)
        return rows, (int(rows.shape[1]),)
    shape = tuple(int(side) for side in x.shape[1:])
    flat = array_namespace(x).reshape(x, (x.shape[0], int(np.prod(shape))))
    return clean_rows(flat, name), shape


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts as rows of numbers or flat ids, and their kind: "embeddings", "numbers" or "texts".

    Texts become ids by a hash that is the same in every process. The kind keeps these ids apart
    from whole numbers that the user passed.
    """

    rows: Array
    kind: str

    def require_kind(self, kind: str | None, width: tuple[int, ...]) -> None:
        """Refuse prompts of another kind, or of another width, than those in a bank."""
        new = _kind_and_width(self.kind, self.rows.shape[1:])
        stored = _kind_and_width(kind, width)
        if new != stored:
            raise DataError(
                f"new prompts are {new} and those in the bank {stored}; "
                "pass prompts of the kind in the bank, or use another bank."
            )


def _kind_and_width(kind: str | None, width: tuple[int, ...]) -> str:
    if width:
        return f"embeddings of width {width[0]}"
    return str(kind)


def clean_prompts(t: Array, name: str) -> Prompts:
    """Return embeddings of prompts as clean rows, whole numbers unchanged, and texts as hashes."""
    if isinstance(t, str):
        raise DataError(
            f"`{name}` must be a list with a prompt for each sample; got the text {t[:40]!r}."
        )
    # Its codes number the prompts of this call only, so they cannot be stored in a bank.
    if clean_ids(t, name) is None:
        return Prompts(flat_rows(t, name)[0], "embeddings")
    if is_array_api_obj(t):
        t = to_numpy(t)
    ids = np.asarray(t)
    if ids.dtype.kind in "iub":
        return Prompts(ids.astype(np.int64), "numbers")
    # As they were given, because NumPy drops null characters at the end of a text.
    texts = text_ids(t, ids, name) or ids.tolist()
    # Python's own hash differs between processes, and saved banks outlive theirs.
    # Eight bytes fill an int64. Among n texts two collide with a chance of about n^2 / 2^65.
    digests = [hashlib.blake2b(_encoded(text), digest_size=8).digest() for text in texts]
    return Prompts(np.frombuffer(b"".join(digests), np.int64), "texts")


def _encoded(text: object) -> bytes:
    # Lone surrogates, as in damaged file names, are legal in a Python text.
    return str(text).encode("utf-8", "surrogatepass")


def require_together(x: Array, bank: Array) -> None:
    """Refuse samples and a bank of different libraries or devices."""
    same_library = array_namespace(x) is array_namespace(bank)
    if not same_library or device_of(x) != device_of(bank):
        raise DataError(
            "samples and bank must be in one array library and on one device; got "
            f"{type(x).__name__} on {device_of(x)} and {type(bank).__name__} on "
            f"{device_of(bank)}. Bank.load(path, like=x) moves a bank."
        )


def require_shape(shape: tuple[int, ...], bank: tuple[int, ...] | None) -> None:
    """Refuse samples of another shape than those in a bank."""
    if shape != bank:
        raise DataError(
            f"samples of shape {shape} do not fit a bank of samples of shape {bank}. "
            "Use a bank for each shape."
        )
