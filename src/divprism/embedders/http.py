"""Text vectors from an endpoint that speaks OpenAI's protocol."""

import base64
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from divprism.embedders.base import Embedder
from divprism.errors import ArgumentError, DataError, MissingExtraError, MissingModelError

__all__ = ["OpenAI"]

_KEY, _URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
_WAY_OUT = "The embedded default needs neither key nor network: --embedder-x wordllama."


@dataclass(frozen=True)
class OpenAI(Embedder):
    """Vectors of a model behind an HTTP endpoint: OpenAI, or whoever speaks its protocol (Gemini, vLLM, Ollama, ...).

    The key is read from `OPENAI_API_KEY`, the address from `OPENAI_BASE_URL`. Vectors are kept in the cache, since they cost
    money. There is no hash of weights: a provider may change a model under the same name, and old vectors would then be mixed
    with new ones. Name a dated model where there is one, or clear the cache. Texts that are too long are the provider's matter:
    most refuse them, some cut them. That a vector does not depend on its batch is the provider's promise as well.

    Attributes
    ----------
    model : str
        As the endpoint calls it.
    batch_size : int
        Texts per request.
    dimensions : int, optional
        Ask for shorter vectors, of models that can.
    requests_per_minute : float, optional
        Requests are spaced to stay below it.
    max_retries : int
        How often a request is repeated after no answer, 408, 409, 429 or 5xx; each time later, or as `Retry-After` says.
    timeout : float
        Seconds that an answer may take.
    """

    modality: ClassVar[str] = "text"
    model: str
    batch_size: int = 128
    dimensions: int | None = None
    requests_per_minute: float | None = None
    max_retries: int = 6
    timeout: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("dimensions", 1), ("max_retries", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ArgumentError(f"`{name}` must be at least {least}; got {value}.")
        for name in ("requests_per_minute", "timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ArgumentError(f"`{name}` must be positive; got {value}.")

    @property
    def name(self) -> str:
        """The model, after the protocol."""
        return f"openai:{self.model}"

    @property
    def revision(self) -> str:
        """Endpoint, model and width: all that can be known of the weights."""
        return f"endpoint {_endpoint()}, model {self.model}, dimensions {self.dimensions or 'as the model has'}"

    @cached_property
    def dimension(self) -> int:
        """As asked for; else as the endpoint answers to one short text."""
        return self.dimensions or int(self.embed_batch(["a"]).shape[1])

    @property
    def known_dimension(self) -> int | None:
        """As asked for."""
        return self.dimensions

    @property
    def preprocessing(self) -> str:
        """The endpoint's matter."""
        return "the endpoint's own"

    @property
    def precision(self) -> str:
        """Of the numbers as they are kept; how they were computed is the endpoint's matter."""
        return "float32 as received"

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Vectors in the order of the texts, whatever the order of the answer."""
        client, errors = self._client, self._errors
        self._pace.wait()
        options: dict[str, Any] = {} if self.dimensions is None else {"dimensions": self.dimensions}
        try:
            # Floats as text: every compatible server knows them, not every one knows base64
            answer = client.embeddings.create(
                input=list(batch), model=self.model, encoding_format="float", **options
            )
        except errors.APIStatusError as error:
            raise self._refusal(error.status_code, str(error.message)) from None
        except errors.APIConnectionError as error:
            reason = (
                "did not answer in time"
                if isinstance(error, errors.APITimeoutError)
                else "cannot be reached"
            )
            raise MissingModelError(
                f"{_endpoint()} {reason} (tried {self.max_retries + 1} times). {_WAY_OUT}"
            ) from None
        except (errors.OpenAIError, ValueError) as error:
            raise self._unusable(type(error).__name__) from None
        return self._rows(answer, len(batch))

    def _rows(self, answer: Any, count: int) -> np.ndarray:
        try:
            entries = list(answer.data)
            places = [entry.index for entry in entries]
            vectors = [_numbers(entry.embedding) for entry in entries]
        except (AttributeError, TypeError, ValueError):
            raise self._unusable("it is not a list of vectors") from None
        if len(vectors) != count:
            raise self._unusable(f"{len(vectors)} vectors for {count} texts")
        if len({len(vector) for vector in vectors}) != 1:
            raise self._unusable("its vectors differ in length")
        if set(places) == {
            None
        }:  # the protocol asks for an index; some servers leave it out and keep the order
            places = list(range(count))
        if sorted(places) != list(range(count)):
            raise self._unusable("its indices do not number the texts")
        rows = np.empty((count, len(vectors[0])), np.float32)
        rows[places] = vectors
        return rows

    def _unusable(self, reason: str) -> DataError:
        return DataError(
            f"{_endpoint()} gave an answer for {self.model} that cannot be used: {reason}."
        )

    def _refusal(self, status: int, message: str) -> MissingModelError | DataError:
        """What a status that is left after all retries means to the user; the key is never repeated."""
        where = f"{_endpoint()} answered {status}"
        if status in (401, 403):
            return MissingModelError(f"{where}: it does not accept the key in {_KEY}. {_WAY_OUT}")
        if status == 404:
            return MissingModelError(
                f"{where}: it has no embedding model {self.model}, or {_URL} is not its address. {_WAY_OUT}"
            )
        if status in (408, 409, 429) or status >= 500:
            return MissingModelError(f"{where}, {self.max_retries + 1} times in a row. {_WAY_OUT}")
        text = " ".join(message.replace(os.environ.get(_KEY) or "\0", "(key)").split())[:200]
        return DataError(f"{where} to texts for {self.model}: {text}.")

    @property
    def _errors(self) -> Any:
        try:
            import openai
        except ImportError:
            raise MissingExtraError(
                "Asking an endpoint needs openai, which is not installed: pip install 'divprism[api]'."
            ) from None
        return openai

    @cached_property
    def _client(self) -> Any:
        if not os.environ.get(_KEY):
            raise MissingModelError(f"cannot ask {_endpoint()}: {_KEY} is not set. {_WAY_OUT}")
        return self._errors.OpenAI(max_retries=self.max_retries, timeout=self.timeout)

    @cached_property
    def _pace(self) -> "_Pace":
        return _Pace(60.0 / self.requests_per_minute if self.requests_per_minute else 0.0)


class _Pace:
    """Spaces calls by some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.next = seconds, 0.0

    def wait(self) -> None:
        now = time.monotonic()
        if self.next > now:
            time.sleep(self.next - now)
        self.next = max(now, self.next) + self.seconds


def _endpoint() -> str:
    """The address without what may be secret in it: user, password, query."""
    parts = urlsplit(os.environ.get(_URL) or "https://api.openai.com/v1")
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise ArgumentError(f"{_URL} has no valid port.") from None
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def _numbers(embedding: Any) -> np.ndarray:
    """A vector sent as numbers, or as base64 by servers that do so unasked."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), "<f4")
    return np.asarray(embedding, np.float32)
