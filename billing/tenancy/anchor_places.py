"""Places outside the installation for anchors of the audit log: a file, syslog, a webhook, or an object store.

Each place takes one line of JSON; file and object store can also be read back. No Django here.

    file:///var/log/suanpan/anchors.jsonl       one line each, only ever appended, 0600
    syslog://host:514, syslog+tcp://host:601    RFC 5424, facility 13 (log audit)
    https://host/path                           POST application/json; http:// on loopback only
    s3://bucket/prefix?days=3650&mode=COMPLIANCE&endpoint=https://host&region=x
                                                one object each, locked for so many days; credentials from the environment
"""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

SECONDS = 10
PRIVATE = 0o600
LOG_AUDIT_NOTICE = 13 * 8 + 5
DAYS, MODES = "3650", ("COMPLIANCE", "GOVERNANCE")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class PlaceError(ValueError):
    """Error of an address that names no place; the text never repeats the address, which may contain a secret."""


class AnchorPlace(Protocol):
    """Place that stores anchors, and returns stored ones if it can be read."""

    name: str
    """Display name: never a password, query or path of a webhook."""

    def keep(self, text: str, *, ordinal: int, now: datetime) -> None:
        """Store one line.  Raises OSError, or errors of the place's client."""

    def kept(self) -> Iterator[str]:
        """Yield every stored line.  Raises PlaceError if this place cannot be read."""


class FilePlace:
    """File of lines, on another machine's disk or on an append-only one (`chattr +a`)."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, f"file {path}"

    def keep(self, text: str, *, ordinal: int, now: datetime) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
        try:
            os.write(descriptor, f"{text}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def kept(self) -> Iterator[str]:
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            yield from lines


class SyslogPlace:
    """Syslog server; over UDP the arrival of a message is not confirmed."""

    def __init__(self, host: str, port: int, *, tcp: bool) -> None:
        self.host, self.port, self.tcp, self.name = host, port, tcp, f"syslog {host}:{port}"

    def keep(self, text: str, *, ordinal: int, now: datetime) -> None:
        message = f"<{LOG_AUDIT_NOTICE}>1 {now.isoformat()} {socket.gethostname()} suanpan - audit-anchor - {text}".encode()
        if self.tcp:
            with socket.create_connection((self.host, self.port), SECONDS) as stream:
                stream.sendall(b"%d %b" % (len(message), message))
            return
        family, kind, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
        with closing(socket.socket(family, kind)) as datagrams:
            datagrams.sendto(message, address)

    def kept(self) -> Iterator[str]:
        raise PlaceError("syslog cannot be read from here: give the file in which its server keeps the messages")


class WebhookPlace:
    """URL that takes a POST; any 2xx response counts as success."""

    def __init__(self, url: str, host: str) -> None:
        self.url, self.name = url, f"webhook {host}"

    def keep(self, text: str, *, ordinal: int, now: datetime) -> None:
        import httpx

        answer = httpx.post(self.url, content=text, headers={"Content-Type": "application/json"}, timeout=SECONDS)
        if not answer.is_success:
            raise OSError(f"{self.name} answered {answer.status_code}")

    def kept(self) -> Iterator[str]:
        raise PlaceError("a webhook cannot be read: give a file with what it received, a line each")


class ObjectPlace:
    """Bucket of S3 with object lock: no one can overwrite or delete an object before its retention date."""

    def __init__(self, bucket: str, prefix: str, options: dict[str, str]) -> None:
        self.bucket, self.prefix, self.name = bucket, prefix, f"s3 {bucket}/{prefix}"
        self.days, self.mode = int(options.get("days", DAYS)), options.get("mode", MODES[0])
        self.endpoint, self.region = options.get("endpoint"), options.get("region")

    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        patience = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
        return boto3.client("s3", endpoint_url=self.endpoint, region_name=self.region, config=patience)

    def keep(self, text: str, *, ordinal: int, now: datetime) -> None:
        lock: dict[str, Any] = {}
        if self.days:
            lock = {"ObjectLockMode": self.mode, "ObjectLockRetainUntilDate": now + timedelta(days=self.days)}
        key = f"{self.prefix}{ordinal:012d}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}.json"
        self._client().put_object(
            Bucket=self.bucket, Key=key, Body=text.encode(), ContentType="application/json", ChecksumAlgorithm="SHA256",
            **lock,
        )  # fmt: skip

    def kept(self) -> Iterator[str]:
        """Yield every version: a version written over a locked one hides it and removes nothing."""
        client = self._client()
        pages = client.get_paginator("list_object_versions").paginate(Bucket=self.bucket, Prefix=self.prefix)
        for version in (found for page in pages for found in page.get("Versions", ())):
            stored = client.get_object(Bucket=self.bucket, Key=version["Key"], VersionId=version["VersionId"])
            yield stored["Body"].read().decode(errors="replace")


def anchor_place(address: str) -> AnchorPlace:
    """Return the place of an address.  Raises PlaceError.

    >>> anchor_place("syslog+tcp://logs.example.com").name
    'syslog logs.example.com:601'
    >>> anchor_place("https://hooks.example.com/secret").name
    'webhook hooks.example.com'
    """
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError as error:
        raise PlaceError("its port is no number") from error
    if parts.scheme == "file" and not parts.netloc and parts.path not in ("", "/"):
        return FilePlace(Path(unquote(parts.path)))
    if parts.scheme in ("syslog", "syslog+tcp") and parts.hostname:
        tcp = parts.scheme == "syslog+tcp"
        return SyslogPlace(parts.hostname, port or (601 if tcp else 514), tcp=tcp)
    if parts.hostname and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)):
        return WebhookPlace(address, parts.hostname)
    if parts.scheme == "s3" and parts.netloc:
        return _object_place(parts)
    raise PlaceError("write file:///path, syslog://host, syslog+tcp://host, https://host/path or s3://bucket/prefix")


def _object_place(parts: SplitResult) -> ObjectPlace:
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - {"days", "mode", "endpoint", "region"}:
        raise PlaceError(f"s3 knows days, mode, endpoint and region, not {', '.join(sorted(unknown))}")
    if not options.get("days", DAYS).isdigit() or options.get("mode", MODES[0]) not in MODES:
        raise PlaceError(f"days is a whole number, mode one of {', '.join(MODES)}")
    prefix = unquote(parts.path).strip("/")
    return ObjectPlace(parts.netloc, f"{prefix}/" if prefix else "", options)
