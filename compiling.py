"""How the distributions of this repository are compiled: with mypyc, in pieces, on all cores, and only what changed.

The product and the laboratory are two groups of compiled modules. Classes of the laboratory inherit from classes of the
product, so mypyc looks at the sources of both, once, and writes the C files of both into ``build``:

1. ``python compiling.py`` writes C (``generate``), compiles it and links it (:class:`ParallelBuild`), for both groups.
2. ``setup.py`` and ``research/setup.py`` do the same for the group that they install, and find it done.

Without a C compiler, or with ANTIPHON_PURE=1, the same sources are installed as plain Python; ``antiphon --version``
says which of the two is running.
"""

import ast
import gc
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

from slicing import Slicer, write_if_changed

REPOSITORY = Path(__file__).resolve().parent

PRODUCT = (
    "kernel/*.py",
    "orders/*.py",
    "fabrics/*/*.py",
    "fabrics/*/*/*.py",
    "placement/assignment.py",
    "placement/newcomers.py",
    "placement/tree_cost.py",
    "trace/recorder.py",
    "simulator/engine/actions.py",
    "simulator/engine/calendar.py",
    "simulator/engine/connections.py",
    "simulator/engine/engine.py",
    "simulator/engine/events.py",
    "simulator/engine/link_watches.py",
    "simulator/engine/node.py",
    "simulator/engine/reachability.py",
    "simulator/engine/transmission.py",
    "simulator/network/*.py",
    "api/batch.py",
    "api/batch_codec.py",
    "api/heard.py",
    "api/outbox.py",
    "api/publisher.py",
    "api/receipts.py",
    "api/segment.py",
    "api/subscription.py",
    "api/topic_names.py",
    "api/waiting.py",
    "api/topic_state.py",
    "api/topic_trie.py",
    "runtime/clocks.py",
    "sessions/dedup.py",
    "sessions/replay_buffer.py",
    "transport/codec.py",
    "transport/framing.py",
    "transport/incoming.py",
    "transport/links.py",
    "transport/turn_share.py",
    "client/connection.py",
    "client/client_subscriptions.py",
    "node/gateway/client_relay.py",
    "node/gateway/client_session.py",
    "node/gateway/accounts.py",
    "node/environment.py",
    "node/loop.py",
    "node/topic_registry.py",
    "node/open_receipts.py",
    "node/write_scheduler.py",
)
DESCRIPTIONS = "assembly"
"""The folder of a fabric that describes it to hosts. It runs once, and its classes are structs of msgspec."""

LABORATORY = ("protocols/*/*.py",)
DOCUMENTED = ("antiphon.api.batch", "antiphon.api.publisher")
"""Compiled modules with classes that applications hold: ``help`` shows their docstrings, which mypyc leaves out."""

GROUPS = {"antiphon": (Path("src/antiphon"), PRODUCT), "antiphon_lab": (Path("research/antiphon_lab"), LABORATORY)}
"""For each group its package, from the root of the repository, and what is compiled of it."""

BUILD = REPOSITORY / "build"
GENERATED = BUILD / "c"
LINKED = BUILD / "linked"
EXTENSIONS = BUILD / "extensions.json"
"""What the last run of mypyc wrote, and for which sources."""


def has_compiler() -> bool:
    """Whether a C compiler can be called under one of its usual names, and has Python's headers to work with."""
    compiler = any(shutil.which(name) for name in (os.environ.get("CC", "cc").split()[0], "gcc", "clang"))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").exists()


def is_compiled(path: Path) -> bool:
    """Whether a module of a compiled folder is compiled itself."""
    return path.name not in ("__init__.py", "fabric.py") and path.parent.name != DESCRIPTIONS


def modules() -> dict[str, list[str]]:
    """The files that are compiled, by group; a distribution of the product alone has no laboratory beside it."""
    found = {}
    for group, (package, patterns) in GROUPS.items():
        paths = [path for pattern in patterns for path in (REPOSITORY / package).glob(pattern)]
        found[group] = sorted(str(path.relative_to(REPOSITORY)) for path in paths if is_compiled(path))
    return {group: files for group, files in found.items() if files}


