"""JSON Schema: R-004, R-317, and the references that are never followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helix import schemas
from helix.schemas import SchemaRefused

ORDER = {
    "type": "object",
    "properties": {
        "order": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "a/b~c": {"type": "integer"},
    },
    "required": ["order"],
    "$defs": {"line": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}}},
}


def test_a_valid_value_has_no_violation() -> None:
    value = {"order": "A1", "lines": [{"count": 1}]}
    assert schemas.first_violation(ORDER, value) is None
    assert schemas.violations(ORDER, value) == []


def test_a_violation_names_its_place() -> None:
    value = {"order": "A1", "lines": [{"count": 1}, {"count": 0}]}
    assert schemas.first_violation(ORDER, value) == "/lines/1/count: 0 is less than the minimum of 1"
    assert schemas.first_violation(ORDER, {}) == '"order" is a required property'
    assert schemas.violations(ORDER, {"order": "A1", "a/b~c": "x"})[0]["path"] == "/a~1b~0c"


def test_violations_are_at_most_as_many_as_asked_for_and_short() -> None:
    value = {"order": "A1", "lines": [{"count": 0}] * 50}
    assert len(schemas.violations(ORDER, value)) == 20
    assert len(schemas.violations(ORDER, value, limit=3)) == 3
    assert len(schemas.violations({"type": "integer"}, "x" * 10_000)[0]["message"]) <= 500


def test_equal_schemas_share_one_validator() -> None:
    turned = dict(reversed(list(ORDER.items())))
    assert schemas.compile_schema(ORDER) is schemas.compile_schema(turned)
    assert schemas.compile_schema(ORDER) is not schemas.compile_schema({**ORDER, "required": []})


def test_the_digest_names_what_a_schema_says_and_not_how_it_is_ordered() -> None:
    turned = dict(reversed(list(ORDER.items())))
    assert schemas.schema_digest(ORDER) == schemas.schema_digest(turned)
    assert schemas.schema_digest(ORDER) != schemas.schema_digest({**ORDER, "required": []})
    assert len(schemas.schema_digest(ORDER)) == 64


def test_a_copy_shares_nothing_with_the_original() -> None:
    copied = schemas.own_copy(ORDER)
    assert copied == ORDER
    copied["properties"]["order"]["type"] = "integer"
    assert ORDER["properties"]["order"] == {"type": "string"}  # type: ignore[index]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"required": "order"},
        {"pattern": "("},
        {"$ref": "#/$defs/missing"},
        {"$schema": "https://example.invalid/draft"},
        {"default": float("nan")},
        {"default": object()},
    ],
)
def test_a_wrong_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaRefused):
        schemas.check_schema(schema)


def test_a_reference_to_a_file_is_refused_though_the_file_is_there(tmp_path: Path) -> None:
    definition = tmp_path / "definition.json"
    definition.write_text(json.dumps({"type": "string"}))
    with pytest.raises(SchemaRefused):
        schemas.check_schema({"$ref": definition.as_uri()})
    assert schemas.first_violation({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "x") is None


def test_a_reference_to_an_address_is_refused_and_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    refuse = schemas._refuse_reference

    def watched(uri: str) -> Any:
        asked.append(uri)
        return refuse(uri)

    monkeypatch.setattr(schemas, "_refuse_reference", watched)
    with pytest.raises(SchemaRefused, match=r"https?://127\.0\.0\.1:9/watched"):
        schemas.check_schema({"$ref": "http://127.0.0.1:9/watched"})
    assert asked == ["http://127.0.0.1:9/watched"]


def test_a_reference_to_the_published_meta_schema_needs_no_network() -> None:
    assert schemas.first_violation({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "string"}) is None


def test_an_older_draft_is_read_as_what_it_says_it_is() -> None:
    """``prefixItems`` is new in 2020-12, so an older draft ignores it."""
    schema = {"prefixItems": [{"type": "string"}]}
    assert schemas.first_violation(schema, [1]) is not None
    assert schemas.first_violation({"$schema": "http://json-schema.org/draft-07/schema#", **schema}, [1]) is None


def test_a_pattern_that_backtracks_ends() -> None:
    assert schemas.first_violation({"pattern": "^(a+)+$"}, "a" * 200 + "!") is not None
    assert schemas.first_violation({"pattern": "^(a+)+$"}, "a" * 200) is None
