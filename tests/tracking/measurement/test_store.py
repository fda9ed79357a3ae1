"""Measuring a movie through the cache: nothing stale or damaged is trusted, memory and disk stay bounded."""

import gc
import pickle
from pathlib import Path

import numpy as np
import pytest
import tifffile

from clew.errors import CacheWarning, InputError, StoreError
from clew.tracking.frames import ArrayFrames
from clew.tracking.io import tiff
from clew.tracking.measurement import measure as measuring
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.measurement.regions import measure_frame, measure_overlap
from clew.tracking.measurement.store import FOLDER, Store, open_store
from clew.tracking.movie import Movie, open_movie
from clew.utils import storage

N_FRAMES = 11


@pytest.fixture
def pixels():
    """(labels, images): six cells that drift; one frame is empty."""
    rng = np.random.default_rng(3)
    labels = np.zeros((N_FRAMES, 40, 50), np.uint16)
    for t in range(N_FRAMES):
        for cell in range(6):
            y, x = 2 + 12 * (cell // 2) + t // 3, 3 + 20 * (cell % 2) + t
            labels[t, y : y + 7, x : x + 9] = cell + 1
    labels[4] = 0
    return labels, rng.integers(0, 900, labels.shape, dtype=np.uint16)


def movie_of(pixels, folder=None, spacing=(1.0, 1.0)):
    labels, images = pixels
    frames = [
        None if part is None else ArrayFrames.from_data(part, "part")
        for part in (labels, images)
    ]
    return Movie("tiny", *frames, spacing, "arrays", folder)


@pytest.fixture
def measured_frames(monkeypatch):
    """The frames that are really measured, as they are."""
    seen = []
    original = measuring.measure_frame
    monkeypatch.setattr(
        measuring,
        "measure_frame",
        lambda t, *rest: seen.append(t) or original(t, *rest),
    )
    return seen


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.clew") if path.is_file())


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_what_comes_back_is_what_was_measured(pixels, n_jobs):
    done = []
    movie = movie_of(pixels, spacing=(2.0, 0.5))
    source = measure_movie(
        movie, n_jobs=n_jobs, progress=lambda *counts: done.append(counts)
    )
    assert (source.n_frames, source.ndim, source.name) == (N_FRAMES, 2, "tiny")
    assert done[-1] == (N_FRAMES, N_FRAMES)
    for t in range(N_FRAMES):
        cells, direct = (
            source.detections(t),
            measure_frame(t, movie.label(t), movie.image(t), movie.spacing),
        )
        assert cells.frame == t
        np.testing.assert_array_equal(cells.label, direct.label)
        np.testing.assert_array_equal(cells.position, direct.position)
        assert cells.columns.keys() == direct.columns.keys()
        for name, column in direct.columns.items():
            np.testing.assert_allclose(cells.columns[name], column, rtol=1e-6)
    for t in range(N_FRAMES - 1):
        overlap, (first, second, volume) = (
            source.overlap(t),
            measure_overlap(*pixels[0][t : t + 2], movie.spacing),
        )
        np.testing.assert_array_equal(source.detections(t).label[overlap.source], first)
        np.testing.assert_array_equal(
            source.detections(t + 1).label[overlap.target], second
        )
        np.testing.assert_allclose(overlap.volume, volume, rtol=1e-6)


def test_intensity_groups_are_there_with_images_only(pixels):
    measured = {"size", "border", "shape", "direction", "overlap"}
    assert measure_movie(movie_of(pixels)).has == measured | {"intensity", "histogram"}
    without = measure_movie(movie_of((pixels[0], None)))
    assert without.has == measured
    assert "intensity" not in without.detections(0).columns


def test_a_frame_that_is_not_there_is_refused(pixels):
    source = measure_movie(movie_of(pixels))
    for ask in (
        lambda: source.detections(N_FRAMES),
        lambda: source.detections(-1),
        lambda: source.overlap(10),
    ):
        with pytest.raises(InputError, match="no frame"):
            ask()


def test_a_second_run_measures_nothing(pixels, tmp_path, measured_frames):
    measure_movie(movie_of(pixels, tmp_path))
    assert sorted(measured_frames) == list(range(N_FRAMES))
    assert {path.relative_to(tmp_path).parts[0] for path in files(tmp_path)} == {FOLDER}
    measured_frames.clear()
    measure_movie(movie_of(pixels, tmp_path))
    assert measured_frames == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda labels, images: labels.__setitem__((6, 0, 0), 1),
            [5, 6],
        ),  # 5 has its overlap with 6
        (lambda labels, images: images.__setitem__((6, 0, 0), 1000), [6]),
    ],
)
def test_a_changed_pixel_is_noticed(
    pixels, tmp_path, measured_frames, change, expected
):
    measure_movie(movie_of(pixels, tmp_path))
    measured_frames.clear()
    change(*pixels)
    measure_movie(movie_of(pixels, tmp_path))
    assert sorted(measured_frames) == expected


