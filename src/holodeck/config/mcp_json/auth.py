"""Translation of headers and of authentication, which other programs write as `oauth`, `auth` or `authentication`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.config.mcp_json.tool_draft import ToolDraft

_WELL_KNOWN = "/.well-known/"
_UNSUPPORTED: Mapping[str, str] = {
    "enterpriseManaged": "tokens of an enterprise's identity provider are not exchanged",
    "xaa": "tokens of an enterprise's identity provider are not exchanged",
    "redirectUri": "the redirect goes to a port of this machine; 'callbackPort' names it",
    "tokenParamName": "a token is sent in a header, never in a URL",
}
_OWN_KEY_NAMES: Mapping[str, str] = {
    "clientid": "client_id",
    "clientsecret": "client_secret",
    "scopes": "scopes",
    "scope": "scopes",
    "callbackport": "redirect_port",
    "redirectport": "redirect_port",
    "issuer": "issuer",
    "authservermetadataurl": "issuer",
    "clientmetadataurl": "client_metadata_url",
}


def translate_auth(draft: ToolDraft) -> None:
    """Set `headers` and `auth` of the tool from the keys of the entry."""
    _translate_headers(draft)
    for key in ("auth", "oauth", "authentication"):
        is_present, value = draft.pop(key)
        if not is_present or value in (None, False, {}):
            continue
        if isinstance(value, dict) and "type" in value and key == "auth":
            # This is the form of our own files.
            draft.set_key("auth", value, (key,))
        elif isinstance(value, dict):
            _translate_oauth(draft, key, value)
        elif value is True or value == "oauth":
            draft.set_key("auth", {"type": "oauth_authorization_code"}, (key,))
        elif isinstance(value, str):
            draft.set_key("auth", {"type": "bearer", "token": value}, (key,))
        else:
            draft.refuse((key,), f"'{key}' must be an object")


def _translate_headers(draft: ToolDraft) -> None:
    key, headers = draft.pop("headers", "http_headers")
    if key and headers is not None:
        draft.set_key("headers", _without_null(headers), (key,))
    key, options = draft.pop("requestInit")
    inner = options.get("headers") if isinstance(options, dict) else None
    if inner is not None and "headers" not in draft.tool:
        draft.set_key("headers", _without_null(inner), (key, "headers"))
    elif key:
        draft.warn((key,), "unsupported: only its 'headers' are used, where there are no others")


def _translate_oauth(draft: ToolDraft, key: str, block: Mapping[str, Any]) -> None:
    """Translate a block into the authorization code flow of OAuth, the only one that these blocks describe."""
    if block.get("enabled") is False:
        return
    auth: dict[str, Any] = {"type": "oauth_authorization_code"}
    draft.set_key("auth", auth, (key,))
    for name, value in block.items():
        ours = _OWN_KEY_NAMES.get(name.replace("_", "").lower())
        if name == "enabled" or value is None:
            continue
        if ours is None:
            reason = _UNSUPPORTED.get(name, "HoloDeck has nothing that corresponds to it")
            draft.warn((key, name), f"unsupported: {reason}")
            continue
        auth[ours] = _convert_auth_value(ours, value)
        draft.origins[("auth", ours)] = (key, name)


def _convert_auth_value(name: str, value: Any) -> Any:
    if name == "scopes" and isinstance(value, str):
        return value.split()
    if name == "issuer" and isinstance(value, str):
        origin, _, document = value.partition(_WELL_KNOWN)
        # The tenant of `/.well-known/oauth-authorization-server/tenant`.
        tenant = document.partition("/")[2]
        return f"{origin}/{tenant}" if tenant else origin
    return value


def _without_null(values: Any) -> Any:
    return {name: value for name, value in values.items() if value is not None} if isinstance(values, dict) else values
