"""Optional parts of an installation: which packages each needs, and an error that names the extra to install."""

from __future__ import annotations

from importlib.util import find_spec

from clew.errors import MissingExtra

# what is imported, by extra of pyproject.toml; a test compares both
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
    "page": ("pydantic", "starlette", "uvicorn"),
    "evaluate": ("ctc_metrics",),
    "dask": ("bokeh", "distributed"),
}


def is_installed(extra: str) -> bool:
    """Whether all packages of an extra can be imported; none of them is."""
    return not _missing(extra)


def require_extra(extra: str, what: str) -> None:
    """Raise `MissingExtra` unless the packages of an extra are installed; `what` needs them."""
    missing = _missing(extra)
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}: pip install 'clew-learn[{extra}]'",
            extra,
        )


def _missing(extra: str) -> list[str]:
    return [package for package in EXTRAS[extra] if not _can_be_found(package)]


def _can_be_found(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (
        ImportError,
        ValueError,
    ):  # a finder of somebody's refuses it, or half of it is loaded
        return False
