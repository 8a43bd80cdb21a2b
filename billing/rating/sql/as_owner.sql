-- What happens with the rights of the owner, because the application's role has none to do it by itself: links of the audit
-- chain, roll-ups, and a lock that needs more than reading. These files come after those that define the functions.

ALTER FUNCTION tenancy_audit_chain() SECURITY DEFINER SET search_path = public, pg_temp;
ALTER FUNCTION token_fold() SECURITY DEFINER SET search_path = public, pg_temp;

-- Nobody changes these tables until the transaction ends.
CREATE OR REPLACE FUNCTION suanpan_lock_shared(tables text[]) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    EXECUTE (SELECT format('LOCK TABLE %s IN SHARE MODE', string_agg(format('%I', name), ', ' ORDER BY place))
               FROM unnest(tables) WITH ORDINALITY AS given (name, place));
END $$;
