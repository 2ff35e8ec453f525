"""Text vectors from an HTTP endpoint with OpenAI's embeddings protocol."""

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import ClassVar

import numpy as np

from divprism.data.readers.guards import shown
from divprism.embedders._address import Address, parse_address
from divprism.embedders._answer import UnusableAnswerError, read_message, read_vectors
from divprism.embedders._key import Key, header_value, plain_words
from divprism.embedders._post import Limits, Problem, Reply, post
from divprism.embedders.base import Embedder, check_at_least
from divprism.errors import ArgumentError, DataError, MissingModelError

__all__ = ["OpenAI"]

_KEY, _URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
_DEFAULT_URL = "https://api.openai.com/v1"
# Whom to bill, for accounts with several organisations or projects.
_OPTIONAL_HEADERS = {
    "OpenAI-Organization": "OPENAI_ORG_ID",
    "OpenAI-Project": "OPENAI_PROJECT_ID",
}
_WAY_OUT = "wordllama, the default embedder of texts, needs neither a key nor a network."
# Of an answer: for headers and the like, and for each text. A vector of 8,192 numbers has 180 kB.
_FREE_BYTES, _BYTES_PER_TEXT = 1 << 20, 1 << 18
_MAX_NAME = 500  # characters of the name of a model
_MAX_SHOWN = 200  # characters of a message of the server; some servers answer with a whole page
_MAX_SECONDS = 86_400.0  # operating systems do not accept arbitrarily long waits
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0  # seconds before an attempt, doubled from one to the next
_LONGEST_RETRY_AFTER = 60.0


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
        is_name = isinstance(self.model, str) and self.model.isprintable()
        if not is_name or not 0 < len(self.model) <= _MAX_NAME:
            raise ArgumentError(
                f"`model` must be a name of 1 to {_MAX_NAME} printable characters; "
                f"got {shown(self.model)[:80]}."
            )
        check_at_least("batch_size", self.batch_size)
        check_at_least("max_retries", self.max_retries, minimum=0)
        for name in ("dimensions", "max_bytes"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name))
        for name in ("timeout", "max_seconds"):
            _check_seconds(name, getattr(self, name))
        if self.requests_per_minute is not None:
            _check_seconds("requests_per_minute", self.requests_per_minute, minimum=1e-3)

    @property
    def name(self) -> str:
        """The model, prefixed with the protocol."""
        return f"openai:{self.model}"

    @property
    def revision(self) -> str:
        """Endpoint, model and width: all that is known about the weights."""
        # The endpoint is part of it: two servers may use one name for different models.
        width = self.dimensions or "as the model has"
        return f"endpoint {_endpoint().text}, model {self.model}, dimensions {width}"

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
        address, key = _endpoint(), _key()
        if key.is_part_of(self.model):
            raise ArgumentError(f"`model` must be the name of a model; got the key in {_KEY}.")
        self._pace.wait()
        outcome, attempts = self._attempts(address, key, list(batch))
        if isinstance(outcome, Problem):
            raise self._connection_error(address, outcome, attempts)
        if not 200 <= outcome.status < 300:
            raise self._status_error(address, key, outcome, attempts)
        try:
            return self._rows(outcome, len(batch))
        except UnusableAnswerError as error:
            reason = str(error)
        # Raised out here, so that the error carries nothing of the answer along.
        raise self._answer_error(address, reason)

    def _attempts(
        self, address: Address, key: Key, texts: list[str]
    ) -> tuple[Reply | Problem, int]:
        """Send a request until it is answered or the limits are reached.

        Returns the last outcome and the number of attempts.
        """
        content: dict[str, object] = {"input": texts, "model": self.model}
        # Some compatible servers do not support the other format, base64.
        content["encoding_format"] = "float"
        if self.dimensions is not None:
            content["dimensions"] = self.dimensions
        body = json.dumps(content).encode()
        end = time.monotonic() + self.max_seconds
        attempts = 0
        while True:
            attempts += 1
            deadline = min(end, time.monotonic() + self.timeout)
            limits = Limits(deadline, self._byte_limit(len(texts)))
            outcome = post(address, "/embeddings", body, _headers(key), limits)
            seconds = _wait_after(outcome, attempts)
            is_last = attempts > self.max_retries or time.monotonic() + seconds >= end
            if is_last or not _is_temporary(outcome):
                return outcome, attempts
            time.sleep(seconds)

    def _byte_limit(self, count: int) -> int:
        return self.max_bytes or _FREE_BYTES + _BYTES_PER_TEXT * count

    def _rows(self, reply: Reply, count: int) -> np.ndarray:
        encoding = reply.headers.get("content-encoding", "identity")
        # A compressed answer was not asked for, and could expand to any size.
        if encoding.strip().lower() != "identity":
            raise UnusableAnswerError("it is compressed")
        rows = read_vectors(reply.body, count)
        if self.dimensions not in (None, rows.shape[1]):
            raise UnusableAnswerError(
                f"its vectors have {rows.shape[1]:,} numbers instead of {self.dimensions:,}"
            )
        return rows

    def _answer_error(self, address: Address, reason: str) -> DataError:
        return DataError(
            f"{address.text} gave an answer for {self.model} that cannot be used: {reason}."
        )

    def _connection_error(
        self, address: Address, problem: Problem, attempts: int
    ) -> MissingModelError | DataError:
        if problem.is_too_long:
            return self._answer_error(
                address, "it is longer than `max_bytes`; raise that, or lower `batch_size`"
            )
        return MissingModelError(
            f"{address.text} {problem.reason} (tried {attempts} times). {_WAY_OUT}"
        )

    def _status_error(
        self, address: Address, key: Key, reply: Reply, attempts: int
    ) -> MissingModelError | DataError:
        """Return the error for a status that persists after all retries."""
        status = reply.status
        summary = f"{address.text} answered {status}"
        if 300 <= status < 400:
            return MissingModelError(
                f"{summary}, a redirect. Redirects are not followed, so that key and texts go to "
                f"the address in {_URL} only; set that to the final address. {_WAY_OUT}"
            )
        if status in (401, 403):
            return MissingModelError(f"{summary}: it does not accept the key in {_KEY}. {_WAY_OUT}")
        if status == 404:
            return MissingModelError(
                f"{summary}: it has no embedding model {self.model}, "
                f"or {_URL} is not its address. {_WAY_OUT}"
            )
        if _is_temporary(reply):
            return MissingModelError(f"{summary}, {attempts} times in a row. {_WAY_OUT}")
        return DataError(f"{summary} to texts for {self.model}: {_quote(reply.body, key)}.")

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


