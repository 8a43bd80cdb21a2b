"""The services live exactly as long as somebody uses them, however that somebody ends."""

import fcntl
import os
import signal
import socket
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import redis

from billing.local.embedded import EmbeddedError, attach
from billing.local.embedded.layout import Layout, acquire, open_lock, read_state
from tests.factories.servers import until

from .conftest import family, kill_all, member, survivors


def test_an_empty_home_serves_and_keeps_what_it_wrote_and_serves_again(empty_home):
    with attach(empty_home) as services:
        assert services.started
        with psycopg.connect(services.database_owner_url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
            assert connection.execute("SHOW max_connections").fetchone() == ("300",)
            connection.execute("CREATE EXTENSION btree_gist")
        with redis.Redis.from_url(services.broker_url) as broker:
            assert broker.ping()
    with attach(empty_home) as services, psycopg.connect(services.database_owner_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_extension WHERE extname = 'btree_gist'").fetchone() == (1,)


def test_nothing_remains_when_the_last_user_has_released(home):
    with attach(home):
        members = family(home)
    assert survivors(members, 30) == []
    assert list((home / "run").glob("*.json")) == []


def test_secrets_and_state_are_for_the_owner_only(home):
    with attach(home) as services:
        states = sorted((home / "run").glob("*.json"))
        assert [path.name for path in states] == ["broker.json", "postgres.json"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in states} == {0o600}
        assert stat.S_IMODE((home / "secrets" / "postgres-password").stat().st_mode) == 0o600
        password = services.broker_url.split("@")[0].split(":")[-1]
        assert password not in str([process.cmdline() for process in family(home)])
        assert password not in str([path.read_text() for path in states])


def test_the_servers_let_nobody_in_without_the_password(home):
    with attach(home) as services:
        head, tail = services.database_owner_url.split("@")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"{head.rpartition(':')[0]}:wrong@{tail}")
        address = services.broker_url.split("@")[1]
        with redis.Redis.from_url(f"redis://{address}") as broker, pytest.raises(redis.AuthenticationError):
            broker.ping()


def test_the_second_user_keeps_the_services_when_the_first_has_gone(home, attached):
    first = attached(home)
    second = attached(home)
    assert first.attached["started"]
    assert not second.attached["started"]
    first.leave()
    assert second.ask("SELECT 41 + 1") == [42]
    assert second.ask("ping") is True
    members = family(home)
    second.leave()
    assert survivors(members, 30) == []


def test_many_start_at_once_and_one_keeper_of_each_server_serves_them_all(home):
    log = home / "log" / "keeper.log"
    before = log.read_text().count(" serves on port ") if log.exists() else 0
    with ThreadPoolExecutor(6) as pool:
        attachments = list(pool.map(lambda _: attach(home), range(6)))
    assert log.read_text().count(" serves on port ") == before + 2
    assert 1 <= sum(attachment.started for attachment in attachments) <= 2
    assert len({attachment.database_owner_url for attachment in attachments}) == 1
    for attachment in attachments:
        attachment.release()


def test_a_newcomer_waits_for_the_stop_and_starts_again(home, attached):
    for _ in range(3):
        client = attached(home)
        assert client.ask("SELECT 1") == [1]
        client.process.kill()  # not waited for: the next one meets a keeper that is stopping


def test_two_homes_live_side_by_side(new_home, attached):
    one, other = attached(new_home()), attached(new_home())
    one.ask("CREATE TABLE mine (n int)")
    assert one.attached["database_owner_url"] != other.attached["database_owner_url"]
    assert other.ask("SELECT count(*) FROM pg_tables WHERE tablename = 'mine'") == [0]
    one.leave()
    assert other.ask("SELECT 1") == [1]


def test_a_home_keeps_its_ports_unless_somebody_takes_them(home):
    with attach(home):
        pass
    ports = {name: int((home / f"{name}.port").read_text()) for name in ("postgres", "broker")}
    with attach(home) as services:
        assert f":{ports['postgres']}/" in services.database_owner_url
    with (
        socket.create_server(("127.0.0.1", ports["postgres"])),
        socket.create_server(("127.0.0.1", ports["broker"])),
        attach(home) as services,
    ):
        assert f":{ports['postgres']}/" not in services.database_owner_url
        assert f":{ports['broker']}/" not in services.broker_url
        psycopg.connect(services.database_owner_url).close()


def test_the_broker_joins_when_somebody_needs_it_later(home, attached):
    database = attached(home, "postgres")
    assert not (home / "run" / "broker.json").exists()
    both = attached(home)
    assert member(home, "postgres") in family(home)
    assert both.ask("ping") is True
    assert database.ask("SELECT 1") == [1]
    database.leave()
    both.leave()


def test_an_attachment_reports_what_it_did_not_ask_for(home):
    with attach(home, need=("broker",)) as services, pytest.raises(EmbeddedError, match="did not ask for 'postgres'"):
        _ = services.database_owner_url


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_only_client(home, attached, ending):
    client = attached(home, start_new_session=True)
    members = family(home)
    os.killpg(client.process.pid, ending)
    client.process.wait(30)
    assert survivors(members, 30) == []


@pytest.mark.parametrize("of", ["", "keeper of "], ids=["server", "keeper"])
@pytest.mark.parametrize("server", ["postgres", "broker"])
def test_what_is_killed_is_started_again_at_its_address_for_those_who_are_attached(home, server, of):
    with attach(home) as services:
        services.keep_up()
        killed = [member(home, server), member(home, f"keeper of {server}")]
        member(home, of + server).kill()
        assert survivors(killed, 30) == []
        until(lambda: read_state(Layout(home).state(server)).get("pid") not in {None, *(one.pid for one in killed)}, 60)
        assert not set(killed) & set(family(home))
        with psycopg.connect(services.database_owner_url) as connection, redis.Redis.from_url(services.broker_url) as broker:
            assert (connection.execute("SELECT 1").fetchone(), broker.ping()) == ((1,), True)
    said = (home / "log" / "keeper.log").read_text()
    assert of or f"{server} ended by itself. Last lines of {home}/log/{server}.log: " in said


def test_a_killed_keeper_takes_its_server_along_and_the_next_to_attach_repairs(home, attached):
    client = attached(home)
    client.ask("CREATE TABLE kept AS SELECT 7 AS n")
    killed = [member(home, "keeper of postgres"), member(home, "postgres")]
    killed[0].kill()
    newcomer = attached(home)
    assert newcomer.attached["started"]
    assert survivors(killed, 0) == []
    assert client.ask("SELECT n FROM kept") == [7]  # through the URL it has had all the time


def test_committed_rows_survive_a_kill_of_everything(home, attached):
    client = attached(home)
    client.ask("CREATE TABLE ledger (n int)")
    for n in range(20):
        client.ask(f"INSERT INTO ledger VALUES ({n})")
    members = family(home)
    kill_all(members)
    client.end()
    assert survivors(members, 30) == []
    assert (home / "postgres" / "postmaster.pid").exists()  # what a stale one looks like
    again = attached(home)
    assert again.attached["started"]
    assert again.ask("SELECT count(*), sum(n) FROM ledger") == [20, 190]


def test_a_pid_file_that_names_an_innocent_process_does_not_hinder_and_spares_it(home, attached):
    with attach(home, need=("postgres",)):
        pid_file = home / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    with attach(home, need=("postgres",)) as services:
        psycopg.connect(services.database_owner_url).close()


def test_a_server_that_was_started_by_hand_is_not_run_over(home):
    with attach(home, need=("postgres",)):
        lines = (home / "postgres" / "postmaster.pid").read_text().splitlines()
    with subprocess.Popen(["sleep", "60"], cwd=home / "postgres") as by_hand:
        (home / "postgres" / "postmaster.pid").write_text("\n".join([str(by_hand.pid), *lines[1:]]) + "\n")
        with pytest.raises(EmbeddedError, match=f"process {by_hand.pid}, not started by Suanpan"):
            attach(home)
        by_hand.kill()


def test_a_half_made_cluster_is_made_again(empty_home):
    draft = empty_home / "postgres.new"
    draft.mkdir(parents=True)
    (draft / "half").touch()
    with attach(empty_home) as services:
        psycopg.connect(services.database_owner_url).close()
    assert not draft.exists()


def test_a_forked_child_does_not_end_its_parents_use(home):
    with attach(home, need=("postgres",)) as services:
        child = os.fork()
        if child == 0:
            services.release()
            os._exit(0)
        os.waitpid(child, 0)
        psycopg.connect(services.database_owner_url).close()


def test_a_start_that_fails_says_why_and_what_to_do_and_leaves_nothing(empty_home, attached):
    with attach(empty_home, need=("postgres",)):
        pass
    (empty_home / "postgres" / "postgresql.conf").write_text("no such setting\n")
    refused = attached(empty_home).attached["error"]
    assert "PostgreSQL did not start" in refused
    assert "syntax error" in refused
    assert "What to do:" in refused
    assert "Traceback" not in refused


def test_a_home_that_release_1_0_serves_is_left_alone(empty_home):
    (empty_home / "run").mkdir(parents=True)
    with attach(empty_home, need=("broker",)):
        lock = open_lock(Layout(empty_home).lock("keeper"))
        assert acquire(lock, fcntl.LOCK_EX, 0)
        with pytest.raises(EmbeddedError, match=r"is in use by release 1\.0: end what runs of it"):
            attach(empty_home)
        os.close(lock)
        attach(empty_home, need=("broker",)).release()


def test_a_home_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"file.*set SUANPAN_HOME"):
        attach(tmp_path / "file" / "home")


def test_data_of_another_major_version_is_explained(empty_home):
    (empty_home / "postgres").mkdir(parents=True)
    (empty_home / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedError, match="was made by PostgreSQL 9"):
        attach(empty_home)
