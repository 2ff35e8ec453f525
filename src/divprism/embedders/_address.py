"""Addresses of endpoints and proxies, validated before anything is sent to them.

A refused address is never part of the message: it may contain a password.
"""

import base64
import ipaddress
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from divprism.errors import ArgumentError

__all__ = ["Address", "Proxy", "parse_address", "proxy_for"]

_MAX_LENGTH = 2000
_PORTS = {"http": 80, "https": 443}
# What is not matched is refused, so nothing depends on how lenient a URL parser is.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[a-z0-9._~!$&'()*+,;=:@%-]*)*)",
    re.IGNORECASE | re.ASCII,
)
_PROXY = re.compile(
    r"(?:http://)?(?:(?P<user>[^@/\s]*)@)?(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Address:
    """Where requests go.

    Attributes
    ----------
    scheme : str
        "http" or "https".
    host : str
        A name or an IP address, without the brackets of IPv6.
    port : int
        Given, or that of the scheme.
    path : str
        Empty, or a path that starts with a slash and does not end with one.
    text : str
        The address as it is printed.
    """

    scheme: str
    host: str
    port: int
    path: str
    text: str

    @property
    def authority(self) -> str:
        """Host and port as HTTP writes them."""
        return f"{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True)
class Proxy:
    """A proxy of the environment; `authorization` is the value of a header, or empty."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)


def parse_address(text: str, variable: str, key: str) -> Address:
    """Return the parts of an address.

    Raises
    ------
    ArgumentError
        If it cannot be used. `variable` is named, but the address is not quoted. `key` is the name
        of the variable that passwords belong into.
    """
    reason = _problem(text, key)
    match = _ADDRESS.fullmatch(text)
    if match is None or not _is_host(match["host"]):
        reason = reason or "its host or path is not valid"
    if reason or match is None:
        raise ArgumentError(
            f"{variable} must be an address such as https://host.example/v1; {reason}."
        )
    scheme, host, path = match["scheme"].lower(), match["host"].lower(), match["path"].rstrip("/")
    shown = f"{scheme}://{host}"
    port = _PORTS[scheme]
    if match["port"]:
        port = int(match["port"])
        shown = f"{shown}:{port}"
    if not 0 < port < 65536:
        raise ArgumentError(f"{variable} has no valid port; ports are 1 to 65535.")
    return Address(scheme, host.strip("[]"), port, path, shown + path)


def _problem(text: str, key: str) -> str:
    """Return what the most frequent mistake in an address is, or an empty string."""
    if len(text) > _MAX_LENGTH:
        return f"it is longer than {_MAX_LENGTH:,} characters"
    if not text.isascii():
        return "a host name with letters outside ASCII is written in its form xn--..."
    if not text.isprintable() or " " in text:
        return "it contains blanks, line breaks or control characters"
    scheme, _, rest = text.partition("://")
    if not rest or scheme.lower() not in _PORTS:
        return "it does not start with http:// or https://"
    if "@" in re.split(r"[/?#]", rest, maxsplit=1)[0]:
        return f"it contains a user or a password, which are not sent. Use {key}"
    if "?" in rest or "#" in rest:
        return "it contains a query or a fragment, which are not sent"
    return ""


def _is_host(host: str) -> bool:
    """Whether a host is an IP address, or a name that resolvers accept."""
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return False
        return True
    labels = host.removesuffix(".").split(".")
    # Python raises UnicodeError, not OSError, for the labels of other lengths.
    return len(host) < 254 and all(0 < len(label) < 64 for label in labels)


def proxy_for(address: Address) -> Proxy | None:
    """Return the proxy that the environment names for an address, or None.

    Only https goes through a proxy, by a tunnel (CONNECT) in which the proxy can read neither key
    nor texts. http is sent to the host itself: a proxy would read all of it.
    """
    if address.scheme != "https":
        return None
    proxies: Mapping[str, str] = urllib.request.getproxies_environment()
    text = proxies.get("https") or proxies.get("all")
    # Missing from the type stubs, although the standard library has it.
    is_excluded = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]
    if not text or is_excluded(address.host, dict(proxies)):
        return None
    match = _PROXY.fullmatch(text)
    if match is None or not _is_host(match["host"]) or len(text) > _MAX_LENGTH:
        raise ArgumentError(
            "HTTPS_PROXY or ALL_PROXY must be an address such as http://proxy.example:3128 "
            "(other kinds of proxies are not supported); or list the endpoint in NO_PROXY."
        )
    port = int(match["port"] or _PORTS["http"])
    if not 0 < port < 65536:
        raise ArgumentError("HTTPS_PROXY has no valid port; ports are 1 to 65535.")
    authorization = ""
    if match["user"]:
        encoded = base64.b64encode(unquote_to_bytes(match["user"])).decode()
        authorization = f"Basic {encoded}"
    return Proxy(match["host"].strip("[]"), port, authorization)


def _bracketed(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    return host
