"""Every scenario is about the same small company."""

from pathlib import Path

import pytest

from tests.scenarios.company import Company


@pytest.fixture
def company(tmp_path: Path, db: None) -> Company:
    return Company(tmp_path)
