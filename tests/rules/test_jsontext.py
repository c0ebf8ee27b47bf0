"""Strict JSON: R-290, R-301, R-322, R-324."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix import jsontext
from helix.jsontext import JsonRefused

BACKSLASH = "\\"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":[1,2.5,"x",true,null]}', {"a": [1, 2.5, "x", True, None]}),
        ('"ok"', "ok"),
        (b" 0 ", 0),
        ('"' + BACKSLASH + "ud83d" + BACKSLASH + 'ude00"', "😀"),
        ('"' + BACKSLASH + BACKSLASH + 'u0000"', BACKSLASH + "u0000"),
        pytest.param("1" * 4300, int("1" * 4300), id="4300 digits"),
        ("1e308", 1e308),
    ],
)
def test_json_is_read(text: bytes | str, value: Any) -> None:
    assert jsontext.loads(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "syntax"),
        (b"{", "syntax"),
        (b'{"a":1}x', "syntax"),
        (b'"a\nb"', "syntax"),
        ('"\x00"', "syntax"),
        (b"\xef\xbb\xbf1", "syntax"),
        (b'"\xff"', "encoding"),
        (b'"\xed\xa0\x80"', "encoding"),
        ("NaN", "not_finite"),
        ("[Infinity]", "not_finite"),
        ('{"a":-Infinity}', "not_finite"),
        ("1e400", "not_finite"),
        ("-1e400", "not_finite"),
        ("1" * 4301, "too_long_number"),
        ("-" + "1" * 4301, "too_long_number"),
        ('"' + BACKSLASH + 'u0000"', "nul"),
        ('{"' + BACKSLASH + 'u0000":1}', "nul"),
        ('["' + BACKSLASH + 'ud800"]', "surrogate"),
        ('{"' + BACKSLASH + 'udc00":1}', "surrogate"),
        ('"\ud800"', "surrogate"),
        ('{"a":1,"a":1}', "duplicate_key"),
        ('[{"a":{"b":1,"b":2}}]', "duplicate_key"),
    ],
)
def test_what_the_databases_would_treat_differently_is_refused(text: bytes | str, reason: str) -> None:
    """R-324, and the reasons beside it."""
    with pytest.raises(JsonRefused) as refused:
        jsontext.loads(text)
    assert refused.value.reason == reason


def test_a_repeated_key_counts_as_its_last_value_where_that_is_allowed() -> None:
    """R-053: a model's own text may repeat a key."""
    assert jsontext.loads('{"a":1,"a":2}', unique_keys=False) == {"a": 2}


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_the_sixty_fourth_level_is_the_last(opened: str, closed: str) -> None:
    """R-322."""
    assert jsontext.loads(opened * 64 + "1" + closed * 64)
    for levels in (65, 200_000):
        with pytest.raises(JsonRefused) as refused:
            jsontext.loads(opened * levels + "1" + closed * levels)
        assert refused.value.reason == "depth"


def test_brackets_that_are_never_closed_are_refused_without_recursion() -> None:
    """R-322."""
    with pytest.raises(JsonRefused):
        jsontext.loads("[" * 1_000_000)


def test_brackets_inside_strings_and_beside_each_other_are_no_depth() -> None:
    """R-322."""
    assert jsontext.loads('"' + "[" * 1000 + '"') == "[" * 1000
    assert jsontext.loads('["' + BACKSLASH + '"[[' + "[" * 100 + '"]') == ['"[[' + "[" * 100]
    assert jsontext.loads("[" + ",".join(["[]"] * 1000) + "]") == [[]] * 1000


def test_a_string_that_is_never_closed_takes_no_time() -> None:
    """R-322: quadratic scanning of half a megabyte would be seen by the suite's stuck detector."""
    with pytest.raises(JsonRefused):
        jsontext.loads("[" * 65 + '"' + (BACKSLASH + '"') * 250_000)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "not_finite"),
        ([float("inf")], "not_finite"),
        ({"a": "\x00"}, "nul"),
        ({"\ud800": 1}, "surrogate"),
        ({1: 2}, "type"),
        ({"a": object()}, "type"),
        (b"bytes", "type"),
        pytest.param(10**4300, "too_long_number", id="4301 digits"),
    ],
)
def test_a_value_that_a_program_made_is_held_to_the_same_rules(value: Any, reason: str) -> None:
    """R-324."""
    with pytest.raises(JsonRefused) as refused:
        jsontext.checked(value)
    assert refused.value.reason == reason


def test_a_value_that_holds_itself_is_refused() -> None:
    """R-322."""
    value: list[Any] = []
    value.append(value)
    for judge in (jsontext.checked, jsontext.dumps):
        with pytest.raises(JsonRefused):
            judge(value)


def test_a_value_within_the_rules_is_returned_as_it_is() -> None:
    value = {"a": [1, 2.5, "é", True, None, ("x",)]}
    assert jsontext.checked(value) is value


def test_the_counted_form_is_compact_and_unescaped() -> None:
    """R-290, R-301: two-byte characters count twice."""
    assert jsontext.dumps({"a": [1, "é"]}) == '{"a":[1,"é"]}'
    assert jsontext.size("é" * 10) == 22
    assert jsontext.size("e" * 10) == 12
    with pytest.raises(JsonRefused):
        jsontext.size("\ud800")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_json_cannot_say_is_not_written(value: Any) -> None:
    """R-324."""
    with pytest.raises(JsonRefused):
        jsontext.dumps(value)


def test_the_digest_is_that_of_the_utf8_bytes() -> None:
    assert jsontext.digest("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"
    assert jsontext.digest("é") != jsontext.digest("e")
    assert len(jsontext.digest("\ud800")) == 64


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner)
    ),
    max_leaves=20,
)


@given(_json)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert jsontext.loads(jsontext.dumps(value)) == value


@given(st.binary(max_size=200) | st.text(alphabet='[]{}",:\\u0d8e1-.NIaftn ', max_size=200))
def test_any_input_is_a_value_or_one_refusal(text: bytes | str) -> None:
    """R-315, R-322: never another exception."""
    try:
        jsontext.checked(jsontext.loads(text))
    except JsonRefused:
        return
