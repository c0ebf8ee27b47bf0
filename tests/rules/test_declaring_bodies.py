"""Arguments on their way to a body, and what a body may know and change: R-030, R-031, R-053, R-177, R-324, R-561."""

from __future__ import annotations

import enum
import uuid
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from helix.agents import (
    ArgumentsRefused,
    ToolContext,
    apply_state_writes,
    call_arguments,
    check_arguments,
    client_tool,
    read_arguments,
    tool,
)
from helix.jsontext import JsonRefused

NESTED = "[" * 65 + "]" * 65


class Colour(enum.Enum):
    RED = "red"


class Line(BaseModel):
    count: int = Field(ge=1)

    @field_validator("count")
    @classmethod
    def unlucky(cls, count: int) -> int:
        if count == 13:
            raise ValueError("thirteen is not sold")
        if count == 14:
            raise KeyError("a mistake of the declaring code")
        return count


class Silent:
    """A stop signal that is never given."""

    cancelled = False
    kind = None

    def check(self) -> None:
        return None

    def on_cancel(self, callback: Any) -> Any:
        return callback


def context(**fields: Any) -> ToolContext:
    return ToolContext(
        **{
            "session_id": "s",
            "root_id": "s",
            "run_id": "r",
            "tool_call_id": "c",
            "agent_type": "shop",
            "owner": "owner",
            "token": Silent(),
            **fields,
        }
    )


@tool
def order(line: Line, day: date | None = None, tags: list[str] = [], *, schema: str = "plain") -> None:  # noqa: B006
    """Order something."""


def test_arguments_that_fit_are_plain_json_until_the_body_is_called() -> None:
    """R-030."""
    read = read_arguments(order, '{"line": {"count": 2}, "day": "2030-01-31"}')
    assert read == {"line": {"count": 2}, "day": "2030-01-31"}
    called = call_arguments(order, read)
    assert called == {"line": Line(count=2), "day": date(2030, 1, 31), "tags": [], "schema": "plain"}


def test_a_default_is_not_shared_between_calls() -> None:
    call_arguments(order, {"line": {"count": 1}})["tags"].append("leak")
    assert call_arguments(order, {"line": {"count": 1}})["tags"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not acceptable JSON"),
        ('{"line": NaN}', "not acceptable JSON"),
        ('{"line": ' + NESTED + "}", "deeper than 64"),
        ("[]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ("", '"line" is a required property'),
        ('{"line": {"count": 0}}', "/line/count: 0 is less than the minimum of 1"),
        ('{"line": {"count": 1}, "wrong": 1}', "wrong"),
        ('{"line": {"count": 1}, "day": "soon"}', "/day: "),
        ('{"line": {"count": 13}}', "/line/count: Value error, thirteen is not sold"),
        ('{"line": {"count": 14}}', "could not be read"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_first_problem(text: str, problem: str) -> None:
    """R-031: the text is for the model, which may try again."""
    assert read_arguments(order, '{"line": {"count": 1}}')
    with pytest.raises(ArgumentsRefused) as refused:
        read_arguments(order, text)
    assert problem in str(refused.value)


def test_no_text_means_no_arguments_where_none_are_needed() -> None:
    assert read_arguments(client_tool("locate"), "") == {}
    assert read_arguments(client_tool("locate"), " \n") == {}


def test_a_repeated_key_is_no_reason_to_refuse_a_models_text() -> None:
    """R-053: it is shown as it is; the body gets the last value."""
    assert read_arguments(client_tool("locate"), '{"a":1,"a":2}') == {"a": 2}


def test_edited_arguments_are_judged_by_the_same_rule() -> None:
    """R-177."""
    assert check_arguments(order, {"line": {"count": 5}}) == {"line": {"count": 5}}
    wrongs: list[Any] = [{"line": {"count": 0}}, [], None, {"line": {"count": 13}}]
    for wrong in wrongs:
        with pytest.raises(ArgumentsRefused):
            check_arguments(order, wrong)


def test_a_written_schema_gives_the_body_plain_values() -> None:
    """R-004."""

    @tool(input_schema={"properties": {"day": {"type": "string"}}})
    def plan(day: date, context: ToolContext) -> None: ...

    given = context()
    assert call_arguments(plan, {"day": "2030-01-31"}, given) == {"day": "2030-01-31", "context": given}


def test_json_becomes_the_types_of_the_signature() -> None:
    @tool
    def typed(
        colour: Colour, key: uuid.UUID, price: Decimal, wait: timedelta, pair: tuple[int, str], given: ToolContext
    ) -> None: ...

    given = context()
    key = uuid.UUID(int=7)
    arguments = {"colour": "red", "key": str(key), "price": "1.10", "wait": "PT5S", "pair": [1, "a"]}
    assert call_arguments(typed, check_arguments(typed, arguments), given) == {
        "colour": Colour.RED,
        "key": key,
        "price": Decimal("1.10"),
        "wait": timedelta(seconds=5),
        "pair": (1, "a"),
        "given": given,
    }


def test_a_body_sees_its_own_staged_writes() -> None:
    """R-561."""
    session_state = {"cart": {"total": 1}, "kept": True}
    body = context(state=session_state)
    body.set_state("cart.total", 2)
    body.set_state("cart.lines.first", "A1")
    body.set_state({"note": "hello", "kept": False})
    assert body.state == {"cart": {"total": 2, "lines": {"first": "A1"}}, "kept": False, "note": "hello"}
    assert session_state == {"cart": {"total": 1}, "kept": True}
    assert body.state_writes == (
        (("cart", "total"), 2),
        (("cart", "lines", "first"), "A1"),
        (("note",), "hello"),
        (("kept",), False),
    )


def test_staged_writes_go_on_top_of_what_the_state_is_by_then() -> None:
    """R-561: another writer's keys stay."""
    body = context(state={"cart": {"total": 1}})
    body.set_state("cart.total", 2)
    current = {"cart": {"total": 5, "by": "operator"}, "other": 1}
    assert apply_state_writes(current, body.state_writes) == {"cart": {"total": 2, "by": "operator"}, "other": 1}
    assert current["cart"] == {"total": 5, "by": "operator"}
    assert apply_state_writes({"cart": "text"}, body.state_writes) == {"cart": {"total": 2}}


def test_a_staged_value_no_longer_changes() -> None:
    lines = ["A1"]
    body = context()
    body.set_state("lines", lines)
    lines.append("B2")
    assert body.state_writes == ((("lines",), ["A1"]),)
    assert body.state == {"lines": ["A1"]}


@pytest.mark.parametrize("value", [float("nan"), "\x00", "\ud800", object(), {1: 2}])
def test_a_value_that_the_databases_would_treat_differently_is_not_staged(value: Any) -> None:
    """R-324."""
    body = context()
    with pytest.raises(JsonRefused):
        body.set_state("note", value)
    with pytest.raises(JsonRefused):
        body.set_state({"note": value})
    assert body.state_writes == ()
    assert body.state == {}
