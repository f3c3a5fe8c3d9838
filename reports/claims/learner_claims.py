"""Judge the claims of [Zhang2023] about its learner on an FPGA (Tables III and V to VII, Fig. 11) by modeling it again.

The clock and the percentages of Table VI are in ``rmm_device``. The bars of Fig. 11 have no numbers, and no TITAN Xp
was measured. What can be checked is whether the learner's modeled curve leaves room for the crossings that the text
states, given the two GPU times which Table VII implies.
"""

from collections.abc import Sequence

from dse.platforms import load as load_platform
from dse.records import Record
from impls.fpga.learner import FP32, ledger, resources, stages
from impls.fpga.network import NAMED, Network, parse

from . import learner_curves, learner_points
from .claims import ELSEWHERE, EXACT, Claim, Verdict, adds_up_if, consistent_if, within
from .quoted import Quoted

PAPER, ORDER = "[Zhang2023]", 2
TOLERANCE = 0.1
"""Relative error of a size or rate, or loss of a design against another, beyond which a claim is refuted."""
ROUNDING = 0.005
"""Relative error of a number printed with three digits."""
MEGABYTE = 8e6  # bits
RATES = 200
"""Rates between which those lie that Table VII might as well have printed."""
ALL_ACTIONS = 18
"""Actions of the Arcade Learning Environment, for which one network fits every game."""


def verdicts(_: Sequence[Record], quoted: Quoted) -> list[Claim]:
    """Judge MACs, stages, parallelism, units, memory, LUTs, throughputs, Fig. 11's crossings, and the largest gains."""
    macs = [_critic_macs(quoted, name) for name in ("CartPole", "Hopper")]
    sizes = (_pong_macs, _stages, _data_parallel, _units, _integer_factor, _dqn_memory, _ddpg_memory, _luts)
    times = (_cartpole_throughput, _hopper_throughput)
    systems = [_over_baselines(quoted), _per_watt(quoted)]
    return macs + [judge(quoted) for judge in (*sizes, *times)] + learner_curves.verdicts(quoted) + systems


def _near(value: float, printed: float, tolerance: float) -> Verdict:
    return adds_up_if(abs(value / printed - 1) <= tolerance)


def _critic_macs(quoted: Quoted, name: str) -> Claim:
    row = quoted.table(f"seed3_learner.table_iii.{name.lower()}")
    inputs = int(row["states"] + row["actions"] + 1)
    network = parse(f"mlp:{inputs}-{row['hidden']:g}-{row['hidden']:g}-1")
    return Claim(
        f"{name}'s network has {row['macs']:,.0f} MACs (Table III).",
        _near(network.macs, row["macs"], ROUNDING),
        f"computed: a critic of three layers with |S| + |A| + 1 = {inputs} inputs has {network.parameters:,} weights "
        f"and biases, which is the number printed. Its MACs are {network.macs:,} forward, and "
        f"{sum(stage.gemm.macs for stage in stages(network)):,} with backward pass and weight gradients",
        f"adds up if the network's forward MACs are within {ROUNDING:.1%} of the number, refuted otherwise",
        within(ROUNDING),
    )


def _pong_macs(quoted: Quoted) -> Claim:
    row = quoted.table("seed3_learner.table_iii.pong")
    cited, nature, padded = (parse(name) for name in ("mnih2013", "nature", "pong"))
    full = parse(f"{NAMED['pong'].rpartition('-')[0]}-{ALL_ACTIONS}")
    return Claim(
        f"Pong's network, the ConvNet in [14], has {row['macs'] / 1e6:g}M MACs (Table III).",
        _near(cited.macs, row["macs"], ROUNDING),
        f"computed: the network of [14] has {cited.macs / 1e6:.2f}M, its successor in Nature {nature.macs / 1e6:.2f}M. "
        f"Table 5.1 of [Zhang2022] pads that one: {padded.macs / 1e6:.2f}M with {row['actions']:g} actions, "
        f"{_with_biases(padded) / 1e6:.3f}M if each bias counts, {_with_biases(full) / 1e6:.3f}M so with all "
        f"{ALL_ACTIONS} actions, which rounds to the number printed",
        f"adds up if the forward MACs of the network of [14] are within {ROUNDING:.1%} of the number, refuted "
        "otherwise",
        within(ROUNDING),
    )


