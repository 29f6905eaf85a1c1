"""The table of generated pages."""

from __future__ import annotations

from collections.abc import Callable

from generate import (
    cli_page,
    console_types,
    environment_page,
    errors_page,
    events_page,
    exit_codes_page,
    file_page,
    http_api_page,
    providers_page,
    python_page,
    request_fields_page,
)

PAGES: dict[str, Callable[[], str]] = {
    "../console/src/api/schema.ts": console_types.build_module,
    "reference/agent-file.md": file_page.build_agent_page,
    "reference/cli.md": cli_page.build_page,
    "reference/config-file.md": file_page.build_config_page,
    "reference/environment.md": environment_page.build_page,
    "reference/errors.md": errors_page.build_page,
    "reference/events.md": events_page.build_page,
    "reference/exit-codes.md": exit_codes_page.build_page,
    "reference/gateway-file.md": file_page.build_gateway_page,
    "reference/http-api.md": http_api_page.build_page,
    "reference/http-objects.md": http_api_page.build_objects_page,
    "reference/providers.md": providers_page.build_page,
    "reference/python.md": python_page.build_page,
    "reference/request-fields.md": request_fields_page.build_page,
}
"""Maps a page, as a path from `docs/`, to the function that returns its text. The types of the console are one, too."""
