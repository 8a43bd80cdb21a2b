"""`make explore` tries all examples; `make test` two fifths and `make check` a tenth, the same ones each time."""

from hypothesis import settings

from tests.hypothesis_profile import A_TENTH, ALL, EXPLORES, examples


def test_each_run_tries_its_share_and_one_at_least() -> None:
    before = settings.get_current_profile_name()
    try:
        settings.load_profile(A_TENTH)
        assert (settings.default.max_examples, examples(60), examples(25), examples(4)) == (10, 6, 2, 1)
        assert settings.default.derandomize is not EXPLORES
        settings.load_profile(ALL)
        share = (60, 25, 4) if EXPLORES else (24, 10, 1)
        assert (settings.default.max_examples, examples(60), examples(25), examples(4)) == (100, *share)
    finally:
        settings.load_profile(before)
