"""Embedded PostgreSQL and broker for an installation that configures none; see README.md beside this file."""

from billing.local.embedded.client import Services, attach
from billing.local.embedded.errors import EmbeddedError
