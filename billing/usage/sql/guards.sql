-- Stored usage is refused for UPDATE, DELETE and TRUNCATE, but for what its services make of it. What may still happen:
--
-- - An allocation that is open is seen further on, or ends. An end that was estimated, or cut at a change of share, gives
--   way to a better one. A reconstructed end is dropped where the pod was seen after it. What was reconstructed takes the
--   facts of who watched, and those are the only facts that ever change.
-- - The revision of an allocation that the present epoch knows follows it; revisions of earlier epochs are cut in time that
--   no close has billed.
-- - Capacity is extended, a watermark goes forward.
-- - An allocation of unknown share is seen further on, ends, or is known.
-- - A quarantined record is counted again, dismissed or taken in.
-- Closes are guarded in `closes.sql`.
-- `tests/integration/test_stored_usage_stays.py` lists the columns that may change, and tries all others.

SELECT suanpan_append_only(name::regclass, 'reported usage is never changed')
  FROM unnest(ARRAY['usage_efficiencysample', 'usage_agentdiagnostic', 'usage_coveragenote', 'usage_clusterscan',
                    'usage_sharedeclaration']) AS name;
SELECT suanpan_append_only('usage_acceptedrows', 'what was accepted is never uncounted');
SELECT suanpan_append_only('usage_enginereading', 'what was counted is never changed');

-- Allocations. Whether a hash is the right one `period_report`, `period_close` and `period_verify` ask; here it is asked
-- whether a change brings one.
SELECT suanpan_rows_are_kept('usage_gpuallocation', 'reported usage is never changed');
SELECT suanpan_columns_stay('usage_gpuallocation',
    '{ended_at,observed_until,end_reason,end_rule,end_estimated,end_earliest,end_latest,end_reconstructed}'::text[] || '{identity,pod,node,workload_kind,workload_name,queue,site,facts,reconstructed_from}'::text[] || '{content_sha256}',
    'reported usage is never changed');
SELECT suanpan_refused_where('usage_gpuallocation', 'times_follow_reports', changing,
    suanpan_differs(changing) || $$ AND NOT CASE
        WHEN OLD.ended_at IS NULL AND NEW.ended_at IS NULL THEN NEW.observed_until >= OLD.observed_until
        WHEN OLD.ended_at IS NULL THEN NEW.observed_until = NEW.ended_at
        WHEN NEW.ended_at IS NULL THEN OLD.end_reconstructed AND NEW.observed_until > OLD.ended_at
        ELSE NEW.observed_until = NEW.ended_at AND (
            OLD.end_estimated
            OR NEW.ended_at <= OLD.ended_at AND 'share of a claim changed' IN (OLD.end_rule, NEW.end_rule)
            OR OLD.end_reconstructed AND (NEW.ended_at, NEW.end_reason) = (OLD.ended_at, OLD.end_reason))
    END$$, 'reported usage is never changed')
  FROM (VALUES ('{ended_at,observed_until,end_reason,end_rule,end_estimated,end_earliest,end_latest,end_reconstructed}'::text[])) AS v (changing);
SELECT suanpan_refused_where('usage_gpuallocation', 'facts_follow_who_watched', changing,
    suanpan_differs(changing) || $$ AND NOT (OLD.reconstructed_from <> '' AND NEW.reconstructed_from = '')$$,
    'reported usage is never changed')
  FROM (VALUES ('{identity,pod,node,workload_kind,workload_name,queue,site,facts,reconstructed_from}'::text[])) AS v (changing);
SELECT suanpan_refused_where('usage_gpuallocation', 'change_brings_its_hash', changing || '{content_sha256}',
    '(' || suanpan_differs(changing) || ') <> (NEW.content_sha256 <> OLD.content_sha256)', 'reported usage is never changed')
  FROM (VALUES ('{ended_at,observed_until,end_reason,end_rule,end_estimated,end_earliest,end_latest,end_reconstructed}'::text[] || '{identity,pod,node,workload_kind,workload_name,queue,site,facts,reconstructed_from}'::text[])) AS v (changing);

