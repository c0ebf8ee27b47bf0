"""The readable text of every built-in code that a tool result may carry (R-745).

The model reads the text, programs read the code. Texts come from the gettext catalogue; an agent may override one by
its code. For an approval the text says what became of the decision, so that the model can tell a refusal from a
silence (R-183).
"""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.functional import Promise
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

RESULT_TEXTS: dict[str, str | Promise] = {
    "client_tool_timeout": _("The tool was not answered in time. It may or may not have run."),
    "client_tool_abandoned": _("The tool was given up because the user went on with a new message."),
    "validation_failed": _("The arguments do not fit the tool's schema. Correct them and call the tool again."),
    "approval_denied": _("A reviewer denied this tool call. The tool did not run."),
    "not_executed": _("The tool was not executed."),
    "run_stopped": _("The turn was stopped before the tool was answered."),
    "aborted": _("The tool was cut off because the turn was stopped. It may have had effects."),
    "run_failed": _("The turn failed before the tool was answered."),
    "interrupted": _("The worker that ran the tool was lost. The tool may have had effects and was not run again."),
    "tool_execution_failed": _("The tool failed."),
    "framework_subagent_lost": _("The sub-agent's server no longer knows of this task, or cannot be reached."),
    "framework_remote_client_tool_unsupported": _(
        "The sub-agent's server cannot hand on tools that are answered from outside."
    ),
    "runtime_restarted": _("The runtime was restarted before the tool was answered."),
    "disposed": _("The session was closed before the tool was answered."),
}
# the same code says something else when a person owed a decision and the body therefore never ran.
APPROVAL_TEXTS: dict[str, str | Promise] = {
    "client_tool_timeout": _("Nobody decided on this tool call in time, so it counts as not approved. It did not run."),
    "client_tool_abandoned": _(
        "The user went on with a new message before anybody decided on this tool call. It did not run."
    ),
    "run_stopped": _("The turn was stopped before anybody decided on this tool call. It did not run."),
    "run_failed": _("The turn failed before anybody decided on this tool call. It did not run."),
}
# An override may place the detail by itself.
DETAIL_MARK = "{detail}"


def text_for(
    code: str,
    *,
    kind: str = "client",
    agent_texts: Mapping[str, str] | None = None,
    detail: str | None = None,
) -> str:
    """The text that the model reads for ``code``, in the active language.

    kind: the call's kind; approvals have texts of their own.  agent_texts: an agent's overrides by code; one that
    holds ``{detail}`` places the detail itself.  detail: what a person or an exception said, appended verbatim.
    An unknown code is tolerated: its detail, else the code itself (R-742).
    """
    override = (agent_texts or {}).get(code)
    if override is not None:
        if DETAIL_MARK in override:
            return override.replace(DETAIL_MARK, detail or "")
        return _joined(override, detail)
    known = RESULT_TEXTS.get(code)
    if kind == "approval":
        known = APPROVAL_TEXTS.get(code, known)
    if known is None:
        return detail or code
    return _joined(str(known), detail)


def edited_note(arguments_json: str) -> str:
    """The note that begins the result of a call whose arguments a reviewer changed (R-178)."""
    return _now("A reviewer changed the arguments before approving. The tool ran with: %(arguments)s") % {
        "arguments": arguments_json
    }


def _joined(text: str, detail: str | None) -> str:
    return f"{text} {detail}" if detail else text


def late_notice(tool_name: str, tool_call_id: str, answer_json: str) -> str:
    """The hidden notice that a real answer came after its call was settled as a timeout (R-272)."""
    return _now("The answer to %(tool)s (call %(call)s) arrived after its deadline: %(answer)s") % {
        "tool": tool_name,
        "call": tool_call_id,
        "answer": answer_json,
    }
