"""What was written for a close that is prepared, and was never adopted, may be removed; nothing of any other close may.

That a close is prepared is said by a column of usage 0027, which is asked only when something is removed.
"""

from django.db import migrations

TABLES = {
    "rating_charge": ("charge_is_immutable", "a charge is corrected by another one"),
    "rating_efficiencyverdict": ("verdict_is_immutable", "the evidence of a charge stays"),
    "rating_poolcapacity": ("seen_at_close_never_changes", "what a close saw of its pools never changes"),
    "rating_idleshare": ("seen_at_close_never_changes", "what a close saw of its pools never changes"),
    "rating_pooltime": ("seen_at_close_never_changes", "what a close saw of its pools never changes"),
}
GUARD = """
CREATE FUNCTION rating_of_a_close_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM usage_closedwindow w WHERE w.ordinal = OLD.closing AND w.prepared) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of %: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END $$;
"""
UNGUARD = "DROP FUNCTION rating_of_a_close_guard();"


def guarded_by(function: str) -> str:
    """Every trigger anew, with another function."""
    return "".join(
        f"""
DROP TRIGGER {name} ON {table};
CREATE TRIGGER {name} BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}('{why}');
"""
        for table, (name, why) in TABLES.items()
    )


class Migration(migrations.Migration):
    dependencies = [("rating", "0013_pool_times")]
    operations = [
        migrations.RunSQL(
            GUARD + guarded_by("rating_of_a_close_guard"), guarded_by("suanpan_refuse") + UNGUARD
        )
    ]
