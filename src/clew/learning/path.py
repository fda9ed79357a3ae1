"""Regularization path over λ on shared bounds.

Bounds do not depend on λ. The path runs from strong to weak regularization, and each
fit starts from the weights and bounds of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.algorithm import Algorithm
from clew.learning.cccp import Callback, learn
from clew.learning.initialization import Initializer
from clew.learning.losses import Loss, concave_part, convex_part, loss_values, simplify
from clew.learning.model_update import Regulariser, regularisation
from clew.learning.result import Result
from clew.learning.task import Array, Task, as_task

PATH_LENGTH = 8
PATH_RATIO = {"l2": 10**-0.5, "l1": 10**-0.4}


def lambda_grid(
    task: Task, loss: Loss, regulariser: Regulariser = "l2", length: int = PATH_LENGTH
) -> Array:
    """Return λ from strong to weak, scaled to the data.

    Let g_n be the subgradients of the examples' losses at w = 0, and L their mean loss
    there. For L2 the first λ is mean ‖g_n‖² / (N L). A step −g/λ along the random part
    of the mean gradient, of squared norm mean ‖g_n‖² / N, would then change the loss by
    L. For L1 it is ‖mean g_n‖∞, below which the first weight becomes non-zero.

    Returns
    -------
    lams : ndarray of shape (length,)
    """
    part = task.annotated_part() or task
    zero = np.zeros(task.n_features)
    loss = simplify(loss, part)
    slopes = sp.csr_array(convex_part(part, loss, zero).features) - sp.csr_array(
        concave_part(part, loss, zero).features
    )
    if regulariser == "l1":
        top = float(np.abs(slopes.mean(axis=0)).max())
    else:
        at_zero = float(loss_values(part, loss, zero).sum())
        top = float(slopes.power(2).sum()) / task.n_examples / max(at_zero, 1e-12)
    if not top > 0:
        top = 1.0  # all outputs have the same features at w = 0
    return np.asarray(top * PATH_RATIO[regulariser] ** np.arange(length))


class Path:
    """Fits of one task at several λ on shared bounds."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        *,
        regulariser: Regulariser = "l2",
        algorithm: Algorithm | None = None,
        start: Array | None = None,
        warm_start: Result | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.task = as_task(task)
        self.loss = loss
        self.regulariser = regulariser
        self.algorithm = algorithm or Algorithm()
        self.given = start
        self.callback = callback
        self.first = (
            None
            if start is not None
            else Initializer(self.task, loss, regulariser, self.algorithm)
        )
        self.last = warm_start
        self.weights: dict[float, Array] = {}
        """Weights at each λ so far."""

    def fit(self, lam: float) -> Result:
        """Fit at this λ.

        The start is the weights of the next stronger λ. If there are none, or strong
        regularization holds them at zero, it is the given start or the default initial
        weights (`initialization`).
        """
        stronger = [other for other in self.weights if other > lam]
        if stronger and not self._is_at_zero(min(stronger)):
            w: Array | None = self.weights[min(stronger)]
        else:
            w = self.given if self.first is None else self.first.weights_for(lam)
            if w is None and self.last is not None:
                w = self.last.w
        self.last = learn(
            self.task,
            self.loss,
            lam,
            regulariser=self.regulariser,
            algorithm=self.algorithm,
            start=w,
            warm_start=self.last,
            callback=self.callback,
        )
        self.weights[lam] = self.last.w
        return self.last

    def _is_at_zero(self, lam: float) -> bool:
        """Return whether the weights at this λ hardly contribute to the objective."""
        if self.first is None or self.last is None:
            return False
        return lam * regularisation(self.weights[lam], "l2") <= 1e-9 * abs(
            self.last.objective
        )


def check_path(lams: Sequence[float]) -> list[float]:
    """Validate the values of λ and sort them from the strongest to the weakest."""
    if len(lams) == 0 or not all(np.isfinite(lam) and lam > 0 for lam in lams):
        raise InputError(f"a path needs positive values of λ, not {list(lams)}")
    return sorted((float(lam) for lam in lams), reverse=True)
