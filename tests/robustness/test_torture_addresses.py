"""Addresses in files of others, of the web and of other files, are text: nothing follows them.

Each file of a table below names an address wherever its format has room for one. It is
read as if it did not, or refused. A server counts who asks it, and the interpreter
reports every file that is opened.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import geff
import networkx as nx
import numpy as np
import pytest
import tifffile
import zarr

from clew.errors import ClewError
from clew.tracking import read_annotations
from clew.tracking.detections import DetectionTable
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.geff import read_geff
from clew.tracking.io.napari import read_napari
from clew.tracking.io.tables import read_detections
from clew.tracking.movie import open_frames, open_movie
from clew.tracking.persistence import load_tracker

MASKS = np.zeros((2, 16, 16), np.uint16)
MASKS[:, 2:6, 2:6] = 1
MASKS[:, 9:13, 9:13] = 2
CELLS = DetectionTable([0, 0, 1, 1], [1, 2] * 2, [[3.5, 3.5], [9.5, 9.5]] * 2)
OPENED: set[str] = set()
"""Real paths of files that were opened, while `watch_opened_files` runs."""
WATCHED: list[None] = []


def _record(event: str, arguments: tuple[object, ...]) -> None:
    """Note which file is opened; an audit hook, which cannot be removed again."""
    if WATCHED and event in ("open", "os.listdir", "os.scandir"):
        path = arguments[0]
        if isinstance(path, str | bytes | Path):
            OPENED.add(str(Path(str(path)).resolve()))


sys.addaudithook(_record)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A socket that listens, and that nobody should ask."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture(params=["web", "url of a file", "path", "path upwards"])
def address(request, server, tmp_path) -> str:
    """An address of something that is there; it is outside the folder of the file."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    tifffile.imwrite(elsewhere / "secret.tif", MASKS + 7)
    zarr.save_array(elsewhere / "0", MASKS + 7)
    host, port = server.getsockname()
    return {
        "web": f"http://{host}:{port}/secret.tif",
        "url of a file": (elsewhere / "secret.tif").as_uri(),
        "path": str(elsewhere / "0"),
        "path upwards": "../elsewhere/secret.tif",
    }[request.param]


def write_ome_tiff(folder: Path, address: str) -> Path:
    """A stack whose metadata are elsewhere, as they say."""
    return _write_tiff(
        folder,
        f'<OME xmlns="{address}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{address} {address}"><BinaryOnly '
        f'MetadataFile="{address}" UUID="urn:uuid:{9:032}"/></OME>',
    )


def write_part_of_ome_tiff(folder: Path, address: str) -> Path:
    """A stack whose planes are elsewhere, as its metadata say."""
    planes = "".join(
        f'<TiffData FirstT="{t}" IFD="{t}" PlaneCount="1">'
        f'<UUID FileName="{address}">urn:uuid:{1:032}</UUID></TiffData>'
        for t in range(2)
    )
    return _write_tiff(
        folder,
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" '
        f'UUID="urn:uuid:{9:032}"><Image ID="Image:0"><Pixels ID="Pixels:0" '
        'DimensionOrder="XYZCT" Type="uint16" SizeX="16" SizeY="16" SizeZ="1" '
        f'SizeC="1" SizeT="2">{planes}</Pixels></Image></OME>',
    )


def _write_tiff(folder: Path, description: str) -> Path:
    path = folder / "movie.ome.tif"
    tifffile.imwrite(path, MASKS, description=description, metadata=None)
    return path


def write_ome_zarr(folder: Path, address: str) -> Path:
    """A group whose only image is elsewhere."""
    group = zarr.open_group(folder / "movie.zarr", mode="w")
    group.create_array("0", data=MASKS)
    axes = [{"name": name} for name in "tyx"]
    image = {"axes": axes, "datasets": [{"path": address}], "metadata": address}
    group.attrs["ome"] = {"multiscales": [image], "labels": [address], "plate": address}
    return folder / "movie.zarr"


def write_annotated_zarr(folder: Path, address: str) -> Path:
    """An image that is here, with metadata that lead elsewhere."""
    path = write_ome_zarr(folder, "0")
    content = json.loads((path / "zarr.json").read_text())
    content["attributes"] |= {"source": address, "$ref": address, "url": address}
    content["attributes"]["ome"]["labels"] = [address]
    content["consolidated_metadata"] = None
    (path / "zarr.json").write_text(json.dumps(content))
    return path


def write_zarr_stored_elsewhere(folder: Path, address: str) -> Path:
    """An array that says that its chunks are stored elsewhere."""
    path = folder / "movie.zarr"
    zarr.save_array(path, MASKS)
    content = json.loads((path / "zarr.json").read_text())
    reference = {"name": "reference", "configuration": {"url": address}}
    content["storage_transformers"] = [reference]
    (path / "zarr.json").write_text(json.dumps(content))
    return path


def write_geff(folder: Path, address: str) -> Path:
    """A graph whose labels and whatever belongs to them are elsewhere."""
    graph = nx.DiGraph()
    for t in range(2):
        graph.add_node(t, t=t, y=3.5, x=3.5, seg_id=1, note=address)
    graph.add_edge(0, 1)
    related = {"path": address, "type": "labels", "label_prop": "seg_id"}
    metadata = geff.GeffMetadata(
        directed=True,
        node_props_metadata={},
        edge_props_metadata={},
        related_objects=[related, {"path": address, "type": "image"}],
        extra={"url": address, "clew": {"masks": address}},
    )
    geff.write(
        graph,
        folder / "a.geff",
        metadata,
        axis_names=["t", "y", "x"],
        axis_types=["time", "space", "space"],
    )
    return folder / "a.geff"


