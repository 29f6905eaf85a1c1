"""Recognises names of secrets and literal secrets, narrowly: `lib.redaction` masks far more than is a finding."""

from __future__ import annotations

import re

_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SECRET_NAME = re.compile(
    r"(?!(?:has|is|no|use|require|allow)_)(?:.*_)?"
    # No other tokens: `page_token` and `next_token` are positions in a list.
    r"(?:api_?keys?|passw(?:or)?d|passphrase|credentials?|client_secret|id_rsa|(?:private|secret|ssh|signing)_key"
    r"|(?:access|auth|api|bearer|refresh|session|oauth|bot|github|gitlab|slack)_token)"
    r"|token|secret|access_key|secret_access_key"
)
# Forms that issuers chose so that their secrets are recognised. A long mix of letters and digits may be an identifier.
_SECRET_VALUE = re.compile(
    r"(?=\D*\d)[sr]k[-_][A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|-----BEGIN .*|Bearer \S{8,}",
    re.DOTALL,
)
_URL_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/@:\s]*:[^/@\s]+@")
_MIN_CHARS = 8


def is_secret_parameter(name: str) -> bool:
    """Return whether the value of a parameter or option of this name is a secret: `apiKey`, `--auth-token`."""
    return _SECRET_NAME.fullmatch("_".join(filter(None, _WORD_BORDER.split(name))).lower()) is not None


def is_literal_secret(option: str, value: str) -> bool:
    """Return whether the value of an option is a secret by its own form or by the name of the option."""
    # `${NAME}` is where a secret comes from, not the secret.
    if "${" in value:
        return False
    if _SECRET_VALUE.fullmatch(value) or _URL_PASSWORD.match(value):
        return True
    return len(value) >= _MIN_CHARS and is_secret_parameter(option) and not value.startswith(("/", "~", "./", "-"))
