"""`reference/request-fields.md`: what the gateway does with each field of a request, from the tables of fields."""

from __future__ import annotations

import json
from collections.abc import Sequence

from generate.markdown import NOTICE, code, fence, join_blocks, table
from holodeck.gateway.api.field_rows import DESCRIBED, NOT_SENT, REFUSED, RequestField, Treatment
from holodeck.gateway.wire.chat.field_table import CHAT_FIELDS
from holodeck.gateway.wire.messages.field_table import MESSAGES_FIELDS
from holodeck.gateway.wire.request.field_table import COMPACT_FIELDS, RESPONSE_FIELDS

_INTRO = """\
Look up here what becomes of a field of your request. Every field that OpenAI's and Anthropic's packages can send
has a line.

- **Done here**: the gateway does it.
- **Passed on**: the model gets it. What it does with it is up to the model.
- **No effect**: the gateway accepts it, so that your client works, and does nothing with it.
- **Refused**: the request fails with the status 400, and the error says why.

A refusal names the field twice, in its message and in its `param`:"""

_GATEWAY_FILE = """\
# gateway.yaml
models:
  - name: demo
    model:
      provider: rehearsal
      name: rehearsal"""

_REQUEST = """\
curl -s localhost:8080/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -d '{"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "n": 2}'"""

_REFUSAL = """\
{"error":{"message":"Unsupported parameter: 'n'. This gateway gives one answer to a request.","type":"invalid_request",\
"code":"unsupported_parameter","param":"n"}}"""

_RULES = """\
A `type` or another value that is refused has the code `invalid_value`, and the message lists the values that are
possible. A field that is not on this page is refused with the code `unknown_parameter`, so you notice a spelling
mistake. A field that is null counts as one that is left out.

Which fields a model can get depends on the API of its provider: **Chat Completions** (Azure OpenAI, Ollama, and every
`openai_compatible` server), **Responses** (OpenAI) or **Messages** (Anthropic). The lists of fields that are passed on
say under which name each of them gets a field. *Not sent* means that the API has no such field, and the request
goes on without it. *Refused* means that the request fails with the code `unsupported_parameter`."""

_APIS: tuple[tuple[str, str, Sequence[RequestField]], ...] = (
    (
        "Responses",
        "The body of `POST /v1/responses`. A message of a WebSocket has the same fields, without `stream`, "
        "`stream_options` and `background`.",
        RESPONSE_FIELDS,
    ),
    ("Chat Completions", "The body of `POST /v1/chat/completions`.", CHAT_FIELDS),
    (
        "Messages",
        "The body of `POST /v1/messages`. Its errors have Anthropic's form, which has no `param`: the message names "
        "the field. With `request_servers`, `mcp_servers` and tools of the type `mcp_toolset` are **done here**; with "
        "`builtin_tools`, `web_search_*` and `web_fetch_*` are.",
        MESSAGES_FIELDS,
    ),
    ("Compact", "The body of `POST /v1/responses/compact`.", COMPACT_FIELDS),
)

_SEE_ALSO = """\
## See also

- [HTTP API](http-api.md): the routes, and the fields that they take
- [Objects of the HTTP API](http-objects.md): which values a field can have
- [Errors](errors.md)"""


def build_page() -> str:
    """Return the page."""
    example = [
        fence(_GATEWAY_FILE, "yaml"),
        fence("holodeck serve gateway.yaml &", "bash"),
        fence(_REQUEST, "bash"),
        fence(_REFUSAL),
    ]
    blocks = ["# Request fields", NOTICE, _INTRO, *example, _RULES]
    for title, about, rows in _APIS:
        blocks += [f"## {title}", about]
        blocks += _section(title, "Done here", ("Field", "What happens"), rows, "done")
        blocks += _section(
            title, "Passed on", ("Field", "Chat Completions", "Responses", "Messages", "Notes"), rows, "passed_on"
        )
        blocks += _section(title, "No effect", ("Field", "Why"), rows, "no_effect")
        blocks += _section(title, "Refused", ("Field", "Accepted value", "Reason in the message"), rows, "refused")
    return join_blocks([*blocks, _SEE_ALSO])


def _section(
    api: str, title: str, columns: Sequence[str], rows: Sequence[RequestField], treatment: Treatment
) -> list[str]:
    cells = [_cells(row) for row in rows if row.treatment == treatment]
    return [f"### {api}: {title.lower()}", table(columns, cells)] if cells else []


def _cells(row: RequestField) -> tuple[str, ...]:
    name = code(row.path if row.value is None else f"{row.path}: {row.value}")
    if row.treatment == "passed_on":
        places = (row.sent_as["chat"], row.sent_as["responses"], row.sent_as["anthropic"])
        return (name, *map(_place, places), row.about)
    if row.treatment == "refused":
        return (name, "" if row.harmless is None else code(json.dumps(row.harmless)), row.about)
    return (name, row.about)


def _place(place: str) -> str:
    return f"*{place}*" if place in (REFUSED, NOT_SENT, DESCRIBED) else code(place)
