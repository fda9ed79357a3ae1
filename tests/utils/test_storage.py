"""The archive file: what goes in comes out, and every fault is noticed."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clew.errors import InputError, StoreError
from clew.utils import storage

META = {"name": "λ", "values": [1, 2.5, None, True], "nested": {"a": "b"}}
ARRAYS = {
    "coef": np.array([0.5, -1.25]),
    "flags": np.array([[True], [False]]),
    "none": np.zeros((0, 3), dtype=np.int32),
    "one": np.array(7),
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file.clew"
    storage.write_document(path, "thing", META, ARRAYS)
    return path


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def reseal(members, **changes):
    """The members with another header that is consistent in itself."""
    header = json.loads(members[storage.JSON]) | changes
    header["arrays"] = storage.hashlib.sha256(members[storage.ARRAYS]).hexdigest()
    header[storage.CHECKSUM] = storage._hash_header(header)
    return members | {storage.JSON: storage._encode_json(header)}


def rewrite_arrays(path, members):
    """Replace the arrays by an npz of these members, with fitting checksums."""
    buffer = io.BytesIO()
    rewrite(buffer, members)
    rewrite(path, reseal(members_of(path) | {"arrays.npz": buffer.getvalue()}))


def same(document):
    return (
        document.kind == "thing"
        and document.meta == META
        and list(document.arrays) == list(ARRAYS)
        and all(np.array_equal(document.arrays[name], ARRAYS[name]) for name in ARRAYS)
        and all(document.arrays[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    )


def test_round_trip(file):
    assert same(storage.read_document(file, "thing"))
    assert list(members_of(file)) == ["clew.json", "arrays.npz"]
    assert np.load(io.BytesIO(members_of(file)["arrays.npz"]))["coef"].tolist() == [
        0.5,
        -1.25,
    ]


plain_arrays = hnp.arrays(
    st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?"),
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(plain_arrays)
def test_round_trip_of_any_plain_array(tmp_path_factory, array):
    path = tmp_path_factory.getbasetemp() / "any.clew"
    storage.write_document(
        path, "thing", {}, {"a": array, "f": np.array(array, order="F")}
    )
    back = storage.read_document(path).arrays
    for name in ("a", "f"):
        assert back[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(back[name], array)


def test_no_arrays(tmp_path):
    storage.write_document(tmp_path / "a", "thing", META, {})
    assert storage.read_document(tmp_path / "a").arrays == {}


def test_same_content_same_bytes(file, tmp_path):
    turned = dict(reversed(META.items()))
    storage.write_document(
        tmp_path / "again",
        "thing",
        turned,
        {k: np.array(v, order="F") for k, v in ARRAYS.items()},
    )
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_byte_is_noticed_or_harmless(tmp_path, step):
    path = tmp_path / "small.clew"
    content = {"a": np.array([1.5])}
    storage.write_document(path, "thing", {"x": 1}, content)
    data = path.read_bytes()
    noticed = 0
    places = range(0, len(data), step)
    for i in places:
        for flip in (0x01, 0x80, 0xFF):
            path.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            try:
                back = storage.read_document(path)
            except StoreError:
                noticed += 1
            else:
                assert (back.kind, back.meta, list(back.arrays)) == (
                    "thing",
                    {"x": 1},
                    ["a"],
                )
                assert back.arrays["a"].tolist() == [1.5]
    assert noticed > 2.5 * len(
        places
    )  # all but the time and attribute fields of the zip


def test_every_truncation_is_noticed(file):
    data = file.read_bytes()
    for length in range(0, len(data), 7):
        file.write_bytes(data[:length])
        with pytest.raises(StoreError, match=r"file\.clew"):
            storage.read_document(file)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "..", "evil.py"])
def test_foreign_members_are_refused(file, name):
    rewrite(file, members_of(file) | {name: b"x"})
    with pytest.raises(StoreError, match=r"has one clew\.json and one arrays\.npz"):
        storage.read_document(file)


@pytest.mark.parametrize("missing", ["clew.json", "arrays.npz"])
def test_missing_members_are_refused(file, missing):
    members = members_of(file)
    del members[missing]
    rewrite(file, members)
    with pytest.raises(StoreError, match=missing):
        storage.read_document(file)


def test_a_member_twice_is_refused(file):
    with (
        zipfile.ZipFile(file, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("clew.json", b"{}")
    with pytest.raises(StoreError, match=r"file\.clew"):
        storage.read_document(file)


def test_a_newer_version_is_refused_and_untouched(file):
    rewrite(file, reseal(members_of(file), version=2) | {"more.bin": b"x"})
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"version 2.*newer clew"):
        storage.read_document(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x80\x04]\x94."])
def test_what_is_no_zip_is_refused(file, content):
    file.write_bytes(content)
    with pytest.raises(StoreError, match="not a clew file"):
        storage.read_document(file)


@pytest.mark.parametrize(
    "header", [b"[]", b"{}", b"{", b"\xff", b"[" * 100_000, b'{"format":"other"}']
)
def test_foreign_json_is_refused(file, header):
    rewrite(file, members_of(file) | {"clew.json": header})
    with pytest.raises(StoreError, match=r"file\.clew"):
        storage.read_document(file)


def test_changed_content_with_right_zip_sums_is_refused(file):
    members = members_of(file)
    rewrite(file, members | {"clew.json": members["clew.json"].replace(b'"b"', b'"c"')})
    with pytest.raises(StoreError, match="its checksum does not fit"):
        storage.read_document(file)
    rewrite(file, members | {"arrays.npz": members["arrays.npz"] + b" "})
    with pytest.raises(StoreError, match=r"arrays\.npz is damaged"):
        storage.read_document(file)


def test_a_pickle_inside_is_refused_unopened(file, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    buffer = io.BytesIO()
    np.savez(buffer, coef=np.array([Bomb()], dtype=object))
    rewrite(file, reseal(members_of(file) | {"arrays.npz": buffer.getvalue()}))
    with pytest.raises(StoreError, match="Object arrays cannot be loaded"):
        storage.read_document(file)
    assert not (tmp_path / "exploded").exists()


def test_an_array_of_text_is_refused(file):
    buffer = io.BytesIO()
    np.savez(buffer, coef=np.array(["a", "b"]))
    rewrite(file, reseal(members_of(file) | {"arrays.npz": buffer.getvalue()}))
    with pytest.raises(StoreError, match=r"coef in arrays\.npz has dtype <U1"):
        storage.read_document(file)


def test_a_compressed_bomb_is_refused_before_it_is_unpacked(file):
    rewrite(
        file, members_of(file) | {"arrays.npz": bytes(50_000_000)}, zipfile.ZIP_DEFLATED
    )
    assert file.stat().st_size < 100_000
    with pytest.raises(StoreError, match=r"declare \d+ bytes"):
        storage.read_document(file)


@pytest.mark.parametrize(
    "shape", ["(1000000000000,)", "(-1,)", "(2**62, 4)", "(4611686018427387904, 4)"]
)
def test_an_array_that_claims_another_size_is_refused(file, shape):
    header = (
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
        + "\n"
    )
    npy = (
        b"\x93NUMPY\x01\x00"
        + len(header).to_bytes(2, "little")
        + header.encode()
        + bytes(16)
    )
    rewrite_arrays(file, {"coef.npy": npy})
    with pytest.raises(StoreError, match=r"file\.clew"):
        storage.read_document(file)


def overlap_members(data, copies):
    """Point several entries of a zip's directory at its first member."""
    directory = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[directory:end]
    assert entry.count(b"PK\x01\x02") == 1
    name = entry.index(b"coef.npy")
    entries = b"".join(
        entry[:name] + f"c{k:03}.npy".encode() + entry[name + 8 :]
        for k in range(copies)
    )
    tail = bytearray(data[end:])
    tail[8:10] = tail[10:12] = copies.to_bytes(2, "little")
    tail[12:16] = len(entries).to_bytes(4, "little")
    return data[:directory] + entries + bytes(tail)


