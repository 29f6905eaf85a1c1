"""`reference/providers.md`: the providers of models, with their addresses and key variables."""

from __future__ import annotations

from generate.markdown import NOTICE, code, join_blocks, table
from holodeck.models.provider import PROVIDER_SPECS, ProviderSpec

_INTRO = """\
These names stand at `provider` in a `model` section, and before the colon in `Agent("groq:NAME")`. `holodeck init`
shows them as a menu. A provider with an address needs no `endpoint`; yours wins. The key is read from the variable if
the file has no `api_key`."""
_MODELS = """\
*Proposed* is the model that `holodeck init` writes if you name none. Makers rename their models: look at their lists if
one is not known any more. A program on your own machine serves the model that you have loaded."""
_COMPATIBLE = """\
All that have OpenAI's Chat Completions API are used alike, as `openai_compatible` with an address of its own would be.
Their addresses and the names of their variables are those that the makers document. Tests use servers on the testing
machine in their place."""


def build_page() -> str:
    """Return the page."""
    rows = [
        (code(provider), spec.label, _code_or_none(spec.key_variable), _code_or_none(spec.default_model))
        for provider, spec in PROVIDER_SPECS.items()
    ]
    addresses = [
        (code(provider), _describe_address(spec)) for provider, spec in PROVIDER_SPECS.items() if spec.is_service
    ]
    return join_blocks(
        [
            "# Providers",
            NOTICE,
            _INTRO,
            table(("`provider`", "What", "Key variable", "Proposed"), rows),
            _MODELS,
            "## Addresses",
            table(("`provider`", "Address"), addresses),
            _COMPATIBLE,
            "See also: [local models](../guides/local-models.md), [agent file](agent-file.md).",
        ]
    )


def _describe_address(spec: ProviderSpec) -> str:
    if spec.needs_endpoint:
        return "your `endpoint`"
    return _code_or_none(spec.default_endpoint or (f"https://{spec.own_hosts[0]}" if spec.own_hosts else None))


def _code_or_none(text: str | None) -> str:
    return code(text) if text else "-"
