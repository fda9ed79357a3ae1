"""The docs name every public name, command and option. Run as a script, this writes docs/cli.md anew."""

import inspect
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import clew
import clew.models
import clew.tracking
from clew.cli import app

ROOT = Path(__file__).parents[1]
COMMANDS = typer.main.get_command(app).commands
PRINTER = f"<!-- as typer {'.'.join(version('typer').split('.')[:2])} prints it -->"
INTRODUCTION = f"""\
# The command line

An error is one line on stderr and exit code 2, with nothing written; `clew --debug …` adds the traceback.
Results go to stdout, progress to stderr.

{PRINTER}
"""


def help_text(*command: str) -> str:
    """The help of a command, as an 80-column terminal shows it."""
    result = CliRunner().invoke(
        app,
        [*command, "--help"],
        prog_name="clew",
        env={"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"},
    )
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def cli_page() -> str:
    """docs/cli.md as it should be."""
    parts = [INTRODUCTION]
    for command in ([], *([name] for name in sorted(COMMANDS))):
        title = " ".join(["clew", *command])
        parts.append(
            f"## {title}\n\n```text\n$ {title} --help\n{help_text(*command)}\n```\n"
        )
    return "\n".join(parts)


def all_docs() -> str:
    return "\n".join(
        path.read_text()
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    )


@pytest.mark.parametrize(
    "package", [clew, clew.models], ids=lambda package: package.__name__
)
def test_every_public_name_is_documented(package):
    docs = all_docs()
    missing = [
        name
        for name in package.__all__
        if not re.search(rf"\b{re.escape(name)}\b", docs)
    ]
    assert not missing, f"not in README.md or docs/: {', '.join(missing)}"
    assert all(hasattr(package, name) for name in package.__all__)


@pytest.mark.parametrize(
    "package", [clew, clew.models, clew.tracking], ids=lambda package: package.__name__
)
def test_every_public_name_is_in_the_generated_reference(package):
    reference = "\n".join(
        path.read_text() for path in (ROOT / "docs/reference").glob("*.md")
    )
    shown = {
        line.rpartition(".")[2]
        for line in reference.splitlines()
        if line.startswith("::: clew.")
    }
    shown |= {
        name for name, value in vars(clew.errors).items() if inspect.isclass(value)
    }  # all on one page
    missing = [
        name
        for name in package.__all__
        if name not in shown and not inspect.ismodule(getattr(package, name))
    ]
    assert not missing, f"no directive in docs/reference/: {', '.join(missing)}"


def test_inner_products_in_docstrings_are_no_tags():
    """The site reads docstrings as Markdown, in which <w, φ> is a tag and not shown."""
    tag = re.compile(r"<\w+, [^<>\n]+>")
    found = {
        path.name: tags
        for path in (ROOT / "src").rglob("*.py")
        if (tags := tag.findall(path.read_text("utf-8")))
    }
    assert found == {}, "write ⟨w, φ⟩"


def test_files_that_documents_and_docstrings_name_exist():
    """NOTES.md and CHANGELOG.md tell of what was, and may name what is gone."""
    folders = ("src", "tests", "benchmarks", "examples", "docs", "paper", "scripts")
    code = [
        path.relative_to(ROOT).as_posix()
        for name in folders
        for path in (ROOT / name).rglob("*")
        if path.suffix in {".py", ".md", ".js"}
    ]
    readers = [path for path in code if path != "benchmarks/NOTES.md"]
    readers = [path for path in readers if not path.startswith("tests/app/")]
    readers += ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
    # a folder and a file, neither part of an address or a placeholder
    named = re.compile(r"(?<![\w./:<>{}…%-])[\w-]+(?:/[\w-]+)+\.(?:py|js|md)\b")
    ends = [f"/{path}" for path in code]
    missing = {
        f"{reader}: {name}"
        for reader in readers
        for name in named.findall((ROOT / reader).read_text("utf-8"))
        if not any(end.endswith(f"/{name}") for end in ends)
    }
    assert missing == set()


def test_every_page_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {
        path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }


def test_every_command_and_option_is_documented():
    docs = all_docs()
    for name, command in COMMANDS.items():
        assert f"clew {name}" in docs
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert not option.startswith("-") or option in docs


def test_every_option_has_a_help_text():
    for name, command in COMMANDS.items():
        assert command.help, name
        for parameter in command.params:
            assert parameter.help, f"{name} {parameter.name}"


def test_the_page_of_commands_is_up_to_date():
    page = (ROOT / "docs/cli.md").read_text()
    if PRINTER not in page:
        pytest.skip(
            "docs/cli.md was printed by another version of typer, which lays out help in another way"
        )
    assert page == cli_page(), "docs/cli.md is out of date: run make cli-docs"


if __name__ == "__main__":
    os.environ.pop("FORCE_COLOR", None)
    (ROOT / "docs/cli.md").write_text(cli_page())
