"""`/v1/keys`: the keys of callers in the gateway's file, made, changed, replaced and removed by its operator.

A change edits the file and has it read again before the reply, so that a new key works at once and a removed one does
not. The key itself is in the reply to its creation, and nowhere else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from holodeck.config.edit.caller_keys import (
    SETTINGS,
    CallerKeyFile,
    DuplicateKeyError,
    LastKeyError,
    UnknownKeyError,
    build_entry,
    describe_entry,
    has_reference,
)
from holodeck.config.gateway_loader import is_gateway
from holodeck.gateway.api import examples
from holodeck.gateway.api.models.other_bodies import CreateKey, RotateKey, UpdateKey
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import hash_key, new_key
from holodeck.gateway.configuration import ConfigurationHolder, ReloadOutcome
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib import log
from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.models.callers import KEY_CALLER_PREFIX, CallerKey, without_key_id

_NO_KEYS = (
    "This gateway has no keys: everything on this machine may use it. Make the first key at its terminal, with "
    "'holodeck keys create ops --admin -f gateway.yaml'."
)
_NO_FILE = "This gateway has no file of its own for keys, because it serves one agent file. Write a gateway.yaml."
_NOT_READ = "This gateway does not read its file again while it runs. Change it at its terminal, and restart it."
_NOT_APPLIED = "The file was changed, and the gateway does not apply it: see GET /v1/config. {problem}"

# In front of the key of a problem that was found in the whole file.
_IN_FILE = re.compile(r"^keys\[\d+\]\.?")

T = TypeVar("T")

_operator_route = partial(route, tag="Keys", is_admin=True, is_unscoped=True, is_counted=False)


class KeyEndpoints:
    """Routes of keys, for operators."""

    def __init__(
        self,
        configurations: ConfigurationHolder,
        *,
        reload: Callable[[], Awaitable[bool]],
        get_outcome: Callable[[], ReloadOutcome | None],
        open_file: Callable[[], CallerKeyFile | None],
        budgets: Budgets,
    ) -> None:
        """`reload` reads the files again, and returns False if they are refused; `get_outcome` then says why.

        `open_file` returns the keys of the gateway's file; None: the gateway does not read it again.
        """
        self._configurations = configurations
        self._reload = reload
        self._get_outcome = get_outcome
        self._open_file = open_file
        self._budgets = budgets

    @_operator_route(
        "GET",
        "/v1/keys",
        id="listKeys",
        summary="List the keys",
        description=(
            "The callers that have a key, with what they may use and what they have spent of their budgets. Keys "
            "themselves are not stored."
        ),
        reply="KeyList",
        example={"object": "list", "data": [{**examples.KEY, "spending": examples.SPENDING}]},
        errors=("storage",),
        is_plain_read=True,
    )
    async def list_keys(self, request: Request) -> Reply:
        gateway = self._configurations.current.gateway
        return json_reply({"object": "list", "data": [await self._list_key(key) for key in gateway.keys]})

    async def _list_key(self, key: CallerKey) -> dict[str, Any]:
        state = await self._budgets.read_state(key.caller_id)
        return {**_key_resource_of(_entry_of(key)), "spending": None if state is None else state.to_resource()}

    @_operator_route(
        "POST",
        "/v1/keys",
        id="createKey",
        summary="Create a key",
        description=(
            "`key` is in this reply and nowhere else. A gateway without keys makes none: the first one is made at "
            "its terminal, with `holodeck keys create`."
        ),
        body="CreateKey",
        example_body={"name": "alice", "allow": {"models": ["small*"]}},
        reply="NewKey",
        example={**examples.KEY, "key": "hd-..."},
        errors=("fields", "file"),
    )
    async def create(self, request: Request) -> Reply:
        sent, key = read_body(CreateKey, request.json()), new_key()
        settings = _list_settings(sent)
        entry = build_entry(sent.name, hash_key(key))
        entry |= {field: value for field, value in settings.items() if value is not None and value is not False}
        await self._edit(lambda file: file.add(entry))
        log.warning("key.created", name=entry["name"], is_admin=bool(entry.get("admin")), caller=request.caller.id)
        return json_reply({**_key_resource_of(entry), "key": key})

    @_operator_route(
        "POST",
        "/v1/keys/update",
        id="updateKey",
        summary="Change what a key may do",
        description=(
            "The key itself stays the same. A setting that is given replaces that of the key, null removes it, and one "
            "that is left out stays. The key of the request itself cannot lose its operator rights, or get a scope."
        ),
        body="UpdateKey",
        example_body={"name": "alice", "allow": {"models": ["small*"]}, "budget": None},
        reply="Key",
        example=examples.KEY,
        errors=("fields", "file", "lookup"),
    )
    async def update(self, request: Request) -> Reply:
        sent = read_body(UpdateKey, request.json())
        name, changes = sent.name, _list_settings(sent)
        given = list(changes)
        if not changes:
            listed = ", ".join(SETTINGS)
            refuse(f"Give one of these at least: {listed}.", SETTINGS[0], "missing_required_parameter")
        if changes.get("admin") is False:
            # What no entry needs to say.
            changes["admin"] = None
        _require_other_key(request, name, changes)
        await self._edit(lambda file: file.update(name, lambda _: changes))
        log.warning("key.updated", name=name, fields=given, caller=request.caller.id)
        keys = self._configurations.current.gateway.keys
        updated = next((key for key in keys if key.name == name), None)
        if updated is None:
            raise APIError(404, f"'keys' has no '{name}' any more.", kind="not_found", code="not_found")
        return json_reply(_key_resource_of(_entry_of(updated)))

    @_operator_route(
        "POST",
        "/v1/keys/rotate",
        id="rotateKey",
        summary="Give a caller a new key",
        description="What the caller has stored stays its own. With `grace_seconds` the key before works as well.",
        body="RotateKey",
        example_body={"name": "alice", "grace_seconds": 86400},
        reply="NewKey",
        example={**examples.KEY, "key": "hd-..."},
        errors=("fields", "file", "lookup"),
    )
    async def rotate(self, request: Request) -> Reply:
        sent = read_body(RotateKey, request.json())
        name, key, grace = sent.name, new_key(), timedelta(seconds=sent.grace_seconds) if sent.grace_seconds else None
        entry = await self._edit(lambda file: file.rotate(name, hash_key(key), grace))
        log.warning("key.rotated", name=name, caller=request.caller.id)
        return json_reply({**_key_resource_of(entry), "key": key})

    @_operator_route(
        "DELETE",
        "/v1/keys/{name}",
        id="deleteKey",
        summary="Revoke a key",
        description="What runs for the caller is cancelled. The key of the request itself cannot be revoked by it.",
        reply="DeletedKey",
        example={"name": "alice", "object": "key.deleted", "deleted": True},
        errors=("file", "lookup"),
        may_have_slashes=True,
    )
    async def delete(self, request: Request) -> Reply:
        name = request.path_params["name"]
        if _is_own_key(request, name):
            message = "This is the key of this request: remove it with another operator's key, or at the terminal."
            raise APIError(409, message, kind="invalid_request", code="key_in_use")
        await self._edit(lambda file: file.remove(name))
        log.warning("key.revoked", name=name, caller=request.caller.id)
        return json_reply({"name": name, "object": "key.deleted", "deleted": True})

    async def _edit(self, edit: Callable[[CallerKeyFile], T]) -> T:
        """Change the file in a thread, and apply it. Raises `APIError` for what cannot be done."""
        current = self._configurations.current
        if not is_gateway(current.loaded.path, str(current.loaded.path)):
            raise APIError(409, _NO_FILE, kind="invalid_request", code="not_changeable")
        if not current.gateway.keys:
            raise APIError(409, _NO_KEYS, kind="invalid_request", code="not_changeable")
        file = self._open_file()
        if file is None:
            raise APIError(409, _NOT_READ, kind="invalid_request", code="not_changeable")
        try:
            result = await asyncio.to_thread(edit, file)
        except DuplicateKeyError as error:
            raise APIError(409, _text_of(error), kind="invalid_request", code="key_exists", param="name") from None
        except UnknownKeyError as error:
            raise APIError(404, _text_of(error), kind="not_found", code="not_found") from None
        except LastKeyError as error:
            raise APIError(409, _text_of(error), kind="invalid_request", code="key_in_use") from None
        except ConfigError as error:
            refuse(_text_of(error), _IN_FILE.sub("", error.problems[0].key or "") or "name")
        except ExecutionError as error:
            raise APIError(409, str(error), kind="invalid_request", code="not_changeable") from None
        if not await self._reload():
            outcome = self._get_outcome()
            problems = outcome.problems if outcome is not None else ()
            message = _NOT_APPLIED.format(problem=" ".join(problem.message for problem in problems))
            raise APIError(409, message, kind="invalid_request", code="not_applied")
        return result


def _is_own_key(request: Request, name: str) -> bool:
    return without_key_id(request.caller.id) == f"{KEY_CALLER_PREFIX}{name}"


def _require_other_key(request: Request, name: str, changes: Mapping[str, Any]) -> None:
    """Refuse a change by which the operator would lose these routes."""
    if not _is_own_key(request, name):
        return
    for param, is_lost, what in (
        ("admin", "admin" in changes and changes["admin"] is None, "take its operator rights"),
        ("allow", changes.get("allow") is not None, "give it a scope"),
    ):
        if is_lost:
            message = f"This is the key of this request: {what} with another operator's key, or at the terminal."
            raise APIError(409, message, kind="invalid_request", code="key_in_use", param=param)


def _list_settings(sent: CreateKey) -> dict[str, Any]:
    """Return the settings of a key that were sent. A variable in one is refused: the list of keys would have it."""
    settings = {field: getattr(sent, field) for field in SETTINGS if field in sent.model_fields_set}
    for field, value in settings.items():
        if has_reference(value):
            refuse(f"Invalid '{field}': only the file itself can refer to variables, with '${{...}}'.", field)
    return settings


def _entry_of(key: CallerKey) -> dict[str, Any]:
    """Return a key in force as an entry of the file."""
    return key.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _key_resource_of(entry: dict[str, Any]) -> dict[str, Any]:
    return {"object": "key", **describe_entry(entry)}


def _text_of(error: ConfigError) -> str:
    """Return the first problem without the path of the file, which is the operator's own."""
    problem = error.problems[0]
    return " ".join(part for part in (f"{problem.message}.", problem.fix) if part)
