"""The error of a file of usage when one of its rows and the command's options contradict each other."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.usage.files import UsageFileError, read_records

HEADER = (
    "cluster,namespace,pod,pod_uid,resource,quantity,device_fraction,accelerator,node,queue,workload,"
    "started_at,ended_at"
)


def test_a_running_row_that_starts_after_the_file_ends_names_its_column_and_the_option(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    path.write_text(f"{HEADER}\nhq-1,nlp,p,u,nvidia.com/gpu,1,1,NVIDIA-H800,n,q,Job/j,2026-11-01T14:00:00+08:00,\n")
    with pytest.raises(UsageFileError) as reported:
        list(read_records("gpu", path, datetime(2026, 10, 31, 16, tzinfo=UTC)))
    assert str(reported.value) == (
        f"{path} line 2: started_at 2026-11-01T14:00:00+08:00 is after --until 2026-10-31T16:00:00+00:00: "
        "give its ended_at, or a later --until"
    )
