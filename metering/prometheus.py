"""Raw samples from Prometheus or a server with its API: Thanos, Mimir, VictoriaMetrics.

Samples are read as they were scraped, by an instant query over a range. `query_range` would repeat the last sample at each
step for up to five minutes, which makes gaps look measured and ends look late.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from metering.command_line import token_of
from metering.intervals import EPOCH, MICROSECOND, Interval

CHUNK: Final = timedelta(hours=1)


class PrometheusError(Exception):
    """Failure of a query: no connection, a refusal, an answer of another form, or an incomplete answer.

    Thanos and VictoriaMetrics answer with success while a store is away, and add a warning or a flag to the data.
    """


@dataclass(frozen=True, slots=True)
class Series:
    """Series of samples: labels, `__name__` among them, and samples in order of time, without non-finite values."""

    labels: Mapping[str, str]
    samples: Sequence[tuple[datetime, Decimal]]

    @property
    def name(self) -> str:
        return self.labels.get("__name__", "")


def add_prometheus_options(parser: argparse.ArgumentParser, *, required: bool, help: str) -> None:
    """Add the options for the server, its token and further label matchers."""
    parser.add_argument("--prometheus", required=required, metavar="URL", help=help)
    parser.add_argument("--prometheus-token-file", type=Path, metavar="FILE", help="bearer token of Prometheus")
    parser.add_argument("--matchers", default="", help='further label matchers, such as cluster="hq-1"')


class Prometheus:
    """Client of the API below `url`/api/v1/, restricted to the series that satisfy all `matchers`.

    `token`: a function that reads the bearer token anew, or None.
    """

    def __init__(
        self, url: str, *, client: httpx.Client | None = None, token: Callable[[], str] | None = None, matchers: str = ""
    ) -> None:
        self._base = url.rstrip("/").removesuffix("/api/v1") + "/api/v1/"
        self._client = client or httpx.Client(
            timeout=httpx.Timeout(120, connect=10), transport=httpx.HTTPTransport(retries=2)
        )
        self._token, self._matchers = token, matchers

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Prometheus":
        """Return the server that a command line names (`add_prometheus_options`)."""
        token_file = options.prometheus_token_file
        return cls(options.prometheus, token=token_of(token_file) if token_file else None, matchers=options.matchers)

    def close(self) -> None:
        """Close the HTTP client."""
        self._client.close()

    def series(self, names: Sequence[str], window: Interval, *, matchers: str = "") -> list[Series]:
        """Return series of any of the metric names with their samples in [start, end), queried hour by hour.

        `matchers`: further label matchers such as `cluster="hq-1"`.  Raises PrometheusError.
        """
        name = f'__name__=~"{"|".join(names)}"'
        selector = f"{{{','.join(filter(None, (name, self._matchers, matchers)))}}}"
        found: dict[tuple[tuple[str, str], ...], list[tuple[datetime, Decimal]]] = {}
        for chunk in _chunks(window):
            for one in self._instant(selector, chunk):
                found.setdefault(tuple(sorted(one.labels.items())), []).extend(one.samples)
        return [Series(dict(labels), samples) for labels, samples in found.items() if samples]

    def _instant(self, selector: str, chunk: Interval) -> Iterator[Series]:
        """Yield all samples of [start, end). A range is closed on the right and, since version 3, open on the left."""
        # One second more on the left, so that every version includes a sample at `start`; `contains` cuts the rest.
        milliseconds = chunk.microseconds // 1000 + 1000
        at = Decimal((chunk.end - EPOCH) // timedelta(milliseconds=1)).scaleb(-3)
        query = {"query": f"{selector}[{milliseconds}ms]", "time": str(at)}
        for item in self._get("query", query, "matrix"):
            samples = [sample for at, text in item["values"] if (sample := _sample(at, text)) and chunk.contains(sample[0])]
            yield Series(item["metric"], samples)

    def _get(self, path: str, parameters: dict[str, str], kind: str) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self._token()}"} if self._token else {}
        try:
            response = self._client.post(self._base + path, data=parameters, headers=headers)
            answer: Any = msgspec.json.decode(response.content)
        except httpx.HTTPError as error:
            raise PrometheusError(f"{self._base}{path}: {type(error).__name__}: {error}") from error
        except msgspec.DecodeError as error:
            text = response.text[:200].replace("\n", " ")
            raise PrometheusError(f"{self._base}{path}: {response.status_code}, not JSON: {text}") from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            error_text = answer.get("error") if isinstance(answer, dict) else answer
            raise PrometheusError(f"{self._base}{path}: {response.status_code}: {error_text}")
        if missing := answer.get("warnings") or (answer.get("isPartial") and ["a part of its stores did not answer"]):
            raise PrometheusError(f"{self._base}{path}: the answer may be incomplete: {'; '.join(map(str, missing))[:500]}")
        if answer["data"]["resultType"] != kind:
            raise PrometheusError(f"{self._base}{path}: expected a {kind}, got a {answer['data']['resultType']}")
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result


def workload_label(labels: Mapping[str, str], name: str) -> str:
    """Return a label that an exporter put on a series about another pod than its own.

    A Prometheus that does not honour a target's labels renames them to `exported_*`, and the plain ones name the exporter
    itself.  Source: NVIDIA/dcgm-exporter deployment/values.yaml (honorLabels: false).
    """
    return labels.get(f"exported_{name}") or labels.get(name, "")


def _chunks(window: Interval) -> list[Interval]:
    hours = -(-window.microseconds // (CHUNK // MICROSECOND))
    return window.cut(window.start + CHUNK * number for number in range(1, hours)) if window.microseconds else []


def _sample(at: float | int, text: str) -> tuple[datetime, Decimal] | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return (EPOCH + timedelta(milliseconds=round(at * 1000)), value) if value.is_finite() else None
