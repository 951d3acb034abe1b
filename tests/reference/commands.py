"""The page about the commands, from what the commands say about themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from antiphon.cli.main import OWN, RESEARCH
from antiphon.plugins import LABORATORY

INTRODUCTION: Final = """\
# Commands

`antiphon COMMAND --help` says the same in a terminal. `antiphon --version` prints the version, and whether the modules
are compiled. Exit codes: 0 everything is fine, 1 a check or the environment failed, 2 misuse. Results are printed on
standard output, everything else on standard error. `--json` prints the result for programs and nothing else. The
variable `NO_COLOR` turns colours off, and `COLUMNS` sets the width of tables.

`antiphon --install-completion` lets the Tab key complete commands and flags in bash, zsh, fish and PowerShell, from the
next terminal on. `antiphon --show-completion` prints the lines, for users who install them by hand.
"""


class Parameter(NamedTuple):
    """An argument or a flag of a command, read from the signature of its function."""

    names: str
    meaning: str


def sentences(text: str) -> str:
    """The help of a command as paragraphs; examples, which four spaces separate, are code."""
    shown = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        said, *examples = re.split(r"Examples?(?:, [\w ]+)?: ", paragraph)
        if said.strip():
            shown.append(re.sub(r"\[bold\](.*?)\[/\]", r"`\1`", " ".join(said.split())))
        for example in examples:
            lines = [" ".join(line.split()) for line in re.split(r" {4,}", example)]
            shown.append("```\n" + re.sub(r"\[/?\w*\]", "", "\n".join(lines)) + "\n```")
    return "\n\n".join(shown)


def parameters_of(function: Callable[..., Any]) -> Iterator[Parameter]:
    """The arguments and flags that a command shows."""
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if hints[name] is typer.Context:
            continue
        kind, about = hints[name].__origin__, hints[name].__metadata__[0]
        if about.hidden:
            continue
        plain = name.replace("_", "-")
        if isinstance(about, ArgumentInfo):
            shown = f"`{about.metavar or plain.upper()}`"
        else:
            # With Annotated the first flag stands where a default would.
            words = [each for each in (about.default, *(about.param_decls or ())) if isinstance(each, str)]
            flags = [each for word in words for each in word.split("/")] or [f"--{plain}"]
            value = "" if bool in {kind, *get_args(kind)} else f" `{about.metavar or value_of(kind)}`"
            shown = ", ".join(f"`{flag}`" for flag in flags) + value
        yield Parameter(in_cell(shown), in_cell(meaning_of(about, kind, parameter.default)))


def in_cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def value_of(kind: Any) -> str:
    """The kind of value that a flag takes."""
    words = [word for word in get_args(kind) if isinstance(word, str)]
    if words:
        return "|".join(words)
    (plain, *_) = [each for each in (*get_args(kind), kind) if each is not type(None)]
    if get_args(plain):
        return value_of(plain)
    return {int: "N", float: "X", str: "TEXT", Path: "PATH"}.get(plain, "VALUE")


def meaning_of(about: Any, kind: Any, default: Any) -> str:
    """The help of a flag, with its default where the help shows it."""
    text = about.help or ""
    if about.show_default is True and kind is not bool and default not in {None, "", inspect.Parameter.empty}:
        text += f" The default is `{default}`."
    if about.envvar:
        text += f" Also the variable `{about.envvar}`."
    return text


def lines_of(name: str, function: Callable[..., Any], level: int) -> Iterator[str]:
    """The section of a command."""
    yield f"{'#' * level} `antiphon {name}`\n"
    yield sentences(inspect.getdoc(function) or "") + "\n"
    found = list(parameters_of(function))
    if found:
        yield "| argument or flag | meaning |\n|---|---|"
        yield from (f"| {each.names} | {each.meaning} |" for each in found)
        yield ""


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION]
    panel = ""
    for name, about in OWN.items():
        if about.panel != panel:
            panel = about.panel
            lines.append(f"## {panel}\n")
        command = EntryPoint(name, about.home, "").load()
        if isinstance(command, typer.Typer):
            lines.append(f"### `antiphon {name}`\n\n{about.summary}\n")
            if command.registered_callback is not None and command.registered_callback.callback is not None:
                own = command.registered_callback.callback
                if list(parameters_of(own)):
                    lines += list(lines_of(name, own, 3))[1:]
            for each in command.registered_commands:
                assert each.callback is not None
                lines += lines_of(f"{name} {each.name or each.callback.__name__}", each.callback, 4)
        else:
            lines += lines_of(name, command, 3)
    lines.append(f"## {RESEARCH}\n")
    lines.append(
        f"`antiphon reproduce`, `bench`, `report` and `universe` belong to the distribution `{LABORATORY}`.\n"
        "[Published experiments](../reproducing.md), [reports](../reports.md) and [universes](../universes.md) "
        "describe them.\n"
    )
    return "\n".join(lines)
