-- What the identity provider pushes: every change is in the audit log, also one that somebody makes beside the services.
SELECT suanpan_audited('tenancy_provisionedaccount', 'user_id');
