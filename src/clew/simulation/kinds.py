"""The simulated kinds of cells by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from clew.errors import InputError
from clew.simulation import embryo, flat, nuclei, rods, sparse, tissue
from clew.simulation.rows import Rng
from clew.simulation.scene import BodyScene, Scene, World
from clew.simulation.settings import NucleiSettings, SimulationSettings


class Kind(NamedTuple):
    """A kind of cells."""

    settings: Callable[..., SimulationSettings]
    draw_settings: Callable[[Rng], dict[str, Any]]
    """Draws random values of the settings."""
    world: Callable[[Any, Rng], World]
    scene: Callable[[Any, Any, Rng, Rng], Scene] = BodyScene


KINDS = {
    "nuclei": Kind(
        NucleiSettings, nuclei.draw_settings, nuclei.World, nuclei.NucleiScene
    ),
    "rods": Kind(rods.RodSettings, rods.draw_settings, rods.Colony),
    "flat": Kind(flat.FlatSettings, flat.draw_settings, flat.Culture),
    "tissue": Kind(tissue.TissueSettings, tissue.draw_settings, tissue.Tissue),
    "embryo": Kind(embryo.EmbryoSettings, embryo.draw_settings, embryo.Embryo),
    "sparse": Kind(sparse.SparseSettings, sparse.draw_settings, sparse.Runs),
}


def settings_of(kind: str, **values: Any) -> SimulationSettings:
    """Return the settings of a kind: `settings_of("rods", cells=500)`."""
    return _find_kind(kind).settings(**values)


def random_settings(kind: str, rng: Rng | int, **fixed: Any) -> SimulationSettings:
    """Draw random settings of a kind; keyword arguments such as `cells=60` fix some."""
    drawn = _find_kind(kind).draw_settings(np.random.default_rng(rng))
    return settings_of(kind, **(drawn | fixed))


def make_scene(
    settings: SimulationSettings, of_life: Rng, of_light: Rng, of_errors: Rng
) -> Scene:
    """Make the cells and the microscope of a kind."""
    kind = _find_kind(settings.kind)
    return kind.scene(settings, kind.world(settings, of_life), of_light, of_errors)


def _find_kind(kind: str) -> Kind:
    if kind not in KINDS:
        raise InputError(f"kind: expected one of {', '.join(KINDS)}; it is {kind!r}")
    return KINDS[kind]
