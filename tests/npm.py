"""Packages of npm that tests need, installed once for each content of their files, outside of the tree."""

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest


def npm_installed(source: Path) -> Path:
    """A folder with the files of `source` and what their package-lock.json names; no script of a package runs."""
    files = sorted(file for file in source.iterdir() if file.is_file())
    digest = sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suanpan-tests"
    installed = cache / f"{source.name}-{digest}"
    if not installed.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            for file in files:
                shutil.copy(file, folder)
            argv = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                pytest.fail(f"npm could not install {source.name}: {done.stderr[-4000:]}")
            Path(folder).rename(installed)
            Path(folder).mkdir()  # for the one who cleans up
    return installed
