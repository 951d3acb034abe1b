"""The audit log: who connected, subscribed, was refused or reached a limit; and what it does when there is too much."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import DeniedError, QuotaError, UsageError
from antiphon.node import audit_log
from antiphon.node.acl import token_hash
from antiphon.node.audit_log import AuditLog
from tests.node.secure import ours
from tests.node.support import running, until


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_clients_do_is_recorded(tmp_path: Path) -> None:
    rights, audit = tmp_path / "rights.toml", tmp_path / "audit.jsonl"
    rights.write_text(
        f'[clients.shop]\ntoken = "{token_hash("secret of the shop")}"\n'
        'publish = ["orders.>"]\nsubscribe = ["orders.>"]\n'
        "[clients.shop.quotas]\nsubscriptions = 1\n"
    )

    async def test() -> None:
        settings = {**ours().node("alpha"), "rights": str(rights), "audit": str(audit)}
        async with antiphon.start(**settings) as node:
            async with antiphon.connect(node.address, tls=ours().trust, token="secret of the shop") as client:
                await client.subscribe("orders.new").ready()
                with pytest.raises(QuotaError):
                    await client.subscribe("orders.old").ready()
                with pytest.raises(DeniedError):
                    await client.subscribe("payroll").ready()
                with pytest.raises(DeniedError):
                    await client.publish("payroll", b"x")
            with pytest.raises(DeniedError):
                await antiphon.connect(node.address, tls=ours().trust, token="a wrong token")
            async with antiphon.start(join=[node.address], **ours().node("beta")):
                await until(lambda: any(line["event"] == "node connected" for line in lines_of(audit)))

    running(test)
    lines = lines_of(audit)
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    shop = [line for line in lines if line["client"] == "shop"]
    found = [(line["event"], line.get("action"), line.get("topic")) for line in shop]
    assert found == [
        ("connected", None, None),
        ("subscribed", None, "orders.new"),
        ("limited", "subscribe", "orders.old"),
        ("refused", "subscribe", "payroll"),
        ("refused", "publish", "payroll"),
        ("disconnected", None, None),
    ]
    assert shop[0]["by"] == "token" and shop[0]["address"].startswith("127.0.0.1:")
    assert "(quota subscriptions)" in shop[2]["reason"]
    refused = [line for line in lines if line["event"] == "refused" and line["action"] == "connect"]
    assert "the token is not known here" in refused[0]["reason"]
    assert [line["client"] for line in lines if line["event"] == "node connected"][:1] == ["beta"]
    assert "secret" not in audit.read_text() and "wrong token" not in audit.read_text()
    times = [line["time"] for line in lines]
    assert times == sorted(times) and times[0].endswith("+00:00")


def test_files_are_rotated_by_size(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(str(path), 2000)
    for number in range(300):
        log.record(f"event {number}", "shop", "10.0.0.1:5", detail="x" * 50)
        if number % 50 == 49:
            time.sleep(0.02)
    log.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["audit", "audit.1", "audit.2", "audit.3", "audit.4"]
    assert all(each.stat().st_size < 2300 for each in tmp_path.iterdir())
    kept = [line["event"] for name in reversed(names) for line in lines_of(tmp_path / name)]
    assert kept == [f"event {number}" for number in range(300 - len(kept), 300)], "the newest ones, and no gap"
    assert log.dropped == 0


def test_a_client_that_is_refused_all_the_time_does_not_fill_the_log(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "audit"), 1 << 20)
    for _ in range(5000):
        log.record("refused", "mallory", "10.0.0.9:1")
    log.record("refused", "shop", "10.0.0.1:1")
    log.close()
    lines = lines_of(tmp_path / "audit")
    count = sum(line.get("client") == "mallory" for line in lines)
    assert audit_log.LINES_PER_SECOND <= count <= 2 * audit_log.LINES_PER_SECOND, "a second may end in between"
    assert log.dropped == 5000 - count
    assert [line["client"] for line in lines if line.get("client") == "shop"] == ["shop"]
    assert sum(line["lines"] for line in lines if line["event"] == "dropped") == log.dropped


def test_a_disk_that_stands_still_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    real = AuditLog._write

    def write(self: AuditLog, lines: list[dict[str, object]]) -> None:
        goes_on.wait(30)
        real(self, lines)

    monkeypatch.setattr(AuditLog, "_write", write)
    log = AuditLog(str(tmp_path / "audit"), 1 << 30)
    began = time.process_time()
    for number in range(3 * audit_log.QUEUED_AT_MOST):
        log.record("connected", f"client {number}", "10.0.0.1:1")
    assert time.process_time() - began < 5
    assert log.dropped >= audit_log.QUEUED_AT_MOST
    thread = log._thread
    goes_on.set()
    log.close()
    assert thread is not None
    thread.join(30)
    assert not thread.is_alive(), "the thread ends after what is queued"


def test_a_full_disk_is_counted_and_the_node_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with antiphon.start(audit="/dev/full", audit_bytes=1000) as node:
            async with antiphon.connect(node.address) as client:
                await client.publish("room", b"x")
            await until(lambda: node._live.audit.dropped > 0)
            assert node._live.status.figures()["audit_dropped"] > 0
            await asyncio.sleep(0)

    running(test)
    with pytest.raises(UsageError, match="cannot write the audit log /nowhere/audit: No such file"):
        AuditLog("/nowhere/audit", 1000)
