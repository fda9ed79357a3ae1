"""Read and write movies, annotations and results, one module per format."""
