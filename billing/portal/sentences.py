"""What services say to people, said again in the language of the page.

Services, commands and the API speak English, with values in their sentences: figures, names, what to do. A page finds the
sentence by its form and says it in the reader's language; one that is not listed here is shown as it is, never hidden.
Values are not touched: they are shown as the service gave them, except where they are such a sentence themselves.
"""

import re
from functools import cache
from typing import Final

from django.utils.translation import gettext, gettext_noop

from billing.portal.counted import counted, number_of
from billing.portal.field_words import REFUSED_FIELDS, beside_its_field, field_words
from billing.portal.price_hints import HINTS
from billing.portal.record_words import RECORDS

ADVICE: Final = (
    gettext_noop("close after the month has ended"),
    gettext_noop("give it an owner under `ownership:`"),
    gettext_noop("add it under `consumers:`"),
    gettext_noop("publish a price version that covers it"),
    gettext_noop("enter what it was this month under `allocation_policies:`, in a policy that begins with the month"),
    gettext_noop("%(advice)s, and write its name as %(name)s"),
    gettext_noop("the platform's own use has no price: its recovery cannot be told"),
    gettext_noop("report until the end of the period, fill it with `python -m metering backfill`, or waive with a reason"),
    gettext_noop("claims of devices cannot be backfilled, and this cluster offers devices to claims: see what pods claimed "
                 "meanwhile, import it, and waive with a reason"),
    gettext_noop("see whether its reporter runs, import what is missing, end its consumers, or waive with a reason"),
    gettext_noop("nothing was reported: start its agent, import its usage with `import_usage gpu`, end its ownership, or "
                 "waive with a reason"),
    gettext_noop("%(text)s: is not metered: mend what the agent names, or waive it"),
    gettext_noop(
        "nobody knows this extended resource: if it is a device, tell the agent with %(option)s; if it is none, declare it "
        "with `manage.py gpu_share`"
    ),
    gettext_noop("%(text)s: declare it with `manage.py gpu_share`, or waive it"),
    gettext_noop("look at it with `manage.py quarantine`, then correct or dismiss it"),
    gettext_noop("belongs to %(entity)s: show it what it used (mode shadow) and have the ERP invoice it"),
    gettext_noop("one pod is reported to hold the same resource twice at a time: correct it at its source, or waive it"),
    gettext_noop("ended between %(earliest)s and %(latest)s (%(rule)s); billed until %(until)s"),
    gettext_noop(
        "%(words)s: find the side that lacks (docs/gateways.md, Reconciliation): correct it at its source, or waive it"
    ),
    gettext_noop("gateways told %(i)s input and %(o)s output tokens, inference servers counted %(ei)s and %(eo)s"),
    gettext_noop("close it with `manage.py period_close`"),
    gettext_noop("correction %(n)s is not issued yet"),
    gettext_noop("upheld in %(numbers)s: open a defect"),
    gettext_noop("more was held than nodes offered: check capacity reports and device fractions"),
)
CHECKS: Final = (
    gettext_noop("held GPU time = charged + platform + unowned + unpriced"),
    gettext_noop("%(held)s GPU-seconds held, %(parts)s accounted for"),
    gettext_noop("tokens = charged + unowned + unpriced"),
    gettext_noop("%(n)s tokens reported, %(charged)s charged, %(left)s unowned or unpriced"),
    gettext_noop(
        "%(n)s tokens reported, %(charged)s charged, %(left)s unowned or unpriced, %(held)s of teams that cannot be rated"
    ),
    gettext_noop("charged + platform + idle = capacity"),
    gettext_noop("capacity unknown: no capacity was reported"),
    gettext_noop("%(n)s GPU-seconds offered"),
    gettext_noop("more was held than offered in %(pools)s"),
    gettext_noop("capacity unknown for %(pools)s"),
    gettext_noop("gateway tokens = inference servers' counters (%(limit)s)"),
    gettext_noop("no counters were reported"),
    gettext_noop("%(model)s: %(n)s of %(all)s tokens differ, %(days)s of %(of)s days compared"),
    gettext_noop("watched holds = hourly scans (within %(limit)s)"),
    gettext_noop("no scan was reported"),
    gettext_noop("token roll-ups = token events"),
    gettext_noop("equal in every count"),
    gettext_noop("stored usage = reported usage"),
    gettext_noop("every row has the hash of its report"),
    gettext_noop("%(n)s %(kind)s not as reported, such as %(example)s"),
    gettext_noop("%(accepted)s %(kind)s were accepted, %(stored)s are stored"),
    gettext_noop("allocations"),
    gettext_noop("pieces of allocations"),
    gettext_noop("ends of allocations"),
    gettext_noop("reports of capacity"),
    gettext_noop("efficiency samples"),
    gettext_noop("one that is gone"),
    gettext_noop("period %(month)s cannot be closed: %(name)s: %(detail)s"),
    gettext_noop("rating the stored usage again gives the same charges"),
    gettext_noop("energy at the meter = charged + shared (within %(limit)s)"),
    gettext_noop("no meter was read: `manage.py meter_reading`"),
    gettext_noop("%(cluster)s: %(metered)s kWh metered, %(charged)s charged, %(shared)s shared, %(difference)s differ"),
    gettext_noop("%(cluster)s: not compared, the power of %(names)s is not known"),
    gettext_noop("lines = documents = ledger journal = FOCUS"),
    gettext_noop("disputes before + opened - decided = open at the end"),
    gettext_noop(
        "%(before)s open before, %(opened)s opened or escalated, %(decided)s decided or withdrawn, %(end)s open at the end"
    ),
    gettext_noop("sum of invoices = sum of charges"),
    gettext_noop("invoices %(invoiced)s, charges %(charged)s"),
)
OUTCOMES: Final = (
    gettext_noop("%(what)s was reported before with other content; the first one stays"),
    gettext_noop("was closed already"),
)
REFUSALS: Final = (
    gettext_noop("period %(month)s is not closed: there is nothing to approve"),
    gettext_noop("%(actor)s closed %(month)s: somebody else must approve"),
    gettext_noop("%(actor)s may not %(what)s: that takes an account with the right %(right)s (`manage.py role grant`)"),
    gettext_noop("%(actor)s asked for %(what)s: somebody else must approve"),
    gettext_noop("%(actor)s opened dispute %(n)s or decided it before: somebody else must decide"),
    gettext_noop("%(number)s could be disputed until %(end)s: ask finance for a correction"),
    gettext_noop("%(number)s credits: dispute the invoice or the rebill that charges"),
    gettext_noop("amount %(amount)s is not between 0.01 and the %(left)s left of these lines"),
    gettext_noop("line %(line)s: %(number)s charges no line of that position"),
    gettext_noop("line %(line)s of %(number)s: correction %(n)s of it is not decided yet: issue or void it first"),
    gettext_noop("dispute %(n)s is about one of these lines and not decided yet"),
    gettext_noop("dispute %(n)s of one of these lines was rejected for that reason: escalate it"),
    gettext_noop("dispute %(n)s was escalated already: its second decision is the last"),
    gettext_noop("dispute %(n)s is %(status)s: that can be done while it is %(allowed)s"),
    gettext_noop("correction %(n)s is %(status)s: approve it first"),
    gettext_noop("correction %(n)s is %(status)s: only a draft can be %(what)s"),
    gettext_noop("correction %(n)s is %(status)s: only before issue can it be voided"),
    gettext_noop("a correction for %(code)s needs evidence: a ticket, an incident, a page"),
    gettext_noop("a correction needs a reason in words"),
    gettext_noop("a decision needs its reason"),
    gettext_noop("a change of closed time needs a reason"),
    gettext_noop("name at least one line to credit"),
    gettext_noop("name at least one line"),
    gettext_noop("say what is wrong"),
    gettext_noop("say which evidence is needed"),
    gettext_noop("say why the change is rejected"),
    gettext_noop("say why the correction is dropped"),
    gettext_noop("say why the decision is wrong"),
    gettext_noop("the evidence is empty"),
    gettext_noop("change %(name)s is %(status)s already"),
    gettext_noop("change %(name)s: what it moves is unknown of teams that cannot be rated: %(told)s"),
    gettext_noop("change %(name)s moves charges of %(teams)s: %(missing)s has not taken note yet"),
    gettext_noop("%(actor)s asked for %(name)s: somebody else must take note of it for %(team)s"),
    gettext_noop("%(name)s %(text)s is not a decimal"),
    gettext_noop("line %(n)s: %(text)s is not an amount"),
    gettext_noop("%(name)s %(text)s is not a number"),
    gettext_noop("%(what)s until %(text)s: must be a local date and time such as 2026-10-31T18:00"),
    gettext_noop("amount %(amount)s: must be above 0, with at most two decimals"),
    gettext_noop("override until %(until)s: must lie in the future; every override ends"),
    gettext_noop("override: a reason is missing"),
    gettext_noop("override %(n)s: it is approved already, or its time is over"),
    gettext_noop("%(name)s %(text)s: must be whole percents from 1 to %(most)s"),
    gettext_noop("mute until %(until)s: must lie in the future; every mute expires"),
    gettext_noop("mute: a reason is missing"),
    gettext_noop("budget of %(team)s: another budget of the same scope and period is in force for part of that time"),
    gettext_noop("recipient %(address)s: is not a mail address"),
    gettext_noop("recipient %(name)s: is no channel that %(team)s may use, nor a mail address"),
    gettext_noop("recipients: %(n)s are more than %(most)s; use a mailing list"),
    gettext_noop("%(name)s: did not take the message"),
    gettext_noop("a waiver needs a reason"),
    gettext_noop(
        "the corrected record must keep its %(field)s %(kept)s: under another one, the right record sent again would be "
        "billed a second time"
    ),
    gettext_noop("correction %(n)s is of a year that is over and no approver agreed to it: void it and ask anew"),
    gettext_noop("say why the month is to be opened again"),
    gettext_noop("say why the reopening is turned down"),
    gettext_noop("somebody asked already to open %(month)s again: approve that, or turn it down"),
    gettext_noop("nobody asked to open %(month)s again: `manage.py period_reopen request %(same)s --reason ...`"),
    gettext_noop(
        "closed months stay closed here: `reopening: two-persons` under `billing:` in the set-up file allows it"
    ),
    gettext_noop("period %(month)s is %(status)s: only a closed month is opened again"),
    gettext_noop(
        "invoices of %(month)s are issued and never change: correct them with a credit note or a change of closed time"
    ),
    gettext_noop(
        "a later month was closed after %(month)s and may have billed its late usage: correct %(same)s with notes"
    ),
    gettext_noop("%(month)s was closed again since somebody asked: ask anew"),
    gettext_noop("repair the facts, then close again"),
    gettext_noop("%(actor)s proposed commitment %(name)s: somebody else must approve"),
    gettext_noop("%(actor)s proposed commitment %(name)s: withdraw it instead"),
    gettext_noop("say why the terms are turned down"),
    gettext_noop("say why, in at most %(n)s characters, for whoever approves"),
    gettext_noop("terms of commitment %(name)s wait for approval already: decide or withdraw them"),
    gettext_noop("commitment %(name)s is %(state)s: only what waits can be %(verb)s"),
    gettext_noop("commitment %(name)s is stored and never changes: give the new terms a new name"),
    gettext_noop("commitment %(name)s overlaps a later one of %(team)s on %(accelerator)s: give it a valid_until"),
    gettext_noop("commitment %(name)s: valid_until must be after valid_from"),
    gettext_noop("commitment %(name)s: %(at)s does not lie within its time"),
    gettext_noop(
        "commitment %(name)s: %(at)s lies in a closed month, whose bills stand; the first instant is %(first)s"
    ),
    gettext_noop("%(name)s %(value)s: must be above 0, with at most %(n)s decimals"),
    gettext_noop("accelerator: name the product, as the price list does"),
    gettext_noop("%(name)s %(text)s: write a day as 2026-11-30"),
    gettext_noop("team %(code)s: there is no such team"),
    gettext_noop("say why the disputed amount is kept off the ledger"),
    gettext_noop("cluster: name the cluster as its agent does"),
    gettext_noop("source: say which meter was read, in at most 500 characters"),
    gettext_noop("metered_kwh %(kwh)s: must be above 0, and the shared %(shared)s a part of it"),
    gettext_noop("%(name)s %(text)s: must be 0 or more, with at most 3 decimals"),
    gettext_noop("say why the disputed amount is posted now"),
    gettext_noop("dispute %(n)s keeps nothing off the ledger"),
    gettext_noop("dispute %(n)s is %(status)s: only an undecided one keeps its amount off the ledger"),
    gettext_noop(
        "dispute %(n)s of %(amount)s is not above %(limit)s and %(share)s of %(number)s: it posts, and is credited later if "
        "it is upheld"
    ),
    gettext_noop("dispute %(n)s was held before: that is done once"),
    gettext_noop("%(number)s was handed to the ledger already: what is upheld is credited by a note"),
    gettext_noop("a line of dispute %(n)s was held before by another dispute: that is done once"),
    gettext_noop(
        "invoices of %(month)s are issued and never change: repair the facts of the teams that its close holds (the set-up "
        "file may change what concerns them only), then close again"
    ),
    gettext_noop(
        "period %(month)s is being closed: finish `manage.py period_close %(same)s` first, or have two persons open it again"
    ),
    gettext_noop("period %(month)s was opened again while it was being closed: look at it, then close again"),
    gettext_noop(
        "the repair changed what is billed already of %(teams)s in %(month)s: change only what concerns the teams that are "
        "held, or have two persons open %(same)s again with `period_reopen`"
    ),
    gettext_noop("and %(n)s more"),
    gettext_noop("period %(month)s has no exception %(what)s"),
    gettext_noop("period %(month)s is closed: its waiver of %(what)s stays"),
)
PLANS: Final = (
    gettext_noop("mfu %(mfu)s is above what large runs report (0.38 to 0.55): plan with a measured one"),
    gettext_noop("goodput 1 means no failure, restart or checkpoint loss: runs of weeks lose about a tenth"),
    gettext_noop("seq_len is not small against the model's width: attention is a large part of the FLOP"),
    gettext_noop("without layers and model_width the FLOP of attention are left out"),
    gettext_noop("the run is shorter than an hour: too small to plan this way"),
    gettext_noop("total_params or gpu_memory_gb is not given: whether the model fits is not checked"),
    gettext_noop(
        "the model does not fit: weights, gradients and optimizer take %(needed)s GB of each GPU's %(has)s GB before "
        "activations"
    ),
    gettext_noop("tokens are %(ratio)s times active_params: below 20 the model is larger than its data pays for"),
    gettext_noop("deadline_days is not given: whether the run is done in time is not checked"),
    gettext_noop("too late: %(queue)s days in the queue and %(days)s of running, deadline %(deadline)s days"),
    gettext_noop("mfu_p90 of own runs is not known: the MFU is an assumption"),
    gettext_noop("too hopeful: mfu %(mfu)s against %(own)s, which nine in ten of your own runs do not pass"),
)
PLACE: Final = re.compile(r"%\((\w+)\)s")
LONGEST: Final = 600
"""Longer texts are of people, not of services."""


