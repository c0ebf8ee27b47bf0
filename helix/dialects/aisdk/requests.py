"""What a page posts: the stock bodies of the AI SDK, of assistant-ui and of pages that send their last message only.

Keys and parts that nobody here knows are ignored (R-325); later versions of the SDK add some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helix.answers import malformed, object_of, required_text, text_field
from helix.errors import ValidationFailed
from helix.operations import parse_message


@dataclass(frozen=True)
class ChatRequest:
    """session_id: as the page names its chat.  message: the last one, which alone is looked at."""

    session_id: str
    agent_type: str | None
    role: str
    message_id: str | None
    parts: list[Mapping[str, Any]]


def session_named(body: Mapping[str, Any]) -> str | None:
    """The chat that a body names, before anything else of it is judged (R-358): ``sessionId`` wins over ``id``."""
    for name in ("sessionId", "id"):
        if isinstance(given := body.get(name), str) and given:
            return given
    return None


def parse_chat(body: Mapping[str, Any]) -> ChatRequest:
    """Raises: `ValidationFailed`; with cause ``regenerate`` when an answer is to be made anew."""
    if body.get("trigger") == "regenerate-message":
        raise ValidationFailed("An answer is not made anew here. Send a message.", cause="regenerate")
    message = object_of(_last_message(body))
    parts = message.get("parts")
    if not isinstance(parts, list):
        malformed("the message has no parts")
    return ChatRequest(
        session_id=required_text({"id": session_named(body)}, "id"),
        agent_type=text_field(body, "agentType"),
        role=required_text(message, "role"),
        message_id=text_field(message, "id"),
        parts=[part for part in parts if isinstance(part, dict) and isinstance(part.get("type"), str)],
    )


def user_message(request: ChatRequest) -> list[dict[str, Any]]:
    """The words and files of a user's message as the log keeps them. Raises: `ValidationFailed` when there are none."""
    said = [
        part
        for part in request.parts
        if part["type"] == "file" or (part["type"] == "text" and str(part.get("text") or "").strip())
    ]
    return parse_message(said)


def _last_message(body: Mapping[str, Any]) -> Any:
    messages = body.get("messages")
    if messages is None:
        return body.get("message")
    if not isinstance(messages, list) or not messages:
        malformed("there is no message")
    return messages[-1]
