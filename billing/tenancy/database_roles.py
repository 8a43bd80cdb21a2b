"""Database roles: the owner migrates, the application's role works and owns nothing (ADR 0030).

The application's rights to a table follow from the table's guards in the database: a table whose rows never change gives no
right to change them. Tables whose guards decide row by row, and those without guards, are named here; any other table
without guards is readable only, and a test reports it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.db import ProgrammingError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL, Composable, Identifier, Literal

ALL: tuple[str, ...] = ("*",)
NOTHING: tuple[str, ...] = ()

READ_ONLY = frozenset({
    "django_migrations", "django_content_type", "auth_permission",  # filled by migrations
    "tenancy_auditlink", "token_hour", "token_day",  # written by functions that run as the owner
    "token_sealed", "token_archive",  # written by commands that the owner runs
})  # fmt: skip
CHANGING = frozenset({
    "account_emailaddress", "account_emailconfirmation", "auth_group", "auth_group_permissions", "auth_user",
    "auth_user_groups", "auth_user_user_permissions", "django_admin_log", "django_session", "mfa_authenticator",
    "socialaccount_socialaccount", "socialaccount_socialapp", "socialaccount_socialtoken", "suanpan_cache",
    "tenancy_anchordelivery", "tenancy_apitoken", "tenancy_billingsetup", "tenancy_consumerownership", "tenancy_membership",
    "tenancy_namespaceownership", "tenancy_provisionedaccount", "tenancy_team", "tenancy_tokenaddress",
    "budgets_alert", "budgets_budget", "budgets_budget_channels", "budgets_budgetaction", "budgets_budgetstatus",
    "budgets_capoverride", "budgets_channel", "budgets_costanomaly", "budgets_counteddays", "budgets_dailyspend",
    "budgets_dailyteamspend", "budgets_delivery", "budgets_mute", "budgets_planamount", "budgets_webhookevent",
    "monitoring_heartbeat", "explorer_cubecolumn", "explorer_monthcube", "explorer_reportschedule", "explorer_savedview",
    "inbox_digest", "inbox_monthfindings",
    "closing_blockedteam", "exports_focuspart", "exports_focusset", "invoices_billingcontact", "invoices_documentmail",
    "invoices_operation", "rates_interruptionpolicy", "rating_ratingsnapshot", "rating_teamsnapshot",
    "tenancy_tagrule", "tenancy_firstpassword",
})  # fmt: skip
"""Tables without a guard: configuration, computed data, and temporary data."""
UPDATED = {
    "approvals_proposal": ALL,
    "corrections_dispute": ALL,
    "corrections_disputeholdback": ("posted_with_id", "posted_at"),
    "invoices_billingmode": ALL,
    "invoices_billingperiod": ALL,
    "invoices_correction": ALL,
    "invoices_invoiceline": ("id",),  # locked while it is credited; PostgreSQL asks for a column that may be updated
    "invoices_invoicesums": NOTHING,
    "invoices_journalexport": ("reference", "acknowledged_at", "acknowledged_by"),
    "invoices_note": ALL,
    "invoices_noteline": ("id",),  # locked while it is credited; its guard refuses the update itself
    "rates_allocationpolicy": ("valid_until",),
    "rates_carbonfactors": ("valid_until",),
    "rates_commitment": ("valid_until",),
    "rates_costsheet": ALL,
    "rates_efficiencypolicy": ("valid_until",),
    "rates_gpuprice": NOTHING,
    "rates_priceversion": ("sealed", "valid_until"),
    "rates_tokencostsheet": ALL,
    "rates_tokenprice": NOTHING,
    "token_shard": ("batch", "incarnation"),
    "usage_close": ("withdrawn_at",),
}
"""Tables that refuse by the state of a row, with the columns that change in some state. Their rows are never deleted."""
KEPT = frozenset({"invoices_invoice", "rating_retroactivechange", "token_entry"})
"""Tables with guards on some columns, or none, whose own guard refuses DELETE."""

GUARDS = """
    SELECT c.relname,
           coalesce(bool_or(t.tgtype & 16 <> 0 AND t.tgqual IS NULL AND t.tgattr::text = ''), false) AS never_updated,
           coalesce(bool_or(t.tgtype & 8 <> 0 AND t.tgqual IS NULL), false) AS never_deleted,
           (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a JOIN pg_trigger s ON s.tgrelid = a.attrelid
             WHERE s.tgrelid = c.oid AND s.tgname = 'columns_stay' AND a.attnum > 0 AND NOT a.attisdropped
               AND a.attnum <> ALL (s.tgattr::int2[])) AS changing
      FROM pg_class c LEFT JOIN pg_trigger t
        ON t.tgrelid = c.oid AND t.tgfoid = to_regproc('suanpan_refuse') AND t.tgtype & 3 = 3
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
     GROUP BY c.oid, c.relname ORDER BY c.relname"""
EXCESS = """
    SELECT 'is a superuser' FROM pg_roles WHERE rolname = %(role)s AND rolsuper
    UNION ALL SELECT 'may make roles' FROM pg_roles WHERE rolname = %(role)s AND rolcreaterole
    UNION ALL SELECT 'may replicate' FROM pg_roles WHERE rolname = %(role)s AND rolreplication
    UNION ALL (SELECT format('owns %%s, or is a member of its owner', c.relname) FROM pg_class c
                WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
                  AND pg_has_role(%(role)s, c.relowner, 'MEMBER')
                  AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = %(role)s) ORDER BY 1 LIMIT 1)
    UNION ALL SELECT 'may create in the schema public' WHERE has_schema_privilege(%(role)s, 'public', 'CREATE')
    UNION ALL SELECT 'may make schemas' WHERE has_database_privilege(%(role)s, current_database(), 'CREATE')
    UNION ALL SELECT 'may make temporary tables' WHERE has_database_privilege(%(role)s, current_database(), 'TEMPORARY')"""


EVIDENCE = frozenset({
    "closing_exceptionwaiver", "invoices_billingmode", "invoices_billingperiod", "invoices_correction", "invoices_invoice",
    "invoices_invoiceline", "invoices_invoicesums", "invoices_note", "invoices_noteline", "invoices_numberseries",
    "rates_gpuprice", "rates_priceversion", "rates_tokenprice", "rating_charge", "rating_efficiencyverdict",
    "rating_idleshare", "rating_poolcapacity", "rating_pooltime", "rating_tokenlayout", "tenancy_auditentry",
    "usage_close",
})  # fmt: skip
"""Tables written by closes and stated by documents: the database refuses or detects changes by the application."""
GIVEN = frozenset({
    "approvals_proposal", "approvals_step", "closing_accrual", "closing_meterreading", "corrections_dispute",
    "corrections_disputeholdback", "corrections_disputestep", "invoices_documentevent", "invoices_journalexport",
    "rates_allocationpolicy", "rates_carbonfactors", "rates_commitment", "rates_costsheet", "rates_efficiencypolicy",
    "rates_tokencostsheet", "rating_retroactivechange", "token_detail", "token_dimension", "token_entry",
    "token_hour_delta", "token_open_batch", "token_sequence", "token_shard", "token_tag_set", "token_tag_value",
    "usage_acceptedrows", "usage_agentdiagnostic", "usage_agentwatermark", "usage_allocationinterruption",
    "usage_allocationrevision", "usage_capacitytyperule", "usage_clusterscan", "usage_coveragenote",
    "usage_efficiencysample", "usage_enginereading", "usage_gpuallocation", "usage_nodecapacity",
    "usage_quarantinedrecord", "usage_servicetierrule", "usage_sharecorrection", "usage_sharedeclaration",
    "usage_tokenfile", "usage_unknownshare",
})  # fmt: skip
"""Tables of reports, declarations, proposals and decisions: the application adds rows, and stored ones stay."""
WORKING = CHANGING
"""Tables of configuration, computed data, and temporary data."""


@dataclass(frozen=True)
class TableRights:
    """Rights of the application to a table beyond reading; `update` has column names, ALL or NOTHING."""

    insert: bool
    update: tuple[str, ...]
    delete: bool

    def statement(self, table: str, role: str) -> Composable:
        verbs: list[Composable] = [SQL("SELECT")]
        verbs += [SQL("INSERT")] if self.insert else []
        verbs += [SQL("DELETE")] if self.delete else []
        if self.update == ALL:
            verbs.append(SQL("UPDATE"))
        elif self.update:
            verbs.append(SQL("UPDATE ({})").format(SQL(", ").join(map(Identifier, self.update))))
        return SQL("GRANT {} ON {} TO {}").format(SQL(", ").join(verbs), Identifier(table), Identifier(role))


UNKNOWN = TableRights(insert=False, update=NOTHING, delete=False)


def table_rights(connection: BaseDatabaseWrapper) -> dict[str, TableRights | None]:
    """Return the application's rights to every table of the database; None for a table without a rule."""
    with connection.cursor() as cursor:
        cursor.execute(GUARDS)
        return {name: _rights(name, *found) for name, *found in cursor.fetchall()}


