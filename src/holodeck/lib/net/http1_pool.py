"""A pool of HTTP/1.1 connections to the origin of one URL, direct or through a proxy.

The pool opens as many connections as requests run at once, and reuses idle ones for `HTTP_KEEPALIVE` seconds. It owns
its connections: `close` aborts all of them, and running responses with them. It may be used from several event loops,
one after another: connections of an earlier loop are dropped. It follows redirects within the origin, and stores
cookies, only where that is asked for.

A pool for an untrusted URL has an `IPPolicy`, which judges each address when its socket is created.

`send_once` is for requests that are rare, as of OAuth, key sets and downloads: a pool for one request.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple, Protocol
from urllib.parse import SplitResult, quote, urlsplit

from aiohappyeyeballs import start_connection

from holodeck.lib.limits import HTTP_KEEPALIVE, KIB
from holodeck.lib.net.http1 import HTTP1Connection, HTTP1Response, ResponseLostError
from holodeck.lib.net.http1_proxy import Proxy, ProxyError, TunnelProtocol
from holodeck.lib.net.ip_policy import IPPolicy, RefusedAddressError
from holodeck.lib.net.proxies import encode_basic_auth
from holodeck.lib.net.tls import tls_context, unreachable_reason
from holodeck.lib.net.urls import REDIRECTS, redirect_target

# Seconds before the next address of a host is tried in parallel with one that does not answer (Happy Eyeballs).
SECOND_ADDRESS_DELAY = 0.25

_SAFE = "/%:@!$&'()*+,;=?~-._"
_PORTS = {"http": 80, "https": 443}
_RARE_REQUEST_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "holodeck"}
_PROXY_LOGIN_WANTED = HTTPStatus.PROXY_AUTHENTICATION_REQUIRED.value


class InvalidURLError(OSError):
    """The URL cannot be dialled."""


class InvalidHeaderError(OSError):
    """A header contains a line break, a NUL or half of a character. Nothing was sent."""


class ConnectFailedError(OSError):
    """There was no connection, so nothing was sent.

    `reason` is the error of the name lookup, the network, TLS, the IP policy or the proxy, or a timeout.
    """

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SendReport(Protocol):
    """The object in which `HTTP1Pool.send` reports how far a request has come."""

    may_have_been_sent: bool
    """Set once any byte may have left."""


# Cookies of one server, and bytes of one: what browsers store at least.
MAX_COOKIES = 50
MAX_COOKIE_BYTES = 4 * KIB


class _Cookie(NamedTuple):
    value: str
    path: str
    is_secure: bool
    expires_at: float
    """Seconds since the epoch."""


class CookieJar:
    """Stores the cookies of one origin and returns them to it alone, so that their domain does not matter."""

    def __init__(self) -> None:
        self._cookies: dict[str, _Cookie] = {}

    def store(self, header: str) -> None:
        """Store the cookies of a response. `header`: its `set-cookie` headers, joined by line breaks."""
        for line in header.split("\n"):
            pair, *attributes = line.split(";")
            name, has_value, value = (part.strip() for part in pair.partition("="))
            if not name or not has_value or len(line) > MAX_COOKIE_BYTES:
                continue
            self._cookies.pop(name, None)
            cookie = _parse_attributes(value, attributes)
            if cookie.expires_at > time.time() and len(self._cookies) < MAX_COOKIES:
                self._cookies[name] = cookie

    def header_for(self, path: str, *, is_secure: bool) -> str:
        """Return the value of the `Cookie` header for a request to this path; empty when there is none."""
        now = time.time()
        return "; ".join(
            f"{name}={cookie.value}"
            for name, cookie in self._cookies.items()
            if cookie.expires_at > now and (is_secure or not cookie.is_secure) and _is_below(path, cookie.path)
        )


def _parse_attributes(value: str, attributes: list[str]) -> _Cookie:
    pairs = (attribute.partition("=") for attribute in attributes)
    found = {name.strip().lower(): text.strip() for name, _, text in pairs}
    path = found.get("path", "")
    return _Cookie(
        value=value,
        path=path if path.startswith("/") else "/",
        is_secure="secure" in found,
        expires_at=_expiry(found),
    )


def _expiry(attributes: dict[str, str]) -> float:
    try:
        if "max-age" in attributes:
            return time.time() + int(attributes["max-age"])
        if "expires" in attributes:
            return parsedate_to_datetime(attributes["expires"]).timestamp()
    # A malformed date is as good as none.
    except (ValueError, OverflowError):
        pass
    return float("inf")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


class HTTP1Pool:
    """Connections to the server of one URL; see the module for their lifecycle."""

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        ip_policy: IPPolicy | None = None,
        max_redirects: int = 0,
        stores_cookies: bool = False,
    ) -> None:
        """`headers`: sent with every request. `ip_policy`: judges the addresses that are dialled; None allows all.

        `max_redirects`: those within the origin that one request follows; others are returned. Raises
        `InvalidURLError`, `InvalidHeaderError`, and `ConnectFailedError` for a proxy that is none.
        """
        self._connect_timeout = connect_timeout
        self._max_redirects = max_redirects
        self._stores_cookies = stores_cookies
        self._cookies: CookieJar | None = None
        self._encoded_headers: Mapping[str, str] | None = None
        self._encoded_lines = ""
        self._socket_factory = None if ip_policy is None else ip_policy.create_socket
        self._idle: list[HTTP1Connection] = []
        self._all: set[HTTP1Connection] = set()
        self._cleanup_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode()
        except ValueError as error:
            raise InvalidURLError from error
        default_port = _PORTS.get(parts.scheme)
        if default_port is None or not host or port == 0 or " " in host or not host.isprintable():
            raise InvalidURLError
        self._host, self._is_secure = host, parts.scheme == "https"
        self._port = port or default_port
        name = f"[{host}]" if ":" in host else host
        self._authority = f"{name}:{self._port}"
        shown = name if self._port == default_port else self._authority
        try:
            self._proxy = None if proxy is None else Proxy.parse(proxy)
        except ProxyError as error:
            raise ConnectFailedError(error) from None
        self._is_tunnelled = self._proxy is not None and self._is_secure
        # A proxy without a tunnel reads the request itself: the whole URL, and its own login.
        is_forwarded = self._proxy is not None and not self._is_secure
        self._target_prefix = f"http://{shown}" if is_forwarded else ""
        self._url, self._target = url, self._target_prefix + _encode_target(parts)
        constant = headers or {}
        has_host = any(name.lower() == "host" for name in constant)
        self._constant_lines = "" if has_host else f"Host: {shown}\r\n"
        self._constant_lines += encode_headers(constant)
        if self._proxy is not None and is_forwarded:
            self._constant_lines += self._proxy.login
        login = encode_basic_auth(parts.username, parts.password)
        self._login = f"Authorization: {login}\r\n" if login else ""

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        url: str | None = None,
        report: SendReport | None = None,
        redirects: int = 0,
    ) -> HTTP1Response:
        """Send a request and return its response once the headers have arrived.

        `headers`: encoded once where the same mapping is passed again, which must not have changed. `url`: another one
        of the same origin, which the caller has checked. Credentials in the URL of the pool are used if `headers` has
        no `Authorization`. `redirects`: those that led here. Raises `InvalidHeaderError`, `ConnectFailedError`, or
        `ResponseLostError` if the connection ends before the headers are complete.
        """
        if self._cookies is not None:
            lines = encode_headers(self._with_cookies(self._cookies, url, headers))
        elif headers is self._encoded_headers:
            lines = self._encoded_lines
        else:
            lines = self._encoded_lines = encode_headers(headers)
            self._encoded_headers = headers
        if self._login and "Authorization" not in headers:
            lines += self._login
        target = (
            self._target if url is None or url == self._url else self._target_prefix + _encode_target(urlsplit(url))
        )
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {target} HTTP/1.1\r\n{self._constant_lines}{lines}{length}\r\n".encode()
        connection = self._pop_idle() or await self._dial()
        if report is not None:
            report.may_have_been_sent = True
        response = await connection.send(head, body or b"")
        # Only a proxy answers with this status.
        if response.status == _PROXY_LOGIN_WANTED and self._proxy is not None:
            response.close()
            raise ConnectFailedError(ProxyError(self._proxy.authority, status=response.status, phrase=response.phrase))
        if self._stores_cookies and "set-cookie" in response.headers:
            self._cookies = self._cookies or CookieJar()
            self._cookies.store(response.headers["set-cookie"])
        if response.status in REDIRECTS and redirects < self._max_redirects:
            follow = redirect_target(response.status, response.headers.get("location"), url or self._url)
            if follow is not None:
                response.close()
                return await self.send(method, headers, body, url=follow, report=report, redirects=redirects + 1)
        return response

    def _with_cookies(self, cookies: CookieJar, url: str | None, headers: Mapping[str, str]) -> Mapping[str, str]:
        cookie = cookies.header_for(urlsplit(url or self._url).path or "/", is_secure=self._is_secure)
        return {**headers, "Cookie": cookie} if cookie else headers

    async def close(self) -> None:
        """Abort all connections; responses that are still read fail with `ResponseLostError`."""
        self._is_closed = True
        self._switch_loop(asyncio.get_running_loop())
        if self._cleanup_timer is not None:
            self._cleanup_timer.cancel()
            self._cleanup_timer = None
        self._idle.clear()
        for connection in list(self._all):
            connection.abort()
        # Transports close in the next iteration of the event loop.
        await asyncio.sleep(0)

    def _switch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop the connections of another event loop, which cannot be used in this one."""
        if self._loop is loop:
            return
        self._loop = loop
        self._cleanup_timer = None
        self._idle.clear()
        for connection in self._all:
            if not connection.loop.is_closed():
                connection.loop.call_soon_threadsafe(connection.abort)
        self._all = set()

    def _pop_idle(self) -> HTTP1Connection | None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._switch_loop(loop)
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle and loop.time() - connection.free_since < HTTP_KEEPALIVE:
                return connection
            connection.abort()
        return None

    async def _dial(self) -> HTTP1Connection:
        loop = asyncio.get_running_loop()
        connection = HTTP1Connection(loop, on_free=self._release, on_lost=self._remove)
        try:
            async with asyncio.timeout(self._connect_timeout):
                if self._proxy is None:
                    sock = await self._open_socket(self._host, self._port)
                else:
                    sock = await self._open_proxy_socket(self._proxy)
                await self._connect(loop, connection, sock)
        except OSError as error:
            raise ConnectFailedError(error) from error
        if self._is_closed:
            connection.abort()
            raise ResponseLostError("closed while it was made")
        self._all.add(connection)
        return connection

    async def _open_socket(self, host: str, port: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        try:
            # An address needs no lookup, and so no thread of the event loop.
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # Happy Eyeballs: an address that does not answer must not delay the next one of the same host.
        return await start_connection(
            addresses, happy_eyeballs_delay=SECOND_ADDRESS_DELAY, loop=loop, socket_factory=self._socket_factory
        )

    async def _open_proxy_socket(self, proxy: Proxy) -> socket.socket:
        try:
            return await self._open_socket(proxy.host, proxy.port)
        except OSError as error:
            raise ProxyError(proxy.authority, reason=error) from error

    async def _connect(self, loop: asyncio.AbstractEventLoop, connection: HTTP1Connection, sock: socket.socket) -> None:
        """Connect the protocol to the server through an open socket: TLS, and before it the tunnel, as needed."""
        if self._is_tunnelled and self._proxy is not None:
            tunnel = TunnelProtocol(self._proxy, self._authority)
            protocol: asyncio.Protocol = tunnel
        else:
            tunnel, protocol = None, connection
        name, is_secure = (
            (self._host, self._is_secure) if self._proxy is None else (self._proxy.host, self._proxy.is_secure)
        )
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.create_connection(
                lambda: protocol,
                sock=sock,
                ssl=tls_context() if is_secure else None,
                server_hostname=name if is_secure else None,
            )
            if tunnel is not None:
                await tunnel.start_tls(connection, tls_context(), self._host)
        except BaseException:
            # The event loop still watches the socket, perhaps in a TLS handshake, and has to close it. A shutdown ends
            # whatever it waits for.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            raise

    def _release(self, connection: HTTP1Connection) -> None:
        if connection not in self._all:
            connection.abort()
            return
        connection.free_since = connection.loop.time()
        self._idle.append(connection)
        if self._cleanup_timer is None:
            self._cleanup_timer = connection.loop.call_later(HTTP_KEEPALIVE, self._close_idle)

    def _remove(self, connection: HTTP1Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _close_idle(self) -> None:
        """Close connections idle for `HTTP_KEEPALIVE`, and run again while others are idle."""
        self._cleanup_timer = None
        loop = asyncio.get_running_loop()
        for connection in list(self._idle):
            if loop.time() - connection.free_since >= HTTP_KEEPALIVE:
                self._idle.remove(connection)
                connection.abort()
        if self._idle:
            self._cleanup_timer = loop.call_later(HTTP_KEEPALIVE, self._close_idle)


@asynccontextmanager
async def send_once(
    method: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    connect_timeout: float,
    proxy: str | None = None,
    ip_policy: IPPolicy | None = None,
) -> AsyncGenerator[HTTP1Response, None]:
    """Send one request, with a connection of its own, and yield its response. No redirect is followed.

    It has no total timeout: deadlines belong to the caller. Raises what `HTTP1Pool` and its `send` raise.
    """
    pool = HTTP1Pool(url, connect_timeout=connect_timeout, proxy=proxy, ip_policy=ip_policy)
    try:
        yield await pool.send(method, {**_RARE_REQUEST_HEADERS, **(headers or {})}, body)
    finally:
        await pool.close()


def failure_reason(error: OSError) -> str:
    """Return why a request failed, for people: `Connection refused`. Has no header, and no login of a proxy."""
    reason = error.reason if isinstance(error, ConnectFailedError) else error
    if isinstance(reason, ProxyError) and reason.reason is not None:
        reason = reason.reason
    if isinstance(reason, RefusedAddressError):
        return str(reason.strerror)
    if isinstance(error, ConnectFailedError):
        return unreachable_reason(reason)
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def encode_headers(headers: Mapping[str, str]) -> str:
    """Return the header lines. Raises `InvalidHeaderError`, so that no value can inject another header."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    is_one_each = lines.count("\r") == lines.count("\n") == len(headers)
    if not is_one_each or "\0" in lines or not (lines.isascii() or _is_encodable(lines)):
        raise InvalidHeaderError
    return lines


def _is_encodable(text: str) -> bool:
    """Return whether the text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode_target(parts: SplitResult) -> str:
    return quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
