"""An answer in the format that was asked for: filled from what the tools said, or words that say why it is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput
from holodeck.models.model_io import ToolSpec
from holodeck.providers.rehearsal.arguments import fill_arguments
from holodeck.providers.rehearsal.extract import find_entities
from holodeck.providers.rehearsal.schema_fields import Role, list_fields
from holodeck.providers.rehearsal.speech import LABEL
from holodeck.providers.tool_schemas import adapt_tool


def format_answer(
    answer: str, schema: Mapping[str, Any], results: Sequence[tuple[FunctionCall, FunctionCallOutput]]
) -> str:
    """The answer as JSON when the schema wants one text, or only what the tools' answers contain."""
    spec = adapt_tool(ToolSpec(name="answer", parameters=schema), "generic").spec
    wanted = [field for field in list_fields(spec.parameters) if field.is_required]
    if len(wanted) == 1 and wanted[0].role is Role.TEXT and len(wanted[0].path) == 1 and not wanted[0].is_many:
        return json.dumps({wanted[0].path[0]: f"{LABEL} {answer}"}, ensure_ascii=False)
    text = "\n".join(part.text for _, output in results for part in output.content if isinstance(part, TextContent))
    filled = fill_arguments(spec, text, find_entities(text))
    if filled.missing or not filled.arguments:
        return f"{LABEL} {answer}\n(This does not fit the format that was asked for: fixed rules cannot write it.)"
    return json.dumps(filled.arguments, ensure_ascii=False)
