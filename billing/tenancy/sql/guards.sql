-- What all packages use to have the database refuse changes of what is stored, whoever asks for them.
-- PostgreSQL alters the type of no column that a trigger names: a migration that does drops the trigger before,
-- and applies these files again after it.

CREATE OR REPLACE FUNCTION suanpan_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of %: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END $$;

-- Refuse TRUNCATE.
CREATE OR REPLACE FUNCTION suanpan_never_emptied(guarded regclass, why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER never_emptied BEFORE TRUNCATE ON %s FOR EACH STATEMENT '
                   'EXECUTE FUNCTION suanpan_refuse(%L)', guarded, why);
END $$;

-- Refuse DELETE of a row, and TRUNCATE.
CREATE OR REPLACE FUNCTION suanpan_rows_are_kept(guarded regclass, why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER rows_are_kept BEFORE DELETE ON %s FOR EACH ROW '
                   'EXECUTE FUNCTION suanpan_refuse(%L)', guarded, why);
    PERFORM suanpan_never_emptied(guarded, why);
END $$;

-- Refuse UPDATE and DELETE of a row, and TRUNCATE.
CREATE OR REPLACE FUNCTION suanpan_append_only(guarded regclass, why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER rows_stay BEFORE UPDATE OR DELETE ON %s FOR EACH ROW '
                   'EXECUTE FUNCTION suanpan_refuse(%L)', guarded, why);
    PERFORM suanpan_never_emptied(guarded, why);
END $$;

-- Refuse UPDATE of every column but those in `changing`; a column that is added later is refused too.
CREATE OR REPLACE FUNCTION suanpan_columns_stay(guarded regclass, changing text[], why text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    listed text;
    differs text;
BEGIN
    SELECT string_agg(format('%I', attname), ', ' ORDER BY attnum),
           string_agg(format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', attname), ' OR ' ORDER BY attnum)
      INTO STRICT listed, differs
      FROM pg_attribute
     WHERE attrelid = guarded AND attnum > 0 AND NOT attisdropped AND attname <> ALL (changing);
    EXECUTE format('CREATE OR REPLACE TRIGGER columns_stay BEFORE UPDATE OF %s ON %s FOR EACH ROW WHEN (%s) '
                   'EXECUTE FUNCTION suanpan_refuse(%L)', listed, guarded, differs, why);
END $$;

-- Refuse UPDATE of `changing` where `condition`, in terms of OLD and NEW, is not false.
CREATE OR REPLACE FUNCTION suanpan_refused_where(guarded regclass, named text, changing text[], condition text, why text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER %I BEFORE UPDATE OF %s ON %s FOR EACH ROW WHEN ((%s) IS NOT FALSE) '
                   'EXECUTE FUNCTION suanpan_refuse(%L)',
                   named, array_to_string(changing, ', '), guarded, condition, why);
END $$;

-- An SQL condition: any of these columns differs.
CREATE OR REPLACE FUNCTION suanpan_differs(columns text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT format('((%s) IS DISTINCT FROM (%s))', string_agg('NEW.' || name, ', '), string_agg('OLD.' || name, ', '))
      FROM unnest(columns) AS name
$$;

-- The one spelling of a name.
CREATE OR REPLACE FUNCTION suanpan_person(name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT lower(btrim(regexp_replace(normalize(name, NFKC), '\s+', ' ', 'g')))
$$;

-- History names accounts, so a name means one account for ever.
SELECT suanpan_refused_where('auth_user', 'an_account_keeps_its_name', '{username}',
                             'OLD.username IS DISTINCT FROM NEW.username', 'an account keeps its name: history refers to it');
