"""The scripts in examples/ run, and say and draw what their pages show."""

import re
import runpy
from itertools import pairwise
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
GALLERY = EXAMPLES.parent / "docs/gallery"


@pytest.fixture
def main(request, tmp_path, monkeypatch):
    """The `main` of the example that a test is named for, in a folder of its own."""
    if "tracksdata" in request.param:
        pytest.importorskip("tracksdata", reason="tracksdata is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [request.param])
    return runpy.run_path(str(EXAMPLES / request.param))["main"]


def percents(text):
    return [float(number) for number in re.findall(r"([\d.]+) ?%", text)]


@pytest.mark.parametrize("main", ["letters.py"], indirect=True)
def test_letters(main, tmp_path, capsys):
    main("letters.png", draws=1, n_words=60)
    said = capsys.readouterr().out
    right = [
        percents(line.partition(":")[2])
        for line in said.splitlines()
        if "annotated:" in line
    ]
    by_clew = [clew for clew, _ in right]
    assert by_clew[-1] > by_clew[0] + 15  # more annotation, more letters
    assert all(
        more > less - 5 for less, more in pairwise(by_clew)
    )  # up to what 60 words can tell
    assert right[0][0] > right[0][1]  # and with few, more than the perceptron
    assert "converged" in said
    assert (tmp_path / "letters.png").stat().st_size > 20_000


@pytest.mark.parametrize("main", ["scribbles.py"], indirect=True)
def test_scribbles(main, tmp_path, capsys):
    main("scribbles.png", shown=2, new=2)
    alone, together = percents(capsys.readouterr().out.splitlines()[1])
    assert together > alone + 5
    assert (tmp_path / "scribbles.png").stat().st_size > 5_000


@pytest.mark.parametrize("main", ["tracking.py"], indirect=True)
def test_tracking(main, tmp_path, capsys):
    main("tracking.png")
    assert percents(capsys.readouterr().out)[-1] > 90
    assert (tmp_path / "tracking.png").stat().st_size > 20_000


@pytest.mark.parametrize("main", ["track_movie.py"], indirect=True)
def test_track_movie(main, tmp_path, capsys):
    main(frames=6)
    assert percents(capsys.readouterr().out)[0] < 5
    assert (tmp_path / "tracked/res_track.txt").is_file()
    assert (tmp_path / "tracked.clew").is_file()


@pytest.mark.parametrize("main", ["suggest.py"], indirect=True)
def test_suggest(main, tmp_path, capsys):
    main("suggest.png", seeds=1, rounds=1)
    lines = [
        line for line in capsys.readouterr().out.splitlines() if "annotated:" in line
    ]
    suggested = [float(re.search(r"suggested ([\d.]+)", line)[1]) for line in lines]
    assert suggested[-1] > suggested[0]  # more letters annotated, more read right
    assert (tmp_path / "suggest.png").stat().st_size > 10_000


@pytest.mark.parametrize("main", ["tracksdata_costs.py"], indirect=True)
def test_tracksdata_costs(main, capsys):
    main()
    assert percents(capsys.readouterr().out)[0] > 90


def test_every_example_has_a_test_and_a_page():
    tested = Path(__file__).read_text()
    pages = "".join(page.read_text() for page in GALLERY.parent.rglob("*.md"))
    for script in EXAMPLES.glob("*.py"):
        assert f'["{script.name}"]' in tested
        assert f'--8<-- "examples/{script.name}' in pages
