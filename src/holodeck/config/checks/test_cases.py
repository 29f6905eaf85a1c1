"""Checks of test cases beyond their form: patterns, schemas, paths, and the models that judge.

They get a validated agent, and return problems with the position of the key that each is about.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from holodeck.config.problems import problem_at, value_at
from holodeck.config.source import Source
from holodeck.config.yaml_reader import KeyPath
from holodeck.lib.errors import Problem
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.path import parse_json_path
from holodeck.lib.json.schema import SchemaError, check_schema
from holodeck.models.agent import Agent
from holodeck.models.file_model import Substituted
from holodeck.models.llm import LLM, is_same_model
from holodeck.models.test_case import TestCase

_SETTINGS: KeyPath = ("test_settings",)


def find_case_problems(agent: Agent, source: Source, *, has_model: bool) -> list[Problem]:
    """Return the problems of all test cases. `has_model`: the model of the file is not the one under test."""
    found: list[Problem] = []
    for index, case in enumerate(agent.test_cases):
        path: KeyPath = ("test_cases", index)
        found += _check_patterns(case, path, source)
        found += _check_json(case, path, source)
        found += _check_ground_truth(agent, case, path, source)
        found += _check_judge(agent, case, path, source, has_model=has_model)
    # A file-level key is the cause of the same problem in many cases.
    return list(dict.fromkeys(found))


def list_test_models(agent: Agent) -> Iterator[tuple[KeyPath, LLM]]:
    """Yield each model that only tests use, with its key path: those that judge, and those of `models`."""
    for name, model in agent.test_settings.models.items():
        yield (*_SETTINGS, "models", name), model
    if agent.test_settings.judge is not None:
        yield (*_SETTINGS, "judge"), agent.test_settings.judge
    for index, case in enumerate(agent.test_cases):
        own = case.judge_expectation
        if own is not None and own.model is not None:
            yield ("test_cases", index, "judge", "model"), own.model


def _check_patterns(case: TestCase, path: KeyPath, source: Source) -> Iterator[Problem]:
    if case.matches is None:
        return
    key: KeyPath = (*path, "matches")
    patterns = [(key, case.matches)] if isinstance(case.matches, str) else []
    patterns += [((*key, at), each) for at, each in enumerate(case.matches)] if not patterns else []
    for where, pattern in patterns:
        reason = _find_pattern_error(pattern)
        if reason is not None:
            # The reason may quote the pattern, and the value of a variable is never shown.
            shown = "" if isinstance(value_at(source.data, where), Substituted) else f": {reason}"
            yield problem_at(source.document, where, f"'matches' is not a regular expression{shown}")


def _find_pattern_error(pattern: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error) or type(error).__name__
    return None


def _check_json(case: TestCase, path: KeyPath, source: Source) -> Iterator[Problem]:
    expected = case.json_answer
    if expected is None:
        return
    if expected.answer_schema is not None:
        where = (*path, "json", "schema")
        try:
            check_schema(expected.answer_schema)
        except SchemaError as error:
            # As in `agent_loader`: the reason quotes the schema, which may have values of variables.
            is_as_written = value_at(source.document.value, where) == expected.answer_schema
            reason = str(error) if is_as_written else "this is not a JSON Schema that can be used"
            yield problem_at(source.document, where, reason)
    for text in expected.values:
        try:
            parse_json_path(text)
        except ValueError as error:
            yield problem_at(source.document, (*path, "json", "values", text), str(error))


def _check_ground_truth(agent: Agent, case: TestCase, path: KeyPath, source: Source) -> Iterator[Problem]:
    if case.ground_truth is None:
        if case.ground_truth_by is not None:
            message = "'ground_truth_by' has no meaning without 'ground_truth'"
            yield problem_at(source.document, (*path, "ground_truth_by"), message)
        return
    measure = agent.test_settings.measure_of(case)
    if measure == "json" and not _is_json(case.ground_truth):
        message = "'ground_truth' is not JSON, and is to be judged as JSON"
        yield problem_at(source.document, (*path, "ground_truth"), message, fix="Name another 'ground_truth_by'.")
    if measure == "number" and not any(char.isdigit() for char in case.ground_truth):
        message = "'ground_truth' is not a number, and is to be judged as one"
        yield problem_at(source.document, (*path, "ground_truth"), message, fix="Name another 'ground_truth_by'.")


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _check_judge(agent: Agent, case: TestCase, path: KeyPath, source: Source, *, has_model: bool) -> Iterator[Problem]:
    settings, own = agent.test_settings, case.judge_expectation
    is_truth_judged = case.ground_truth is not None and settings.measure_of(case) == "judge"
    if own is None and not is_truth_judged:
        return
    model = settings.judge_of(case)
    if model is None:
        asking = "judge" if own is not None else "ground_truth_by"
        at_case = own is not None or case.ground_truth_by is not None
        where = (*path, asking) if at_case else (*_SETTINGS, asking)
        fix = "Name it in 'judge.model' of the case, or in 'test_settings.judge' for all cases."
        yield problem_at(source.document, where, "no model is named that judges", fix=fix)
    elif not has_model and is_same_model(model, agent.model) and not (own is not None and own.allow_same_model):
        has_own_model = own is not None and own.model is not None
        where = (*path, "judge", "model") if has_own_model else (*_SETTINGS, "judge")
        message = "the judge is the model under test, which would judge itself"
        fix = "Name another model, or write 'allow_same_model: true' in 'judge' of the case."
        yield problem_at(source.document, where, message, fix=fix)
