"""A worker outlives its broker: an acknowledgement that Redis never got must not count as work in hand for ever."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from kombu.transport import redis, virtual

from config.celery import AcksAreCounted


def with_one_message(kind: Any) -> Any:
    """Prefetch of one, and one message in hand, on a Redis that has gone away."""
    qos = kind(MagicMock(), prefetch_count=1)
    virtual.QoS.append(qos, MagicMock(), "tag")
    qos._remove_from_indices = MagicMock(side_effect=ConnectionError)
    assert not qos.can_consume()
    return qos


@pytest.mark.parametrize(("kind", "goes_on"), [(AcksAreCounted, True), (redis.QoS, False)], ids=["ours", "kombu"])
def test_an_ack_that_redis_never_got_leaves_room_for_the_next_message(kind: Any, goes_on: bool) -> None:
    """F-1: losing Redis costs time only. Once kombu's own goes on too, ours can leave."""
    qos = with_one_message(kind)
    with pytest.raises(ConnectionError):
        qos.ack("tag")
    assert qos.can_consume() is goes_on


def test_the_channels_of_this_project_count_that_way() -> None:
    assert redis.Channel.QoS is AcksAreCounted
