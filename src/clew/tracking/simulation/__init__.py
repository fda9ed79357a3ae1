"""The parts of the simulator: settings, the life of the cells, their pictures, and a fallible segmentation of them."""
