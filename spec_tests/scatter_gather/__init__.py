"""Chapter scatter_gather: nested values split and joined."""
