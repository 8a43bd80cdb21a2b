"""What is wrong with a field, said in the language of the page: of cost sheets, price lists, plans and reports.

`pricing` and `billing.rates` say `field: value must be a number from 0 to 20 (kW of one GPU): 700 W is 0.7`. The field and
the value stay as they were written; the range is put together from its pieces, since every bound has its own unit.
"""

import re
from collections.abc import Callable
from typing import Final

from django.utils.translation import gettext, gettext_noop

from billing.portal.price_hints import EQUALS

FIELD: Final = re.compile(r"([a-z][a-z0-9_]*(?:(?:\[\d+\])*(?:\.[^.\[\]: ]+)?)*): (.+)", re.DOTALL)
RANGE: Final = re.compile(
    r"(?P<before>.*?)must be (?P<kind>a number|a whole number) (?P<start>from|above) (?P<low>\S+) "
    r"(?P<end>to below|up to|to) (?P<high>\S+) \((?P<unit>[^()]+)\)(?:: (?P<hint>.+))?"
)
KINDS: Final = {"a number": gettext_noop("a number"), "a whole number": gettext_noop("a whole number")}
STARTS: Final = {"from": gettext_noop("from %(low)s"), "above": gettext_noop("above %(low)s")}
ENDS: Final = {
    "to": gettext_noop("to %(high)s"), "up to": gettext_noop("up to %(high)s"),
    "to below": gettext_noop("to below %(high)s"),
}  # fmt: skip
UNITS: Final = (
    gettext_noop("currency per unit, at most 4 decimals"),
    gettext_noop("input tokens of a request, cached included"),
    gettext_noop("multiple of electricity_price_per_kwh"),
    gettext_noop("hour of the local day, 24 is its end"),
    gettext_noop("month of the year"),
    gettext_noop("kWh before PUE"),
    gettext_noop("GPU-hours that the energy was counted over"),
    gettext_noop("mJ of one device since its driver was loaded"),
    gettext_noop("ratio, out of 0 to 1 it is a data error"),
    gettext_noop("ratio of requests"),
    gettext_noop("requests/s"),
    gettext_noop("measure at a fixed rate, not as fast as possible"),
    gettext_noop("tokens/s of the whole deployment"),
    gettext_noop("GPUs of the whole deployment"),
    gettext_noop("dense TFLOP/s of one device"),
    gettext_noop("decimal TB over the whole month, 0.2 PB are 200"),
    gettext_noop("bytes x seconds that they were kept"),
    gettext_noop("seconds of the month"),
    gettext_noop("year"),
    gettext_noop("requests"),
    gettext_noop("currency per 1000 requests"),
    gettext_noop("sequences of an optimizer step"),
    gettext_noop("%(currency)s per kWh"),
)
REFUSED_FIELDS: Final = (
    gettext_noop("is missing, but %(other)s is given"),
    gettext_noop("is missing, must be a list"),
    gettext_noop("is missing, must be text of up to %(limit)s characters"),
    gettext_noop("is missing, must be a mapping of the fields of a cost sheet"),
    gettext_noop("is missing, method phase needs the share of GPU time in prefill"),
    gettext_noop("is missing: name an accelerator, or a resource with a price of its own"),
    gettext_noop("is missing: every bucket of %(model)s prices %(classes)s"),
    gettext_noop("is missing, must be above %(ends)s: only the last bucket of %(model)s is open"),
    gettext_noop("is missing: say why prices change, for whoever approves"),
    gettext_noop("is missing: say what is wrong, for whoever wrote the draft"),
    gettext_noop("is missing, must be a date, or an RFC 3339 instant with an offset, from 2000 to 2199"),
    gettext_noop("is an empty list"),
    gettext_noop("is empty and so is tokens: a version is the complete list of all prices"),
    gettext_noop("is no field of %(what)s"),
    gettext_noop("is no field of %(what)s, did you mean %(close)s?"),
    gettext_noop("is a multiple of electricity_price_per_kwh, which is missing or bad"),
    gettext_noop("must be a mapping of the fields of %(what)s, not %(given)s"),
    gettext_noop("must be a price, a list of hourly prices, or periods with price_per_kwh and hours or kwh"),
    gettext_noop("must be at least %(name)s: the low-cost case is the efficient one"),
    gettext_noop("must be at most %(name)s: the high-cost case is the inefficient one"),
    gettext_noop("%(value)s must be a list"),
    gettext_noop("%(value)s must be text of up to %(limit)s characters"),
    gettext_noop("%(value)s must be printable text of up to %(limit)s characters"),
    gettext_noop("%(value)s must be printable text of 1 to %(limit)s characters, no slash, no spaces around it"),
    gettext_noop("%(value)s must be %(one)s or %(other)s"),
    gettext_noop("%(value)s must be one of %(options)s"),
    gettext_noop("%(value)s must be three capital letters such as CNY"),
    gettext_noop("%(value)s must be %(currency)s, in which prices are"),
    gettext_noop("%(value)s must be an ISO 4217 code such as CNY"),
    gettext_noop("%(value)s must be a day such as %(day)s"),
    gettext_noop("%(value)s must be a day and time such as 2026-12-01T00:00"),
    gettext_noop("%(value)s must be a time zone such as Asia/Shanghai"),
    gettext_noop("%(value)s must be a date, or an RFC 3339 instant with an offset, from 2000 to 2199"),
    gettext_noop("%(value)s must be an instant with an offset, 2000 to 2199"),
    gettext_noop("%(value)s must be a time with an offset such as 2026-10-01T00:00:00+08:00"),
    gettext_noop("%(value)s must be a pair of hours, such as [10, 15]"),
    gettext_noop("%(value)s must differ from currency: the sheet is in it already"),
    gettext_noop("%(value)s must not be below 0 (%(currency)s per kWh)"),
    gettext_noop("the mean price"),
    gettext_noop("650 per MWh is 0.65"),
    gettext_noop("%(value)s must not be above mfu_above %(other)s"),
    gettext_noop("%(value)s must be below installed_gpus %(other)s"),
    gettext_noop("%(value)s must be at most cluster_gpus %(other)s"),
    gettext_noop("%(value)s must be at least active_params %(other)s"),
    gettext_noop("%(value)s must be at least gpus_per_server %(other)s: it counts GPUs, not servers"),
    gettext_noop("%(value)s must be at least the %(least)s of one GPU"),
    gettext_noop("%(value)s must be at least the %(least)s kW of one server"),
    gettext_noop("%(value)s must be at least the %(least)s kWh of devices and hosts"),
    gettext_noop("%(value)s must be above %(ends)s, where the bucket before it ends"),
    gettext_noop("%(value)s must be left out: rent_includes_power, the rent pays it"),
    gettext_noop("%(value)s must be left out: the last bucket of %(model)s takes all longer prompts"),
    gettext_noop("%(value)s stands beside %(other)s: give one of them"),
    gettext_noop("stands beside cost_sheet: give the prices, or the sheet that they come from"),
    gettext_noop("%(value)s has two prices"),
    gettext_noop("%(model)s has two %(name)s prices"),
    gettext_noop("%(value)s is there twice"),
    gettext_noop("%(value)s is no stored cost sheet: store it first, or give the price itself"),
    gettext_noop("%(value)s is no stored token cost sheet: store it first, or give the prices"),
    gettext_noop("%(value)s is in %(currency)s, prices are in %(other)s"),
    gettext_noop("%(value)s was not tested: %(name)s is of %(model)s"),
    gettext_noop("%(value)s is above input_tps, which counts all input, cached included"),
    gettext_noop("%(value)s is far above offered_rps"),
    gettext_noop("%(value)s has no known dense peak for %(dtype)s: give peak_tflops"),
    gettext_noop("%(value)s is published and never changes: give the draft a new name"),
    gettext_noop("%(value)s is the name of another draft"),
    gettext_noop("%(value)s is not what invoices are in any more"),
    gettext_noop("%(value)s is not the newest: the draft is at %(revision)s by now"),
    gettext_noop("%(value)s has passed: prices are published for an instant to come"),
    gettext_noop("%(value)s is where %(name)s begins: choose another instant"),
    gettext_noop("%(actor)s made %(name)s: a second person decides on it, who did not write or submit it"),
    gettext_noop("%(name)s is being written and cannot be %(verb)s"),
    gettext_noop("%(name)s is waits for a second person and cannot be %(verb)s"),
    gettext_noop("%(name)s is published and cannot be %(verb)s"),
    gettext_noop("%(name)s is sent back with a reason and cannot be %(verb)s"),
    gettext_noop("%(name)s is given up and cannot be %(verb)s"),
    gettext_noop("a cost sheet of it changed after the submission: edit and submit it again"),
    gettext_noop("cost sheet %(name)s is the source of published prices: give the changed sheet another name"),
    gettext_noop("token cost sheet %(name)s is the source of published prices: give the changed sheet another name"),
    gettext_noop("give exactly one of %(names)s"),
    gettext_noop("give a price per 1M tokens for at least one of %(names)s"),
    gettext_noop("give either hours or kwh of the period"),
    gettext_noop("give either price_per_kwh or ratio of the period"),
    gettext_noop("gives hours for some periods and kwh for others: weigh all by the same"),
    gettext_noop("has %(n)s values: give one for each of the 24 hours of the local day"),
    gettext_noop("no period prices %(hour)s: give one for every hour and month"),
    gettext_noop("the periods of a tariff need hours or kWh that sum above 0"),
    gettext_noop("%(n)s kWh over %(hours)s GPU-hours: each %(range)s"),
    gettext_noop("last year's surplus, spread over the planned GPU-hours, is more than the price"),
    gettext_noop("a cost sheet"),
    gettext_noop("a price list"),
    gettext_noop("a GPU price"),
    gettext_noop("token prices"),
    gettext_noop("a price version"),
    gettext_noop("a sheet"),
    gettext_noop("a training plan"),
    gettext_noop("metered energy"),
    gettext_noop("no %(basis)s carbon factor of %(region)s for %(year)s, known are %(known)s"),
    gettext_noop("a month of storage"),
    gettext_noop("a tier of storage"),
    gettext_noop("a class of requests"),
    gettext_noop("is missing, and so is requests: give at least one of them"),
    gettext_noop("needs month_seconds of the document: 31 days are 2678400"),
    gettext_noop("stands beside tb_months: give one of them"),
    gettext_noop("%(name)s: is empty"),
    gettext_noop("%(name)s: is not UTF-8 at byte %(at)s"),
    gettext_noop("%(name)s: is no YAML: %(reason)s"),
)


