"""Writes of the inbox."""

from billing.inbox.services.digests import digest_choose, digests_send
from billing.inbox.services.month_findings import draft_remove, findings_refresh
