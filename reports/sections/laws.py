"""The page's section about modeled times: the errors of models on what their constants were not fitted to."""

from collections.abc import Iterator

from dse.records import RecordError
from dse.times import laws

from ..chart import Material, Section
from ..laws import HeldOut, SerialLoop, held_out, serial_loops, untold
from ..markup import paragraph, table

HEAD = ("law", "left out", "cells", "median error", "worst", "its factor", "held for", "as fitted", "worst of all on")
LOOP_HEAD = ("machine", "workload", "by loops of", "predicted steps/s", "within", "measured steps/s", "error")
UNREAD = "no record holds the workload of {}, and none ships so; measure it again with its file"
ASSUMED = (
    ("records on a GPU", laws.GPU_FACTOR),
    ("a gradient step on an FPGA", laws.FPGA_LEARNER_FACTOR),
    ("a sum tree on an FPGA, whose cycles equal simulated hardware: clock and placement", laws.FPGA_RMM_FACTOR),
    ("what was timed on one processor, on another", laws.ELSEWHERE_FACTOR),
)


def _html(material: Material) -> str:
    held, loops = held_out(material.results), serial_loops(material.results)
    unread = UNREAD.format(", ".join(gone)) if (gone := untold(material.results)) else ""
    if not held:
        raise RecordError(
            unread
            or "no machine here has both a platform file and a profile; on one that was probed, measure with: "
            "python -m benchmarks profile --workload cartpole_dqn"
        )
    machines = sorted({name.split()[-1] for law in held for name in law.left_out})
    text = paragraph(
        "What nobody timed is modeled, and shows a factor instead of a 95 % interval. Here the constants of each law "
        f"are fitted without one workload of a machine, or without one machine (of {len(machines)}: "
        f"{', '.join(machines)}), of a GPU's tree without a number of leaves, and the law then predicts it. An error "
        "is a factor; the law's own factor is what answers show, and should hold for nine in ten cells. Those of actor "
        "and fetch were widened until they did."
    ) + table(HEAD, map(_row, held))
    text += paragraph("These factors rest on no measurement, and are assumptions:")
    text += table(("what", "factor"), [(what, f"{factor:g}") for what, factor in ASSUMED])
    text += paragraph(f"Left out: {unread}.") if unread else ""
    if loops:
        text += paragraph("Serial loops, predicted with what the loops of other workloads take beyond their parts:")
        text += table(LOOP_HEAD, _loops(loops))
    return text


def _row(law: HeldOut) -> tuple[object, ...]:
    worst = max(law.left_out, key=lambda name: law.left_out[name][1])
    errors = (f"x {law.median:.2f}", f"x {law.worst:.3g}", f"x {law.factor:g}")
    return law.law, f"a {law.out}", law.cells, *errors, f"{law.within:.0%}", f"{law.as_fitted:.0%}", worst


def _loops(loops: tuple[SerialLoop, ...]) -> Iterator[tuple[object, ...]]:
    for loop in loops:
        hz, low, high = loop.predicted
        rates = f"{hz:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{loop.measured_hz:,.0f}"
        yield loop.machine, loop.workload, ", ".join(loop.others), *rates, f"{loop.error:+.1%}"


SECTIONS = (
    Section(
        115,
        "Modeled times validated against what they were not fitted to",
        _html,
        ("training", "serial_step"),
        ("*/platform.toml",),
        is_modeled=True,
    ),
)
