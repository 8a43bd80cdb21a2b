"""A file is whole or absent, also where its writer is killed; what that one left goes with the next export."""

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from billing.runtime.atomic_file import atomic_file, drafts_sweep, whole_files

WRITER = """
import os, signal, sys
from pathlib import Path
from billing.runtime.atomic_file import atomic_file
with atomic_file(Path(sys.argv[1])) as draft:
    draft.write_bytes(b"half of")
    print("writing", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def writer(path: Path) -> subprocess.Popen[str]:
    """A process that has written half of a file; it kills itself on a line of input."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def killed(process: subprocess.Popen[str]) -> None:
    process.communicate("now\n", timeout=30)
    assert process.returncode == -signal.SIGKILL


def names(directory: Path) -> list[str]:
    """Of its files, sorted; of drafts without what tells them apart."""
    return sorted(re.sub(r"-[0-9a-f]{8}$", "", entry.name) for entry in directory.iterdir())


def test_a_killed_writer_leaves_the_old_file_and_a_draft_that_the_next_one_removes(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    path.write_bytes(b"the old one")
    process = writer(path)
    killed(process)
    assert names(tmp_path) == [f".journal.csv.{process.pid}", "journal.csv"]
    assert path.read_bytes() == b"the old one"
    with atomic_file(path) as draft:
        draft.write_bytes(b"the new one")
        assert names(tmp_path) == [f".journal.csv.{os.getpid()}", "journal.csv"]
    assert (names(tmp_path), path.read_bytes()) == (["journal.csv"], b"the new one")


def test_what_somebody_writes_just_now_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    process = writer(path)
    try:
        with atomic_file(path) as draft:
            draft.write_bytes(b"whole")
        assert names(tmp_path) == [f".journal.csv.{process.pid}", "journal.csv"]
        assert path.read_bytes() == b"whole"
    finally:
        killed(process)
    (swept,) = drafts_sweep(tmp_path, {"journal.csv"})
    assert swept.name.startswith(f".journal.csv.{process.pid}-")
    assert names(tmp_path) == ["journal.csv"]


def test_a_draft_that_is_swept_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, swept, real = tmp_path / "journal.csv", list[Path](), os.open

    def opened(name: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = real(name, flags, mode)
        if flags & os.O_CREAT and not swept:
            swept.extend(drafts_sweep(tmp_path, {"journal.csv"}))
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    with atomic_file(path) as draft:
        assert len(swept) == 1
        draft.write_bytes(b"whole")
        assert drafts_sweep(tmp_path, {"journal.csv"}) == []
    assert (names(tmp_path), path.read_bytes()) == (["journal.csv"], b"whole")


def test_two_threads_of_a_process_write_the_same_file_each_on_its_own(tmp_path: Path) -> None:
    path, both = tmp_path / "journal.csv", Barrier(2, timeout=30)

    def write(content: bytes) -> None:
        with atomic_file(path) as draft:
            draft.write_bytes(content)
            both.wait()
            assert draft.read_bytes() == content

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, (b"one" * 1000, b"other" * 1000))) == [None, None]
    assert names(tmp_path) == ["journal.csv"]
    assert path.read_bytes() in (b"one" * 1000, b"other" * 1000)


def test_a_draft_under_our_own_number_does_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / f".journal.csv.{os.getpid()}").write_bytes(b"of a process that had this number before")
    with atomic_file(tmp_path / "journal.csv") as draft:
        draft.write_bytes(b"whole")
    assert names(tmp_path) == ["journal.csv"]


def test_only_drafts_of_the_files_that_are_written_are_removed(tmp_path: Path) -> None:
    others = [".a.pdf.17", ".b.pdf.17", ".bashrc", ".a.pdf.old", "a.pdf.17"]
    for name in others:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / ".link.pdf.1").symlink_to(tmp_path / ".bashrc")
    with whole_files(tmp_path, {"a.pdf", "link.pdf"}) as write:
        assert write(tmp_path / "a.pdf", b"whole") == tmp_path / "a.pdf"
    assert names(tmp_path) == sorted([*others[1:], ".link.pdf.1", "a.pdf"])


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.csv"
    path.write_bytes(b"the old one")
    with pytest.raises(IsADirectoryError), atomic_file(path) as draft:
        (draft.write_bytes(b"half"), tmp_path.read_bytes())
    assert (names(tmp_path), path.read_bytes()) == (["journal.csv"], b"the old one")


def test_file_and_folder_are_synced_before_success_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        kept = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append("folder" if kept.is_dir() else f"{kept.name.partition('.csv')[0]}.csv {len(kept.read_bytes())}")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with atomic_file(tmp_path / "journal.csv") as draft:
        draft.write_bytes(b"whole")
    assert synced == [".journal.csv 5", "folder"]
    synced.clear()
    with whole_files(tmp_path, {"a.csv", "b.csv"}) as write:
        write(tmp_path / "a.csv", b"a")
        write(tmp_path / "b.csv", b"bb")
    assert synced == [".a.csv 1", ".b.csv 2", "folder"]


def test_what_is_exported_is_for_its_owner_and_group_whatever_the_umask_lets_through(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with atomic_file(tmp_path / "journal.csv") as draft:
            draft.write_bytes(b"x")
        with whole_files(tmp_path, {"invoice.pdf"}) as write:
            write(tmp_path / "invoice.pdf", b"x")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"journal.csv": 0o640, "invoice.pdf": 0o640}