def extensions(group: str) -> list[Extension]:
    """The compiled modules of a group; none where they cannot be built."""
    if os.environ.get("ANTIPHON_PURE") or not has_compiler():
        print("antiphon: installing without compiled modules; simulations will be slower", file=sys.stderr)
        return []
    digest = digest_of_sources()
    if not EXTENSIONS.exists() or json.loads(EXTENSIONS.read_text())["digest"] != digest:
        # In a process of its own, which leaves nothing behind in memory.
        subprocess.run(
            [sys.executable, str(REPOSITORY / "compiling.py"), "generate", digest], cwd=REPOSITORY, check=True
        )
    return [Extension(**each) for each in json.loads(EXTENSIONS.read_text())["extensions"][group]]


def digest_of_sources() -> str:
    """A digest of everything that C files follow from: all sources that compiled modules import, and the compiler."""
    digest = hashlib.sha256(f"{os.path.realpath(sys.prefix)} {sys.version} {version('mypy')}".encode())
    waiting = [REPOSITORY / file for files in modules().values() for file in files]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        seen.update(more := {each for each in imported_files(path) if each not in seen})
        waiting += more
    for path in sorted([*seen, REPOSITORY / "compiling.py", REPOSITORY / "slicing.py"]):
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def imported_files(path: Path) -> Iterator[Path]:
    """The files of the two packages that a module imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from files_of(node.module)
            for alias in node.names:
                yield from files_of(f"{node.module}.{alias.name}")


def files_of(module: str) -> Iterator[Path]:
    """The file of a module of the two packages."""
    package, _, rest = module.partition(".")
    if package in GROUPS:
        place = REPOSITORY / GROUPS[package][0] / rest.replace(".", "/")
        yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists())


def generate(digest: str) -> None:
    """Write the C files of all groups, and what is to be built from them."""
    from mypyc.build import mypycify

    groups = [(files, group) for group, files in modules().items()]
    arguments = ["--strict", f"--cache-dir={stubs_cache()}", "--no-sqlite-cache"]
    arguments += [file for files, _ in groups for file in files]
    built = mypycify(
        arguments, opt_level="3", debug_level="0", multi_file=True, separate=groups, target_dir=str(GENERATED)
    )
    for module in DOCUMENTED:
        (source,) = files_of(module)
        add_docstrings(source, GENERATED / f"__native_{module.replace('.', '___')}.c")
    # What mypyc has in memory need not be looked through once more.
    gc.freeze()
    described = {group: [] for _, group in groups}
    for each in built:
        group = each.name.partition(".")[0].removesuffix("__mypyc")
        sources = [str(Path(source).resolve()) for source in each.sources]
        if each.name.endswith("__mypyc") and sys.platform == "linux":
            moved = Slicer(group, [Path(source) for source in sources]).write_into(GENERATED / "sliced")
            sources = [str(moved.get(Path(source), source)) for source in sources]
        described[group].append({
            "name": each.name,
            "sources": sources,
            "include_dirs": [str(Path(folder).resolve()) for folder in each.include_dirs],
            "extra_compile_args": each.extra_compile_args,
        })  # fmt: skip
    write_if_changed(EXTENSIONS, json.dumps({"digest": digest, "extensions": described}))


def add_docstrings(source: Path, generated: Path) -> None:
    """Write the docstrings of the classes of a module into the tables of its C file."""
    text = generated.read_text()
    prefix = generated.stem.removeprefix("__native_")
    for kind in ast.parse(source.read_bytes()).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        documented = {each.name: ast.get_docstring(each) for each in kind.body if isinstance(each, ast.FunctionDef)}
        places = {rf'(tp_doc = PyDoc_STR\("{kind.name}\([^"]*--\\n\\n)(?=")': ast.get_docstring(kind)}
        for name, words in documented.items():
            places[rf'(CPyPy_{prefix}___{kind.name}___{name},\s[^"}}]*PyDoc_STR\("[^"]*--\\n\\n)(?=")'] = words
            places[rf"(\(getter\){prefix}___{kind.name}_get_{name},\s+NULL, )NULL(?=, NULL)"] = words
        for place, words in places.items():
            if words is not None:
                literal = json.dumps(words)
                is_inside = place.endswith('(?=")')
                text = re.sub(place, lambda at, put=literal[1:-1] if is_inside else literal: at[1] + put, text)
    generated.write_text(text)


def stubs_cache() -> Path:
    """What mypy remembers of the standard library.

    What it remembers of compiled modules lacks the C files and headers of librt that a build needs, and is deleted.
    """
    cache = BUILD / "mypy"
    for package in GROUPS:
        for folder in cache.glob(f"*/{package}"):
            shutil.rmtree(folder)
    return cache


def is_current(built: Path, inputs: list[Path]) -> bool:
    """Whether a file is there and newer than what it was built from."""
    try:
        return all(path.stat().st_mtime_ns <= built.stat().st_mtime_ns for path in inputs)
    except FileNotFoundError:
        return False


class ParallelBuild(build_ext):
    """Compiles and links on all cores, only what changed, and shows how far it has come."""

    def get_source_files(self) -> list[str]:
        """None for an archive of sources: the C files are generated from what it has, and their paths are absolute."""
        return []

    def build_extensions(self) -> None:
        """Build everything in a folder that both distributions share, and copy what this one needs."""
        tasks = {self._object_of(source): (source, each) for each in self.extensions for source in each.sources}
        settings = self._write_settings()
        stale = [(built, *task) for built, task in tasks.items() if not is_current(built, [Path(task[0]), settings])]
        # The largest files first, so that no core is left alone with one in the end.
        stale.sort(key=lambda task: -os.path.getsize(task[1]))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for count, _ in enumerate(pool.map(lambda task: self._compile(*task), stale), 1):
                if count % 40 == 0 or 40 < count == len(stale):
                    print(f"antiphon: compiled {count} of {len(stale)} files", file=sys.stderr, flush=True)
            list(pool.map(self._link, self.extensions))

    def _write_settings(self) -> Path:
        """A file that changes when objects are to be built with another compiler or other options."""
        path = BUILD / "objects" / "settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        options = self.extensions[0].extra_compile_args
        write_if_changed(path, f"{sys.version} {version('mypy')} {self.compiler.compiler_so} {options}")
        return path

    def _object_of(self, source: str) -> Path:
        name = str(Path(source).relative_to(BUILD))
        return Path(self.compiler.object_filenames([name], output_dir=str(BUILD / "objects"))[0])

    def _compile(self, built: Path, source: str, extension: Extension) -> None:
        built.parent.mkdir(parents=True, exist_ok=True)
        folders = [*extension.include_dirs, *self.compiler.include_dirs]
        arguments = self.compiler._get_cc_args([f"-I{folder}" for folder in folders], False, None)
        self.compiler._compile(str(built), source, Path(source).suffix, arguments, extension.extra_compile_args, [])

    def _link(self, extension: Extension) -> None:
        linked = LINKED / self.get_ext_filename(extension.name)
        objects = [self._object_of(source) for source in extension.sources]
        if not is_current(linked, objects):
            # Never in place: a program that runs may have loaded it.
            linked.unlink(missing_ok=True)
            self.compiler.link_shared_object(
                [str(each) for each in objects],
                str(linked),
                libraries=self.get_libraries(extension),
                library_dirs=extension.library_dirs,
                export_symbols=self.get_export_symbols(extension),
                build_temp=str(BUILD / "objects"),
                target_lang="c",
            )
        target = Path(self.get_ext_fullpath(extension.name))
        if target != linked:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(linked, target)


def build_all() -> None:
    """Compile and link the modules of all groups."""
    built = [each for group in modules() for each in extensions(group)]
    command = ParallelBuild(Distribution({"name": "antiphon", "ext_modules": built}))
    command.build_lib = str(LINKED)
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["generate"]:
        generate(sys.argv[2])
    else:
        build_all()
