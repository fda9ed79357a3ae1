"""Imports point one way, files and sockets are touched in few places, and printing is the command's business."""

import ast
import re
from collections.abc import Container
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src/clew"

# a module may import what stands above it, and within its own package
ORDER = [
    ["_version"],
    ["errors"],
    ["utils"],
    ["learning"],
    ["parallel"],
    ["shards"],
    ["models"],
    ["estimators"],
    ["preprocessing"],
    ["sequence"],
    ["datasets"],
    ["tracking"],
    ["simulation"],
    ["annotation"],
    ["napari"],
    ["app"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# only for annotations of types
SHORTHANDS = {("utils/progress.py", "learning")}

TOUCH_FILES = (
    "parallel.py",
    "utils/storage.py",
    "estimators/persistence.py",
    "tracking/io/",
    "sequence/files.py",
    "sequence/spacy_docs.py",
    "simulation/write.py",
    "tracking/movie.py",
    "tracking/segmentation/methods.py",  # weights of networks
    "tracking/measurement/store.py",
    "tracking/training/generic_weights.py",  # a resource of the package
    "annotation/files.py",
    "annotation/initial_weights.py",
    "annotation/store/store.py",
    "annotation/store/sqlite.py",
    "annotation/store/acknowledged.py",
    "app/",
)
PRINT = ("cli/", "utils/progress.py")
FILE_CALLS = {
    "open",
    "fdopen",
    "read_text",
    "read_bytes",
    "write_text",
    "save",
    "savez",
    "savez_compressed",
    "savetxt",
    "load",
    "loadtxt",
    "genfromtxt",
    "fromfile",
    "tofile",
    "memmap",
    "unlink",
    "rename",
    "rmtree",
    "to_csv",
    "imread",
    "imwrite",
}
# calls of these names that end in utils/storage.py, where the file is touched
OWN_CALLS = {
    "archive.save",
    "archive.load",
    "svm.save",
    "tracker.save",
    "Store.open",
    "stored.load",
    "MovieSession.open",
    "PageSession.open",
    "Annotator.open",
}
FILE_MODULES = {
    "socket",
    "socketserver",
    "http",
    "urllib",
    "ssl",
    "sqlite3",
    "tempfile",
    "shutil",
    "pickle",
    "shelve",
    "zipfile",
    "tarfile",
    "requests",
    "uvicorn",
    "starlette",
    "fastapi",
    "tifffile",
    "zarr",
    "mmap",
}
FILES = sorted(
    path.relative_to(SOURCE).as_posix()
    for path in SOURCE.rglob("*.py")
    if path != SOURCE / "__init__.py"
)


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse((SOURCE / file).read_text(), file)


def layer_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def imported_layers(file: str, tree: ast.AST) -> list[tuple[int, str]]:
    """The layers of clew that a file imports, with their lines; a bare `import clew` counts as the top."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # a relative import is resolved by its level: "." in learning/cccp.py is clew.learning
            package = ["clew", *file.split("/")[:-1]]
            base = package[: len(package) + 1 - node.level] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names = (
                [f"clew.{alias.name}" for alias in node.names]
                if stem == "clew"
                else [stem]
            )
        else:
            continue
        found += [
            (node.lineno, [*name.split("."), "the package itself"][1])
            for name in names
            if name.split(".")[0] == "clew"
        ]
    return found


def violations(file: str, tree: ast.AST) -> list[str]:
    layer = layer_of(file)
    rank = RANK.get(layer, len(ORDER))
    return [
        f"{file}:{line}: {layer} imports {other}"
        for line, other in imported_layers(file, tree)
        if other != layer
        and RANK.get(other, len(ORDER)) >= rank
        and (file, other) not in SHORTHANDS
    ]


def calls(tree: ast.AST, names: Container[str]) -> list[tuple[int, str]]:
    """(line, name with its object) of every call of one of the names."""
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        (at.lineno, ast.unparse(at))
        for at in called
        if (isinstance(at, ast.Name) and at.id in names)
        or (isinstance(at, ast.Attribute) and at.attr in names)
    ]


def file_touches(tree: ast.AST) -> list[str]:
    found = [
        f"{line}: calls {whole}"
        for line, whole in calls(tree, FILE_CALLS)
        if ".".join(whole.split(".")[-2:]) not in OWN_CALLS
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        else:
            continue
        found += [
            f"{node.lineno}: imports {module}"
            for module in modules
            if module.split(".")[0] in FILE_MODULES
        ]
    return found


def prints(tree: ast.AST) -> list[str]:
    found = [
        f"{line}: calls {whole}"
        for line, whole in calls(tree, {"print", "echo", "Console"})
    ]
    streams = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")
    ]
    return found + [
        f"{at.lineno}: uses {ast.unparse(at)}"
        for at in streams
        if ast.unparse(at).startswith("sys.")
    ]


def list_findings(rule, files) -> list[str]:
    """What a rule finds in files, each with its file and line."""
    return [f"{file}:{found}" for file in files for found in rule(tree_of(file))]


def test_every_module_has_its_place():
    unplaced = [file for file in FILES if layer_of(file) not in RANK]
    assert unplaced == [], "add them to the ORDER of this test"


def test_imports_point_one_way():
    assert [found for file in FILES for found in violations(file, tree_of(file))] == []


def test_files_and_sockets_are_touched_in_few_places():
    others = [file for file in FILES if not file.startswith(TOUCH_FILES)]
    assert list_findings(file_touches, others) == []


def test_only_the_command_prints():
    others = [file for file in FILES if not file.startswith(PRINT)]
    assert list_findings(prints, others) == []


PAGE = (SOURCE.parents[1] / "docs/dev/architecture.md").read_text(encoding="utf-8")


def test_architecture_page_names_every_package():
    packages = {
        path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")
    } - {"."}
    missing = [
        package
        for package in sorted(packages)
        if f"{package.split('/')[-1]}/" not in PAGE
    ]
    assert missing == [], "describe them in docs/dev/architecture.md"


def test_modules_that_the_architecture_page_names_exist():
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", PAGE)
    folders = (SOURCE, SOURCE / "tracking", SOURCE / "app")
    missing = [
        name
        for name in named
        if not any(
            (folder / name).exists() or (folder / f"{name}.py").exists()
            for folder in folders
        )
    ]
    assert len(named) > 30
    assert missing == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("learning/task.py", "from clew.models.base import Model"),
        ("learning/task.py", "from ..models import base"),
        ("learning/task.py", "from .. import models"),
        ("models/base.py", "import clew.estimators.svm"),
        ("models/base.py", "from clew import estimators"),
        ("models/base.py", "import clew"),
        ("utils/storage.py", "def f():\n    from clew import estimators"),
        ("app/server.py", "from clew.cli import letters"),
        ("estimators/persistence.py", "from clew.unheard_of import x"),
    ],
)
def test_a_wrong_import_is_found(file, line):
    assert violations(file, ast.parse(line)) != []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("models/base.py", "from clew.learning.task import Task"),
        ("models/base.py", "from .labels import x"),
        ("models/base.py", "from ..learning import task"),
        ("cli.py", "from clew import estimators"),
    ],
)
def test_a_right_import_is_not(file, line):
    assert violations(file, ast.parse(line)) == []


@pytest.mark.parametrize(
    "line",
    [
        "open('a')",
        "p.write_text('a')",
        "np.save('a', b)",
        "import socket",
        "from pickle import dumps",
    ],
)
def test_a_touched_file_is_found(line):
    assert file_touches(ast.parse(line)) != []


@pytest.mark.parametrize(
    "line", ["print(1)", "rich.console.Console()", "sys.stderr.write('a')"]
)
def test_a_print_is_found(line):
    assert prints(ast.parse(line)) != []
