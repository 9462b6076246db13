"""Chapter parallel_apply: concurrent calls of several modules."""
