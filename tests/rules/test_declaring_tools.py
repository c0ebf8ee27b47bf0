"""Declaring tools: R-001 to R-005, R-008 to R-010, R-016, R-019, R-020, R-023, R-024, R-239."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from helix.agents import (
    RESERVED_TOOL_NAME_PREFIXES,
    UNSET,
    Agent,
    ApprovalRequest,
    DeclarationError,
    SubAgent,
    Tool,
    ToolContext,
    client_tool,
    tool,
)


def refund(order: str, cents: int = 100) -> str:
    """Refund an order.

    The money is gone afterwards.

    Args:
        order: The number
            of the order.
        cents: How much.

    Returns:
        A receipt.
    """
    return f"{order}: {cents}"


class Place(BaseModel):
    """Where somebody is."""

    latitude: float
    longitude: float


def asked(**fields: Any) -> ApprovalRequest:
    return ApprovalRequest(
        **{
            "tool_name": "refund",
            "arguments": {"order": "A1"},
            "arguments_json": '{"order":"A1"}',
            "session_id": "s",
            "run_id": "r",
            "agent_type": "shop",
            "owner": "owner",
            **fields,
        }
    )


def test_a_server_tool_is_its_typed_function() -> None:
    """R-004: name, schema and texts come from the signature and the docstring."""
    made = tool(refund)
    assert made.name == "refund"
    assert made.description == "Refund an order.\n\nThe money is gone afterwards."
    assert made.execute == "server"
    assert made.body is refund
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "order": {"type": "string", "description": "The number of the order."},
            "cents": {"type": "integer", "description": "How much.", "default": 100},
        },
        "required": ["order"],
        "additionalProperties": False,
    }


def test_an_option_replaces_what_the_function_says() -> None:
    """R-004."""
    schema = {"type": "object", "properties": {"order": {"type": "string"}}}
    made = tool(name="give_back", description="", input_schema=schema, output_schema=Place)(refund)
    assert (made.name, made.description, made.input_schema) == ("give_back", "", schema)
    assert made.output_schema is not None
    assert made.output_schema["required"] == ["latitude", "longitude"]


def test_a_field_says_more_than_the_docstring() -> None:
    def find(cents: Annotated[int, Field(ge=1, description="At least one.")], day: date | None = None) -> None:
        """Find.

        Args:
            cents: Any.
        """

    # The nested function's annotations are strings here; they are read in this module's namespace.
    properties = tool(find).input_schema["properties"]
    assert properties["cents"] == {"type": "integer", "minimum": 1, "description": "At least one."}
    assert properties["day"]["anyOf"][0] == {"type": "string", "format": "date"}


def test_the_context_is_no_part_of_the_schema() -> None:
    def note(text: str, context: ToolContext) -> None: ...

    made = tool(note)
    assert list(made.input_schema["properties"]) == ["text"]
    assert made.context_parameter == "context"


def test_a_parameter_may_have_a_name_that_models_use_themselves() -> None:
    def odd(schema: str, model_config: int, _x: bool, copy: str = "c") -> None: ...

    assert list(tool(odd).input_schema["properties"]) == ["schema", "model_config", "_x", "copy"]


def test_a_client_tool_has_no_body() -> None:
    """R-001: nothing on the server could run, also when a function gave the signature."""
    ran: list[str] = []

    @tool(execute="client")
    def locate(precise: bool) -> None:
        ran.append("body")

    for made in (locate, client_tool("locate", input_schema={}), client_tool("locate", output_schema=Place)):
        assert made.execute == "client"
        assert made.body is None
        assert made.call_kind(needs_approval=False) == "client"
    assert list(locate.input_schema["properties"]) == ["precise"]
    assert ran == []


def test_a_client_tools_schemas_may_be_types() -> None:
    """R-004."""
    made = client_tool("pin", input_schema=Place, output_schema=list[int])
    assert made.input_schema["required"] == ["latitude", "longitude"]
    assert made.output_schema == {"type": "array", "items": {"type": "integer"}}


def test_a_schema_is_copied() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    made = client_tool("locate", input_schema=schema)
    schema["properties"]["late"] = {"type": "string"}
    assert made.input_schema["properties"] == {}


def server(**options: Any) -> Tool:
    return tool(**{"name": "refund", **options})(refund)


def client(**options: Any) -> Tool:
    return client_tool(**{"name": "locate", **options})


WRONG: list[tuple[str, Callable[..., Tool], dict[str, Any], str]] = [
    ("R-002", client, {"finish_with": True}, "finish_with"),
    ("R-002", server, {"execute": "client", "finish_with": True}, "finish_with"),
    ("R-003", client, {"name": "subagent__a"}, "name"),
    ("R-003", server, {"name": "companion__a"}, "name"),
    ("R-012", server, {"name": "__finish__"}, "name"),
    ("R-003", server, {"name": "no spaces"}, "name"),
    ("R-003", client, {"name": ""}, "name"),
    ("R-003", client, {"name": "n" * 65}, "name"),
    ("R-003", client, {"name": 7}, "name"),
    ("R-004", client, {"input_schema": {"type": "text"}}, "input_schema"),
    ("R-004", client, {"input_schema": {"type": "array"}}, "input_schema"),
    ("R-004", client, {"input_schema": {"$ref": "http://127.0.0.1:9/schema"}}, "input_schema"),
    ("R-004", client, {"output_schema": {"$ref": "file:///etc/hostname"}}, "output_schema"),
    ("R-004", client, {"output_schema": "a text"}, "output_schema"),
    ("R-008", server, {"require_approval": "yes"}, "require_approval"),
    ("R-009", client, {"require_approval": True}, "require_approval"),
    ("R-009", client, {"require_approval": lambda request: False}, "require_approval"),
    ("R-009", server, {"execute": "client", "require_approval": True}, "require_approval"),
    ("R-016", client, {"replay": "safe"}, "replay"),
    ("R-016", server, {"replay": "sometimes"}, "replay"),
    ("R-019", client, {"private": True}, "private"),
    ("R-019", server, {"private": True, "require_approval": True}, "private"),
    ("R-019", server, {"private": True, "require_approval": lambda request: False}, "private"),
    ("R-019", server, {"private": "yes"}, "private"),
    ("R-020", server, {"validate_arguments": None}, "validate_arguments"),
    ("R-023", server, {"forbid_self_approval": True}, "forbid_self_approval"),
    ("R-001", server, {"execute": "elsewhere"}, "execute"),
    ("R-024", server, {"summary": 7}, "summary"),
    ("R-024", server, {"description": 7}, "description"),
]


@pytest.mark.parametrize(("rule", "make", "options", "option"), WRONG)
def test_a_contradiction_is_refused_when_the_tool_is_made(
    rule: str, make: Callable[..., Tool], options: dict[str, Any], option: str
) -> None:
    """R-002, R-003, R-009, R-019, R-024: the refusal names the tool and the option."""
    assert make()
    with pytest.raises(DeclarationError) as refused:
        make(**options)
    assert refused.value.option == option
    assert refused.value.tool == str(options.get("name", make().name))
    assert f"option {option!r}" in str(refused.value)
    assert f"tool {refused.value.tool!r}" in str(refused.value)


@pytest.mark.parametrize("option", ["client_tool_timeout_ms", "approval_timeout_ms"])
@pytest.mark.parametrize("wait", [0, -1, 1.5, math.nan, math.inf, True, "1000", 10**16])
def test_a_wait_is_a_positive_integer(option: str, wait: Any) -> None:
    """R-239, R-005."""
    for right in (1, 300_000, None, UNSET):
        assert getattr(client(**{option: right}), option) is right
    with pytest.raises(DeclarationError, match=option):
        client(**{option: wait})


def test_the_reserved_prefixes_are_exported() -> None:
    """R-003."""
    assert RESERVED_TOOL_NAME_PREFIXES == ("subagent__", "companion__")
    child = Agent("child", output_schema={"type": "object"})
    assert SubAgent(child, "Works.").tool.name == "subagent__child"
    assert client(name="my_subagent__a").name == "my_subagent__a"


def test_a_tool_for_the_server_needs_a_function() -> None:
    """R-010: a body is one function, run whole."""
    with pytest.raises(DeclarationError, match="body"):
        Tool(name="empty")
    assert Tool(name="full", body=refund).body is refund
    with pytest.raises(DeclarationError, match="body"):
        Tool(name="both", body=refund, execute="client")


def test_a_signature_that_a_call_could_not_fill_is_refused() -> None:
    """R-024."""

    def untyped(order): ...  # type: ignore[no-untyped-def]

    def starred(*orders: str) -> None: ...

    def keywords(**orders: str) -> None: ...

    def positional(order: str, /) -> None: ...

    def unknown(order: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def unreadable(order: Callable[[], memoryview]) -> None: ...

    def opaque(order: memoryview) -> None: ...

    for function in (untyped, starred, keywords, positional, unknown, unreadable, opaque):
        with pytest.raises(DeclarationError) as refused:
            tool(function)
        assert refused.value.option == "signature"
        assert refused.value.tool == function.__name__


def test_the_approval_question_decides_by_the_call() -> None:
    """R-008."""
    made = server(require_approval=lambda request: request.arguments["cents"] > 1000)
    assert made.needs_approval(asked(arguments={"cents": 1001})) is True
    assert made.needs_approval(asked(arguments={"cents": 1000})) is False
    assert server(require_approval=True).needs_approval(asked()) is True
    assert server().needs_approval(asked()) is False


def test_a_question_that_fails_counts_as_approval_needed(caplog: pytest.LogCaptureFixture) -> None:
    """R-008."""
    made = server(require_approval=lambda request: request.arguments["missing"])
    assert made.needs_approval(asked()) is True
    assert [record.getMessage() for record in caplog.records] == ["approval.question_failed"]
    assert made.needs_approval(asked(arguments={"missing": False})) is False


def test_a_question_that_would_have_to_be_awaited_is_refused_or_counts_as_yes() -> None:
    """R-008: no coroutine is truthy by accident."""

    async def later(request: ApprovalRequest) -> bool:
        return False

    with pytest.raises(DeclarationError, match="require_approval"):
        server(require_approval=later)
    assert server(require_approval=lambda request: later(request)).needs_approval(asked()) is True


def test_the_kind_of_a_call_follows_from_its_tool() -> None:
    """R-001, R-008."""
    gated = server(require_approval=lambda request: True)
    assert gated.call_kind(needs_approval=True) == "approval"
    assert gated.call_kind(needs_approval=False) == "server"
    assert client().call_kind(needs_approval=False) == "client"
    child = Agent("child", output_schema={"type": "object"})
    assert SubAgent(child).tool.call_kind(needs_approval=False) == "subagent"


def test_what_is_allowed_together_is_accepted() -> None:
    """R-016, R-019, R-020, R-023: the neighbours of each refusal."""
    assert server(private=True, finish_with=True).private
    assert server(replay="safe", require_approval=True).replay == "safe"
    assert server(require_approval=True, forbid_self_approval=True).forbid_self_approval
    assert client(validate_arguments=False).validate_arguments is False
