"""`make check` tries a tenth of the examples of `make test`, and the same ones each time."""

from hypothesis import settings

from tests.hypothesis_profile import A_TENTH, ALL, EXPLORES, examples


def test_a_check_tries_a_tenth_and_one_at_least() -> None:
    before = settings.get_current_profile_name()
    try:
        settings.load_profile(A_TENTH)
        assert (settings.default.max_examples, examples(60), examples(25), examples(4)) == (10, 6, 2, 1)
        assert settings.default.derandomize is not EXPLORES
        settings.load_profile(ALL)
        assert (settings.default.max_examples, examples(60), examples(25), examples(4)) == (100, 60, 25, 4)
    finally:
        settings.load_profile(before)
