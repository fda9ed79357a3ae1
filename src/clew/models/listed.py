"""The outputs of a model, listed, for Formulation I (Eqs. 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from clew.errors import MissingCapability
from clew.learning.clpl import ListedTask
from clew.models.base import identity
from clew.models.fingerprint import fingerprint


def list_outputs(model: Any, X: Sequence[Any], Y: Sequence[Any]) -> ListedTask:
    """The CLPL task of a model with `outputs(x)`, the list of all outputs for x: every class, or every structure."""
    if not hasattr(model, "outputs"):
        raise MissingCapability(
            f"loss='clpl' lists every output: {type(model).__name__} needs a method outputs(x), or another loss"
        )
    rows, example_of, compatible, keys = [], [], [], []
    for n, annotation in enumerate(Y):
        x = X[n]
        for y in model.outputs(x):
            rows.append(sp.csr_array(model.joint_features(x, y)[None, :]))
            example_of.append(n)
            compatible.append(model.loss(annotation, y) == 0)
        keys.append(fingerprint("clpl", *identity(model), x, annotation))
    return ListedTask(sp.vstack(rows, format="csr"), np.array(example_of), np.array(compatible), keys)
