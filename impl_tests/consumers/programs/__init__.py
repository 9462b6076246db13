"""Small training programs, one for each package, which use the package as its users do.

Each program has a function ``train``. It uses fixed seeds, and returns the losses of all steps and
the final weights.
"""
