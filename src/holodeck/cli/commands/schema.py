"""`holodeck schema`: JSON Schemas with which editors complete and check configuration files."""

from __future__ import annotations

import click

from holodeck.config.json_schema import SCHEMAS, schema_text

_EPILOG = """\b
Examples:
  holodeck schema > agent.schema.json
  # then, as the first line of agent.yaml:
  # yaml-language-server: $schema=agent.schema.json
\b
  holodeck schema gateway > gateway.schema.json
  holodeck schema config > config.schema.json    for config.yaml, also the one in ~/.holodeck"""


@click.command("schema", epilog=_EPILOG)
@click.argument("kind", type=click.Choice(list(SCHEMAS)), default="agent", metavar="[KIND]")
def command(kind: str) -> None:
    """Print the JSON Schema of a file, generated from the models that check it.

    KIND is agent (agent.yaml, the default), gateway (gateway.yaml) or config (config.yaml).
    """
    click.echo(schema_text(kind), nl=False)
