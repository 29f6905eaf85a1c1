"""Asks one question about each file in the inbox, as background responses: `submit`, then `collect` the answers."""

import json
import sys
import time
from pathlib import Path

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="none")
ids = Path("batch.json")


def submit() -> None:
    names = sorted(file.name for file in Path("inbox").iterdir())
    asked = {
        name: client.responses.create(model="helper", input=f"Read the file {name}", background=True).id
        for name in names
    }
    ids.write_text(json.dumps(asked))


def collect() -> None:
    for name, response_id in json.loads(ids.read_text()).items():
        while (response := client.responses.retrieve(response_id)).status in {"queued", "in_progress"}:
            time.sleep(0.2)
        print(name, response.status, response.output_text)


{"submit": submit, "collect": collect}[sys.argv[1]]()
