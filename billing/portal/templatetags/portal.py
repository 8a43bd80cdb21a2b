"""Formats of figures and codes on pages. Money and quantities stay decimals: no filter makes a float of them."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from math import ceil
from typing import Any
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from django import template
from django.template.defaulttags import querystring
from django.template.engine import Engine
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext, ngettext

from billing.closing.labels import subject_words
from billing.portal.input_names import input_name
from billing.portal.labels import LABELS, MINUS, NOTHING
from billing.portal.navigation import menu_of
from billing.rates.labels import TOKEN_CLASS, token_class_words
from billing.rates.price_diff import PriceChange
from billing.runtime.progress import STEPS
from billing.runtime.translation import translated
from billing.tenancy.models import AuditEntry
from metering.intervals import MICROSECOND
from pricing.contexts import class_and_context, priced_class
from pricing.money import amount_places

register = template.Library()
register.filter("input_name", input_name)
register.filter("translated", translated)
register.filter("token_class", token_class_words)
register.filter("subject_words", subject_words)
UNITS: Mapping[str, Callable[[int], str]] = {
    "months": lambda n: ngettext("%(n)s month", "%(n)s months", n),
    "records": lambda n: ngettext("%(n)s record", "%(n)s records", n),
    "objects": lambda n: ngettext("%(n)s object", "%(n)s objects", n),
    "resources": lambda n: ngettext("%(n)s resource", "%(n)s resources", n),
    "tokens": lambda n: ngettext("%(n)s token", "%(n)s tokens", n),
    "units": lambda n: ngettext("%(n)s device", "%(n)s devices", n),
    "teams": lambda n: ngettext("%(n)s team", "%(n)s teams", n),
    "disputes": lambda n: ngettext("%(n)s dispute", "%(n)s disputes", n),
    "days": lambda n: ngettext("%(n)s day", "%(n)s days", n),
}
"""Counts of exceptions in words, by unit; time is shown in hours."""
HOUR = 3600
CODE = ((mark_safe(""), mark_safe("")), (mark_safe("<code>"), mark_safe("</code>")))
NEARLY = Decimal("0.8")
LONG_NUMBER = re.compile(r"(?<![\w.,/-])\d{5,}(?![\w-])")

@register.filter
def label(code: str, table: str) -> Any:
    """Return the label of a code in a table (`billing.portal.labels`); without one the label of its part before a colon,
    else the code.
    """
    labels = LABELS[table]
    return labels.get(code) or labels.get(code.partition(":")[0], code)


@register.filter
def unpriced(sku: str) -> str:
    """Return the name of an item without a price: an accelerator, or a model with its class of tokens."""
    model, _blank, code = sku.rpartition(" ")
    return f"{model} · {token_class_words(code)}" if class_and_context(code)[0] in TOKEN_CLASS else sku


@register.filter
def in_context(name: str, context: str) -> Any:
    """Return the words for a class of tokens in a bucket of prompt lengths."""
    return token_class_words(priced_class(name, context))


@register.filter
def line_name(line: Any) -> str:
    """Return the name of a charge or price: SKU, class of tokens and reason. `line`: of a document, or a key."""
    fact = line.get if isinstance(line, Mapping) else lambda name: getattr(line, name, "")
    words = [fact("sku")]
    if token_class := fact("token_class"):
        words.append(in_context(token_class, fact("context") or ""))
    if reason := fact("reason"):
        words.append(label(reason, "line_reason"))
    return " · ".join(map(str, words))


@register.simple_tag
def th(look: str, *names: object) -> str:
    """Render heads of columns that look alike: `look` is the class of each, empty for text that every screen shows."""
    kind = format_html(' class="{}"', look) if look else ""
    return format_html_join("", '<th scope="col"{}>{}</th>', ((kind, name) for name in names))


@register.simple_block_tag(takes_context=True)
def card(context: template.Context, content: str, *, name: str, title: Any, **head: Any) -> str:
    """Render a card of a page; `head`: other variables of `parts/head.html`, such as the `table` that it has as a file."""
    shown = {"soft": "", "table": "", "files": "", **head, "name": name, "title": title, "content": content}
    with context.push(**shown):
        return Engine.get_default().get_template("portal/parts/card.html").render(context)


@register.simple_block_tag(takes_context=True)
def table_card(context: template.Context, content: str, *, look: str = "", **head: Any) -> str:
    """Render a card that is one table, of the class `look`, and nothing else."""
    return card(context, content, look=look, is_table=True, **head)


@register.inclusion_tag("portal/parts/press.html")
def press(page: str, *where: Any, button: Any, look: str = "", **sent: str) -> dict[str, Any]:
    """Render a button alone, which sends a POST with `sent` to a page; `look`: its class."""
    return {"to": reverse(f"portal:{page}", args=where), "button": button, "look": look, "sent": sent.items()}


@register.inclusion_tag("portal/parts/menu.html", takes_context=True)
def menu(context: template.Context) -> dict[str, Any]:
    from billing.portal.waiting import waiting_number

    return {
        "sections": menu_of(context.get("may") or {}), "nav": context.get("nav"), "choice": context.get("choice"),
        "waiting": waiting_number(context.get("request"), context.get("setup")),
    }  # fmt: skip


@register.filter
def step_words(step: str) -> str:
    """Return the words for the current step of an operation."""
    return gettext(STEPS.get(step, step))


@register.filter
def one_line(text: str) -> str:
    """Return a text without line breaks, for plain text whose template has more lines than it."""
    return " ".join(text.split())


@register.filter
def stem(code: str) -> str:
    """Return a code without the part after its colon: `penalty:1.05` is a `penalty`."""
    return code.partition(":")[0]


@register.filter
def actor(name: str | None) -> str:
    """Return an actor in words: an API token is called one; empty without an actor.

    >>> actor("token:gateway"), actor("database:suanpan"), actor("fay")
    ('API token gateway', 'database role suanpan', 'fay')
    """
    kind, _, own = (name or "").partition(":")
    words = {"token": gettext("API token %(name)s"), "database": gettext("database role %(name)s")}
    return words[kind] % {"name": own} if kind in words else name or ""


@register.filter
def actor_of_entry(entry: AuditEntry) -> str:
    """Return the actor of an entry of the audit log, in words: a failed sign-in has none."""
    failed = entry.action == "sign_in_failed" and entry.actor.startswith("database:")
    return gettext("nobody signed in") if failed else actor(entry.actor)


@register.filter
def money(value: Decimal | None) -> str:
    """Format ``1234.5`` as ``1,234.50``, in a currency without decimals as ``1,235``."""
    return NOTHING if value is None else _grouped(value, amount_places())


@register.filter
def price(value: Decimal | None) -> str:
    """Format a unit price: four decimals, or all digits if an adjustment has more."""
    if value is None:
        return NOTHING
    exponent = value.normalize().as_tuple().exponent
    return _grouped(value, max(4, -exponent if isinstance(exponent, int) else 4))


@register.filter
def quantity(value: Decimal | None) -> str:
    """Format a quantity with the six decimals of the invoice."""
    return NOTHING if value is None else _grouped(value, 6)


@register.filter
def count(value: Decimal | int | None) -> str:
    """Format a whole number, or a decimal with all its digits, with separators."""
    if value is None:
        return NOTHING
    exact = Decimal(value)
    if exact != exact.to_integral_value():
        exponent = exact.normalize().as_tuple().exponent
        return _grouped(exact, -exponent if isinstance(exponent, int) else 0)
    return _grouped(exact, 0)


@register.filter
def named(names: Mapping[str, str], code: str) -> str:
    return names.get(code, code)


@register.filter
def compact(value: Decimal | None) -> str:
    """Format a figure for a small cell: one decimal below ten, thousands as k, millions as M; the file has the exact one."""
    if not value:
        return NOTHING if value is None else "0"
    for bound, letter in ((1_000_000, "M"), (1000, "k")):
        if value >= bound - bound / 2000:  # 999,500 would round to 1,000k: it is shown as a million
            return f"{_grouped(value / bound, 1 if value < 10 * bound else 0)}{letter}"
    return _grouped(value, 1 if value < 10 else 0)


@register.filter
def gpu_hours(seconds: Decimal | int | None) -> str:
    """Format device-seconds as hours with one decimal; the exact figure belongs beside it."""
    return NOTHING if seconds is None else _grouped(Decimal(seconds) / HOUR, 1)


@register.filter
def hours(value: Decimal | None) -> str:
    """Format hours with one decimal; the exact figure is in the file."""
    return NOTHING if value is None else _grouped(value, 1)


@register.filter
def age(seconds: int) -> str:
    """Format an age in the largest unit of which it has two: ``12 s``, ``5 min``, ``30 h``, ``4 d``."""
    if seconds >= 2 * 86_400:
        return gettext("%(n)s d") % {"n": seconds // 86_400}
    if seconds >= 2 * 3600:
        return gettext("%(n)s h") % {"n": seconds // 3600}
    if seconds >= 2 * 60:
        return gettext("%(n)s min") % {"n": seconds // 60}
    return gettext("%(n)s s") % {"n": seconds}


@register.filter
def amount_of_unit(value: Decimal, unit: str) -> str:
    """Format the quantity of an exception, in a unit that a person thinks in."""
    if unit in ("gpu_seconds", "unit_seconds", "seconds"):
        hours_shown = gpu_hours(value)
        if unit == "unit_seconds":
            return gettext("%(n)s unit-hours") % {"n": hours_shown}
        return f"{hours_shown} GPU-h" if unit == "gpu_seconds" else gettext("%(n)s h") % {"n": hours_shown}
    words = UNITS.get(unit)
    return words(ceil(value)) % {"n": count(value)} if words else f"{count(value)} {unit}"


@register.filter
def ratio(value: Decimal | None) -> str:
    """Format a ratio as percent with one decimal; None is a dash and not zero."""
    return NOTHING if value is None else f"{_grouped(Decimal(value) * 100, 1)}%"


@register.filter
def change(multiplier: Decimal) -> str:
    """Format a multiplier as the change it makes: ``1.2`` is ``+20%``."""
    percent = ((Decimal(multiplier) - 1) * 100).normalize()
    if not percent:
        return "0%"
    return f"{'+' if percent > 0 else MINUS}{abs(percent):f}%"


@register.filter
def or_soft(text: str, words: object) -> str:
    """Return the text of another filter, or soft words if that is the dash of a missing value."""
    return format_html('<span class="soft">{}</span>', words) if text == NOTHING else text


@register.filter
def local(instant: datetime | None, zone: str) -> str:
    """Format an instant in the billing zone, to the second; microseconds only if there are any."""
    if instant is None:
        return NOTHING
    there = instant.astimezone(ZoneInfo(zone))
    return there.strftime("%Y-%m-%d %H:%M:%S") + (f".{there.microsecond:06d}" if there.microsecond else "")


@register.filter
def local_minute(instant: datetime | None, zone: str) -> str:
    return NOTHING if instant is None else instant.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


@register.filter
def last_day(deadline: datetime, zone: str) -> str:
    """Return the last day before a deadline, as in documents and mails: deadlines are the midnights after a day."""
    return f"{(deadline - MICROSECOND).astimezone(ZoneInfo(zone)):%Y-%m-%d}"


@register.filter
def stamp(text: str) -> str:
    """Format an instant of a document to the minute, in the zone of the document."""
    return text[:16].replace("T", " ")


@register.filter
def share_of(part: Decimal | int | None, whole: Decimal | int | None) -> str:
    """Return the width of a bar in percent, within 0 and 100; for SVG attributes, so never localised."""
    if not part or not whole:
        return "0"
    share = Decimal(part) / Decimal(whole) * 100
    return f"{min(max(share, Decimal(0)), Decimal(100)):.3f}"


@register.filter
def is_near(used: Decimal) -> bool:
    """Return True if a budget is nearly used up."""
    return used >= NEARLY


@register.filter
def decimal(text: str) -> Decimal:
    """Return a decimal of a document, which has it as text so that no digit is lost."""
    return Decimal(text)


@register.simple_tag
def exception_link(item: Any, month: str) -> str:
    """Return the page where an exception is solved or seen."""
    return str(item.facts.link(month))


@register.simple_tag
def claim_link(item: Any, month: str) -> str:
    """Return the form that gives usage of a month an owner, for an exception or an item without one."""
    from billing.inbox.months import claim_address

    return claim_address(item.kind, item.subject, month)


@register.simple_tag
def evidence_address(verdict: Any, month: str) -> str:
    asked = {"month": month} | {name: getattr(verdict, name) for name in ("cluster", "namespace", "job", "policy")}
    return f"{reverse('portal:evidence', args=[verdict.team])}?{urlencode(asked, quote_via=quote, safe='')}"


@register.simple_tag
def board_link(month: str, **asked: str) -> str:
    """Return the page of a month's costs, under some of its filters."""
    return f"{reverse('portal:board')}?{urlencode({'month': month, **asked}, quote_via=quote, safe='')}"


