"""The Grafana dashboard and the alert rules ask for what a gateway really has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from async_tests import async_test
from deploy.manifests import DEPLOY
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.scraped_metrics import ScrapedMetrics, parse_metrics

from holodeck.gateway.http.error_codes import ERROR_CODES
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend

DASHBOARD = json.loads((DEPLOY / "grafana/holodeck.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus/holodeck-alerts.yaml").read_text())["groups"][0]["rules"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# What Prometheus adds itself.
PROMETHEUS_METRICS = {"up"}
PROMETHEUS_LABELS = {"job", "instance", "le"}
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$job": "holodeck", "$instance": ".*"}
LEGEND_LABEL = re.compile(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}")


def _parse(query: str) -> promql_parser.Expr:
    """Parse a query as Prometheus does, with values for the variables of Grafana."""
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return promql_parser.parse(query)


def _children(query: Any) -> Iterator[Any]:
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if (child := getattr(query, name, None)) is not None:
            yield child
    yield from getattr(query, "args", ())


def _walk(query: Any) -> Iterator[Any]:
    yield query
    for child in _children(query):
        yield from _walk(child)


def _selectors(query: Any) -> list[Any]:
    return [part for part in _walk(query) if isinstance(part, promql_parser.VectorSelector)]


def _grouped_labels(query: Any) -> set[str]:
    modifiers = [part.modifier for part in _walk(query) if isinstance(part, promql_parser.AggregateExpr)]
    return {label for modifier in modifiers if modifier is not None for label in modifier.labels}


def _problems(query: str, scraped: ScrapedMetrics) -> Iterator[str]:
    """The metrics and labels of a query that the gateway does not have."""
    parsed = _parse(query)
    for selector in _selectors(parsed):
        if selector.name in PROMETHEUS_METRICS:
            continue
        samples = scraped.list_labels(selector.name)
        if not samples:
            yield f"{selector.name}: there is no such metric, in {query}"
        known = {label for labels in samples for label in labels} | PROMETHEUS_LABELS
        used = {matcher.name for matcher in selector.matchers.matchers} | _grouped_labels(parsed)
        yield from (f"{selector.name}: it has no label {label}, in {query}" for label in sorted(used - known))


async def _scrape_busy_gateway(folder: Path) -> ScrapedMetrics:
    """A gateway after a run with a tool call, a refused request and a probe."""
    price = {"input": 1, "output": 2}
    turns = ([call("echo", text="x"), spend(10, 5)], [say("Done."), spend(20, 5)])
    async with FaultyMCPServer() as mcp, ScriptedModel(*turns).serve() as scripted:
        model = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url, "price": price}
        server = {"name": "tools", "transport": "http", "url": mcp.url}
        file = write_gateway_file(
            folder, scripted.url, models=[{"name": "demo", "model": model}], mcp_servers=[server], mcp_connect="start"
        )
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            assert (await served.create_response(tools="none"))[0] == 400
            assert (await served.send("GET", "/readyz"))[0] == 200
            return parse_metrics((await served.send("GET", "/metrics"))[1])


@async_test(90)
async def test_every_metric_and_label_of_dashboard_and_alerts_is_one_of_a_gateway(tmp_path: Path) -> None:
    scraped = await _scrape_busy_gateway(tmp_path)
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    queries += [rule["expr"] for rule in RULES]
    assert [problem for query in queries for problem in _problems(query, scraped)] == []


@async_test(90)
async def test_no_metric_of_the_gateway_is_missing_from_the_dashboard(tmp_path: Path) -> None:
    scraped = await _scrape_busy_gateway(tmp_path)
    shown = {
        re.sub(r"_(bucket|total|info)$", "", selector.name)
        for panel in PANELS
        for target in panel["targets"]
        for selector in _selectors(_parse(target["expr"]))
    }
    own = {re.sub(r"_info$", "", family.name) for family in scraped.families if family.name.startswith("holodeck_")}
    assert own - shown == set()


def test_legends_name_labels_that_are_left_after_grouping() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            left = _grouped_labels(_parse(target["expr"])) | {"instance"}
            assert set(LEGEND_LABEL.findall(target["legendFormat"])) <= left, panel["title"]
    for rule in RULES:
        parsed = _parse(rule["expr"])
        has_groups = any(isinstance(part, promql_parser.AggregateExpr) for part in _walk(parsed))
        named = set(LEGEND_LABEL.findall(rule["annotations"]["summary"]))
        assert not has_groups or named <= _grouped_labels(parsed), rule["alert"]


def test_alerts_name_codes_that_the_gateway_answers() -> None:
    codes = {code.code for code in ERROR_CODES}
    matchers = [
        matcher for rule in RULES for each in _selectors(_parse(rule["expr"])) for matcher in each.matchers.matchers
    ]
    named = {matcher.value for matcher in matchers if matcher.name == "code"}
    assert named
    assert named <= codes


def test_the_dashboard_has_what_grafana_needs_to_import_it() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "job", "instance"}
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
    places: list[Mapping[str, int]] = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells), "no panel lies on another"
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_the_page_about_alerts_lists_those_of_the_file_in_its_order() -> None:
    page = (DEPLOY.parent / "docs/operate/metrics-and-alerts.md").read_text()
    assert re.findall(r"^\| `(Holodeck\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in RULES]
    assert {rule["labels"]["severity"] for rule in RULES} == {"critical", "warning"}
