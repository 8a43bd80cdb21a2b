-- Who is the same person: asked by the services and by the guards of the database.

-- What makes an actor a person: the name as it is spelt once, and every mail address that the account has or had, here and
-- at the identity provider. Behind a token are its owner and whoever made it, as the audit log says, for both saw its secret.
CREATE OR REPLACE FUNCTION suanpan_persons(actor text) RETURNS text[] LANGUAGE sql STABLE AS $$
    WITH names AS (
        SELECT actor AS name
        UNION SELECT u.username FROM tenancy_apitoken t JOIN auth_user u ON u.id = t.owner_id
               WHERE 'token:' || t.name = actor
        UNION SELECT e.actor FROM tenancy_auditentry e
               WHERE e.action = 'api_token_create' AND suanpan_persons.actor LIKE 'token:%'
                 AND e.subject = left(substr(suanpan_persons.actor, 7), 300)),
    accounts AS (
        SELECT u.id, u.email FROM auth_user u JOIN names ON suanpan_person(u.username) = suanpan_person(name)),
    mails AS (
        SELECT email FROM accounts
        UNION SELECT said.email FROM accounts JOIN socialaccount_socialaccount s ON s.user_id = accounts.id
               CROSS JOIN LATERAL (VALUES (s.extra_data ->> 'email'), (s.extra_data -> 'userinfo' ->> 'email'),
                                          (s.extra_data -> 'id_token' ->> 'email')) AS said (email)
        UNION SELECT had.email FROM accounts JOIN tenancy_auditentry e ON e.subject = 'auth_user ' || accounts.id
               CROSS JOIN LATERAL (VALUES (e.detail -> 'before' ->> 'email'), (e.detail -> 'after' ->> 'email'))
                                  AS had (email)
               WHERE e.subject LIKE 'auth\_user %' AND e.action IN ('row_insert', 'row_update'))
    SELECT array_remove(array_agg(nullif(key, '')), NULL) FROM (
        SELECT suanpan_person(name) AS key FROM names
        UNION SELECT 'mail:' || suanpan_person(email) FROM mails WHERE suanpan_person(email) <> '') keys
$$;
CREATE OR REPLACE FUNCTION suanpan_same_person(one text, other text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT suanpan_persons(one) && suanpan_persons(other)
$$;
