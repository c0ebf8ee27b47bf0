"""Session: a conversation and its durable state. The root's row is the lock of its whole tree (F-2)."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from helix.statuses import SESSION_BUSY, SessionStatus

from .columns import choice, exactly_when, identity, one_of


class Session(models.Model):
    id = identity()
    # An alias that a client chose; unique per owner, so it neither collides with nor reveals a foreign session.
    client_id = models.CharField(max_length=256, null=True, blank=True)
    root = models.ForeignKey("self", models.CASCADE, related_name="tree", db_index=False)
    parent = models.ForeignKey("self", models.CASCADE, related_name="children", null=True, db_index=False)
    parent_call = models.OneToOneField("helix.PendingCall", models.CASCADE, related_name="child", null=True)
    delegation_id = models.CharField(max_length=256, null=True)
    # Set for the stand-in of a sub-agent that the peer at this address runs: its run is never claimed here.
    remote_url = models.URLField(max_length=2048, null=True)

    owner = models.CharField(max_length=256)
    agent_type = models.CharField(max_length=256)
    tags = models.JSONField(default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)

    status = choice(SessionStatus, default=SessionStatus.IDLE)
    waiting_since = models.DateTimeField(null=True)
    version = models.PositiveBigIntegerField(default=0)
    current_run = models.ForeignKey("helix.Run", models.SET_NULL, related_name="+", null=True, db_index=False)
    # Copied from the agent when the session starts: neither exposure nor a sweep looks up an agent.
    max_open_calls = models.PositiveIntegerField(null=True)
    continue_on_submit = models.BooleanField(default=True)
    error_texts = models.JSONField(null=True, blank=True)

    state = models.JSONField(default=dict, blank=True)
    message_position = models.PositiveBigIntegerField(default=0)
    call_sequence = models.PositiveBigIntegerField(default=0)
    stream_sequence = models.PositiveBigIntegerField(default=0)
    stream_floor = models.PositiveBigIntegerField(default=1)
    run_count = models.PositiveIntegerField(default=0)
    child_count = models.PositiveIntegerField(default=0)

    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        permissions = [
            ("operate", "Can inspect, stop and force-fail the sessions of others"),
            ("view_private_values", "Can see the values of private tools"),
        ]
        constraints = [
            one_of("helix_session_status", "status", SessionStatus),
            exactly_when("helix_session_root_has_no_parent", Q(parent_call__isnull=True), Q(root=F("id"))),
            exactly_when("helix_session_parent_with_call", Q(parent_call__isnull=True), Q(parent__isnull=True)),
            models.UniqueConstraint(name="helix_session_alias", fields=["owner", "client_id"]),
            exactly_when(
                "helix_session_waits_while_awaiting",
                Q(waiting_since__isnull=False),
                Q(status=SessionStatus.AWAITING_CLIENT_TOOL),
            ),
        ]
        indexes = [
            # read by selectors.sessions_page: one owner's conversations, newest first
            models.Index("owner", F("created_at").desc(), F("id").desc(), name="helix_session_newest"),
            # read by selectors.awaiting_sessions: one owner's conversations of one status
            models.Index(name="helix_session_owner", fields=["owner", "status", "updated_at"]),
            # read by selectors.awaiting_sessions: the inbox, oldest wait first
            models.Index(
                name="helix_session_awaiting",
                fields=["status", "waiting_since", "id"],
                condition=Q(status=SessionStatus.AWAITING_CLIENT_TOOL),
            ),
            # read by services.stops and rows.locked: the tree
            models.Index(name="helix_session_tree", fields=["root"]),
            # read by rows.Tree.settle_status: what the children of a session are doing
            models.Index(name="helix_session_busy_child", fields=["parent"], condition=Q(status__in=SESSION_BUSY)),
            # read by services.reap.expired_sessions
            models.Index(name="helix_session_expiry", fields=["expires_at"], condition=Q(expires_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.agent_type} {self.id}"

    @property
    def is_root(self) -> bool:
        return self.root_id == self.id

    @property
    def is_remote(self) -> bool:
        return self.remote_url is not None
