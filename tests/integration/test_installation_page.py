"""The page of version and backups says what the database and the audit log know."""

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from django.db.migrations.recorder import MigrationRecorder

from billing.tenancy.audit import audit_record
from billing.tenancy.models import AnchorDelivery, AuditEntry
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]


def test_the_page_shows_version_migrations_backups_and_anchors(tmp_path: Path, settings: object) -> None:
    factories.apply(tmp_path)
    ada = factories.signed_in(factories.person("ada", "admin"))
    first = ada.get("/version/").content.decode()
    assert "Version 1.0.0" in first
    assert "All applied" in first
    assert first.count("Not yet") == 2
    assert "No place is configured" in first
    audit_record(actor="t", action="backup_take", subject="b", detail={})
    taken = AuditEntry.objects.get(action="backup_take").at.astimezone(UTC)
    settings.AUDIT_ANCHOR = ["file:///a"]  # type: ignore[attr-defined]
    AnchorDelivery.objects.create(
        address_sha256=sha256(b"file:///a").hexdigest(), place="disk a", ordinal=7,
        sent_at=datetime(2026, 10, 2, 4, tzinfo=UTC), failures=1,
    )  # fmt: skip
    newest = MigrationRecorder.Migration.objects.filter(app="usage").latest("id")
    newest.delete()
    page = ada.get("/version/").content.decode()
    assert "1 not applied: an update is pending" in page
    assert page.count("Not yet") == 1
    assert f"{taken.year}-" in page
    assert "2026-10-02 12:00" in page
    assert "entry 7" in page
    assert "last try failed" in page
