"""Other servers that run sub-agents for this one: what is asked of them, and how they are reached (5.G).

A `Peer` speaks the protocol over an `Exchange`; HTTP is one. What comes from a peer is judged here and nowhere later:
ids, texts and schemas that a row could not hold, or that no answer could fit, are refused as `PeerUnreachable`.
"""

from helix.peers.http import peer_at
from helix.peers.peer import Peer
from helix.peers.port import (
    Address,
    Exchange,
    PeerCall,
    PeerClosing,
    PeerRefused,
    PeerStatus,
    PeerUnreachable,
    RemoteSubAgentClientToolUnsupportedError,
)

__all__ = [
    "Address",
    "Exchange",
    "Peer",
    "PeerCall",
    "PeerClosing",
    "PeerRefused",
    "PeerStatus",
    "PeerUnreachable",
    "RemoteSubAgentClientToolUnsupportedError",
    "peer_at",
]
