"""Small training programs, one for each package. Each uses its package as users do.

Each program has a function ``train`` that uses fixed seeds, and returns the losses of all steps
and the final weights.
"""
