"""Names of files and formats in a folder of results; imports nothing."""

TRUTH = "man_track.txt"
"""Table of tracks of a truth of the Cell Tracking Challenge."""
RESULT = "res_track.txt"
"""Table of tracks of a result of the Cell Tracking Challenge."""
EVENTS = "events.csv"
TRACKS = "tracks.csv"
EVENTS_PARQUET = "events.parquet"
TRACKS_PARQUET = "tracks.parquet"
LABELS = "tracks.zarr"
GEFF = "lineage.geff"
NAPARI = "napari.csv"
NAPARI_GRAPH = "napari.json"
SUBMISSION = "submission.csv"
TRACKMATE = "trackmate.xml"
MASTODON = "lineage.mastodon"
RESULT_LINEAGES = (
    TRACKS,
    TRACKS_PARQUET,
    NAPARI,
    GEFF,
    MASTODON,
    TRACKMATE,
)
"""Files of a result with the whole lineage, in the order in which they are read."""
REPORT = "report.html"
MANIFEST = "manifest.json"
"""Lists the files of a result with sizes and digests; see `result_folder.py`."""

FORMATS = {
    "ctc": f"{RESULT} and mask000.tif …, as the Cell Tracking Challenge has them",
    "csv": f"{EVENTS} and {TRACKS}",
    "geff": f"{GEFF}, a graph with events and confidences",
    "mastodon": f"{MASTODON}, a project of spots and links without images",
    "napari": f"{NAPARI} and {NAPARI_GRAPH}, for a tracks layer",
    "parquet": f"{EVENTS_PARQUET} and {TRACKS_PARQUET}, for movies of many millions of cells",
    "submission": f"{SUBMISSION}, nodes and edges as the Biohub competition has them",
    "trackmate": f"{TRACKMATE}, spots and tracks",
    "zarr": f"{LABELS}, an OME-Zarr of label images that carry the tracks' ids",
}
FILES = {
    "ctc": (RESULT, "mask*.tif"),
    "csv": (EVENTS, TRACKS),
    "geff": (GEFF,),
    "mastodon": (MASTODON,),
    "napari": (NAPARI, NAPARI_GRAPH),
    "parquet": (EVENTS_PARQUET, TRACKS_PARQUET),
    "submission": (SUBMISSION,),
    "trackmate": (TRACKMATE,),
    "zarr": (LABELS,),
}
"""Files of each format."""
BESIDE_MASKS = (
    RESULT,
    *(name for form, names in FILES.items() if form != "ctc" for name in names),
    REPORT,
    MANIFEST,
)
"""Files beside masks in a folder of results."""

# kinds of results, named by the commands that write them
TRACK = "track"
DETECT = "detect"
SIMULATE = "simulate"
