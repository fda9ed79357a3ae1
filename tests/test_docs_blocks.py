"""Every code block of README.md and docs/ does what it says: Python is run, commands are run or at least parsed."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from clew.cli import app

from .conftest import simulate

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
)
LANGUAGES = {"python", "console", "sh", "text", ""}
FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# a page that is served until Ctrl-C: parsed here, and run by its own tests
ONLY_PARSED = {"annotate"}
# movies are simulated as the page says, but for their size
SMALLER = {
    "simulate": {"--frames": "6", "--cells": "16"},
    "demo": {"--frames": "6", "--cells": "16"},
}
# a report takes five times as long as tracking, and tests/tracking/report looks at it
WITHOUT = {"track": ["--no-report"]}
# and so are words: a third of them
MANY_WORDS = re.compile(r"simulate\((\d+), rng\)")
UsageError = (
    typer.BadParameter.__base__
)  # click's, of which some versions of typer have a copy


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: Path
    line: int
    language: str
    text: str

    def commands(self) -> Iterator[list[str]]:
        """The commands of a shell block, without comments; of a console session, those after the prompt."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        yield from filter(None, (shlex.split(line, comments=True) for line in lines))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text[: at.start()].count("\n") + 1, at[1], at[2])
        for at in FENCE.finditer(text)
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages_with(*languages: str) -> list[Path]:
    return [
        page
        for page in PAGES
        if any(block.language in languages for block in blocks(page))
    ]


def smaller(args: list[str]) -> list[str]:
    """The same command with fewer frames and cells than it asks for, and no report."""
    wanted = SMALLER.get(args[0], {})
    asked = [k for k, arg in enumerate(args) if arg in wanted]
    kept = [arg for k, arg in enumerate(args) if k not in asked and k - 1 not in asked]
    changed = [part for option in wanted.items() for part in option]
    return [*kept, *changed, *WITHOUT.get(args[0], [])]


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A movie of few frames: each page tracks it several times."""
    return simulate(
        tmp_path_factory.mktemp("brief"), frames=6, cells=16, cycle=20, seed=6
    )


@pytest.fixture
def folder(
    brief: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Where a reader stands: with a movie in data/01, and a table of some annotated events."""
    from clew.tracking.io.annotations import write_annotations

    shutil.copytree(
        brief.folder, tmp_path / "data", ignore=shutil.ignore_patterns(".clew")
    )
    write_annotations(tmp_path / "some.csv", brief.some)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_its_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks(page)), (
        "a fence is open or indented"
    )


@pytest.mark.parametrize("page", pages_with("python", "console", "sh"), ids=name_of)
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, folder: Path) -> None:
    names = {"__name__": "__main__"}
    for block in blocks(page):
        where = f"{name_of(block.page)}:{block.line}"
        if block.language == "python" and not block.text.startswith("--8<--"):
            text = MANY_WORDS.sub(
                lambda many: f"simulate({int(many[1]) // 3}, rng)", block.text
            )
            code = compile(
                "\n" * block.line + text, str(page), "exec"
            )  # a traceback shows the page's own line
            exec(code, names)
        elif block.language in ("console", "sh"):
            for command in block.commands():
                run(command, where)


@pytest.mark.parametrize("page", pages_with("text"), ids=name_of)
def test_commands_in_plain_blocks_can_be_parsed(page: Path) -> None:
    for block in blocks(page):
        if block.language == "text" and block.text.startswith("clew "):
            for command in block.commands():
                parse(command[1:])


def run(command: list[str], where: str) -> None:
    """Run a command of clew's; of others see that what they name is there."""
    match command:
        case ["clew", name, *_] if name in ONLY_PARSED:
            parse(command[1:])
        case ["clew", *args]:
            result = CliRunner().invoke(app, smaller(args))
            assert result.exit_code == 0, (
                f"{where}: {shlex.join(command)}: {result.output}"
            )
        case ["make", *targets]:
            known = re.findall(
                r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE
            )
            assert set(targets) <= set(known), where
        case ["python", "-m", module, *_]:
            assert find_spec(module) is not None, (
                f"{where}: there is no module {module}"
            )
        case ["python", script, *_]:
            assert (ROOT / script).is_file(), f"{where}: there is no {script}"
        case [".venv/bin/pre-commit" | "pip", "install", *_]:
            pass  # tools of others
        case _:
            pytest.fail(f"{where}: {shlex.join(command)}: what is this?")


def parse(args: list[str]) -> None:
    """Whether the arguments of a command are what it takes; paths need not exist."""
    name, *rest = args
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    try:
        command.make_context(name, [arg for arg in rest if arg != "…"])
    except UsageError as error:
        pytest.fail(f"clew {shlex.join(args)}: {error.message}")


@pytest.mark.parametrize("text", ["clew annotate --nonsense", "clew track --nonsense"])
def test_a_command_that_is_none_is_found(text: str) -> None:
    with pytest.raises(pytest.fail.Exception):
        parse(shlex.split(text)[1:])


def anchors(page: Path) -> set[str]:
    """The headings of a page as the site makes addresses of them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    plain = [
        re.sub(r"[^\w\s-]", "", title).strip().lower()
        for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    ]
    return {re.sub(r"[-\s]+", "-", title) for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]*))?[^)]*\)", text):
        if re.match(r"\w+:", target):
            continue
        other = page.parent / target if target else page
        assert other.exists(), f"{name_of(page)}: {target} does not exist"
        if (
            anchor and other.suffix == ".md" and "reference" not in other.parts
        ):  # those are made of docstrings
            assert anchor in anchors(other), (
                f"{name_of(page)}: {target} has no heading #{anchor}"
            )
