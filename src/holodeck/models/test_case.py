"""The models of `test_cases` and `test_settings`: questions for an agent, and what is expected of its answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    Tag,
    model_validator,
)

from holodeck.models.file_model import (
    Boolean,
    FileModel,
    Integer,
    NonEmpty,
    Number,
    Violation,
    text_or_mapping,
    validate_with_rules,
)
from holodeck.models.llm import LLM

# Measured with chrF2 on English and German sentences: the same in nearly the same words has 0.54 and more, other facts
# in the same sentence up to 0.48, and something else below 0.25.
DEFAULT_SIMILAR_AT_LEAST = 0.5

GroundTruthMeasure = Literal["equals", "contains", "json", "similar", "judge", "number"]
Share = Annotated[Number, Field(ge=0, le=1)]


def _text_or_list(value: Any) -> str:
    return "list" if isinstance(value, list | tuple) else "text"


def _number_or_mapping(value: Any) -> str:
    return "mapping" if isinstance(value, dict) else "number"


Texts = Annotated[
    Annotated[NonEmpty, Tag("text")] | Annotated[list[NonEmpty], Field(min_length=1), Tag("list")],
    Discriminator(_text_or_list),
]
"""One text, or several."""
Pattern = Annotated[str, StringConstraints(min_length=1)]
Patterns = Annotated[
    Annotated[Pattern, Tag("text")] | Annotated[list[Pattern], Field(min_length=1), Tag("list")],
    Discriminator(_text_or_list),
]
"""One regular expression, or several. Spaces at their ends count."""


class ExpectedTool(FileModel):
    """A tool that a test case expects to be called, with the arguments that are checked."""

    name: NonEmpty
    """The tool, by its configured name, its full name, or its bare name. E.g. `calc.add`, not absent."""
    arguments: dict[str, Any] | None = None
    """Arguments that the call must have; it may have others. Absent: any. E.g. `{a: 1}`, not `[1, 2]`."""


class ExpectedCall(ExpectedTool):
    """A tool that must be called, with the arguments that are checked and the number of such calls."""

    times: Annotated[Integer, Field(ge=1)] | None = None
    """How many calls there must be, no more and no fewer. Absent: at least one. E.g. `2`, not `0`."""


class ToolExpectation(FileModel):
    """What is expected of the tool calls of a run. Tools are named as in `expected_tools`."""

    called: list[
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[ExpectedCall, Tag("mapping")], Discriminator(text_or_mapping)
        ]
    ] = Field(default_factory=list)
    """Tools that must be called. E.g. `[{name: calc.add, times: 2}]`, not `calc.add`."""
    not_called: list[NonEmpty] = Field(default_factory=list)
    """Tools that must not be called. E.g. `[files.write_file]`, not `files.write_file`."""
    order: list[NonEmpty] = Field(default_factory=list)
    """Tools that must be called in this order. Other calls may come between them. E.g. `[files.read_text_file,
    calc.add]`, not `calc.add`."""
    at_most: (
        Annotated[
            Annotated[Integer, Field(ge=0), Tag("number")]
            | Annotated[dict[str, Annotated[Integer, Field(ge=0)]], Tag("mapping")],
            Discriminator(_number_or_mapping),
        ]
        | None
    ) = None
    """Calls that there may be: a number for all tools together, or a mapping with a number for each tool. E.g.
    `{calc.add: 2}`, not `-1`."""


class JSONExpectation(FileModel):
    """What is expected of an answer that is JSON, by itself or in a fenced block."""

    # `schema` is the name of a method of pydantic's models, so that the field has another name than its key.
    model_config = ConfigDict(populate_by_name=False)

    answer_schema: dict[str, Any] | None = Field(default=None, validation_alias="schema")
    """JSON Schema that the answer must match. It or `values` is required. E.g. `{type: object, required: [sum]}`, not
    `{type: objekt}`."""
    values: dict[NonEmpty, Any] = Field(default_factory=dict)
    """Expected values by their paths, such as `$.items[0].price: 9.5`. E.g. `{'$.items[0].price': 9.5}`, not
    `{'items[0].price': 9.5}`."""
    tolerance: Annotated[Number, Field(ge=0, allow_inf_nan=False)] = 0
    """Largest difference of a number from the expected one. E.g. `0.01`, not `-1`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[JSONExpectation]) -> JSONExpectation:
        return validate_with_rules(cls.__name__, data, handler, _check_json_keys)


def _check_json_keys(data: dict[str, Any]) -> list[Violation]:
    if data.get("schema") is None and not data.get("values"):
        return [Violation(key="values", message="'values' or 'schema' is required")]
    return []


class SimilarText(FileModel):
    """A text that the answer must resemble."""

    to: NonEmpty
    """Text that the answer is compared with. E.g. `The sum of one and two is three.`, not absent."""
    at_least: Share | None = None
    """Similarity that is enough, from 0 to 1. Absent: `similar_at_least` of `test_settings`. E.g. `0.6`, not `60`."""


class JudgeExpectation(FileModel):
    """A rubric by which another model judges the answer."""

    rubric: NonEmpty
    """What a good answer is, in sentences, such as `Names the price and does not promise a discount.` E.g. `Names the
    sum and nothing else.`, not absent."""
    model: LLM | None = None
    """Model that judges. Absent: `judge` of `test_settings`. E.g. `{provider: openai, name: gpt-5-mini}`, not
    `{provider: rehearsal}`."""
    allow_same_model: Boolean = False
    """Whether the model under test may judge its own answer. E.g. `true`, not `sometimes`, beside `{model: {provider:
    rehearsal}}`."""


