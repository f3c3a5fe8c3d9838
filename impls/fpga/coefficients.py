"""Look-up tables a unit of each term of ``resources.py``, by ``python -m tests.oracles.rtl.fit``."""

LUTS = {
    "address shared": 0.3268,
    "change added": 1.0377,
    "lane merged": 0.6531,
    "lane ordered": 19.1406,
    "node compared": 2.0594,
    "node divided": 1.4355,
    "piece chosen": 0.4031,
    "priority chosen": 0.6806,
    "priority retrieved": 0.8422,
    "sibling checked": 0.3717,
    "sibling passed": 3.9649,
    "siblings subtracted": 1.9173,
    "siblings summed": 0.7395,
    "start compared": 0.2289,
    "start subtracted": 1.4916,
    "word chosen": 0.2989,
    "word enabled": 5.3577,
    "word held": 1.6356,
}
