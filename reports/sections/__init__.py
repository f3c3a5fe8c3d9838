"""The page's topics, one a file: a file added here adds its figures and sections to the page.

A topic is a module with ``SECTIONS`` (of ``reports.chart.Section``) and, where it draws any, ``CHARTS`` (of
``reports.chart.Chart``). A module without ``SECTIONS`` belongs to a topic: ``x_figures`` to ``x``.
"""
