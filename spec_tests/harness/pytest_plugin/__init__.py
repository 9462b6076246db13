"""The suite as a plugin of pytest: options, hooks, fixtures, workers, the check for races.

May import every other package. ``options`` is loaded into every run of pytest and imports none.
"""
