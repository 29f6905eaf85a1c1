"""`holodeck schema`: what editors need to complete and check an agent file."""

from __future__ import annotations

import json

import click

from holodeck.config.schema import agent_schema

_EPILOG = """\b
Example:
  holodeck schema > agent.schema.json
  # then, as the first line of agent.yaml:
  # yaml-language-server: $schema=agent.schema.json"""


@click.command("schema", epilog=_EPILOG)
def command() -> None:
    """Print the JSON Schema of agent.yaml, generated from the models that check it."""
    click.echo(json.dumps(agent_schema(), indent=2))
