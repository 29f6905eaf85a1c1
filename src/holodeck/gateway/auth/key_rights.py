"""The keys that a caller may see, make and change.

An operator may do all of that with every key, and a viewer sees every key. A caller with the role `keys` has the keys
of its group, but those with a role, which only operators give. A person with a token and a group has the keys
that it has made for itself. These end with time, since nothing tells the gateway that a person has left the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from holodeck.gateway.auth.callers import Caller
from holodeck.lib.record import record
from holodeck.models.callers import CallerKey

# Days for which a person's own key is accepted at most, and unless it is made for less: a quarter.
OWN_KEY_DAYS = 90
# Keys that one person has at once: one for each program that it uses.
MAX_OWN_KEYS = 20

Managed = Literal["all", "group", "own"]
"""Whose keys a caller may make and change."""
# What only an operator decides.
_OPERATORS_SETTINGS = ("role", "group")


@record
class KeyRights:
    """The rights of one caller over keys."""

    caller: Caller
    manages: Managed | None
    """None: it only sees them."""

    def has(self, key: CallerKey) -> bool:
        """Return whether the caller sees a key."""
        match self.manages:
            case "group":
                return key.group == self.caller.group
            case "own":
                return key.owner == self.caller.id
            case _:
                return True

    def may_change(self, key: CallerKey) -> bool:
        """Return whether the caller may change a key that it sees."""
        is_member = key.role is None or key.caller_id == self.caller.id
        return self.manages is not None and (self.manages != "group" or is_member)

    def find_operators_setting(self, settings: Mapping[str, Any]) -> str | None:
        """Return a setting that only an operator may give to a key. None: there is none of them."""
        if self.manages == "all":
            return None
        return next((name for name in _OPERATORS_SETTINGS if settings.get(name) is not None), None)

    def bind(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of a key as this caller may have it: of its group, and its own where it is a person."""
        if self.manages == "all":
            return dict(entry)
        if self.manages == "group":
            return {**entry, "group": self.caller.group}
        last = (datetime.now(UTC) + timedelta(days=OWN_KEY_DAYS)).replace(microsecond=0)
        expires = entry.get("expires") or last.isoformat().replace("+00:00", "Z")
        return {**entry, "group": self.caller.group, "owner": self.caller.id, "expires": expires}


def find_key_rights(caller: Caller) -> KeyRights | None:
    """Return what a caller may do with keys. None: nothing."""
    if caller.can_read_all_figures:
        return KeyRights(caller=caller, manages="all" if caller.can_read_all_callers else None)
    if caller.group is None:
        return None
    if caller.role == "keys":
        return KeyRights(caller=caller, manages="group")
    return KeyRights(caller=caller, manages="own") if caller.issuer else None


def has_long_life(key: CallerKey) -> bool:
    """Return whether a person's own key would be accepted for longer than it may."""
    # A minute, so that the longest time may also be asked for.
    latest = datetime.now(UTC) + timedelta(days=OWN_KEY_DAYS, minutes=1)
    return key.owner is not None and (key.expires is None or key.expires > latest)
