"""``antiphon node``: settings from flags and files, readiness, an orderly leave."""

from __future__ import annotations

import inspect
import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from antiphon.cli.node import node
from antiphon.node.settings import Settings
from tests.cli.conftest import Command
from tests.cli.local_nodes import SECONDS, ended, first_line, started


def test_every_setting_has_a_flag_and_no_flag_has_a_default_of_its_own() -> None:
    parameters = inspect.signature(node).parameters
    assert set(Settings.__struct_fields__) <= set(parameters)
    assert {name: parameters[name].default for name in Settings.__struct_fields__} == dict.fromkeys(
        Settings.__struct_fields__
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_says_where_it_is_and_leaves_when_told(number: int) -> None:
    with started("node", "--json", "--log-json") as process:
        about = first_line(process)
        assert about["node"] == 0
        assert about["address"].startswith("127.0.0.1:")
        code, logged = ended(process, number)
    assert code == 0
    assert [json.loads(line)["event"] for line in logged.splitlines()] == ["in the cluster"]


def test_a_second_node_joins_and_is_missed_by_nobody_when_it_leaves() -> None:
    with started("node", "--json") as first:
        address = first_line(first)["address"]
        with started("node", "--json", "--join", address) as second:
            assert first_line(second)["node"] == 1
            assert ended(second)[0] == 0
        code, logged = ended(first)
    assert code == 0
    assert "found node=1" in logged
    assert "left node=1" in logged
    assert "lost" not in logged


def test_a_node_leaves_when_its_input_ends() -> None:
    with started("node", "--json", "--until-input-ends") as process:
        first_line(process)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0


def test_settings_come_from_a_file_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'data = "{tmp_path}/data"\nmetrics = "127.0.0.1:0"\ndurability = "disk"\nwindow = 8\n')
    with started("node", "--json", "--config", file, "--durability", "memory") as process:
        served = first_line(process)["metrics"]
        with urllib.request.urlopen(f"http://{served}/status", timeout=SECONDS) as answer:
            status = json.load(answer)
        assert ended(process)[0] == 0
    assert status["durability"] == "memory"
    assert (tmp_path / "data").is_dir()


def test_people_read_a_sentence() -> None:
    with started("node", "--metrics", "127.0.0.1:0") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("node 0 is ready at 127.0.0.1:")
        assert ", metrics at http://127.0.0.1:" in line
        ended(process)


MISUSES = {
    "an unknown order": (["--order", "sorted"], 2, "not 'sorted'"),
    "an address without a port": (["--listen", "somewhere"], 2, "somewhere"),
    "disk without a place": (["--durability", "disk"], 2, "give a data directory"),
    "no such file": (["--config", "nowhere.toml"], 2, "cannot read nowhere.toml"),
    "nobody to join": (["--join", "127.0.0.1:1", "--join-seconds", "0.5"], 1, "127.0.0.1:1"),
}


@pytest.mark.parametrize(("flags", "code", "complaint"), MISUSES.values(), ids=MISUSES.keys())
def test_misuse_is_explained(command: Command, flags: list[str], code: int, complaint: str) -> None:
    called = command("node", "--log-level", "error", *flags)
    assert (called.code, called.said) == (code, "")
    assert complaint in called.complained


def test_a_setting_that_does_not_exist_is_named(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("windows = 8\n")
    called = command("node", "--config", file)
    assert called.code == 2
    assert "windows" in called.complained
    said = " ".join(called.complained.split())
    assert "'windows' may mean 'window'" in said and "docs/reference/settings.md name all settings" in said
    assert "advertise" not in said, "not all settings are listed"
    file.write_text("xyzzy = 8\n")
    assert "nothing is like 'xyzzy'" in " ".join(command("node", "--config", file).complained.split())


def test_the_doors_for_mqtt_come_from_the_file_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[mqtt]\nlisten = "127.0.0.1:1"\nwebsocket = "127.0.0.1:0"\norigins = ["https://a.example"]\n')
    with started("node", "--json", "--config", file, "--mqtt", "127.0.0.1:0") as process:
        about = first_line(process)
        assert about["mqtt"] != about["mqtt_websocket"]
        request = urllib.request.Request(f"http://{about['mqtt_websocket']}/")
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=SECONDS)
        assert error.value.code == 426
        error.value.close()
        assert ended(process)[0] == 0


def test_a_setting_of_mqtt_that_cannot_be_is_named(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[mqtt]\nlitsen = "127.0.0.1:0"\n')
    called = command("node", "--log-level", "error", "--config", file)
    assert called.code == 2
    assert "'litsen' may mean 'listen'" in called.complained
