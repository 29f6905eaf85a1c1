"""The model of a new project: from `--model`, or asked for at the terminal, and tried with one short question."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping
from typing import Any

import click
import pydantic

from holodeck.cli.interruptible import run_interruptible
from holodeck.lib.errors import HoloDeckError
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.llm import LLM
from holodeck.models.provider import PROVIDER_SPECS, Provider, ProviderSpec, find_provider

# Where the key of a server of one's own is kept, which has no usual variable.
_OWN_KEY_VARIABLE = "MODEL_API_KEY"
# Seconds for one short answer. A model that is loaded for it takes a minute.
_TRIAL_TIMEOUT = 90.0
_QUESTION = "Answer with one word: ready?"
# What `.env` takes without quotes. No key of a service has anything else.
_KEY = re.compile(r"[!-~]+")
_NOT_IN_KEYS = frozenset("'\"#\\$")


@record
class ModelChoice:
    """The model that a new project gets."""

    provider: Provider
    name: str | None = None
    endpoint: str | None = None
    """Address that the file names. None: the provider's own."""
    key: Secret | None = None
    """A key that was typed, which goes into `.env`."""
    has_key: bool = True
    """Whether the file refers to the variable of a key."""

    @property
    def spec(self) -> ProviderSpec:
        return PROVIDER_SPECS[self.provider]

    @property
    def key_variable(self) -> str | None:
        """The variable that the file refers to. None: it has no key."""
        if not self.has_key:
            return None
        return self.spec.key_variable or (_OWN_KEY_VARIABLE if self.key else None)

    def build_llm(self, environ: Mapping[str, str]) -> LLM:
        """Return the model with its key. Raises `pydantic.ValidationError` for what cannot be together."""
        variable = self.key_variable
        key = self.key.reveal() if self.key else environ.get(variable or "")
        data = {"provider": self.provider, "name": self.name, "endpoint": self.endpoint, "api_key": key or None}
        return LLM.model_validate({name: value for name, value in data.items() if value is not None})


def parse_model(text: str) -> ModelChoice:
    """Return the model of `--model`. Raises a usage error for one that does not exist or has no usual name."""
    name, _, model = re.sub(r"[:/]", "/", text, count=1).partition("/")
    if name not in set(Provider):
        meant = find_provider(name)
        known = ", ".join(Provider)
        hint = f"Did you mean '{meant}'?" if meant else f"There are: {known}."
        raise click.BadParameter(f"there is no provider '{name}'. {hint}", param_hint="'--model'")
    choice = ModelChoice(provider=Provider(name))
    spec = choice.spec
    model = model or spec.default_model or ""
    if spec.is_service and not model:
        raise click.BadParameter(f"write which model: {name}/NAME", param_hint="'--model'")
    return ModelChoice(provider=choice.provider, name=model or None, endpoint=spec.example_endpoint)


def ask_model(environ: Mapping[str, str], *, can_store_key: bool) -> ModelChoice:
    """Ask for provider, model, address and key until there is a model that answers, or is wanted all the same.

    Asked again, Enter keeps an earlier answer, so that a wrong key is the one thing to type. `environ`: variables that
    may have the key already. `can_store_key`: whether a typed key can go into `.env`.
    """
    _print_menu()
    choice = ModelChoice(provider=Provider.REHEARSAL)
    while True:
        choice = _ask_choice(environ, choice, can_store_key=can_store_key)
        mistake = _find_mistake(choice, environ)
        if mistake is not None:
            click.secho(f"{mistake} Once more:", fg="red")
        elif _is_usable(choice, environ) or click.confirm("Use it all the same? (n: answer again)", default=False):
            return choice


