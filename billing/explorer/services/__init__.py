"""Writes of the explorer."""

from billing.explorer.services.cubes import cube_make, cubes_ready, cubes_refresh
from billing.explorer.services.saved_views import (
    channels_allowed,
    report_end,
    report_put,
    view_delete,
    view_put,
    views_seen,
)
