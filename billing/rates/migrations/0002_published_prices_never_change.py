"""A sealed price version is a fact: the database lets only its end come earlier, when another version follows it."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION rates_version_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT OLD.sealed THEN
        RETURN COALESCE(NEW, OLD);
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.valid_until < COALESCE(OLD.valid_until, 'infinity')
       AND to_jsonb(NEW) - 'valid_until' = to_jsonb(OLD) - 'valid_until' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'price version % is published and never changes', OLD.name USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER price_version_is_immutable BEFORE UPDATE OR DELETE ON rates_priceversion
    FOR EACH ROW EXECUTE FUNCTION rates_version_guard();

CREATE FUNCTION rates_price_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    row_version bigint := CASE TG_OP WHEN 'DELETE' THEN OLD.version_id ELSE NEW.version_id END;
BEGIN
    IF EXISTS (SELECT 1 FROM rates_priceversion WHERE id = row_version AND sealed)
       OR (TG_OP = 'UPDATE' AND EXISTS (SELECT 1 FROM rates_priceversion WHERE id = OLD.version_id AND sealed)) THEN
        RAISE EXCEPTION 'a published price never changes' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE TRIGGER gpu_price_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON rates_gpuprice
    FOR EACH ROW EXECUTE FUNCTION rates_price_guard();
CREATE TRIGGER token_price_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON rates_tokenprice
    FOR EACH ROW EXECUTE FUNCTION rates_price_guard();

CREATE FUNCTION rates_policy_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.valid_until < COALESCE(OLD.valid_until, 'infinity')
       AND to_jsonb(NEW) - 'valid_until' = to_jsonb(OLD) - 'valid_until' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'efficiency policy % is published and never changes', OLD.name
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER efficiency_policy_is_immutable BEFORE UPDATE OR DELETE ON rates_efficiencypolicy
    FOR EACH ROW EXECUTE FUNCTION rates_policy_guard();
"""
REVERSE = """
DROP TRIGGER efficiency_policy_is_immutable ON rates_efficiencypolicy;
DROP TRIGGER token_price_is_immutable ON rates_tokenprice;
DROP TRIGGER gpu_price_is_immutable ON rates_gpuprice;
DROP TRIGGER price_version_is_immutable ON rates_priceversion;
DROP FUNCTION rates_policy_guard();
DROP FUNCTION rates_price_guard();
DROP FUNCTION rates_version_guard();
"""


class Migration(migrations.Migration):
    dependencies = [("rates", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