def test_measurements_do_not_wait_for_the_disk(pixels, tmp_path, monkeypatch):
    def refuse(_):
        raise AssertionError("a damaged file would be measured again")

    monkeypatch.setattr(storage.os, "fsync", refuse)
    measure_movie(movie_of(pixels, tmp_path))
    assert len(files(tmp_path)) == N_FRAMES


def write_movie(folder, pixels):
    for name, stack in zip(("01_SEG", "01"), pixels, strict=True):
        (folder / name).mkdir(parents=True)
        for t, frame in enumerate(stack):
            tifffile.imwrite(folder / name / f"t{t:03d}.tif", frame)
    return folder / "01"


def test_files_that_did_not_change_are_not_read(pixels, tmp_path, monkeypatch):
    monkeypatch.setattr(tiff, "SETTLED_SECONDS", -60)  # files of a moment ago count
    path = write_movie(tmp_path, pixels)
    read = []
    measure_chunk = measuring._measure_chunk

    def count(store, cache, chunk):
        read.extend(chunk[1])
        return measure_chunk(store, cache, chunk)

    monkeypatch.setattr(measuring, "_measure_chunk", count)
    first = measure_movie(open_movie(path))
    assert sorted(read) == list(range(N_FRAMES))
    read.clear()
    again = measure_movie(open_movie(path))
    assert (read, again.keys) == ([], first.keys)
    np.testing.assert_array_equal(
        again.detections(6).position, first.detections(6).position
    )

    pixels[0][6, 0, 0] = 1
    tifffile.imwrite(tmp_path / "01_SEG/t006.tif", pixels[0][6])
    (lost_file, *_) = files(tmp_path)
    lost_file.unlink()
    lost = first.keys.index(lost_file.stem)
    changed = measure_movie(open_movie(path))
    assert set(read) == {5, 6, lost}
    assert changed.keys == measure_movie(open_movie(path), cache=None).keys

    (tmp_path / ".clew").rename(tmp_path / "elsewhere")
    read.clear()
    monkeypatch.setattr(tiff, "SETTLED_SECONDS", 60)
    measure_movie(open_movie(path))
    measure_movie(open_movie(path))
    assert len(read) == 2 * N_FRAMES  # files of a moment ago may change unnoticed


def test_a_file_that_went_after_opening_is_named(pixels, tmp_path):
    movie = open_movie(write_movie(tmp_path, pixels))
    (tmp_path / "01/t003.tif").unlink()
    with pytest.raises(InputError, match=r"t003.tif cannot be read"):
        measure_movie(movie)


