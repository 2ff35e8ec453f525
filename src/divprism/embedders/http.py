"""Text vectors from an HTTP endpoint with OpenAI's embeddings protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from divprism.embedders._answer import UnusableAnswerError, read_vectors
from divprism.embedders._post import Reply
from divprism.embedders._requests import (
    OPENAI,
    Budget,
    Pace,
    Wording,
    ask,
    check_model_name,
    check_seconds,
    require_plain,
)
from divprism.embedders.base import Embedder, check_at_least

__all__ = ["OpenAI"]

_WAY_OUT = "wordllama, the default embedder of texts, needs neither a key nor a network."
# Of an answer: for headers and the like, and for each text. A vector of 8,192 numbers has 180 kB.
_FREE_BYTES, _BYTES_PER_TEXT = 1 << 20, 1 << 18


@dataclass(frozen=True)
class OpenAI(Embedder):
    """Vectors from OpenAI or any endpoint with its protocol (Gemini, vLLM, Ollama, ...).

    The key is read from `OPENAI_API_KEY`, the address from `OPENAI_BASE_URL`. Vectors are cached,
    since they cost money. There is no hash of the weights: if a provider changes a model under the
    same name, cached vectors of the old model mix with vectors of the new one. Use a dated model
    name where there is one, or clear the cache.

    The provider decides what happens to texts that are too long (most reject them, some truncate
    them), and whether a vector depends on the other texts of its request.

    The endpoint is not trusted: its answer is limited in bytes and time, and refused unless it has
    one vector of finite numbers for each text. Redirects are not followed. Certificates are
    verified, against those in `SSL_CERT_FILE` if that is set. The proxy in `HTTPS_PROXY` or
    `ALL_PROXY` is used for https only, unless `NO_PROXY` lists the host. No message contains the
    key, or a text of the server that contains a part of it.

    Attributes
    ----------
    model : str
        Name of the model at the endpoint.
    batch_size : int
        Texts per request.
    dimensions : int, optional
        Request shorter vectors, for models that support it.
    requests_per_minute : float, optional
        Requests are spaced to stay below this rate.
    max_retries : int
        How often to repeat a request that got no answer or status 408, 409, 429 or 5xx. Waiting
        times grow to eight seconds, or follow the `Retry-After` header up to a minute.
    timeout : float
        Seconds from connecting to the last byte of an answer.
    max_seconds : float
        Seconds for all attempts at a request, with the waits between them.
    max_bytes : int, optional
        Bytes that an answer may have. Default: 1 MiB, and 256 KiB for each text of the request.
    """

    modality: ClassVar[str] = "text"
    model: str
    batch_size: int = 128
    dimensions: int | None = None
    requests_per_minute: float | None = None
    max_retries: int = 6
    timeout: float = 60.0
    max_seconds: float = 600.0
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_model_name(self.model)
        check_at_least("batch_size", self.batch_size)
        check_at_least("max_retries", self.max_retries, minimum=0)
        for name in ("dimensions", "max_bytes"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name))
        for name in ("timeout", "max_seconds"):
            check_seconds(name, getattr(self, name))
        if self.requests_per_minute is not None:
            check_seconds("requests_per_minute", self.requests_per_minute, minimum=1e-3)

    @property
    def name(self) -> str:
        """The model, prefixed with the protocol."""
        return f"openai:{self.model}"

    @property
    def revision(self) -> str:
        """Endpoint, model and width: all that is known about the weights."""
        # The endpoint is part of it: two servers may use one name for different models.
        width = self.dimensions or "as the model has"
        return f"endpoint {OPENAI.address().text}, model {self.model}, dimensions {width}"

    @cached_property
    def dimension(self) -> int:
        """The requested width, else the width of one vector, which costs a request."""
        return self.dimensions or int(self.embed_batch(["a"]).shape[1])

    @property
    def known_dimension(self) -> int | None:
        """The requested width, or None: the endpoint is not asked in advance."""
        return self.dimensions

    @property
    def preprocessing(self) -> str:
        """Unknown: it is up to the endpoint."""
        return "the endpoint's own"

    @property
    def precision(self) -> str:
        """Type of the numbers as received; the endpoint may compute in another one."""
        return "float32 as received"

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Request one vector per text, and return them in the order of the texts."""
        content: dict[str, object] = {"input": list(batch), "model": self.model}
        # Some compatible servers do not support the other format, base64.
        content["encoding_format"] = "float"
        if self.dimensions is not None:
            content["dimensions"] = self.dimensions
        max_bytes = self.max_bytes or _FREE_BYTES + _BYTES_PER_TEXT * len(batch)
        budget = Budget(self.max_retries, self.timeout, self.max_seconds, max_bytes)
        shorter = "raise that, or lower `batch_size`"
        wording = Wording(self.model, "embedding model", shorter, _WAY_OUT)
        self._pace.wait()
        reply, _ = ask(OPENAI, "/embeddings", content, budget, wording)
        try:
            return self._rows(reply, len(batch))
        except UnusableAnswerError as error:
            reason = str(error)
        # Raised out here, so that the error carries nothing of the answer along.
        raise wording.unusable(OPENAI.address(), reason)

    def _rows(self, reply: Reply, count: int) -> np.ndarray:
        require_plain(reply)
        rows = read_vectors(reply.body, count)
        if self.dimensions not in (None, rows.shape[1]):
            raise UnusableAnswerError(
                f"its vectors have {rows.shape[1]:,} numbers instead of {self.dimensions:,}"
            )
        return rows

    @cached_property
    def _pace(self) -> Pace:
        return Pace(self.requests_per_minute)