SELECT suanpan_columns_stay('usage_allocationrevision', '{until}', 'reported usage is never changed');
SELECT suanpan_never_emptied('usage_allocationrevision', 'reported usage is never changed');

CREATE OR REPLACE FUNCTION usage_interruption_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.epoch < (SELECT coalesce(max(close_seq), 0) FROM usage_close) THEN
        RAISE EXCEPTION '% of %: what a close knew of an end stays', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER end_of_a_close_stays BEFORE UPDATE OF ended_at, end_reason ON usage_allocationinterruption
    FOR EACH ROW EXECUTE FUNCTION usage_interruption_guard();
SELECT suanpan_columns_stay('usage_allocationinterruption', '{ended_at,end_reason}', 'reported usage is never changed');
SELECT suanpan_rows_are_kept('usage_allocationinterruption', 'reported usage is never changed');

SELECT suanpan_columns_stay('usage_nodecapacity', '{until,content_sha256}', 'reported usage is never changed');
SELECT suanpan_refused_where('usage_nodecapacity', 'capacity_is_extended', '{until}', 'NEW.until < OLD.until',
    'reported usage is never changed');
SELECT suanpan_refused_where('usage_nodecapacity', 'change_brings_its_hash', '{until,content_sha256}',
    '(NEW.until IS DISTINCT FROM OLD.until) <> (NEW.content_sha256 <> OLD.content_sha256)', 'reported usage is never changed');
SELECT suanpan_rows_are_kept('usage_nodecapacity', 'reported usage is never changed');

SELECT suanpan_columns_stay('usage_agentwatermark', '{watermark,watched_since,reported_at}', 'a watermark goes forward');
SELECT suanpan_refused_where('usage_agentwatermark', 'watermark_goes_forward', '{watermark}', 'NEW.watermark < OLD.watermark',
    'a watermark goes forward');
SELECT suanpan_rows_are_kept('usage_agentwatermark', 'a watermark goes forward');

SELECT suanpan_columns_stay('usage_tokenfile', '{until}', 'how far files reach goes forward');
SELECT suanpan_refused_where('usage_tokenfile', 'until_goes_forward', '{until}', 'NEW.until < OLD.until',
    'how far files reach goes forward');
SELECT suanpan_rows_are_kept('usage_tokenfile', 'how far files reach goes forward');

SELECT suanpan_columns_stay('usage_unknownshare', '{accelerator,why,until,ended,record,settled}',
    'reported usage is never changed');
SELECT suanpan_refused_where('usage_unknownshare', 'known_once', '{accelerator,why,until,ended,record,settled}',
    $$OLD.settled = 'known' OR OLD.ended AND $$ || suanpan_differs('{accelerator,why,until,ended,record}')
    || ' OR NEW.until < OLD.until AND NOT NEW.ended', 'reported usage is never changed');
SELECT suanpan_rows_are_kept('usage_unknownshare', 'reported usage is never changed');

SELECT suanpan_columns_stay('usage_quarantinedrecord',
    '{times_received,status,resolved_by,resolution,resolved_at,corrected}', 'a record in quarantine stays as it came');
SELECT suanpan_refused_where('usage_quarantinedrecord', 'decided_once', changing,
    suanpan_differs(changing) || $$ AND NOT (
        NEW.status = 'dismissed' AND OLD.status <> 'replayed' AND NEW.corrected = OLD.corrected
        OR NEW.status = 'replayed' AND OLD.status = 'open')$$, 'a record is taken in once or never')
  FROM (VALUES ('{status,resolved_by,resolution,resolved_at,corrected}'::text[])) AS v (changing);
SELECT suanpan_refused_where('usage_quarantinedrecord', 'received_again', '{times_received}',
    'NEW.times_received < OLD.times_received', 'a record in quarantine stays as it came');
SELECT suanpan_rows_are_kept('usage_quarantinedrecord', 'a record in quarantine stays as it came');