def in_language(text: str) -> str:
    """A sentence of a service in the language in force; several of them, parted by semicolons, one by one."""
    if len(text) > LONGEST:
        return text
    refused = field_words(text, in_language) or ("; " not in text and beside_its_field(text, in_language))
    if refused:
        return refused
    for sentence, pieces, form in _forms():
        found = form.fullmatch(text) if all(piece in text for piece in pieces) else None
        if found:
            return _said(sentence, found.groupdict())
    parts = text.split("; ")
    return "; ".join(map(in_language, parts)) if len(parts) > 1 else text


def _said(sentence: str, values: dict[str, str]) -> str:
    told = {name: in_language(value) for name, value in values.items()}
    if sentence not in counted():
        return gettext(sentence) % told
    name, say = counted()[sentence]
    return say(number_of(values[name])) % told


@cache
def _forms() -> list[tuple[str, list[str], re.Pattern[str]]]:
    """Every sentence with its own words and the expression that finds it; those with the most words of their own first."""
    listed = (*ADVICE, *CHECKS, *OUTCOMES, *REFUSALS, *PLANS, *REFUSED_FIELDS, *HINTS, *RECORDS, *counted())
    sentences = sorted(listed, key=lambda text: -len(PLACE.sub("", text)))
    return [(sentence, PLACE.split(sentence)[::2], re.compile(_expression(sentence))) for sentence in sentences]


def _expression(sentence: str) -> str:
    pieces = PLACE.split(sentence)  # text, name, text, name, text
    return "".join(f"(?P<{piece}>[^;]+?)" if index % 2 else re.escape(piece) for index, piece in enumerate(pieces))
