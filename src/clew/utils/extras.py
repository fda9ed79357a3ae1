"""Optional dependencies: errors name the extra to install."""

from __future__ import annotations

from importlib.util import find_spec

from clew.errors import MissingExtra

# packages by extra of pyproject.toml; a test compares both
EXTRAS: dict[str, tuple[str, ...]] = {
    "plot": ("matplotlib",),
    "tracking": (
        "geff",
        "imagecodecs",
        "joblib",
        "matplotlib",
        "networkx",
        "skimage",
        "tifffile",
        "zarr",
    ),
    "parquet": ("pyarrow",),
    "hdf5": ("h5py",),
    "page": ("pydantic", "starlette", "uvicorn"),
    "evaluate": ("ctc_metrics",),
    "dask": ("bokeh", "distributed"),
}


def is_installed(extra: str) -> bool:
    """Return whether all packages of an extra are installed, without importing them."""
    return not _list_missing(extra)


def require_extra(extra: str, what: str) -> None:
    """Raise `MissingExtra` unless an extra is installed; `what` needs it."""
    missing = _list_missing(extra)
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}: pip install 'clew-learn[{extra}]'"
            f" (in a checkout of clew: pip install '.[{extra}]')",
            extra,
        )


def _list_missing(extra: str) -> list[str]:
    return [package for package in EXTRAS[extra] if not _can_be_found(package)]


def _can_be_found(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # an import hook refuses it, or it is half loaded
        return False
