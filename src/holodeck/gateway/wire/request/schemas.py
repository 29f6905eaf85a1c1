"""JSON Schemas of one request, within the limits for each schema and for all of them together."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.lib.json.schema import SchemaBudget, SchemaError, SchemaTooLargeError
from holodeck.lib.limits import MIB

# Limits for all schemas of one request together: enough for hundreds of real tools, or four of the largest.
MAX_REQUEST_SCHEMA_BYTES = 1 * MIB
MAX_REQUEST_SCHEMA_NODES = 40_000


class RequestSchemas:
    """Reads the schemas of one request, and adds up their sizes."""

    def __init__(self) -> None:
        self.budget = SchemaBudget(max_bytes=MAX_REQUEST_SCHEMA_BYTES, max_nodes=MAX_REQUEST_SCHEMA_NODES)

    def add(self, schema: dict[str, Any], where: str) -> None:
        """Add the schema at `where`. Raises `BadRequestError`, which names the field."""
        try:
            self.budget.add(schema)
        except SchemaError as error:
            code = "schema_above_max_size" if isinstance(error, SchemaTooLargeError) else "invalid_json_schema"
            refuse(f"Invalid '{where}': {error}.", where, code)
