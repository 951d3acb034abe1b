"""Traces of live nodes say what the nodes promise, so that the judge accuses no node of what it does not promise."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import antiphon
from antiphon.audit.auditor import audit_files, files_in
from antiphon.audit.report import CLEAN
from antiphon.node.local_cluster import free_addresses
from tests.node.support import running, subscribed
from tests.sessions.support import values_until


def test_a_live_tree_with_loose_sessions_is_judged_by_what_it_promises(tmp_path: Path) -> None:
    """The broker that is not the root shows its causal message while the root still orders the total one before it."""
    addresses, table, traces = free_addresses(2), tmp_path / "tree.toml", tmp_path / "traces"
    table.write_text(f"[tree]\nbrokers = {addresses}\nstrict_session = false\n")

    async def scenario() -> list[bytes]:
        async with AsyncExitStack() as stack:
            nodes = await asyncio.gather(
                *(
                    stack.enter_async_context(
                        antiphon.start(
                            fabric="tree", tree=str(table), listen=address, trace=str(traces / f"{place}.parquet")
                        )
                    )
                    for place, address in enumerate(addresses)
                )
            )
            (subscription,) = await subscribed([nodes[1]])
            nodes[1].publish("room", b"total", order="total", key="a")
            nodes[1].publish("room", b"causal", order="causal", key="b")
            return await values_until(subscription, b"total")

    assert running(scenario) == [b"causal", b"total"]
    found = audit_files(files_in([traces]))
    assert found.verdict == CLEAN, found
