"""One POST request over HTTP/1.1, with limits on the bytes and on the time of its answer.

The limits hold for every byte of a connection: headers, chunk sizes and body, so no part of an
answer can be endless. Redirects are not followed, answers are not decompressed, and a connection
serves one request, so no answer is taken for that to another request.
"""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from divprism.embedders._address import Address, Proxy, proxy_for

__all__ = ["Limits", "Problem", "Reply", "post"]

_BLOCK = 1 << 16  # bytes read at a time


@dataclass(frozen=True)
class Limits:
    """What a request may cost.

    Attributes
    ----------
    deadline : float
        Time of `time.monotonic` at which it fails, whatever has been received.
    max_bytes : int
        Most bytes to receive, headers included.
    """

    deadline: float
    max_bytes: int

    def remaining(self) -> float:
        """Return the seconds that are left, or raise `TimeoutError`."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


@dataclass(frozen=True)
class Reply:
    """An answer with a status; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Problem:
    """Why there is no answer, as the rest of a sentence about the endpoint.

    Attributes
    ----------
    reason : str
        Contains nothing that the server sent.
    is_final : bool
        Whether another attempt would end in the same way.
    is_too_long : bool
        Whether the answer exceeded the limit of bytes.
    """

    reason: str
    is_final: bool = False
    is_too_long: bool = False


class _TooLongError(Exception):
    """More bytes than allowed have arrived."""


class _ProxyError(Exception):
    """The proxy does not open a tunnel."""


def post(
    address: Address, path: str, body: bytes, headers: Mapping[str, str], limits: Limits
) -> Reply | Problem:
    """Send one request and return its answer.

    A problem is returned, not raised: exceptions of the libraries underneath quote what the server
    sent, and an exception raised from them would carry that along.
    """
    proxy = proxy_for(address)
    try:
        with closing(_open(address, proxy, limits)) as sock:
            return _exchange(sock, address, path, body, headers, limits)
    except _TooLongError:
        return Problem("sent too long an answer", is_final=True, is_too_long=True)
    except _ProxyError:
        return Problem("cannot be reached through the proxy of HTTPS_PROXY or ALL_PROXY")
    except TimeoutError:
        return Problem("did not answer in time")
    except ssl.SSLCertVerificationError:
        return Problem(
            "has a certificate that cannot be verified (SSL_CERT_FILE names the trusted ones)",
            is_final=True,
        )
    except http.client.IncompleteRead:
        return Problem("closed the connection in the middle of its answer")
    # OSError comes first: a connection closed without an answer is also an HTTPException.
    except OSError:
        return Problem("cannot be reached")
    except (http.client.HTTPException, ValueError):
        return Problem("sent an answer that is not HTTP")


def _exchange(
    sock: socket.socket,
    address: Address,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: Limits,
) -> Reply:
    stream = _BoundedStream(sock, limits)
    connection = _http(stream, address.host, address.port)
    # A server may refuse a request before it has read all of it; its answer says why.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request("POST", address.path + path, body, dict(headers))
    response = connection.getresponse()
    with closing(response):
        names = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, names, _read(response))


def _http(stream: "_BoundedStream", host: str, port: int) -> http.client.HTTPConnection:
    """Return a connection that sends and receives through a stream."""
    connection = http.client.HTTPConnection(host, port)
    # A connection with a socket does not open one itself; of the socket it uses `sendall` and
    # `makefile` only.
    connection.sock = stream
    return connection


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return the body."""
    body = bytearray()
    buffer = bytearray(_BLOCK)
    # `readinto` rather than `read`: a chunk of length -1 makes `read` ignore its limit.
    while count := response.readinto(buffer):
        body += memoryview(buffer)[:count]
    if response.length:
        raise http.client.IncompleteRead(b"")
    return bytes(body)


def _open(address: Address, proxy: Proxy | None, limits: Limits) -> socket.socket:
    """Return a connected socket, encrypted for https."""
    if proxy is None:
        sock = _connect(address.host, address.port, limits)
    else:
        sock = _tunnel(address, proxy, limits)
    if address.scheme == "http":
        return sock
    # Certificates and host names are verified; there is no switch to turn this off.
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    try:
        sock.settimeout(limits.remaining())
        return context.wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise


def _connect(host: str, port: int, limits: Limits) -> socket.socket:
    """Connect to the first address of a host that accepts, within the time of all of them."""
    candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for index, (family, kind, protocol, _, target) in enumerate(candidates):
        sock = socket.socket(family, kind, protocol)
        try:
            # Shares of the time, so that an address that never answers leaves some to the next.
            sock.settimeout(limits.remaining() / (len(candidates) - index))
            sock.connect(target)
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure or OSError


def _tunnel(address: Address, proxy: Proxy, limits: Limits) -> socket.socket:
    """Return a socket to the endpoint through a proxy, which has seen only host and port."""
    sock = _connect(proxy.host, proxy.port, limits)
    try:
        headers = {"Host": address.authority}
        if proxy.authorization:
            headers["Proxy-Authorization"] = proxy.authorization
        connection = _http(_BoundedStream(sock, limits), proxy.host, proxy.port)
        connection.request("CONNECT", address.authority, headers=headers)
        with closing(connection.getresponse()) as response:
            if response.status != 200:
                raise _ProxyError
    except BaseException:
        sock.close()
        raise
    return sock


class _BoundedStream(io.RawIOBase):
    """What `http.client` uses of a socket, with limits on each operation and on their sum."""

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self._sock = sock
        self._limits = limits
        self._received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Set each time: a timeout holds for one call, and a server can send a byte per call.
        self._sock.settimeout(self._limits.remaining())
        count = self._sock.recv_into(buffer)
        self._received += count
        if self._received > self._limits.max_bytes:
            raise _TooLongError
        return count

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while len(view):
            self._sock.settimeout(self._limits.remaining())
            view = view[self._sock.send(view) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, _BLOCK)

    def close(self) -> None:
        """Leave the socket open: whoever opened it closes it."""
