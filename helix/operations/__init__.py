"""What a client may ask for, behind every door: HTTP, websocket, chat dialects (contract 5.L).

An edge reads bytes, asks `authenticate` who is there, hands a parsed body to `perform` and writes the `Reply`. So a
websocket command and its HTTP route have the same service, the same order of refusals, the same caps and the same rate
(R-366). Everything here is synchronous and knows no transport.
"""

from helix.operations.access import Refusal, authenticate, check_scope
from helix.operations.bodies import body_cap, check_body_size, parse_body, parse_message
from helix.operations.door import OPERATIONS, Reply, perform

__all__ = [
    "OPERATIONS",
    "Refusal",
    "Reply",
    "authenticate",
    "body_cap",
    "check_body_size",
    "check_scope",
    "parse_body",
    "parse_message",
    "perform",
]
