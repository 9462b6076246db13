"""Chapter scatter_gather: scatter and gather of nested containers."""
