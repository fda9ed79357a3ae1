"""The experiments of Section 5 of the paper, and active annotation.

Lou & Hamprecht, Structured Learning from Partial Annotations, ICML 2012.
``make paper`` runs all of them, ``make paper-quick`` a small edition whose claims
are compared with those in ``claims_quick.json``.
"""
