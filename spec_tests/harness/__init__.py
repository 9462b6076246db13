"""The modules that the tests of all chapters share.

The packages are ``environment``, ``concurrency``, ``compare``, ``conformance``,
``plain_programs`` and ``pytest_plugin``. Each package may import the packages listed before it,
and the modules ``traverse``, ``shared_options``, ``expressions`` and ``input_files``.
"""
