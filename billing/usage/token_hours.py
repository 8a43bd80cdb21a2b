"""What the hourly roll-up knows of one consumer and model: its folded hours and the deltas that wait to be folded."""

from typing import Final

from billing.usage.token_sums import COUNTS

OF_THE_NAMES: Final = "ANY (ARRAY(SELECT id FROM token_dimension WHERE consumer = %(consumer)s AND model = %(model)s))"
"""The ids of one consumer and model at any source, so that of each hour they alone are read."""


def whole_hours(stretches: str) -> str:
    """SQL that reads the whole hours of `stretches`, a relation of (source, first, last): half-open, on whole hours.

    Columns: at (beginning of the hour), dimension, requests, source of the stretch, then the counts of `COUNTS` without the
    requests. Parameters: consumer, model, and the epochs `first` to below `before`. Nothing of it comes from outside.
    """
    names = ", ".join(f"x.{name}" for name in COUNTS[1:])
    seen = f"x.dimension = {OF_THE_NAMES} AND x.epoch >= %(first)s AND x.epoch < %(before)s"
    return f"""SELECT x.hour AS at, x.dimension, x.requests, r.source, {names} FROM {stretches} r
               CROSS JOIN LATERAL generate_series(r.first, r.last - interval '1 hour', interval '1 hour') AS h (at)
               JOIN token_hour x ON x.hour = h.at AND {seen}
               UNION ALL
               SELECT x.hour, x.dimension, x.requests, r.source, {names} FROM {stretches} r
               JOIN token_hour_delta x ON x.hour >= r.first AND x.hour < r.last AND {seen}"""
