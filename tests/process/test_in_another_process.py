"""Another process gives what this one gives, with nothing but what it was given."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from billing.invoices.documents import PdfRenderer, render_xlsx
from billing.runtime.home import PROJECT
from metering.efficiency import push
from tests.golden.registry import SHEET
from tests.invoice_documents import ISSUED, ORDINARY
from tests.pricing_cli import GPU_HOUR


def test_output_that_cannot_be_written_is_one_line() -> None:
    command = [sys.executable, "-m", "pricing", "gpu-hour", "-"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, input=json.dumps(SHEET).encode(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, b"standard output: No space left on device\n")


def test_as_a_process_it_reads_standard_input_and_knows_no_django() -> None:
    code = "import sys; from pricing.__main__ import main; code = main(); assert 'django' not in sys.modules; sys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "gpu-hour", "-", "--json"], input=json.dumps(SHEET).encode(),
        capture_output=True, check=False, timeout=60, env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == GPU_HOUR


def test_the_helper_is_one_file_of_the_standard_library(tmp_path: Path) -> None:
    copy = tmp_path / "push.py"
    copy.write_text(Path(push.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    script = "from push import Progress\nt = [0.0]\np = Progress(devices=1, clock=lambda: t[0])\nt[0] = 90.0\np.step(5)"
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith('suanpan-progress {"start": "1970-01-01T00:00:00+00:00"')


def test_another_process_in_another_time_zone_gives_the_same_bytes():
    program = (
        "import hashlib, sys; from billing.invoices.documents import PdfRenderer, render_xlsx;"
        "from tests.invoice_documents import ISSUED, ORDINARY;"
        "made = PdfRenderer().render(ORDINARY, **ISSUED) + render_xlsx(ORDINARY, **ISSUED);"
        "sys.stdout.write(hashlib.sha256(made).hexdigest())"
    )
    environment = {**os.environ, "TZ": "America/New_York", "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"}
    there = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, env=environment, check=True, capture_output=True, text=True
    )
    here = hashlib.sha256(PdfRenderer().render(ORDINARY, **ISSUED) + render_xlsx(ORDINARY, **ISSUED)).hexdigest()
    assert there.stdout == here
