"""A migration keeps nobody waiting behind it: where it does not get its lock in time it ends, and is run again."""

import psycopg
import pytest
from django.core.management.sql import emit_post_migrate_signal, emit_pre_migrate_signal
from django.db import OperationalError, connection

from billing.tenancy import apps
from tests.factories.servers import environment

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_lock_that_somebody_has_ends_the_migration_and_then_locks_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "LOCK_SECONDS", 1)
    emit_pre_migrate_signal(0, False, "default")
    with psycopg.connect(environment()["DATABASE_URL"]) as reader, connection.cursor() as cursor:
        reader.execute("SELECT count(*) FROM tenancy_team")
        with pytest.raises(OperationalError, match="lock timeout"):
            cursor.execute("ALTER TABLE tenancy_team ADD COLUMN color text")
    emit_post_migrate_signal(0, False, "default")
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)
