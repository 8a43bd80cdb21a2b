-- Rules of service tiers are facts: a later rule takes over, none is edited.
SELECT suanpan_append_only('usage_servicetierrule', 'a rule of a service tier is never changed');
