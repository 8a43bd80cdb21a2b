"""A close may be prepared: made as one that was taken back, and adopted while it is the last."""

from django.db import migrations, models
from django.db.models import Q

FORWARD = """
CREATE OR REPLACE FUNCTION usage_closed_window_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.ordinal, NEW.start, NEW."end") = (OLD.ordinal, OLD.start, OLD."end") THEN
        IF NOT OLD.prepared AND NOT NEW.prepared AND OLD.withdrawn_at IS NULL AND NEW.withdrawn_at IS NOT NULL THEN
            RETURN NEW;
        END IF;
        IF OLD.prepared AND NEW.prepared AND NEW.spoiled AND NEW.withdrawn_at = OLD.withdrawn_at THEN
            RETURN NEW;
        END IF;
        IF OLD.prepared AND NOT OLD.spoiled AND NOT NEW.prepared AND NEW.withdrawn_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM usage_closedwindow w WHERE w.ordinal > OLD.ordinal) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'close % is taken back or adopted once or never, and stays as it was', OLD.ordinal
        USING ERRCODE = 'restrict_violation';
END $$;
"""
REVERSE = """
CREATE OR REPLACE FUNCTION usage_closed_window_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.withdrawn_at IS NULL AND NEW.withdrawn_at IS NOT NULL
       AND (NEW.ordinal, NEW.start, NEW."end") = (OLD.ordinal, OLD.start, OLD."end") THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'close % is taken back once or never, and stays as it was', OLD.ordinal
        USING ERRCODE = 'restrict_violation';
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("usage", "0026_one_index_by_allocation")]
    operations = [
        migrations.AddField("closedwindow", "prepared", models.BooleanField(default=False, db_default=False)),
        migrations.AddField("closedwindow", "spoiled", models.BooleanField(default=False, db_default=False)),
        migrations.AddConstraint(
            "closedwindow",
            models.CheckConstraint(
                condition=Q(prepared=False, spoiled=False) | Q(prepared=True, withdrawn_at__isnull=False),
                name="prepared_counts_as_none",
            ),
        ),
        migrations.RunSQL(FORWARD, REVERSE),
    ]
