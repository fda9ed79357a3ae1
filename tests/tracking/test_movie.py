import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

from clew.errors import InputError, StoreError
from clew.tracking.io import tiff
from clew.tracking.movie import Movie, open_frames, open_movie


def frames_of(shape=(6, 9), n=4, dtype=np.uint16):
    """Frames of which no two are alike; frame 1 has no cell."""
    frames = np.arange(n * np.prod(shape)).reshape(n, *shape).astype(dtype) % 200
    frames[1] = 0
    return frames


def write_folder(folder, frames, name="t{:03}.tif", first=0):
    folder.mkdir(parents=True)
    for t, frame in enumerate(frames):
        tiff.write_frame(folder / name.format(t + first), frame)
    return folder


@pytest.fixture
def sequence(tmp_path):
    return write_folder(tmp_path / "sim/01", frames_of())


# a folder of TIFFs


@pytest.mark.parametrize("shape", [(6, 9), (3, 6, 9), (2, 1, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.uint32])
def test_a_frame_written_is_the_frame_read(tmp_path, shape, dtype):
    frames = frames_of(shape, dtype=dtype)
    found = open_frames(write_folder(tmp_path / "a", frames))
    assert (len(found), found.shape, found.dtype) == (4, shape, dtype)
    for t in range(4):
        np.testing.assert_array_equal(found[t], frames[t])
    with pytest.raises(IndexError):
        found[4]


def test_a_frame_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(StoreError, match=r"no/t000\.tif"):
        tiff.write_frame(tmp_path / "no/t000.tif", np.zeros((2, 2), np.uint8))
    tiff.write_frame(tmp_path / "t000.tif", np.zeros((2, 2), np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == ["t000.tif"]


def test_numbers_decide_the_order_not_letters(tmp_path):
    frames = frames_of(n=12)
    found = open_frames(
        write_folder(tmp_path / "a", frames, "cells2_frame{}_.TIFF", first=3)
    )
    assert found.first == 3
    assert len(found) == 12
    np.testing.assert_array_equal(
        found[8], frames[8]
    )  # frame11 follows on frame10, not on frame1


def test_hidden_files_do_not_count(sequence):
    (sequence / "._t001.tif").write_bytes(b"a Mac was here")
    (sequence / "notes.txt").write_text("not a frame")
    assert len(open_frames(sequence)) == 4


def test_opening_a_movie_reads_no_pixels(tmp_path, monkeypatch):
    frames = frames_of((30, 40), n=50)
    write_folder(tmp_path / "a/01", frames)
    write_folder(tmp_path / "a/01_ST/SEG", frames, "man_seg{:03}.tif")
    decoded = []
    original = tifffile.TiffPageSeries.asarray
    monkeypatch.setattr(
        tifffile.TiffPageSeries,
        "asarray",
        lambda self, **given: decoded.append(1) or original(self, **given),
    )
    movie = open_movie(tmp_path / "a/01")
    part = movie[30:]
    assert not decoded
    part.label(0)
    assert len(decoded) == 1
    part.image(1)
    assert len(decoded) == 2
    room = 100 + len(str(tmp_path))  # of a path
    assert len(pickle.dumps(movie)) < 100 * room < frames.nbytes / 2


@pytest.mark.parametrize("change", ["missing", "twice", "unnumbered", "none"])
def test_frames_that_do_not_follow_one_another_are_refused(sequence, change):
    frame = sequence / "t002.tif"
    message = {
        "missing": "frame 2 is missing, t003.tif follows on t001.tif",
        "twice": "t002.tif and x2.tif have the same number",
        "unnumbered": "frame.tif has no number",
        "none": "has no frames",
    }[change]
    if change == "missing":
        frame.unlink()
    elif change == "twice":
        (sequence / "x2.tif").write_bytes(frame.read_bytes())
    elif change == "unnumbered":
        frame.rename(sequence / "frame.tif")
    else:
        for path in sequence.iterdir():
            path.unlink()
    with pytest.raises(InputError, match=message):
        open_frames(sequence)


@pytest.mark.parametrize(
    "other",
    [
        np.zeros((6, 8), np.uint16),
        np.zeros((6, 9), np.uint8),
        np.zeros((2, 6, 9), np.uint16),
    ],
)
@pytest.mark.parametrize("frame", [1, 3])
def test_a_frame_unlike_the_others_is_refused(sequence, other, frame):
    tiff.write_frame(sequence / f"t00{frame}.tif", other)
    with pytest.raises(
        InputError,
        match=rf"t00{frame}\.tif has shape .* expected \(6, 9\) and uint16 as in t000",
    ):
        open_frames(sequence)


def test_frames_of_colours_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    tifffile.imwrite(
        tmp_path / "a/t0.tif", np.zeros((2, 6, 9, 3), np.uint8), photometric="rgb"
    )
    with pytest.raises(
        InputError,
        match=r"t0\.tif has the axes QYXS with the shape \(2, 6, 9, 3\) and 3 channels; .*--channel N",
    ):
        open_frames(tmp_path / "a")


COLOURS = {
    "rgb": ((6, 9, 3), {"photometric": "rgb"}, -1),
    "planar": ((3, 6, 9), {"photometric": "rgb", "planarconfig": "separate"}, 0),
    "imagej": ((3, 6, 9), {"imagej": True, "metadata": {"axes": "CYX"}}, 0),
    "imagej in 3D": ((4, 3, 6, 9), {"imagej": True, "metadata": {"axes": "ZCYX"}}, 1),
    "ome": (
        (3, 6, 9),
        {"ome": True, "metadata": {"axes": "CYX"}, "photometric": "minisblack"},
        0,
    ),
    "ome in 3D": (
        (3, 4, 6, 9),
        {"ome": True, "metadata": {"axes": "CZYX"}, "photometric": "minisblack"},
        0,
    ),
    "several samples": (
        (6, 9, 2),
        {"photometric": "minisblack", "planarconfig": "contig"},
        -1,
    ),
}


@pytest.mark.parametrize("kind", COLOURS)
def test_a_channel_of_frames_is_chosen_and_never_guessed(tmp_path, kind):
    shape, options, axis = COLOURS[kind]
    frames = np.arange(2 * np.prod(shape), dtype=np.uint8).reshape(2, *shape)
    (tmp_path / "a").mkdir()
    for t, frame in enumerate(frames):
        tifffile.imwrite(tmp_path / f"a/t{t}.tif", frame, **options)
    with pytest.raises(
        InputError,
        match=r"t0\.tif has the axes .*expected one channel.*--channel N, 0 to [12]",
    ):
        open_frames(tmp_path / "a")
    count = shape[axis]
    for channel in range(count):
        found = open_frames(tmp_path / "a", channel=channel)
        expected = np.take(frames[1], channel, axis)
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found[1], expected)
    with pytest.raises(
        InputError,
        match=f"has the channels 0 to {count - 1}; there is no channel {count}",
    ):
        open_frames(tmp_path / "a", channel=count)


@pytest.mark.parametrize("axes", ["TCYX", "CTYX", "TZCYX", "TCZYX", "TYXS"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_channel_of_a_stack_is_chosen(tmp_path, axes, compression):
    sizes = {"T": 4, "C": 2, "Z": 3, "Y": 6, "X": 9, "S": 3}
    frames = (
        np.arange(np.prod([sizes[a] for a in axes]))
        .reshape([sizes[a] for a in axes])
        .astype(np.uint8)
    )
    photometric = "rgb" if "S" in axes else "minisblack"
    tifffile.imwrite(
        tmp_path / "a.ome.tif",
        frames,
        metadata={"axes": axes},
        photometric=photometric,
        compression=compression,
    )
    with pytest.raises(InputError, match=rf"has the axes {axes} .*--channel N"):
        open_frames(tmp_path / "a.ome.tif")
    found = pickle.loads(pickle.dumps(open_frames(tmp_path / "a.ome.tif", channel=1)))
    at = axes.index("S" if "S" in axes else "C")
    expected = np.moveaxis(
        np.take(frames, 1, at), axes.replace(axes[at], "").index("T"), 0
    )
    assert (len(found), found.shape) == (4, expected.shape[1:])
    for t in range(4):
        np.testing.assert_array_equal(found[t], expected[t])


def test_a_file_of_one_channel_has_no_other(tmp_path):
    folder = write_folder(tmp_path / "a", frames_of())
    assert open_frames(folder, channel=0).shape == (6, 9)
    with pytest.raises(InputError, match="has one channel"):
        open_frames(folder, channel=1)


def test_several_times_in_one_of_many_files_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    for t in range(2):
        tifffile.imwrite(
            tmp_path / f"a/t{t}.tif", frames_of(), imagej=True, metadata={"axes": "TYX"}
        )
    with pytest.raises(
        InputError, match=r"axes TYX .*expected \(y, x\) or \(z, y, x\) a file"
    ):
        open_frames(tmp_path / "a")


# damaged files


def unlike_pages(path, kind, **options):
    """A stack whose third page is another, and whose metadata say that all are alike."""
    other = {"size": np.zeros((6, 8), np.uint16), "dtype": np.zeros((6, 9), np.uint8)}[
        kind
    ]
    pages = [*frames_of(n=2), other, *frames_of(n=2)]
    with tifffile.TiffWriter(path) as file:
        for page in pages:
            file.write(
                page,
                contiguous=False,
                description='{"shape": [5, 6, 9]}',
                metadata=None,
                **options,
            )


@pytest.mark.parametrize("kind", ["size", "dtype"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_one_page_unlike_the_others_is_refused(tmp_path, kind, compression):
    unlike_pages(tmp_path / "a.tif", kind, compression=compression)
    with pytest.raises(InputError, match=r"a\.tif: page 2 has shape"):
        open_frames(tmp_path / "a.tif")
    (tmp_path / "a").mkdir()
    for t in range(2):
        unlike_pages(tmp_path / f"a/t{t}.tif", kind, compression=compression)

    def read():
        return open_frames(tmp_path / "a")[1]

    with pytest.raises(
        InputError,
        match=r"t[01]\.tif.* (different shapes|page 2 has shape|cannot be read)",
    ):
        read()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_among_the_frames_is_refused_at_once(sequence):
    (sequence / "t002.tif").unlink()
    os.mkfifo(sequence / "t002.tif")
    with pytest.raises(InputError, match=r"t002\.tif is no regular file"):
        open_frames(sequence)


def test_a_folder_among_the_frames_is_refused(sequence):
    (sequence / "t004.tif").mkdir()
    with pytest.raises(InputError, match=r"t004\.tif is a folder"):
        open_frames(sequence)


def test_a_frame_without_permission_is_not_called_damaged(sequence, monkeypatch):
    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tifffile, "TiffFile", refused)
    with pytest.raises(
        InputError, match=r"t000\.tif cannot be read \(Permission denied\)$"
    ):
        open_frames(sequence)


@pytest.mark.parametrize("size", [0, 4, 60, 0.5, 0.9])
def test_a_truncated_frame_is_refused_on_opening(sequence, size):
    path = sequence / "t002.tif"
    tifffile.imwrite(
        path, np.random.default_rng(0).integers(0, 999, (60, 90)).astype(np.uint16)
    )
    for other in (0, 1, 3):
        (sequence / f"t00{other}.tif").write_bytes(path.read_bytes())
    data = path.read_bytes()
    path.write_bytes(data[: int(size * len(data)) if isinstance(size, float) else size])
    with pytest.raises(InputError, match=r"t002\.tif .*cut short"):
        open_frames(sequence)


def test_damaged_pixels_are_told_with_the_file_when_they_are_read(sequence):
    frames = open_frames(sequence)
    path = sequence / "t002.tif"
    with tifffile.TiffFile(path) as file:
        start, count = file.pages[0].dataoffsets[0], file.pages[0].databytecounts[0]
    data = bytearray(path.read_bytes())
    data[start : start + count] = b"\xff" * count
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"t002\.tif cannot be read"):
        frames[2]


def test_a_file_changed_after_opening_is_refused(sequence):
    frames = open_frames(sequence)
    tiff.write_frame(sequence / "t002.tif", np.zeros((5, 5), np.uint16))
    with pytest.raises(InputError, match=r"t002\.tif has changed"):
        frames[2]


def giant(width, height, pages=1):
    """A TIFF of a few bytes that claims to be of any size."""
    entries = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, 16),
        (259, 3, 1, 8),
        (262, 3, 1, 1),
    ]
    entries += [(273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, 8)]
    data, size = struct.pack("<2sHI", b"II", 42, 8), 2 + 12 * len(entries) + 4
    for page in range(pages):
        data += struct.pack("<H", len(entries)) + b"".join(
            struct.pack("<HHII", *entry) for entry in entries
        )
        data += struct.pack("<I", 8 + (page + 1) * size if page + 1 < pages else 0)
    return data + bytes(64)


@pytest.mark.parametrize("pages", [1, 3])
def test_a_tiff_that_claims_a_million_million_pixels_is_refused_before_memory_is_asked_for(
    tmp_path, pages
):
    (tmp_path / "a").mkdir()
    for path in (tmp_path / "a/t000.tif", tmp_path / "stack.tif"):
        path.write_bytes(giant(1_000_000, 1_000_000, pages))
    for path in (tmp_path / "a", tmp_path / "stack.tif"):
        with pytest.raises(
            InputError, match=r"declares a frame of [26],000,000,000,000 bytes"
        ):
            open_frames(path)


def test_the_crafted_header_is_a_tiff(tmp_path):
    path = tmp_path / "small.tif"
    path.write_bytes(giant(20, 10))
    with tifffile.TiffFile(path) as file:
        assert file.pages[0].shape == (10, 20)


# a stack in one file


KINDS = [
    {},
    {"compression": "zlib"},
    {"imagej": True},
    {"ome": True},
    {"byteorder": ">"},
]
PLAIN = (
    (6, 9),
    {"metadata": None},
)  # without metadata a file does not say how many planes a frame has: 2D only


@pytest.mark.parametrize(
    ("shape", "options"),
    [PLAIN, *((shape, kind) for shape in [(6, 9), (3, 6, 9)] for kind in KINDS)],
)
def test_a_stack_is_read_by_frame(tmp_path, shape, options):
    frames = frames_of(shape, n=5)
    if "imagej" in options or "ome" in options:
        options = {
            **options,
            "metadata": {"axes": "TZYX" if len(shape) == 3 else "TYX"},
        }
    tifffile.imwrite(tmp_path / "a.tif", frames, photometric="minisblack", **options)
    found = open_frames(tmp_path / "a.tif")
    assert (len(found), found.shape, found.dtype) == (5, shape, np.uint16)
    for frames_again in (found, pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(frames_again[3], frames[3])
        np.testing.assert_array_equal(frames_again[0], frames[0])
    with pytest.raises(IndexError):
        found[5]


def test_one_frame_of_a_stack_is_decoded_at_a_time(tmp_path, monkeypatch):
    tifffile.imwrite(
        tmp_path / "a.tif",
        frames_of(n=40),
        photometric="minisblack",
        compression="zlib",
    )
    decoded = []
    original = tifffile.TiffFile.asarray
    monkeypatch.setattr(
        tifffile.TiffFile,
        "asarray",
        lambda self, **given: decoded.append(given["key"]) or original(self, **given),
    )
    open_movie(labels=tmp_path / "a.tif").label(30)
    assert decoded == [slice(30, 31)]


def test_one_image_is_a_movie_of_one_frame(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", frames_of()[0])
    assert open_movie(labels=tmp_path / "a.tif").n_frames == 1


def test_a_stack_of_channels_is_refused(tmp_path):
    frames = np.zeros((4, 2, 6, 9), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", frames, imagej=True, metadata={"axes": "TCYX"})
    with pytest.raises(InputError, match=r"a\.tif has the axes TCYX .*one channel"):
        open_frames(tmp_path / "a.tif")


def test_a_stack_of_unlike_pages_is_refused(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for width in (9, 9, 8):
            file.write(np.zeros((6, width), np.uint16), contiguous=False)
    with pytest.raises(InputError, match=r"a\.tif: page 2 has shape \(6, 8\)"):
        open_frames(tmp_path / "a.tif")


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}])
def test_a_truncated_stack_is_refused(tmp_path, options):
    path = tmp_path / "a.tif"
    noise = np.random.default_rng(0).integers(0, 60_000, (5, 40, 40)).astype(np.uint16)
    tifffile.imwrite(path, noise, photometric="minisblack", **options)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(InputError, match=r"a\.tif"):
        open_frames(path)


def test_the_size_of_a_pixel_comes_from_ome_metadata(tmp_path):
    meta = {
        "axes": "TZYX",
        "PhysicalSizeX": 0.25,
        "PhysicalSizeY": 0.5,
        "PhysicalSizeZ": 2.0,
    }
    tifffile.imwrite(
        tmp_path / "a.ome.tif",
        frames_of((3, 6, 9)),
        photometric="minisblack",
        metadata=meta,
    )
    assert open_movie(labels=tmp_path / "a.ome.tif").spacing == (2.0, 0.5, 0.25)
    assert open_movie(labels=tmp_path / "a.ome.tif", spacing=(1, 2, 3)).spacing == (
        1.0,
        2.0,
        3.0,
    )


# Zarr


def write_ome_zarr(path, frames, axes, version="0.4", scale=None, empty=True):
    group = zarr.open_group(path, mode="w", zarr_format=2 if version == "0.4" else 3)
    with zarr.config.set({"array.write_empty_chunks": empty}):
        array = group.create_array(
            "s0", shape=frames.shape, dtype=frames.dtype, chunks=(1, *frames.shape[1:])
        )
        array[:] = frames
    transform = [{"type": "scale", "scale": scale or [1.0] * frames.ndim}]
    image = {"axes": [{"name": axis} for axis in axes]}
    image["datasets"] = [{"path": "s0", "coordinateTransformations": transform}]
    group.attrs.update(
        {"multiscales": [image]}
        if version == "0.4"
        else {"ome": {"multiscales": [image]}}
    )
    return path


@pytest.mark.parametrize("shape", [(6, 9), (3, 6, 9)])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_zarr_array_is_read_by_frame(tmp_path, shape, zarr_format):
    frames = frames_of(shape)
    zarr.save_array(tmp_path / "a.zarr", frames, zarr_format=zarr_format)
    found = pickle.loads(pickle.dumps(open_frames(tmp_path / "a.zarr")))
    assert (len(found), found.shape, found.dtype) == (4, shape, np.uint16)
    np.testing.assert_array_equal(found[2], frames[2])
    with pytest.raises(IndexError):
        found[4]


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_ome_zarr_is_read_with_its_spacing(tmp_path, version):
    frames = frames_of((3, 6, 9))
    path = write_ome_zarr(
        tmp_path / "a.zarr", frames[:, None], "tczyx", version, [1, 1, 4, 0.5, 0.25]
    )
    movie = open_movie(labels=path)
    assert (movie.n_frames, movie.shape, movie.spacing) == (
        4,
        (3, 6, 9),
        (4.0, 0.5, 0.25),
    )
    np.testing.assert_array_equal(movie.label(2), frames[2])


def test_an_ome_zarr_of_one_plane_is_two_dimensional(tmp_path):
    frames = frames_of()
    movie = open_movie(
        labels=write_ome_zarr(tmp_path / "a.zarr", frames[:, None, None], "tczyx")
    )
    assert movie.shape == (6, 9)
    np.testing.assert_array_equal(movie.label(2), frames[2])


@pytest.mark.parametrize(
    ("shape", "axes", "message"),
    [
        ((4, 2, 6, 9), "tcyx", "axes t: 4, c: 2, y: 6, x: 9 and 2 channels"),
        ((4, 6, 9), "zyx", "has the axes z: 4, y: 6, x: 9"),
        ((4, 6, 9), "txy", "has the axes t: 4, x: 6, y: 9"),
    ],
)
def test_other_axes_of_an_ome_zarr_are_refused(tmp_path, shape, axes, message):
    path = write_ome_zarr(tmp_path / "a.zarr", np.zeros(shape, np.uint16), axes)
    with pytest.raises(InputError, match=message):
        open_frames(path)


@pytest.mark.parametrize("axes", ["ttyx", "tyyx", "tzzyx"])
def test_an_axis_that_is_there_twice_is_refused(tmp_path, axes):
    path = write_ome_zarr(
        tmp_path / "a.zarr",
        np.ones([*[3, 2, 2][: len(axes) - 2], 6, 9], np.uint16),
        axes,
    )
    with pytest.raises(
        InputError, match=r"expected \(t, y, x\) or \(t, z, y, x\), each once"
    ):
        open_frames(path)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_a_channel_of_an_ome_zarr_is_chosen(tmp_path, version):
    frames = np.arange(2 * 3 * 6 * 9, dtype=np.uint16).reshape(2, 3, 6, 9)
    path = write_ome_zarr(tmp_path / "a.zarr", frames, "tcyx", version)
    found = pickle.loads(pickle.dumps(open_frames(path, channel=2)))
    assert (len(found), found.shape) == (2, (6, 9))
    np.testing.assert_array_equal(found[1], frames[1, 2])
    with pytest.raises(
        InputError, match="has the channels 0 to 2; there is no channel 3"
    ):
        open_frames(path, channel=3)


@pytest.mark.parametrize("big", [False, True])
def test_directories_in_a_circle_are_refused(tmp_path, big):
    """The last page says that the first follows on it: tifffile would go round for ever."""
    path = tmp_path / "t000.tif"
    with tifffile.TiffWriter(path, bigtiff=big) as writer:
        for _ in range(3):
            writer.write(np.ones((6, 8), np.uint16), contiguous=False)
    with tifffile.TiffFile(path) as tiff:
        first, last, sizes = tiff.pages[1].offset, tiff.pages[2].offset, tiff.tiff
        end = last + sizes.tagnosize + sizes.tagsize * len(tiff.pages[2].tags)
    content = bytearray(path.read_bytes())
    struct.pack_into(sizes.offsetformat, content, end, first)
    path.write_bytes(content)
    for place in (path, tmp_path):
        with pytest.raises(
            InputError, match=r"t000\.tif: its directory 2 leads back to an earlier one"
        ):
            open_frames(place)


def test_chunks_of_no_size_are_refused(tmp_path):
    zarr.create_array(
        tmp_path / "a",
        data=np.ones((2, 3, 4), np.uint16),
        chunks=(1, 3, 4),
        zarr_format=3,
    )
    metadata = tmp_path / "a" / "zarr.json"
    for change in (0, -1):
        content = json.loads(metadata.read_text())
        content["chunk_grid"]["configuration"]["chunk_shape"] = [change, 3, 4]
        metadata.write_text(json.dumps(content))
        with pytest.raises(InputError, match=str(tmp_path)):
            open_frames(tmp_path / "a")


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_a_missing_chunk_is_refused_unless_it_was_left_out(tmp_path, version):
    frames = frames_of()
    whole = write_ome_zarr(tmp_path / "a.zarr", frames, "tyx", version)
    chunk = whole / ("s0/2.0.0" if version == "0.4" else "s0/c/2/0/0")
    chunk.unlink()
    with pytest.raises(
        InputError, match=r"the chunk .*2.0.0, of frame 2, is missing.*--sparse"
    ):
        open_frames(whole)
    sparse = write_ome_zarr(tmp_path / "b.zarr", frames, "tyx", version, empty=False)
    with pytest.raises(InputError, match="of frame 1, is missing"):
        open_movie(labels=sparse)
    np.testing.assert_array_equal(open_movie(labels=sparse, sparse=True).label(1), 0)


def test_a_zarr_of_endless_frames_is_refused_at_once(tmp_path):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(10**9, 6, 9), chunks=(1, 6, 9), dtype="u2"
    )
    array[0] = 1
    with pytest.raises(InputError, match="of frame 1, is missing"):
        open_movie(labels=tmp_path / "a.zarr")
    with pytest.raises(
        InputError, match="1,000,000,000 frames; expected 1 to 1,000,000"
    ):
        open_movie(labels=tmp_path / "a.zarr", sparse=True)


@pytest.mark.parametrize(
    "component", ["../x", "s0/../../x", "/etc", "", "C:/x", "s0/\\\\..\\\\x"]
)
def test_an_ome_zarr_cannot_lead_out_of_itself(tmp_path, component):
    zarr.save_array(tmp_path / "x", frames_of())
    path = write_ome_zarr(tmp_path / "a.zarr", frames_of(), "tyx", "0.5")
    text = (
        (path / "zarr.json")
        .read_text()
        .replace('"path": "s0"', f'"path": "{component}"')
    )
    (path / "zarr.json").write_text(text)
    with pytest.raises(InputError, match="which is not in it"):
        open_frames(path)


def test_metadata_of_a_hundred_thousand_brackets_are_refused(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr/zarr.json").write_text("[" * 300_000)
    with pytest.raises(InputError, match=r"zarr\.json is damaged"):
        open_frames(tmp_path / "a.zarr")


PICKLE_V2 = {"compressor": {"id": "pickle"}}
PICKLE_FILTER = {"filters": [{"id": "delta"}, {"id": "pickle"}]}
PICKLE_V3 = {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle"}]}
PICKLE_SHARD = {
    "codecs": [{"name": "sharding_indexed", "configuration": {**PICKLE_V3}}]
}


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize(
    ("zarr_format", "change"),
    [(2, PICKLE_V2), (2, PICKLE_FILTER), (3, PICKLE_V3), (3, PICKLE_SHARD)],
)
def test_zarr_codec_that_is_not_known_to_be_safe_is_refused(
    tmp_path, monkeypatch, group, zarr_format, change
):
    path = tmp_path / "a.zarr"
    if group:
        write_ome_zarr(path, frames_of(), "tyx", "0.4" if zarr_format == 2 else "0.5")
    else:
        zarr.save_array(path, frames_of(), zarr_format=zarr_format)
    opened = open_frames(path)
    name = ".zarray" if zarr_format == 2 else "zarr.json"
    (metadata,) = [
        file for file in path.rglob(name) if "shape" in json.loads(file.read_text())
    ]
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | change))
    with pytest.raises(InputError, match=r"codec '(numcodecs\.)?pickle'"):
        open_frames(path)
    with pytest.raises(InputError, match=r"codec '(numcodecs\.)?pickle'"):
        opened[0]


def test_zarr_stores_that_are_no_movie_are_refused(tmp_path):
    zarr.open_group(tmp_path / "group.zarr", mode="w").create_array(
        "inside", shape=(4, 6, 9), dtype="u2"
    )
    with pytest.raises(
        InputError, match=r"without readable OME-Zarr metadata.*holds inside"
    ):
        open_frames(tmp_path / "group.zarr")
    zarr.create_array(tmp_path / "flat.zarr", shape=(6, 9), dtype="u2")
    with pytest.raises(InputError, match="in 2 dimensions"):
        open_frames(tmp_path / "flat.zarr")
    zarr.create_array(
        tmp_path / "big.zarr",
        shape=(2, 10**6, 10**6),
        chunks=(1, 10**3, 10**3),
        dtype="u2",
    )
    with pytest.raises(InputError, match="a frame of 2,000,000,000,000 bytes"):
        open_frames(tmp_path / "big.zarr")
    zarr.create_array(
        tmp_path / "chunk.zarr",
        shape=(10**6, 100, 100),
        chunks=(10**6, 100, 100),
        dtype="u2",
    )
    with pytest.raises(InputError, match="a chunk of 20,000,000,000 bytes"):
        open_frames(tmp_path / "chunk.zarr")
    zarr.create_array(
        tmp_path / "empty.zarr", shape=(0, 6, 9), chunks=(1, 6, 9), dtype="u2"
    )
    with pytest.raises(InputError, match="no frames"):
        open_frames(tmp_path / "empty.zarr")
    (tmp_path / "bad.zarr").mkdir()
    (tmp_path / "bad.zarr/zarr.json").write_text("{")
    with pytest.raises(InputError, match=r"zarr\.json is damaged"):
        open_frames(tmp_path / "bad.zarr")


# a sequence folder and the masks beside it

PLACES = ["01_ST/SEG", "01_SEG", "01_RES", "01_GT/SEG", "01_GT/TRA"]


@pytest.mark.parametrize("best", range(5))
def test_masks_are_looked_for_in_order(sequence, best):
    for rank, place in enumerate(PLACES[best:], best):
        write_folder(
            sequence.parent / place, frames_of() // (rank + 1), "man_seg{:03}.tif"
        )
    movie = open_movie(sequence)
    np.testing.assert_array_equal(movie.label(3), frames_of()[3] // (best + 1))
    np.testing.assert_array_equal(movie.image(3), frames_of()[3])
    assert f"masks from {PLACES[best]}" in movie.source
    assert movie.name == "sim-01"
    assert movie.folder == sequence.parent
    assert movie.spacing == (1.0, 1.0)


def test_an_incomplete_folder_of_masks_is_passed_over_in_words(sequence):
    write_folder(sequence.parent / "01_GT/SEG", frames_of()[:3], "man_seg{:03}.tif")
    (sequence.parent / "01_SEG").mkdir()
    write_folder(sequence.parent / "01_GT/TRA", frames_of() + 1, "man_track{:03}.tif")
    movie = open_movie(sequence)
    assert "masks from 01_GT/TRA" in movie.source
    assert (
        "01_SEG skipped: it has no frames; 01_GT/SEG skipped: it lacks 1 of 4 frames (3)"
        in movie.source
    )
    assert movie.label(0).min() == 1


def test_frames_count_from_0_whatever_the_files_are_called(tmp_path):
    write_folder(tmp_path / "01", frames_of(), first=17)
    write_folder(tmp_path / "01_SEG", frames_of(), "mask{}.tif", first=17)
    np.testing.assert_array_equal(open_movie(tmp_path / "01").label(2), frames_of()[2])


def test_without_masks_it_is_told_where_they_were_looked_for(sequence):
    with pytest.raises(
        InputError,
        match=r"expected one of 01_ST/SEG, 01_SEG, 01_RES, 01_GT/SEG, 01_GT/TRA\. .*as labels",
    ):
        open_movie(sequence)
    write_folder(sequence.parent / "01_GT/TRA", frames_of()[:3])
    with pytest.raises(
        InputError, match=r"01_GT/TRA skipped: it lacks 1 of 4 frames \(3\);"
    ):
        open_movie(sequence)


def test_what_does_not_exist_is_told(tmp_path):
    with pytest.raises(InputError, match=r"02 does not exist; .*t000\.tif.* 02_ST/SEG"):
        open_movie(tmp_path / "02")
    write_folder(tmp_path / "02_GT/TRA", frames_of())
    with pytest.raises(InputError, match="02_GT/TRA exists: give it as labels"):
        open_movie(tmp_path / "02")
    with pytest.raises(
        InputError, match="nowhere does not exist; expected a folder of TIFFs"
    ):
        open_movie(labels=tmp_path / "nowhere")


def test_images_unlike_the_masks_are_refused(sequence):
    write_folder(sequence.parent / "01_SEG", np.zeros((4, 6, 8), np.uint16))
    with pytest.raises(
        InputError,
        match=r"4 label images of shape \(6, 8\), but 4 raw images of shape \(6, 9\)",
    ):
        open_movie(sequence)
    write_folder(sequence.parent / "01_ST/SEG", np.zeros((5, 6, 9), np.uint16))
    with pytest.raises(InputError, match=r"5 label images .* but 4 raw"):
        open_movie(sequence)


# labels from anywhere


def test_labels_and_images_of_different_kinds(tmp_path):
    frames = frames_of()
    zarr.save_array(tmp_path / "labels.zarr", frames)
    tifffile.imwrite(
        tmp_path / "images.tif", frames.astype(np.float32) / 2, photometric="minisblack"
    )
    movie = open_movie(
        labels=tmp_path / "labels.zarr",
        images=tmp_path / "images.tif",
        spacing=[2, 0.5],
    )
    assert (movie.name, movie.spacing, movie.folder) == ("labels", (2.0, 0.5), tmp_path)
    np.testing.assert_array_equal(movie.image(3) * 2, movie.label(3))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_table_is_no_movie(tmp_path, name):
    (tmp_path / name).write_text("frame,label")
    with pytest.raises(InputError, match="is a table"):
        open_movie(labels=tmp_path / name)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match="unknown kind"):
        open_movie(labels=tmp_path / "a.png")


def test_a_movie_has_one_origin(sequence):
    with pytest.raises(InputError, match="or by both"):
        open_movie()
    with pytest.raises(InputError, match="images is for"):
        open_movie(sequence, images=sequence)


# a movie


@pytest.mark.parametrize("dtype", [bool, np.float32, complex])
def test_labels_are_integers(dtype):
    with pytest.raises(InputError, match="expected integers"):
        Movie.from_arrays(np.zeros((2, 3, 3), dtype))


def test_labels_are_not_negative_nor_endless():
    labels = np.zeros((2, 3, 3), np.int32)
    labels[1, 0, 0] = -4
    movie = Movie.from_arrays(labels)
    assert movie.label(0).max() == 0
    with pytest.raises(InputError, match="frame 1 of array has the label -4"):
        movie.label(1)
    endless = Movie.from_arrays(np.full((1, 3, 3), 2**63, np.uint64))
    with pytest.raises(InputError, match="less than 2"):
        endless.label(0)
    assert Movie.from_arrays(np.ones((1, 3, 3), np.uint64)).label(0).dtype == np.int64


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 3), (2, 3, 3, 3, 3)])
def test_arrays_that_are_no_movie_are_refused(shape):
    with pytest.raises(InputError, match=r"no frames|expected \(y, x\) or \(z, y, x\)"):
        Movie.from_arrays(np.zeros(shape, int))


