"""What every Python program in this folder shares: the questions, the client's own function, what is printed.

The programs run in environments that have nothing but the client: `python NAME.py BASE_URL MODEL QUESTION...`.
Each question is asked twice, plain and streamed; the answers are printed as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

BASE_URL, MODEL, *QUESTIONS = sys.argv[1:]
API_KEY = "hd-anybody"
INSTRUCTIONS = "Use your tools."


def get_time(place: str) -> str:
    """Get the time at a place."""
    return f"noon in {place}"


def ask_all(ask: Callable[[str], Awaitable[str]], ask_streamed: Callable[[str], Awaitable[str]]) -> None:
    """Ask each question both ways and print the answers. An error of the client is its answer."""
    asyncio.run(_ask_all(ask, ask_streamed))


async def _ask_all(ask: Callable[[str], Awaitable[str]], ask_streamed: Callable[[str], Awaitable[str]]) -> None:
    answers = {}
    for question in QUESTIONS:
        answers[question] = await _answer(ask, question)
        answers[f"{question}, streamed"] = await _answer(ask_streamed, question)
    print(json.dumps(answers))


async def _answer(ask: Callable[[str], Awaitable[str]], question: str) -> str:
    try:
        return await ask(question)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
