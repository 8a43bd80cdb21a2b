"""PURE: conversion of counts and durations of a report to the rates of the own format. Missing values stay None."""

from fractions import Fraction
from typing import Any

from pricing.fields import exact_number
from pricing.money import exact_decimal


def per_second(count: Any, seconds: Any) -> str | None:
    """Return a rate with 12 decimals; None where count or duration is missing or bad.

    >>> per_second(1000, "3"), per_second(1000, 0)
    ('333.333333333333', None)
    """
    amount, duration = exact_number(count), exact_number(seconds)
    return exact_decimal(amount / duration) if amount is not None and duration else None


def as_text(value: Fraction | None) -> str | None:
    """Format a rational with 12 decimals."""
    return None if value is None else exact_decimal(value)


def share_of(value: Any, share: Fraction | None) -> str | None:
    """Return a share of a rate with 12 decimals; None where either is not known.

    >>> share_of("5000", Fraction(3, 10)), share_of("5000", None)
    ('1500.000000000000', None)
    """
    number = exact_number(value)
    return None if number is None or share is None else exact_decimal(number * share)


def number_or_given(value: Any) -> Any:
    """Round a number to 12 decimals: the digits of a binary float beyond are not measured; return other values as given."""
    number = exact_number(value)
    return value if number is None else exact_decimal(number)


def error_rate(*, completed: Any, sent: Any = None, failed: Any = None) -> str | None:
    """Return failed over all requests: by the count of failed ones, else of sent ones; None where neither is known.

    >>> error_rate(completed=98, failed=2), error_rate(completed=99, sent=100), error_rate(completed=99)
    ('0.020000000000', '0.010000000000', None)
    """
    done, lost, total = exact_number(completed), exact_number(failed), exact_number(sent)
    if done is None:
        return None
    if lost is None and total is not None:
        lost = total - done
    if lost is None or lost < 0 or done + lost <= 0:
        return None
    return exact_decimal(lost / (done + lost))


def present(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value, also within the runs."""
    runs = [{name: value for name, value in run.items() if value is not None} for run in fields.get("runs", ())]
    return {**{name: value for name, value in fields.items() if value is not None}, "runs": runs}