def _ask_choice(environ: Mapping[str, str], last: ModelChoice, *, can_store_key: bool) -> ModelChoice:
    question = "Provider, by number or name"
    provider = click.prompt(question, default=last.provider.value, value_proc=_parse_provider)
    spec = PROVIDER_SPECS[provider]
    if not spec.is_service:
        return ModelChoice(provider=provider)
    if provider != last.provider:
        last = ModelChoice(provider=provider)
    name = click.prompt("Model", default=last.name or spec.default_model, value_proc=_require_text)
    usual = last.endpoint or spec.example_endpoint or spec.default_endpoint
    # A service has one address. A program on one's own machine may be anywhere.
    asks_endpoint = spec.needs_endpoint or not spec.key_variable
    endpoint = click.prompt("Address", default=usual, value_proc=_require_text) if asks_endpoint and usual else None
    choice = ModelChoice(provider=provider, name=name, endpoint=None if endpoint == spec.default_endpoint else endpoint)
    variable = spec.key_variable
    if variable and environ.get(variable):
        click.echo(f"The key is taken from {variable}, which is set.")
        return choice
    # Programs on one's own machine seldom want a key.
    if not variable and not spec.needs_endpoint:
        return choice
    if not can_store_key:
        click.echo(f"There is a .env already: write the key into it, as {variable or _OWN_KEY_VARIABLE}=...")
        return choice
    return _with_key(choice)


def _with_key(choice: ModelChoice) -> ModelChoice:
    question = f"Key for {choice.spec.label} (not shown; goes into .env; Enter: none)"
    typed = click.prompt(question, default="", hide_input=True, show_default=False, value_proc=_parse_key)
    return ModelChoice(
        provider=choice.provider,
        name=choice.name,
        endpoint=choice.endpoint,
        key=Secret(typed) if typed else None,
    )


def _print_menu() -> None:
    click.echo("Models come from one of these:")
    width = max(map(len, Provider))
    for number, (provider, spec) in enumerate(PROVIDER_SPECS.items(), 1):
        click.echo(f"  {number:2}  {provider.ljust(width)}  {spec.label}")


def _parse_provider(answer: Any) -> Provider:
    text = str(answer).strip()
    providers = list(PROVIDER_SPECS)
    if text.isdecimal() and 1 <= int(text) <= len(providers):
        return providers[int(text) - 1]
    found = find_provider(text)
    if found is None:
        raise click.BadParameter(f"a number from 1 to {len(providers)}, or one of the names")
    return found


def _require_text(answer: Any) -> str:
    text = str(answer).strip()
    if not text:
        raise click.BadParameter("this must not be empty")
    return text


def _parse_key(answer: Any) -> str:
    text = str(answer).strip()
    if text and (not _KEY.fullmatch(text) or _NOT_IN_KEYS & set(text)):
        raise click.BadParameter("a key has no spaces, quotes, '#', '$' or '\\'. Was more pasted than the key?")
    return text


def _find_mistake(choice: ModelChoice, environ: Mapping[str, str]) -> str | None:
    """Return why a file with this model would be wrong; None if it would not."""
    try:
        choice.build_llm(environ)
    except pydantic.ValidationError as error:
        from holodeck.agents.models import describe_problems

        data = {"model": {"provider": choice.provider, "name": choice.name, "endpoint": choice.endpoint}}
        return describe_problems(error, data, at=("model",))
    return None


def _is_usable(choice: ModelChoice, environ: Mapping[str, str]) -> bool:
    """Ask the model one short question, and print how that went. False: it did not answer."""
    if not choice.spec.is_service:
        return True
    llm = choice.build_llm(environ)
    if choice.spec.key_variable and llm.api_key is None:
        click.echo("Not tried, because there is no key yet.")
        return True
    click.echo(f"Trying {escape_unprintable(choice.name or '')} ...")
    begin = time.monotonic()
    problem = _find_problem(llm)
    if problem is None:
        click.secho(f"It answered in {time.monotonic() - begin:.1f} s.", fg="green")
    else:
        click.secho(escape_unprintable(problem), fg="red")
    return problem is None


def _find_problem(llm: LLM) -> str | None:
    """Return why the model does not answer a short question; None if it does."""
    try:
        run_interruptible(_ask(llm))
    except TimeoutError:
        return f"There was no answer within {_TRIAL_TIMEOUT:g} seconds."
    except HoloDeckError as error:
        return str(error)
    return None


async def _ask(llm: LLM) -> None:
    from holodeck.models.items import text_message
    from holodeck.models.model_io import ModelRequest
    from holodeck.providers.factory import build_model_provider

    # As a model with stand-ins: what does not answer is not asked for minutes.
    provider = build_model_provider(llm, os.environ, has_alternatives=True)
    try:
        async with asyncio.timeout(_TRIAL_TIMEOUT):
            async for _ in provider.stream(ModelRequest(items=(text_message("user", _QUESTION),))):
                pass
    finally:
        await provider.close()