class ForbiddenOutput(FileModel):
    """What must not happen in a run."""

    tools: list[NonEmpty] = Field(default_factory=list)
    """Tools that must not be called, named as in `expected_tools`. E.g. `[files.write_file]`, not `files`."""
    texts: list[NonEmpty] = Field(default_factory=list)
    """Texts that must not be in the answer, compared as by `contains`. E.g. `[password]`, not `password`."""


class TestCase(FileModel):
    """A question, and what is expected of the tools that the agent calls for it and of its answer."""

    # pytest must not collect this class, whose name comes from the file format.
    __test__ = False
    # `json` is the name of a method of pydantic's models, so that the field has another name than its key.
    model_config = ConfigDict(populate_by_name=False)

    name: NonEmpty | None = None
    """Name of the case in reports. Absent: its `input`. E.g. `adds`, not `''`."""
    input: NonEmpty
    """Question for the agent, such as `What is 1 + 2?`. E.g. `What is 1 + 2?`, not absent."""
    expected_tools: list[
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[ExpectedTool, Tag("mapping")], Discriminator(text_or_mapping)
        ]
    ] = Field(default_factory=list)
    """Tools that must be called, such as `calc.add`. An empty list: no tool may be called. Absent: any. E.g.
    `[calc.add]`, not `calc.add`."""
    ground_truth: NonEmpty | None = None
    """Expected answer. It is compared with the actual one by the measure of `ground_truth_by`. E.g. `'3'`, not `3`."""
    ground_truth_by: GroundTruthMeasure | None = None
    """Measure for `ground_truth`. Absent: that of `test_settings`, else the one that suits its form. E.g. `number`, not
    `bleu`, beside `{ground_truth: '3'}`."""
    contains: Texts | None = None
    """Text that must be in the answer, or a list of texts that all must be. Case and white space do not count. E.g.
    `['3', sum]`, not `3`."""
    equals: NonEmpty | None = None
    """Text that the answer must be. Only white space may differ: at its ends, or in its length. E.g. `'3'`, not `3`."""
    matches: Patterns | None = None
    """Regular expression that must be found in the answer, or a list of them, in the syntax of Python's `re`. E.g.
    `^[0-9]+$`, not `([`."""
    json_answer: JSONExpectation | None = Field(default=None, validation_alias="json")
    """What the answer must be as JSON. E.g. `{values: {$.sum: 3}}`, not `{values: {sum: 3}}`."""
    similar: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[SimilarText, Tag("mapping")], Discriminator(text_or_mapping)
        ]
        | None
    ) = None
    """Text that the answer must resemble in its characters: a text, or a mapping with `to` and `at_least`. E.g. `The
    sum of one and two is three.`, not `{at_least: 0.6}`."""
    judge: (
        Annotated[
            Annotated[NonEmpty, Tag("text")] | Annotated[JudgeExpectation, Tag("mapping")],
            Discriminator(text_or_mapping),
        ]
        | None
    ) = None
    """Rubric by which another model judges the answer: a text, or a mapping with `rubric` and `model`. E.g. `{rubric:
    Names the sum and nothing else., model: {provider: openai, name: gpt-5-mini}}`, not `Names the sum.`."""
    tools: ToolExpectation | None = None
    """What is expected of the tool calls, in more detail than by `expected_tools`. E.g. `{called: [calc.add], at_most:
    2}`, not `[calc.add]`."""
    forbidden: ForbiddenOutput | None = None
    """Tools and texts that must not occur. E.g. `{texts: [I think], tools: [files]}`, not `[I think]`."""
    max_turns: Annotated[Integer, Field(ge=1)] | None = None
    """Model turns that the run may take. E.g. `3`, not `0`."""
    max_tokens: Annotated[Integer, Field(ge=1)] | None = None
    """Tokens that the run may take, those of all turns together. E.g. `2000`, not `0`."""
    max_seconds: Annotated[Number, Field(gt=0)] | None = None
    """Seconds that the run may take. A run that takes longer is not stopped; its case fails. E.g. `20`, not `0`."""

    @property
    def judge_expectation(self) -> JudgeExpectation | None:
        """The `judge` of the case as a mapping."""
        return JudgeExpectation(rubric=self.judge) if isinstance(self.judge, str) else self.judge


class TestSettings(FileModel):
    """What all test cases of a file share."""

    __test__ = False

    ground_truth_by: GroundTruthMeasure | None = None
    """Measure for `ground_truth` of cases that name none. Absent: the one that suits the form of each. E.g. `contains`,
    not `bleu`."""
    similar_at_least: Share = DEFAULT_SIMILAR_AT_LEAST
    """Similarity that is enough for `similar`, and for a `ground_truth` that is judged by it, from 0 to 1. E.g. `0.6`,
    not `60`."""
    judge: LLM | None = None
    """Model that judges by the rubrics of cases that name none. E.g. `{provider: openai, name: gpt-5-mini}`, not
    `gpt-5-mini`."""
    models: dict[NonEmpty, LLM] = Field(default_factory=dict)
    """Models by a name of your choice, for `holodeck test --model NAME`: the cases run on them instead of `model`. E.g.
    `{small: {provider: openai, name: gpt-5-mini}}`, not `{small: gpt-5-mini}`."""

    def measure_of(self, case: TestCase) -> GroundTruthMeasure | None:
        """Return the measure that the file names for the ground truth of a case. None: the one that suits its form."""
        return case.ground_truth_by or self.ground_truth_by

    def judge_of(self, case: TestCase) -> LLM | None:
        """Return the model that judges a case."""
        own = case.judge_expectation
        return own.model if own is not None and own.model is not None else self.judge
