"""Builds the callers of a gateway from its configuration: the one place that decides which providers are asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holodeck.gateway.auth.callers import APIKeys, CallerProvider, Callers
from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.models.gateway import GatewayFile


def build_callers(gateway: GatewayFile, folder: Path) -> Callers:
    """Build the callers of a file, with their scopes. `folder`: of the gateway file, for the key set of `jwt`."""
    return Callers(build_providers(gateway, folder))


def build_providers(
    gateway: GatewayFile, folder: Path, earlier: Sequence[CallerProvider] = ()
) -> Sequence[CallerProvider]:
    """Build the providers of a file. One of `earlier` that is defined the same is used on: it has fetched its keys."""
    providers: list[CallerProvider] = []
    if gateway.keys:
        providers.append(APIKeys(gateway.keys))
    if gateway.jwt is not None:
        same = (each for each in earlier if isinstance(each, JWTProvider) and each.config == gateway.jwt)
        providers.append(next(same, None) or JWTProvider(gateway.jwt, folder))
    return providers
