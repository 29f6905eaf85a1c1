"""LiteLLM's proxy in an environment of its own, made once, and set up as its makers advise for production."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.cached_environment import install_program

VERSION = "1.106.2"
NOTE = f"LiteLLM's proxy is {VERSION}; it is asked what ours is asked, and does not store it"
ENVIRON = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it fetches its price list from the internet when it starts
}
SERVER = "bench"
TOOLS = [
    {"type": "mcp", "server_label": "litellm", "server_url": f"litellm_proxy/mcp/{SERVER}", "require_approval": "never"}
]
"""What makes it run the loop itself: its own gateway as the address of the server."""


def install() -> Path:
    """The program, installed on first use."""
    return install_program("litellm", VERSION, extra="[proxy]", size="some hundred megabytes, some minutes")


def build_config(models: tuple[str, ...], model: str, mcp: str) -> dict[str, Any]:
    """The file that an operator would write."""

    def model_entry(name: str) -> dict[str, Any]:
        where = {"model": f"openai/{name}", "api_base": f"{model}/v1", "api_key": "none"}
        only_chat = {"use_chat_completions_api": True}  # what the model has, whichever door of the proxy is taken
        return {"model_name": name, "litellm_params": where | only_chat}

    return {
        "model_list": [model_entry(name) for name in models],
        "litellm_settings": {"num_retries": 0, "request_timeout": 600},
        "mcp_servers": {SERVER: {"url": mcp, "transport": "http"}},
    }
