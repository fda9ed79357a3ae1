"""Commands run in this process, and what becomes of them."""

from typer.testing import CliRunner

from clew.cli import app


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def done(*args):
    """A command that works."""
    result = invoke(*args)
    assert result.exit_code == 0, result.stderr
    return result


def refused(*args):
    """A command that the user can mend: one line, exit code 2, no result; what it says last."""
    result = invoke(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    errors = [line for line in result.stderr.splitlines() if line.startswith("clew: ")]
    assert len(errors) == 1, result.stderr
    return errors[0]
