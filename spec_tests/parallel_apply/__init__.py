"""Chapter parallel_apply: several modules at once."""
