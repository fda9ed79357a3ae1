"""The experiments themselves: small editions of them, claims that can fail, runs that continue."""

import json
import math
from html import escape

import pytest

from clew.errors import InputError
from paper import active_annotation as beyond
from paper import fig34, fig56, runner, table3
from paper.claims import judge_claims
from paper.editions import PARTS, QUICK, WHOLE, experiments_for, jobs_for
from paper.experiment_data import ExperimentData, Setup
from paper.outputs import write_results
from paper.runner import Job, run_jobs
from paper.simulated_annotator import annotate
from paper.strategies import DEFAULT
from paper.tables import Summary, curve


@pytest.fixture(scope="module")
def setup(simulated, tmp_path_factory):
    cache = tmp_path_factory.mktemp("measurements")
    return Setup(
        f"{simulated.path}[0:5]", f"{simulated.path}[10:]", str(cache), pairs=2
    )


@pytest.fixture(scope="module")
def data(setup):
    return ExperimentData(setup)


@pytest.fixture(scope="module")
def results(data):
    """A very small edition of everything."""
    settings = {
        "fig34": (fig34.run_job, fig34.list_jobs(1, (0.5, 0.25))),
        "table3": (table3.run_job, table3.list_jobs(1)),
        "fig56": (
            fig56.run_job,
            [job for job in fig56.list_jobs(1) if job["way"] in ("paper", "clew")],
        ),
        "beyond": (
            beyond.run_job,
            [job for job in beyond.list_jobs(1, (0.03, 0.08)) if _is_small(job)],
        ),
    }
    return {
        name: [{"experiment": name, **job, **run(data, job)} for job in jobs]
        for name, (run, jobs) in settings.items()
    }


def _is_small(job):
    return (
        job["strategy"] in (beyond.RANDOM, DEFAULT) and job["prior"] == beyond.GENERIC
    )


def test_losses_are_shares_and_times_are_spent(results):
    for entry in [*results["fig34"], *results["table3"], *results["fig56"]]:
        assert 0 <= entry["loss"] < 1
        assert entry["seconds"] > 0


def test_full_annotation_has_all_events(results, data):
    full = [entry for entry in results["fig34"] if entry["method"] == fig34.FULL]
    assert [entry["annotated"] for entry in full] == [len(data.full)]
    half = [entry for entry in results["fig34"] if entry["fraction"] == 0.5]
    assert {entry["annotated"] for entry in half} == {len(data.draw(0.5, 0))}


def test_identities_hold_where_the_incompatible_space_is_searched(results):
    reached = {
        (entry["surrogate"], entry["way"]): entry["objective"]
        for entry in results["table3"]
    }
    for entry in results["table3"]:
        assert entry["twins"][0] == pytest.approx(entry["twins"][1], abs=1e-9)
    for a, b in table3.TWINS:
        assert reached[a, table3.IDENTITIES] == pytest.approx(
            reached[b, table3.IDENTITIES], abs=1e-12
        )


def test_start_near_zero_breaks_ties_for_every_search(results):
    reached = {
        (entry["surrogate"], entry["way"]): entry["objective"]
        for entry in results["table3"]
    }
    for loss in table3.LOSSES:
        assert reached[loss, table3.LITERAL] == pytest.approx(
            reached[loss, table3.IDENTITIES], abs=2e-3
        )


def test_every_figure_has_a_finite_tolerance(results):
    figures = [figure for claim in judge_claims(results) for figure in claim.figures]
    assert figures
    assert all(math.isfinite(figure.tolerance(1.0)) for figure in figures)


def test_histories_have_a_time_for_each_record(results):
    for entry in results["fig56"]:
        history = entry["history"]
        assert len({len(column) for column in history.values()}) == 1
        assert history["seconds"] == sorted(history["seconds"])
        assert entry["converged"]


def test_sessions_reach_their_budgets(results):
    for entry in results["beyond"]:
        answers = [point["answers"] for point in entry["points"]]
        wanted = [round(share * entry["events"]) for share in entry["budgets"]]
        least = (
            6 if entry["strategy"] == beyond.RANDOM else 0
        )  # a stratified draw has one of each kind
        assert all(
            n == goal or goal < n <= least
            for n, goal in zip(answers[-len(wanted) :], wanted, strict=True)
        )
        assert all(0 <= point["loss"] <= 1 for point in entry["points"])


