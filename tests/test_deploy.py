"""The files of ``deploy/`` use settings, flags and metrics that exist, and the cluster that they describe starts."""

from __future__ import annotations

import asyncio
import configparser
import json
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

import antiphon
from antiphon.cli.main import app_for
from antiphon.node.settings import settings_from
from antiphon.node.status import NODE_METRICS, TOPIC_METRICS
from tests.test_packaging import SOURCES

DEPLOY = Path(__file__).parent.parent / "deploy"
START_SECONDS = 300.0


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def flags_of_a_node() -> set[str]:
    commands = typer.main.get_command(app_for("node"))
    node = commands.get_command(commands.make_context("antiphon", ["node", "--help"], resilient_parsing=True), "node")  # type: ignore[attr-defined]
    return {flag for parameter in node.params for flag in parameter.opts}


def command_lines() -> dict[str, list[str]]:
    found = {f"compose, {name}": each["command"] for name, each in documents("compose.yaml")[0]["services"].items()}
    for document in documents("kubernetes.yaml"):
        if document["kind"] == "StatefulSet":
            found["kubernetes"] = document["spec"]["template"]["spec"]["containers"][0]["args"]
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "antiphon.service")
    found["systemd"] = unit["Service"]["ExecStart"].split()[2:]
    return found


@pytest.mark.parametrize("where", sorted(command_lines()))
def test_the_flags_are_those_of_a_node(where: str) -> None:
    used = {word for word in command_lines()[where] if word.startswith("--")}
    assert used and used <= flags_of_a_node()


def test_the_settings_of_the_brokers_are_settings() -> None:
    settings = settings_from(tomllib.loads((DEPLOY / "tree.toml").read_text(encoding="utf-8")), "tree.toml")
    assert settings.fabric == "tree" and settings.data is not None


def test_every_broker_of_the_table_is_a_service_and_a_pod() -> None:
    table = tomllib.loads((DEPLOY / "tree.toml").read_text(encoding="utf-8"))["tree"]
    advertised = [line[-1] for where, line in sorted(command_lines().items()) if where.startswith("compose")]
    assert advertised == table["brokers"]
    pods = next(each for each in documents("kubernetes.yaml") if each["kind"] == "StatefulSet")
    assert [f"{pods['metadata']['name']}-{number}" for number in range(pods["spec"]["replicas"])] == table["names"]


def test_alerts_and_dashboard_ask_for_metrics_that_exist() -> None:
    exist = {"antiphon_healthy"} | {f"antiphon_{name}" for name in NODE_METRICS}
    exist |= {f"antiphon_topic_{name}" for name in TOPIC_METRICS}
    board = json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for group in documents("alerts.yaml")[0]["groups"] for rule in group["rules"]]
    used = {name.removesuffix("_total") for expression in asked for name in re.findall(r"antiphon_\w+", expression)}
    assert used and used <= exist


def test_the_image_is_built_from_everything_that_a_distribution_has() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert set(SOURCES) <= copied
    assert all((DEPLOY.parent / name).exists() for name in copied)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "antiphon.service").read_text(encoding="utf-8").replace("/opt/antiphon/bin/antiphon", "/bin/true")
    copy = tmp_path / "antiphon.service"
    copy.write_text(unit, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def adapted(folder: Path, ports: list[int], number: int) -> Path:
    """The settings of one broker of ``tree.toml``, with addresses and files of this machine."""
    text = (DEPLOY / "tree.toml").read_text(encoding="utf-8")
    for broker, port in enumerate(ports):
        text = text.replace(f"antiphon-{broker}.antiphon:7400", f"127.0.0.1:{port}")
    text = text.replace("0.0.0.0:7400", f"127.0.0.1:{ports[number]}").replace(
        "/etc/antiphon/node", f"{folder}/antiphon-{number}"
    )
    text = text.replace("/etc/antiphon", str(folder)).replace("/var/lib/antiphon", f"{folder}/data-{number}")
    text = re.sub(r"^metrics = .*$", "", text, flags=re.MULTILINE)
    path = folder / f"broker-{number}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_three_brokers_start_with_these_settings_and_order_totally(tmp_path: Path) -> None:
    """With certificates from ``antiphon certs`` and the file of rights, as the comments in the files say."""
    names = ["--node", "antiphon-0", "--node", "antiphon-1", "--node", "antiphon-2", "--client", "operator"]
    made = [sys.executable, "-m", "antiphon", "certs", *names, "--host", "127.0.0.1", "--out", str(tmp_path)]
    subprocess.run(made, check=True, capture_output=True, timeout=START_SECONDS)
    shutil.copy(DEPLOY / "rights.toml", tmp_path / "rights.toml")
    with (tmp_path / "rights.toml").open("a", encoding="utf-8") as rights:
        rights.write('publish = [">"]\nsubscribe = [">"]\n')
    with ExitStack() as ports_taken:
        sockets = [ports_taken.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [each.getsockname()[1] for each in sockets]
    with ExitStack() as running:
        brokers = []
        for number in range(3):
            line = [
                sys.executable,
                "-m",
                "antiphon",
                "node",
                "--config",
                str(adapted(tmp_path, ports, number)),
                "--json",
            ]
            broker = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            running.callback(broker.wait, 30)
            running.callback(broker.terminate)
            running.callback(broker.stdout.close)  # type: ignore[union-attr]
            brokers.append(broker)
        for broker in brokers:
            assert broker.stdout is not None
            assert json.loads(broker.stdout.readline())["address"] in {f"127.0.0.1:{port}" for port in ports}
        files = {
            name: f"{tmp_path}/{file}"
            for name, file in (("authority", "authority.pem"), ("certificate", "operator.pem"), ("key", "operator.key"))
        }

        async def talk() -> list[bytes]:
            async with (
                antiphon.connect(f"127.0.0.1:{ports[0]}", tls=files) as first,
                antiphon.connect(f"127.0.0.1:{ports[2]}", tls=files) as last,
            ):
                heard = await last.subscribe("orders.new").ready()
                for value in (b"one", b"two"):
                    await first.publish("orders.new", value, order="total", key="anna")
                return [(await anext(aiter(heard))).value for _ in range(2)]

        assert asyncio.run(asyncio.wait_for(talk(), START_SECONDS)) == [b"one", b"two"]
