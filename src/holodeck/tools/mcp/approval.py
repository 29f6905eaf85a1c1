"""Which calls a person must approve, as the operator wrote it."""

from __future__ import annotations

from fnmatch import fnmatchcase

from holodeck.models.tool import Approval, MCPTool


def needs_approval(server: MCPTool, tool: str) -> bool:
    """True when a person must be asked first. A list of `always` wins over `never`; a tool on neither is free."""
    approval = server.approval
    if isinstance(approval, Approval):
        return any(fnmatchcase(tool, pattern) for pattern in approval.always)
    return approval == "always"
