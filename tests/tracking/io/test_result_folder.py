"""Several files replaced as one: cut short at any step, the folder is as before or as after, and never between."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from clew.errors import DataWarning, InputError, StoreError
from clew.tracking.io.lineage_tables import read_events
from clew.tracking.io.result_folder import (
    finish_interrupted_write,
    read_manifest,
    refuse_interrupted_write,
    require_intact,
    stage_files,
    warn_if_file_changed,
    warn_if_folder_changed,
    write_atomically,
)


class Killed(BaseException):
    """Stands for kill −9: nothing after it may run, so that cleaning up is undone by the test."""


def content(folder):
    """What anyone sees: no hidden files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    shown = {path.relative_to(folder).as_posix(): path.read_text() for path in files}
    return {name: text for name, text in shown.items() if not name.startswith(".")}


def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def snapshot(folder):
    """Every entry, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def owns(name):
    return name != "mine"


def write(folder, files, name="result"):
    with stage_files(folder, name, owns, last="last") as stage:
        for path, text in files.items():
            (stage / path).parent.mkdir(exist_ok=True)
            (stage / path).write_text(text)


OLD = {
    "a": "old",
    "only old": "old",
    "d/x": "old",
    "d/only old": "old",
    "was folder/x": "old",
    "last": "old",
}
NEW = {"a": "new", "b": "new", "d/x": "new", "was folder": "new", "last": "new"}


def test_new_files_replace_all_old_ones(tmp_path):
    write(tmp_path / "new/folder", OLD)
    assert content(tmp_path / "new/folder") == OLD
    (tmp_path / "new/folder/mine").write_text("mine")
    write(tmp_path / "new/folder", NEW)
    assert content(tmp_path / "new/folder") == NEW | {"mine": "mine"}
    assert hidden(tmp_path / "new/folder") == []


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()],
)
@pytest.mark.parametrize("older", [True, False])
def test_what_fails_leaves_everything_as_it_was(tmp_path, error, older):
    folder = tmp_path / "some/folder"
    if older:
        write(folder, OLD)

    def fail():
        with stage_files(folder, "result", lambda _: True) as stage:
            (stage / "a").write_text("new")
            raise error

    with pytest.raises((StoreError, ValueError, KeyboardInterrupt)):
        fail()
    if older:
        assert content(folder) == OLD
        assert hidden(folder) == []
    else:
        assert not (tmp_path / "some").exists()


def count_steps(monkeypatch, limit, error=None):
    """Let the `limit`-th change of the file system kill the process, or raise `error` once."""
    steps = []

    def counted(original):
        def step(*args, **kwargs):
            if len(steps) >= limit and error is None:
                raise Killed
            steps.append(args)
            if len(steps) == limit + 1 and error is not None:
                raise error
            return original(*args, **kwargs)

        return step

    for name in ("rename", "replace", "unlink", "mkdir", "rmdir"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    monkeypatch.setattr("shutil.rmtree", counted(shutil.rmtree))
    monkeypatch.setattr(os, "replace", counted(os.replace))
    return steps


@pytest.mark.parametrize("after", ["read", "write"])
def test_killed_at_every_step(tmp_path, monkeypatch, after):
    states = []
    for limit in range(100):
        folder = tmp_path / f"{after}{limit}"
        write(folder, OLD)
        with monkeypatch.context() as patch:
            count_steps(patch, limit)
            try:
                write(folder, NEW)
                done = True
            except Killed:
                done = False
        if after == "write":
            write(folder, {"a": "third", "last": "third"})
            assert content(folder) == {"a": "third", "last": "third"}
            assert hidden(folder) == []
        else:
            before = snapshot(folder)
            try:
                refuse_interrupted_write(folder)
            except StoreError:
                assert snapshot(folder) == before  # a reader changes nothing
                finish_interrupted_write(folder, "result", owns)
                assert hidden(folder) == []
            states.append(content(folder))
            assert states[-1] in (OLD, NEW)
        if done:
            break
    else:
        pytest.fail("it never ended")
    if states:  # both were seen: old ones first, and from some step on the new ones
        assert states[0] == OLD
        assert states[-1] == NEW
        assert sorted(state == NEW for state in states) == [
            state == NEW for state in states
        ]


def test_interrupt_at_any_step_leaves_a_whole_result(tmp_path, monkeypatch):
    states = []
    for limit in range(100):
        folder = tmp_path / str(limit)
        write(folder, OLD)
        with monkeypatch.context() as patch:
            steps = count_steps(patch, limit, KeyboardInterrupt())
            with contextlib.suppress(KeyboardInterrupt):
                write(folder, NEW)
        refuse_interrupted_write(folder)
        assert content(folder) in (OLD, NEW)
        states.append(content(folder) == NEW)
        if len(steps) <= limit:
            break
    assert states == sorted(states)
    assert not states[0]
    assert states[-2]


def test_two_writers(tmp_path):
    write(tmp_path, OLD)
    with stage_files(tmp_path, "result", lambda _: True) as stage:
        (stage / "a").write_text("new")
        with pytest.raises(StoreError, match="another clew is writing"):
            write(tmp_path, NEW)
        write(tmp_path / "elsewhere", NEW)
    assert content(tmp_path) == {"a": "new"}


def test_two_names_in_one_folder_do_not_meet(tmp_path):
    with (
        stage_files(tmp_path, "one", {"a"}.__contains__) as first,
        stage_files(tmp_path, "two", {"b"}.__contains__) as second,
    ):
        (first / "a").write_text("1")
        (second / "b").write_text("2")
    assert content(tmp_path) == {"a": "1", "b": "2"}


def test_a_folder_behind_a_link_stays_behind_it(tmp_path):
    write(tmp_path / "disk", OLD)
    (tmp_path / "link").symlink_to(tmp_path / "disk", target_is_directory=True)
    write(tmp_path / "link", NEW)
    assert content(tmp_path / "disk") == NEW
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(
    not os.access("/dev/shm", os.W_OK),
    reason="there is no second file system to write to",
)
def test_a_folder_on_another_file_system(tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if Path(other).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is on the same file system as the temporary files")
        (tmp_path / "link").symlink_to(other, target_is_directory=True)
        write(tmp_path / "link", OLD)
        write(tmp_path / "link", NEW)
        assert content(tmp_path / "link") == NEW


def plant_plan(folder, plan, run="0123abcd"):
    """A plan that a killed run could have left, or a stranger put there."""
    ready = folder / f".result.{run}.ready"
    ready.mkdir(parents=True)
    (ready / ".plan.json").write_text(json.dumps(plan))
    return ready


@pytest.mark.parametrize("name", ["../victim", "/etc/passwd", "..", "", "a/b", 5])
def test_plan_that_leads_out_of_the_folder_is_refused(tmp_path, name):
    (tmp_path / "victim").write_text("dear")
    folder = tmp_path / "folder"
    plant_plan(folder, {"move": [], "remove": [name]})
    (folder / ".result.lock").write_text("0123abcd\n")
    with pytest.raises(StoreError, match="is damaged"):
        refuse_interrupted_write(folder)
    with pytest.raises(StoreError, match="is damaged"):
        finish_interrupted_write(folder, "result", owns)
    assert (tmp_path / "victim").read_text() == "dear"


def test_plan_is_not_carried_out_by_readers(tmp_path):
    (tmp_path / "victim").write_text("dear")
    plant_plan(tmp_path, {"move": [], "remove": ["victim"]})
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match="was interrupted"):
        refuse_interrupted_write(tmp_path)
    assert snapshot(tmp_path) == before


def test_plan_of_a_stranger_is_not_carried_out_by_writers(tmp_path):
    (tmp_path / "victim").write_text("dear")
    plant_plan(tmp_path, {"move": [], "remove": ["victim"]})
    finish_interrupted_write(tmp_path, "result", owns)  # no lock file lists the run
    assert (tmp_path / "victim").read_text() == "dear"
    (tmp_path / ".result.lock").write_text("0123abcd\n")
    with pytest.raises(StoreError, match=r"no file of this\s+result"):
        finish_interrupted_write(tmp_path, "result", {"a"}.__contains__)
    assert (tmp_path / "victim").read_text() == "dear"


def test_leftovers_of_other_programs_stay(tmp_path):
    (tmp_path / ".result.0123abcd.tmp").mkdir()
    write(tmp_path, {"a": "new"})
    assert hidden(tmp_path) == [".result.0123abcd.tmp"]


@pytest.mark.linux
def test_files_are_synced_before_they_count(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def record(number):
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    rename = Path.rename

    def stop(path, target):
        if Path(target).suffix == ".ready":
            assert {"x", "y", "deep", "folder"} <= set(synced)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(Path, "rename", stop)
    with stage_files(tmp_path, "result", owns) as stage:
        (stage / "folder/deep").mkdir(parents=True)
        (stage / "folder/x").write_text("x")
        (stage / "folder/deep/y").write_text("y")


HEADER = "frame,event,sources,targets\n"


def is_table(name):
    return name.endswith((".csv", ".d"))


@pytest.fixture
def folder(tmp_path):
    with write_atomically(
        tmp_path / "result", "track", is_table, {"movie": "a"}
    ) as stage:
        (stage / "events.csv").write_text(HEADER + "0,move,1,1\n1,move,1,1\n")
        (stage / "graph.d/inner").mkdir(parents=True)
        (stage / "graph.d/inner/.hidden").write_text("b")
    return tmp_path / "result"


def test_what_was_written_is_whole(folder, recwarn):
    manifest = require_intact(folder, is_table)
    assert (manifest.what, manifest.made_from) == ("track", {"movie": "a"})
    assert set(manifest.files) == {"events.csv", "graph.d/inner/.hidden"}
    assert len(read_events(folder / "events.csv")[0]) == 2
    warn_if_folder_changed(folder)
    warn_if_file_changed(folder / "graph.d")
    assert not recwarn.list


def test_the_same_content_is_the_same_run(folder, tmp_path):
    with write_atomically(
        tmp_path / "again", "track", is_table, {"movie": "a"}
    ) as stage:
        for path in folder.iterdir():
            if path.name != "manifest.json":
                (shutil.copytree if path.is_dir() else shutil.copy)(
                    path, stage / path.name
                )
    with write_atomically(
        tmp_path / "other", "track", is_table, {"movie": "b"}
    ) as stage:
        (stage / "events.csv").write_text(HEADER)
    runs = [read_manifest(tmp_path / name).run for name in ("result", "again", "other")]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda f: (f / "events.csv").write_text(HEADER),
            r"events\.csv has 28 bytes, expected 50",
        ),
        (
            lambda f: (f / "events.csv").write_text(
                HEADER + "0,move,1,1\n1,move,2,2\n"
            ),
            r"content of events\.csv differs",
        ),
        (lambda f: (f / "events.csv").unlink(), r"events\.csv is missing"),
        (
            lambda f: (f / "graph.d/inner/.hidden").write_text("c"),
            r"content of graph\.d/inner/\.hidden differs",
        ),
        (
            lambda f: (f / "tracks.csv").write_text("of another run"),
            r"tracks\.csv is not listed",
        ),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(folder, harm, message):
    harm(folder)
    with pytest.raises(InputError, match=f"do not fit its manifest.json: .*{message}"):
        require_intact(folder, is_table)


def test_a_folder_without_a_manifest_is_accepted(folder):
    (folder / "manifest.json").unlink()
    (folder / "events.csv").write_text(HEADER)
    assert require_intact(folder, is_table) is None


def test_somebody_elses_manifest_is_none(folder):
    (folder / "manifest.json").write_text('{"name": "a web page"}')
    assert require_intact(folder, is_table) is None


def test_a_damaged_manifest_is_refused(folder):
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"movie": "a"', '"movie": "b"'))
    with pytest.raises(InputError, match="its digest does not fit"):
        require_intact(folder, is_table)
    for damaged in (text[:50], "[" * 100_000):
        (folder / "manifest.json").write_text(damaged)
        with pytest.raises(InputError, match="is damaged"):
            require_intact(folder, is_table)


def test_a_newer_manifest_is_refused(folder):
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(StoreError, match="has version 99"):
        require_intact(folder, is_table)


def test_one_file_that_was_changed_is_told(folder):
    (folder / "events.csv").write_text(HEADER + "0,move,1,1\n")
    with pytest.warns(DataWarning, match=r"events\.csv has 39 bytes, expected 50"):
        events, *_ = read_events(folder / "events.csv")
    assert len(events) == 1
    (folder / "more.csv").write_text(HEADER)
    with pytest.warns(DataWarning, match=r"more\.csv is not listed"):
        read_events(folder / "more.csv")


def test_label_images_corrected_by_hand_are_told(folder):
    (folder / "events.csv").write_text(HEADER)
    with pytest.warns(
        DataWarning,
        match=r"was changed since clew .* wrote it: events\.csv has 28 bytes",
    ):
        warn_if_folder_changed(folder)


def rewrite_files(folder, files):
    """Replace the list of files in a manifest, with a digest that fits."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["files"] = files
    header = {key: content.pop(key) for key in ("kind", "version", "run")}
    text = json.dumps(content, sort_keys=True).encode()
    header["run"] = hashlib.sha256(text).hexdigest()[:16]
    path.write_text(json.dumps(header | content))


def test_long_names_in_a_manifest_are_missing_files(folder):
    rewrite_files(folder, {"x" * 5000: [1, ""]})
    with pytest.raises(InputError, match="xxx is missing"):
        require_intact(folder, is_table)
    with pytest.warns(DataWarning, match="xxx is missing"):
        warn_if_folder_changed(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "../events.csv", "a/../../b", "a\0b"])
def test_names_that_lead_out_of_the_folder_are_refused(folder, name):
    rewrite_files(folder, {name: [1, ""]})
    with pytest.raises(InputError, match="not a path within the folder"):
        require_intact(folder, is_table)
