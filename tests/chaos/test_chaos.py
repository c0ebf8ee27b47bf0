"""The short storm: a hundred conversations, every kind of blow, over each broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT
from tests.chaos.company import AMQP

SESSIONS = 100
SEED = 1


def _rabbitmq_answers() -> bool:
    if not shutil.which("rabbitmqctl"):
        return False
    from kombu import Connection
    from kombu.exceptions import OperationalError

    try:
        with Connection(AMQP, connect_timeout=2) as connection:
            connection.ensure_connection(max_retries=1)
    except OperationalError:
        return False
    return True


@pytest.mark.processes
@pytest.mark.postgres
@pytest.mark.timeout(600)
@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_storm_loses_no_answer_and_repeats_no_body(broker: str) -> None:
    """B-08 to B-11, B-24, R-016, R-067, R-137, R-518, X-14, X-15, L-8: see `tests.chaos.verdict` for the claims."""
    if broker == "rabbitmq" and not _rabbitmq_answers():
        pytest.skip(f"no RabbitMQ of this machine answers at {AMQP.rpartition('@')[2]}")
    command = [sys.executable, "-m", "tests.chaos", "--sessions", str(SESSIONS), "--seed", str(SEED)]
    done = subprocess.run(
        [*command, "--broker", broker],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