def _rights(table: str, never_updated: bool, never_deleted: bool, changing: list[str] | None) -> TableRights | None:
    if table in READ_ONLY:
        return UNKNOWN
    if table in CHANGING:
        return TableRights(insert=True, update=ALL, delete=True)
    if table in UPDATED:
        return TableRights(insert=True, update=UPDATED[table], delete=False)
    if changing:
        return TableRights(insert=True, update=tuple(changing), delete=not never_deleted and table not in KEPT)
    if never_updated:
        return TableRights(insert=True, update=NOTHING, delete=not never_deleted and table not in KEPT)
    return None


def rights_grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Grant the role its rights and revoke all others; run by the owner, at any time, after each migration."""
    named = Identifier(role)
    grants = [(rights or UNKNOWN).statement(table, role) for table, rights in table_rights(connection).items()]
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        # two grants at once would fail with "tuple concurrently updated"
        cursor.execute("SELECT pg_advisory_xact_lock(1398032213)")
        for statement in (
            SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(named),
            SQL("REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {}").format(named),
            *grants,
            *_grants_on_views_and_parts(cursor, named),
            SQL("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {}").format(named),
        ):
            cursor.execute(statement)
        cursor.execute("SELECT pg_has_role(datdba, 'USAGE') FROM pg_database WHERE datname = current_database()")
        if cursor.fetchone()[0]:
            for statement in _database_belongs_to_us(connection, named):
                cursor.execute(statement)


def _grants_on_views_and_parts(cursor: Any, role: Identifier) -> list[Composable]:
    cursor.execute(
        """SELECT viewname FROM pg_views WHERE schemaname = 'public' UNION ALL
           SELECT relname FROM pg_class
           WHERE relnamespace = 'public'::regnamespace AND relispartition AND relkind IN ('r', 'p')"""
    )
    return [SQL("GRANT SELECT ON {} TO {}").format(Identifier(name), role) for (name,) in cursor.fetchall()]


def _database_belongs_to_us(connection: BaseDatabaseWrapper, role: Identifier) -> list[Composable]:
    """Return statements that let no other role create objects; a temporary table would hide its namesake from the guards."""
    database = Identifier(connection.settings_dict["NAME"])
    return [
        SQL("REVOKE CREATE, TEMPORARY ON DATABASE {} FROM PUBLIC, {}").format(database, role),
        SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, role),
        SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC, {}").format(role),
        SQL("GRANT USAGE ON SCHEMA public TO {}").format(role),
    ]


def role_excess(connection: BaseDatabaseWrapper, role: str) -> list[str]:
    """Return rights of a role with which it could change stored data unseen; empty for a correct role."""
    with connection.cursor() as cursor:
        cursor.execute(EXCESS, {"role": role})
        return [text for (text,) in cursor.fetchall()]


def current_excess(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the excess rights of this process's role."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        role = cursor.fetchone()[0]
    return role_excess(connection, role)


def application_prepare(connection: BaseDatabaseWrapper) -> None:
    """Create the role of DATABASE_URL if it is missing, and grant its rights; the connection is the owner's.

    Raises CommandError that states what an administrator has to do.
    """
    role = str(settings.DATABASES["default"]["USER"])
    with transaction.atomic(using=connection.alias):
        if not application_exists(connection):
            _role_make(connection, role, str(settings.DATABASES["default"]["PASSWORD"]))
        rights_grant(connection, role)
    if excess := role_excess(connection, role):
        raise CommandError(
            f"the role {role} of DATABASE_URL {'; it '.join(excess)}: an administrator of the database has to take that "
            "from it (docs/operations.md, Roles of the database)"
        )


def application_exists(connection: BaseDatabaseWrapper) -> bool:
    """Return True if the server has the role of DATABASE_URL."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [str(settings.DATABASES["default"]["USER"])])
        return cursor.fetchone() is not None


