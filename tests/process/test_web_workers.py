"""A web worker that is killed is started again at once, whatever it was doing."""

import os
import signal
import time

import pytest

from tests.factories.servers import until, web_process

LOOKED = 2
"""Seconds within which the parent asks every worker for a sign of life; it waits a minute for it."""


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_before_it_gave_a_sign_of_life_is_started_again_at_once() -> None:
    with web_process(workers=2) as web:
        victim, other = web.workers()
        os.kill(victim, signal.SIGSTOP)
        time.sleep(LOOKED)
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in web.workers() and len(web.workers()) == 2, seconds=30)
        assert other in web.workers()
