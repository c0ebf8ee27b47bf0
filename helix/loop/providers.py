"""Real models, through pydantic-ai's direct interface. The only module that imports pydantic_ai.

The library is used for what differs between providers: their wire formats, their streams, their errors. The loop, the
history and the retries are ours, so its own retries are off. Parts and events of kinds unknown here are ignored, since
the library adds new ones in minor releases.

``openai:<name>`` speaks chat completions, at ``HELIX_MODEL_BASE_URL`` and with ``HELIX_MODEL_API_KEY`` when they are
set; every other ``<provider>:<name>`` of the library works with the provider's own environment variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

from pydantic_ai import direct
from pydantic_ai import messages as wire
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, ModelTimeoutError, UserError
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from helix import conf, jsontext
from helix.loop.assembly import ReplyAssembly
from helix.loop.cancel import Cancelled, CancelToken
from helix.loop.messages import Delta, LoggedMessage, ModelError, ModelRequest, Part, Reply, Usage, result_text
from helix.loop.streaming import LoopFactory, drive

# Names the shape of ``Reply.provider``; a blob of another shape is not given back.
FORMAT = "pydantic-ai/2"
RETRYABLE_STATUSES = (408,)

StreamItem = wire.ModelResponseStreamEvent | wire.ModelResponse


def complete_reply(
    request: ModelRequest,
    *,
    emit: Callable[[Delta], None],
    token: CancelToken,
    silence_seconds: float | None = None,
    new_loop: LoopFactory = asyncio.new_event_loop,
) -> Reply:
    """Ask a provider. The same contract as ``port.complete_reply``.

    silence_seconds: how long the connection may carry no byte, HELIX_STREAM_SILENCE_SECONDS when not given; the whole
    stream may take for ever (Q-60).
    """
    silence = conf.get("HELIX_STREAM_SILENCE_SECONDS") if silence_seconds is None else silence_seconds
    reading = _Reading(ReplyAssembly(emit))

    async def stream() -> AsyncIterator[StreamItem]:
        # Made inside the loop, and closed with it: a connection belongs to one event loop.
        async with _model(request.model) as model:
            opened = direct.model_request_stream(
                model,
                _history(request.messages),
                model_settings=_settings(request, silence),
                model_request_parameters=_parameters(request),
            )
            async with opened as response:
                async for event in response:
                    yield event
                yield response.get()

    try:
        with closing(drive(stream, token, new_loop=new_loop)) as items:
            for item in items:
                reading.take(item)
    except Cancelled:
        raise Cancelled(reading.assembly.partial()) from None
    except (AgentRunError, UserError, ImportError) as failure:
        raise _model_error(failure, reading.assembly.partial()) from failure
    return reading.finished()


class _Reading:
    """Turns the library's events into pieces of a reply."""

    def __init__(self, assembly: ReplyAssembly) -> None:
        self.assembly = assembly
        self._calls: dict[int, int] = {}
        self._response: wire.ModelResponse | None = None

    def take(self, item: StreamItem) -> None:
        match item:
            case wire.PartStartEvent(index=index, part=part):
                self._started(index, part)
            case wire.PartDeltaEvent(index=index, delta=delta):
                self._grown(index, delta)
            case wire.PartEndEvent(part=wire.ThinkingPart()):
                self.assembly.thinking_done()
            case wire.ModelResponse():
                self._response = item

    def _started(self, index: int, part: wire.ModelResponsePart) -> None:
        match part:
            case wire.TextPart():
                self.assembly.text(part.content)
            case wire.ThinkingPart():
                self.assembly.thinking(part.content)
            case wire.ToolCallPart():
                number = self._calls[index] = self.assembly.call_started(part.tool_name, part.tool_call_id)
                self.assembly.call_arguments(number, _argument_text(part.args))

    def _grown(self, index: int, delta: wire.ModelResponsePartDelta) -> None:
        match delta:
            case wire.TextPartDelta():
                self.assembly.text(delta.content_delta)
            case wire.ThinkingPartDelta():
                self.assembly.thinking(delta.content_delta or "")
            case wire.ToolCallPartDelta() if index in self._calls:
                self.assembly.call_arguments(self._calls[index], _argument_text(delta.args_delta))

    def finished(self) -> Reply:
        """The whole reply. Raises: ModelError for one that broke off or that the provider withheld."""
        self.assembly.thinking_done()
        partial = self.assembly.partial()
        response = self._response
        if response is None or response.finish_reason is None:
            raise ModelError("The model's reply ended before it was complete.", retryable=True, partial=partial)
        if response.finish_reason == "content_filter" and partial is None:
            raise ModelError("The provider's content filter withheld the reply.")
        usage = Usage(
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cache_read_tokens=response.usage.cache_read_tokens,
            cache_write_tokens=response.usage.cache_write_tokens,
        )
        return self.assembly.reply(complete=True, usage=usage, provider=_provider_blob(response))


def _model(name: str) -> Model:
    provider, _, model_name = name.partition(":")
    if provider in ("openai", "openai-chat"):
        return OpenAIChatModel(
            model_name,
            provider=OpenAIProvider(base_url=conf.get("HELIX_MODEL_BASE_URL"), api_key=conf.get("HELIX_MODEL_API_KEY")),
            # Without this a stream that was cut between two chunks would count as a finished reply.
            profile=OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True),
        )
    return infer_model(name)


