"""StructuredPerceptron: the structured perceptron with partial annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from numpy.typing import ArrayLike

from clew.estimators.base import StructuredEstimator
from clew.estimators.data import TrainingData, choose_annotations, make_generator
from clew.learning.perceptron import perceptron
from clew.learning.task import weight_examples
from clew.models.base import StructuredModel
from clew.models.examples import Examples
from clew.parallel import Client
from clew.utils.progress import ProgressLine
from clew.utils.validation import Seed, check_callable

Callback = Callable[[int, float], None]


class StructuredPerceptron(StructuredEstimator):
    """The structured perceptron with partial annotations, as a baseline.

    Parameters
    ----------
    model : StructuredModel
        One of `clew.models`, or an own model.
    averaged : bool
        Whether to average the weights over all steps.
    max_epochs : int
        Most passes over the examples.
    patience : int
        Epochs without improvement after which the fit ends.
    n_jobs : int or None
        Threads of predictions; -1 for all cores.
    verbose : bool
        Show a progress line.
    random_state : int, Generator, RandomState or None
        Seed of the order of the examples.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    model_ : StructuredModel
    result_ : PerceptronResult
    """

    def __init__(
        self,
        model: StructuredModel,
        *,
        averaged: bool = True,
        max_epochs: int = 200,
        patience: int = 10,
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.model = model
        self.averaged = averaged
        self.max_epochs = max_epochs
        self.patience = patience
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: Examples,
        Y: Examples = None,
        *,
        y: Examples = None,
        sample_weight: ArrayLike | None = None,
        client: Client | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from inputs and partial annotations.

        Parameters
        ----------
        X, Y : sequences
            Inputs and annotations.
        y : sequence, optional
            Another name of `Y`.
        sample_weight : array of shape (n_examples,), optional
        client : distributed.Client, optional
            Run the argmax on a Dask cluster.
        callback : callable, optional
            Called with the number and the mean task loss of each epoch.
        """
        check_callable(callback, "callback")
        data = self._prepare_training(X, choose_annotations(Y, y), sample_weight)
        return self._learn(data, client=client, callback=callback)

    def _learn(
        self,
        data: TrainingData,
        *,
        client: Client | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from parsed annotations with a prepared model."""
        task = self._make_task(data.model, data.X, data.Y, client)
        with ProgressLine(self.verbose, "perceptron") as line:

            def report_epoch(epoch: int, loss: float) -> None:
                line.show_text(f"epoch {epoch}, task loss {loss:.4g}")
                if callback is not None:
                    callback(epoch, loss)

            self.result_ = perceptron(
                weight_examples(task, data.weights),
                averaged=self.averaged,
                max_epochs=self.max_epochs,
                patience=self.patience,
                rng=make_generator(self.random_state),
                callback=report_epoch,
            )
        self.model_ = data.model
        self.coef_ = self.result_.w
        return self
