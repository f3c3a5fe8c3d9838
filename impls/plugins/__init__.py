"""Plug-ins: our trees as the prioritized replay of other libraries, one module a library (the *host*).

Import the module of the host in use, for example ``impls.plugins.sb3``; this package imports none of them.
"""