def test_members_that_overlap_are_refused_before_memory_is_asked_for(file):
    buffer = io.BytesIO()
    np.savez(buffer, coef=np.zeros(50_000))
    arrays = overlap_members(buffer.getvalue(), 800)
    assert len(np.load(io.BytesIO(arrays)).files) == 800
    rewrite(file, reseal(members_of(file) | {"arrays.npz": arrays}))
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match=r"declare 32\d* bytes"):
            storage.read_document(file)
        assert tracemalloc.get_traced_memory()[1] < 10 * file.stat().st_size
    finally:
        tracemalloc.stop()


def test_too_large_a_file_is_refused(file, monkeypatch):
    monkeypatch.setattr(storage, "MAX_BYTES", 100)
    with pytest.raises(StoreError, match="more than the 100"):
        storage.read_document(file)
    before = file.read_bytes()
    with pytest.raises(StoreError, match="more than the 100"):
        storage.write_document(file, "thing", {}, ARRAYS)
    assert file.read_bytes() == before


def test_another_kind_is_refused(file):
    with pytest.raises(StoreError, match="holds a clew thing; expected a clew other"):
        storage.read_document(file, "other")


def test_no_file(tmp_path):
    with pytest.raises(StoreError, match="no such file"):
        storage.read_document(tmp_path / "none")
    with pytest.raises(StoreError, match="is not a file"):
        storage.read_document(tmp_path)
    with pytest.raises(StoreError):
        storage.read_document("nul\0byte")
    with pytest.raises(StoreError):
        storage.write_document("nul\0byte", "thing", {}, {})


