"""Requests to an endpoint that is not trusted: where it is, the key, attempts, what messages say.

Embedders and models that rate outputs share this module. What is specific to a protocol, the
content of a request and the reading of its answer, is theirs.
"""

import json
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from divprism.data.readers.guards import shown
from divprism.embedders._address import Address, parse_address
from divprism.embedders._answer import UnusableAnswerError, read_message
from divprism.embedders._key import Key, header_value, plain_words
from divprism.embedders._post import Limits, Problem, Reply, post
from divprism.errors import ArgumentError, DataError, MissingModelError

__all__ = [
    "OPENAI",
    "Budget",
    "Pace",
    "Service",
    "Wording",
    "ask",
    "check_model_name",
    "check_seconds",
    "quoted",
    "require_plain",
]

# Whom to bill, for accounts with several organisations or projects at OpenAI.
_OPTIONAL_HEADERS = {
    "OpenAI-Organization": "OPENAI_ORG_ID",
    "OpenAI-Project": "OPENAI_PROJECT_ID",
}
_MAX_NAME = 500  # characters of the name of a model
_MAX_SHOWN = 200  # characters of a message of the server; some servers answer with a whole page
_MAX_SECONDS = 86_400.0  # operating systems do not accept arbitrarily long waits
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0  # seconds before an attempt, doubled from one to the next
_LONGEST_RETRY_AFTER = 60.0


@dataclass(frozen=True)
class Service:
    """The environment variables that name an endpoint and its key.

    Attributes
    ----------
    url, key : str
        Names of the variables.
    default_url : str
        The address if the variable is not set; empty if it has to be set.
    needs_key : bool
        Whether a request without a key is refused before it is sent.
    headers : tuple of (str, str)
        Further headers, and the variables that hold their values.
    """

    url: str
    key: str
    default_url: str = ""
    needs_key: bool = True
    headers: tuple[tuple[str, str], ...] = ()

    def address(self) -> Address:
        """Return the address that requests are sent to."""
        text = os.environ.get(self.url) or self.default_url
        # The address is printed and stored, so it must not contain the key.
        if Key(os.environ.get(self.key, "")).is_part_of(text):
            raise ArgumentError(
                f"{self.url} must be an address without the key; it contains {self.key}."
            )
        return parse_address(text, self.url, self.key)

    def read_key(self, way_out: str) -> Key:
        """Return the key for that address, which is empty for a server without keys."""
        text = header_value(self.key)
        if not text and self.needs_key:
            raise MissingModelError(
                f"cannot use {self.address().text}: {self.key} is not set. {way_out}"
            )
        return Key(text)


OPENAI = Service(
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    default_url="https://api.openai.com/v1",
    headers=tuple(_OPTIONAL_HEADERS.items()),
)
"""OpenAI, or what the variables of its own package name instead."""


@dataclass(frozen=True)
class Budget:
    """What one request may cost, with all its attempts: see `OpenAI`."""

    max_retries: int
    timeout: float
    max_seconds: float
    max_bytes: int


@dataclass(frozen=True)
class Wording:
    """What messages call the parts of a request.

    Attributes
    ----------
    model, kind : str
        Name of the model, and what it is: "embedding model".
    shorter : str
        What to do about an answer that is longer than allowed.
    way_out : str
        What works without the endpoint, as a sentence.
    """

    model: str
    kind: str
    shorter: str
    way_out: str

    def unusable(self, address: Address, reason: str) -> DataError:
        """Return the error for an answer that is refused; it quotes nothing of the answer."""
        return DataError(
            f"{address.text} gave an answer for {self.model} that cannot be used: {reason}."
        )


