"""The call sites that start something, or wait by a clock, each with its reason. A site that is gone has to leave.

Whoever adds one says here who waits for the work and what a lost or late one costs.
"""

from __future__ import annotations

# What goes on after the call has returned. A run's own work is a row first, and none of these is work of a run
# that nobody covers.
STARTS = {
    "helix.nudges:_publish_run send_task": "a hint; the row is found by the sweep",
    "helix.nudges:_publish_relay send_task": "a hint; the debt is found by the sweep",
    "helix.nudges:nudge_worker on_commit": "the one place that hints at runs",
    "helix.nudges:nudge_readers on_commit": "the one place that wakes readers; they re-read on their own",
    "helix.nudges:nudge_relay on_commit": "the one place that hints at debts",
    "helix.rows.holdings:Holdings.cut_after_commit on_commit": "fires a token; the stop is a row that each beat reads",
    "helix.loop.execution:_Work.start Thread": "a body: listed before it starts, and waited for by its driver",
    "helix.loop.execution:_run_coroutine.guarded create_task": "an async body: awaited in the same function",
    "helix.loop.streaming:_Reading.begin create_task": "a model's stream: ended by its reader, whatever happens",
    "helix.loop.subprocesses:run_subprocess Popen": "a body's program: waited for, its group killed by a stop",
    "helix.pulse:ensure Thread": "the pulse stands for the process and belongs to no run",
    "helix.tasks:hand_back Thread": "the end of the process; interpreters wait for it",
    "helix.serving.embedded:Part.__init__ Thread": "a part of the server, for as long as the process lives",
    "helix.serving.processes:Supervisor._start Popen": "a process of the stack, ended with it",
    "helix.serving.processes:Supervisor._watch Thread": "tells of a process's end",
    "helix.serving.servers:start_postgres Popen": "a server, stopped by whoever started it",
    "helix.serving.servers:start_valkey Popen": "a server, stopped by whoever started it",
    "helix.edge.hub:_task create_task": "a reader's subscription: no row of a run",
    "helix.streaming.consumers:Socket.beside create_task": "a socket's command or subscription, ended with the socket",
    "helix.streaming.sse:stream ensure_future": "a reader's next page, cancelled with the stream",
    "helix.dialects.aisdk.following:_live ensure_future": "a reader's next page, cancelled with the stream",
    "helix.dialects.aisdk.entering:_answers submit": "a submit of an answer, which is a service and no executor",
    "helix.services.relay.debts:_send submit": "a submit to a peer, which is a request and no executor",
}

# Waits that may end because time passed. None of them is a wait for work of a run.
CLOCKS = {
    "helix.db.sqlite.fair:FairLock.acquire wait": "SQLite's busy timeout; tried again (R-601)",
    "helix.loop.registry:ProcessRegistry.wait_until_quiet wait_for": "only a shutdown gives a bound",
    "helix.rows.holdings:Holdings.wait_until_empty wait_for": "only a shutdown waits here",
    "helix.services.advance.reply:_row wait_for": "resolves the deadline policy of a call; waits for nothing",
    "demo.scripts:Beat.wait wait": "the pace of a demonstration's words",
    "helix.pulse:_beat_for_ever wait": "the beat itself: another worker's lease is kept fresh by it",
    "helix.operations.rate:_seconds_to_wait add": "a cache entry's life: the rate window",
    "helix.peers.http:HttpExchange.__call__ Client": "connect and silence bounds of a remote service",
    "helix.edge.listening:_first_message get_message": "a server that does not greet is reconnected",
    "helix.edge.listening:_hand_on get_message": "silence of the connection that wakes readers; they re-read",
    "helix.edge.listening:relay sleep": "the pause before a reconnection",
    "helix.streaming.inbox:pause sleep": "bursts of wakes are joined; a late page costs nothing",
    "helix.streaming.sse:stream wait": "keep-alive comments while nothing is to be told",
    "helix.dialects.aisdk.following:_live wait": "keep-alive comments while nothing is to be told",
    "helix.serving.embedded:EmbeddedProcess._stop_parts join": "a shutdown escalates against the process",
    "helix.serving.processes:Supervisor._stop_all wait": "a shutdown escalates against the process",
    "helix.serving.servers:Server.stop wait": "a shutdown escalates against the process",
    "helix.serving.servers:_wait wait": "the start of a server that is polled, before anything is served",
}

# Tests that need the real clock, and why: foreign processes and libraries that cannot be held at a gate. A bound
# on local work is no reason. Browser tests are left out: a browser has a clock of its own.
REAL_CLOCK_TESTS = {
    "tests.rules.test_declaring_agents:test_the_first_level_that_speaks_decides_the_wait wait_for": "no wait",
    "tests.rules.test_declaring_agents:test_the_first_level_that_speaks_decides_the_wait wait_for 2": "no wait",
    "tests.rules.test_declaring_agents:test_the_two_waits_do_not_answer_for_each_other wait_for": "no wait",
    "tests.api.test_bodycap:answer_of receive_output": "asgiref's communicator has a bound of its own, one second",
    "tests.api.test_bodycap:answer_of receive_output 2": "the same",
    "tests.api.test_bodycap:answer_of wait": "the same",
    "tests.chaos.__main__:watched.watch wait": "the storm ends some time, whatever it did to the processes",
    "tests.chaos.bells.agents:_ring wait": "a body takes a moment, so that a worker can be killed inside it",
    "tests.chaos.company:_pass wait": "a foreign process is asked again until it answers",
    "tests.chaos.doors:Doors._ask wait": "the pause before a request is repeated at another server",
    "tests.chaos.doors:Doors._open urlopen": "a server may be killed while it answers",
    "tests.chaos.doors:Doors.stream wait": "the pause before a stream is joined again",
    "tests.concurrency.test_sqlite_writers:test_waiters_are_served_in_the_order_of_asking join": (
        "gives each waiter its place in the queue; the lock announces nobody"
    ),
    "tests.concurrency.test_sqlite_writers:test_waiters_are_served_in_the_order_of_asking.wait_for_turn acquire": (
        "the lock's own bound, far away"
    ),
    "tests.deployment.test_serving:wait_for_answer wait": "a foreign process begins to answer some time",
    "tests.deployment.test_supervisor:wait_for wait": "a foreign process has written its file some time",
    "tests.streaming.test_commands:test_eight_commands_are_under_way_and_one_more_is_refused to_thread": (
        "a bound on the test's own mistake"
    ),
    "tests.streaming.test_commands:test_eight_commands_are_under_way_and_one_more_is_refused.hold wait": (
        "a bound on the test's own mistake"
    ),
    "tests.streaming.test_inbox_socket:test_a_burst_is_waited_out_and_a_lost_wake_is_a_delay wait_for": (
        "shows that a pause is waited for"
    ),
    "tests.streaming.test_sse:holds_a_connection wait": "a bound on the test's own mistake",
    "tests.streaming.test_wakes:test_a_redis_that_accepts_and_never_answers_costs_half_a_second_once join": (
        "the bound of the client library is the claim"
    ),
    "tests.streaming.test_wakes:test_what_is_published_here_is_heard_there get_message": "a foreign server's message",
    "tests.streaming.test_wakes:test_what_is_published_here_is_heard_there get_message 2": (
        "a message of a foreign server"
    ),
}