def _role_make(connection: BaseDatabaseWrapper, role: str, password: str) -> None:
    with connection.cursor() as cursor:
        # hashed here: a plain password in CREATE ROLE could end up in the server's log
        sealed = connection.connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
        try:
            cursor.execute(SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(Identifier(role), Literal(sealed)))
        except ProgrammingError as error:
            if not isinstance(error.__cause__, InsufficientPrivilege):
                raise
            raise CommandError(
                f"the role {role} of DATABASE_URL does not exist, and the owner may not make it: an administrator of the "
                f'database runs CREATE ROLE "{role}" LOGIN PASSWORD ...'
            ) from error


@contextmanager
def as_owner(alias: str = "default") -> Iterator[BaseDatabaseWrapper]:
    """Switch this thread's connection to the role of DATABASE_OWNER_URL; without one, keep the current role."""
    connection = connections[alias]
    owner: dict[str, Any] | None = settings.DATABASE_OWNER
    before = connection.settings_dict
    if owner is None or before["USER"] == owner["USER"]:
        yield connection
        return
    connection.close()
    connection.settings_dict = {**before, **{name: owner[name] for name in ("USER", "PASSWORD", "HOST", "PORT", "OPTIONS")}}
    try:
        yield connection
    finally:
        connection.close()
        connection.settings_dict = before
