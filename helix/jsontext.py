"""Strict JSON: what comes in is read the same way everywhere, and what is counted is what is written.

SQLite and PostgreSQL disagree about NaN, infinities, U+0000 and lone surrogates, and they disagree late. So each of
them is refused while parsing (R-324), as are too deep values (R-322) and numbers that no peer can read. Nothing here
ends in a ``RecursionError``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64
MAX_INTEGER_DIGITS: Final = 4300
# A whole string, also one that is never closed, or one bracket. Possessive, so that no text makes it backtrack.
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


class JsonRefused(ValueError):
    """The text or value is not JSON that Helix stores. ``reason`` is one of a fixed few words, safe to show.

    Reasons: syntax, encoding, depth, duplicate_key, not_finite, too_long_number, nul, surrogate, type.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def loads(text: bytes | str, *, max_depth: int = MAX_DEPTH, unique_keys: bool = True) -> Any:
    """The value of a JSON text in UTF-8.

    max_depth: how many arrays and objects may be nested; a scalar has depth 0.
    unique_keys: whether a repeated key is refused. A model's own argument text may repeat one (R-053); the last wins.
    Raises: JsonRefused.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise JsonRefused("encoding", "The text is not UTF-8.") from error
    _refuse_deep_text(text, max_depth)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique if unique_keys else None,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_short_integer,
        )
    except JsonRefused:
        raise
    except ValueError as error:
        raise JsonRefused("syntax", "The text is not JSON.") from error
    if "\\u" in text or not text.isascii():  # the only ways to a forbidden character: an escape, or a str that held it
        _refuse_forbidden(value, max_depth)
    return value


def checked(value: Any, *, max_depth: int = MAX_DEPTH) -> Any:
    """The same value, known to be JSON that both databases store alike: for what a tool's own code produced.

    Raises: JsonRefused, reason ``type`` for what JSON cannot say at all.
    """
    _refuse_forbidden(value, max_depth)
    return value


def dumps(value: Any) -> str:
    """The compact JSON text of a value: the form that is sent, and whose UTF-8 bytes are counted (R-290).

    Raises: JsonRefused.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise JsonRefused("type", "The value cannot be written as JSON.") from error


def size(value: Any) -> int:
    """How many UTF-8 bytes the compact JSON of ``value`` has (R-290, R-301)."""
    try:
        return len(dumps(value).encode("utf-8"))
    except UnicodeEncodeError as error:
        raise JsonRefused("surrogate", "A string holds a lone surrogate.") from error


def digest(text: str) -> str:
    """The hexadecimal SHA-256 of the text's UTF-8 bytes. A lone surrogate counts as the three bytes it would be."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _refuse_deep_text(text: str, max_depth: int) -> None:
    """Counts brackets outside strings, before the recursive parser sees them."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        token = found[0]
        if token in ("[", "{"):
            depth += 1
            if depth > max_depth:
                _too_deep(max_depth)
        elif token in ("]", "}"):
            depth -= 1


def _too_deep(max_depth: int) -> NoReturn:
    raise JsonRefused("depth", f"The value is nested deeper than {max_depth} levels.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonRefused("duplicate_key", "An object names the same key twice.")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise JsonRefused("not_finite", f"{name} is not a JSON number.")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise JsonRefused("not_finite", "A number overflows to infinity.")
    return number


def _short_integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise JsonRefused("too_long_number", f"An integer has more than {MAX_INTEGER_DIGITS} digits.")
    return int(digits)


def _refuse_forbidden(value: Any, max_depth: int) -> None:
    """Walks without recursion, so that a value deeper than the interpreter's stack is refused like any other."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, str):
            _refuse_characters(node)
        elif isinstance(node, dict | list | tuple):
            if depth == max_depth:
                _too_deep(max_depth)
            waiting.extend((child, depth + 1) for child in _children(node))
        elif isinstance(node, float):
            if not float("-inf") < node < float("inf"):
                raise JsonRefused("not_finite", "NaN and infinities are not JSON numbers.")
        elif isinstance(node, int):
            if abs(node) >= _FIRST_TOO_LONG:
                raise JsonRefused("too_long_number", f"An integer has more than {MAX_INTEGER_DIGITS} digits.")
        elif node is not None:
            raise JsonRefused("type", f"{type(node).__name__} is not a JSON type.")


_FIRST_TOO_LONG: Final = 10**MAX_INTEGER_DIGITS


def _children(node: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    if not isinstance(node, dict):
        yield from node
        return
    for key, child in node.items():
        if not isinstance(key, str):
            raise JsonRefused("type", "A key of an object is not a string.")
        yield key
        yield child


def _refuse_characters(text: str) -> None:
    if "\x00" in text:
        raise JsonRefused("nul", "A string holds U+0000.")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise JsonRefused("surrogate", "A string holds a lone surrogate.") from error