class Pace:
    """Spaces requests by a number of seconds, in whatever threads they are."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self.seconds = 0.0
        if requests_per_minute is not None:
            self.seconds = 60.0 / requests_per_minute
        self.next_call = 0.0  # in the past, so the first call never waits
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type, tuple[float | None]]:
        # A lock is not pickled, and another process has a pace of its own.
        return Pace, (60.0 / self.seconds if self.seconds else None,)

    def turn(self) -> float:
        """Take the next turn, and return the seconds until it comes."""
        with self._lock:
            now = time.monotonic()
            pause = self.next_call - now
            # Counted from the planned time, not from the end of the sleep: delays do not add up.
            self.next_call = max(now, self.next_call) + self.seconds
        return max(0.0, pause)

    def wait(self) -> None:
        """Return when the next request may be sent."""
        pause = self.turn()
        if pause > 0:
            time.sleep(pause)


def ask(
    service: Service, path: str, content: Mapping[str, object], budget: Budget, wording: Wording
) -> tuple[Reply, Key]:
    """Send a request until it is answered well, or raise an error in one sentence.

    Returns the answer, whose body has not been read, and the key: what quotes the answer has to
    look for the key in it.

    Raises
    ------
    MissingModelError
        If the endpoint cannot be reached, does not accept the key, or lacks the model.
    DataError
        If it refuses the request for another reason, or its answer is too long.
    """
    address, key = service.address(), service.read_key(wording.way_out)
    if key.is_part_of(wording.model):
        raise ArgumentError(f"`model` must be the name of a model; got the key in {service.key}.")
    headers = _headers(service, key)
    outcome, attempts = _attempts(address, path, json.dumps(content).encode(), headers, budget)
    if isinstance(outcome, Problem):
        raise _connection_error(address, outcome, attempts, wording)
    if not 200 <= outcome.status < 300:
        raise _status_error(service, path, (address, key), (outcome, attempts), wording)
    return outcome, key


def require_plain(reply: Reply) -> None:
    """Refuse a compressed answer: it was not asked for, and could expand to any size."""
    encoding = reply.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise UnusableAnswerError("it is compressed")


def check_model_name(model: object) -> None:
    """Raise `ArgumentError` for what cannot be the name of a model."""
    is_name = isinstance(model, str) and model.isprintable()
    if not is_name or not 0 < len(str(model)) <= _MAX_NAME:
        raise ArgumentError(
            f"`model` must be a name of 1 to {_MAX_NAME} printable characters; "
            f"got {shown(model)[:80]}."
        )


def check_seconds(name: str, value: float, minimum: float = 0.0) -> None:
    """Raise `ArgumentError` for a value that is not a usable number of seconds, or a rate."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Written so that NaN is rejected too.
    if not is_number or not (value > 0 and minimum <= value <= _MAX_SECONDS):
        raise ArgumentError(
            f"`{name}` must be positive and at most {_MAX_SECONDS:,.0f}; got {value!r:.80}."
        )


def quoted(text: str, key: Key) -> str:
    """Return a text of a server as it may be printed."""
    text = " ".join(text.split())[:_MAX_SHOWN]
    if not text:
        return "it gives no reason"
    if key.is_quoted_in(text):
        return "its message is not shown, since it contains a part of the key"
    return shown(plain_words(text))


def _attempts(
    address: Address, path: str, body: bytes, headers: Mapping[str, str], budget: Budget
) -> tuple[Reply | Problem, int]:
    """Send a request until it is answered or the limits are reached.

    Returns the last outcome and the number of attempts.
    """
    end = time.monotonic() + budget.max_seconds
    attempts = 0
    while True:
        attempts += 1
        deadline = min(end, time.monotonic() + budget.timeout)
        outcome = post(address, path, body, headers, Limits(deadline, budget.max_bytes))
        seconds = _wait_after(outcome, attempts)
        is_last = attempts > budget.max_retries or time.monotonic() + seconds >= end
        if is_last or not _is_temporary(outcome):
            return outcome, attempts
        time.sleep(seconds)


def _headers(service: Service, key: Key) -> dict[str, str]:
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "Content-Type": "application/json",
        "User-Agent": "divprism",
    }
    if not key.is_empty():
        headers["Authorization"] = key.authorization()
    for header, variable in service.headers:
        value = header_value(variable)
        if value:
            headers[header] = value
    return headers


def _connection_error(
    address: Address, problem: Problem, attempts: int, wording: Wording
) -> MissingModelError | DataError:
    if problem.is_too_long:
        return wording.unusable(address, f"it is longer than `max_bytes`; {wording.shorter}")
    return MissingModelError(
        f"{address.text} {problem.reason} (tried {attempts} times). {wording.way_out}"
    )


def _status_error(
    service: Service,
    path: str,
    endpoint: tuple[Address, Key],
    last: tuple[Reply, int],
    wording: Wording,
) -> MissingModelError | DataError:
    """Return the error for a status that persists after all retries."""
    (address, key), (reply, attempts) = endpoint, last
    status, way_out = reply.status, wording.way_out
    summary = f"{address.text} answered {status}"
    if 300 <= status < 400:
        return MissingModelError(
            f"{summary}, a redirect. Redirects are not followed, so that key and texts go to "
            f"the address in {service.url} only; set that to the final address. {way_out}"
        )
    if status in (401, 403):
        return MissingModelError(
            f"{summary}: it does not accept the key in {service.key}. {way_out}"
        )
    if status == 404:
        return MissingModelError(
            f"{summary}: it has no {wording.kind} {wording.model}, "
            f"or {service.url} is not its address (without {path}). {way_out}"
        )
    if _is_temporary(reply):
        return MissingModelError(f"{summary}, {attempts} times in a row. {way_out}")
    message = quoted(read_message(reply.body), key)
    return DataError(f"{summary} to texts for {wording.model}: {message}.")


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
