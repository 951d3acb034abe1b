"""``antiphon certs``: makes an authority for development, certificates of nodes and clients, and tokens."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli import output
from antiphon.kernel.errors import UsageError

app = typer.Typer(name="certs", no_args_is_help=False, invoke_without_command=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.callback()
def certs(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", metavar="DIRECTORY", help="The directory to write to.")] = Path("certs"),
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="A certificate for this node; repeatable.", show_default=False),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="A certificate for this client; repeatable.", show_default=False),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A host name or address of the nodes; repeatable. By default this machine alone.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days until the certificates expire.")] = 365,
    json: Json = False,
) -> None:
    """Make an authority, and certificates of nodes and clients that it signs; or, with [bold]token[/], a token.

    Without names it makes one certificate for a node and one for a client, called node and client. If the directory has
    an authority already, that one signs. Nothing is overwritten, and only you can read the files. This is meant for
    development and small clusters; larger ones have an authority of their own.

    Example: antiphon certs --node alpha --node beta --host 10.0.0.1 --host 10.0.0.2 --client shop
    """
    if context.invoked_subcommand is not None:
        return
    from antiphon.transport.certificates import DEFAULT_HOSTS, Authority, check_absent
    from antiphon.transport.tls import CLIENT, NODE

    nodes = node if node is not None or client is not None else ["node"]
    clients = client if node is not None or client is not None else ["client"]
    wanted = [(NODE, name) for name in nodes or ()] + [(CLIENT, name) for name in clients or ()]
    names = [name for _, name in wanted]
    if len(set(names)) != len(names):
        raise UsageError("two nodes or clients have the same name, and files are named after them; rename one")
    # Checked before anything is written: either all files are written, or none.
    for name in names:
        check_absent(out, name)
    is_new = not Authority.exists_in(out)
    authority = Authority.make(out, days=days) if is_new else Authority.open(out)
    made = [(role, *authority.issue(role, name, host or DEFAULT_HOSTS, days)) for role, name in wanted]
    if json:
        about = [{"role": role, "certificate": str(one), "key": str(key)} for role, one, key in made]
        output.print_json({"authority": str(authority.certificate_file), "is_new": is_new, "certificates": about})
        return
    print(f"{'made' if is_new else 'used'} the authority {authority.certificate_file}")
    for role, certificate, key in made:
        print(f"made {certificate} and {key.name} for a {role}")
    print_next(authority.certificate_file, made)


def print_next(authority: Path, made: list[tuple[str, Path, Path]]) -> None:
    """Print how the files are used."""
    from antiphon.transport.tls import NODE

    trust = f"--tls-authority {shlex.quote(str(authority))}"
    print("next:")
    for role, certificate, key in made:
        own = f"--tls-certificate {shlex.quote(str(certificate))} --tls-key {shlex.quote(str(key))} {trust}"
        print(f"  antiphon node --listen HOST:PORT {own}" if role == NODE else f"  antiphon sub TOPIC {own}")
    print(f"  keep {authority.with_suffix('.key')} away from nodes: with it anyone can impersonate any node or client")


@app.command("revoke")
def revoke(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The nodes or clients.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", metavar="DIRECTORY", help="The directory of the authority.")] = Path(
        "certs"
    ),
    json: Json = False,
) -> None:
    """Put certificates on the list of revoked ones, for [bold]antiphon node --tls-revoked[/].

    Copy the list to the nodes: each notices it within seconds, and disconnects the holders.

    Example: antiphon certs revoke shop
    """
    from antiphon.transport.certificates import Authority

    path = Authority.open(out).revoke(names)
    if json:
        output.print_json({"revoked": str(path), "names": names})
        return
    print(f"wrote {path}; nodes that were started with --tls-revoked look at their copy every second")


@app.command("token")
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the client.")] = "client",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the token to a file that only you can read.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a token for a client, and print the lines for the rights file, which holds only its hash.

    Example: antiphon certs token shop --out shop.token
    """
    from antiphon.node.acl import new_token, token_hash
    from antiphon.transport.certificates import write_secret
    from antiphon.transport.tls import NAME_PATTERN

    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name of a client: use letters, digits, dots, - and _, 64 at most")
    made = new_token()
    if out is not None:
        write_secret(out, f"{made}\n".encode())
    if json:
        shown = {"token_file": str(out)} if out is not None else {"token": made}
        output.print_json({"client": name, **shown, "hash": token_hash(made)})
        return
    if out is None:
        print(f"token: {made}")
        print("give it to the client alone: in a file for --token-file, or as ANTIPHON_TOKEN. It is not shown again.")
    else:
        print(f"wrote {out}; give it to the client alone, for --token-file")
    quoted = f'"{name}"' if "." in name else name
    print(f'for the file of rights:\n\n[clients.{quoted}]\ntoken = "{token_hash(made)}"\npublish = []\nsubscribe = []')
