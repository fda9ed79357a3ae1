"""Estimators: scikit-learn interfaces to the learners."""
