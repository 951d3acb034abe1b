"""Only the owner of a node can read its log, whatever the umask is, also in directories of earlier versions."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.storage.log import DurableLog


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The most generous umask: a file without a mode of its own can be read and written by everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, str]:
    """The rights of a directory and of everything in it, in octal."""
    return {path.name: f"{stat.S_IMODE(path.stat().st_mode):o}" for path in (directory, *directory.iterdir())}


@pytest.mark.usefixtures("open_umask")
def test_a_new_log_is_private_while_it_is_open_and_afterwards(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "data"
    with DurableLog.open(directory) as log:
        log.append("room", 1, 1, b"secret")
        log.commit()
        found = modes(directory)
        assert {"log.sqlite", "log.sqlite-wal", "log.sqlite-shm", "promised", "lock", "data"} == set(found)
        assert found.pop("data") == "700"
        assert set(found.values()) == {"600"}, found
    assert modes(directory) == {"data": "700", "log.sqlite": "600", "promised": "600", "lock": "600"}


@pytest.mark.usefixtures("open_umask")
def test_an_empty_directory_that_others_can_read_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert modes(tmp_path / "data") == {"data": "777"}
    DurableLog.open(tmp_path / "data").close()
    assert modes(tmp_path / "data")["data"] == "700"


def test_a_log_of_an_earlier_version_is_made_private_and_the_change_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    with DurableLog.open(directory) as log:
        log.append("room", 1, 1, b"secret")
    directory.chmod(0o755)
    for path in directory.iterdir():
        path.chmod(0o644)
    with caplog.at_level(logging.WARNING, "antiphon"), DurableLog.open(directory) as log:
        assert log.read("room", 0, 100)[0].batch == b"secret"
    assert set(modes(directory).values()) == {"700", "600"}
    assert [record.__dict__["event"] for record in caplog.records] == [
        "other users could read the log; it is private now"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "antiphon"):
        DurableLog.open(directory).close()
    assert not caplog.records, "a private log is no news"


def test_a_log_whose_rights_cannot_be_changed_is_used_and_the_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a volume that belongs to another user, and is shared with the group of the node."""
    directory = tmp_path / "data"
    DurableLog.open(directory).close()
    directory.chmod(0o750)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    with caplog.at_level(logging.WARNING, "antiphon"), DurableLog.open(directory) as log:
        log.append("room", 1, 1, b"secret")
    assert [record.__dict__["event"] for record in caplog.records] == ["other users can read the log"]
    assert f"{stat.S_IMODE(directory.stat().st_mode):o}" == "750"


def test_links_out_of_the_directory_are_not_followed(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    DurableLog.open(directory).close()
    elsewhere.write_text("not ours")
    elsewhere.chmod(0o644)
    (directory / "link").symlink_to(elsewhere)
    DurableLog.open(directory).close()
    assert f"{stat.S_IMODE(elsewhere.stat().st_mode):o}" == "644"
    shutil.rmtree(directory)
