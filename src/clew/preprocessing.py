"""Transformers of scikit-learn for structured inputs: what works on rows works on the nodes of all examples."""

from __future__ import annotations

from itertools import chain
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from clew.errors import InputError
from clew.models.base import n_examples
from clew.models.examples import Examples, Input


class NodeTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Applies a transformer of rows to the nodes of each example: the tokens of sentences, the nodes of trees.

    Args:
        transformer: for instance `DictVectorizer()` for nodes that are dicts of features, `StandardScaler()` for rows
            of numbers, or a pipeline of such. It is fitted to the nodes of all examples together.

    An example is a sequence of rows, or a tuple whose first part is one, as for `Tree` and `Graph`; other parts stay.
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: Examples, Y: object = None) -> Self:  # noqa: ARG002  # nodes are not annotated one by one
        """Fit the transformer to all nodes."""
        self.transformer_ = clone(self.transformer).fit(stack_nodes(X)[0])
        return self

    def transform(self, X: Examples) -> list[Input]:
        """Each example with transformed nodes."""
        check_is_fitted(self, "transformer_")
        if n_examples(X) == 0:
            return []
        rows, lengths = stack_nodes(X)
        together = self.transformer_.transform(rows)
        if sp.issparse(together):
            together = sp.csr_array(together)
        ends = np.cumsum(lengths)
        parts = [
            together[end - length : end]
            for end, length in zip(ends, lengths, strict=True)
        ]
        return [
            (part, *x[1:]) if isinstance(x, tuple) else part
            for x, part in zip(X, parts, strict=True)
        ]

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> NDArray[np.object_]:
        """The names of a node's features, from the transformer."""
        check_is_fitted(self, "transformer_")
        return np.asarray(
            self.transformer_.get_feature_names_out(input_features), dtype=object
        )


def stack_nodes(X: Examples) -> tuple[Examples, list[int]]:
    """The nodes of all examples one after the other, and how many each example has."""
    if n_examples(X) == 0:
        raise InputError("there are no examples: X is empty")
    nodes = [x[0] if isinstance(x, tuple) else x for x in X]
    lengths = [n_examples(rows, f"example {i}") for i, rows in enumerate(nodes)]
    if any(sp.issparse(rows) for rows in nodes):
        return sp.vstack([sp.csr_array(rows) for rows in nodes], format="csr"), lengths
    if all(isinstance(rows, np.ndarray) for rows in nodes):
        return np.concatenate(nodes), lengths
    return list(chain.from_iterable(nodes)), lengths