@pytest.mark.parametrize(
    "array",
    [
        np.array([None]),
        np.array(["a"]),
        np.array([1j]),
        np.array([np.datetime64("2020")]),
        np.longdouble([1]),
    ],
)
def test_only_plain_arrays_are_written(tmp_path, array):
    with pytest.raises(InputError, match="'odd' has dtype"):
        storage.write_document(tmp_path / "a", "thing", {}, {"odd": array})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "meta", [{"a": {1, 2}}, {"a": float("nan")}, {"a": np.float32(1)}]
)
def test_only_json_is_written(tmp_path, meta):
    with pytest.raises(InputError, match="JSON cannot hold"):
        storage.write_document(tmp_path / "a", "thing", meta, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.posix
def test_a_full_disk_leaves_the_old_file(file):
    """A limit on the size of files stands for the disk: the write itself fails half way."""
    import resource

    before = file.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(
            StoreError, match=r"file\.clew: cannot be written .*untouched"
        ):
            storage.write_document(file, "thing", META, {"large": np.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_any_step_leaves_the_old_file(file, monkeypatch, step):
    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr(storage.os if step == "fsync" else storage.Path, step, fail)
    with pytest.raises(StoreError, match="No space left"):
        storage.write_document(file, "thing", {}, {})
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_ctrl_c_leaves_no_temporary_file(file, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage.write_document(file, "thing", {}, {})
    assert list(file.parent.iterdir()) == [file]


def test_folders_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(StoreError, match=r"none/file\.clew"):
        storage.write_document(tmp_path / "none" / "file.clew", "thing", {}, {})
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder"):
        storage.write_document(tmp_path / "folder", "thing", {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.posix
@pytest.mark.usefixtures("bound_by_permissions")
def test_a_read_only_folder(file):
    before = file.read_bytes()
    file.parent.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            storage.write_document(file, "thing", {}, {})
    finally:
        file.parent.chmod(0o700)
    assert file.read_bytes() == before


@pytest.mark.posix
def test_a_link_stays_a_link(file, tmp_path):
    link = tmp_path / "link.clew"
    link.symlink_to(file)
    storage.write_document(link, "other", {}, {})
    assert link.is_symlink()
    assert storage.read_document(file).kind == "other"


def test_leftover_of_another_program_is_kept(tmp_path):
    foreign = tmp_path / ".file.clew.0123abcd.tmp"
    own = tmp_path / ".file.clew.clew-0123abcd.tmp"
    foreign.write_bytes(b"data of another program")
    own.write_bytes(b"half a file")
    storage.write_bytes(tmp_path / "file.clew", b"new")
    assert foreign.read_bytes() == b"data of another program"
    assert not own.exists()


WRITER = """
import sys, numpy as np
from clew.utils import storage
for n in range(10**9):
    storage.write_document(sys.argv[1], "thing", {"n": n}, {"n": np.full(20_000, n)})
    if n == 0: print("begun", flush=True)
"""


@pytest.mark.posix
def test_kill_at_any_moment_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file.clew"
    rng = np.random.default_rng(0)
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
        )
        writer.stdout.readline()
        time.sleep(rng.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        document = storage.read_document(path, "thing")
        assert (document.arrays["n"] == document.meta["n"]).all()
