"""The machinery that all chapters share.

The packages are ``environment``, ``concurrency``, ``compare``, ``conformance`` and
``pytest_plugin``. Each may import the packages before it, and the module ``traverse``.
"""