def _with_biases(network: Network) -> int:
    return network.macs + sum(layer.outputs for layer in network.layers)


def _stages(_: Quoted) -> Claim:
    network = parse("cartpole")
    kinds = [stage.kind for stage in stages(network)]
    layers = len(network.layers)
    counted = " + ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return Claim(
        "A pipeline for L layers has n = 3 L stages (IV-B); n = 3 (L - 1) in [Zhang2022].",
        adds_up_if(len(kinds) == 3 * layers),
        f"computed for L = {layers}: {counted} = {len(kinds)}. L of [Zhang2023] counts layers of weights, that of "
        f"[Zhang2022] layers of neurons, {layers + 1} here, input included: the same stages",
        "adds up if the stages of a learner, counted, are 3 L, refuted otherwise",
        EXACT,
    )


def _data_parallel(quoted: Quoted) -> Claim:
    pipelines = int(quoted["seed3.table_vi.parameters.data_parallel"])
    budget = learner_points.published_slices(quoted)
    compared, slower = [], 0.0
    for name, batch in (("cartpole", 16384), ("hopper", 32), ("hopper", 16384)):
        network = parse(name)
        own = learner_points.best(network, batch, budget)
        printed = learner_points.best(network, batch, budget, pipelines)
        slower = max(slower, printed.cycles / own.cycles - 1)
        compared.append(
            f"{name} at B = {batch:,}: DP = {own.design.pipelines} takes {own.cycles:,.0f} cycles, DP = {pipelines} at "
            f"best {printed.cycles:,.0f} ({printed.cycles / own.cycles - 1:+.0%})"
        )
    return Claim(
        f"The exploration returns DP = {pipelines} pipelines of PI = BS/{pipelines} samples (Table VI).",
        adds_up_if(slower <= TOLERANCE),
        f"computed: BS is the batch size B (B/{pipelines} in [Zhang2022]), not S, and DP x PI = B. By the "
        f"paper's own formula, within two SLRs, the best number depends on network and batch: {'; '.join(compared)}",
        f"adds up if so many pipelines take at most {TOLERANCE:.0%} longer than the best number in every case, "
        "refuted if not in one",
        learner_curves.MODEL,
    )


def _units(quoted: Quoted) -> Claim:
    dqn, ddpg = (int(quoted[f"seed3.table_vi.{row}.dsp"]) for row in ("dqn", "ddpg"))
    left = [dsp % FP32.dsp for dsp in (dqn, ddpg)]
    balanced = resources(learner_points.published(quoted)).dsp
    return Claim(
        f"The DQN learner takes {dqn:,} DSP, the DDPG learner {ddpg:,} (Table VI).",
        "not testable here",
        f"computed: with {FP32.dsp} DSP an fp32 MAC, an adder of 2 and a multiplier of 3 (assumed: default HLS cores), "
        f"these are {dqn // FP32.dsp} units and {left[0]} DSP, and {ddpg // FP32.dsp} units and {left[1]}: whole "
        f"operators, so fp32 is plausible. How many an exploration takes depends on a network, batch and f that are "
        f"not printed. The CartPole learner that Table VII's time implies needs {balanced}: DDPG's must be Hopper's",
        "none: whole units confirm nothing, and what an exploration takes is not printed",
        f"one in {FP32.dsp} numbers is of whole units",
    )


