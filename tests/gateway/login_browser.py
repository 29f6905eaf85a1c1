"""A browser that logs in to a gateway, as far as HTTP shows it: it stores cookies and follows redirects one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from gateway.running_gateway import RunningGateway, run_gateway
from yarl import URL

from holodeck.testing import IdentityProvider, ScriptedModel

# Headers that a browser sends with requests of a page to the page's own origin.
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@dataclass(kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def location(self) -> str:
        return self.headers["location"]

    @property
    def json(self) -> Any:
        return orjson.loads(self.text)


@dataclass(kw_only=True)
class LoginBrowser:
    """Cookies belong to the host, so that one browser may visit one gateway at 127.0.0.1 and the identity provider."""

    url: str
    session: aiohttp.ClientSession

    async def visit(self, url: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        """Send one request, by a path of the gateway or to any URL. Redirects are not followed."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        target = URL(url, encoded=True) if url.startswith("http") else URL(self.url + url, encoded=True)
        async with self.session.request(method, target, json=body, headers=named, allow_redirects=False) as answer:
            return Answer(status=answer.status, headers=answer.headers, text=await answer.text())

    async def reach_callback(self, path: str = "/v1/login") -> str:
        """Go to the identity provider, and return the address that it sends the browser back to."""
        begun = await self.visit(path)
        assert begun.status == 302, begun.text
        return (await self.visit(begun.location)).location

    async def log_in(self, path: str = "/v1/login") -> Answer:
        """Log in, and return the last answer of the gateway."""
        return await self.visit(await self.reach_callback(path))

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request as a page of the gateway does."""
        return await self.visit(path, method, body, **{"sec_fetch_site": "same-origin", **headers})

    async def submit(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        """Send a form."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(self.url + path, data=dict(form), headers=named, allow_redirects=False) as answer:
            return Answer(status=answer.status, headers=answer.headers, text=await answer.text())

    def copy_cookies(self) -> str:
        """The cookies for the gateway, as a thief would have them."""
        found = self.session.cookie_jar.filter_cookies(URL(self.url))
        return "; ".join(f"{name}={cookie.value}" for name, cookie in found.items())


@asynccontextmanager
async def open_browser(gateway: RunningGateway) -> AsyncIterator[LoginBrowser]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield LoginBrowser(url=gateway.url, session=session)


@asynccontextmanager
async def run_with_login(
    folder: Path,
    provider: IdentityProvider,
    model: ScriptedModel | None = None,
    *,
    jwt: Mapping[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[RunningGateway]:
    """A gateway at which persons of this identity provider log in. `jwt`: more of that entry."""
    login: dict[str, Any] = {"client_id": provider.client_id}
    if provider.client_secret is not None:
        login["client_secret"] = "${LOGIN_SECRET}"
        config["environ"] = {**config.get("environ", {}), "LOGIN_SECRET": provider.client_secret}
    entry = {**provider.jwt_entry, "login": login, **(jwt or {})}
    async with run_gateway(folder, model, jwt=entry, **config) as gateway:
        yield gateway


def rename_cookie(browser: LoginBrowser, other: LoginBrowser) -> str:
    """The session's cookie as a browser sends it to another gateway with the same address but for the port."""
    value = browser.session.cookie_jar.filter_cookies(URL(browser.url))[
        f"holodeck_session_{URL(browser.url).port}"
    ].value
    return f"holodeck_session_{URL(other.url).port}={value}"
