"""Meters that run where Django and the database are not, and the records that they report."""

from typing import Final

__version__: Final = "1.0.0"
"""Release of agents and platform alike."""
