-- What a close decided of token lines is written with its charges and never changes.

SELECT suanpan_append_only('rating_tokenlayout', 'what a close decided of token lines never changes');
SELECT rating_written_by_a_close('rating_tokenlayout');
