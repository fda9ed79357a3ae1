"""Apply scikit-learn's transformers of rows to the nodes of structured inputs."""

from __future__ import annotations

from itertools import chain
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from clew.errors import InputError
from clew.models.examples import Examples, Input, n_examples


class NodeTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Applies a transformer of rows to the nodes of each example.

    An example is a sequence of rows, such as the tokens of a sentence, or a tuple whose
    first part is one, as for `Tree` and `Graph`; other parts stay.

    Parameters
    ----------
    transformer : transformer
        For instance `DictVectorizer()` for nodes that are dicts of features, or
        `StandardScaler()` for rows of numbers. It is fitted to the nodes of all
        examples together.

    Attributes
    ----------
    transformer_ : transformer
        The fitted copy.
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Examples, Y: object = None) -> Self:  # noqa: ARG002  # for pipelines
        """Fit the transformer to all nodes."""
        nodes, _ = stack_nodes(X)
        self.transformer_ = clone(self.transformer).fit(nodes)
        return self

    def transform(self, X: Examples) -> list[Input]:
        """Return the examples with transformed nodes."""
        check_is_fitted(self, "transformer_")
        if n_examples(X) == 0:
            return []
        nodes, counts = stack_nodes(X)
        rows = self.transformer_.transform(nodes)
        if sp.issparse(rows):
            rows = sp.csr_array(rows)
        examples: list[Input] = []
        first = 0
        for x, count in zip(X, counts, strict=True):
            part = rows[first : first + count]
            examples.append((part, *x[1:]) if isinstance(x, tuple) else part)
            first += count
        return examples

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> NDArray[np.object_]:
        """Return the names of a node's features, from the transformer."""
        check_is_fitted(self, "transformer_")
        names = self.transformer_.get_feature_names_out(input_features)
        return np.asarray(names, dtype=object)


def stack_nodes(X: Examples) -> tuple[Examples, list[int]]:
    """Stack the nodes of all examples.

    Returns
    -------
    nodes : ndarray, csr_array or list
    counts : list of int
        Number of nodes of each example.
    """
    if n_examples(X) == 0:
        raise InputError("there are no examples: X is empty")
    nodes = [x[0] if isinstance(x, tuple) else x for x in X]
    counts = [n_examples(rows, f"example {i}") for i, rows in enumerate(nodes)]
    if any(sp.issparse(rows) for rows in nodes):
        return sp.vstack([sp.csr_array(rows) for rows in nodes], format="csr"), counts
    if all(isinstance(rows, np.ndarray) for rows in nodes):
        return np.concatenate(nodes), counts
    return list(chain.from_iterable(nodes)), counts
