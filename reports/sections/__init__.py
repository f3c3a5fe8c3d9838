"""The sections of the page, a file a topic. To add a section: a file with ``SECTIONS``, and its name here."""

ORDER = (
    "trees", "libraries", "replay", "plugins", "training", "learning", "processes", "mapping", "fpga", "papers",
)  # fmt: skip
"""The files, in the order of the page."""
