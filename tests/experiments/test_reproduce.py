"""The command: refuses early what cannot be run, and says so in one line."""

import pytest
from typer.testing import CliRunner

from clew.cli import app


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig7"], "fig7"),
        (["fig3", "--train", "somewhere/01"], "both --train and --test"),
        (["fig3", "--draws", "0"], "at least one"),
        (["fig3", "--train", "nowhere/01", "--test", "nowhere/01"], "true lineage"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, words, tmp_path):
    result = CliRunner().invoke(
        app, ["reproduce", *arguments, "-o", str(tmp_path / "results")]
    )
    assert result.exit_code == 2
    assert words in result.output
    assert not list(tmp_path.rglob("*.json"))


def test_figures_on_a_movie(simulated, tmp_path):
    movie = f"{simulated.path}"
    arguments = [
        "fig3",
        "--quick",
        "--draws",
        "1",
        "--jobs",
        "1",
        "--train",
        f"{movie}[0:12]",
        "--test",
        f"{movie}[11:]",
    ]
    result = CliRunner().invoke(app, ["reproduce", *arguments, "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "at every fraction" in result.output
    assert {"report.html", "results.json", "fig3.png", "fig4.svg"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert len(list((tmp_path / "jobs").iterdir())) == 13
