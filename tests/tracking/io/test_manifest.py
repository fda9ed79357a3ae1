"""A folder of results is one thing: what does not belong to it is noticed, and gone after the next run."""

import hashlib
import json
import shutil

import pytest

from clew.errors import DataWarning, InputError, StoreError
from clew.tracking.io.events_csv import read_events
from clew.tracking.io.manifest import (
    read_manifest,
    require_intact,
    warn_if_file_changed,
    warn_if_folder_changed,
    write_atomically,
)

HEADER = "frame,event,sources,targets\n"


def owns(name):
    return name.endswith((".csv", ".d"))


@pytest.fixture
def folder(tmp_path):
    with write_atomically(tmp_path / "result", "track", owns, {"movie": "a"}) as stage:
        (stage / "events.csv").write_text(HEADER + "0,move,1,1\n1,move,1,1\n")
        (stage / "graph.d/inner").mkdir(parents=True)
        (stage / "graph.d/inner/.hidden").write_text("b")
    return tmp_path / "result"


def test_what_was_written_is_whole(folder, recwarn):
    manifest = require_intact(folder, owns)
    assert (manifest.what, manifest.made_from) == ("track", {"movie": "a"})
    assert set(manifest.files) == {"events.csv", "graph.d/inner/.hidden"}
    assert len(read_events(folder / "events.csv")[0]) == 2
    warn_if_folder_changed(folder)
    warn_if_file_changed(folder / "graph.d")
    assert not recwarn.list


def test_the_same_content_is_the_same_run(folder, tmp_path):
    with write_atomically(tmp_path / "again", "track", owns, {"movie": "a"}) as stage:
        for path in folder.iterdir():
            if path.name != "manifest.json":
                (shutil.copytree if path.is_dir() else shutil.copy)(
                    path, stage / path.name
                )
    with write_atomically(tmp_path / "other", "track", owns, {"movie": "b"}) as stage:
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
        require_intact(folder, owns)


def test_a_folder_without_a_manifest_is_accepted(folder):
    (folder / "manifest.json").unlink()
    (folder / "events.csv").write_text(HEADER)
    assert require_intact(folder, owns) is None


def test_somebody_elses_manifest_is_none(folder):
    (folder / "manifest.json").write_text('{"name": "a web page"}')
    assert require_intact(folder, owns) is None


def test_a_damaged_manifest_is_refused(folder):
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"movie": "a"', '"movie": "b"'))
    with pytest.raises(InputError, match="its digest does not fit"):
        require_intact(folder, owns)
    for damaged in (text[:50], "[" * 100_000):
        (folder / "manifest.json").write_text(damaged)
        with pytest.raises(InputError, match="is damaged"):
            require_intact(folder, owns)


def test_a_newer_manifest_is_refused(folder):
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(StoreError, match="has version 99"):
        require_intact(folder, owns)


def test_one_file_that_was_changed_is_told(folder):
    (folder / "events.csv").write_text(HEADER + "0,move,1,1\n")
    with pytest.warns(DataWarning, match=r"events\.csv has 39 bytes, expected 50"):
        events, _ = read_events(folder / "events.csv")
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
        require_intact(folder, owns)
    with pytest.warns(DataWarning, match="xxx is missing"):
        warn_if_folder_changed(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "../events.csv", "a/../../b", "a\0b"])
def test_names_that_lead_out_of_the_folder_are_refused(folder, name):
    rewrite_files(folder, {name: [1, ""]})
    with pytest.raises(InputError, match="not a path within the folder"):
        require_intact(folder, owns)
