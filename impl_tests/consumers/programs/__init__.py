"""One small training run for each package, written as its users write it.

Each has ``train``, which makes everything from fixed seeds and returns the losses of its steps and
the weights that they have led to.
"""
