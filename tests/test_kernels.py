"""One process compiles at a time, and one that hangs does not stop the others."""

import threading
import time

import pytest

from clew.locks import try_lock

from . import kernels


@pytest.fixture
def other(tmp_path):
    """The lock, which another process has."""
    with (tmp_path / "a.lock").open("ab") as file:
        assert try_lock(file)
        yield file


def test_what_another_process_compiles_is_waited_for(other, tmp_path):
    threading.Timer(0.2, other.close).start()
    began, held = time.monotonic(), set()
    with kernels._ours(tmp_path / "a.lock", held), kernels._ours(tmp_path / "a.lock", held):  # and again, within
        assert time.monotonic() - began > 0.15
        assert held == {tmp_path / "a.lock"}
        with (tmp_path / "a.lock").open("ab") as third:
            assert try_lock(third) is False
    assert held == set()
    with (tmp_path / "a.lock").open("ab") as third:
        assert try_lock(third)


def test_not_for_ever(other, tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "PATIENCE", 0.1)
    with kernels._ours(tmp_path / "a.lock", set()):
        pass