def _settings(request: ModelRequest, silence: float) -> ModelSettings:
    """The agent's settings, with our own retries and a bound on silence that counts bytes and has no total."""
    settings: dict[str, Any] = {**request.settings, "max_retries": 0, "timeout": silence}
    return ModelSettings(**settings)  # type: ignore[typeddict-item]  # an agent may name a provider's own settings


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.input_schema))
        for tool in request.tools
    ]
    instructions = [wire.InstructionPart(content=request.instructions)] if request.instructions else None
    return ModelRequestParameters(function_tools=tools, instruction_parts=instructions)


def _history(messages: tuple[LoggedMessage, ...]) -> list[wire.ModelMessage]:
    """Our log in the library's types. Neighbours that are not the model's share one request, as some providers need."""
    history: list[wire.ModelMessage] = []
    asked: list[wire.ModelRequestPart] = []
    for message in messages:
        if message.role == "assistant":
            if asked:
                history.append(wire.ModelRequest(parts=asked))
                asked = []
            history.append(_response(message))
        elif message.role == "tool":
            asked.extend(_tool_return(part) for part in message.parts if part["type"] == "tool_result")
        elif message.parts:
            asked.append(wire.UserPromptPart(content=_user_content(message)))
    if asked:
        history.append(wire.ModelRequest(parts=asked))
    return history


def _user_content(message: LoggedMessage) -> str | list[wire.UserContent]:
    if all(part["type"] == "text" for part in message.parts):
        return message.text
    content: list[wire.UserContent] = []
    for part in message.parts:
        if part["type"] == "text":
            content.append(part["text"])
        elif part["type"] == "file":
            content.append(_file(part["url"], part["mediaType"]))
    return content


def _file(url: str, media_type: str) -> wire.UserContent:
    if url.startswith("data:"):
        return wire.BinaryContent.from_data_uri(url)
    kinds = {"image": wire.ImageUrl, "audio": wire.AudioUrl, "video": wire.VideoUrl}
    return kinds.get(media_type.partition("/")[0], wire.DocumentUrl)(url, media_type=media_type)


def _tool_return(part: Part) -> wire.ToolReturnPart:
    return wire.ToolReturnPart(
        tool_name=part["toolName"],
        content=result_text(part),
        tool_call_id=part["providerCallId"] or part["toolCallId"],
        outcome="failed" if "error" in part else "success",
    )


def _response(message: LoggedMessage) -> wire.ModelResponse:
    """A reply of the model: its own words where the provider wants them back, else rebuilt from the parts."""
    calls = [
        wire.ToolCallPart(
            tool_name=part["toolName"],
            args=part["argumentsJson"],
            tool_call_id=part["providerCallId"] or part["toolCallId"],
        )
        for part in message.calls()
    ]
    for part in message.parts:
        if part["type"] == "provider" and part["format"] == FORMAT:
            kept = _load(part["data"])
            if kept is not None and _same_calls(kept, calls):
                return kept
    text = [wire.TextPart(content=message.text)] if message.text else []
    return wire.ModelResponse(parts=[*text, *calls])


def _same_calls(kept: wire.ModelResponse, calls: list[wire.ToolCallPart]) -> bool:
    def ids(parts: Any) -> list[str]:
        return [part.tool_call_id for part in parts if isinstance(part, wire.ToolCallPart)]

    return ids(kept.parts) == ids(calls)


def _load(data: Any) -> wire.ModelResponse | None:
    """The kept response, or None when this version of the library no longer reads it."""
    try:
        (message,) = wire.ModelMessagesTypeAdapter.validate_python([data])
    except ValueError:
        return None
    return message if isinstance(message, wire.ModelResponse) else None


def _provider_blob(response: wire.ModelResponse) -> dict[str, Any] | None:
    """The response as the provider wants it back; None when the parts of the log say as much."""
    if not any(_is_peculiar(part) for part in response.parts):
        return None
    (data,) = wire.ModelMessagesTypeAdapter.dump_python([response], mode="json")
    return {"format": FORMAT, "data": data}


def _is_peculiar(part: wire.ModelResponsePart) -> bool:
    """Whether the part says more than its text or its call: a signature, an id, a kind of its own."""
    if isinstance(part, wire.TextPart | wire.ToolCallPart):
        return bool(part.id or part.provider_details)
    if isinstance(part, wire.ThinkingPart):
        return bool(part.signature or part.provider_details)
    return True


def _argument_text(arguments: Any) -> str:
    """Text as it came; some providers give the parsed object instead, which then has no text of its own."""
    if isinstance(arguments, str):
        return arguments
    return jsontext.dumps(arguments) if arguments else ""


def _model_error(failure: Exception, partial: Reply | None) -> ModelError:
    status = failure.status_code if isinstance(failure, ModelHTTPError) else None
    message = str(failure) or type(failure).__name__
    if isinstance(failure, ModelTimeoutError) and failure.phase not in ("connect", "pool"):
        return ModelError(
            "The model's connection fell silent.", code="provider_stream_stalled", retryable=True, partial=partial
        )
    if status == 429:
        return ModelError(message, code="provider_rate_limited", retryable=True, status_code=status, partial=partial)
    if isinstance(failure, ModelHTTPError):
        retryable = failure.status_code >= 500 or failure.status_code in RETRYABLE_STATUSES
    else:
        retryable = isinstance(failure, ModelAPIError)
    return ModelError(message, retryable=retryable, status_code=status, partial=partial)
