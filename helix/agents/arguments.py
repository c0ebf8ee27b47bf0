"""A model's argument text, read and judged once for every door: registration, edited arguments, the body (R-030)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from helix import jsontext, schemas
from helix.agents.context import ToolContext
from helix.agents.tools import Tool


class ArgumentsRefused(ValueError):
    """The arguments do not fit the tool. The text names the first problem, in words that a model can act on (R-031)."""


def read_arguments(tool: Tool, text: str) -> dict[str, Any]:
    """The arguments that ``text`` says, as plain JSON values that the tool accepts.

    No text at all means no arguments, since some providers send nothing for them. A key that is repeated counts as
    its last value; the text itself is kept elsewhere, as it is (R-053).
    Raises: ArgumentsRefused.
    """
    try:
        arguments = jsontext.loads(text, unique_keys=False) if text.strip() else {}
    except jsontext.JsonRefused as error:
        raise ArgumentsRefused(f"The arguments are not acceptable JSON: {error}") from error
    return check_arguments(tool, arguments)


def check_arguments(tool: Tool, arguments: Any) -> dict[str, Any]:
    """The same arguments, known to fit the tool's schema and its Python types. Raises: ArgumentsRefused."""
    if not isinstance(arguments, dict):
        raise ArgumentsRefused("The arguments are not a JSON object.")
    problem = schemas.first_violation(tool.input_schema, arguments)
    if problem is not None:
        raise ArgumentsRefused(problem)
    if tool.input_model is not None:
        _filled(tool.input_model, arguments)
    return arguments


def call_arguments(tool: Tool, arguments: dict[str, Any], context: ToolContext | None = None) -> dict[str, Any]:
    """Keyword arguments for the tool's body: Python values for a typed function, else the JSON values themselves.

    context: given to the parameter that asks for one.
    Raises: ArgumentsRefused.
    """
    if tool.input_model is None:
        given = dict(arguments)
    else:
        filled = _filled(tool.input_model, arguments)
        given = {str(field.alias): getattr(filled, name) for name, field in type(filled).model_fields.items()}
    if tool.context_parameter is not None:
        given[tool.context_parameter] = context
    return given


def _filled(model: type[BaseModel], arguments: dict[str, Any]) -> BaseModel:
    """In JSON mode, where a date is a string and a tuple is an array."""
    try:
        return model.model_validate_json(jsontext.dumps(arguments))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = "".join(f"/{part}" for part in first["loc"])
        raise ArgumentsRefused(f"{where}: {first['msg']}") from error
    except Exception as error:  # a validator of the declaring code may raise anything
        raise ArgumentsRefused(f"The arguments could not be read: {error}") from error
