"""Commands of a private installation work with a role that owns nothing; the owner is there for migrations."""

from pathlib import Path

import psycopg

from billing.local.embedded import attach
from tests.cli import Home

OWNED = """SELECT count(*) FROM pg_class
           WHERE relnamespace = 'public'::regnamespace AND pg_has_role(current_user, relowner, 'USAGE')"""


def test_a_home_gets_the_role_of_its_application_and_one_from_before_it_too(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with attach(Path(home.environment["SUANPAN_HOME"]), need=("postgres",)) as services:
        home.run("audit_verify")
        with psycopg.connect(services.database_url, autocommit=True) as application:
            assert application.execute("SELECT current_user").fetchone() == ("suanpan_app",)
            assert application.execute(OWNED).fetchone() == (0,)
        with psycopg.connect(services.database_owner_url, autocommit=True) as owner:
            owner.execute("DROP OWNED BY suanpan_app")
            owner.execute("DROP ROLE suanpan_app")  # as 1.0.0 left it: migrated, with one role
        home.run("audit_verify")
        with psycopg.connect(services.database_url, autocommit=True) as application:
            assert application.execute("SELECT count(*) FROM tenancy_auditlink").fetchone() == (0,)
