"""`/v1/keys`: the keys of callers, made, changed, replaced and revoked by operators.

They are in the store, which all gateways of the database share, and in force at each of them within a second; at the
gateway that is asked, when it replies. Keys of the gateway's file are listed as well, and changed only in the file. The
key itself is in the reply to its creation, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import orjson

from holodeck.config.edit.caller_keys import (
    SETTINGS,
    build_entry,
    check_entry,
    describe_entry,
    format_expiry,
    has_reference,
)
from holodeck.config.known_keys import closest_match
from holodeck.config.lint import describe_unpriced_models
from holodeck.gateway.api import examples
from holodeck.gateway.api.models.other_bodies import CreateKey, RotateKey, UpdateKey
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import Caller, Callers, hash_key, new_key
from holodeck.gateway.auth.key_rights import (
    MAX_OWN_KEYS,
    OWN_KEY_DAYS,
    KeyRights,
    find_key_rights,
    has_long_life,
)
from holodeck.gateway.auth.stored_keys import KnownKey, StoredKeys
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.errors import APIError, check_role
from holodeck.gateway.http.parameters import TextParameter, build_limit, item_not_listed_error
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib import log
from holodeck.lib.errors import ConfigError
from holodeck.lib.json.parse import parse_json
from holodeck.models.callers import CallerGroup, CallerKey
from holodeck.storage.caller_keys import CallerKeyStore, StoredKey

_NO_KEYS = (
    "This gateway has no keys: everything on this machine may use it. Make the first key at its terminal, with "
    "'holodeck keys create ops --role operator -f gateway.yaml'."
)
_IN_FILE = "The key '{name}' is in the gateway's file, and is changed there: edit the file, and the gateway applies it."
_CHANGED_MEANWHILE = "Somebody else has changed the key '{name}' at the same moment. Look at it, and try again."
# Settings that no operator can change for the own key: the request would be its last.
_OWN_SETTINGS = {
    "role": "give it another role",
    "allow": "give it a scope",
    "group": "put it into a group",
    "expires": "let it expire",
    "paused": "pause it",
}

_key_route = partial(route, tag="Keys", is_unscoped=True, is_counted=False)
_change_route = partial(_key_route, roles=("operator", "keys"), checks_caller=True)
_MEMBERS = (
    " A caller with the role `keys` has the keys of its group, and a person with a token who is in a group its own."
)
_LIMIT = build_limit("Keys")
_AFTER = TextParameter(name="after", about="The `caller_id` of the last key of the page before.")
_TEXT = TextParameter(name="text", about="Only keys whose names have this in them, in any case.")


class KeyEndpoints:
    """Routes of keys."""

    def __init__(
        self,
        configurations: ConfigurationHolder,
        *,
        callers: Callers,
        keys: StoredKeys,
        store: CallerKeyStore,
        budgets: Budgets,
        store_uses: Callable[[], Awaitable[None]],
    ) -> None:
        """`store_uses`: stores which callers this gateway has seen by now."""
        self._configurations = configurations
        self._callers = callers
        self._keys = keys
        self._store = store
        self._budgets = budgets
        self._store_uses = store_uses

    @_key_route(
        "GET",
        "/v1/keys",
        roles=("operator", "viewer", "keys"),
        checks_caller=True,
        id="listKeys",
        summary="List the keys",
        description=(
            "The callers that have a key, with what they may use, when they were last seen, and what they have spent "
            "of their budgets: those of the gateway's file, then those of the store by name. Keys themselves are not "
            "stored." + _MEMBERS
        ),
        query=(_LIMIT, _AFTER, _TEXT),
        reply="KeyList",
        example={
            "object": "list",
            "data": [{**examples.KEY, "last_used_at": 1781000000, "spending": examples.SPENDING}],
            "has_more": False,
            "manages": "all",
        },
        errors=("query", "storage"),
        is_plain_read=True,
    )
    async def list_keys(self, request: Request) -> Reply:
        rights = _require_rights(request.caller)
        limit, after, text = _LIMIT.read(request.query), _AFTER.read(request.query), _TEXT.read(request.query)
        found: list[CallerKey | KnownKey] = [*self._configurations.current.gateway.keys, *self._keys.list_keys()]
        if rights.manages in ("group", "own"):
            found = [each for each in found if rights.has(_key_of(each))]
        if text:
            found = [each for each in found if text.lower() in _key_of(each).name.lower()]
        start = 0
        if after is not None:
            places = [place for place, each in enumerate(found) if _key_of(each).caller_id == after]
            if not places:
                raise item_not_listed_error(after)
            start = places[0] + 1
        page = found[start : start + limit]
        await self._store_uses()
        uses = await self._store.read_uses([_key_of(each).caller_id for each in page])
        data = [await self._list_key(each, uses) for each in page]
        return json_reply(
            {"object": "list", "data": data, "has_more": len(found) > start + limit, "manages": rights.manages}
        )

    async def _list_key(self, listed: CallerKey | KnownKey, uses: Mapping[str, float]) -> dict[str, Any]:
        key = _key_of(listed)
        state, used_at = await self._budgets.read_state(key.caller_id), uses.get(key.caller_id)
        return {
            **(_resource_of_file(listed) if isinstance(listed, CallerKey) else _resource_of(listed)),
            "last_used_at": None if used_at is None else int(used_at),
            "spending": None if state is None else state.to_resource(),
        }

    @_key_route(
        "GET",
        "/v1/groups",
        roles=("operator", "viewer", "keys"),
        checks_caller=True,
        id="listGroups",
        summary="List the groups",
        description=(
            "The groups of callers that the gateway's file has, with what their members have spent of the budgets. A "
            "caller with the role `keys` sees its own."
        ),
        reply="GroupList",
        example={"object": "list", "data": [examples.GROUP]},
        errors=("storage",),
        is_plain_read=True,
    )
    async def list_groups(self, request: Request) -> Reply:
        rights = _require_rights(request.caller)
        groups = self._configurations.current.gateway.groups
        if rights.manages in ("group", "own"):
            groups = [group for group in groups if group.name == request.caller.group]
        return json_reply({"object": "list", "data": [await self._list_group(group) for group in groups]})

    async def _list_group(self, group: CallerGroup) -> dict[str, Any]:
        state, settings = await self._budgets.read_state(group.id), group.model_dump(mode="json", exclude_unset=True)
        return {
            "object": "group",
            "name": group.name,
            **{field: settings.get(field) for field in ("allow", "limits", "budget")},
            "claim_values": group.claim_values,
            "spending": None if state is None else state.to_resource(),
        }

    @_change_route(
        "POST",
        "/v1/keys",
        id="createKey",
        summary="Create a key",
        description=(
            "`key` is in this reply and nowhere else. A gateway without keys makes none: the first one is made at "
            f"its terminal, with `holodeck keys create`.{_MEMBERS} Such an own key is in the group of the person, is "
            f"charged to the person as well, and expires within {OWN_KEY_DAYS} days; there are {MAX_OWN_KEYS} at most."
        ),
        body="CreateKey",
        example_body={"name": "alice", "allow": {"models": ["small*"]}},
        reply="NewKey",
        example={**examples.KEY, "key": "hd-..."},
        errors=("fields", "keys", "storage"),
    )
    async def create(self, request: Request) -> Reply:
        rights, sent, key = _require_manager(request.caller), read_body(CreateKey, request.json()), new_key()
        settings = {field: value for field, value in _list_settings(sent).items() if value is not None}
        _check_settings(rights, settings)
        entry = rights.bind({**build_entry(sent.name, hash_key(key)), **settings})
        self._require_keys()
        if rights.manages == "own" and sum(rights.has(each.key) for each in self._keys.list_keys()) >= MAX_OWN_KEYS:
            message = f"You have {MAX_OWN_KEYS} keys, which is the most. Revoke one of them first."
            raise APIError(409, message, kind="invalid_request", code="too_many_keys")
        if self._is_in_file(sent.name) and self._keys.find_key(sent.name) is None:
            raise _exists_error(sent.name)
        self._check(entry, f"the key '{sent.name}'")
        if not await self._store.add_key(sent.name, orjson.dumps(entry), request.caller.id):
            raise _exists_error(sent.name)
        log.warning("key.created", name=sent.name, role=entry.get("role"), caller=request.caller.id)
        return json_reply({**await self._apply(sent.name), "key": key})

    @_change_route(
        "POST",
        "/v1/keys/update",
        id="updateKey",
        summary="Change what a key may do",
        description=(
            "The key itself stays the same. A setting that is given replaces that of the key, null removes it, and one "
            "that is left out stays. The key of the request itself cannot lose its role, get a scope, be paused or "
            "expire."
        ),
        body="UpdateKey",
        example_body={"name": "alice", "allow": {"models": ["small*"]}, "budget": None},
        reply="Key",
        example=examples.KEY,
        errors=("fields", "keys", "lookup", "storage"),
    )
    async def update(self, request: Request) -> Reply:
        rights, sent = _require_manager(request.caller), read_body(UpdateKey, request.json())
        changes = _list_settings(sent)
        if not changes:
            listed = ", ".join(SETTINGS)
            refuse(f"Give one of these at least: {listed}.", SETTINGS[0], "missing_required_parameter")
        stored = await self._require_stored(sent.name, rights)
        entry = _entry_of(stored)
        _check_settings(rights, {field: value or "" for field, value in changes.items()})
        if _is_own_key(request, entry):
            _check_own_changes(entry, changes)
        new = {field: value for field, value in {**entry, **changes}.items() if value is not None}
        self._check(new, f"the key '{sent.name}'")
        await self._change(stored, new)
        log.warning("key.updated", name=sent.name, fields=list(changes), caller=request.caller.id)
        return json_reply(await self._apply(sent.name))

    @_change_route(
        "POST",
        "/v1/keys/rotate",
        id="rotateKey",
        summary="Give a caller a new key",
        description="What the caller has stored stays its own. With `grace_seconds` the key before works as well.",
        body="RotateKey",
        example_body={"name": "alice", "grace_seconds": 86400},
        reply="NewKey",
        example={**examples.KEY, "key": "hd-..."},
        errors=("fields", "keys", "lookup", "storage"),
    )
    async def rotate(self, request: Request) -> Reply:
        rights, sent, key = _require_manager(request.caller), read_body(RotateKey, request.json()), new_key()
        stored = await self._require_stored(sent.name, rights)
        entry = _entry_of(stored)
        new = {field: value for field, value in entry.items() if not field.startswith("old_hash")}
        new["hash"] = hash_key(key)
        if sent.grace_seconds:
            new["old_hash"] = entry["hash"]
            new["old_hash_expires"] = format_expiry(timedelta(seconds=sent.grace_seconds))
        await self._change(stored, new)
        log.warning("key.rotated", name=sent.name, caller=request.caller.id)
        return json_reply({**await self._apply(sent.name), "key": key})

    @_change_route(
        "DELETE",
        "/v1/keys/{name}",
        id="deleteKey",
        summary="Revoke a key",
        description="What runs for the caller is cancelled. The key of the request itself cannot be revoked by it.",
        reply="DeletedKey",
        example={"name": "alice", "object": "key.deleted", "deleted": True},
        errors=("keys", "lookup", "storage"),
        may_have_slashes=True,
    )
    async def delete(self, request: Request) -> Reply:
        name, rights = request.path_params["name"], _require_manager(request.caller)
        stored = await self._require_stored(name, rights)
        if _is_own_key(request, _entry_of(stored)):
            raise _own_key_error("remove it", None)
        await self._change(stored, None)
        log.warning("key.revoked", name=name, caller=request.caller.id)
        await self._keys.refresh()
        return json_reply({"name": name, "object": "key.deleted", "deleted": True})

    async def _apply(self, name: str) -> dict[str, Any]:
        """Accept the keys as they are now, and return one of them. Nothing may be awaited after it.

        The request is cancelled by that where its own key is replaced, and has its reply nevertheless.
        """
        await self._keys.refresh()
        known = self._keys.find_key(name)
        if known is None:
            message = _CHANGED_MEANWHILE.format(name=name)
            raise APIError(409, message, kind="invalid_request", code="key_changed")
        return _resource_of(known)

    def _require_keys(self) -> None:
        if self._callers.has_no_auth:
            raise APIError(409, _NO_KEYS, kind="invalid_request", code="no_keys")

    async def _require_stored(self, name: str, rights: KeyRights) -> StoredKey:
        """Return a key of the store as it is at this moment. Raises `APIError` for one that cannot be changed here."""
        self._require_keys()
        stored = await self._store.get_key(name)
        if stored is None:
            in_file = (key for key in self._configurations.current.gateway.keys if key.name == name)
            if any(rights.has(key) for key in in_file):
                raise APIError(409, _IN_FILE.format(name=name), kind="invalid_request", code="key_in_file")
            raise self._missing_error(name, rights)
        key = CallerKey.model_validate(_entry_of(stored))
        if not rights.has(key):
            raise self._missing_error(name, rights)
        if not rights.may_change(key):
            message = f"The key '{name}' has a role, so only an operator may change it."
            raise APIError(403, message, kind="invalid_request", code="forbidden")
        return stored

    def _is_in_file(self, name: str) -> bool:
        return any(key.name == name for key in self._configurations.current.gateway.keys)

    def _missing_error(self, name: str, rights: KeyRights) -> APIError:
        names = [known.key.name for known in self._keys.list_keys() if rights.has(known.key)]
        close = closest_match(name, names)
        message = f"There is no key '{name}'." + (f" Did you mean '{close}'?" if close else "")
        return APIError(404, message, kind="not_found", code="not_found")

    async def _change(self, stored: StoredKey, entry: Mapping[str, Any] | None) -> None:
        encoded = None if entry is None else orjson.dumps(entry)
        if not await self._store.change_key(stored.name, stored.change, encoded):
            message = _CHANGED_MEANWHILE.format(name=stored.name)
            raise APIError(409, message, kind="invalid_request", code="key_changed")

    def _check(self, entry: Mapping[str, Any], shown_as: str) -> None:
        """Refuse an entry that a gateway's file could not have."""
        try:
            check_entry(entry, shown_as=shown_as)
        except ConfigError as error:
            refuse(_text_of(error), error.problems[0].key or "name")
        current = self._configurations.current
        key = CallerKey.model_validate(entry)
        group = next((each for each in current.gateway.groups if each.name == key.group), None)
        if key.group is not None and group is None:
            names = [each.name for each in current.gateway.groups]
            listed = f"There are: {', '.join(names)}." if names else "Its file has none."
            refuse(f"Invalid 'group': this gateway has no group '{key.group}'. {listed}", "group")
        if has_long_life(key):
            refuse(f"Invalid 'expires': a key of one's own ends within {OWN_KEY_DAYS} days.", "expires")
        if key.budget is not None:
            scopes = None if key.allow is None else [key.allow]
            within = None if group is None else group.allow
            message, fix = describe_unpriced_models(current.gateway, current.loaded.agents, scopes, within=within)
            if message:
                refuse(f"{message}. {fix}", "budget")


