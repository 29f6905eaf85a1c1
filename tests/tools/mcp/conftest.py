"""What tests of MCP servers share with those of models."""

from __future__ import annotations

from providers.conftest import authority

__all__ = ["authority"]
