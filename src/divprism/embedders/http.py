"""Text vectors from an HTTP endpoint with OpenAI's embeddings protocol."""

import base64
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from divprism.embedders.base import Embedder, check_at_least
from divprism.errors import ArgumentError, DataError, MissingExtraError, MissingModelError

__all__ = ["OpenAI"]

_KEY, _URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
_WAY_OUT = "wordllama, the default embedder of texts, needs neither a key nor a network."


@dataclass(frozen=True)
class OpenAI(Embedder):
    """Vectors from OpenAI or any endpoint with its protocol (Gemini, vLLM, Ollama, ...).

    The key is read from `OPENAI_API_KEY`, the address from `OPENAI_BASE_URL`. Vectors are cached,
    since they cost money. There is no hash of the weights: if a provider changes a model under the
    same name, cached vectors of the old model mix with vectors of the new one. Use a dated model
    name where there is one, or clear the cache.

    The provider decides what happens to texts that are too long (most reject them, some truncate
    them), and whether a vector depends on the other texts of its request.

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
        times grow, or follow the `Retry-After` header.
    timeout : float
        Seconds to wait for an answer.
    """

    modality: ClassVar[str] = "text"
    model: str
    batch_size: int = 128
    dimensions: int | None = None
    requests_per_minute: float | None = None
    max_retries: int = 6
    timeout: float = 60.0

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)
        check_at_least("max_retries", self.max_retries, minimum=0)
        if self.dimensions is not None:
            check_at_least("dimensions", self.dimensions)
        for name in ("requests_per_minute", "timeout"):
            value = getattr(self, name)
            # `not value > 0` rather than `value <= 0`, so that NaN is rejected too.
            if value is not None and not value > 0:
                raise ArgumentError(f"`{name}` must be positive; got {value}.")

    @property
    def name(self) -> str:
        """The model, prefixed with the protocol."""
        return f"openai:{self.model}"

    @property
    def revision(self) -> str:
        """Endpoint, model and width: all that is known about the weights."""
        # The endpoint is part of it: two servers may use one name for different models.
        width = self.dimensions or "as the model has"
        return f"endpoint {_endpoint()}, model {self.model}, dimensions {width}"

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
        client = self._client
        openai = self._openai
        self._pace.wait()
        options = {}
        if self.dimensions is not None:
            options["dimensions"] = self.dimensions
        try:
            # The client's default is base64, which some compatible servers do not support.
            answer = client.embeddings.create(
                input=list(batch), model=self.model, encoding_format="float", **options
            )
        except openai.APIStatusError as error:
            raise self._status_error(error.status_code, str(error.message)) from None
        # APITimeoutError is a subclass of APIConnectionError, so it has to come first.
        except openai.APITimeoutError:
            raise self._connection_error("did not answer in time") from None
        except openai.APIConnectionError:
            raise self._connection_error("cannot be reached") from None
        except (openai.OpenAIError, ValueError) as error:
            raise self._answer_error(type(error).__name__) from None
        return self._rows(answer, len(batch))

    def _rows(self, answer: Any, count: int) -> np.ndarray:
        """Return the vectors of an answer in the order of the texts."""
        try:
            entries = list(answer.data)
            indices = [entry.index for entry in entries]
            vectors = [_decode(entry.embedding) for entry in entries]
        except (AttributeError, TypeError, ValueError):
            raise self._answer_error("it is not a list of vectors") from None
        if len(vectors) != count:
            raise self._answer_error(f"{len(vectors)} vectors for {count} texts")
        if len({len(vector) for vector in vectors}) != 1:
            raise self._answer_error("its vectors differ in length")
        # The protocol requires an index; servers that leave it out keep the order of the texts.
        if set(indices) == {None}:
            indices = list(range(count))
        if sorted(indices) != list(range(count)):
            raise self._answer_error("its indices do not number the texts")
        rows = np.empty((count, len(vectors[0])), np.float32)
        rows[indices] = vectors
        return rows

    def _answer_error(self, reason: str) -> DataError:
        return DataError(
            f"{_endpoint()} gave an answer for {self.model} that cannot be used: {reason}."
        )

    def _connection_error(self, reason: str) -> MissingModelError:
        attempts = self.max_retries + 1
        return MissingModelError(f"{_endpoint()} {reason} (tried {attempts} times). {_WAY_OUT}")

    def _status_error(self, status: int, message: str) -> MissingModelError | DataError:
        """Return the error for a status that persists after all retries."""
        summary = f"{_endpoint()} answered {status}"
        if status in (401, 403):
            return MissingModelError(f"{summary}: it does not accept the key in {_KEY}. {_WAY_OUT}")
        if status == 404:
            return MissingModelError(
                f"{summary}: it has no embedding model {self.model}, "
                f"or {_URL} is not its address. {_WAY_OUT}"
            )
        if status in (408, 409, 429) or status >= 500:
            attempts = self.max_retries + 1
            return MissingModelError(f"{summary}, {attempts} times in a row. {_WAY_OUT}")
        # Servers may quote the request, so the key is masked. "\0" occurs in no message.
        key = os.environ.get(_KEY) or "\0"
        masked = message.replace(key, "(key)")
        # Some servers answer with a whole page.
        text = " ".join(masked.split())[:200]
        return DataError(f"{summary} to texts for {self.model}: {text}.")

    @property
    def _openai(self) -> ModuleType:
        try:
            import openai
        except ImportError:
            raise MissingExtraError(
                "Embedding through an endpoint needs openai, which is not installed: "
                "pip install 'divprism[api]'."
            ) from None
        return openai

    @cached_property
    def _client(self) -> Any:
        if not os.environ.get(_KEY):
            raise MissingModelError(f"cannot use {_endpoint()}: {_KEY} is not set. {_WAY_OUT}")
        # The client itself reads key and address from the environment.
        return self._openai.OpenAI(max_retries=self.max_retries, timeout=self.timeout)

    @cached_property
    def _pace(self) -> "_Pace":
        if self.requests_per_minute is None:
            return _Pace(0.0)
        return _Pace(60.0 / self.requests_per_minute)


class _Pace:
    """Spaces calls of `wait` by a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.next_call = 0.0  # in the past, so the first call never waits

    def wait(self) -> None:
        now = time.monotonic()
        if self.next_call > now:
            time.sleep(self.next_call - now)
        # Counted from the planned time, not from the end of the sleep, so delays do not add up.
        self.next_call = max(now, self.next_call) + self.seconds


def _endpoint() -> str:
    """Return the address without the parts that may be secret: user, password and query."""
    parts = urlsplit(os.environ.get(_URL) or "https://api.openai.com/v1")
    host = parts.hostname or ""
    if ":" in host:
        # `hostname` strips the brackets of an IPv6 address.
        host = f"[{host}]"
    try:
        port = parts.port
    except ValueError:
        raise ArgumentError(f"{_URL} has no valid port.") from None
    if port:
        host = f"{host}:{port}"
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def _decode(embedding: str | Sequence[float]) -> np.ndarray:
    """Return a vector that was sent as numbers, or as base64 by servers that ignore the format."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), "<f4")
    return np.asarray(embedding, np.float32)
