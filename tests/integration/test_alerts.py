"""Alerts told in dates: what fires when, who gets it, and that nobody gets it twice. Receivers are real."""

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from billing.budgets.models import Alert, Budget, BudgetStatus, Channel, Delivery
from billing.budgets.services import (
    BudgetError,
    BudgetWish,
    ChannelWish,
    alerts_deliver,
    budget_put,
    budgets_evaluate,
    channel_put,
    deliveries,
    mute_end,
    mute_put,
    recipients_put,
)
from billing.tenancy.models import Team
from tests.factories import allocation_record, apply, ingest_allocations, money, watched
from tests.factories.threads import at_once
from tests.receivers import MailServer, Webhook, mail_server, webhook
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(autouse=True)
def burn_rates_only_where_they_are_asked_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of 1,000 that are used up within days burn fast; other tests count what thresholds do."""
    if "burn" not in request.node.name:
        monkeypatch.setattr("billing.budgets.services.alerts.BURN_RULES", ())


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


@pytest.fixture
def mail(settings) -> Iterator[MailServer]:
    with mail_server() as found:
        settings.ALERT_MAIL_URL = found.url
        yield found


def at(day: int, hour: int = 0, month: int = 10) -> datetime:
    """Local time of Shanghai, eight hours ahead."""
    return datetime(2026, month, day, hour, tzinfo=UTC) - 8 * HOUR


def held(number: int, start: datetime, count: int, **changed) -> None:
    """One device for so many hours: 10.00 each."""
    end = (start + count * HOUR).isoformat()
    record = allocation_record(
        number, quantity=1, started_at=start.isoformat(), ended_at=end, observed_until=end, **changed
    )
    assert ingest_allocations(record, now=start + count * HOUR).accepted == 1


def budget_of(directory: Path, hook: Webhook | None = None, **wish) -> Budget:
    apply(directory)
    if hook is not None:
        channel_put(wish=ChannelWish("hook", hook.url), actor="tests")
    channels = wish.pop("channels", ("hook",) if hook else ())
    return wished(channels=channels, **wish)


def wished(**wish) -> Budget:
    values = {"period": "month", "amount": money("1000.00"), "forecast_thresholds": (), **wish}
    budget_put(team=Team.objects.get(code="nlp"), wish=BudgetWish(**values), actor="tests", approved=True)
    return Budget.objects.get()


def fired(now: datetime) -> list[str]:
    return [f"{alert.basis} {alert.percent} {alert.period}" for alert in budgets_evaluate(now=now)]


def heard(now: datetime) -> int:
    budgets_evaluate(now=now)
    return alerts_deliver(now=now)


def test_thresholds_fire_once_at_equality_on_the_way_up(tmp_path: Path) -> None:
    budget_of(tmp_path)
    held(1, at(2), 49)
    assert fired(at(5)) == []
    held(2, at(6), 1)
    assert fired(at(7)) == ["actual 50 2026-10"]  # 500.00 of 1000.00
    assert fired(at(8)) == []
    held(3, at(9), 50)
    assert fired(at(12)) == ["actual 80 2026-10", "actual 100 2026-10"]
    assert fired(at(13)) == []
    held(4, at(14), 1)
    assert fired(at(15)) == []


def test_going_down_and_up_again_alerts_nobody_again_and_the_next_month_starts_afresh(tmp_path: Path) -> None:
    budget_of(tmp_path)
    held(1, at(2), 50)
    assert fired(at(5)) == ["actual 50 2026-10"]
    rewrite("UPDATE usage_gpuallocation SET namespace = 'stray'")
    assert fired(at(6)) == []
    assert BudgetStatus.objects.get(period="2026-10").spent == 0
    rewrite("UPDATE usage_gpuallocation SET namespace = 'nlp-train'")
    assert fired(at(7)) == []
    held(2, at(3, month=11), 50)
    assert fired(at(6, month=11)) == ["actual 50 2026-11"]


def test_late_usage_fires_in_the_month_that_it_belongs_to_while_that_is_open(tmp_path: Path) -> None:
    budget_of(tmp_path)
    held(1, at(30), 40)
    assert fired(at(1, month=11)) == []
    held(2, at(20), 10)  # reported on 2 November
    assert fired(at(2, month=11)) == ["actual 50 2026-10"]
    assert fired(at(3, month=11)) == []


def test_late_usage_of_a_closed_month_counts_in_the_month_that_bills_it(tmp_path: Path, transactional_db: None) -> None:
    from billing.closing.services.closing import period_close

    budget_of(tmp_path)
    held(1, at(10), 40)
    period_close(month="2026-10", now=at(3, month=11), actor="tests")
    held(2, at(20), 50)
    assert fired(at(4, month=11)) == ["actual 50 2026-11"]


def test_a_raised_budget_is_armed_again(tmp_path: Path) -> None:
    budget_of(tmp_path)
    held(1, at(2), 80)
    assert fired(at(6)) == ["actual 50 2026-10", "actual 80 2026-10"]
    wished(amount=money("2000.00"))
    assert fired(at(7)) == []  # 800 of 2000
    held(2, at(8), 20)
    assert fired(at(10)) == ["actual 50 2026-10"]
    wished(amount=money("2000.00"), thresholds=(50, 80, 90))
    assert fired(at(11)) == [], "the amount is the same"
    wished(amount=money("1000.00"), thresholds=(50, 80, 100))
    assert fired(at(12)) == ["actual 50 2026-10", "actual 80 2026-10", "actual 100 2026-10"]


def test_commitment_and_forecast_have_thresholds_of_their_own(tmp_path: Path) -> None:
    budget = budget_of(tmp_path, thresholds=(100,), commitment_thresholds=(50,), forecast_thresholds=(100,))
    ingest_allocations(
        allocation_record(1, quantity=1, started_at=at(5).isoformat(), ended_at=None, observed_until=at(6, 2).isoformat()),
        now=at(6, 2),
    )  # 26 h so far, 26 h more expected: 260 + 260
    assert fired(at(6, 2)) == ["commitment 50 2026-10"]
    BudgetStatus.objects.filter(budget=budget).update(forecast_p50=money("1000.00"), forecast_at=at(6, 3))
    assert fired(at(6, 3)) == ["forecast 100 2026-10"]
    assert Alert.objects.get(basis="forecast").data_time == at(6, 2), "through the last usage that was reported"
    BudgetStatus.objects.filter(budget=budget).update(forecast_p50=money("9000.00"), forecast_at=at(6, 3))
    wished(amount=money("1100.00"), forecast_thresholds=(100,))
    watched(at(8))
    assert fired(at(8)) == [], "a forecast of two days ago says nothing about today"


def test_a_fast_burn_pages_once_a_day(tmp_path: Path) -> None:
    budget_of(tmp_path, amount=money("7440.00"), thresholds=())  # 744 h: 10.00 an hour
    hold = {"quantity": 7, "ended_at": None}
    start = at(10, 6)
    for hour in (1, 5, 6):
        record = allocation_record(1, started_at=start.isoformat(), observed_until=(start + hour * HOUR).isoformat(), **hold)
        ingest_allocations(record, now=start + hour * HOUR)
        now = start + hour * HOUR
        found = fired(now)
        assert found == (["6h None 2026-10"] if hour == 6 else []), hour  # 7 x 10 x 5 h = 350 < 6 x 60; 420 >= 360
    assert fired(start + 6 * HOUR) == []
    alert = Alert.objects.get()
    assert (alert.level, alert.value, alert.amount) == ("urgent", money("420.00"), money("60.00"))


def test_every_alert_says_its_data_time_owner_and_what_to_do(tmp_path: Path, hook: Webhook) -> None:
    budget_of(tmp_path, hook, owner="Ann Lee", name="NLP everything")
    held(1, at(2), 85)
    assert heard(at(6, 9)) == 2
    assert len(hook.messages) == 1, "two thresholds, one message"
    text = hook.texts[0]
    assert text.startswith("Suanpan: nlp reached 80% of its budget 2026-10 (Spending)")
    for wanted in (
        "80% reached", "Also reached: Spending 50%", "850.00 of 1,000.00 CNY", "Ann Lee", "What to do:",
        "Data through: 2026-10-05 13:00 Asia/Shanghai",
    ):  # fmt: skip
        assert wanted in text


def test_each_channel_reads_its_own_language(tmp_path: Path, hook: Webhook, mail: MailServer, settings) -> None:
    """One says Chinese; one says nothing, so that the installation decides; a lead who reads Chinese gave the mail
    address.
    """
    with webhook() as second:
        budget = budget_of(tmp_path, name="NLP everything", thresholds=(50, 80, 100))
        channel_put(wish=ChannelWish("hook", hook.url, language="zh-hans"), actor="tests")
        channel_put(wish=ChannelWish("second", second.url), actor="tests")
        recipients_put(budget=budget, names=["hook", "second", "mei@example.cn"], actor="mei", language="zh-hans")
        held(1, at(2), 85)
        assert heard(at(6, 9)) == 6
        (chinese,), (english,), (written,) = hook.texts, second.texts, mail.texts
        settings.LANGUAGE_CODE = "zh-hans"
        held(2, at(7), 15)
        assert heard(at(9)) == 3
        assert second.texts[1].startswith("算盘：nlp 2026-10 预算已达 100%（花费）")
    assert english.startswith("Suanpan: nlp reached 80% of its budget 2026-10 (Spending)")
    for text in (chinese, written):
        assert text.startswith("算盘：nlp 2026-10 预算已达 80%（花费）")
        assert "NLP everything，2026-10：已达 80%。花费 850.00，预算 1,000.00 CNY。" in text
        assert "数据截至: 2026-10-05 13:00 Asia/Shanghai" in text
        assert not re.search(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}", text), "no English sentence is left"


def test_a_channel_speaks_no_language_that_the_installation_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="language 'fr' is none of en, zh-hans"):
        channel_put(wish=ChannelWish("hook", "json://127.0.0.1", language="fr"), actor="tests")


def test_a_failing_channel_hears_later_and_once_and_holds_up_nobody(
    tmp_path: Path, hook: Webhook, mail: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    with webhook() as second, caplog.at_level(logging.DEBUG):
        budget = budget_of(tmp_path, hook)
        channel_put(wish=ChannelWish("second", second.url), actor="tests")
        recipients_put(budget=budget, names=["hook", "second", "ann@example.com", "bob@example.com"], actor="tests")
        hook.failing = mail.failing = True
        held(1, at(2), 50)
        assert heard(at(5)) == 1
        assert (len(second.messages), len(hook.messages), len(mail.mails)) == (1, 0, 0)
        waiting = Delivery.objects.filter(status="pending")
        assert {row.next_attempt_at for row in waiting} == {at(5) + timedelta(minutes=1)}
        assert set(waiting.values_list("attempts", flat=True)) == {1}
        assert alerts_deliver(now=at(5)) == 0
        assert hook.refused == 1, "it is left alone until then"
        mail.failing = False
        assert alerts_deliver(now=at(5) + timedelta(minutes=1)) == 2
        assert Delivery.objects.get(status="pending").next_attempt_at == at(5) + timedelta(minutes=3)
        held(2, at(6), 30)
        heard(at(8))
        hook.failing = False
        heard(at(12))
        alerts_deliver(now=at(13))
    assert not Delivery.objects.filter(status="pending").exists()
    assert [text.count("% reached") for text in hook.texts] == [1], "what had to wait comes in one"
    assert "Also reached: Spending 50%" in hook.texts[0]
    assert [text.count("% reached") for text in second.texts] == [1, 1]
    assert sorted(to for to, _ in mail.mails) == ["ann@example.com"] * 2 + ["bob@example.com"] * 2
    errors = " ".join(Delivery.objects.values_list("last_error", flat=True)) + caplog.text
    assert "secret-path" not in errors
    assert caplog.text.count("hook: did not take the message") >= 2


def test_alerts_of_which_no_message_can_be_made_hold_up_no_other_team(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    budget_of(tmp_path, hook)
    wish = BudgetWish(period="month", amount=money("1000.00"), forecast_thresholds=(), channels=("hook",))
    budget_put(team=Team.objects.get(code="cv"), wish=wish, actor="tests", approved=True)
    held(1, at(2), 50)
    held(2, at(2), 50, namespace="cv")
    budgets_evaluate(now=at(5))
    make = deliveries.message_of

    def failing(alerts: list[Alert], *how: Any) -> tuple[str, str]:
        if alerts[0].team.code == "cv":
            raise ArithmeticError("too large")
        return make(alerts, *how)

    monkeypatch.setattr(deliveries, "message_of", failing)
    assert alerts_deliver(now=at(5)) + alerts_deliver(now=at(5)) == 1
    assert [text.split(" reached")[0] for text in hook.texts] == ["Suanpan: nlp"]
    waiting = Delivery.objects.get(status="pending")
    assert (waiting.alert.team.code, waiting.attempts, waiting.last_error) == ("cv", 1, "ArithmeticError")
    assert "ArithmeticError: too large" in caplog.text


def test_a_channel_that_fails_for_days_waits_longer_and_longer_but_never_gives_up(tmp_path: Path, hook: Webhook) -> None:
    budget_of(tmp_path, hook)
    hook.failing = True
    held(1, at(2), 50)
    now, waits = at(5), []
    budgets_evaluate(now=now)
    for _ in range(12):
        alerts_deliver(now=now)
        next_attempt = Delivery.objects.get().next_attempt_at
        waits.append(int((next_attempt - now).total_seconds() // 60))
        now = next_attempt
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360, 360]
    hook.failing = False
    assert alerts_deliver(now=now) == 1
    assert len(hook.messages) == 1


def test_a_mute_holds_back_until_it_ends_and_must_end(tmp_path: Path, hook: Webhook) -> None:
    budget = budget_of(tmp_path, hook)
    mute = mute_put(budget=budget, until=at(7), reason="known campaign", now=at(4), actor="ann")
    held(1, at(2), 50)
    assert heard(at(5)) == 0
    assert heard(at(6)) == 0
    assert heard(at(7)) == 1
    assert len(hook.messages) == 1
    held(2, at(8), 30)
    again = mute_put(budget=budget, until=at(20), reason="again", now=at(10), actor="ann")
    assert heard(at(11)) == 0
    mute_end(mute=again, now=at(12), actor="ann")
    assert heard(at(12)) == 1
    for until, reason in ((at(4), "x"), (at(9), " ")):
        with pytest.raises(BudgetError):
            mute_put(budget=budget, until=until, reason=reason, now=at(5), actor="ann")
    assert mute.by == "ann"


def test_a_digest_and_quiet_hours_wait_but_not_for_what_is_urgent(tmp_path: Path, hook: Webhook) -> None:
    with webhook() as digest:
        budget = budget_of(tmp_path, hook)
        channel_put(wish=ChannelWish("hook", hook.url, quiet_from=time(22), quiet_until=time(7)), actor="tests")
        channel_put(wish=ChannelWish("digest", digest.url, digest_at=time(8)), actor="tests")
        recipients_put(budget=budget, names=["hook", "digest"], actor="tests")
        held(1, at(2), 50)
        assert heard(at(5, 23)) == 0
        assert heard(at(6, 6)) == 0
        assert heard(at(6, 7)) == 1
        assert (len(hook.messages), len(digest.messages)) == (1, 0)
        assert heard(at(6, 8)) == 1
        held(2, at(6, 8), 30)
        assert heard(at(8)) == 0
        held(3, at(8), 20)
        assert heard(at(8, 23)) == 4, "100 % is urgent: at once, also at night, to both, and takes the 80 % along"
        assert [text.count("% reached") for text in hook.texts] == [1, 1]
        assert heard(at(9, 7)) == 0
        assert heard(at(9, 8)) == 0
        assert [text.count("% reached") for text in digest.texts] == [1, 1]
        assert all("Also reached: Spending 80%" in text for text in (hook.texts[1], digest.texts[1]))
        assert alerts_deliver(now=at(20)) == 0


@pytest.mark.django_db(transaction=True)
def test_many_evaluators_and_postmen_at_once_report_everything_once(tmp_path: Path, hook: Webhook) -> None:
    budget = budget_of(tmp_path, hook)
    recipients_put(budget=budget, names=["hook"], actor="tests")
    held(1, at(2), 100)

    def work() -> None:
        for _ in range(3):
            heard(at(8))

    assert at_once(*[work] * 6) == [None] * 6
    alerts_deliver(now=at(8))
    assert Alert.objects.filter(kind="threshold").count() == 3
    assert Alert.objects.filter(kind="threshold", deliveries__status="sent").count() == 3
    assert "\n".join(hook.texts).count("% reached") == len(hook.texts), "a message names one threshold of a budget"
    assert set(Delivery.objects.values_list("status", "attempts")) == {("sent", 1)}


def test_without_a_mail_server_the_mail_waits_and_says_why(tmp_path: Path, settings) -> None:
    settings.ALERT_MAIL_URL = ""
    budget_of(tmp_path, channels=("ann@example.com",))
    held(1, at(2), 50)
    assert heard(at(5)) == 0
    assert "set ALERT_MAIL_URL" in Delivery.objects.get().last_error


def test_what_waits_for_somebody_who_left_goes_to_who_comes_instead(tmp_path: Path, mail: MailServer) -> None:
    """50 of 100 hours; the account of ann is closed, so nothing is sent to her, and bob gets it once he is named."""
    User.objects.create_user("ann", email="ann@example.com", is_active=False)
    budget = budget_of(tmp_path, channels=("ann@example.com",))
    held(1, at(2), 50)
    assert (heard(at(5)), mail.mails) == (0, [])
    assert "the account of that address is closed" in Delivery.objects.get().last_error
    recipients_put(budget=budget, names=["bob@example.com"], actor="tests")
    assert (alerts_deliver(now=at(5)), [recipient for recipient, _ in mail.mails]) == (1, ["bob@example.com"])
    assert list(Delivery.objects.values_list("channel__name", "status")) == [("bob@example.com", "sent")]


@pytest.mark.parametrize("names", [["nobody"], ["not@a mail"], [f"p{number}@example.com" for number in range(21)]])
def test_recipients_that_cannot_be_reached_are_refused(tmp_path: Path, names: list[str]) -> None:
    budget = budget_of(tmp_path)
    with pytest.raises(BudgetError, match="recipient"):
        recipients_put(budget=budget, names=names, actor="ann")
    assert not Channel.objects.exists()


@pytest.mark.parametrize(
    "url",
    [
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops", "feishu://0123456789abcdef0123456789abcdef",
        "dingtalk://abcdefghijklmnop/", "wecombot://abcdefgh-1234-5678-90ab-cdefghijklmn", "jsons://hooks.example.com/x",
        "mailtos://user:pass@example.com",
    ],
)  # fmt: skip
def test_channels_of_every_kind_are_known(tmp_path: Path, url: str) -> None:
    apply(tmp_path)
    assert channel_put(wish=ChannelWish("c", url), actor="tests")


def test_the_background_tasks_do_nothing_before_a_set_up_and_everything_after(tmp_path: Path, hook: Webhook) -> None:
    from django.utils import timezone

    from billing.budgets import tasks

    assert (tasks.budgets_evaluate(), tasks.alerts_deliver(), tasks.outlook_update()) == (0, 0, 0)
    since = "2024-01-01T00:00:00+08:00"
    apply(
        tmp_path, channels=[{"name": "hook", "url": hook.url}],
        budgets=[{"team": "nlp", "amount": "0.01", "recipients": ["hook"], "forecast_thresholds": []}],
        ownership=[{"cluster": "hq-1", "namespace": "nlp-*", "team": "nlp", "valid_from": since}],
        price_versions=[{"name": "p", "valid_from": since, "tokens": [],
                         "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"}]}],
    )  # fmt: skip
    now = timezone.now()
    held(1, now - HOUR, 1)
    assert tasks.budgets_evaluate() == 3
    assert BudgetStatus.objects.filter(start__lte=now, end__gt=now, forecast_at=None).count() == 1, "just made"
    assert tasks.budgets_evaluate() == 0
    assert not BudgetStatus.objects.filter(start__lte=now, end__gt=now, forecast_at=None).exists()
    assert tasks.alerts_deliver() == 3
    assert len(hook.messages) == 1


def test_names_in_a_mail_are_text_and_never_markup_or_headers(tmp_path: Path, mail: MailServer) -> None:
    budget_of(tmp_path, channels=("ann@example.com",), name="<img src=x onerror=alert(1)> & co", owner="Ann\tLee")
    held(1, at(2), 50)
    assert heard(at(5)) == 1
    ((_, message),) = mail.mails
    for part in message.walk():
        payload = part.get_payload(decode=True)
        if part.get_content_type() == "text/html":
            assert b"<img" not in bytes(payload)
            assert b"&lt;img" in bytes(payload)
    assert "<img src=x onerror=alert(1)> & co" in mail.texts[0]
