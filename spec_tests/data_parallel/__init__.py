"""Chapter data_parallel: the four steps as one module."""
