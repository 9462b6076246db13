"""The machinery that all chapters share, in packages; each may import those before it.

``environment``, ``concurrency``, ``compare``, ``conformance``, ``pytest_plugin``; all may import
the module ``traverse``.
"""
