"""Files that a request names by their URL, and the operator's rules for the hosts in URLs of requests.

Files are fetched before the run, so that a model of any dialect gets their bytes.
The rules of dialling are those for MCP servers of requests: only hosts and addresses that `request_files` allows,
judged at the moment of dialling, for each redirect as well, and without a proxy. Number, bytes and time of one request
are bounded. A file that may not or cannot be fetched is a refusal of the request, never a note to the model.

Links to images go to the model's provider, which fetches them from where it is. A local model, or a provider inside of
the operator's network, would fetch what the client itself cannot reach, so a link to a private host is refused here.
"""

from __future__ import annotations

import asyncio
import mimetypes
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import unquote, urljoin, urlsplit

from holodeck.gateway.wire.request.content_parts import LinkURL
from holodeck.gateway.wire.request.json_fields import refuse, refuse_unsupported
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError, Reservation
from holodeck.lib.net.http1 import BodyTooLargeError
from holodeck.lib.net.http1_pool import ConnectFailedError, send_once
from holodeck.lib.net.ip_policy import ANY_ADDRESS, IPPolicy, RefusedAddressError, is_public_host, parse_networks
from holodeck.lib.off_loop import run_off_loop
from holodeck.models.gateway import RequestFiles
from holodeck.models.items import FileData, FunctionCallOutput, ImageLink, Item, Message
from holodeck.models.mcp_clients import RequestHosts
from holodeck.models.url import BadURLError, Endpoint, parse_endpoint

# Files of one request, with those of its context: more than people attach to a question.
MAX_FETCHED_FILES = 16
# A file store sends a client on to another host once or twice.
MAX_FILE_REDIRECTS = 3
_BYTES_TYPE = "application/octet-stream"


class HostPolicy:
    """Checks URLs of requests against `request_servers` or `request_files` of the gateway's file."""

    def __init__(self, config: RequestHosts) -> None:
        self._hosts = config.hosts
        self._networks = parse_networks(config.allow_private_hosts)
        self._private_hosts = {host.lower() for host in config.allow_private_hosts}
        self._insecure_hosts = {host.lower() for host in config.allow_insecure_hosts}

    def check(self, url: str, where: str) -> None:
        """Raise `BadRequestError` for a URL that is not allowed. Nothing is dialled or resolved."""
        scheme, host, _ = _parse_url(url, where)
        if scheme != "https" and host not in self._insecure_hosts:
            refuse(f"Invalid '{where}': it must use https://.", where, "invalid_url")
        if self._hosts is not None and not any(fnmatchcase(host, pattern.lower()) for pattern in self._hosts):
            message = f"Invalid '{where}': the operator of this gateway does not allow this host."
            refuse(message, where, "invalid_url")

    def check_public(self, url: str, where: str) -> None:
        """Raise `BadRequestError` for a URL that another program would fetch from a private network.

        Judges the host as it is written: an address that a name resolves to is that of the other program.
        """
        host = _parse_url(url, where).host
        if is_public_host(host) or host in self._private_hosts or IPPolicy(networks=self._networks).is_allowed(host):
            return
        refuse(f"Invalid '{where}': its address is not a public one.", where, "invalid_url")

    def ip_policy_for(self, host: str) -> IPPolicy:
        """Return which addresses of this host may be dialled."""
        return ANY_ADDRESS if host in self._private_hosts else IPPolicy(networks=self._networks)


def _parse_url(url: str, where: str) -> Endpoint:
    try:
        return parse_endpoint(url)
    except BadURLError as error:
        reason = str(error).removeprefix("'url' ")
        refuse(f"Invalid '{where}': it {reason}.", where, "invalid_url")


