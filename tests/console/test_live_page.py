"""The page of a live cluster, in a browser, against a cluster of processes; and who is let in."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import antiphon
from antiphon.console.live.site import serve_console
from antiphon.kernel.errors import UsageError
from antiphon.node.acl import token_hash
from tests.console.served import BROWSER_PATIENCE_MS, FAINT, NAMELESS

if TYPE_CHECKING:
    from playwright.sync_api import Page

LOST_SECONDS = 5.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "antiphon", "up", "-n", "3", "--port", "0", "--console", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)


def test_a_message_by_hand_is_followed_and_counted(page: Page, cluster: dict[str, Any]) -> None:
    console = cluster["nodes"][0]["console"]
    page.goto(f"{console}#/messages?topic=room")
    page.get_by_text("Following room").wait_for()
    page.get_by_label("value").fill("it's me")
    page.get_by_label("key").fill("k 1")
    assert page.locator("pre.copy").first.inner_text() == (
        f"antiphon pub room 'it'\\''s me' --key 'k 1' --servers {cluster['nodes'][0]['address']}"
    )
    page.get_by_role("button", name="Publish").click()
    page.get_by_role("cell", name="it's me").wait_for()
    page.get_by_role("link", name="Topics").click()
    page.get_by_role("link", name="room").wait_for()


def test_the_commands_that_the_page_shows_publish_the_message(page: Page, cluster: dict[str, Any]) -> None:
    page.goto(f"{cluster['nodes'][0]['console']}#/messages?topic=copied")
    page.get_by_text("Following copied").wait_for()
    page.get_by_label("value").fill('$HOME "quoted"')
    shell, python = page.locator("pre.copy").all_inner_texts()
    subprocess.run(
        f"{sys.executable} -m {shell}", shell=True, check=True, capture_output=True, timeout=BROWSER_PATIENCE_MS / 1000
    )
    page.get_by_role("cell", name='$HOME "quoted"').wait_for()
    body = "\n".join(f"    {line}" for line in python.splitlines())
    program = f"import antiphon\nasync def main():\n{body}\nantiphon.run(main())"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=BROWSER_PATIENCE_MS / 1000)
    page.get_by_role("cell", name='$HOME "quoted"').nth(1).wait_for()
    page.wait_for_timeout(600)
    assert page.get_by_role("cell", name='$HOME "quoted"').count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(page: Page, cluster: dict[str, Any], scheme: Literal["light", "dark"]) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for view in ("cluster", "topics", "messages?topic=room"):
        page.goto(f"{cluster['nodes'][0]['console']}#/{view}")
        page.reload()
        page.locator("#facts", has_text="cluster antiphon").wait_for()
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate(FAINT) == []
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_killed_node_goes_within_its_detection_time(page: Page, cluster: dict[str, Any]) -> None:
    page.goto(f"{cluster['nodes'][0]['console']}#/cluster?publisher=1")
    page.get_by_text("cluster antiphon · 3 nodes").wait_for()
    page.get_by_role("row", name="node 2").get_by_text("well").wait_for()
    killed = next(node for node in cluster["nodes"] if node["node"] == 2)
    os.kill(killed["pid"], signal.SIGKILL)
    begun = time.monotonic()
    page.get_by_text("node 2 is lost, or has left").wait_for()
    # A busy machine takes longer to look and to draw.
    assert time.monotonic() - begun < LOST_SECONDS + 30
    assert page.get_by_role("row", name="node 2").inner_text().split("\t")[1] == "lost"


def on_a_thread(main: Coroutine[Any, Any, None]) -> None:
    """Run a program; the thread of the tests has the loop that drives the browser."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(antiphon.run, main).result(60)


@asynccontextmanager
async def guarded(place: Path) -> AsyncIterator[tuple[str, int]]:
    """A node whose rights know one admin and one client that is none."""
    rights = place / "rights.toml"
    rights.write_text(
        f'[clients.operator]\ntoken = "{token_hash("right")}"\nadmin = true\n'
        f'[clients.shop]\ntoken = "{token_hash("wrong")}"\npublish = [">"]\n'
    )
    async with antiphon.start(rights=str(rights), insecure=True) as node, serve_console(node, "127.0.0.1:0") as server:
        host, _, port = server.address.rpartition(":")
        yield host, int(port)


def asked(
    address: tuple[str, int], method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(*address, timeout=60)
    sent = {"X-Antiphon-Console": "1", **headers}
    connection.request(method, path, None if body is None else json.dumps(body), sent)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def test_only_an_admin_sees_a_cluster_with_rights(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as address:

            def look() -> None:
                assert asked(address, "GET", "/api/mode")[0] == 401
                assert asked(address, "POST", "/api/publish", {"topic": "room", "value": "x"})[0] == 401
                assert asked(address, "POST", "/api/login", {"token": "guess"})[0] == 403
                assert asked(address, "POST", "/api/login", {"token": "wrong"})[0] == 403
                status, headers, body = asked(address, "POST", "/api/login", {"token": "right"})
                assert status == 200
                cookie = headers["Set-Cookie"].partition(";")[0]
                assert "right" not in body + headers["Set-Cookie"]
                status, _, body = asked(address, "GET", "/api/mode", Cookie=cookie)
                assert status == 200
                assert json.loads(body)["has_token"]
                told = asked(address, "POST", "/api/publish", {"topic": "room", "value": "x"}, Cookie=cookie)
                assert told[0] == 200
                other = {"Cookie": cookie, "Origin": "http://evil.example"}
                assert asked(address, "POST", "/api/publish", {"topic": "room", "value": "x"}, **other)[0] == 403
                status, _, page = asked(address, "GET", "/")
                assert status == 200
                assert "operator" not in page

            await asyncio.to_thread(look)

    on_a_thread(main())


def test_other_machines_need_tls_and_rights() -> None:
    async def main() -> None:
        async with antiphon.start() as node:
            with pytest.raises(UsageError, match="where other machines can connect"):
                async with serve_console(node, "0.0.0.0:0"):
                    pass

    on_a_thread(main())


def test_following_never_slows_publishers(tmp_path: Path) -> None:
    """A window that reads nothing at all: publishers do not wait for it."""

    async def main() -> None:
        async with antiphon.start() as node, serve_console(node, "127.0.0.1:0") as server:
            host, _, port = server.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /api/follow?topic=room HTTP/1.1\r\nHost: {server.address}\r\n\r\n".encode())
            await reader.readuntil(b"event: following")
            for number in range(5_000):
                await asyncio.wait_for(node.publish("room", b"%d" % number), 60)
            writer.close()

    on_a_thread(main())