@register.simple_tag(takes_context=True)
def drill_link(context: template.Context, by: str, name: str, drill: str) -> str:
    """Return the address of the page with one more name in its filters, split by `drill`."""
    asked: dict[str, Any] = {by: name, "by": drill}
    return str(querystring(context, **asked))


@register.filter
def codes(text: str) -> str:
    """Render text in backticks as code; everything is escaped."""
    # every second piece stood between backticks
    pieces = text.split("`")
    return format_html_join(
        "", "{}{}{}", ((CODE[index % 2][0], piece, CODE[index % 2][1]) for index, piece in enumerate(pieces))
    )


@register.filter
def figures(text: str) -> str:
    """Return a sentence with separators in its long whole numbers; decimals and parts of names stay as they are."""
    return LONG_NUMBER.sub(lambda found: f"{int(found.group()):,}", text)


@register.filter
def signed_money(value: Decimal) -> str:
    """Format a difference of amounts, with its sign."""
    return f"+{money(value)}" if value > 0 else money(value)


@register.filter
def signed_percent(value: Decimal | None) -> str:
    """Format a change in percent with its sign; None is a dash."""
    if value is None:
        return NOTHING
    return f"{'+' if value > 0 else ''}{_grouped(value, 2)}%"


@register.filter
def prices_changed(changes: Iterable[PriceChange]) -> list[PriceChange]:
    return [change for change in changes if change.change != "same"]


@register.filter
def prices_same(changes: Iterable[PriceChange]) -> list[PriceChange]:
    return [change for change in changes if change.change == "same"]


@register.filter
def sign(value: Decimal | None) -> str:
    """Return the sign of a figure as a class name; empty for zero."""
    # class names of portal.css
    return "" if not value else "minus" if value < 0 else "plus"


@register.filter
def credited(value: Decimal | None) -> str:
    """Return a class name for an amount that takes money back; empty for any other."""
    return "minus" if value and value < 0 else ""


def _grouped(value: Decimal | int, places: int) -> str:
    exact = Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    text = f"{abs(exact):,f}"
    return f"{MINUS}{text}" if exact < 0 else text
