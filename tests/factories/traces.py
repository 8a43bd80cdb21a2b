"""Production traces as files that are imported, and one month of them billed as a user does it.

They do not belong to this project. `SUANPAN_TRACES` names a folder that holds them and their converter.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Home


def trace_converted(kind: str, name: str, made: Path, *options: str) -> Path:
    """A trace as a file of `import_usage`."""
    folder = os.environ.get("SUANPAN_TRACES")
    if not folder:
        pytest.fail("the traces are absent: set SUANPAN_TRACES to the folder with them and convert.py")
    converter = [sys.executable, str(Path(folder) / "convert.py"), kind, str(Path(folder) / name), str(made), *options]
    subprocess.run(converter, check=True)
    return made


def trace_files(folder: Path) -> dict[str, Path]:
    """GPU pods and requests of a month, by what `import_usage` calls them."""
    names = {"gpu": "openb_pod_list_default.csv", "tokens": "azure_llm_2023_code.csv"}
    return {kind: trace_converted(kind, name, folder / f"{kind}.csv") for kind, name in names.items()}


def trace_billed(home: Home, files: dict[str, Path]) -> dict[str, Any]:
    """Set up, import, close, issue and prove; with TOKEN_STORE that takes the token records. What `invoice_issue` prints."""
    set_up = home.path / "set-up.yaml"
    set_up.write_text(json.dumps(_set_up(files)))
    home.run("apply", str(set_up))
    if os.environ.get("TOKEN_STORE"):
        home.run("token_store", "--by", "ops")
    for kind, path in files.items():
        home.run("import_usage", kind, str(path))
        again = json.loads(home.run("import_usage", kind, str(path), "--json").stdout)["files"][0]
        assert again["accepted"] == 0, "importing the same file again changes nothing"
    home.run("period_close", "2026-10")
    home.run("invoice_issue", "2026-10")
    home.run("period_verify", "2026-10")
    answer: dict[str, Any] = json.loads(home.run("invoice_issue", "2026-10", "--json").stdout)
    return answer


def _set_up(files: dict[str, Path]) -> dict[str, Any]:
    rows = {kind: list(csv.DictReader(path.read_text().splitlines())) for kind, path in files.items()}

    def values(kind: str, column: str) -> list[str]:
        return sorted({row[column] for row in rows[kind]})

    return {
        "billing": {"currency": "CNY", "zone": "Asia/Shanghai", "issuer": "TRACE", "review": "none"},
        "first_account": {"user": "ops", "name": "Ops", "email": "ops@example.org"},
        "teams": [{"code": "all", "name": "All", "cost_center": "CC-1"}],
        "ownership": [{"cluster": "trace", "namespace": name, "team": "all"} for name in values("gpu", "namespace")],
        "consumers": [{"source": "azure", "consumer": name, "team": "all"} for name in values("tokens", "consumer")],
        "price_versions": [
            {
                "name": "trace", "valid_from": "2026-10-01T00:00:00+08:00",
                "gpu": [{"accelerator": a, "price_per_gpu_hour": "1.0000"} for a in values("gpu", "accelerator")],
                "tokens": [{"model": "llama-3-8b", "input": "2.0000", "cache_read": "0.2000", "output": "8.0000"}],
            }
        ],
    }  # fmt: skip
