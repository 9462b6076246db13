"""Everything that only a machine with a GPU can tell, by one command, in the order of its worth.

``python -m reports.gpu_day --out FOLDER`` runs the steps of ``steps.py``, each in a process of its
own with a limit of time, and ends within ``--minutes``. All it knows lies in the files of the
folder, at most eight: called again with them, on another machine too, it goes on where it stopped.
It needs neither tox nor git nor the network.
"""
