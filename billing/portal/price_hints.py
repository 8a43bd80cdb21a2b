"""What stands beside the inputs of the workbench and the planner: units and examples, in the language of the page.

The bounds of `pricing` say them in English, as the command does; a hint that is not listed here is shown as it is.
"""

import re
from typing import Final

from django.utils.translation import gettext, gettext_noop

from pricing.fields import Bound

HINTS: Final = (
    gettext_noop("ratio on cost"),
    gettext_noop("ratio of the cost"),
    gettext_noop("ratio of the available hours"),
    gettext_noop("ratio of the hours"),
    gettext_noop("GPUs"),
    gettext_noop("hours"),
    gettext_noop("730 x 12 is a year"),
    gettext_noop("currency per GPU"),
    gettext_noop("currency per server without its GPUs"),
    gettext_noop("currency per port"),
    gettext_noop("ports"),
    gettext_noop("years"),
    gettext_noop("60 months are 5"),
    gettext_noop("ratio of the purchase price"),
    gettext_noop("ratio per year"),
    gettext_noop("ratio of the purchase price per year"),
    gettext_noop("currency for the whole fabric"),
    gettext_noop("GPUs on the fabric"),
    gettext_noop("kW of one GPU"),
    gettext_noop("kW of the rest of one server"),
    gettext_noop("kWh per GPU-hour before PUE"),
    gettext_noop("ratio"),
    gettext_noop("a building uses at least what its machines use"),
    gettext_noop("currency per kWh"),
    gettext_noop("currency per kW and month"),
    gettext_noop("currency per rack and month"),
    gettext_noop("currency per cluster and month"),
    gettext_noop("decimal TB per GPU"),
    gettext_noop("currency per TB and month"),
    gettext_noop("parameters that a token uses, not the total of a mixture of experts"),
    gettext_noop("training tokens"),
    gettext_noop("currency per GPU-hour"),
    gettext_noop("kW of one GPU with its share of the server"),
    gettext_noop("kg per kWh"),
    gettext_noop("ratio of the budget"),
    gettext_noop("tokens of a sequence"),
    gettext_noop("layers"),
    gettext_noop("model width"),
    gettext_noop("decimal TB kept during the run"),
    gettext_noop("currency for requests to the store"),
    gettext_noop("parameters that are kept, of a mixture of experts all of them"),
    gettext_noop("GB of one GPU"),
    gettext_noop("bytes of weights, gradients and optimizer"),
    gettext_noop("Adam in mixed precision takes 16"),
    gettext_noop("days until the plan must be done"),
    gettext_noop("days of waiting before the run begins"),
    gettext_noop("ratio, the best tenth of own runs"),
    gettext_noop("ratio of the main run"),
    gettext_noop("currency per GPU-hour, cost without markup"),
    gettext_noop("milliseconds"),
    gettext_noop("seconds"),
    gettext_noop("multiple of the price of uncached input"),
    gettext_noop("name as usage reports it"),
    gettext_noop("three letters"),
    gettext_noop("YAML or JSON, instead of a flat price"),
    gettext_noop("YAML or JSON: counters, hosts, GPU-hours"),
    gettext_noop("annuity, or mean-book-value"),
    gettext_noop("true or false"),
    gettext_noop("three letters, of the price list"),
    gettext_noop("CN, CN-East, SE: in place of a figure"),
    gettext_noop("year of the factor"),
    gettext_noop("official average, official residual or lifecycle"),
    gettext_noop("day of the exchange rate, 2026-10-01"),
    gettext_noop("currency per GPU and month"),
    gettext_noop("kW that the rack may draw"),
    gettext_noop("currency, purchase price of all GPUs of the cluster"),
    gettext_noop("ratio of labour and software"),
    gettext_noop("GPUs of this kind"),
    gettext_noop("ratio of the price, in place of markup"),
    gettext_noop("kg of CO2 of making one GPU with its share of the server"),
    gettext_noop("billing currency per unit of the sheet's"),
    gettext_noop("currency of the sheet"),
    gettext_noop("GPU-hours"),
    gettext_noop("ratio of the on-demand price"),
)


EQUALS: Final = re.compile(r"([0-9.]+ (?:%|W|Wh|g)) (?:is|are) ([0-9.]+)")
"""Examples of figures alone: the same in every language."""


def hint_of(bound: Bound) -> str:
    """Unit and example of an input."""
    unit, figures = gettext(bound.unit), EQUALS.fullmatch(bound.hint)
    example = " = ".join(figures.groups()) if figures else gettext(bound.hint) if bound.hint else ""
    return gettext("%(unit)s, %(example)s") % {"unit": unit, "example": example} if example else unit
