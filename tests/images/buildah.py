"""Images built without a daemon: buildah in chroots, on a base of Debian's packages where the Dockerfiles name another."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pip
import pytest

from billing.runtime.home import PROJECT

BASE = "docker.io/library/python:3.11-slim-bookworm"
PACKAGES = "python3,python-is-python3,ca-certificates"
PIP = """#!/bin/sh
exec python -m pip "$@"
"""
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
"""Where a Debian 12 says from where it gets its packages."""
OF_INDEXES = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy", "default-timeout")


class Buildah:
    """Its store is a directory of its own, which vanishes with it."""

    def __init__(self, store: Path, driver: str) -> None:
        self.store = store
        self.containers: dict[tuple[str, ...], str] = {}
        self._where = ["--root", str(store / "root"), "--runroot", str(store / "run"), "--storage-driver", driver]

    def argv(self, *arguments: str) -> list[str]:
        return ["buildah", *self._where, *arguments]

    def __call__(self, *arguments: str, timeout: float = 1800) -> str:
        argv = self.argv(*arguments)
        own = {**os.environ, "TMPDIR": str(self.store)}
        done = subprocess.run(argv, cwd=PROJECT, env=own, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"buildah {arguments[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout.strip()

    def base(self) -> None:
        """Python of Debian, pip and root certificates of this machine: Debian's pip takes twice as long for the platform."""
        container, command = self("from", "scratch"), self.store / "pip"
        command.write_text(PIP)
        command.chmod(0o755)
        done = subprocess.run(
            [
                "mmdebstrap", "--mode=root", "--variant=apt", f"--include={PACKAGES}", "--quiet",
                "--aptopt=APT::Install-Recommends \"0\"", "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=force-unsafe-io",
                f'--customize-hook=cp /{CERTIFICATES} "$1/{CERTIFICATES}"',
                '--customize-hook=rm "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
                f'--customize-hook=cp -a {Path(pip.__file__).parent} "$1"/usr/local/lib/python3*/dist-packages/',
                f'--customize-hook=cp {command} "$1/usr/local/bin/pip"', "bookworm", self("mount", container),
                *(str(file) for file in SOURCES if file.exists() and "bookworm" in file.read_text()),
            ],
            capture_output=True, text=True, check=False, timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, f"mmdebstrap: {done.stderr[-2000:]}"
        self("umount", container)
        self("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self("commit", "--quiet", "--rm", container, BASE)

    def build(self, *arguments: str) -> None:
        """As `docker build` takes them."""
        here = ["--isolation", "chroot", "--pull-never", f"--build-arg=BASE={BASE}"]
        lines = ["[global]\n", *(f"{name} = {value}\n" for name, value in pip_settings().items())]
        (self.store / "pip.conf").write_text("".join(lines))
        here.append(f"--volume={self.store}/pip.conf:/etc/pip.conf:ro")
        self("bud", "--quiet", *here, *arguments)

    def container(self, image: str, **environment: str) -> str:
        """A container of an image, in which `run` starts what it is given; the same one for the same environment."""
        given = [f"--env={variable}={value}" for variable, value in environment.items()]
        if (known := (image, *given)) not in self.containers:
            self.containers[known] = self("from", "--pull-never", image)
            self("config", *given, self.containers[known])
        return self.containers[known]

    def run_argv(self, container: str, *command: str) -> list[str]:
        return self.argv("run", "--isolation", "chroot", container, "--", *command)

    def run(self, container: str, *command: str) -> str:
        return self("run", "--isolation", "chroot", container, "--", *command, timeout=300)

    def image(self, name: str) -> dict[str, object]:
        """What the image says of itself, in the OCI format."""
        found: dict[str, object] = json.loads(self("inspect", "--type", "image", name))["OCIv1"]
        return found


def pip_settings() -> dict[str, str]:
    """Where pip of this machine looks for packages, by its files and environment, but for its disk, which no build sees."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(?m)^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", listed)
    words = {name: value.replace("\\n", " ").split() for name, value in found if name in OF_INDEXES}
    kept = {name: [word for word in given if not word.startswith(("/", "file:"))] for name, given in words.items()}
    return {name: " ".join(given) for name, given in kept.items() if given}


def driver_on(store: Path) -> str:
    """How layers are stored: over each other where the kernel lets us mount them so, else as copies, which is slower."""
    lower, upper, work, merged = (store / "try" / name for name in ("lower", "upper", "work", "merged"))
    for folder in (lower, upper, work, merged):
        folder.mkdir(parents=True)
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    argv = ["mount", "-t", "overlay", "overlay", "-o", layers, str(merged)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        return "vfs"
    subprocess.run(["umount", str(merged)], check=True)
    return "overlay"


@contextmanager
def buildah() -> Iterator[Buildah]:
    """It takes root, for chroots."""
    for name in ("buildah", "mmdebstrap"):
        if shutil.which(name) is None:
            pytest.fail(f"no {name} on this machine: apt-get install buildah mmdebstrap")
    assert os.geteuid() == 0, "images are built in chroots, which takes root"
    with tempfile.TemporaryDirectory(prefix="suanpan-images-") as store:
        found = Buildah(Path(store), driver_on(Path(store)))
        try:
            yield found
        finally:
            found("rm", "--all")
            found("rmi", "--all", "--force")
