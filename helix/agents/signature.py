"""From a typed Python function to the schema that a model sees and the types that the body receives.

Pydantic reads the annotations; the docstring's Google-style ``Args:`` describe the parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import griffe
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from helix.agents.context import ToolContext
from helix.agents.declaration import Place

_NO_NAMES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _PlainSchema(GenerateJsonSchema):
    """Without the titles that repeat a parameter's name, and silent about defaults that JSON cannot show."""

    ignored_warning_kinds: set[Any] = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's prose, and what it says about each parameter."""
    text = inspect.getdoc(function) or ""
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in griffe.Docstring(text, parser="google").parse(warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            prose.append(section.value)
        elif isinstance(section, griffe.DocstringSectionParameters):
            parameters.update({found.name: " ".join(found.description.split()) for found in section.value})
    return "\n\n".join(prose), parameters


@dataclass(frozen=True)
class Signature:
    """A function's parameters: the model of those that a call fills, and the one that gets the ``ToolContext``."""

    model: type[BaseModel]
    context_parameter: str | None


def signature_of(place: Place, function: Callable[..., Any], descriptions: Mapping[str, str]) -> Signature:
    """One required or optional field per parameter, the ``ToolContext`` left out.

    A field is reached by its alias, the parameter's name, which may therefore be any name: also ``schema`` or ``_x``.
    Raises: DeclarationError for what a call could not fill by name, or that pydantic does not know.
    """
    hints = _hints(place, function)
    fields: dict[str, Any] = {}
    context_parameter = None
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind in _NO_NAMES:
            raise place.refusal("signature", f"a call gives its arguments by name, and '{parameter}' has none")
        if parameter.name not in hints:
            raise place.refusal("signature", f"the parameter {parameter.name!r} has no type")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context_parameter = parameter.name
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"argument_{number}"] = (_annotated(hint, parameter.name, descriptions), default)
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticUserError, NameError, TypeError) as error:
        raise place.refusal("signature", str(error).splitlines()[0]) from error
    return Signature(model, context_parameter)


def context_parameter_of(function: Callable[..., Any]) -> str | None:
    """The parameter that gets the ``ToolContext`` where the schema is written out and other types do not matter."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.annotation in (ToolContext, ToolContext.__name__):
            return parameter.name
    return None


def schema_of(place: Place, option: str, source: Any) -> dict[str, Any]:
    """A JSON Schema as it stands, or the schema of a type that pydantic knows. Raises: DeclarationError."""
    if isinstance(source, dict):
        return source
    if isinstance(source, str):
        raise place.refusal(option, f"{source!r} is neither a JSON Schema object nor a type")
    try:
        schema = TypeAdapter(source).json_schema(schema_generator=_PlainSchema)
    except (PydanticUserError, NameError, TypeError) as error:
        raise place.refusal(option, str(error).splitlines()[0]) from error
    schema.pop("title", None)
    return schema


def _hints(place: Place, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise place.refusal("signature", f"an annotation cannot be read: {error}") from error


def _annotated(hint: Any, name: str, descriptions: Mapping[str, str]) -> Any:
    """The hint with the docstring's words before its own metadata, which may say more, and the alias after it."""
    kind, *own = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    words: list[FieldInfo] = [Field(description=descriptions[name])] if name in descriptions else []
    return Annotated[(kind, *words, *own, Field(alias=name))]
