"""A changed, cut or missing byte is noticed on opening or does no harm, and what is refused stays as it is."""

import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from clew.annotation.store.store import Store
from clew.errors import StoreError

from .stores import MOVIE, answer_next, content, files, fill, run

pytestmark = pytest.mark.posix  # kill −9, forks, limits and permissions


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder as kill −9 leaves it: with a log and a beacon beside the store."""
    folder = tmp_path_factory.mktemp("killed")
    fill(folder / "store")
    run(
        "store = Store.open(path, movie=movie)\nfor _ in range(5): answer(store)\ndie()",
        folder / "store",
    )
    assert set(files(folder)) == {"store", "store-wal", "store.lock"}
    assert len(files(folder)["store-wal"]) > 0
    return folder


@pytest.fixture(scope="module")
def before_kill(killed, tmp_path_factory):
    """What the killed store held."""
    folder = tmp_path_factory.mktemp("copy") / "copy"
    shutil.copytree(killed, folder)
    with Store.open(folder / "store", movie=MOVIE) as store:
        assert store.revision == 41
        return content(store)


@pytest.fixture
def fast():
    """A folder in memory where there is one: hundreds of stores are opened, and the disk itself is not tested here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def offsets(size: int, step: int, thin: int) -> list[int]:
    """The whole header, then a sample; every `thin`-th of them."""
    return [*range(100), *range(100, size, step)][::thin]


sampled = pytest.mark.parametrize("thin", [11, pytest.param(1, marks=pytest.mark.slow)])
"""A sample of the bytes in every run, all of them in the slow one."""


def reopened(folder: Path, changed: dict[str, bytes]) -> tuple | None:
    """What a store of these files tells; None if it is refused, and then it must be left as it is."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in changed.items():
        (folder / name).write_bytes(data)
    try:
        with Store.open(folder / "store", movie=MOVIE) as store:
            told = content(store)
            answer_next(store)
    except StoreError as error:
        refusal = str(error)
    else:
        with Store.open(folder / "store", movie=MOVIE) as store:
            assert store.history()[:-1] == told[1]  # one can go on
        return told
    assert refusal.startswith(str(folder / "store"))
    assert files(folder) in (changed, {"store-wal": b""} | changed)
    return None


def flipped(data: bytes, at: int, bits: int) -> bytes:
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


@sampled
def test_a_flipped_byte_is_noticed_or_harmless(fast, thin):
    rng = random.Random(3)
    fill(fast / "store")
    whole = (fast / "store").read_bytes()
    with Store.open(fast / "store", movie=MOVIE) as store:
        expected = content(store)
    told = []
    for at in offsets(len(whole), 97, thin):
        bits = rng.choice([1, 128, 255, rng.randrange(1, 256)])
        told.append(reopened(fast / "copy", {"store": flipped(whole, at, bits)}))
        assert told[-1] in (None, expected), f"byte {at} with bits {bits}"
    assert told.count(None) > len(told) / 3


@sampled
def test_every_flipped_byte_of_an_answer_is_noticed(fast, thin):
    fill(fast / "store", 10)
    whole = (fast / "store").read_bytes()
    start = whole.index(b'"key":"k7"')
    for at in range(start, start + 120, thin):
        assert reopened(fast / "copy", {"store": flipped(whole, at, 1)}) is None, (
            f"byte {at}"
        )


@sampled
@pytest.mark.parametrize(("name", "step"), [("store-wal", 131), ("store.lock", 7)])
def test_a_flipped_byte_beside_a_killed_store_is_noticed_or_harmless(
    killed, before_kill, fast, name, step, thin
):
    whole = files(killed)
    told = []
    for at in offsets(len(whole[name]), step, thin):
        told.append(
            reopened(fast / "copy", whole | {name: flipped(whole[name], at, 0x55)})
        )
        assert told[-1] in (None, before_kill), f"byte {at}"
    assert (None in told) == (name == "store-wal")


def test_a_truncated_store_is_noticed(fast):
    fill(fast / "store")
    whole = (fast / "store").read_bytes()
    for length in [*range(1, len(whole), 1024), len(whole) - 1]:
        assert reopened(fast / "copy", {"store": whole[:length]}) is None, (
            f"{length} bytes"
        )


@pytest.mark.parametrize("lost", ["store-wal", "store", "emptied"])
def test_a_file_that_went_missing_after_a_kill_is_noticed(
    killed, before_kill, tmp_path, lost
):
    folder = tmp_path / "copy"
    shutil.copytree(killed, folder)
    if lost == "emptied":
        (folder / "store").write_bytes(b"")
    else:
        (folder / lost).unlink()
    before = files(folder)
    with pytest.raises(
        StoreError, match=r"damaged, or an older copy|restore it, or, to start again"
    ):
        Store.open(folder / "store", movie=MOVIE)
    assert {name: data for name, data in files(folder).items() if data} == {
        k: v for k, v in before.items() if v
    }
    shutil.copytree(killed, folder, dirs_exist_ok=True)
    with Store.open(folder / "store", movie=MOVIE) as store:
        assert content(store) == before_kill


def test_one_may_go_on_without_what_is_missing(killed, tmp_path):
    shutil.copy(
        killed / "store", tmp_path / "store"
    )  # the message says to delete the beacon
    with Store.open(tmp_path / "store", movie=MOVIE) as store:
        assert store.revision == 36
        assert answer_next(store) == 37


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM history WHERE revision = 36",
        "DELETE FROM history WHERE revision = 10",
        "UPDATE history SET entry = replace(entry, 'true', 'false') WHERE revision = 10",
        "UPDATE store SET movie = replace(movie, 'cells', 'other')",
        "UPDATE store SET revision = 35",
        "DELETE FROM store",
        "UPDATE note SET value = '{}' WHERE name = 'place'",
        "CREATE TABLE more (x)",
        "DROP TABLE note",
    ],
)
def test_a_change_by_other_hands_is_noticed(tmp_path, change):
    path = tmp_path / "store"
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="damaged"):
        Store.open(path, movie=MOVIE)
    assert path.read_bytes() == before
