"""Storage of sealed months: a folder, or a bucket of an S3-compatible store. No Django here.

/archive, file:///archive
s3://bucket/prefix?endpoint=https://host&region=x     credentials from the environment, as boto3 finds them
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from billing.runtime.atomic_file import atomic_file
from metering.messages import UserError

SECONDS: Final = 60
CHUNK: Final = 1 << 20


class ArchiveError(ValueError):
    """Error of an address that names no archive, or of an archived file that cannot be written or read."""


class UnreadableArchiveError(UserError, ArchiveError):
    """Error of a read of records that left the ledger, if their archive is missing or differs from what was sealed."""

    code = "archive_unreadable"


class Archive(Protocol):
    """Files under names with slashes; no file is ever replaced or deleted."""

    address: str

    def put(self, name: str, file: Path) -> None:
        """Store a copy of a file under a new name.  Raises ArchiveError."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file.  Raises ArchiveError, also if the file is missing."""

    def local(self, name: str, scratch: Path) -> Path:
        """Return a local path of a file: the file itself if it is on this machine's disk, else a copy in `scratch`."""


class Folder:
    """Folder of this machine, or one shared by several machines."""

    def __init__(self, path: Path) -> None:
        self.path, self.address = path, path.absolute().as_uri()

    def put(self, name: str, file: Path) -> None:
        path = self.path / name
        if path.exists():
            raise ArchiveError(f"{path}: already exists")
        with _as_archive_error(str(path)), atomic_file(path) as draft:
            copyfile(file, draft)

    def chunks(self, name: str) -> Iterator[bytes]:
        with _as_archive_error(str(self.path / name)), (self.path / name).open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def local(self, name: str, scratch: Path) -> Path:
        return self.path / name


class Bucket:
    """Bucket of an S3-compatible store, below a prefix."""

    def __init__(self, address: str, bucket: str, prefix: str, options: dict[str, str]) -> None:
        import boto3
        from botocore.config import Config

        self.address, self.bucket, self.prefix = address, bucket, prefix
        self._client: Any = boto3.client(
            "s3", endpoint_url=options.get("endpoint"), region_name=options.get("region"),
            config=Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"mode": "standard"}),
        )  # fmt: skip

    def put(self, name: str, file: Path) -> None:
        with _as_archive_error(f"s3://{self.bucket}/{self.prefix}{name}"):
            self._client.upload_file(str(file), self.bucket, self.prefix + name, ExtraArgs={"ChecksumAlgorithm": "SHA256"})

    def chunks(self, name: str) -> Iterator[bytes]:
        with _as_archive_error(f"s3://{self.bucket}/{self.prefix}{name}"):
            body = self._client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"]
            yield from body.iter_chunks(CHUNK)

    def local(self, name: str, scratch: Path) -> Path:
        path = scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for chunk in self.chunks(name):
                file.write(chunk)
        return path


@contextmanager
def _as_archive_error(where: str) -> Iterator[None]:
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except OSError as error:
        raise ArchiveError(f"{where}: {error.strerror or error}") from error
    except (BotoCoreError, ClientError, Boto3Error) as error:
        raise ArchiveError(f"{where}: {error}") from error


def archive_at(address: str) -> Archive:
    """Return the archive at an address or a path.  Raises ArchiveError.

    >>> archive_at("/archive").address, archive_at("file:///archive").address
    ('file:///archive', 'file:///archive')
    """
    if "://" not in address:
        return Folder(Path(os.path.expanduser(address)))
    parts = urlsplit(address)
    if parts.scheme == "file" and not parts.netloc and parts.path not in ("", "/"):
        return Folder(Path(unquote(parts.path)))
    # the audit log keeps the address: it must not contain credentials
    if parts.scheme == "s3" and parts.netloc and "@" not in parts.netloc:
        return _bucket(address, parts)
    raise ArchiveError("write a path, file:///path or s3://bucket/prefix; credentials are no part of an address")


def _bucket(address: str, parts: SplitResult) -> Bucket:
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - {"endpoint", "region"}:
        raise ArchiveError(f"s3 knows endpoint and region, not {', '.join(sorted(unknown))}")
    if "@" in options.get("endpoint", ""):
        raise ArchiveError("credentials are no part of an address: boto3 finds them in the environment")
    prefix = unquote(parts.path).strip("/")
    return Bucket(address, parts.netloc, f"{prefix}/" if prefix else "", options)


def digest_and_size(chunks: Iterator[bytes]) -> tuple[str, int]:
    """Return the hexadecimal SHA-256 and the size in bytes of an object."""
    digest, size = sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size
