"""Settings of the server that ingest is compared with: the installation's own, with the doors of `plain_doors`."""

from billing.settings.base import *  # noqa: F403

ROOT_URLCONF = "tests.benchmarks.plain_doors"
