"""From events to a lineage: links between cells, and track ids through merges and splits."""
