-- Charges and the evidence of a close never change; a change of closed time stays.

SELECT suanpan_append_only('rating_charge', 'a charge is corrected by another one');
SELECT suanpan_append_only('rating_efficiencyverdict', 'the evidence of a charge stays');
SELECT suanpan_append_only(name::regclass, 'what a close saw of its pools never changes')
  FROM unnest(ARRAY['rating_poolcapacity', 'rating_idleshare', 'rating_pooltime']) AS name;

-- A change of closed time is known from one epoch on, once it is approved.
CREATE OR REPLACE FUNCTION rating_change_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.epoch IS NOT NULL
       OR NOT EXISTS (SELECT 1 FROM approvals_proposal p WHERE p.id = NEW.proposal_id AND p.state = 'approved') THEN
        RAISE EXCEPTION 'change % stays, and is known once it is approved', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER decided_change_is_immutable BEFORE UPDATE OR DELETE ON rating_retroactivechange
    FOR EACH ROW EXECUTE FUNCTION rating_change_guard();
SELECT suanpan_columns_stay('rating_retroactivechange', '{last_sample,epoch,change_seq}', 'what a change proposes is written once');
SELECT suanpan_never_emptied('rating_retroactivechange', 'a change of closed time stays');

-- What a close writes comes while its period is being closed, and names a team that is there. Foreign keys would say the
-- second row by row: they take as long as the rating of a large month. Closes are never deleted.
CREATE OR REPLACE FUNCTION rating_close_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    other integer;
BEGIN
    SELECT close_seq INTO other FROM (
        SELECT close_seq FROM come
        EXCEPT SELECT c.close_seq FROM usage_close c JOIN invoices_billingperiod p ON p.close_seq = c.close_seq
                WHERE p.status = 'closing' AND c.withdrawn_at IS NULL) x LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION '% names close % which bills nothing now', TG_TABLE_NAME, other USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION rating_names_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    unknown text;
BEGIN
    SELECT team INTO unknown FROM (SELECT team FROM come EXCEPT SELECT code FROM tenancy_team) x LIMIT 1;
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION '% names team % which is not there', TG_TABLE_NAME, unknown USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION rating_written_by_a_close(evidence regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER a_close_writes_it AFTER INSERT ON %s REFERENCING NEW TABLE AS come '
                   'FOR EACH STATEMENT EXECUTE FUNCTION rating_close_guard()', evidence);
END $$;
SELECT rating_written_by_a_close(name::regclass)
  FROM unnest(ARRAY['rating_charge', 'rating_efficiencyverdict', 'rating_poolcapacity', 'rating_idleshare',
                    'rating_pooltime']) AS name;
CREATE OR REPLACE TRIGGER names_are_there AFTER INSERT ON rating_charge REFERENCING NEW TABLE AS come
    FOR EACH STATEMENT EXECUTE FUNCTION rating_names_guard();
CREATE OR REPLACE TRIGGER names_are_there AFTER INSERT ON rating_efficiencyverdict REFERENCING NEW TABLE AS come
    FOR EACH STATEMENT EXECUTE FUNCTION rating_names_guard();

CREATE OR REPLACE FUNCTION rating_team_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM rating_charge WHERE team = OLD.code) THEN
        RAISE EXCEPTION 'team % has charges and stays', OLD.code USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;
CREATE OR REPLACE TRIGGER team_of_charges_stays BEFORE DELETE ON tenancy_team
    FOR EACH ROW EXECUTE FUNCTION rating_team_guard();
CREATE OR REPLACE TRIGGER code_of_charges_stays BEFORE UPDATE OF code ON tenancy_team
    FOR EACH ROW WHEN (OLD.code <> NEW.code) EXECUTE FUNCTION rating_team_guard();
