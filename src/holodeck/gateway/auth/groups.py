"""Groups of callers: what their members may use at most, and the accounts that members share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holodeck.gateway.auth.scope import CallerScope
from holodeck.lib.record import record
from holodeck.models.callers import CallerGroup, GroupLimits, Scope


@record
class SharedAccount:
    """An account to which several callers are charged beside their own: that of a group, or of the owner of keys."""

    id: str
    shown_as: str
    """Its owner, as the subject of a sentence to a caller."""
    limits: GroupLimits | None = None
    """None: those of every caller without limits of its own."""


@record
class Group:
    """A group of the gateway's file, as its members need it."""

    name: str
    scope: CallerScope
    account: SharedAccount
    claim_values: Mapping[str, Scope]
    """The scope of the group, by each value of the claim whose tokens are members."""


Groups = Mapping[str, Group]
"""By name, in the order of the file."""


def build_groups(groups: Iterable[CallerGroup]) -> Groups:
    return {group.name: _build_group(group) for group in groups}


def build_owner_account(owner_id: str) -> SharedAccount:
    """Return the account of a person, to which the keys that it has made for itself are charged."""
    return SharedAccount(id=owner_id, shown_as="The owner of this key")


def _build_group(group: CallerGroup) -> Group:
    scope = group.allow or Scope()
    return Group(
        name=group.name,
        scope=CallerScope.of([scope]),
        account=SharedAccount(id=group.id, shown_as=f"The group '{group.name}'", limits=group.limits),
        claim_values=dict.fromkeys(group.claim_values, scope),
    )
