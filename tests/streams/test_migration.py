"""Data directories from before there were histories: their topics are as they were until somebody makes a history."""

from __future__ import annotations

from pathlib import Path

import pytest

import antiphon
from tests.node.support import running
from tests.storage.old_data.write import CLUSTER, described
from tests.storage.test_old_data import VERSIONS, expected, unpacked


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fabric", ["cube", "tree"])
def test_topics_of_an_old_directory_are_kept_once_until_they_get_a_history(
    version: str, fabric: str, tmp_path: Path
) -> None:
    async def test() -> None:
        data = unpacked(version, f"{fabric}-closed", tmp_path)
        wanted = expected(version, fabric)["topics"]
        topic = next(iter(wanted))
        valid = [message for message in wanted[topic] if message["value"] != "expires soon"]
        for life in range(2):
            async with antiphon.start(
                fabric=fabric, data=data, cluster=CLUSTER, durability="disk", keep=[topic]
            ) as node:
                # The log of the node is as it was, at the same offsets.
                old = []
                async for message in node.subscribe(topic, start=0):
                    old.append(described(message))
                    if len(old) == len(valid):
                        break
                assert old == valid
                if life == 0:
                    if fabric == "cube":
                        # A node of a tree returns as the first one, and begins the list of topics itself.
                        await node.topics.found()
                    assert await node.topics.list() == []
                    with pytest.raises(antiphon.AntiphonError, match="has no history; make it with"):
                        await node.publish(topic, b"and now?", acks="quorum")
                    assert (await node.topics.create(topic, replicas=1)).replicas == 1
                    receipt = await node.publish(topic, b"first", acks="quorum")
                    assert (receipt.position, receipt.disks) == (0, 1)
                assert [topic.replicas for topic in await node.topics.list()] == [1]
                history = [message async for message in node.history(topic, follow=False)]
                assert [(message.value, int(message.position or 0)) for message in history] == [(b"first", 0)]

    running(test)
