"""Progress lines."""

from numba import njit

from clew.utils.progress import ProgressLine


def add_one(x):
    return x + 1


def test_line_says_that_a_kernel_is_compiled(monkeypatch):
    texts = []
    line = ProgressLine(verbose=True)
    monkeypatch.setattr(line, "show_text", texts.append)
    kernel = njit(add_one)
    with line:
        kernel(1)
        assert texts == ["compiling (once)"]
        kernel(2)
    assert texts == ["compiling (once)"]


def test_line_ignores_compilation_after_its_block(monkeypatch):
    texts = []
    line = ProgressLine(verbose=True)
    monkeypatch.setattr(line, "show_text", texts.append)
    with line:
        pass
    njit(add_one)(1)
    assert texts == []
