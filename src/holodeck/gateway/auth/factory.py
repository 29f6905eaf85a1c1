"""Builds the callers of a gateway from its configuration: the one place that decides which providers are asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.auth.callers import LOCAL_CALLER_ID, APIKeys, CallerProvider, Callers
from holodeck.gateway.auth.groups import build_groups
from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.gateway.auth.person_sessions import PersonSessions
from holodeck.gateway.auth.stored_keys import StoredKeys
from holodeck.lib import log
from holodeck.lib.errors import ConfigError, Problem, StorageError
from holodeck.models.gateway import GatewayFile
from holodeck.storage.caller_keys import CallerKeyStore
from holodeck.storage.usage import DAY, UsageQuery, UsageStore


def build_callers(gateway: GatewayFile, folder: Path, stored: StoredKeys, persons: PersonSessions) -> Callers:
    """Build the callers of a file, with their scopes. `folder`: of the gateway file, for the key set of `jwt`."""
    return Callers(build_providers(gateway, folder, stored, persons), persons)


def build_providers(
    gateway: GatewayFile,
    folder: Path,
    stored: StoredKeys,
    persons: PersonSessions,
    earlier: Sequence[CallerProvider] = (),
) -> Sequence[CallerProvider]:
    """Build the providers of a file. One of `earlier` that is defined the same is used on: it has fetched its keys.

    `stored`: the keys in the store, which are accepted beside others. Without others, there is no authentication.
    `persons`: learn of the identity provider.
    """
    providers: list[CallerProvider] = []
    issuer: JWTProvider | None = None
    groups = build_groups(gateway.groups)
    if gateway.has_auth:
        providers += [APIKeys(gateway.keys, groups), stored]
    if gateway.jwt is not None:
        same = (each for each in earlier if isinstance(each, JWTProvider) and each.is_of(gateway.jwt, groups))
        issuer = next(same, None) or JWTProvider(gateway.jwt, folder, groups)
        providers.append(issuer)
    persons.replace_provider(issuer)
    return providers


async def check_auth_is_not_lost(loaded: LoadedGateway, usage: UsageStore, keys: CallerKeyStore) -> None:
    """Raise `ConfigError` for a gateway file without authentication whose gateway had callers that authenticate.

    Such a file may have been cut. What tells is the usage, or keys, in its storage. The file of an agent has no keys to
    lose.
    """
    gateway = loaded.gateway
    if not loaded.written or gateway.has_auth or gateway.auth == "none":
        return
    query = UsageQuery(period=DAY, start=0, end=int(time.time()) + 1, caller_id=None, groups=("caller_id",))
    try:
        rows, has_keys = await usage.read(query), await keys.has_keys()
    except StorageError as error:
        # A gateway also starts without its database, for what needs none. It listens on loopback.
        log.warning("gateway.callers_unknown", error=error)
        return
    if has_keys or any(caller_id != LOCAL_CALLER_ID for _, (caller_id,), _ in rows):
        message = "the file has neither 'keys' nor 'jwt', and this gateway had callers that authenticate"
        fix = "Put them back. To serve this machine without keys, write 'auth: none'."
        raise ConfigError.of([Problem(message=message, file=str(loaded.path), fix=fix)])
