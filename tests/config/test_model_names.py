"""Models that are defined once: `use` in an agent file, and names in `fallback`."""

from __future__ import annotations

from pathlib import Path

import pytest

from holodeck.config.actions import list_actions
from holodeck.lib.errors import ConfigError
from holodeck.runtime import read_agent, read_gateway

FAST = """
models:
  - name: fast
    model:
      provider: openai_compatible
      name: small
      endpoint: https://models.example.com/v1
      api_key: ${MODEL_KEY}
      price: {input: 1, output: 2}
      temperature: 0.5
      fallback: [slow]
  - name: slow
    model: {provider: ollama, name: large}
"""
ENVIRON = {"MODEL_KEY": "key-of-the-model"}


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_an_agent_uses_a_model_of_the_users_settings_with_options_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, ".holodeck/config.yaml", FAST)
    file = write(tmp_path, "agent.yaml", "name: helper\nmodel: {use: fast, temperature: 0.1}\n")
    model = read_agent(file, environ=ENVIRON, home=tmp_path).agent.model
    assert (model.name, model.endpoint, model.temperature) == ("small", "https://models.example.com/v1", 0.1)
    assert (model.price is not None, [*model.stand_ins]) == (True, ["slow"])
    assert model.fallback[0].name == "large"


def test_an_agent_of_a_gateway_uses_a_model_of_its_file_before_that_of_the_user(tmp_path: Path) -> None:
    write(tmp_path, ".holodeck/config.yaml", "models: [{name: fast, model: {provider: rehearsal}}]\n")
    write(tmp_path, "agent.yaml", "name: helper\nmodel: {use: fast}\n")
    file = write(tmp_path, "gateway.yaml", FAST + "agents: [{file: agent.yaml}]\n")
    loaded = read_gateway(file, environ=ENVIRON, home=tmp_path)
    assert loaded.agents["helper"].agent.model.name == "small"
    assert loaded.models["fast"].model.stand_ins["slow"].name == "large"


def test_trust_covers_where_a_name_leads(tmp_path: Path) -> None:
    settings = write(tmp_path, ".holodeck/config.yaml", FAST)
    file = write(tmp_path, "agent.yaml", "name: helper\nmodel: {use: fast}\n")
    actions = list_actions(read_agent(file, environ=ENVIRON, home=tmp_path))
    shown = {action.name: dict(action.details) for action in actions.actions}
    assert "models.example.com" in shown["model"]["endpoint"]
    assert "MODEL_KEY" in shown["model"]["key"]
    assert "model/slow" in shown
    settings.write_text(FAST.replace("models.example.com", "elsewhere.example.com"))
    assert list_actions(read_agent(file, environ=ENVIRON, home=tmp_path)).digest != actions.digest


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("openai:gpt-5-mini", "openai:gpt-5-mini"),
        ("ollama:qwen3:8b", "ollama:qwen3:8b"),
        ("'${MODEL}'", "ollama:qwen3"),
        ("rehearsal", "rehearsal:None"),
        ("fast", "openai_compatible:small"),
    ],
)
def test_a_model_is_named_in_a_text_as_in_python(tmp_path: Path, text: str, meant: str) -> None:
    write(
        tmp_path, ".holodeck/config.yaml", FAST + f"  - {{name: other, model: {text}}}\n".replace(": fast}", ": slow}")
    )
    more = f"test_settings: {{judge: {text}, models: {{one: {text}}}}}\n"
    file = write(tmp_path, "agent.yaml", f"name: helper\nmodel: {text}\n{more}")
    loaded = read_agent(file, environ={**ENVIRON, "MODEL": "ollama:qwen3"}, home=tmp_path)
    settings = loaded.agent.test_settings
    assert settings.judge is not None
    for model in (loaded.agent.model, settings.judge, settings.models["one"]):
        assert f"{model.provider}:{model.name}" == meant
    shown = {action.name: dict(action.details) for action in list_actions(loaded).actions}
    assert ("model" in shown) == (text != "rehearsal")
    assert "qwen3'" not in str(shown), "the value of a variable is not shown"


def test_a_gateway_names_its_models_in_a_text(tmp_path: Path) -> None:
    file = write(tmp_path, "gateway.yaml", "models: [{name: fast, model: 'ollama:qwen3'}]\n")
    assert read_gateway(file, environ=ENVIRON, home=tmp_path).models["fast"].model.name == "qwen3"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("{use: fats}", "Did you mean 'fast'?"),
        ("{use: other}", "There are: fast, slow."),
        ("{use: fast, endpoint: 'https://evil.example.com/v1'}", "'endpoint' cannot stand beside 'use'"),
        ("{provider: rehearsal, fallback: [slo]}", "Did you mean 'slow'?"),
        ("gpt-5-mini", "'gpt-5-mini' names no model: write 'provider:name', such as 'openai:gpt-5-mini'"),
        ("opnai:gpt-5-mini", "Did you mean 'openai:gpt-5-mini'?"),
        ("fats", "Did you mean 'fast'?"),
        ("openai", "'name' is required for provider openai"),
        ("'${MODEL_KEY}'", "'${MODEL_KEY}' names no model"),
    ],
)
def test_a_name_that_cannot_be_used_is_an_error_that_says_why(tmp_path: Path, model: str, said: str) -> None:
    write(tmp_path, ".holodeck/config.yaml", FAST)
    file = write(tmp_path, "agent.yaml", f"name: helper\nmodel: {model}\n")
    with pytest.raises(ConfigError) as found:
        read_agent(file, environ=ENVIRON, home=tmp_path)
    assert said in str(found.value)


def test_a_text_under_a_misspelled_key_is_one_error(tmp_path: Path) -> None:
    file = write(tmp_path, "agent.yaml", "name: helper\nmodle: openai:gpt-5-mini\n")
    with pytest.raises(ConfigError) as found:
        read_agent(file, environ=ENVIRON, home=tmp_path)
    assert [(each.message, each.fix) for each in found.value.problems] == [
        ("unknown key 'modle'", "Did you mean 'model'?")
    ]


def test_a_project_cannot_define_models_for_use(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", FAST + "mcp_servers: []\n")
    file = write(tmp_path, "agent.yaml", "name: helper\n")
    with pytest.raises(ConfigError, match="cannot define models"):
        read_agent(file, environ=ENVIRON, home=tmp_path / "home")
