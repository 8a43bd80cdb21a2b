"""Own PostgreSQL and broker for an installation that configures none; see README.md beside this file."""

from billing.config.embedded.attachment import Services, attach
from billing.config.embedded.errors import EmbeddedError

__all__ = ["EmbeddedError", "Services", "attach"]
