"""What the store bears: full and read-only drives, two writers, newer schemas, files of other kinds."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from clew.annotation.store.store import Store
from clew.errors import StoreError

from .stores import MOVIE, answer_next, content, files, fill, run

pytestmark = pytest.mark.posix  # kill −9, forks, limits and permissions


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cells.annotations"


@pytest.fixture
def small_drive(tmp_path):
    """A drive of 256 kB."""
    folder = tmp_path / "drive"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)],
        capture_output=True,
    )
    if not mounted or mounted.returncode:
        pytest.skip(
            "mounting a small drive needs root; the limit on a file's size stands in for it"
        )
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def answer_until_refused(store: Store) -> str:
    """Answer until it is refused; in which words."""
    for _ in range(2000):
        try:
            answer_next(store)
        except StoreError as error:
            return str(error)
    raise AssertionError("never refused")


def test_a_full_drive_is_an_error_and_loses_nothing(small_drive):
    path = small_drive / "store"
    store = Store.open(path, movie=MOVIE)
    assert "full or read-only?; earlier answers are untouched" in answer_until_refused(
        store
    )
    with pytest.raises(StoreError, match="untouched"):
        store.set_setting("place", "x" * 300_000)
    answer_until_refused(store)  # there may be room for a few more
    acknowledged, told = store.revision, content(store)
    assert len(store) == acknowledged > 10
    store.close()
    with contextlib.suppress(StoreError):  # to open it, SQLite needs some room
        Store.open(path, movie=MOVIE).close()
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_drive)], check=True)
    with Store.open(path, movie=MOVIE) as store:  # goes on once there is room
        assert content(store) == told
        assert answer_next(store) == acknowledged + 1


def test_no_room_to_begin_a_store(small_drive):
    (small_drive / "filler").write_bytes(bytes(240 * 1024))
    with pytest.raises(StoreError, match="store: cannot be used"):
        Store.open(small_drive / "store", movie=MOVIE)
    (small_drive / "filler").unlink()
    with Store.open(small_drive / "store", movie=MOVIE) as store:
        assert answer_next(store) == 1


def test_a_limited_file_size_is_an_error_and_loses_nothing(path):
    script = """
store = Store.open(path, movie=movie)
for _ in range(3): answer(store)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 2000, hard))
try:
    answer(store)
except StoreError as error:
    say(store.revision, len(store), error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
say(answer(store))
die()
"""
    refused, accepted = run(script, path).splitlines()
    assert refused.startswith("3 3 ")
    assert "untouched" in refused
    assert accepted == "4"
    with Store.open(path, movie=MOVIE) as store:
        assert store.revision == 4


def test_a_read_only_drive(small_drive):
    path = small_drive / "store"
    with Store.open(path, movie=MOVIE) as store:
        answer_next(store)
    before = files(small_drive)
    subprocess.run(["mount", "-o", "remount,ro", str(small_drive)], check=True)
    for name in ("store", "new", "folder/new"):
        with pytest.raises(StoreError, match=name):
            Store.open(small_drive / name, movie=MOVIE)
    assert files(small_drive) == before


@pytest.mark.posix
@pytest.mark.usefixtures("bound_by_permissions")
def test_a_read_only_folder(tmp_path):
    path = tmp_path / "folder" / "store"
    with Store.open(path, movie=MOVIE) as store:
        answer_next(store)
    before = path.read_bytes()
    path.parent.chmod(0o555)
    try:
        for name in ("store", "new", "folder/new"):
            with pytest.raises(StoreError, match=name):
                Store.open(path.parent / name, movie=MOVIE)
        assert path.read_bytes() == before
    finally:
        path.parent.chmod(0o755)


def test_a_path_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    for bad in (tmp_path / "file" / "store", tmp_path, "a\0b"):
        with pytest.raises(StoreError):
            Store.open(bad, movie=MOVIE)
    assert files(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize(
    "name", [b"caf\xe9.store", b"a?mode=memory#b%20c.store", "ζελλ.store".encode()]
)
def test_any_file_name(tmp_path, name):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    for revision in (1, 2):
        with Store.open(path, movie=MOVIE) as store:
            assert answer_next(store) == revision
        assert [os.fsencode(file.name) for file in tmp_path.iterdir()] == [name]


def test_a_second_writer_is_refused_with_the_reason(path):
    with Store.open(path, movie=MOVIE) as store:
        answer_next(store)
        attempt = (
            "try: Store.open(path, movie=movie)\nexcept StoreError as error: say(error)"
        )
        said = run(attempt, path)
        assert f"process {os.getpid()} has it open" in said
        with pytest.raises(StoreError, match="this process already has it open"):
            Store.open(path, movie=MOVIE)
        assert answer_next(store) == 2
    with Store.open(path, movie=MOVIE) as store:
        assert store.revision == 2


def test_of_two_that_open_at_once_one_gets_it(tmp_path):
    script = """
for turn in range(6):
    begin, end, spoken = os.pipe(), os.pipe(), os.pipe()
    children = []
    for _ in range(2):
        if not (child := os.fork()):
            os.close(begin[1]), os.close(end[1])
            os.read(begin[0], 1)  # ends for both at once
            try:
                store = Store.open(f"{path}-{turn % 3}", movie=movie)
                say(turn, "got")
                answer(store)
            except StoreError as error:
                say(turn, "refused" if "has it open" in str(error) or "at this moment" in str(error) else error)
            os.write(spoken[1], b"!")
            os.read(end[0], 1)
            die()
        children.append(child)
    os.close(begin[0]), os.close(end[0])
    os.close(begin[1])
    for _ in range(2): os.read(spoken[0], 1)
    os.close(end[1])
    for child in children: os.waitpid(child, 0)
"""
    said = run(script, tmp_path / "store").splitlines()
    assert sorted(said) == sorted(
        f"{turn} {word}" for turn in range(6) for word in ("got", "refused")
    )


def test_a_newer_schema_is_refused_untouched(tmp_path):
    path = tmp_path / "a" / "store"
    fill(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("ALTER TABLE history ADD COLUMN author TEXT")
    connection.execute("PRAGMA user_version = 4")
    connection.close()
    before = files(path.parent)
    with pytest.raises(
        StoreError, match=r"schema 4, but clew .* reads up to 3.*newer clew"
    ):
        Store.open(path, movie=MOVIE)
    assert files(path.parent) == before | {"store-wal": b""}


def test_a_newer_schema_that_is_in_the_log_only_is_refused_untouched(path):
    fill(path)
    run(
        """
import sqlite3
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("PRAGMA user_version = 4")
die()
""",
        path,
    )
    before = files(path.parent)
    assert len(before[path.name + "-wal"]) > 0
    with pytest.raises(StoreError, match="schema 4"):
        Store.open(path, movie=MOVIE)
    assert files(path.parent) == before


def test_files_of_other_kinds_are_refused_untouched(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    foreign = path.read_bytes()
    for data in (foreign, b"frame,event\n1,move\n", b"SQLite format 3\0" + bytes(200)):
        path.write_bytes(data)
        with pytest.raises(StoreError, match="not a store"):
            Store.open(path, movie=MOVIE)
        assert files(path.parent) == {path.name: data}


def test_a_link_leads_to_the_store(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b" / "store")
    with Store.open(tmp_path / "link", movie=MOVIE) as store:
        answer_next(store)
        with pytest.raises(StoreError, match="has it open"):
            Store.open(tmp_path / "b" / "store", movie=MOVIE)
    assert (tmp_path / "link").is_symlink()
    assert set(files(tmp_path / "b")) == {"store"}


def test_a_closed_store_is_one_file(path):
    fill(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
