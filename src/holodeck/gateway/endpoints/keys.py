"""`/v1/keys`: the keys of callers in the gateway's file, made, replaced and removed by its operator.

A change edits the file and has it read again before the reply, so that a new key works at once and a removed one does
not. The key itself is in the reply to its creation, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from holodeck.config.edit.caller_keys import CallerKeyFile, DuplicateKeyError, UnknownKeyError, describe_entry
from holodeck.config.gateway_loader import is_gateway
from holodeck.gateway.auth.callers import KEY_CALLER_PREFIX, hash_key, new_key
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse
from holodeck.lib import log
from holodeck.lib.errors import ConfigError, ExecutionError
from holodeck.lib.limits import DAY

# Seconds for which the key before may be accepted as well.
MAX_GRACE_SECONDS = 90 * DAY

_NO_KEYS = (
    "This gateway has no keys: everything on this machine may use it. Make the first key at its terminal, with "
    "'holodeck keys create ops --admin -f gateway.yaml'."
)
_NO_FILE = "This gateway has no file of its own for keys, because it serves one agent file. Write a gateway.yaml."
_NOT_APPLIED = "The file was changed, and the gateway does not apply it: see GET /v1/config. {problem}"

T = TypeVar("T")


class KeyEndpoints:
    """Routes of keys, for operators."""

    def __init__(
        self,
        configurations: ConfigurationHolder,
        *,
        reload: Callable[[], Awaitable[bool]],
        find_problem: Callable[[], str],
    ) -> None:
        """`reload` reads the files again, and returns False if they are refused; `find_problem` then says why."""
        self._configurations = configurations
        self._reload = reload
        self._find_problem = find_problem

    async def list_keys(self, request: Request) -> Reply:
        gateway = self._configurations.current.gateway
        entries = [key.model_dump(mode="json", by_alias=True, exclude_unset=True) for key in gateway.keys]
        return json_reply({"object": "list", "data": [_key_resource_of(entry) for entry in entries]})

    async def create(self, request: Request) -> Reply:
        fields = JSONFields(request.json())
        key = new_key()
        entry = {"name": fields.require_text("name", may_be_empty=False), "hash": hash_key(key)}
        for field in ("admin", "allow", "limits", "budget"):
            value = fields.pop(field)
            if value is not None and value is not False:
                entry[field] = value
        fields.refuse_unread()
        await self._edit(lambda file: file.add(entry))
        log.warning("key.created", name=entry["name"], is_admin=bool(entry.get("admin")), caller=request.caller.id)
        return json_reply({**_key_resource_of(entry), "key": key})

    async def rotate(self, request: Request) -> Reply:
        fields = JSONFields(request.json())
        name = fields.require_text("name", may_be_empty=False)
        seconds = fields.get_integer("grace_seconds", minimum=0, maximum=int(MAX_GRACE_SECONDS))
        fields.refuse_unread()
        key, grace = new_key(), timedelta(seconds=seconds) if seconds else None
        entry = await self._edit(lambda file: file.rotate(name, hash_key(key), grace))
        log.warning("key.rotated", name=name, caller=request.caller.id)
        return json_reply({**_key_resource_of(entry), "key": key})

    async def delete(self, request: Request) -> Reply:
        name = request.path_params["name"]
        if request.caller.id == f"{KEY_CALLER_PREFIX}{name}":
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
        try:
            result = await asyncio.to_thread(edit, CallerKeyFile(current.loaded.path))
        except DuplicateKeyError as error:
            raise APIError(409, _text_of(error), kind="invalid_request", code="key_exists", param="name") from None
        except UnknownKeyError as error:
            raise APIError(404, _text_of(error), kind="not_found", code="not_found") from None
        except ConfigError as error:
            refuse(_text_of(error), error.problems[0].key or "name")
        except ExecutionError as error:
            raise APIError(409, str(error), kind="invalid_request", code="not_changeable") from None
        if not await self._reload():
            message = _NOT_APPLIED.format(problem=self._find_problem())
            raise APIError(409, message, kind="invalid_request", code="not_applied")
        return result


def _key_resource_of(entry: dict[str, Any]) -> dict[str, Any]:
    return {"object": "key", **describe_entry(entry)}


def _text_of(error: ConfigError) -> str:
    """The first problem without the path of the file, which is the operator's own."""
    problem = error.problems[0]
    return " ".join(part for part in (f"{problem.message}.", problem.fix) if part)
