"""Rows of usage carry the hash of what was reported, and each transaction that takes in new rows says how many.

The hash of what is stored already is taken now, of the rows as they are. `billing.usage.contents` says what it covers.
Programs of an older release cannot store allocations, capacity or samples any more: they do not know the hash. Reporters
keep what is not acknowledged.
"""

from django.db import migrations, models

from billing.tenancy.guards import appended_only, refused_where

HASHES = {
    "gpuallocation": {
        "allocation_id": "text", "identity": "bigint", "cluster": "text", "namespace": "text", "pod": "text",
        "pod_uid": "text", "resource": "text", "quantity": "int", "device_fraction": "numeric(13,12)",
        "accelerator": "text", "node": "text", "started_at": "timestamptz", "ended_at": "timestamptz",
        "observed_until": "timestamptz", "end_reason": "text", "workload_kind": "text", "workload_name": "text",
        "queue": "text", "site": "text", "facts": "jsonb", "from_file": "bool", "end_rule": "text",
        "end_estimated": "bool", "end_earliest": "timestamptz", "end_latest": "timestamptz",
        "end_reconstructed": "bool", "reconstructed_from": "text",
    },
    "nodecapacity": {
        "cluster": "text", "node": "text", "accelerator": "text", "resource": "text", "quantity": "int",
        "start": "timestamptz", "until": "timestamptz", "condition": "text",
    },
    "efficiencysample": {
        "cluster": "text", "pod_uid": "text", "workload": "text", "start": "timestamptz", '"end"': "timestamptz",
        "workload_kind": "text", "gpu_seconds": "numeric(24,6)", "mfu": "numeric(21,20)", "hfu": "numeric(21,20)",
        "dtype": "text", "method": "text", "coverage": "numeric(21,20)", "reason": "text", "epoch": "int",
    },
}  # fmt: skip


def hash_of(table: str, row: str) -> str:
    """The hash of what a row says."""
    columns = ", ".join(f"{row}.{name}::{kind}" for name, kind in HASHES[table].items())
    return f"sha256(record_send(ROW({columns})))"


FILL = "".join(
    f"""
ALTER TABLE usage_{table} ADD COLUMN content_sha256 bytea;
ALTER TABLE usage_{table} DISABLE TRIGGER USER;
UPDATE usage_{table} r SET content_sha256 = {hash_of(table, 'r')};
ALTER TABLE usage_{table} ENABLE TRIGGER USER;
ALTER TABLE usage_{table} ALTER COLUMN content_sha256 SET NOT NULL;
INSERT INTO usage_acceptedrows (kind, rows) SELECT '{table}', count(*) FROM usage_{table} HAVING count(*) > 0;
"""
    for table in HASHES
)
DROP = "".join(f"ALTER TABLE usage_{table} DROP COLUMN content_sha256;" for table in HASHES)


class Migration(migrations.Migration):
    dependencies = [("usage", "0047_stored_usage_stays")]
    operations = [
        migrations.CreateModel(
            name="AcceptedRows",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=32)),
                ("rows", models.IntegerField()),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("rows__gt", 0)), name="some_rows_were_accepted")],
            },
        ),
        migrations.RunSQL(
            FILL, DROP,
            state_operations=[
                migrations.AddField(
                    table, "content_sha256", models.BinaryField(max_length=32, help_text="of what was reported"),
                    preserve_default=False,
                )
                for table in HASHES
            ],
        ),
        *(
            refused_where(
                f"usage_{table}", "change_brings_its_hash", [*HASHES[table], "content_sha256"],
                f"NEW.content_sha256 <> {hash_of(table, 'NEW')}", "reported usage is never changed",
            )
            for table in ("gpuallocation", "nodecapacity")
        ),
        appended_only("usage_acceptedrows", "what was accepted is never uncounted"),
    ]  # fmt: skip
