"""Run every check that needs a GPU with one command, the most informative check first.

``python -m reports.gpu_day --out FOLDER`` runs the steps in ``steps.py``, each in its own process
with a time limit, and ends within ``--minutes``. It writes all results to at most eight files in
the folder. If a later call gets a folder with these files, it continues after the steps that are
done, also on another machine. The command needs no tox, no git and no network.
"""
