-- Who is the same person: asked by the services and by the guards of the database.

-- What makes an actor a person: the name as it is spelt once, and the mail address of the account. Behind a token stands
-- its owner; behind one of nobody whoever made it, as the audit log says, for that person saw its secret.
CREATE OR REPLACE FUNCTION suanpan_persons(actor text) RETURNS text[] LANGUAGE sql STABLE AS $$
    WITH names AS (
        SELECT actor AS name
        UNION SELECT u.username FROM tenancy_apitoken t JOIN auth_user u ON u.id = t.owner_id
               WHERE 'token:' || t.name = actor
        UNION SELECT e.actor FROM tenancy_auditentry e
               WHERE e.action = 'api_token_create' AND suanpan_persons.actor LIKE 'token:%'
                 AND e.subject = left(substr(suanpan_persons.actor, 7), 300)
                 AND coalesce(e.detail ->> 'owner', '') = '')
    SELECT array_remove(array_agg(nullif(key, '')), NULL) FROM (
        SELECT suanpan_person(name) AS key FROM names
        UNION SELECT 'mail:' || suanpan_person(u.email) FROM auth_user u JOIN names
               ON suanpan_person(u.username) = suanpan_person(name) WHERE suanpan_person(u.email) <> '') keys
$$;
CREATE OR REPLACE FUNCTION suanpan_same_person(one text, other text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT suanpan_persons(one) && suanpan_persons(other)
$$;
