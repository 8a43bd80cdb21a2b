-- Charges and the evidence of a close never change; a change of closed time is proposed once and decided once.

SELECT suanpan_append_only('rating_charge', 'a charge is corrected by another one');
SELECT suanpan_append_only('rating_efficiencyverdict', 'the evidence of a charge stays');
SELECT suanpan_append_only(name::regclass, 'what a close saw of its pools never changes')
  FROM unnest(ARRAY['rating_poolcapacity', 'rating_idleshare', 'rating_pooltime']) AS name;

CREATE OR REPLACE FUNCTION rating_change_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.status <> 'proposed' THEN
        RAISE EXCEPTION 'change % is % and stays', OLD.name, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER decided_change_is_immutable BEFORE UPDATE OR DELETE ON rating_retroactivechange
    FOR EACH ROW EXECUTE FUNCTION rating_change_guard();
SELECT suanpan_columns_stay('rating_retroactivechange',
    '{status,last_sample,acknowledged,approvers,decided_at,decision,epoch,ordinal}', 'what a change proposes is written once');
SELECT suanpan_never_emptied('rating_retroactivechange', 'a change of closed time stays');
