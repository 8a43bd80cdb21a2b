"""Progress reports of a training script. Import this file or copy it: it needs Python's standard library alone.

    from push import Progress                              # or: from metering.efficiency.push import Progress
    progress = Progress(devices=16, active_params=70_000_000_000, dtype="bf16", recomputation="full")
    for batch in loader:
        train(batch)
        progress.step(tokens=batch.numel())                # tokens of all devices, padding left out

Only one process of a job reports (rank 0). Each minute it prints a line `suanpan-progress {...}`, which `python -m metering
efficiency` reads from the job's log and checks against the measurements of the devices' exporters. With `sink=Push(...)` the
job sends its samples to the platform itself, unchecked: that is for jobs whose operator trusts them.

Nothing here ever raises into the training loop or holds it up for longer than the timeout of a request. What cannot be
reported is named on standard error.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

FOR_GOOD = (400, 405, 413, 415, 422)
"""Statuses by which the same samples would be refused again. A token or an address may be mended on the platform's side."""
MOST_ANSWER = 1 << 20


class Progress:
    """Counter of tokens that reports them in intervals of `every_s` seconds.

    `devices`: of the whole job. `active_params`: those that one token meets; with `layers`, `heads`, `head_dim` and
    `seq_len` the formula may be "palm" or "megatron", which count attention. `recomputation`: none, selective or full.
    """

    def __init__(
        self,
        *,
        devices: int,
        active_params: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        head_dim: int | None = None,
        seq_len: int | None = None,
        formula: str = "6N",
        dtype: str = "bf16",
        recomputation: str = "none",
        every_s: float = 60.0,
        sink: Callable[[dict[str, Any]], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        shape = {"layers": layers, "heads": heads, "head_dim": head_dim, "seq_len": seq_len}
        model = {"active_params": active_params, **{name: value for name, value in shape.items() if value is not None}}
        facts = {"devices": devices, "dtype": dtype, "recomputation": recomputation, "formula": formula}
        self._facts: dict[str, Any] = facts
        if active_params is not None:
            self._facts["model"] = model
        self._every_s, self._clock = every_s, clock
        self._sink = sink or print_line
        self._start, self._tokens = clock(), 0

    def step(self, tokens: int) -> None:
        """Add the tokens of one step of all devices; report them once an interval is full."""
        self._tokens += int(tokens)
        if self._clock() - self._start >= self._every_s:
            self.flush()

    def pause(self) -> None:
        """Report the tokens so far; call `resume` when training goes on, so that a checkpoint is not training time."""
        self.flush()

    def resume(self) -> None:
        """Begin a new interval now."""
        self._start, self._tokens = self._clock(), 0

    def flush(self) -> None:
        """Report the interval so far, and begin a new one."""
        end = self._clock()
        if self._tokens and end > self._start:
            progress = {"start": _text(self._start), "end": _text(end), "tokens": self._tokens, **self._facts}
            try:
                self._sink(progress)
            except Exception as error:  # noqa: BLE001  (a fault of a report must not end the training)
                _say(f"the progress from {progress['start']} to {progress['end']} is not reported: {error!r}")
        self._start, self._tokens = end, 0


def print_line(progress: dict[str, Any]) -> None:
    """Write the line that the log of the job must contain: the default sink."""
    sys.stdout.write(f"suanpan-progress {json.dumps(progress)}\n")
    sys.stdout.flush()


class Push:
    """Sink that sends samples to `usage/efficiency`; samples that cannot be sent are kept and sent with the next.

    Samples that the platform refuses for good are named on standard error and dropped.

    `peak_tflops`: dense peak of one device in the job's precision. Name the job by `pod_uid` or by `workload`.
    """

    def __init__(
        self,
        *,
        endpoint: str,
        token: str,
        cluster: str,
        peak_tflops: str | float,
        pod_uid: str | None = None,
        workload: str | None = None,
        timeout_s: float = 5.0,
        most_kept: int = 1000,
    ) -> None:
        self._url = endpoint.rstrip("/") + "/api/v1/usage/efficiency"
        self._token, self._timeout_s, self._most_kept = token, timeout_s, most_kept
        subject = {"pod_uid": pod_uid} if pod_uid else {"workload": workload}
        self._subject, self._peak = {"cluster": cluster, **subject}, float(peak_tflops) * 1e12
        self.waiting: list[dict[str, Any]] = []

    def __call__(self, progress: dict[str, Any]) -> None:
        self.waiting.append({**self._subject, **self._sample(progress)})
        self.waiting = self.waiting[-self._most_kept :]
        self.send()

    def send(self) -> bool:
        """Send the waiting samples; return True if none is left."""
        headers = {"Authorization": "Bearer " + self._token, "Content-Type": "application/json"}
        body = json.dumps(self.waiting).encode()
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310  (the operator's own address)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                refused = _refused(json.loads(answer.read(MOST_ANSWER)), len(self.waiting))
        except urllib.error.HTTPError as error:
            if error.code not in FOR_GOOD:
                _say(f"{len(self.waiting)} samples wait: {error}")
                return False
            refused = [f"the platform refuses {len(self.waiting)} samples for good: {error}"]
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            _say(f"{len(self.waiting)} samples wait: {error!r}")
            return not self.waiting
        for reason in refused:
            _say(reason)
        self.waiting = []
        return True

    def _sample(self, progress: dict[str, Any]) -> dict[str, Any]:
        seconds = _seconds(progress["end"]) - _seconds(progress["start"])
        flops = _flops_per_token(progress["formula"], progress["model"])
        mfu = flops * progress["tokens"] / (seconds * progress["devices"] * self._peak)
        factor = {"none": 1.0, "full": 4 / 3}.get(progress["recomputation"])
        return {
            "start": progress["start"], "end": progress["end"], "gpu_seconds": f"{seconds * progress['devices']:.6f}",
            "mfu": f"{mfu:.12f}", "hfu": None if factor is None else f"{mfu * factor:.12f}", "dtype": progress["dtype"],
            "coverage": "1", "method": progress["formula"] + " (pushed, not checked)",
        }  # fmt: skip


def _refused(answer: Any, sent: int) -> list[str]:
    """Return the errors of samples that the platform did not take.  Raises ValueError unless it accounts for all that were
    sent: a proxy in between may answer 200 too.
    """
    fields = answer if isinstance(answer, dict) else {}
    rejected, counts = fields.get("rejected"), [fields.get(name) for name in ("accepted", "duplicates", "conflicts")]
    known = [count for count in counts if isinstance(count, int)]
    if not isinstance(rejected, list) or len(known) < len(counts):
        raise ValueError("this is no answer of the platform")
    if sum(known) + len(rejected) != sent:
        raise ValueError(f"the answer does not account for the {sent} samples that were sent")
    in_quarantine = [str(item.get("error") if isinstance(item, dict) else item) for item in rejected]
    in_quarantine += [f"{known[2]} samples were reported before with other content"] if known[2] else []
    return [f"in quarantine: {reason[:500]}" for reason in in_quarantine]


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # closed, full or missing: nobody reads it
        sys.stderr.write(f"suanpan: {text}\n")


def _flops_per_token(formula: str, model: dict[str, int]) -> int:
    """Return 6N, and for "palm" and "megatron" the attention: 12 x L x H x Q x T, halved by the latter (causal mask)."""
    weight = {"6N": 0, "palm": 12, "megatron": 6}[formula]
    shape = model["layers"] * model["heads"] * model["head_dim"] * model["seq_len"] if weight else 0
    return 6 * model["active_params"] + weight * shape


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()  # noqa: UP017  (datetime.UTC is younger than many images)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