def write_trackmate(folder: Path, address: str) -> Path:
    """Spots whose movie is elsewhere, with a style and a schema from there."""
    spots = "".join(
        f'<Spot ID="{t + 1}" FRAME="{t}" POSITION_X="3" POSITION_Y="3" POSITION_Z="0"/>'
        for t in range(2)
    )
    text = (
        f'<?xml version="1.0"?><?xml-stylesheet href="{address}" type="text/xsl"?>'
        f'<TrackMate version="7" xmlns="{address}" '
        'xmlns:xi="http://www.w3.org/2001/XInclude" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{address} {address}"><Model><xi:include href="{address}"/>'
        f'<AllSpots nspots="2">{spots}</AllSpots><AllTracks><Track TRACK_ID="0">'
        '<Edge SPOT_SOURCE_ID="1" SPOT_TARGET_ID="2"/></Track></AllTracks></Model>'
        f'<Settings><ImageData filename="{address}" folder="{address}"/></Settings>'
        "</TrackMate>"
    )
    (folder / "a.xml").write_text(text)
    return folder / "a.xml"


def write_external_entity(folder: Path, address: str) -> Path:
    """Spots with an external entity."""
    path = write_trackmate(folder, address)
    kind = f'<!DOCTYPE TrackMate SYSTEM "{address}" [<!ENTITY a SYSTEM "{address}">]>'
    text = path.read_text().replace("<TrackMate ", f"{kind}<TrackMate ")
    path.write_text(text.replace("<Model>", "<Model>&a;"))
    return path


def write_table(folder: Path, address: str) -> Path:
    """Cells with a column of addresses."""
    rows = "".join(
        f"{t},{label},{y},{y},{label},{address}\n"
        for t in range(2)
        for label, y in ((1, 3.5), (2, 9.5))
    )
    (folder / "a.csv").write_text(f"frame,label,y,x,track,image\n{rows}")
    return folder / "a.csv"


def write_napari_tracks(folder: Path, address: str) -> Path:
    """Tracks with a graph of addresses instead of tracks."""
    (folder / "napari.csv").write_text("track_id,t,y,x\n1,0,3.5,3.5\n1,1,3.5,3.5\n")
    (folder / "napari.json").write_text(json.dumps({"masks": address, "path": address}))
    return folder / "napari.csv"


def write_parquet(folder: Path, address: str) -> Path:
    """Cells whose columns are in another file, as in the index of a data set."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"frame": [0, 1], "label": [1, 1], "y": [3.5, 3.5], "x": [3.5, 3.5]}
    parquet.write_table(pyarrow.table(columns), folder / "part.parquet")
    metadata = parquet.read_metadata(folder / "part.parquet")
    metadata.set_file_path(address)
    metadata.write_metadata_file(folder / "a.parquet")
    return folder / "a.parquet"


def read_annotations_of_cells(path):
    return read_annotations(path, CELLS)


READABLE = [
    (write_part_of_ome_tiff, open_frames),
    (write_ome_tiff, open_frames),
    (write_annotated_zarr, open_frames),
    (write_geff, read_geff),
    (write_geff, read_annotations_of_cells),
    (write_trackmate, read_detections),
    (write_trackmate, open_lineage),
    (write_table, read_detections),
    (write_table, read_annotations_of_cells),
]
"""Files that are read, whatever address they name, and by what."""
REFUSED = [
    (write_ome_zarr, open_frames),
    (write_zarr_stored_elsewhere, open_frames),
    (write_external_entity, read_detections),
    (write_external_entity, open_lineage),
    (write_parquet, read_detections),
    (write_napari_tracks, read_napari),
]
"""Files without what they should hold."""


def name(value):
    return getattr(value, "__name__", None)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where the file is."""
    (tmp_path / "b").mkdir()
    return tmp_path / "b"


@pytest.fixture
def watch_opened_files(tmp_path, server):
    """At the end, nothing outside `folder` was opened, and nobody asked the server."""
    OPENED.clear()
    yield WATCHED
    WATCHED.clear()
    elsewhere = str((tmp_path / "elsewhere").resolve())
    assert not [path for path in OPENED if path.startswith(elsewhere)]
    with pytest.raises(BlockingIOError):
        server.accept()


def read_pixels(found):
    """Read what an opened file promises."""
    if hasattr(found, "shape"):
        return [found[t] for t in range(len(found))]
    return None


@pytest.mark.filterwarnings("ignore:.label_prop. was deprecated")
@pytest.mark.parametrize(("write", "read"), READABLE, ids=name)
def test_address_in_a_file_is_text(write, read, folder, address, watch_opened_files):
    path = write(folder, address)
    watch_opened_files.append(None)
    pixels = read_pixels(read(path))
    assert str(path.resolve()) in OPENED or path.is_dir()
    if pixels is not None:
        np.testing.assert_array_equal(pixels, MASKS)


@pytest.mark.parametrize(("write", "read"), REFUSED, ids=name)
def test_file_whose_content_is_elsewhere_is_refused(
    write, read, folder, address, watch_opened_files
):
    path = write(folder, address)
    watch_opened_files.append(None)
    with pytest.raises(ClewError, match=path.stem):
        read_pixels(read(path))


@pytest.mark.parametrize(
    "read", [open_frames, open_movie, read_detections, open_lineage, load_tracker]
)
@pytest.mark.parametrize("suffix", ["a.zarr", "a.tif", "a.csv", "a.parquet", "a.clew"])
def test_address_in_place_of_a_path_is_no_file(server, read, suffix):
    host, port = server.getsockname()
    with pytest.raises(ClewError):
        read(f"http://{host}:{port}/{suffix}")
    with pytest.raises(BlockingIOError):
        server.accept()
