"""The names of files and formats in a folder of results. All of them, and nothing else is imported here."""

TRUTH, RESULT = "man_track.txt", "res_track.txt"
"""Tables of tracks of the Cell Tracking Challenge: of a truth, and of a result."""
EVENTS, TRACKS = "events.csv", "tracks.csv"
EVENTS_PARQUET, TRACKS_PARQUET = "events.parquet", "tracks.parquet"
LABELS = "tracks.zarr"
GEFF = "lineage.geff"
NAPARI, NAPARI_GRAPH = "napari.csv", "napari.json"
REPORT = "report.html"
MANIFEST = "manifest.json"
"""Of all files of a result, with sizes and digests; see `manifest.py`."""

FORMATS = {
    "ctc": f"{RESULT} and mask000.tif …, as the Cell Tracking Challenge has them",
    "csv": f"{EVENTS} and {TRACKS}",
    "geff": f"{GEFF}, a graph with events and confidences",
    "napari": f"{NAPARI} and {NAPARI_GRAPH}, for a tracks layer",
    "parquet": f"{EVENTS_PARQUET} and {TRACKS_PARQUET}, for movies of many millions of cells",
    "zarr": f"{LABELS}, an OME-Zarr of label images that carry the tracks' ids",
}
BESIDE_MASKS = (
    RESULT,
    EVENTS,
    TRACKS,
    EVENTS_PARQUET,
    TRACKS_PARQUET,
    LABELS,
    GEFF,
    NAPARI,
    NAPARI_GRAPH,
    REPORT,
    MANIFEST,
)
"""What may lie beside masks in a folder of results: all that clew writes there, so that a movie can be tracked anew."""

TRACK, DETECT, SIMULATE = "track", "detect", "simulate"
"""What a folder of results may be of: the commands that write them."""
