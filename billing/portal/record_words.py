"""What is wrong with a record of usage, as quarantine keeps it, for readers of other languages than the contract's."""

from typing import Final

from django.utils.translation import gettext_noop

RECORDS: Final = (
    gettext_noop(
        "input_tokens %(input)s is less than cache_read_input_tokens %(read)s + cache_creation_input_tokens %(written)s, "
        "which it contains"
    ),
    gettext_noop("reasoning_output_tokens %(part)s is more than output_tokens %(all)s, which contains it"),
    gettext_noop("observed_until is missing: an open allocation says how far it was seen"),
    gettext_noop("observed_until is missing"),
    gettext_noop("exactly one of pod_uid and workload must name what was measured"),
    gettext_noop("gpu_seconds %(value)s must be a number from 0 to %(most)s"),
    gettext_noop("%(field)s %(ratio)s must be a ratio from 0 to 1"),
    gettext_noop("%(field)s %(value)s: expected an RFC 3339 instant with an offset"),
    gettext_noop("%(field)s: contains a NUL character"),
    gettext_noop("%(field)s: contains half a character (%(code)s)"),
    gettext_noop("contains half a character: %(error)s"),
    gettext_noop("%(field)s: contains the character %(character)s, which cannot be printed"),
    gettext_noop("%(field)s: begins or ends with a blank"),
    gettext_noop("%(field)s: is longer than %(most)s bytes"),
    gettext_noop("%(key)s stands twice, and only one of the two can be meant"),
    gettext_noop("%(field)s %(value)s... is longer than %(most)s bytes"),
    gettext_noop("%(field)s %(value)s is not between %(first)s and %(last)s"),
    gettext_noop("%(field)s %(value)s is more than %(widest)s from UTC"),
    gettext_noop("%(second)s %(end)s is before %(first)s %(start)s"),
    gettext_noop("device_fraction %(value)s must be above 0 and at most 1"),
    gettext_noop("device_fraction is null exactly where share_unknown says why"),
    gettext_noop("%(field)s %(value)s is written with more than %(most)s digits"),
    gettext_noop("%(field)s %(value)s has more than %(places)s decimals"),
    gettext_noop("time %(time)s lies in the future; the clock of the ledger says %(now)s"),
    gettext_noop("time %(time)s lies in the future"),
    gettext_noop("id %(id)s of source %(source)s was reported before with other content; the first one stays"),
    gettext_noop(
        "allocation_id %(key)s is not stored as it was reported: the database was changed, see `period_verify`"
    ),
    gettext_noop("capacity %(key)s was reported before with other content; the first one stays"),
    gettext_noop("sample %(key)s was reported before with other content; the first one stays"),
    gettext_noop("reading %(key)s was reported before with other content; the first one stays"),
)
