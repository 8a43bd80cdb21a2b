-- Who is who to the identity provider, second factors and mail addresses: whoever adds, changes or removes one.

SELECT suanpan_audited('socialaccount_socialaccount', silent => 'last_login,extra_data', secret => 'extra_data');
SELECT suanpan_audited('mfa_authenticator', silent => 'last_used_at', secret => 'data');
SELECT suanpan_audited('account_emailaddress');