class FileFetcher:
    """Fetches the files of requests within `request_files` of the gateway's file."""

    def __init__(self, config: RequestFiles, budget: ByteBudget) -> None:
        """`budget`: for the bytes of files that are being fetched."""
        self._config = config
        self._budget = budget
        self._policy = HostPolicy(config)

    async def fetch_input(self, parsed: Input, context: tuple[Item, ...]) -> tuple[Item, ...]:
        """Replace the links to files in an input by their content, and return the context with the same done to it.

        The content of files in the input is stored with the response, so no later response fetches them again. Raises
        `BadRequestError`, which names the field.
        """
        links = self.check_images((*context, *parsed.items))
        if not links:
            return context
        params = dict(_params_of(parsed.wire_items)) if parsed.list_file_paths is None else parsed.list_file_paths()
        where = params.get(links[-1], "input")
        if not self._config.allow:
            refuse_unsupported(where, f"This gateway fetches no files: {parsed.file_advice}.")
        if len(links) > MAX_FETCHED_FILES:
            refuse(f"At most {MAX_FETCHED_FILES} files by their URL in one request.", where, "array_above_max_length")
        seconds = self._config.max_seconds
        fetched: dict[str, FileData] = {}
        try:
            async with asyncio.timeout(seconds):
                for url in dict.fromkeys(links):
                    fetched[url] = await self._fetch(url, params.get(url, "input"))
        except TimeoutError:
            _refuse_download(where, f"it took more than {seconds:g} s")
        parsed.items[:] = [_with_content(item, fetched) for item in parsed.items]
        return tuple(_with_content(item, fetched) for item in context)

    def check_images(self, items: Iterable[Item]) -> list[str]:
        """Raise `BadRequestError` for a link to an image that the provider of a model would fetch from a private host.

        Returns the links to files, which are to be fetched here.
        """
        files: list[str] = []
        for part in _links(items):
            if isinstance(part, FileData):
                files.append(part.url)
            else:
                self._policy.check_public(part.url, part.url.param if isinstance(part.url, LinkURL) else "input")
        return files

    async def _fetch(self, url: str, where: str) -> FileData:
        address, redirects = url, 0
        while isinstance(found := await self._request(address, where), str):
            address, redirects = found, redirects + 1
            if redirects > MAX_FILE_REDIRECTS:
                _refuse_download(where, f"it is redirected more than {MAX_FILE_REDIRECTS} times")
        kind, data = found
        name = unquote(urlsplit(url).path.rpartition("/")[2]) or "file"
        kind = kind or mimetypes.guess_type(name)[0] or _BYTES_TYPE
        encoded = await run_off_loop(partial(b64encode, data))
        return FileData(url=f"data:{kind};base64,{encoded.decode()}", filename=name)

    async def _request(self, url: str, where: str) -> str | tuple[str, bytes]:
        """Send one request. Returns the URL that the server redirects to, or the type and the bytes of the file."""
        self._policy.check(url, where)
        self._policy.check_public(url, where)
        ip_policy = self._policy.ip_policy_for(parse_endpoint(url).host)
        try:
            async with send_once("GET", url, connect_timeout=self._config.max_seconds, ip_policy=ip_policy) as response:
                location = response.headers.get("location")
                if HTTPStatus.MULTIPLE_CHOICES <= response.status < HTTPStatus.BAD_REQUEST and location:
                    return urljoin(url, location)
                if response.status != HTTPStatus.OK:
                    _refuse_download(where, f"its server answered HTTP {response.status}")
                with Reservation(self._budget) as reserved:
                    data = await response.read_all(self._config.max_bytes, reserved)
                return response.content_type if "content-type" in response.headers else "", data
        except BodyTooLargeError:
            _refuse_download(where, f"it has more than {self._config.max_bytes} bytes")
        except OverBudgetError:
            _refuse_download(where, "the gateway has no memory for it at the moment")
        except OSError as error:
            _refuse_download(where, _reason_of(error))


def _refuse_download(where: str, reason: str) -> NoReturn:
    refuse(f"Error while downloading the file of '{where}': {reason}.", where, "invalid_url")


def _reason_of(error: OSError) -> str:
    """Return the reason that a caller may read: not what the host resolved to."""
    is_private = isinstance(error, ConnectFailedError) and isinstance(error.reason, RefusedAddressError)
    return "its address is not a public one" if is_private else "its server cannot be reached"


def _links(items: Iterable[Item]) -> Iterator[FileData | ImageLink]:
    for item in items:
        if isinstance(item, Message | FunctionCallOutput):
            for part in item.content:
                if isinstance(part, FileData | ImageLink) and not part.url.startswith("data:"):
                    yield part


def _with_content(item: Item, fetched: dict[str, FileData]) -> Item:
    if not any(isinstance(part, FileData) for part in _links((item,))):
        return item
    if not isinstance(item, Message | FunctionCallOutput):  # pragma: no cover - no other item has links
        return item
    parts = [
        replace(fetched[part.url], filename=part.filename or fetched[part.url].filename)
        if isinstance(part, FileData) and part.url in fetched
        else part
        for part in item.content
    ]
    return replace(item, content=tuple(parts))


def _params_of(wire_items: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each link to a file of an input with the path of its field."""
    for index, item in enumerate(wire_items):
        for key in ("content", "output"):
            parts = item.get(key)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                if isinstance(part, dict) and part.get("file_url"):
                    yield part["file_url"], f"input[{index}].{key}[{number}].file_url"
