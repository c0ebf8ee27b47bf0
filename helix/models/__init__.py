"""The rows. One file per family of tables; constraints make the impossible row impossible (contract section 3)."""

from .bookkeeping import Checkpoint, RemoteDebt, SweepMark, UsageRecord
from .call import CallAudit, CallOwnership, CallTombstone, PendingCall
from .delegation import RemoteChild
from .message import Message
from .run import Run, RunLease
from .session import Session
from .stream import StreamEvent

__all__ = [
    "CallAudit",
    "CallOwnership",
    "CallTombstone",
    "Checkpoint",
    "Message",
    "PendingCall",
    "RemoteChild",
    "RemoteDebt",
    "Run",
    "RunLease",
    "Session",
    "StreamEvent",
    "SweepMark",
    "UsageRecord",
]