@pytest.mark.parametrize(
    "spacing", [(1,), (1, 1, 1), (0, 1), (-1, 1), (np.nan, 1), (np.inf, 1)]
)
def test_spacing_fits_the_movie(spacing):
    with pytest.raises(InputError, match=r"spacing is .* 2 positive numbers, for y, x"):
        Movie.from_arrays(np.zeros((2, 3, 3), int), spacing=spacing)


def test_a_part_of_a_movie_counts_from_0():
    frames = frames_of(n=9)
    part = Movie.from_arrays(frames, frames / 2)[2:8][1:]
    assert part.n_frames == 5
    np.testing.assert_array_equal(part.label(0), frames[3])
    np.testing.assert_array_equal(part.image(4), frames[7] / 2)
    for t in (5, -1, 0.5, None, "a", True):
        with pytest.raises(InputError, match="its frames are 0 to 4"):
            part.label(t)
        with pytest.raises(InputError, match="its frames are 0 to 4"):
            part.image(t)
    for which in (3, None, "a", slice("a", "b"), slice(0.5, 1)):
        with pytest.raises(InputError, match="expected a slice"):
            part[which]
    with pytest.raises(InputError, match="0 frames"):
        part[5:]


@pytest.mark.skipif(
    "CLEW_DATA" not in os.environ, reason="CLEW_DATA is not set: no recorded movies"
)
def test_a_recorded_movie():
    movie = open_movie(Path(os.environ["CLEW_DATA"]) / "Fluo-N2DL-HeLa/01")
    assert (movie.n_frames, movie.shape) == (92, (700, 1100))
    assert "01_ST/SEG" in movie.source
    assert len(np.unique(movie.label(91))) > 100


def test_a_sequence_takes_other_masks(simulated):
    other = simulated.folder / "01_GT/TRA"
    movie = open_movie(simulated.path, labels=other)
    assert movie.name == simulated.movie.name
    np.testing.assert_array_equal(movie.label(3), open_frames(other)[3])
    np.testing.assert_array_equal(movie.image(3), simulated.movie.image(3))


def test_an_excerpt_of_an_excerpt_knows_its_frames(simulated):
    part = simulated.movie[2:12][3:6]
    assert (part.n_frames, part.first, part.excerpt) == (3, 5, range(5, 8))
    np.testing.assert_array_equal(part.label(1), simulated.movie.label(6))
