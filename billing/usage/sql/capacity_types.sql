-- Rules of capacity types are facts: a later rule takes over, none is edited.
SELECT suanpan_append_only('usage_capacitytyperule', 'a rule of a capacity type is never changed');
