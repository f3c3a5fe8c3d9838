"""The page that is kept, in a real browser with all of it unfolded: axe-core finds nothing serious in it."""

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from tests.in_browser import WIDTHS, needs_chromium
from tests.page.test_five_tasks import GALLERY
from tests.page.test_look_browser import assert_serves

pytestmark = needs_chromium
MOST_BYTES = 6_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [*zip(WIDTHS, ("dark", "light", "dark"), strict=True)])
def test_it_serves_every_reader(width, scheme, tmp_path):
    assert_serves(tmp_path, GALLERY.read_text(encoding="utf-8"), width, scheme)


def test_it_is_no_larger_than_a_visitor_will_wait_for():
    assert GALLERY.stat().st_size <= MOST_BYTES