def _require_rights(caller: Caller) -> KeyRights:
    """Return what a caller may do with keys. Raises `APIError` for one that may not even see any."""
    rights = find_key_rights(caller)
    if rights is None:
        check_role(caller, ("operator", "viewer"), is_unscoped=True)
        message = "Keys of one's own are for persons with a token who are in a group of this gateway."
        raise APIError(403, message, kind="invalid_request", code="forbidden")
    return rights


def _require_manager(caller: Caller) -> KeyRights:
    """Return what a caller may do with keys. Raises `APIError` for one that may change none."""
    rights = _require_rights(caller)
    if rights.manages is None:
        check_role(caller, ("operator",), is_unscoped=True)
    return rights


def _check_settings(rights: KeyRights, settings: Mapping[str, Any]) -> None:
    field = rights.find_operators_setting(settings)
    if field is not None:
        message = f"Only an operator may give a key another {field}."
        raise APIError(403, message, kind="invalid_request", code="forbidden", param=field)


def _key_of(listed: CallerKey | KnownKey) -> CallerKey:
    return listed if isinstance(listed, CallerKey) else listed.key


def _resource_of_file(key: CallerKey) -> dict[str, Any]:
    entry = key.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return _build_resource(key, entry, "file", made_at=None, made_by=None)


def _resource_of(known: KnownKey) -> dict[str, Any]:
    return _build_resource(known.key, known.entry, "store", made_at=int(known.made_at), made_by=known.made_by)


