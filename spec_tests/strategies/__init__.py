"""Hypothesis strategies that draw calls and arguments which the documentation allows.

Calls of public functions:

* ``calls``: what all descriptions of calls have in common, and device arguments
* ``comm``: calls of the functions of ``comm``
* ``functions``: calls of the autograd Functions
* ``scatter_gather``: calls of scatter, scatter_kwargs and gather
* ``replicate``, ``jit_modules``: calls of replicate, also with script modules
* ``parallel_apply``, ``failing_modules``: calls of parallel_apply without and with errors
* ``data_parallel``: calls of DataParallel

Tensors and other arguments:

* ``tensors``, ``tensor_subclasses``: dense and sparse tensors, nested and masked tensors
* ``packed_sequences``: packed sequences
* ``containers``, ``deep_nesting``: containers of tensors and other objects
* ``stateful_containers``: dataclasses and mappings with extra state
* ``exceptions``: exceptions with all kinds of constructors
* ``thread_state``: the state of a calling thread, and modules that read or change it

Modules:

* ``layers``, ``modules``: layers, and networks of layers
* ``compiled_modules``: modules that torch.compile compiles
* ``computed_modules``: selects the modules that the devices compute as the CPU does
* ``custom_modules``, ``edge_case_modules``: modules that are hard to replicate
* ``probe_modules``: modules that show how they were called
* ``changed_members``: modules whose forward changes the parameters of a submodule
* ``references``: modules that refer to their submodules, and hooks that are methods
"""
