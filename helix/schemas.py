"""JSON Schema without surprises: compiled once, never fetching, and quick on hostile patterns.

A schema may name others by ``$ref``; only its own definitions and the published meta-schemas are followed. Every
address and file is refused, since following one would let a schema read the server's network and disk.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final, TypeAlias

import jsonschema_rs

from helix import jsontext

JsonSchema: TypeAlias = dict[str, Any]
Validator: TypeAlias = Any  # one of jsonschema_rs.Draft…Validator; they share no base class

_MESSAGE_CHARACTERS: Final = 500


class SchemaRefused(ValueError):
    """The schema itself is not valid, or refers to something outside itself."""


def compile_schema(schema: JsonSchema) -> Validator:
    """The schema's validator, shared by every equal schema of this process. Draft 2020-12 unless ``$schema`` differs.

    Raises: SchemaRefused.
    """
    try:
        return _compile(_canonical(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaRefused(_shortened(_first_line(error))) from error


def schema_digest(schema: JsonSchema) -> str:
    """A name for one version of a schema: the SHA-256 of its text with sorted keys, as 64 hexadecimal digits."""
    return jsontext.digest(_canonical(schema))


def check_schema(schema: JsonSchema) -> None:
    """Returns when the schema can be used. Raises: SchemaRefused, which is a ValueError."""
    compile_schema(schema)


def own_copy(schema: JsonSchema) -> JsonSchema:
    """A usable copy that shares nothing with the caller's object. Raises: SchemaRefused."""
    compile_schema(schema)
    copied: JsonSchema = json.loads(json.dumps(schema))
    return copied


def first_violation(schema: JsonSchema, value: Any) -> str | None:
    """One sentence on the first violation, with its place; ``None``: the value is valid."""
    validator = compile_schema(schema)
    if validator.is_valid(value):
        return None
    found = violations(schema, value, limit=1)[0]
    return f"{found['path']}: {found['message']}" if found["path"] else found["message"]


def violations(schema: JsonSchema, value: Any, limit: int = 20) -> list[dict[str, str]]:
    """At most ``limit`` violations, each ``{"path", "message"}``. The path is a JSON Pointer, empty for the value."""
    found: list[dict[str, str]] = []
    for error in compile_schema(schema).iter_errors(value):
        if len(found) == limit:
            break
        found.append({"path": _pointer(error.instance_path), "message": _shortened(error.message)})
    return found


def _canonical(schema: JsonSchema) -> str:
    return json.dumps(schema, sort_keys=True, allow_nan=False)


@lru_cache(maxsize=1024)
def _compile(canonical: str) -> Validator:
    schema = json.loads(canonical)
    if isinstance(schema, dict) and "$schema" in schema:
        return jsonschema_rs.validator_for(schema, retriever=_refuse_reference)
    return jsonschema_rs.Draft202012Validator(schema, retriever=_refuse_reference)


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"the reference {uri} leads outside the schema")


def _pointer(path: list[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _shortened(text: str) -> str:
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"