def test_another_spacing_or_way_of_measuring_is_noticed(
    pixels, tmp_path, measured_frames, monkeypatch
):
    measure_movie(movie_of(pixels, tmp_path))
    measure_movie(movie_of(pixels, tmp_path, spacing=(1.0, 2.0)))
    monkeypatch.setattr(measuring, "VERSION", measuring.VERSION + 1)
    measure_movie(movie_of(pixels, tmp_path))
    assert sorted(measured_frames) == sorted([*range(N_FRAMES)] * 3)


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "swap"])
def test_a_damaged_entry_is_measured_again(pixels, tmp_path, measured_frames, damage):
    whole = measure_movie(movie_of(pixels, tmp_path))
    expected = [whole.detections(t).position for t in range(N_FRAMES)]
    entry, other = (files(tmp_path)[0].parent / f"{whole.keys[t]}.clew" for t in (2, 3))
    content = bytearray(entry.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    entry.write_bytes(
        {"truncate": content[:-100], "empty": b"", "swap": other.read_bytes()}.get(
            damage, bytes(content)
        )
    )
    measured_frames.clear()
    again = measure_movie(movie_of(pixels, tmp_path))
    assert measured_frames == [2]
    for t in range(N_FRAMES):
        np.testing.assert_array_equal(again.detections(t).position, expected[t])


def test_an_entry_that_goes_while_the_movie_is_in_use_is_measured_again(
    pixels, tmp_path
):
    source = measure_movie(movie_of(pixels, tmp_path))
    expected = source.detections(2).position
    for path in files(tmp_path):
        path.unlink()
    source = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(source.detections(2).position, expected)
    pixels[0][3, 0, 0] = 1
    source.movie.labels.data[3, 0, 0] = 1
    with pytest.raises(InputError, match="frame 3 changed"):
        source.detections(3)


def test_a_folder_that_cannot_be_written_to_is_no_obstacle(pixels, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(CacheWarning, match="--no-cache"):
        source = measure_movie(movie_of(pixels, tmp_path / "file"))
    assert len(source.detections(0)) == 6
    with pytest.raises(StoreError, match="cannot be saved there"):
        measure_movie(movie_of(pixels), cache=tmp_path / "file")


@pytest.mark.parametrize("from_frame", [0, 5])
def test_a_folder_that_fills_up_is_no_obstacle(
    pixels, tmp_path, monkeypatch, from_frame
):
    expected = measure_movie(movie_of(pixels), cache=None)
    written, original = [], storage.write_document

    def full(*args, **options):
        if len(written) >= from_frame:
            raise StoreError("a.clew: cannot be written (No space left on device)")
        written.append(original(*args, **options))

    monkeypatch.setattr(storage, "write_document", full)
    with pytest.warns(
        CacheWarning, match="No space left on device.*--no-cache"
    ) as told:
        source = measure_movie(movie_of(pixels, tmp_path), n_jobs=1)
    assert len(told) == 1
    source = pickle.loads(pickle.dumps(source))
    for t in range(N_FRAMES):
        np.testing.assert_array_equal(
            source.detections(t).position, expected.detections(t).position
        )
        assert source.detections(t).frame == t
    for t in range(N_FRAMES - 1):
        np.testing.assert_allclose(
            source.overlap(t).volume, expected.overlap(t).volume, rtol=1e-6
        )


def test_a_temporary_store_goes_with_its_source(pixels):
    source = measure_movie(movie_of(pixels), cache=None)
    folder = source.store.folder
    assert len(files(folder)) == N_FRAMES
    del source
    gc.collect()
    assert not folder.exists()


def test_few_frames_stay_in_memory_for_all_windows(pixels, monkeypatch):
    measured = measure_movie(movie_of(pixels))
    size = sum(column.nbytes for column in measured.detections(0).columns.values())
    monkeypatch.setattr("clew.tracking.measurement.measure.MAX_BYTES", 3 * size)
    source = pickle.loads(pickle.dumps(measured))
    first = source.detections(0)
    assert source.detections(0) is first
    assert source.window(0, 1).detections(0) is first
    shift = np.full_like(first.position, 0.5)
    shared = source.overlap(0, shift)
    assert source.window(0, 1).overlap(0, shift.copy()) is shared
    assert source.overlap(0, shift + 1) is not shared
    for t in range(N_FRAMES):
        source.detections(t)
    assert source.detections(0) is not first


def test_entries_of_no_use_are_limited(pixels, tmp_path):
    source = measure_movie(movie_of(pixels), cache=tmp_path)
    store, size = Store(tmp_path), files(tmp_path)[0].stat().st_size
    weights = store.folder / "weights.clew"
    weights.touch()
    store.prune(source.keys, limit=0)
    assert weights.exists()
    weights.unlink()
    assert len(files(tmp_path)) == N_FRAMES
    store.prune(source.keys[:4], limit=int(3.5 * size))
    left = {path.stem for path in files(tmp_path)}
    assert set(source.keys[:4]) <= left
    assert len(left) in (6, 7, 8)


def test_two_movies_of_one_folder_do_not_share_entries(tmp_path):
    assert (
        open_store("auto", "a", tmp_path).folder
        != open_store("auto", "b", tmp_path).folder
    )


@pytest.mark.parametrize(
    "where",
    [True, 0, 1.5, ["a"], {"a": 1}, b"a", "a\0b", np.array(["auto", "a"]), object()],
)
def test_a_folder_that_is_no_path_is_refused(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cache is"):
        open_store(where, "movie", tmp_path)
    assert not list(tmp_path.iterdir())
