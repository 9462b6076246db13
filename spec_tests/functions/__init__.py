"""Chapter functions: the primitives under autograd."""
