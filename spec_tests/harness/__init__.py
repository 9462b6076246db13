"""The modules that the tests of all chapters share.

The packages are ``environment``, ``concurrency``, ``compare``, ``conformance``, ``programs`` and
``pytest_plugin``. Each package may import the packages listed before it, and the module
``input_files``.
"""
