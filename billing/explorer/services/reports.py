"""Sending of scheduled reports: each once when it is due, and again after a delay where its channel fails.

One process at a time works on a report (its row is locked), and stores the outcome in the same transaction.
"""

import logging
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import QueryDict
from django.template.loader import render_to_string
from django.utils.translation import override

from billing.budgets.channels import ChannelError, send
from billing.budgets.services.deliveries import FIRST_WAIT, LONGEST_WAIT
from billing.explorer.labels import METRIC, UNIT, apart_texts, begun_text, span_text, title_of, unknown_texts
from billing.explorer.models import ReportSchedule
from billing.explorer.picture import chart_png
from billing.explorer.query import Query
from billing.explorer.selectors import Explored, Explorer, open_window
from billing.explorer.services.saved_views import channels_allowed, next_time, report_end
from billing.rating.freshness import freshness
from billing.runtime.apart import failure_text, log_failure
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.links import portal_link
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import billing_setup
from billing.usage.scope import EVERYTHING, UsageScope
from metering.messages import Message

LISTED: Final = 10
ENDED_BY: Final = "scheduler"
"""Actor that ends the reports of a deactivated account; like tokens they do not return with it."""
log = logging.getLogger(__name__)


def reports_send(*, now: datetime) -> int:
    """Send the reports that are due; return their number. A failing report does not delay others."""
    due = list(ReportSchedule.objects.filter(next_at__lte=now).order_by("next_at").values_list("pk", flat=True))
    return sum(_send(pk, now) for pk in due)


def _send(pk: int, now: datetime) -> bool:
    with transaction.atomic():
        rows = ReportSchedule.objects.select_for_update(skip_locked=True, of=("self",)).filter(pk=pk, next_at__lte=now)
        report = rows.select_related("view__owner", "channel").first()
        if report is None:
            return False  # another process has it locked
        if not report.view.owner.is_active:
            report_end(report=report, actor=ENDED_BY)
            return False
        setup = billing_setup()
        try:
            with transaction.atomic():
                _deliver(report, setup, now)
        except Exception as error:  # noqa: BLE001 - the edge of the loop: whatever it is, it holds up no other report
            log_failure(log, error, "report %s waits", report.pk)
            report.next_at = now + min(FIRST_WAIT * 2 ** min(report.attempts, 10), LONGEST_WAIT)
            report.attempts, report.last_error = report.attempts + 1, failure_text(error)
            report.save()
            return False
        report.next_at, report.attempts = next_time(report.cadence, report.hour, now, setup.zone), 0
        report.last_sent_at, report.last_error = now, ""
        report.save()
        return True


def _deliver(report: ReportSchedule, setup: BillingSetup, now: datetime) -> None:
    owner = report.view.owner
    if not channels_allowed(owner).filter(pk=report.channel_id).exists():
        raise ChannelError(Message("%(name)s: its owner may no longer have reports sent there", name=report.channel.name))
    teams = dict(teams_visible_to(owner).values_list("code", "name"))
    reader = Explorer(frozenset(teams), now, setup.zone, teams)
    found = reader.answer(QueryDict(report.view.query))
    with override(report.channel.language or settings.LANGUAGE_CODE), tempfile.TemporaryDirectory() as folder:
        title, body = message_of(report, found, reader, setup)
        picture = Path(folder) / "chart.png"
        picture.write_bytes(chart_png(found, teams, title))
        send(report.channel, title=title, body=body, attachment=picture)


def _scope(owner: User, query: Query, reader: Explorer) -> UsageScope:
    """Return the usage that the figures cover: of the queried teams, else of all that the owner sees."""
    asked = frozenset(query.filter.get("team", ())) & frozenset(reader.teams)
    if not asked and access_of(owner).may(Right.READ):
        return EVERYTHING
    return UsageScope(asked or frozenset(reader.teams))


def message_of(report: ReportSchedule, found: Explored, reader: Explorer, setup: BillingSetup) -> tuple[str, str]:
    """Return title and text of a report: the total, the change, the largest groups, data freshness, and a link."""
    query, teams = found.query, reader.called
    unit = setup.currency if query.metric == "cost" else UNIT[query.metric]
    listed = found.groups[:LISTED]
    rows = [(title_of(query, group.names, teams), f"{group.total:,f}") for group in listed]
    fresh = None
    if (window := open_window(found)) is not None:
        scope = _scope(report.view.owner, query, reader)
        fresh = freshness(scope, window, found.as_of or reader.now, unbilled=found.unbilled)
    link = portal_link("explorer")
    context = {
        "view": report.view, "found": found, "rows": rows, "unit": unit, "metric": METRIC[query.metric], "setup": setup,
        "span": span_text(query.span, found.today), "fresh": fresh,
        "more": max(0, found.number - sum(group.counts for group in listed)),
        "unrated": list(found.unrated),
        "unknown": [*unknown_texts(found.unknown, "{:,f}".format), *apart_texts(found, f"{found.apart:,f} {unit}")],
        "begun": begun_text(found),
        "compared": "" if found.compared is None or (fresh and fresh.stale) else span_text(found.compared, found.today),
        "inbox": portal_link("inbox"), "link": f"{link}?{query.address}" if link else "", "total": f"{found.total.total:,f}",
        "change": "" if found.total.change is None else f"{found.total.change:+,f}",
        "through": "" if fresh is None or fresh.data_through is None
        else f"{fresh.data_through.astimezone(ZoneInfo(setup.zone)):%Y-%m-%d %H:%M}",
    }  # fmt: skip
    title = " ".join(render_to_string("alerts/report_title.txt", context).split())
    return title, render_to_string("alerts/report_body.txt", context).strip() + "\n"
