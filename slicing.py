"""Gives each C file that mypyc writes only the declarations that it uses, so that a change recompiles few of them.

mypyc writes headers that declare everything in a group of modules, and numbers all literals of the group in one array.
A new attribute or string in one module therefore changes what every C file includes, and the numbers in most of them.
Here each C file gets a slice of the headers instead. It refers to a literal, and to a function of another group, by a
name that depends on nothing else. The file that defines the arrays says at which place of an array each name is.
So the objects of other modules stay valid, and the compiler reads a tenth of the declarations.

The names of places are aliases of the assembler on Linux; elsewhere the files stay as mypyc writes them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

WORD = re.compile(r"\b(?:CPy\w+|\w+___\w+|tuple_T\w+)")
"""What a name looks like that a header declares."""

DECLARED = re.compile(r"(\w+)[(\[;]")
LITERAL = re.compile(r"CPyStatics\[(\d+)\](.*/\* (.*) \*/)$", re.MULTILINE)
FOREIGN = re.compile(r"\bexports_(\w+)\.(\w+)")
FIELD = re.compile(r"\*\(?(\w+)[);]")
HIDDEN = 'extern __attribute__((visibility("hidden")))'
POINTER_BYTES = 8


class Declaration(NamedTuple):
    """What a header declares under a name, and the words in it."""

    name: str
    text: str
    words: frozenset[str]


class Headers:
    """The headers of a group, and those of the groups that it uses."""

    def __init__(self, group: str, folder: Path) -> None:
        self.includes: list[str] = []
        self.declarations: list[Declaration] = []
        self.tables: dict[str, dict[str, str]] = {}
        """For each other group, the fields of its table of functions, in their order."""
        self._seen: set[str] = set()
        self._read(folder / f"__native_internal_{group}.h")
        self.names = frozenset(each.name for each in self.declarations)
        self._by_name = {each.name: each for each in self.declarations}

    def slice_for(self, words: set[str]) -> list[str]:
        """The declarations of some names, and those that these need, in their order."""
        waiting = sorted(words & self.names)
        wanted = set(waiting)
        while waiting:
            more = (self._by_name[waiting.pop()].words & self.names) - wanted
            wanted |= more
            waiting += sorted(more)
        return [each.text for each in self.declarations if each.name in wanted]

    def _read(self, path: Path) -> None:
        self._seen.add(path.name)
        lines = iter(path.read_text().splitlines())
        for line in lines:
            if line.startswith("#include"):
                self._include(path.parent, line)
            elif line.startswith("struct export_table_") and line.endswith("{"):
                fields = list(until("};", lines))[:-1]
                self.tables[line.split()[1].removeprefix("export_table_")] = {
                    name_of(FIELD, each): each for each in fields
                }
            elif line.startswith("typedef struct {"):
                text = [line, *until("} ", lines)]
                self._declare(text[-1].strip("} ;"), text)
            elif line.startswith("#ifndef MYPYC_DECLARED_"):
                self._declare(line.removeprefix("#ifndef MYPYC_DECLARED_"), [line, *until("#endif", lines)])
            elif line.startswith("extern "):
                self._declare(name_of(DECLARED, line), [line])

    def _include(self, folder: Path, line: str) -> None:
        name = line.split()[1].strip('<">')
        if not name.startswith("__native"):
            self.includes += [] if line in self.includes else [line]
        elif name not in self._seen:
            self._read(folder / name)

    def _declare(self, name: str, lines: list[str]) -> None:
        text = "\n".join(lines)
        self.declarations.append(Declaration(name, text, frozenset(WORD.findall(text)) - {name}))


def until(start: str, lines: Iterator[str]) -> Iterator[str]:
    """The lines up to the first that starts so, that one too."""
    for line in lines:
        yield line
        if line.startswith(start):
            return


def name_of(pattern: re.Pattern[str], line: str) -> str:
    """The name that a line declares."""
    found = pattern.search(line)
    assert found is not None, f"a declaration of mypyc without a name: {line}"
    return found[1]


class Slicer:
    """Writes the C files of one group anew."""

    def __init__(self, group: str, sources: Iterable[Path]) -> None:
        self._own = [path for path in sources if path.name.startswith(f"__native_{group}")]
        self._main = next(path for path in self._own if path.name == f"__native_{group}.c")
        self._headers = Headers(group, self._main.parent)
        self._texts = {path: path.read_text() for path in self._own}
        self._unclear = self._unclear_literals()
        self._places: dict[str, tuple[str, int]] = {}
        """For each name that a file uses, an array and the number of the element."""

    def write_into(self, target: Path) -> dict[Path, Path]:
        """Write the files into a folder, and answer where each of them is now."""
        target.mkdir(parents=True, exist_ok=True)
        moved = {path: target / path.name for path in self._own}
        for path, text in self._texts.items():
            if path != self._main:
                write_if_changed(moved[path], self._sliced(text))
        write_if_changed(moved[self._main], self._texts[self._main] + "".join(self._aliases()))
        return moved

    def _unclear_literals(self) -> set[str]:
        """The comments that stand for more than one literal."""
        numbers: dict[str, set[str]] = {}
        for text in self._texts.values():
            for number, _, comment in LITERAL.findall(text):
                numbers.setdefault(comment, set()).add(number)
        return {comment for comment, found in numbers.items() if len(found) > 1}

    def _sliced(self, text: str) -> str:
        body = text.split("\n", 2)[2]
        foreign: dict[str, str] = {}

        def name_literal(found: re.Match[str]) -> str:
            if found[3] in self._unclear:
                return found[0]
            name = f"CPyLiteral_{hashlib.sha256(found[3].encode()).hexdigest()[:24]}"
            self._places[name] = ("CPyStatics", int(found[1]))
            foreign[name] = f"{HIDDEN} PyObject *{name};"
            return f"{name}{found[2]}"

        def name_foreign(found: re.Match[str]) -> str:
            name = f"exports_{found[1]}__{found[2]}"
            if name not in self._places:
                self._places[name] = (f"exports_{found[1]}", list(self._headers.tables[found[1]]).index(found[2]))
            field = self._headers.tables[found[1]][found[2]].strip()
            foreign[name] = f"{HIDDEN} {re.sub(FIELD, lambda match: match[0].replace(match[1], name), field, count=1)}"
            return name

        body = FOREIGN.sub(name_foreign, LITERAL.sub(name_literal, body))
        words = set(WORD.findall(body))
        for declaration in foreign.values():
            words |= set(WORD.findall(declaration))
        slices = [*self._headers.includes, *self._headers.slice_for(words), *foreign.values()]
        return "\n".join((*slices, body))

    def _aliases(self) -> Iterator[str]:
        """The names of the elements of arrays."""
        for name, (array, number) in sorted(self._places.items()):
            place = f"{array} + {POINTER_BYTES * number}"
            yield f'__asm__(".globl {name}\\n.hidden {name}\\n.set {name}, {place}\\n");\n'
            if array.startswith("exports_"):
                group, field = array.removeprefix("exports_"), name.removeprefix(f"{array}__")
                offset = f"offsetof(struct export_table_{group}, {field})"
                yield f'_Static_assert({offset} == {POINTER_BYTES * number}, "a table of pointers");\n'


def write_if_changed(path: Path, text: str) -> None:
    """Write a file, unless it is as it should be: an object that is newer than its source stays valid."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
