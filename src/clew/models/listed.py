"""The outputs of a model, listed, for Formulation I (Eqs. 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from clew.errors import MissingCapability
from clew.learning.clpl import ListedTask
from clew.learning.losses import Loss
from clew.learning.task import Space
from clew.models.base import StructuredModel, identity
from clew.models.examples import Examples
from clew.models.fingerprint import fingerprint


@dataclass(frozen=True, slots=True)
class ListedLoss(Loss):
    """A loss that is defined on the list of all outputs, and so makes the task from which it is learned."""

    def task(self, model: StructuredModel, X: Examples, Y: Examples) -> ListedTask:
        """The examples with their outputs listed."""
        return list_outputs(model, X, Y)


CLPL = ListedLoss("clpl", Space.ALL, None)
"""Formulation I: the convex loss for partial labels. Its task's penalty is the whole loss, there is no reward."""


def list_outputs(model: StructuredModel, X: Examples, Y: Examples) -> ListedTask:
    """The CLPL task of a model with `outputs(x)`, the list of all outputs for x: every class, or every structure.

    A model may list all examples at once by `listed(X, Y)`: φ (m, d), the example of each row, and whether it agrees
    with the annotation.
    """
    if not hasattr(model, "outputs"):
        raise MissingCapability(
            f"loss='clpl' lists every output: {type(model).__name__} needs a method outputs(x), or another loss"
        )
    indices = range(X.shape[0] if hasattr(X, "shape") else len(X))
    keys = [fingerprint("clpl", *identity(model), X[n], Y[n]) for n in indices]
    if hasattr(model, "listed"):
        features, of_row, agrees = model.listed(X, Y)
        return ListedTask(features, of_row, agrees, keys)
    rows, example_of, compatible = [], [], []
    for n in indices:
        for y in model.outputs(X[n]):
            rows.append(sp.csr_array(model.joint_features(X[n], y)[None, :]))
            example_of.append(n)
            compatible.append(model.loss(Y[n], y) == 0)
    return ListedTask(
        sp.vstack(rows, format="csr"), np.array(example_of), np.array(compatible), keys
    )