def field_words(text: str, said: Callable[[str], str]) -> str:
    """A range or an example in the language in force, empty where `text` is none; `said` says what is a sentence itself."""
    figures = EQUALS.fullmatch(text)
    if figures:
        said_so = gettext("%(wrong)s is %(right)s") if " is " in text else gettext("%(wrong)s are %(right)s")
        return said_so % {"wrong": figures[1], "right": figures[2]}
    whole = RANGE.fullmatch(text)
    return _range(whole, said) if whole and ": " not in whole["before"] else ""


def beside_its_field(text: str, said: Callable[[str], str]) -> str:
    """`field: refusal` with the refusal in the language in force; empty where there are no words for it."""
    named = FIELD.fullmatch(text)
    told = said(named[2]) if named else ""
    return gettext("%(field)s: %(text)s") % {"field": named[1], "text": told} if named and told != named[2] else ""


def _range(whole: re.Match[str], said: Callable[[str], str]) -> str:
    """Value, range, unit and example of a refused number."""
    currency = whole["unit"].removesuffix(" per kWh")
    unit = gettext("%(currency)s per kWh") % {"currency": currency} if currency.isupper() else gettext(whole["unit"])
    numbers = {"low": whole["low"], "high": whole["high"]}
    told = gettext("must be %(kind)s %(start)s %(end)s (%(unit)s)") % {
        "kind": gettext(KINDS[whole["kind"]]), "start": gettext(STARTS[whole["start"]]) % numbers,
        "end": gettext(ENDS[whole["end"]]) % numbers, "unit": unit,
    }  # fmt: skip
    if whole["hint"]:
        told = gettext("%(range)s: %(hint)s") % {"range": told, "hint": said(whole["hint"])}
    given = whole["before"].strip().rstrip(",")
    if not given:
        return told
    if given == "is missing":
        return gettext("is missing, %(range)s") % {"range": told}
    return gettext("%(value)s %(range)s") % {"value": said(given), "range": told}
