"""Images built without a daemon: buildah in chroots, on a base of Debian's packages with the name of the FROM line."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from billing.runtime.home import PROJECT

BASE = "docker.io/library/python:3.11-slim-bookworm"
PACKAGES = "python3-minimal,python3.11-venv,python3-pip,python-is-python3,ca-certificates"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


class Buildah:
    """Its store is a directory of its own, which vanishes with it."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self._where = ["--root", str(store / "root"), "--runroot", str(store / "run"), "--storage-driver", "vfs"]

    def argv(self, *arguments: str) -> list[str]:
        return ["buildah", *self._where, *arguments]

    def __call__(self, *arguments: str, timeout: float = 600) -> str:
        argv = self.argv(*arguments)
        done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"buildah {arguments[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout.strip()

    def base(self) -> None:
        """Python and pip of Debian, as the official image has them; root certificates of this machine."""
        archive = self.store / "base.tar"
        subprocess.run(
            [
                "mmdebstrap", "--mode=root", "--variant=apt", f"--include={PACKAGES}", "--quiet",
                "--aptopt=APT::Install-Recommends \"0\"", "--dpkgopt=path-exclude=/usr/share/doc/*",
                f'--customize-hook=cp /{CERTIFICATES} "$1/{CERTIFICATES}"',
                '--customize-hook=rm "$1"/usr/lib/python3*/EXTERNALLY-MANAGED', "bookworm", str(archive),
            ],
            capture_output=True, check=True, timeout=600,
        )  # fmt: skip
        container = self("from", "scratch")
        self("add", "--quiet", container, str(archive), "/")
        self("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self("commit", "--quiet", "--rm", container, BASE)
        archive.unlink()

    def build(self, dockerfile: str, tag: str, *options: str, context: str = ".") -> None:
        here = ("--isolation", "chroot", "--pull-never")
        self("bud", "--quiet", *here, "--file", dockerfile, "--tag", tag, *options, context)

    def container(self, image: str, **environment: str) -> str:
        """A container of an image, in which `run` starts what it is given."""
        name = self("from", "--pull-never", image)
        for variable, value in environment.items():
            self("config", "--env", f"{variable}={value}", name)
        return name

    def run_argv(self, container: str, *command: str) -> list[str]:
        return self.argv("run", "--isolation", "chroot", container, "--", *command)

    def run(self, container: str, *command: str) -> str:
        return self("run", "--isolation", "chroot", container, "--", *command, timeout=300)

    def image(self, name: str) -> dict[str, object]:
        """What the image says of itself, in the OCI format."""
        found: dict[str, object] = json.loads(self("inspect", "--type", "image", name))["OCIv1"]
        return found


@contextmanager
def buildah() -> Iterator[Buildah]:
    """It takes root, for chroots."""
    for name in ("buildah", "mmdebstrap"):
        if shutil.which(name) is None:
            pytest.fail(f"no {name} on this machine: apt-get install buildah mmdebstrap")
    assert os.geteuid() == 0, "images are built in chroots, which takes root"
    with tempfile.TemporaryDirectory(prefix="suanpan-images-") as store:
        found = Buildah(Path(store))
        try:
            yield found
        finally:
            found("rm", "--all")
            found("rmi", "--all", "--force")
