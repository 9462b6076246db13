"""Chapter comm: the primitives between devices."""