def _check_seconds(name: str, value: float, minimum: float = 0.0) -> None:
    """Raise `ArgumentError` for a value that is not a usable number of seconds, or a rate."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Written so that NaN is rejected too.
    if not is_number or not (value > 0 and minimum <= value <= _MAX_SECONDS):
        raise ArgumentError(
            f"`{name}` must be positive and at most {_MAX_SECONDS:,.0f}; got {value!r:.80}."
        )


def _endpoint() -> Address:
    """Return the address that requests are sent to."""
    text = os.environ.get(_URL) or _DEFAULT_URL
    # The address is printed and stored, so it must not contain the key.
    if Key(os.environ.get(_KEY, "")).is_part_of(text):
        raise ArgumentError(f"{_URL} must be an address without the key; it contains {_KEY}.")
    return parse_address(text, _URL)


def _key() -> Key:
    text = header_value(_KEY)
    if not text:
        raise MissingModelError(f"cannot use {_endpoint().text}: {_KEY} is not set. {_WAY_OUT}")
    return Key(text)


def _headers(key: Key) -> dict[str, str]:
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": key.authorization(),
        "Connection": "close",
        "Content-Type": "application/json",
        "User-Agent": "divprism",
    }
    for header, variable in _OPTIONAL_HEADERS.items():
        value = header_value(variable)
        if value:
            headers[header] = value
    return headers


def _is_temporary(outcome: Reply | Problem) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(outcome, Problem):
        return not outcome.is_final
    return outcome.status in (408, 409, 429) or outcome.status >= 500


def _wait_after(outcome: Reply | Problem, attempts: int) -> float:
    """Return the seconds to wait before the next attempt."""
    if isinstance(outcome, Reply):
        seconds = _retry_after(outcome)
        # Servers ask for anything: a longer wait than a minute, or one in the past, is ignored.
        if 0 <= seconds <= _LONGEST_RETRY_AFTER:
            return seconds
    # `min` of the exponents first: a power of a large number of attempts would overflow.
    return min(_FIRST_WAIT * 2.0 ** min(attempts - 1, 10), _LONGEST_WAIT)


def _retry_after(reply: Reply) -> float:
    """Return the seconds that a server asks to wait, or NaN; they may be any number."""
    text = reply.headers.get("retry-after-ms")
    unit = 1e-3
    if text is None:
        text, unit = reply.headers.get("retry-after", ""), 1.0
    text = text.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text) * unit
    try:
        date = parsedate_to_datetime(text)
        # A date without a zone is in UTC, as HTTP requires.
        return (date.replace(tzinfo=date.tzinfo or UTC) - _now()).total_seconds()
    # Python 3.9 raised TypeError where later versions raise ValueError.
    except (ValueError, TypeError, OverflowError, IndexError):
        return math.nan


def _now() -> datetime:
    return datetime.now(UTC)


def _quote(body: bytes, key: Key) -> str:
    """Return the message of a server as it may be printed."""
    text = " ".join(read_message(body).split())[:_MAX_SHOWN]
    if not text:
        return "it gives no reason"
    if key.is_quoted_in(text):
        return "its message is not shown, since it contains a part of the key"
    return shown(plain_words(text))
