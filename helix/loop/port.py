"""The model port: one function for every model, chosen by the prefix of its name.

``scripted:<name>`` runs a script of ours, offline; every other name goes to a provider. The provider library takes
seconds to import, so it is loaded by the first request that needs it: a process that only plays scripts never pays.
"""

from __future__ import annotations

from collections.abc import Callable

from helix.loop import scripted
from helix.loop.cancel import CancelToken
from helix.loop.messages import Delta, ModelRequest, Reply


def complete_reply(request: ModelRequest, *, emit: Callable[[Delta], None], token: CancelToken) -> Reply:
    """Ask the model and return its whole reply; blocks the calling thread, without a total bound (Q-01).

    emit: called in this thread for each delta; it may use the database. An exception of it ends the model's stream
    and is raised on.
    Raises: Cancelled when the token fires, with what had been written; the connection is closed by then (Q-21).
    ModelError when the model failed, refused, fell silent, or broke off.
    """
    provider, _, _ = request.model.partition(":")
    if provider == scripted.PROVIDER:
        return scripted.complete_reply(request, emit=emit, token=token)

    from helix.loop import providers

    return providers.complete_reply(request, emit=emit, token=token)
