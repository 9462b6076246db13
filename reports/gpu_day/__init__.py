"""Run every check that needs a GPU, the most informative first, with one command.

``python -m reports.gpu_day --out FOLDER`` runs the steps of ``steps.py``, each in its own process
with a time limit, and ends within ``--minutes``. All results are in the files of the folder, at
most eight. A later call with this folder resumes, also on another machine. The command needs
neither tox nor git nor the network.
"""
