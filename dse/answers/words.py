"""The sentences of answers, by the kind of a note or of a row: the only texts that ``dse`` prints beside tables.

Fields are values by name. ``{n:batch}`` writes a number with its noun, ``{t:us}`` a time, ``{s:share}`` a percentage,
``{words:list}`` words joined by commas, ``{ratio:pace}`` how much slower or faster something is, and ``{estimate}`` a
row's number as a range with its source.
"""

SENTENCES = {
    # Every answer.
    "more": "Tables, notes and what this rests on: --verbose; as data: --json.",
    "said": "{text}",
    "other_machine": "from records of machine {machine}, the nearest there is; recommend --verbose says how it differs",
    "evidence": "rests on {evidence}: {source}, {told}",
    "assumed": "{evidence} assumes: {text}",
    # How many cores.
    "split_cores": "Give {actors:core} to actors and {learners:core} to learners: {estimate}.",
    "take_turns": "Let actors and learners take turns on {cores:core}: {estimate}.",
    "other_split": "Next best: {actors:core} to actors and {learners:core} to learners, {pace:pace}.",
    "other_turns": "Next best: actors and learners take turns on {cores:core}, {pace:pace}.",
    "turns_are_faster": "Taking turns on the same {cores:core} would make {estimate}, more than any split.",
    "bound_by_actors": "Actors limit the rate: alone they make {spare} environment steps per gradient step; the "
    "workload needs {wanted}.",
    "bound_by_learners": "Learners limit the rate: actors could make {spare} environment steps per gradient step; the "
    "workload needs {wanted}.",
    "bound_by_neither": "Both sides are equally fast.",
    "bound_by_both_serially": "Each side waits for the other.",
    "fewest_cores": "Of splits within 1 % of the fastest, the answer has the fewest cores.",
    "tied_split": "{actors:core} for actors and {learners} for learners may be as fast.",
    "eq_5": "Eq. 5 of [Zhang2021] as printed, with both sides within {equal_share:share}, has {pairs:solution}; the "
    "fastest is {actors} + {learners} with {hz} gradient steps/s.",
    "cores_beyond": "the machine has {cores:core}; rates on more are extrapolated",
    "time_on_cores": "Measure the {side} on {cores:core} first: on {on:core} the rate is {estimate}.",
    # How many batches ahead.
    "sample_ahead": "Sample {depth:batch} ahead: {estimate}.",
    "sample_none_ahead": "Sample no batch ahead: {estimate}.",
    "busiest_engine": "Slowest part: {engine}, busy for {seconds:us} of a round of {round_seconds:us}.",
    "takes_turns": "One engine does everything in turn, so sampling ahead gains nothing.",
    "loss_of_none_ahead": "Sampling none ahead loses {loss:share} of the rate (formula).",
    "workload_samples_ahead": "The workload samples {presampled} ahead.",
    "enough_if_exact": "Simulated with exact times, {depth} ahead is within {within_share:share} of the most.",
    "enough": "Simulated with times that vary (deviation {cv} of the mean), {depth} ahead is within "
    "{within_share:share} of the most.",
    "never_enough": "Simulated with a deviation of {cv} of the mean, no depth tried is within {within_share:share} of "
    "the most.",
    "depth_is_sure": "The formula gives {least} for any times within their ranges.",
    "depth_is_between": "The formula gives {least} to {most} for times within their ranges.",
    "stale_priorities": "A batch is sampled by priorities that are as many gradient steps old as batches are sampled "
    "ahead. [Zhang2023] prints no loss of reward at 50 ahead, and a loss at 200 on Hopper (quoted, Fig. 10).",
    # How many samplers, which batch.
    "take_samplers": "Take {samplers:sampler} and batches of {batch}: {estimate} trained.",
    "fastest_pair": "Most records: {samplers:sampler} and batches of {batch}, {estimate}.",
    "searched_apart": "Searched apart, as published: {samplers:sampler} and batches of {batch}, {estimate}.",
    "searching_apart": "Searching samplers and batch apart, as published, loses {loss:share} against all {pairs:pair}.",
    "search_found": "The search of {search} tried {looks} of {values:value}; {best} was fastest.",
    "over_memory": "Larger values of {search} are over the cap on memory.",
    "over_processor": "Larger values of {search} are over the cap on the processor.",
    "not_one_peak": "The rates of {search} have more than one peak: {seen}.",
    "still_rising": "The rate of {search} still rises at {best}, the largest value tried.",
    "design_is_fixed": "{device} takes no part: its design is built for one batch.",
    "waits_are_not_counted": "Rates are upper bounds: waiting between parts is not counted.",
    "shares_of_the_most": "Batches are weighed by the share of the most records per second that they train.",
    # How many learners.
    "one_learner": "Stay with one learner: {estimate}.",
    "more_learners": "Take {learners:learner} that average weights every {horizon:step}: {estimate}, instead of "
    "{single_hz} with one.",
    "other_learners": "{learners:learner} that average weights every {horizon:step} would make {estimate}.",
    "second_learner": "A second learner is {worth} worth it: {faster} times the gradient steps if weights are averaged "
    "every {horizon:step}, {gathering_faster} times if gradients are gathered at each.",
    "learners_run_next_to": "Learners ({by}) are processes next to {actors:actor} on {cores:core}.",
    "formulas_alone": "Learners on {device} are by the formulas alone; nothing here runs them.",
    "one_device_there": "The platform has one {device}; more of them are counted as if bought.",
    # Designs for an FPGA.
    "design": "Take a learner of {pipelines:pipeline} of {mac_units} MAC units, a {memory} replay tree of K = "
    "{fanout}: {estimate}.",
    "bound_by_learner": "The learner limits the rate; its slowest stage is {slowest_stage}.",
    "bound_by_rmm": "The replay tree limits the rate.",
    "nearly_full": "More than {share:share} of a resource is taken; whether that meets the clock is not modeled.",
    "other_pipelines": "Next best: {pipelines:pipeline}, {dsp} DSP, {pace:pace}.",
    "greedy": "The greedy search of [Zhang2023] takes {pipelines:pipeline}, {dsp} DSP, and is {pace:pace}.",
    "greedy_does_not_fit": "The greedy search of [Zhang2023] finds none: {reason}",
    "no_other_pipelines": "No other number of pipelines fits.",
    "basis": "{what}: {basis}, {source}",
}
"""What is said, by kind."""
HEADS = {
    "in_turns": "take turns",
    "bound_hz": "formula/s",
    "seconds": "us",
    "fixed_seconds": "fixed us",
    "each_seconds": "us each",
    "horizon": "averaged every",
    "cv": "deviation",
    "lut": "LUT",
    "dsp": "DSP",
    "lut_share": "LUT",
    "ff_share": "FF",
    "dsp_share": "DSP",
    "bram36_share": "BRAM36",
    "uram_share": "URAM",
    "sram_kb": "SRAM KB",
}
"""Heads of columns whose key is no plain English."""
