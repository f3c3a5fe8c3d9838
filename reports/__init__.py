"""Figures and one page, built from the records in ``results/`` and from nothing else.

``python -m reports`` draws both for this machine. No number here is typed by hand: every one is computed from records,
every figure names the machine, the commits and the dates of those it shows, and what nobody measured is omitted with
the command that would measure it.
"""
