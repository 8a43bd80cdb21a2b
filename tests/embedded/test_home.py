"""A home has one secret of a name, whoever asks first and however many ask at once."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from billing.runtime.home import PROJECT, HomeError, home_dir, secret


def test_the_home_is_in_the_project_unless_the_environment_says_otherwise(monkeypatch):
    monkeypatch.delenv("SUANPAN_HOME", raising=False)
    assert home_dir() == PROJECT / ".suanpan"
    monkeypatch.setenv("SUANPAN_HOME", "/srv/suanpan")
    assert home_dir() == Path("/srv/suanpan")


def test_all_who_ask_at_once_get_the_same_secret(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(lambda _: secret("signing-key", tmp_path / "home"), range(64)))
    assert len(answers) == 1
    assert len(answers.pop()) == 64
    assert [path.name for path in (tmp_path / "home" / "secrets").iterdir()] == ["signing-key"]


def test_a_secret_is_for_its_owner_only(tmp_path):
    secret("signing-key", tmp_path)
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "secrets" / "signing-key").stat().st_mode) == 0o600


def test_homes_and_names_have_secrets_of_their_own(tmp_path):
    assert len({secret("a", tmp_path / "1"), secret("b", tmp_path / "1"), secret("a", tmp_path / "2")}) == 3


@pytest.mark.parametrize("name", ["", "../escape", "With Space", ".hidden"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="not a name for a secret"):
        secret(name, tmp_path)


def test_a_home_that_cannot_be_used_is_explained_without_a_traceback(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match=r"Not a directory: .*file.*SUANPAN_HOME"):
        secret("signing-key", tmp_path / "file" / "home")
