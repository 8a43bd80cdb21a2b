"""Settings of the server that ingest is compared with: the house's own, with the doors of `plain_doors`."""

from billing.config.settings import *  # noqa: F403

ROOT_URLCONF = "tests.benchmarks.plain_doors"
