-- Corrections of shares are facts: a later one takes over, none is edited.
SELECT suanpan_append_only('usage_sharecorrection', 'a correction of a share is never changed');
