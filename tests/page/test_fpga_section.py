"""The section on an FPGA: calls by the cycle laws, loads of banks, and the four panels of its figure."""

import numpy as np
import pytest
from scipy.stats import chi2

from dse.platforms.files import RESULTS
from impls.fpga.design import Design
from impls.fpga.model import ledger
from reports.claims import models, quoted
from reports.frame import Data
from reports.sections import fpga

DATA = Data(RESULTS, "made-up", [])


def test_calls_take_what_the_cycle_law_says():
    calls = fpga.list_calls(DATA).set_index(["op", "design", "B"])
    published = ledger(Design(1 << 20, 2, 17, "scan", 32, "contiguous"), "update", 1024)
    assert calls.loc["update", "published", 1024]["cycles"] == published.cycles
    assert calls.loc["update", "published", 1024]["us"] == pytest.approx(1e6 * published.seconds)
    assert calls.loc["update", "link to a host", 1024]["us"] > 0


def test_new_leaves_all_fall_into_one_bank_of_contiguous_leaves():
    banks = fpga.list_banks(DATA).set_index(["banking", "buffer", "B"])["busiest bank / even share"]
    assert banks["contiguous", "B new leaves inserted", 256] == 32
    assert banks["interleaved", "B new leaves inserted", 256] == 1
    newest = "newest 5 % at the maximum, rest uniform"  # all of a bank at 1, of a mean of 0.05 + 0.95 / 2
    assert banks["contiguous", newest, 16_384] == pytest.approx(1 / 0.525, rel=0.02)
    assert banks["contiguous", "buffer 10 % full", 16_384] == pytest.approx(10, rel=0.02)


def test_panels_add_the_draw_to_the_update():
    rows, calls = fpga.list_panels(DATA), fpga.list_calls(DATA)
    first = rows[rows["panel"] == fpga.PANELS[0]].set_index(["line", "x"])["value"]
    both = calls[(calls["design"] == "ours, K = 16") & (calls["B"] == 256)]["us"].sum()
    assert first["ours, K = 16", 256] == pytest.approx(both)
    assert set(rows["panel"]) == set(fpga.PANELS)
    assert len(rows[rows["source"] == "quoted"]) == 3
    second = rows[rows["panel"] == fpga.PANELS[1]].set_index(["line", "x"])["value"]
    banks = fpga.list_banks(DATA).query("banking == 'interleaved' and B == 1_024")["busiest bank / even share"]
    assert second["interleaved banks, worst of these", 1_024] == banks.max() > banks.min()


def test_the_draws_that_tell_narrow_leaves_are_told_by_pearsons_test():
    skew, bits, level = "rank^-0.2", 9, fpga.LEVEL
    draws = int(fpga.list_leaf_bits(DATA).set_index(["skew", "leaf_bits"])["needed"][skew, bits])
    leaves = models.make_priorities(skew)
    kept, wanted = models.round_leaves(leaves, bits), draws * leaves / leaves.sum()
    counts = np.random.default_rng(1).multinomial(draws, kept / kept.sum(), 20)
    statistic = ((counts - wanted) ** 2 / wanted).sum(axis=1).mean()
    assert level / 10 < chi2.sf(statistic, leaves.size - 1) < 10 * level


def test_resources_are_shares_of_a_slice():
    table = fpga.list_resources(DATA).set_index("design")
    printed = quoted.read(RESULTS / "quoted")
    for name, place in (("ours, K = 16", "slr0"), ("published", "slr1")):
        have = printed[f"{models.SHELL}.{place}.lut"]
        assert table.loc[name, "lut (% of slice)"] == pytest.approx(100 * table.loc[name, "lut"] / have)
        assert 0 < table.loc[name, "lut (% of slice)"] <= 100
