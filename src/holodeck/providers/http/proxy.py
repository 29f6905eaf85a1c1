"""The transport to a model API through a proxy of the environment, with the responses and errors of `HTTP1Pool`."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

from holodeck.lib.limits import HTTP_READ_CHUNK
from holodeck.lib.net import aiohttp_client
from holodeck.lib.net.http1 import ResponseLostError, UnreadableResponseError
from holodeck.lib.net.http1_pool import ConnectFailedError, InvalidURLError, ProxyError, encode_headers
from holodeck.lib.net.proxies import proxy_login_headers, without_login
from holodeck.providers.http.errors import RETRYABLE_STATUSES
from holodeck.providers.http.model_address import host_of


class ProxiedResponse:
    """A response that came through the proxy."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self.content_type = response.content_type

    @property
    def is_at_end(self) -> bool:
        return self._response.content.at_eof()

    async def read(self) -> bytes:
        with _convert_errors():
            return await self._response.content.readany()

    def close(self) -> None:
        self._response.close()


class ProxiedTransport:
    """Posts to one URL through a proxy."""

    def __init__(self, url: str, proxy: str, *, connect_timeout: float) -> None:
        self._url = url
        self._proxy = proxy if "://" in proxy else f"http://{proxy}"
        self._connect_timeout = connect_timeout
        self._client: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, body: bytes, headers: Mapping[str, str]) -> ProxiedResponse:
        # Raises `InvalidHeaderError`; aiohttp encodes the headers itself.
        encode_headers(headers)
        if not _is_http(self._url):
            raise InvalidURLError
        if not _is_http(self._proxy):
            raise ConnectFailedError(ProxyError("the proxy in the environment is no HTTP proxy", is_final=True))
        loop = asyncio.get_running_loop()
        client = self._client
        if client is None or self._loop is not loop:
            old_client, old_loop = client, self._loop
            client = aiohttp_client.create_http_client(connect_timeout=self._connect_timeout)
            self._client, self._loop = client, loop
            await _close_client(old_client, old_loop)
        # A large body is sent in chunks, so that other tasks run in between.
        data = body if len(body) <= HTTP_READ_CHUNK else io.BytesIO(body)
        login = proxy_login_headers(self._proxy)
        is_tunnelled = urlsplit(self._url).scheme == "https"
        with _convert_errors(), self._convert_proxy_errors():
            response = await client.post(
                without_login(self._url) if "Authorization" in headers else self._url,
                data=data,
                headers=headers if is_tunnelled else {**headers, **login},
                allow_redirects=False,
                proxy=without_login(self._proxy),
                proxy_headers=login if is_tunnelled else None,
            )
        # Only a proxy answers with this status.
        if response.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            response.close()
            raise self._refusal_error(response.status, response.reason)
        return ProxiedResponse(response)

    async def close(self) -> None:
        client, self._client = self._client, None
        await _close_client(client, self._loop)

    @contextmanager
    def _convert_proxy_errors(self) -> Iterator[None]:
        """Convert errors of the connection to the proxy, and of the proxy itself. Its password is not shown."""
        try:
            yield
        except aiohttp.ClientHttpProxyError as error:
            raise self._refusal_error(error.status, error.message) from None
        except aiohttp.ClientSSLError as error:
            raise ConnectFailedError(error.os_error) from error
        except aiohttp.ClientConnectorDNSError:
            raise self._proxy_error("has a host name that is not known") from None
        except aiohttp.ClientConnectorError as error:
            raise self._proxy_error(f"could not be reached ({_reason(error.os_error)})") from None

    def _refusal_error(self, status: int, reason: str | None) -> ConnectFailedError:
        wants_login = status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        wish = ", it wants the login of somebody it knows: http://NAME:PASSWORD@HOST" if wants_login else ""
        is_final = status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in RETRYABLE_STATUSES
        return self._proxy_error(f"refused ({status} {reason or ''}".rstrip() + f"){wish}", is_final=is_final)

    def _proxy_error(self, what: str, *, is_final: bool = False) -> ConnectFailedError:
        return ConnectFailedError(ProxyError(f"its proxy at {host_of(self._proxy)} {what}", is_final=is_final))


async def _close_client(client: aiohttp.ClientSession | None, loop: asyncio.AbstractEventLoop | None) -> None:
    if client is None or loop is None:
        return
    # With a closed loop its connections are closed as well; this only releases the client.
    if loop is asyncio.get_running_loop() or loop.is_closed():
        await client.close()
    else:
        asyncio.run_coroutine_threadsafe(client.close(), loop)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        return parts.scheme in {"http", "https"} and bool(host) and parts.port != 0
    except ValueError:
        return False


def _reason(error: OSError) -> str | None:
    """Return the system's text for an error; asyncio's own is for programmers."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except aiohttp.InvalidURL as error:
        raise InvalidURLError from error
    except aiohttp.ConnectionTimeoutError as error:
        raise ConnectFailedError(TimeoutError()) from error
    except aiohttp.ClientResponseError as error:
        raise UnreadableResponseError("it is not HTTP") from error
    except aiohttp.ClientError as error:
        raise ResponseLostError(type(error).__name__) from error
