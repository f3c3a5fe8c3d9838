"""Makes sure the packages under test are this checkout's, and that hypothesis repeats itself."""

from pathlib import Path

from hypothesis import settings

import dse
import impls

ROOT = Path(__file__).resolve().parent.parent

for package in (impls, dse):
    here = Path(package.__file__ or "").resolve()
    assert here.is_relative_to(ROOT), (
        f"{package.__name__} is {here}, not this checkout's: an unrelated package shadows it"
    )

settings.register_profile("fanout", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fanout")
