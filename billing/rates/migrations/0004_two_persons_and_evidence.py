"""No maker approves a draft; what was approved, its evidence and its history never change and are never emptied."""

from django.db import migrations

TABLES = (
    "rates_priceversion", "rates_gpuprice", "rates_tokenprice", "rates_costsheet", "rates_tokencostsheet",
    "rates_efficiencypolicy", "rates_pricedraft", "rates_pricedraftstep",
)  # fmt: skip

FORWARD = """
ALTER TABLE rates_pricedraft ADD CONSTRAINT price_draft_names_its_makers
    CHECK (created_by = ANY (makers) AND (submitted_by = '' OR submitted_by = ANY (makers)));
ALTER TABLE rates_pricedraft ADD CONSTRAINT no_maker_decides_on_a_price_draft
    CHECK (state NOT IN ('approved', 'rejected') OR decided_by <> ALL (makers));

CREATE FUNCTION rates_draft_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    list_changed boolean;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'draft' THEN
            RAISE EXCEPTION 'price draft % begins as a draft, not %', NEW.name, NEW.state USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'price draft % stays in the history', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.state IN ('approved', 'withdrawn') THEN
        RAISE EXCEPTION 'price draft % is % and never changes', OLD.name, OLD.state USING ERRCODE = 'restrict_violation';
    END IF;
    IF NOT (OLD.makers <@ NEW.makers) OR NEW.created_by <> OLD.created_by OR NEW.created_at <> OLD.created_at THEN
        RAISE EXCEPTION 'price draft % keeps its makers', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    list_changed := (NEW.name, NEW.currency, NEW.valid_from, NEW.content) IS DISTINCT FROM
                    (OLD.name, OLD.currency, OLD.valid_from, OLD.content);
    IF list_changed AND (NEW.state <> 'draft' OR NEW.revision <= OLD.revision) THEN
        RAISE EXCEPTION 'price draft % changes only as a draft, with a new revision', OLD.name
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.state IN ('approved', 'rejected') AND (OLD.state <> 'submitted' OR
       (NEW.submitted_by, NEW.submitted_at, NEW.submitted_sha256, NEW.makers) IS DISTINCT FROM
       (OLD.submitted_by, OLD.submitted_at, OLD.submitted_sha256, OLD.makers)) THEN
        RAISE EXCEPTION 'price draft % is decided as it was submitted', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER price_draft_keeps_its_history BEFORE INSERT OR UPDATE OR DELETE ON rates_pricedraft
    FOR EACH ROW EXECUTE FUNCTION rates_draft_guard();
CREATE TRIGGER price_draft_step_never_changes BEFORE UPDATE OR DELETE ON rates_pricedraftstep
    FOR EACH ROW EXECUTE FUNCTION suanpan_refuse('the history of price drafts only grows');

CREATE FUNCTION rates_evidence_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    used boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE cost_sheet_id = $1)', TG_ARGV[0]) INTO used USING OLD.id;
    IF used THEN
        RAISE EXCEPTION 'cost sheet % is the source of published prices and never changes', OLD.name
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE TRIGGER cost_sheet_is_evidence BEFORE UPDATE OR DELETE ON rates_costsheet
    FOR EACH ROW EXECUTE FUNCTION rates_evidence_guard('rates_gpuprice');
CREATE TRIGGER token_cost_sheet_is_evidence BEFORE UPDATE OR DELETE ON rates_tokencostsheet
    FOR EACH ROW EXECUTE FUNCTION rates_evidence_guard('rates_tokenprice');
""" + "".join(
    f"""CREATE TRIGGER never_emptied BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION suanpan_refuse('published prices and their history are never emptied');
"""
    for table in TABLES
)
REVERSE = (
    "".join(f"DROP TRIGGER never_emptied ON {table};\n" for table in TABLES)
    + """
DROP TRIGGER token_cost_sheet_is_evidence ON rates_tokencostsheet;
DROP TRIGGER cost_sheet_is_evidence ON rates_costsheet;
DROP TRIGGER price_draft_step_never_changes ON rates_pricedraftstep;
DROP TRIGGER price_draft_keeps_its_history ON rates_pricedraft;
DROP FUNCTION rates_evidence_guard();
DROP FUNCTION rates_draft_guard();
ALTER TABLE rates_pricedraft DROP CONSTRAINT no_maker_decides_on_a_price_draft;
ALTER TABLE rates_pricedraft DROP CONSTRAINT price_draft_names_its_makers;
"""
)


class Migration(migrations.Migration):
    dependencies = [("rates", "0003_price_drafts"), ("tenancy", "0003_audit_chain")]
    operations = [migrations.RunSQL(FORWARD, REVERSE)]