def _integer_factor(quoted: Quoted) -> Claim:
    network = parse("hopper")
    pipelines = int(quoted["seed3.table_vi.parameters.data_parallel"])
    smallest = min(layer.forward.macs for layer in network.layers)
    units = sum(-(-stage.gemm.macs // smallest) for stage in stages(network) if stage.layer)
    have, printed = learner_points.published_slices(quoted).dsp or 0, quoted["seed3.table_vi.ddpg.dsp"]
    needed = pipelines * units * FP32.dsp
    return Claim(
        "A stage has r_i f units: r_i its MACs over those of the smallest layer, f = 1, 2, ... (VI-A2).",
        adds_up_if(needed <= printed),
        f"computed for Hopper, whose smallest layer has {smallest} MACs: f = 1 is {units} units a pipeline, "
        f"{units * FP32.dsp:,} DSP, and DP = {pipelines} is {needed:,}, where two SLRs have {have:,} and "
        f"{printed:,.0f} are printed. Ours takes ceil(MACs / T) units for whatever T fits",
        "adds up if the fewest units that the rule allows fit the printed DSP, refuted otherwise",
        EXACT,
    )


def _megabytes(network: Network, pipelines: int) -> float:
    """Compute the MB of a learner's buffers, which units do not change."""
    return resources(learner_points.balanced(network, pipelines, network.macs)).sram_bits / MEGABYTE


def _dqn_memory(quoted: Quoted) -> Claim:
    printed = quoted["seed3.table_vi.dqn.sram_mb"]
    pipelines = int(quoted["seed3.table_vi.parameters.data_parallel"])
    padded, nature, cited = (parse(name) for name in ("pong", "nature", "mnih2013"))
    have = [_megabytes(cited, copies) for copies in (1, pipelines)]
    return Claim(
        f"The DQN learner takes {printed:g} MB of SRAM (Table VI).",
        "refuted" if 32 * padded.parameters / MEGABYTE > printed else _near(have[1], printed, TOLERANCE),
        f"computed in fp32: the weights of the network with {padded.macs / 1e6:.1f}M MACs alone are "
        f"{32 * padded.parameters / MEGABYTE:.1f} MB, before gradients, activations and DP = {pipelines} copies "
        f"({_megabytes(padded, pipelines):.0f} MB in all). That of Nature would take "
        f"{_megabytes(nature, pipelines):.0f} MB, that of [14] {have[0]:.1f} MB with one pipeline and {have[1]:.1f} "
        f"with {pipelines}: Tables III and VI cannot be of the same network",
        "refuted if the weights of Table III's network alone are larger; else adds up if buffers of that of [14] are "
        f"within {TOLERANCE:.0%}",
        within(TOLERANCE),
    )


def _ddpg_memory(quoted: Quoted) -> Claim:
    printed = quoted["seed3.table_vi.ddpg.sram_mb"]
    pipelines = int(quoted["seed3.table_vi.parameters.data_parallel"])
    critic = _megabytes(parse("hopper"), pipelines)
    return Claim(
        f"The DDPG learner takes {printed:g} MB of SRAM (Table VI).",
        _near(critic, printed, TOLERANCE) if critic > (1 - TOLERANCE) * printed else "not testable here",
        f"computed: weights, gradients and activations of Hopper's critic with DP = {pipelines} are {critic:.1f} MB. "
        f"Actor and target networks, which are not modeled, have as many parameters each: four times that are "
        f"{4 * critic:.1f}. What else is stored is not printed; blocks that are not full count in whole",
        f"adds up if the buffers of Hopper's critic are within {TOLERANCE:.0%} of the number, refuted if they are "
        "larger; smaller ones leave room for what else is stored, which is not printed",
        within(TOLERANCE),
    )


def _luts(quoted: Quoted) -> Claim:
    rows = {row: quoted.table(f"seed3.table_vi.{row}") for row in ("dqn", "ddpg")}
    percent, whole = quoted["seed3.table_vi.ddpg_percent.lut"], quoted["alveo_u200.whole.lut"]
    printed = rows["ddpg"]["lut"]
    by_percent = percent / 100 * whole
    each = {row: taken["lut"] / (taken["dsp"] / FP32.dsp) for row, taken in rows.items()}
    return Claim(
        f"The DDPG learner takes {printed / 1e3:g}K LUT, {percent:g} % (Table VI).",
        _near(printed, by_percent, TOLERANCE),
        f"computed: {printed / 1e3:g}K are {printed / whole:.0%} of the device, {percent:g} % would be "
        f"{by_percent / 1e3:.0f}K. With fewer DSP than the DQN learner it has more LUT: {each['ddpg']:,.0f} a MAC, or "
        f"{by_percent / (rows['ddpg']['dsp'] / FP32.dsp):,.0f} by the percentage, against {each['dqn']:,.0f}; which of "
        f"them is a slip cannot be told",
        f"adds up if number and percentage of the device agree within {TOLERANCE:.0%}, refuted otherwise",
        within(TOLERANCE),
    )


def _cartpole_throughput(quoted: Quoted) -> Claim:
    printed = learner_curves.rate(quoted, "seed3.table_vii.cartpole")
    batch = int(quoted["seed3.table_vii.cartpole.batch"])
    design = learner_points.published(quoted)
    rate = 1 / ledger(design, batch).seconds
    own = learner_points.best(design.network, batch, learner_points.published_slices(quoted))
    faster = ledger(design, batch).cycles / own.cycles
    passing = _rates_that_pass(quoted, printed)
    return Claim(
        f"CartPole with all on the FPGA makes {printed:,.0f} gradient steps/s at B = {batch:,} (Table VII).",
        consistent_if(abs(rate / printed - 1) <= TOLERANCE),
        f"modeled: DP = {design.pipelines} and {max(design.stage_cycles)} cycles a stage, as this time implies, so "
        f"{', '.join(map(str, design.units))} units, make {rate:,.0f} at {design.clock_hz / 1e6:g} MHz "
        f"({rate / printed - 1:+.1%}): table and formula are consistent, nothing is predicted. They take "
        f"{resources(design).dsp} DSP. Within two SLRs DP = "
        f"{own.design.pipelines} with {max(own.design.stage_cycles)} cycles a stage takes {own.needed.dsp:,} and is "
        f"{faster:.0f} times faster",
        "consistent if a design with the printed DP, balanced for the cycles a stage that this rate implies, comes "
        f"within {TOLERANCE:.0%} of it, refuted if not: the units were chosen by the rate itself",
        f"of {RATES} rates within a factor of {ELSEWHERE:g}, {passing:.0%} would have passed",
    )


def _rates_that_pass(quoted: Quoted, printed: float) -> float:
    """Compute the share of other rates, log-uniform around the printed one, that a design made from them would meet."""
    name, passed = "seed3.table_vii.cartpole.gps_per_watt", 0
    batch, per_watt = int(quoted["seed3.table_vii.cartpole.batch"]), quoted[name]
    for place in range(RATES):
        factor = ELSEWHERE ** (2 * (place + 0.5) / RATES - 1)
        other = Quoted({**quoted.numbers, name: factor * per_watt}, quoted.notes)
        rate = 1 / ledger(learner_points.published(other), batch).seconds
        passed += abs(rate / (factor * printed) - 1) <= TOLERANCE
    return passed / RATES


def _hopper_throughput(quoted: Quoted) -> Claim:
    table = quoted.table("seed3_learner.table_v")
    batch, slower = int(table["hopper_batch"]), table["hopper_fpga_slower"]
    printed = learner_curves.rate(quoted, "seed3_learner.table_vii.hopper") / slower
    budget = learner_curves.printed_dsp(quoted, "ddpg")
    network = parse("hopper")
    best = learner_points.best(network, batch, budget)
    units = (budget.dsp or 0) // FP32.dsp
    most = units * best.design.clock_hz / (batch * sum(stage.gemm.macs for stage in stages(network)))
    return Claim(
        f"Hopper's learner on the FPGA (F-C-F) is {slower:g}x slower than G-F-G at B = {batch:,} (Table V).",
        adds_up_if(printed <= most),
        f"computed: with Table VII's rate for G-F-G it makes at least {printed:.1f} steps/s. {units} MAC units "
        f"at {best.design.clock_hz / 1e6:g} MHz, those of the printed {budget.dsp:,} DSP, make {most:.1f} if none is "
        f"ever idle, and {1 / learner_points.seconds(best, batch):.1f} in the best pipelines: "
        f"{printed / most - 1:+.0%} is more than there is, so one of the numbers is of another build, clock or network",
        "adds up if the printed DSP, never idle at that clock, make so many steps, refuted if they cannot",
        f"{EXACT}, an upper bound; the clock is that of the build notes",
    )


def _over_baselines(quoted: Quoted) -> Claim:
    """Judge Table V's largest gain by the time that it implies for the slowest mapping, next to another batch's."""
    design = learner_points.published(quoted)
    few, many = 32, 256  # the batches whose slowest mapping is G-G-G
    gains = [quoted[f"seed3_mapping.table_v.cartpole_ddpg.{batch}.G-G-G"] for batch in (few, many)]
    own = [ledger(design, batch).seconds for batch in (few, many)]
    times = [gain * seconds for gain, seconds in zip(gains, own, strict=True)]
    grown, least, most = times[1] / times[0], 1 - TOLERANCE, many / few
    others = [grown * ELSEWHERE ** (2 * (place + 0.5) / RATES - 1) for place in range(RATES)]
    return Claim(
        f"The mapping found trains up to {gains[0]:g} times faster than a baseline mapping (VII-D, Table V).",
        consistent_if(least <= grown <= most),
        f"computed: CartPole's F-F-F takes {1e6 * own[0]:.2f} us at B = {few} and {1e6 * own[1]:.2f} at {many} by the "
        f"design that Table VII's rate implies, so that G-G-G takes {1e3 * times[0]:.2f} ms and, {gains[1]:g} times "
        f"slower, {1e3 * times[1]:.2f}: {grown:.2f} times as long for {most:g} times the batch, as where a GPU waits "
        "for launches. Neither was timed here",
        f"consistent if G-G-G's time grows by no more than the batch and falls by {TOLERANCE:.0%} at most, refuted "
        "otherwise: the design is chosen by the rate of another batch",
        f"of {RATES} gains within a factor of {ELSEWHERE:g}, "
        f"{sum(least <= other <= most for other in others) / RATES:.0%} would have passed",
    )


def _per_watt(quoted: Quoted) -> Claim:
    """Judge the largest gain in gradient steps per joule, and tell it with the watts of platform ``u200``."""
    rllib, cartpole = quoted.table("seed3_learner.table_vii_rllib"), quoted.table("seed3.table_vii.cartpole")
    own = {name: quoted[f"seed3_learner.table_vii.{name}.gps_per_watt"] for name in ("pong", "hopper")}
    own["cartpole"] = cartpole["gps_per_watt"]
    gains = {name: rate / rllib[name] for name, rate in own.items()}
    drawn = {one.name: one.power_watts.value for one in load_platform("u200").devices if one.power_watts}
    watts = [drawn["cpu"] + drawn["fpga"], drawn["cpu"]]
    faster = own["cartpole"] * cartpole["watts"] / (rllib["cartpole"] * rllib["cartpole_watts"])
    said = "; ".join(f"{name} {own[name]:g} / {rllib[name]:g} = {gain:.2f}" for name, gain in gains.items())
    return Claim(
        f"Up to {rllib['most_gain']:g} times as many gradient steps per watt are made as by RLlib (VII-E, Table VII).",
        adds_up_if(round(max(gains.values()), 1) == rllib["most_gain"]),
        f"arithmetic: {said}. CartPole's {faster:.2f} times the rate takes {cartpole['watts']:g} W with the FPGA and "
        f"{rllib['cartpole_watts']:g} without; modeled by the limits of platform u200 these are {watts[0]:g} and "
        f"{watts[1]:g}, which leaves a gain of {faster * watts[1] / watts[0]:.1f}. Energy was not measured: nothing "
        "that counts it can be read here",
        "of the printed rates alone: adds up if the largest of their ratios rounds to the number, refuted otherwise",
        EXACT,
    )
