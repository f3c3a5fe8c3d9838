"""Look-up tables a unit of each term of ``resources.py``. Written by ``python -m impls.fpga.rtl.fit``."""

LUTS = {
    "address shared": 0.3958,
    "change added": 1.0234,
    "lane merged": 0.6808,
    "lane ordered": 18.3707,
    "node compared": 1.8468,
    "node divided": 1.3913,
    "piece chosen": 0.4021,
    "sibling passed": 3.9428,
    "siblings subtracted": 1.9028,
    "siblings summed": 0.7485,
    "start compared": 0.2058,
    "start subtracted": 1.3842,
    "word chosen": 0.379,
    "word enabled": 3.5752,
}
