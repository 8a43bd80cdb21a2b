"""`python -m tests.upgrade VERSION`: fill an empty database with everything that pages show, and keep it for later releases.

Run once for each release, from its tag; the backup and its manifest are committed, and every later release must bring that
database up to date and prove it.
"""

import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

BACKUPS = Path(__file__).parent / "backups"


def main(version: str) -> None:
    """Write `backups/VERSION.dump` and its manifest."""
    with tempfile.TemporaryDirectory(prefix="suanpan-upgrade-") as home:
        os.environ.update(SUANPAN_HOME=home, DJANGO_SETTINGS_MODULE="billing.settings.base")
        os.environ.pop("DATABASE_URL", None)
        os.environ.pop("BROKER_URL", None)
        from billing.local.command_line import embedded_services

        with embedded_services():
            _fill(Path(home), BACKUPS / f"{version}.dump")


def _fill(home: Path, path: Path) -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    from billing.backup.dump import backup_take
    from tests.full_scenario import build_scenario, pleasant

    build_scenario(home, pleasant)
    manifest = backup_take(path=path, now=datetime.now(UTC))
    print(f"{path}: {manifest['bytes']:,} bytes, {sum(manifest['facts']['rows'].values()):,} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
