"""A function that other rooms use to have every column of a table refuse UPDATE but those that are named."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION suanpan_columns_stay(guarded regclass, changing text[], why text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    listed text;
    differs text;
BEGIN
    SELECT string_agg(format('%I', attname), ', ' ORDER BY attnum),
           string_agg(format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', attname), ' OR ' ORDER BY attnum)
      INTO STRICT listed, differs
      FROM pg_attribute
     WHERE attrelid = guarded AND attnum > 0 AND NOT attisdropped AND attname <> ALL (changing);
    EXECUTE format('DROP TRIGGER IF EXISTS columns_stay ON %s', guarded);
    EXECUTE format('CREATE TRIGGER columns_stay BEFORE UPDATE OF %s ON %s FOR EACH ROW WHEN (%s) '
                   'EXECUTE FUNCTION suanpan_refuse(%L)', listed, guarded, differs, why);
END $$;
"""
REVERSE = "DROP FUNCTION suanpan_columns_stay(regclass, text[], text);"


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0009_who_documents_are_from_and_for")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
