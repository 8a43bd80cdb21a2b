"""What a receiver asks of the system when it starts."""

import resource

from tests.factories.servers import receiver_process


def test_a_receiver_may_have_as_many_files_open_as_connections(transactional_db: None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))  # as most systems start a program
    try:
        with receiver_process() as receiver:
            allowed, _ = resource.prlimit(receiver.workers()[0], resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert allowed == min(hard, 4096 + 256)
