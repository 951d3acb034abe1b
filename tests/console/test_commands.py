"""The commands open the page in the browser of the user, at the right place, and end at a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow.parquet as pq

from antiphon.trace.store import read_trace
from tests.console.served import OVERTAKING, with_rows_exchanged

PATIENCE_SECONDS = 300.0


def opened_by(place: Path, *arguments: str) -> tuple[str, int]:
    """The address that a command opens in a browser, and its exit code after a signal."""
    browser, address = place / "browser", place / "address"
    browser.write_text(f'#!/bin/sh\necho "$1" > {address}.new && mv {address}.new {address}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "antiphon", *arguments]
    environment = {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not address.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        url = address.read_text().strip()
        with urllib.request.urlopen(url.partition("#")[0] + "api/run", timeout=PATIENCE_SECONDS) as answer:
            assert json.loads(answer.read())["ready"] in {True, False}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
        return url, process.returncode


def test_audit_opens_the_run_at_its_violation(overtaking: Path, tmp_path: Path) -> None:
    table = read_trace(overtaking)
    here = [
        place
        for place, row in enumerate(table.to_pylist())
        if (row["event"], row["node"]) == ("deliver", 2) and row["source"] in {0, 1}
    ]
    broken = tmp_path / "broken.parquet"
    pq.write_table(with_rows_exchanged(table, *here), broken)
    url, code = opened_by(tmp_path, "audit", str(broken), "--open")
    assert url.endswith("/#/run?violation=causal")
    assert code == 1


def test_play_opens_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "played.toml").write_text(OVERTAKING)
    url, code = opened_by(tmp_path, "play", str(tmp_path / "played.toml"))
    assert url.startswith("http://127.0.0.1:")
    assert code == 0
