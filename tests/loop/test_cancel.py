"""The cancel token: fires once, tells everyone, forgets everyone."""

from __future__ import annotations

import threading

import pytest

from helix.loop import Cancelled, CancelToken


def test_everyone_who_registered_is_told_once_in_order() -> None:
    token, told = CancelToken(), []
    token.on_cancel(lambda: told.append("first"))
    token.on_cancel(lambda: told.append("second"))
    assert token.cancel("abort")
    assert not token.cancel("interrupt")
    assert told == ["first", "second"]
    assert (token.cancelled, token.kind, token.watchers) == (True, "abort", 0)


def test_who_comes_late_is_told_at_once() -> None:
    token, told = CancelToken(), []
    token.cancel()
    token.on_cancel(lambda: told.append("late"))()
    assert told == ["late"]


def test_who_took_it_back_is_not_told() -> None:
    """Q-28, with the control that the other one is."""
    token, told = CancelToken(), []
    forget = token.on_cancel(lambda: told.append("gone"))
    token.on_cancel(lambda: told.append("here"))
    forget()
    forget()
    token.cancel()
    assert told == ["here"]


def test_a_check_raises_only_after_the_firing() -> None:
    token = CancelToken()
    token.check()
    token.cancel()
    with pytest.raises(Cancelled):
        token.check()


def test_of_rival_firings_one_counts() -> None:
    token, told = CancelToken(), []
    token.on_cancel(lambda: told.append("once"))
    start = threading.Barrier(8)
    won: list[str] = []

    def fire(kind: str) -> None:
        start.wait()
        if token.cancel(kind):
            won.append(kind)

    rivals = [threading.Thread(target=fire, args=(f"kind {number}",)) for number in range(8)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert told == ["once"]
    assert won == [token.kind]
