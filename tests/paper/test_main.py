"""The command line: wrong arguments are refused before anything is run."""

import pytest

from paper import golden
from paper.__main__ import main
from paper.claims import PERCENT, Claim, Figure


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig7"], "fig7"),
        (["fig3", "--train", "somewhere/01"], "both --train and --test"),
        (["fig3", "--draws", "0"], "at least one"),
        (["fig3", "--train", "nowhere/01", "--test", "nowhere/01"], "true lineage"),
    ],
)
def test_arguments_that_cannot_be_run_are_refused(arguments, words, tmp_path, capsys):
    assert main([*arguments, "-o", str(tmp_path / "results")]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


def test_figures_are_written_and_compared(simulated, tmp_path, capsys):
    movies = ["--train", f"{simulated.path}[0:12]", "--test", f"{simulated.path}[11:]"]
    options = ["--quick", "--draws", "1", "--jobs", "1", "-o", str(tmp_path)]
    stored = tmp_path / "claims.json"
    assert main(["fig3", *options, *movies, "--store", str(stored)]) == 0
    assert "at every fraction" in capsys.readouterr().out
    names = {path.name for path in tmp_path.iterdir()}
    assert {"report.html", "results.json", "fig3.png", "fig4.svg"} <= names
    assert len(list((tmp_path / "jobs").iterdir())) == 13
    assert main(["fig3", *options, *movies, "--compare", str(stored)]) == 0
    assert main(["fig4", *options, *movies, "--compare", str(stored)]) == 0


@pytest.fixture
def stored(tmp_path):
    claims = [Claim("a", True, (Figure("x", 2.0, PERCENT),)), Claim("b", False, ())]
    golden.store_claims(tmp_path / "claims.json", claims)
    return tmp_path / "claims.json"


@pytest.mark.parametrize(
    ("holds", "value", "words"),
    [
        (True, 2.2, None),
        (True, 2.3, "x 2.30 %, expected 2"),
        (False, 2.0, "holds was True"),
    ],
)
def test_claims_differ_beyond_tolerances(stored, holds, value, words):
    claims = [Claim("a", holds, (Figure("x", value, PERCENT),)), Claim("b", False, ())]
    differences = golden.compare_claims(stored, claims)
    assert len(differences) == (words is not None)
    assert words is None or words in differences[0]


def test_claims_missing_and_new_are_differences(stored):
    differences = golden.compare_claims(stored, [Claim("c", True, ())])
    assert [line.split(":")[0] for line in differences[:2]] == ["not judged"] * 2
    assert "not stored" in differences[2]
    other = [Claim("a", True, ()), Claim("b", False, ())]
    assert "other figures" in golden.compare_claims(stored, other)[0]
