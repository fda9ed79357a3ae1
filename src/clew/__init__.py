"""clew: large-margin learning of structured outputs from partial annotations."""
