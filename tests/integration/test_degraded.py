"""What admins see on top of every page while something of the platform is degraded."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone

from billing.monitoring import degraded as module
from billing.monitoring.degraded import CLOCK_SECONDS, LIMITS, Degraded, degraded
from billing.monitoring.models import Heartbeat
from billing.runtime.home import PROJECT
from billing.tenancy.audit import audit_record
from billing.tenancy.models import AnchorDelivery, AuditEntry
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
RULES = PROJECT / "docker/charts/suanpan/files"
ALERTS = {
    "worker": "SuanpanWorkerSilent", "scheduler": "SuanpanSchedulerSilent", "anchor": "SuanpanAuditAnchorLate",
    "backup_take": "SuanpanBackupLate", "backup_prove": "SuanpanRestoreCheckLate",
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    module._asked.cache_clear()
    yield
    module._asked.cache_clear()


def at_work(now: datetime) -> None:
    for part in Heartbeat.Part.values:
        Heartbeat.objects.update_or_create(part=part, defaults={"at": now})


def kinds(now: datetime) -> list[str]:
    return [one.kind for one in degraded(now)]


def test_the_limits_are_those_of_the_alert_rules() -> None:
    files = ("rules.yaml", "backup-rules.yaml", "restore-check-rules.yaml")
    always, *of_backups = (yaml.safe_load((RULES / name).read_text("utf-8")) for name in files)
    groups = [*always["groups"], *(group for groups in of_backups for group in groups)]
    rules = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    limits = {kind: re.findall(r"> (\d+)", rules[alert])[0] for kind, alert in ALERTS.items()}
    assert limits == {kind: str(round(limit.total_seconds())) for kind, limit in LIMITS.items()}
    assert rules["SuanpanClockDiffers"].endswith(f"> {CLOCK_SECONDS}")


def test_a_part_is_silent_from_its_limit_on_and_one_that_never_began_from_that_time_after_the_set_up(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    begun = AuditEntry.objects.order_by("at").values_list("at", flat=True)[0]
    assert kinds(begun + timedelta(seconds=300)) == []
    assert kinds(begun + timedelta(seconds=301)) == ["scheduler"]
    assert list(degraded(begun + timedelta(seconds=601))) == [Degraded("worker"), Degraded("scheduler")]
    beat = begun + timedelta(hours=1)
    at_work(beat)
    assert kinds(beat + timedelta(seconds=300)) == []
    assert list(degraded(beat + timedelta(seconds=601))) == [Degraded("worker", beat), Degraded("scheduler", beat)]


def test_a_broker_that_is_away_is_what_has_to_be_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factories.apply(tmp_path)
    monkeypatch.setenv("CELERY_BROKER_READ_URL", "redis://127.0.0.1:1/0")  # nobody listens there
    assert kinds(timezone.now() + timedelta(hours=1)) == ["broker"]


def test_an_anchor_is_late_after_36_hours_wherever_it_should_go(tmp_path: Path, settings: Any) -> None:
    factories.apply(tmp_path)
    settings.AUDIT_ANCHOR = ["file:///a", "file:///b"]
    now = timezone.now() + timedelta(days=5)
    at_work(now)
    for address, hours in (("file:///a", 35), ("file:///b", 37)):
        key, sent = sha256(address.encode()).hexdigest(), now - timedelta(hours=hours)
        AnchorDelivery.objects.create(address_sha256=key, place=address, ordinal=1, sent_at=sent)
    assert list(degraded(now)) == [Degraded("anchor", now - timedelta(hours=37))]
    AnchorDelivery.objects.all().delete()
    assert list(degraded(now)) == [Degraded("anchor"), Degraded("anchor")], "none was ever sent"


def test_backups_and_their_proofs_count_from_the_first_one_on(tmp_path: Path) -> None:
    factories.apply(tmp_path)

    def after(days: int) -> list[str]:
        now = timezone.now() + timedelta(days=days)
        at_work(now)
        return kinds(now)

    assert after(30) == []
    audit_record(actor="t", action="backup_take", subject="b", detail={})
    assert (after(1), after(2), after(10)) == ([], ["backup_take"], ["backup_take"])
    audit_record(actor="t", action="backup_prove", subject="b", detail={})
    assert (after(8), after(10)) == (["backup_take"], ["backup_take", "backup_prove"])


def test_admins_see_it_on_every_page_and_nobody_else_does(tmp_path: Path) -> None:
    factories.apply(tmp_path)
    at_work(timezone.now() - timedelta(minutes=11))
    ada, lin = (factories.signed_in(factories.person(name, role)) for name, role in (("ada", "admin"), ("lin", "finance")))
    for path in ("/overview/", "/version/", "/prices/"):
        page = ada.get(path).content.decode()
        assert "The platform needs attention." in page
        assert "No worker is at work: closes, mails and alerts wait." in page
        assert "The scheduler is not at work" in page
        assert 'href="/version/"' in page.partition("needs attention")[2].partition("</div>")[0]
        assert "needs attention" not in lin.get(path).content.decode()
    at_work(timezone.now())
    assert "needs attention" in ada.get("/prices/").content.decode(), "what is known is kept for half a minute"
    module._asked.cache_clear()
    assert "needs attention" not in ada.get("/prices/").content.decode()
