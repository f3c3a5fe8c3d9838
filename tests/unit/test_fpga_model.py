"""What an operation takes: the ledger around the cycle laws, the load of the banks, the link."""

import numpy as np
import pytest

from dse.fpga import rmm_search
from impls.fpga import cycles
from impls.fpga.design import PORTS, Design
from impls.fpga.model import Link, bank_sizes, bank_sums, ledger
from reports.sections.fpga import make_link

ONE_BANK = Design(4096, 2, 18, "scan")
U200_LINK = make_link()


@pytest.mark.parametrize("batch", [1, 32, 1000])
@pytest.mark.parametrize("micro", ["scan", "wide"])
def test_one_bank_takes_what_the_law_says(micro, batch):
    design = Design(4096, 4, 18, micro)
    assert ledger(design, "sample", batch).cycles == cycles.count_cycles(design, "sample", batch)
    assert ledger(design, "update", batch).cycles == cycles.count_cycles(design, "update", batch)
    assert ledger(design, "get", batch).cycles == cycles.count_cycles(design, "get", batch)
    assert ledger(design, "sample", batch).busiest == batch


def test_a_step_is_its_parts_one_after_the_other():
    design = Design(4096, 16, banks=8)
    parts = sum(ledger(design, op, 64).cycles for op in ("sample", "update"))
    assert ledger(design, "step", 64).cycles == pytest.approx(parts)
    assert ledger(design, "draw", 64) != ledger(design, "step", 64)
    assert ledger(design, "step", 64).seconds == pytest.approx(parts / design.clock_hz)


@pytest.mark.parametrize(("micro", "banks"), [("wide", 1), ("scan", 1), ("scan", 8)])
def test_a_step_that_overlaps_is_the_larger_of_its_sides(micro, banks):
    turns, dual, copied = (Design(4096, 8, 18, micro, banks, ports=ports) for ports in PORTS)
    spent = {op: ledger(dual, op, 64).cycles for op in ("sample", "update", "step")}
    longest = max(spent["sample"], spent["update"])
    assert spent["step"] == pytest.approx(longest, rel=1e-9 if banks == 1 else 0.1)
    assert spent["step"] >= longest - 1e-9
    assert ledger(turns, "step", 64).cycles >= ledger(copied, "step", 64).cycles
    assert ledger(dual, "sample", 64) == ledger(turns, "sample", 64)
    assert ledger(dual, "update", 64).cycles > ledger(copied, "update", 64).cycles
    assert ledger(copied, "update", 64) == ledger(turns, "update", 64)
    assert rmm_search.mean_cycles(dual, 64) == pytest.approx(spent["step"], rel=1e-9)


def test_seed_3s_example_of_small_batches():
    """B = 32, one bank, K = 2, 2^20 leaves: 64 cycles printed, 122 taken."""
    design = Design(1 << 20, 2, 17, "scan")
    assert ledger(design, "sample", 32, law="published").cycles == 64
    assert ledger(design, "sample", 32).cycles == 122
    assert ledger(design, "sample", 32, law="pearl").cycles == 2 * 2 * (32 + 20)
    assert ledger(design, "update", 32, law="pearl").cycles == ledger(design, "update", 999, law="pearl").cycles == 40


@pytest.mark.parametrize("banking", ["contiguous", "interleaved"])
@pytest.mark.parametrize(("capacity", "banks"), [(64, 8), (61, 8), (33, 32), (5, 5), (100, 1)])
def test_banks_hold_every_leaf_once(capacity, banks, banking):
    design = Design(capacity, 4, banks=banks, banking=banking)
    held = np.zeros(banks, int)
    leaves = np.arange(1.0, capacity + 1)
    sums = np.zeros(banks)
    for leaf in range(capacity):
        bank, place = design.bank_of(leaf)
        assert 0 <= place < design.bank_capacity
        held[bank] += 1
        sums[bank] += leaves[leaf]
    assert bank_sizes(design).tolist() == held.tolist()
    assert bank_sums(design, leaves).tolist() == sums.tolist()


def test_the_busiest_bank_of_random_draws():
    """Multinomial loads; the design notes' figures for 2^20 leaves on 32 banks."""
    design = Design(1 << 20, 2, 17, "scan", 32)
    for batch, mean in ((256, 14.4), (1024, 44), (16_384, 560)):
        assert ledger(design, "sample", batch).busiest == pytest.approx(mean, rel=0.03)
    assert ledger(design, "sample", 1024) == ledger(design, "sample", 1024)  # seeded
    tenth = np.where(np.arange(32) < 3.2, 1.0, 0.0)
    assert ledger(design, "sample", 1024, tenth).busiest > 200


def test_fresh_insertions_fall_on_one_contiguous_bank():
    there = {banking: Design(1 << 20, 2, banks=32, banking=banking) for banking in ("contiguous", "interleaved")}
    assert ledger(there["contiguous"], "insert", 1024).busiest == 1024
    assert ledger(there["interleaved"], "insert", 1024).busiest == 32
    assert ledger(Design(10, 2, banks=2), "insert", 25).busiest == 15  # round and round


def test_the_ledger_adds_up():
    found = ledger(Design(4096, 16, banks=4), "sample", 100)
    assert [what for what, _ in found.entries] == [
        "sample: dispatch",
        "sample: fill",
        "sample: the busiest bank's other elements",
    ]
    assert found.cycles == sum(spent for _, spent in found.entries)
    assert all(spent >= 0 for _, spent in found.entries)


def test_the_link_is_a_row_of_its_own():
    up, down = (ledger(ONE_BANK, op, 1000, link=U200_LINK) for op in ("upload", "download"))
    assert up.cycles == down.cycles == 0
    assert up.seconds == pytest.approx(13.6e-6 + 8000 / 7.45e9)
    assert down.seconds == pytest.approx(13e-6 + 8000 / 12.1e9)
    assert U200_LINK.to_device_seconds(0) + U200_LINK.from_device_seconds(0) > 26e-6
    free = Link(lambda nbytes: nbytes / 1e9, lambda nbytes: nbytes / 1e9)
    assert ledger(ONE_BANK, "upload", 1000, link=free).seconds == 8e-6
    assert ledger(ONE_BANK, "sample", 1000, link=free) == ledger(ONE_BANK, "sample", 1000)


def test_a_transfer_without_a_link_is_refused():
    for op in ("upload", "download"):
        with pytest.raises(ValueError, match=f"{op} takes what the link to the host takes; give link="):
            ledger(ONE_BANK, op, 1)


def test_a_quoted_log_is_met_by_the_link():
    """Host to device, bytes and seconds, of the log the link was fitted to: worst 13 % off."""
    for nbytes, micro in ((64, 13.6), (1 << 10, 14.9), (1 << 12, 13.9), (1 << 14, 14.0), (1 << 20, 161.6)):
        assert U200_LINK.to_device_seconds(nbytes) * 1e6 == pytest.approx(micro, rel=0.14)