def test_every_claim_is_judged_and_written(results, data, tmp_path):
    judged = write_results(tmp_path, results, data, 0)
    assert len(judged) == 11
    written = {path.name for path in tmp_path.iterdir()}
    figures = {
        f"{name}.{kind}"
        for name in PARTS
        if name != "table3"
        for kind in ("png", "svg")
    }
    assert written == figures | {"results.json", "report.html"}
    page = (tmp_path / "report.html").read_text()
    for claim in judged:
        assert escape(claim.text) in page
    assert json.loads((tmp_path / "results.json").read_text())["claims"][0][
        "holds"
    ] in (True, False)


def test_claims_can_fail_and_hold():
    def entries(partial, perceptron, full):
        rows = [(fig34.FULL, 1.0, full)]
        rows += [
            (method, f, loss)
            for f in (0.5, 0.25, 0.05)
            for method, loss in (
                (fig34.PARTIAL, partial),
                (fig34.PERCEPTRON, perceptron),
                (fig34.AVERAGED, perceptron),
            )
        ]
        return {
            "fig34": [
                {"method": m, "fraction": f, "draw": 0, "loss": loss}
                for m, f, loss in rows
            ]
        }

    assert [claim.holds for claim in judge_claims(entries(0.0109, 0.02, 0.01))] == [
        True,
        True,
        True,
    ]
    assert [claim.holds for claim in judge_claims(entries(0.0111, 0.02, 0.01))] == [
        False,
        True,
        True,
    ]
    assert [claim.holds for claim in judge_claims(entries(0.0100, 0.01, 0.01))] == [
        True,
        False,
        False,
    ]


def test_a_run_continues_where_it_stopped(setup, tmp_path):
    jobs = [Job("fig34", job) for job in fig34.list_jobs(1, (0.5,))]
    told = []
    first = run_jobs(jobs[:2], setup, tmp_path, 1)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(files) == 2
    damaged, kept = sorted(files)
    damaged.write_text("{")
    again = run_jobs(
        jobs, setup, tmp_path, 1, lambda done, total: told.append((done, total))
    )
    assert told[0] == (1, len(jobs))
    assert told[-1] == (len(jobs), len(jobs))
    assert kept.read_bytes() == files[kept]
    assert [entry["loss"] for entry in again[:2]] == [entry["loss"] for entry in first]


def test_another_edition_of_an_experiment_uses_no_older_results(setup, monkeypatch):
    jobs = [Job("fig34", {"draw": 0}), Job("beyond", {"draw": 0})]
    before = [job.key(setup) for job in jobs]
    monkeypatch.setitem(runner.EDITIONS, "beyond", runner.EDITIONS["beyond"] + 1)
    assert [job.key(setup) == key for job, key in zip(jobs, before, strict=True)] == [
        True,
        False,
    ]
    assert set(runner.EDITIONS) == set(runner.RUNNERS)


def test_other_settings_are_other_jobs(setup):
    job = Job("fig34", {"method": "clew", "fraction": 0.5, "draw": 0})
    other = Job("fig34", {"method": "clew", "fraction": 0.5, "draw": 1})
    assert job.key(setup) != other.key(setup)
    assert job.key(setup) != job.key(
        Setup(setup.train, setup.test, setup.cache, setup.pairs, seed=1)
    )
    assert job.key(setup) == job.key(
        Setup(setup.train, setup.test, "elsewhere", setup.pairs)
    )


def test_parts_name_experiments():
    assert experiments_for(["fig4", "fig3"]) == ["fig34"]
    assert (
        experiments_for([])
        == experiments_for(["all"])
        == ["fig34", "table3", "fig56", "beyond"]
    )
    with pytest.raises(InputError, match="fig7"):
        experiments_for(["fig7"])
    with pytest.raises(InputError, match="at least one"):
        jobs_for(["fig34"], QUICK, 0)
    assert len(jobs_for(["fig34"], WHOLE)) == 1 + 10 * 10 * 3


def test_an_annotator_needs_no_more_answers_than_there_are_events(data):
    from clew.annotation.learner import Learner

    some = data.test.truth[data.test.truth.events.frame < 2]
    learner = Learner(data.test.source)
    first, last = annotate(learner, some, "least-margin", [5, 10_000], 0, 1)
    assert first == 5
    assert 0.9 * len(some) < last <= len(some)


def test_summaries():
    assert Summary.of([1.0, 3.0]) == Summary(2.0, pytest.approx(2**0.5), 2)
    assert Summary.of([1.0]).std == 0
    points = [{"answers": 5, "loss": 0.1}, {"answers": 10, "loss": 0.2}]
    (_, first), (share, second) = curve([{"events": 100, "points": points}] * 2, "loss")
    assert (first.mean, second.mean, share) == (0.1, 0.2, 0.1)
