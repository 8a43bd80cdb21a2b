"""Layout of a home: the paths of its files."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from billing.runtime.home import make_home


@dataclass(frozen=True)
class Layout:
    """Paths of one home. `run/` is the current state and may be deleted while nothing runs; `postgres/` is the data."""

    home: Path

    @property
    def data(self) -> Path:
        return self.home / "postgres"

    @property
    def ports(self) -> Path:
        return self.home / "ports.json"

    @property
    def services(self) -> Path:
        return self.home / "run" / "services.json"

    @property
    def wanted(self) -> Path:
        return self.home / "run" / "wanted.json"

    def lock(self, name: str) -> Path:
        """Return the path of `users`, `start`, `keeper`, or of a server's own lock."""
        return self.home / "run" / f"{name}.lock"

    def log(self, name: str) -> Path:
        return self.home / "log" / f"{name}.log"

    def make(self) -> None:
        """Create the directories of the starter; the caller of initdb creates the data directory."""
        make_home(self.home)
        for name in ("run", "log"):
            (self.home / name).mkdir(mode=0o700, exist_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Replace a file in one step, readable by its owner only; readers see the old or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    draft.replace(path)


def read_json(path: Path) -> Any:
    """Return the content of a file, or None if it is missing or damaged; it is rebuilt then."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None
