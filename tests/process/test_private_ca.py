"""Agents trust the certificates that SSL_CERT_FILE names, and only these: so the chart mounts a private CA."""

import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from metering.delivery import Delivery, Outcome
from metering.intervals import Interval
from metering.prometheus import Prometheus, PrometheusError
from metering.spool import Spool, open_state
from tests.http_servers import HttpServer, Request, acknowledgement, serving

NOW = datetime.now(UTC)
START = datetime(2026, 10, 1, tzinfo=UTC)


class _Server(HttpServer):
    def answer(self, request: Request) -> tuple[int, bytes]:
        if request.body.startswith(b"["):
            return 200, acknowledgement(request.body)
        return 200, b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust us hangs up."""


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A CA of its own that vouches for 127.0.0.1: the file of its certificate and that of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ))  # fmt: skip
    return files


@pytest.fixture
def company(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address of a server with a certificate of the company's CA, and the file of that CA."""
    crt, key = certificate(tmp_path, "company")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    server = _Server()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield f"https://127.0.0.1:{server.server_port}", crt


def deliver(address: str, folder: Path) -> tuple[Outcome, str]:
    with closing(open_state(folder / "spool.sqlite")) as connection:
        spool = Spool(connection)
        spool.put("usage/tokens", b"[1]")
        with Delivery(spool, endpoint=address, token="secret") as delivery:
            return delivery.run_once().outcome, delivery.last_error


def test_reports_go_to_a_platform_whose_ca_is_named(
    company: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, ca = company
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    assert deliver(address, tmp_path) == (Outcome.DELIVERED, "")


@pytest.mark.parametrize("trusted", ["public", "other"])
def test_a_platform_of_an_unknown_ca_is_not_trusted_and_the_report_is_kept(
    trusted: str, company: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if trusted == "other":
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate(tmp_path, "other")[0]))
    outcome, error = deliver(company[0], tmp_path)
    assert outcome is Outcome.TEMPORARY
    assert "CERTIFICATE_VERIFY_FAILED" in error


def test_prometheus_is_read_with_the_same_ca(company: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    address, ca = company
    window = Interval(START, START + timedelta(hours=1))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    reader = Prometheus(address)
    with pytest.raises(PrometheusError, match="CERTIFICATE_VERIFY_FAILED"):
        reader.series(["up"], window)
    reader.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    reader = Prometheus(address)
    assert reader.series(["up"], window) == []
    reader.close()