def _build_resource(
    key: CallerKey, entry: Mapping[str, Any], source: str, *, made_at: int | None, made_by: str | None
) -> dict[str, Any]:
    return {
        "object": "key",
        **describe_entry(entry),
        "caller_id": key.caller_id,
        "source": source,
        "made_at": made_at,
        "made_by": made_by,
    }


def _entry_of(stored: StoredKey) -> dict[str, Any]:
    entry: dict[str, Any] = parse_json(stored.entry or b"{}")
    return entry


def _is_own_key(request: Request, entry: Mapping[str, Any]) -> bool:
    return request.caller.id == CallerKey.model_validate(entry).caller_id


def _check_own_changes(entry: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Refuse a change by which the operator would lose these routes."""
    for field in changes.keys() & _OWN_SETTINGS.keys():
        is_lost = changes[field] != entry.get(field) if field == "role" else bool(changes[field])
        if is_lost:
            raise _own_key_error(_OWN_SETTINGS[field], field)


def _own_key_error(what: str, param: str | None) -> APIError:
    message = f"This is the key of this request: {what} with another operator's key."
    return APIError(409, message, kind="invalid_request", code="key_in_use", param=param)


def _exists_error(name: str) -> APIError:
    message = f"There is a key '{name}' already. Use another name, or give it a new key: POST /v1/keys/rotate."
    return APIError(409, message, kind="invalid_request", code="key_exists", param="name")


def _list_settings(sent: CreateKey) -> dict[str, Any]:
    """Return the settings of a key that were sent. A variable in one is refused: it would mean nothing here."""
    settings = {field: getattr(sent, field) for field in SETTINGS if field in sent.model_fields_set}
    for field, value in settings.items():
        if has_reference(value):
            refuse(f"Invalid '{field}': only the file itself can refer to variables, with '${{...}}'.", field)
    return settings


def _text_of(error: ConfigError) -> str:
    problem = error.problems[0]
    return " ".join(part for part in (f"{problem.message}.", problem.fix) if part)
