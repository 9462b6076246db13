"""Small training programs, one for each package, written as the package's users would.

Each has a function ``train``, which uses fixed seeds and returns the losses of its steps and the
final weights.
"""
