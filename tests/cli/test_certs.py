"""``antiphon certs``: what it writes, that it overwrites nothing, and that a cluster runs on it."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path

import pytest

from antiphon.node.acl import token_hash
from antiphon.transport.tls import identity_in, own_identity
from tests.cli.conftest import Command
from tests.cli.local_nodes import first_line, started


def test_it_makes_an_authority_and_what_it_signs_for_its_owner_alone(tmp_path: Path, command: Command) -> None:
    out = tmp_path / "certs"
    called = command(
        "certs", "--out", out, "--node", "alpha", "--client", "shop", "--host", "10.0.0.1", "--host", "a.b"
    )
    assert called.code == 0
    files = sorted(path.name for path in out.iterdir())
    assert files == ["alpha.key", "alpha.pem", "authority.key", "authority.pem", "shop.key", "shop.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    alpha, shop = own_identity(str(out / "alpha.pem")), own_identity(str(out / "shop.pem"))
    assert (alpha.role, alpha.name, alpha.hosts) == ("node", "alpha", ("a.b", "10.0.0.1"))
    assert (shop.role, shop.name, shop.hosts) == ("client", "shop", ())
    assert f"antiphon node --listen HOST:PORT --tls-certificate {out}/alpha.pem" in called.said
    assert f"antiphon sub TOPIC --tls-certificate {out}/shop.pem" in called.said


def test_it_overwrites_nothing_and_uses_the_authority_that_is_there(tmp_path: Path, command: Command) -> None:
    out = tmp_path / "certs"
    assert command("certs", "--out", out).code == 0
    before = {path: path.read_bytes() for path in out.iterdir()}
    called = command("certs", "--out", out, "--client", "second", "--client", "client")
    assert called.code == 2
    assert "client.pem exists" in called.complained
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    called = command("certs", "--out", out, "--client", "second", "--json")
    assert json.loads(called.said)["is_new"] is False
    assert before.items() <= {path: path.read_bytes() for path in out.iterdir()}.items()


@pytest.mark.parametrize("name", ["", "a/b", "a b", "../x", "authority", "x" * 65])
def test_what_is_no_name_is_refused(tmp_path: Path, command: Command, name: str) -> None:
    called = command("certs", "--out", tmp_path / "certs", "--node", name)
    assert called.code == 2
    assert "antiphon:" in called.complained


def test_a_token_is_shown_once_and_its_hash_is_for_the_file(tmp_path: Path, command: Command) -> None:
    found = json.loads(command("certs", "token", "shop", "--json").said)
    assert found["hash"] == token_hash(found["token"])
    file = tmp_path / "shop.token"
    called = command("certs", "token", "shop", "--out", file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    assert token not in called.said
    assert f'[clients.shop]\ntoken = "{token_hash(token)}"' in called.said
    assert command("certs", "token", "shop", "--out", file).code == 2
    assert file.read_text().strip() == token


def test_a_cluster_with_certificates_tokens_and_rights(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, file, rights = tmp_path / "certs", tmp_path / "shop.token", tmp_path / "rights.toml"
    assert command("certs", "--out", out, "--node", "alpha", "--client", "operator").code == 0
    lines = command("certs", "token", "shop", "--out", file).said.partition("rights:\n")[2]
    rights.write_text(lines.replace("publish = []", 'publish = ["room"]'))
    trust = ("--tls-authority", out / "authority.pem")
    own = ("--tls-certificate", out / "alpha.pem", "--tls-key", out / "alpha.key", *trust)
    with started("node", "--json", *own, "--rights", rights) as node:
        servers = ("--servers", first_line(node)["address"])
        assert command("pub", "room", "hello", *servers, *trust, "--token-file", file).code == 0
        monkeypatch.setenv("ANTIPHON_TOKEN", file.read_text().strip())
        assert command("pub", "room", "hello", *servers, *trust).code == 0
        denied = command("pub", "other", "hello", *servers, *trust)
        assert (denied.code, "'shop' may not publish on 'other'" in denied.complained) == (1, True)
        assert "may not look into nodes" in command("top", "--once", *servers, *trust).complained
        monkeypatch.setenv("ANTIPHON_TOKEN", "wrong")
        wrong = command("pub", "room", "hello", *servers, *trust)
        assert (wrong.code, "the token is not known here" in wrong.complained) == (1, True)
        monkeypatch.delenv("ANTIPHON_TOKEN")
        rights.write_text(rights.read_text() + "\n[clients.operator]\nadmin = true\n")
        node.send_signal(signal.SIGHUP)
        operator = ("--tls-certificate", out / "operator.pem", "--tls-key", out / "operator.key", *trust)
        seen = command("top", "--once", "--interval", 0.1, "--json", *servers, *operator)
        assert json.loads(seen.said)["nodes"][0]["clients"] == 1


def test_a_node_that_would_be_open_to_all_says_what_to_do(command: Command) -> None:
    called = command("node", "--listen", "0.0.0.0:0")
    assert called.code == 2
    assert "antiphon certs" in called.complained and "--insecure" in called.complained
    for option in ("--tls-certificate", "--tls-key"):
        called = command("pub", "room", "x", option, "some.pem")
        assert (called.code, "--tls-authority" in called.complained) == (2, True)


def test_identities_are_read_from_what_openssl_reads() -> None:
    assert identity_in((("URI", "antiphon://client/a-b.c_1"),)) is not None
