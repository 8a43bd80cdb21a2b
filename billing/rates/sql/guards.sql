-- Published prices, policies, commitments and carbon factors never change; drafts of them take two persons.

-- Arguments: what it is, the column of its name, what is said of it. Its end may be set once, or moved to an earlier day.
CREATE OR REPLACE FUNCTION rates_dated_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.valid_until < COALESCE(OLD.valid_until, 'infinity')
       AND to_jsonb(NEW) - 'valid_until' = to_jsonb(OLD) - 'valid_until' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% % %', TG_ARGV[0], to_jsonb(OLD) ->> TG_ARGV[1], TG_ARGV[2] USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER allocation_policies_never_change BEFORE UPDATE OR DELETE ON rates_allocationpolicy
    FOR EACH ROW EXECUTE FUNCTION rates_dated_guard('allocation policy', 'name', 'is published and never changes');
CREATE OR REPLACE TRIGGER carbon_factors_never_change BEFORE UPDATE OR DELETE ON rates_carbonfactors
    FOR EACH ROW EXECUTE FUNCTION rates_dated_guard('carbon factors of', 'cluster', 'are stored and never change');
CREATE OR REPLACE TRIGGER commitments_never_change BEFORE UPDATE OR DELETE ON rates_commitment
    FOR EACH ROW EXECUTE FUNCTION rates_dated_guard('commitment', 'name', 'is stored and never changes');
CREATE OR REPLACE TRIGGER efficiency_policy_is_immutable BEFORE UPDATE OR DELETE ON rates_efficiencypolicy
    FOR EACH ROW EXECUTE FUNCTION rates_dated_guard('efficiency policy', 'name', 'is published and never changes');
SELECT suanpan_never_emptied('rates_allocationpolicy', 'allocation policies are never emptied');
SELECT suanpan_never_emptied('rates_carbonfactors', 'carbon factors are never emptied');
SELECT suanpan_never_emptied('rates_commitment', 'commitments are never emptied');

-- A price version may be filled until it is sealed.
CREATE OR REPLACE FUNCTION rates_version_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE TRIGGER price_version_is_immutable BEFORE UPDATE OR DELETE ON rates_priceversion
    FOR EACH ROW EXECUTE FUNCTION rates_version_guard();

CREATE OR REPLACE FUNCTION rates_price_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    row_version bigint := CASE TG_OP WHEN 'DELETE' THEN OLD.version_id ELSE NEW.version_id END;
BEGIN
    IF EXISTS (SELECT 1 FROM rates_priceversion WHERE id = row_version AND sealed)
       OR (TG_OP = 'UPDATE' AND EXISTS (SELECT 1 FROM rates_priceversion WHERE id = OLD.version_id AND sealed)) THEN
        RAISE EXCEPTION 'a published price never changes' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE OR REPLACE TRIGGER gpu_price_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON rates_gpuprice
    FOR EACH ROW EXECUTE FUNCTION rates_price_guard();
CREATE OR REPLACE TRIGGER token_price_is_immutable BEFORE INSERT OR UPDATE OR DELETE ON rates_tokenprice
    FOR EACH ROW EXECUTE FUNCTION rates_price_guard();

-- The end of a version or policy is the start of the next: no time is left without a price.
CREATE OR REPLACE FUNCTION rates_end_is_a_beginning() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ending timestamptz;
    followed boolean;
BEGIN
    EXECUTE format('SELECT valid_until FROM %I WHERE id = $1', TG_TABLE_NAME) INTO ending USING NEW.id;
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE valid_from = $1)', TG_TABLE_NAME) INTO followed USING ending;
    IF ending IS NOT NULL AND NOT followed THEN
        RAISE EXCEPTION '% ends only where another one begins', NEW.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS price_version_ends_where_another_begins ON rates_priceversion;
CREATE CONSTRAINT TRIGGER price_version_ends_where_another_begins AFTER INSERT OR UPDATE ON rates_priceversion
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rates_end_is_a_beginning();
DROP TRIGGER IF EXISTS efficiency_policy_ends_where_another_begins ON rates_efficiencypolicy;
CREATE CONSTRAINT TRIGGER efficiency_policy_ends_where_another_begins AFTER INSERT OR UPDATE ON rates_efficiencypolicy
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rates_end_is_a_beginning();

CREATE OR REPLACE FUNCTION rates_evidence_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE TRIGGER cost_sheet_is_evidence BEFORE UPDATE OR DELETE ON rates_costsheet
    FOR EACH ROW EXECUTE FUNCTION rates_evidence_guard('rates_gpuprice');
CREATE OR REPLACE TRIGGER token_cost_sheet_is_evidence BEFORE UPDATE OR DELETE ON rates_tokencostsheet
    FOR EACH ROW EXECUTE FUNCTION rates_evidence_guard('rates_tokenprice');

-- Who made a draft never decides on it.
ALTER TABLE rates_pricedraft DROP CONSTRAINT IF EXISTS price_draft_names_its_makers;
ALTER TABLE rates_pricedraft ADD CONSTRAINT price_draft_names_its_makers
    CHECK (created_by = ANY (makers) AND (submitted_by = '' OR submitted_by = ANY (makers)));
ALTER TABLE rates_pricedraft DROP CONSTRAINT IF EXISTS no_maker_decides_on_a_price_draft;
ALTER TABLE rates_pricedraft ADD CONSTRAINT no_maker_decides_on_a_price_draft
    CHECK (state NOT IN ('approved', 'rejected') OR decided_by <> ALL (makers));
CREATE OR REPLACE FUNCTION rates_draft_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE TRIGGER price_draft_keeps_its_history BEFORE INSERT OR UPDATE OR DELETE ON rates_pricedraft
    FOR EACH ROW EXECUTE FUNCTION rates_draft_guard();
SELECT suanpan_append_only('rates_pricedraftstep', 'the history of price drafts only grows');

CREATE OR REPLACE FUNCTION rates_commitment_draft_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state = 'proposed' THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'terms of a commitment are proposed before they are decided' USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.state = 'proposed'
       AND to_jsonb(NEW) - '{state,decided_by,decided_at,decision}'::text[]
           = to_jsonb(OLD) - '{state,decided_by,decided_at,decision}'::text[] THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'terms of a commitment are proposed and decided once, and stay' USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER commitment_drafts_stay BEFORE INSERT OR UPDATE OR DELETE ON rates_commitmentdraft
    FOR EACH ROW EXECUTE FUNCTION rates_commitment_draft_guard();
SELECT suanpan_never_emptied('rates_commitmentdraft', 'who proposed and approved commitments is never forgotten');

SELECT suanpan_never_emptied(name::regclass, 'published prices and their history are never emptied')
  FROM unnest(ARRAY['rates_costsheet', 'rates_tokencostsheet', 'rates_priceversion', 'rates_gpuprice',
                    'rates_tokenprice', 'rates_efficiencypolicy', 'rates_pricedraft',
                    'rates_pricedraftstep']) AS name;

SELECT suanpan_audited(name::regclass)
  FROM unnest(ARRAY['rates_allocationpolicy', 'rates_carbonfactors', 'rates_commitment', 'rates_commitmentdraft']) AS name;
SELECT suanpan_audited(name::regclass, 'name')
  FROM unnest(ARRAY['rates_costsheet', 'rates_tokencostsheet', 'rates_priceversion']) AS name;
