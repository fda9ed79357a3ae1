"""Published results, read off the figures of the paper and so approximate."""

FIG3 = {
    "clew": {0.5: 0.72, 0.25: 0.75, 0.1: 0.95, 0.05: 0.9},
    "perceptron": {0.5: 1.3, 0.05: 2.1},
    "full": {1.0: 0.77},
}
"""Test task loss in % by annotated fraction."""
FIG4 = {
    "clew": {0.5: "250–350", 0.1: "250–350", 0.05: "670"},
    "perceptron": {0.5: "750–1000", 0.05: "750–1000"},
    "full": {1.0: "150"},
}
"""Training time in seconds."""
TABLE3 = {
    "hinge": ("0.85 ± 0.055", "311.3 ± 42.5"),
    "ramp": ("2.73 ± 0.047", "165.4 ± 67.9"),
    "max": ("2.71 ± 0.031", "116.7 ± 38.4"),
    "bridge": ("0.83 ± 0.071", "254.1 ± 28.8"),
    "ramp-delta": ("1.14 ± 0.482", "257.5 ± 48.6"),
    "max-delta": ("1.00 ± 0.417", "191.5 ± 21.1"),
}
"""Test task loss in % and runtime in seconds."""
FIG5 = {
    "yu-joachims": ("1150", "10"),
    "recycling-only": ("700", "19"),
    "adaptive-only": ("750", "12"),
    "paper": ("200", "27"),
}
"""Seconds until the objective is flat, and CCCP iterations."""
FIG6 = {
    "yu-joachims": "over 600",
    "recycling-only": "420",
    "adaptive-only": "370",
    "paper": "100",
}
"""Number of bounds."""
CITATION = "Lou & Hamprecht, Structured Learning from Partial Annotations, ICML 2012"
