"""Which calls a person must approve, as the operator wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from holodeck.models.tool import Approval, MCPTool


def needs_approval(server: MCPTool, tool: str) -> bool:
    """True when a person must be asked first. `never` wins over `always`, so that `*` can have exceptions."""
    approval = server.approval
    if not isinstance(approval, Approval):
        return approval == "always"
    return _matches(tool, approval.always) and not _matches(tool, approval.never)


def _matches(tool: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
