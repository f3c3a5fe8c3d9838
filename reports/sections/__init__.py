"""The page's topics, one a file: whoever adds a file here adds its figures and sections to the page.

A topic is a module with ``SECTIONS``, of ``reports.chart.Section``, and, where it draws any, ``CHARTS``, of
``reports.chart.Chart``. Modules without ``SECTIONS`` help one of them, ``x_figures`` the topic ``x``.
"""
