"""The body of a submit, read without a database: what it must carry and what is optional (5.C)."""

from __future__ import annotations

from typing import Any

import pytest

from helix.answers import Answer, Failure, Result, Verdict, parse_submission
from helix.errors import ValidationFailed


@pytest.mark.parametrize("body", [{}, {"result": 1, "error": "no"}, {"result": None, "error": "no"}, {"error": None}])
def test_exactly_one_of_result_and_error_is_needed(body: dict[str, Any]) -> None:
    """R-061: a key with the value null counts as given."""
    with pytest.raises(ValidationFailed):
        parse_submission({"toolCallId": "c1", **body})


@pytest.mark.parametrize(("body", "answer"), [({"result": None}, Result("null", None)), ({"error": ""}, Failure(""))])
def test_a_given_null_is_a_result_and_no_kind_means_a_client_result(body: dict[str, Any], answer: Answer) -> None:
    """R-061, R-062."""
    assert parse_submission({"toolCallId": "c1", **body}).answer == answer
    assert parse_submission({"toolCallId": "c1", "kind": "client-tool-result", **body}).answer == answer


@pytest.mark.parametrize("left_out", ["kind", "approvalId", "approved"])
def test_a_verdict_states_its_kind_its_approval_and_its_outcome(left_out: str) -> None:
    """R-063: reason, editedArguments and argumentsDigest are optional."""
    whole = {"toolCallId": "c1", "kind": "approval-response", "approvalId": "a", "approved": False}
    assert parse_submission(whole).answer == Verdict("a", approved=False)
    more = {**whole, "approved": True, "reason": "r", "editedArguments": {"b": 1}, "argumentsDigest": "d"}
    assert parse_submission(more).answer == Verdict("a", True, "r", '{"b":1}', "d")
    with pytest.raises(ValidationFailed):
        parse_submission({key: value for key, value in whole.items() if key != left_out})
