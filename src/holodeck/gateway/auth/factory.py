"""Builds the callers of a gateway from its configuration: the one place that decides which providers are asked."""

from __future__ import annotations

from pathlib import Path

from holodeck.gateway.auth.callers import APIKeys, CallerProvider, Callers
from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.models.gateway import GatewayFile


def build_callers(gateway: GatewayFile, folder: Path) -> Callers:
    """Build the callers of a file, with their scopes. `folder`: of the gateway file, for the key set of `jwt`."""
    providers: list[CallerProvider] = []
    if gateway.keys:
        providers.append(APIKeys(gateway.keys))
    if gateway.jwt is not None:
        providers.append(JWTProvider(gateway.jwt, folder))
    return Callers(providers)
