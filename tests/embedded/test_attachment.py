"""The services live exactly as long as somebody uses them, however that somebody ends."""

import json
import os
import signal
import socket
import stat
import subprocess
import threading

import psycopg
import pytest
import redis

from billing.local.embedded import EmbeddedError, attach

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
    assert survivors(members, 0.2) == []
    assert not (home / "run" / "services.json").exists()


def test_secrets_and_state_are_for_the_owner_only(home):
    with attach(home) as services:
        assert stat.S_IMODE((home / "run" / "services.json").stat().st_mode) == 0o600
        assert stat.S_IMODE((home / "secrets" / "postgres-password").stat().st_mode) == 0o600
        password = services.broker_url.split("@")[0].split(":")[-1]
        arguments = [member(home, name).cmdline() for name in ("keeper", "postgres", "broker")]
        assert password not in str(arguments)
        assert password not in (home / "run" / "services.json").read_text()


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
    assert survivors(members, 0.2) == []


def test_many_start_at_once_and_one_keeper_serves_them_all(home):
    attachments = []
    threads = [threading.Thread(target=lambda: attachments.append(attach(home))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(attachment.started for attachment in attachments) == [False] * 5 + [True]
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
    ports = json.loads((home / "ports.json").read_text())
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
    assert "broker" not in json.loads((home / "run" / "services.json").read_text())["ports"]
    both = attached(home)
    assert not both.attached["started"]
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
    client.process.wait(10)
    assert survivors(members, 10) == []


@pytest.mark.parametrize("victim", ["postgres", "broker"])
def test_a_killed_server_is_started_again_for_those_who_are_attached(home, attached, victim):
    client = attached(home)
    client.ask(f"CREATE TABLE kept_{victim} AS SELECT 7 AS n")
    killed = member(home, victim)
    killed.kill()
    assert survivors([killed], 10) == []
    newcomer = attached(home)
    assert not newcomer.attached["started"]
    assert (newcomer.ask(f"SELECT n FROM kept_{victim}"), newcomer.ask("ping")) == ([7], True)
    assert client.ask(f"SELECT n FROM kept_{victim}") == [7]
    assert f"{victim} ended by itself" in (home / "log" / "keeper.log").read_text()


def test_a_killed_keeper_takes_its_servers_along_and_the_next_to_attach_repairs(home, attached):
    client = attached(home)
    client.ask("CREATE TABLE kept AS SELECT 7 AS n")
    members = family(home)
    members[0].kill()
    newcomer = attached(home)
    assert newcomer.attached["started"]
    assert survivors(members, 0) == []
    assert client.ask("SELECT n FROM kept") == [7]  # through the URL it has had all the time


def test_committed_rows_survive_a_kill_of_everything(home, attached):
    client = attached(home)
    client.ask("CREATE TABLE ledger (n int)")
    for n in range(20):
        client.ask(f"INSERT INTO ledger VALUES ({n})")
    members = family(home)
    kill_all(members)
    client.end()
    assert survivors(members, 5) == []
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


def test_a_home_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"file.*set SUANPAN_HOME"):
        attach(tmp_path / "file" / "home")


def test_data_of_another_major_version_is_explained(empty_home):
    (empty_home / "postgres").mkdir(parents=True)
    (empty_home / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedError, match="was made by PostgreSQL 9"):
        attach(empty_home)
