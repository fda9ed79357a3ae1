"""The simulated kinds of cells by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from clew.errors import InputError
from clew.simulation import embryo, flat, nuclei, rods, sparse, tissue
from clew.simulation.scene import Rng, Scene
from clew.simulation.settings import NucleiSettings, SimulationSettings

KINDS: dict[str, tuple[type[SimulationSettings], Any]] = {
    "nuclei": (NucleiSettings, nuclei),
    "rods": (rods.RodSettings, rods),
    "flat": (flat.FlatSettings, flat),
    "tissue": (tissue.TissueSettings, tissue),
    "embryo": (embryo.EmbryoSettings, embryo),
    "sparse": (sparse.SparseSettings, sparse),
}
"""Settings class and module of each kind; a module has `make_scene` and `random_settings`."""


def settings_of(kind: str, **values: Any) -> SimulationSettings:
    """Return the settings of a kind: `settings_of("rods", cells=500)`."""
    return _check_kind(kind)[0](**values)


def random_settings(kind: str, rng: Rng | int, **fixed: Any) -> SimulationSettings:
    """Draw random settings of a kind; keyword arguments such as `cells=60` fix some."""
    drawn: SimulationSettings = _check_kind(kind)[1].random_settings(
        np.random.default_rng(rng), **fixed
    )
    return drawn


def make_scene(
    settings: SimulationSettings, of_life: Rng, of_light: Rng, of_errors: Rng
) -> Scene:
    """Make the cells and the microscope of a kind."""
    scene: Scene = _check_kind(settings.kind)[1].make_scene(
        settings, of_life, of_light, of_errors
    )
    return scene


def _check_kind(kind: str) -> tuple[type[SimulationSettings], Any]:
    if kind not in KINDS:
        raise InputError(f"kind: expected one of {', '.join(KINDS)}; it is {kind!r}")
    return KINDS[kind]
