-- Published prices, policies, commitments and carbon factors never change; proposals of them are in `billing/approvals`.

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

-- A name is of one draft that was not given up; of the proposed terms of a commitment one waits.
CREATE UNIQUE INDEX IF NOT EXISTS one_price_draft_of_a_name ON approvals_proposal (subject)
    WHERE kind = 'price_list' AND state <> 'withdrawn';
CREATE UNIQUE INDEX IF NOT EXISTS one_proposal_of_a_commitment_waits ON approvals_proposal (subject)
    WHERE kind = 'commitment' AND state IN ('draft', 'submitted');

SELECT suanpan_never_emptied(name::regclass, 'published prices and their history are never emptied')
  FROM unnest(ARRAY['rates_costsheet', 'rates_tokencostsheet', 'rates_priceversion', 'rates_gpuprice',
                    'rates_tokenprice', 'rates_efficiencypolicy']) AS name;

SELECT suanpan_audited(name::regclass)
  FROM unnest(ARRAY['rates_allocationpolicy', 'rates_carbonfactors', 'rates_commitment']) AS name;
SELECT suanpan_audited(name::regclass, 'name')
  FROM unnest(ARRAY['rates_costsheet', 'rates_tokencostsheet', 'rates_priceversion']) AS name;
