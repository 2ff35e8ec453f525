"""The contract of a model that rates outputs: a prompt and an output in, a number out."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from divprism.embedders._answer import UnusableAnswerError, parse_answer
from divprism.embedders._key import Key
from divprism.embedders._requests import (
    Budget,
    Pace,
    Service,
    Wording,
    ask,
    check_model_name,
    check_seconds,
    require_plain,
)
from divprism.embedders.base import check_at_least
from divprism.errors import ArgumentError, DataError

__all__ = ["QualityModel", "UnusableRatingError", "only_entry"]

# A server without keys is as frequent as one with: the judge of a cluster, a model on this machine.
_OWN = Service("QUALITY_BASE_URL", "QUALITY_API_KEY", needs_key=False)
_WAY_OUT = "Numbers in a column need no endpoint."
_MAX_BYTES = 1 << 20  # of an answer: one number, and what servers add to it
_MOST_AT_ONCE = 64


class UnusableRatingError(DataError):
    """An answer without a usable rating. The message is the rest of a sentence about the output."""


@dataclass(frozen=True)
class QualityModel(ABC):
    """A model behind an endpoint that rates outputs; pass it as `quality`.

    The address is read from `QUALITY_BASE_URL` and its key from `QUALITY_API_KEY`, which may be
    missing for a server without keys. Ratings are kept in the cache, by everything that they
    depend on: a second run asks nothing. The endpoint is trusted as little as that of `OpenAI`.

    Attributes
    ----------
    model : str
        Name of the model at the endpoint.
    num_at_once : int
        Requests under way at the same time, from 1 to 64.
    requests_per_minute, max_retries, timeout, max_seconds, max_bytes
        As in `OpenAI`; an answer may have 1 MiB by default.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    path: ClassVar[str]
    needs_prompts: ClassVar[bool] = False
    default_service: ClassVar[Service | None] = None
    model: str
    # By name only, so that subclasses may add what they need.
    num_at_once: int = field(default=4, kw_only=True)
    requests_per_minute: float | None = field(default=None, kw_only=True)
    max_retries: int = field(default=6, kw_only=True)
    timeout: float = field(default=120.0, kw_only=True)
    max_seconds: float = field(default=600.0, kw_only=True)
    max_bytes: int = field(default=_MAX_BYTES, kw_only=True)
    # The address that was asked, recorded for results: no choice, so it is no part of equality.
    _asked: str = field(default="", init=False, repr=False, compare=False)
    _pace: Pace = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_model_name(self.model)
        for name in ("num_at_once", "max_bytes"):
            check_at_least(name, getattr(self, name))
        if self.num_at_once > _MOST_AT_ONCE:
            raise ArgumentError(
                f"`num_at_once` must be at most {_MOST_AT_ONCE}; got {self.num_at_once}."
            )
        check_at_least("max_retries", self.max_retries, minimum=0)
        for name in ("timeout", "max_seconds"):
            check_seconds(name, getattr(self, name))
        if self.requests_per_minute is not None:
            check_seconds("requests_per_minute", self.requests_per_minute, minimum=1e-3)
        # Here and not when it is first used: threads would make several.
        object.__setattr__(self, "_pace", Pace(self.requests_per_minute))

    @property
    def name(self) -> str:
        """The model, prefixed with its kind."""
        return f"{self.kind}:{self.model}"

    @property
    def service(self) -> Service:
        """The variables that name the endpoint and its key."""
        if os.environ.get(_OWN.url):
            return _OWN
        # Both or none: the key of one server is never sent to another.
        if os.environ.get(_OWN.key):
            raise ArgumentError(f"{_OWN.key} is set, but {_OWN.url} is not: set both, or neither.")
        if self.default_service is None:
            raise ArgumentError(
                f"{self.name} needs the address of its server in {_OWN.url}, such as "
                f"http://localhost:8000; it is not set. {_WAY_OUT}"
            )
        return self.default_service

    @property
    @abstractmethod
    def instructions(self) -> str:
        """What the model is told beside the pair, and how; ratings depend on it."""

    @abstractmethod
    def content(self, output: str, prompt: str | None) -> dict[str, object]:
        """What a request about one output contains."""

    @abstractmethod
    def read(self, body: bytes, key: Key) -> float:
        """Return the rating in the body of an answer; a message about it must not show the key.

        Raises
        ------
        UnusableAnswerError
            If the body has no rating, or more than one.
        """

    def rate(self, output: str, prompt: str | None = None) -> float:
        """Ask for the rating of one output; it is not kept.

        Raises
        ------
        UnusableRatingError
            If the answer has no usable rating.
        """
        self._pace.wait()
        return self.rate_at_once(output, prompt)

    def turn(self) -> float:
        """Take the next turn of `requests_per_minute`; returns the seconds until it comes."""
        return self._pace.turn()

    def rate_at_once(self, output: str, prompt: str | None) -> float:
        """`rate`, for those who have waited for their turn."""
        wording = Wording(self.model, self.noun, "raise that", _WAY_OUT)
        budget = Budget(self.max_retries, self.timeout, self.max_seconds, self.max_bytes)
        reply, key = ask(self.service, self.path, self.content(output, prompt), budget, wording)
        try:
            require_plain(reply)
            return self.read(reply.body, key)
        except UnusableAnswerError as error:
            reason = str(error)
        # Raised out here, so that the error carries nothing of the answer along.
        raise UnusableRatingError(f"{self.name} gave an answer that cannot be used: {reason}")

    def describe(self) -> dict[str, str | None]:
        """Return everything that a rating depends on, for the cache."""
        return {
            "id": self.name,
            "revision": f"endpoint {self.service.address().text}, model {self.model}",
            "preprocessing": self.instructions,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the settings of results: all that a rating depends on."""
        return {"id": self.name, "endpoint": self._asked or None}

    def asked_at(self, address: str) -> None:
        """Record the address that was asked."""
        object.__setattr__(self, "_asked", address)


def only_entry(body: bytes, name: str, expected: str) -> dict[str, Any]:
    """Return the object in the list `name` of an answer about one output, which has no other.

    Raises
    ------
    UnusableAnswerError
        If there is none, or more than one: the answer is not what was `expected`.
    """
    answer: Any = parse_answer(body, 1, expected)
    entries = None
    if isinstance(answer, dict):
        entries = answer.get(name)
    if not isinstance(entries, list) or len(entries) != 1 or not isinstance(entries[0], dict):
        raise UnusableAnswerError(f"it is not {expected}")
    return dict(entries[0])
