"""The sentences of answers, by the kind of a note or of a row: the only texts that ``dse`` prints beside tables.

Fields are values by name. ``{n:batch}`` writes a number with its noun, ``{t:us}`` a time, ``{s:share}`` a percentage,
``{words:list}`` words joined by commas, ``{ratio:pace}`` how much slower or faster something is, and
``{estimate:range}`` a row's number as a range with its source.
"""

FROM = (
    "Answered from {of:list} of machine {machine} ({cpu}, {cores:core}), the nearest there is, because this machine, "
    "{here_key} ({here_cpu}, {here_cores:core}), has no {lacks:list} of its own. That machine differs in "
    "{differs:unlike}."
)
SENTENCES = {
    # Every answer.
    "more": "Tables, notes and what this rests on: --verbose; as data: --json.",
    "other_machine": "these times are of machine {machine}, the most similar with such records; recommend --verbose "
    "says how it differs",
    "answered_from": f"{FROM} To be sure, {{how:then}}.",
    "answered_from_old": f"{FROM} Its records do not tell its {{untold:facts}}. To be sure, {{how:then}}.",
    "evidence": "Evidence for {evidence}: {source}, {told}.",
    "primitives": "How fast each device of {platform} samples and updates priorities (RMM) and learns {workload} "
    "(B = {batch}), each alone there, so that a learner may take all slices of an FPGA; below, what each part takes by "
    "its fastest option. Updating includes the insertion of new records; of actors, it is an environment step.",
    "assumed": "{evidence} assumes {value} {unit} for {device}.{key}, which is not stated.",
    "not_stated": "{device}.{key} is not stated; the model takes {value} {unit} for it.",
    # What a profile lacks, and times of your own that no question uses.
    "profile_is_unfinished": "only {measured} of {cells:cell} of the profile are measured; run the same command again "
    "to finish: {how}",
    "profile_was_disturbed": "{disturbed} of {records:record} of the profile were made under load (up to {load}), so "
    "times may be too long and their intervals too narrow; measure again when others have ended: {how}",
    "time_of_no_device": "{place}: {times:time} of {device} not used: {device} is no device of {platform}{near}",
    "time_of_excluded": "{place}: {times:time} of {device} not used: {device} is excluded",
    "link_to_itself": "{place}: {time} is not used: the link leads from a device to itself",
    "actors_elsewhere": "{place}: {time} is not used: environments step on {device}",
    "more_than_cores": "{place}: {time} is not used: {device} has {cores:core}",
    "threads_elsewhere": "{place}: {time} is not used: threads are of a processor, and {device} is a {kind_of_device}",
    "too_few_devices": "{place}: {time} is not used: the number of devices like {device} is {devices}",
    "beside_itself": "{place}: {time} is not used: a part does not run concurrently with itself",
    "not_alone": "{place}: {time} is not used: state the time of {part} on {device} without {beside} too",
    # How many cores.
    "split_cores": "Give {actors:core} to actors and {learners:core} to learners: {estimate:range}.",
    "take_turns": "Let actors and learners take turns on {cores:core}: {estimate:range}.",
    "other_split": "Next best: {actors:core} to actors and {learners:core} to learners, {pace:pace}.",
    "other_turns": "Next best: actors and learners take turns on {cores:core}, {pace:pace}.",
    "turns_are_faster": "Taking turns on the same {cores:core} would make {estimate:range}, more than any split.",
    "bound_by_actors": "Actors limit the rate: for each gradient step they make {spare} environment steps, and the "
    "workload needs {wanted}.",
    "bound_by_learners": "Learners limit the rate: for each gradient step the actors could make {spare} environment "
    "steps, and the workload needs {wanted}.",
    "bound_by_neither": "Both sides are equally fast.",
    "bound_by_both_serially": "Each side waits for the other.",
    "fewest_cores": "Of splits within 1 % of the fastest, the answer has the fewest cores.",
    "tied_split": "{actors:core} for actors and {learners} for learners may be as fast.",
    "eq_5": "Eq. 5 of [Zhang2021] as printed, with both sides within {equal_share:share}, has {pairs:solution}; the "
    "fastest gives {actors:core} to actors and {learners:core} to learners and makes {hz} gradient steps/s.",
    "cores_beyond": "the machine has {cores:core}; rates on more are extrapolated",
    "time_on_cores": "Measure the {side} on {cores:core} first: on {on:core} they may make {low} to {high} steps/s.",
    # How many batches ahead.
    "sample_ahead": "Sample {depth:batch} ahead: {estimate:range}.",
    "sample_none_ahead": "Sample no batch ahead: {estimate:range}.",
    "busiest_engine": "Without actors, the slowest part is {engine}: {seconds:us} of the {round_seconds:us} that a "
    "batch takes.",
    "takes_turns": "One engine does one part after the other, so sampling ahead gains nothing.",
    "loss_of_none_ahead": "Without sampling ahead, these parts would lose {loss:share} of their rate (formula).",
    "workload_samples_ahead": "The workload's file asks for {presampled:batch} ahead (presampled).",
    "enough_if_exact": "In a simulation with exact times, {depth:batch} ahead reaches the most within "
    "{within_share:share}.",
    "enough": "In a simulation with times that vary (deviation / mean = {cv}), {depth:batch} ahead reaches the most "
    "within {within_share:share}.",
    "never_enough": "In a simulation with times that vary (deviation / mean = {cv}), no number tried reaches the most "
    "within {within_share:share}.",
    "queues_have_room": "No queue is ever full with {room:list} batches ahead (simulated).",
    "depth_is_sure": "The formula gives {least:batch} for all times within their ranges.",
    "depth_is_between": "The formula gives {least} to {most:batch} for times within their ranges.",
    "actors_are_apart": "Actors, and what they send and fetch, take no part in the simulated loop; the first line has "
    "the rate with them.",
    "stale_priorities": "A batch is sampled by priorities that are as many gradient steps old as batches are sampled "
    "ahead. [Zhang2023] prints no loss of reward at 50 ahead, and a loss at 200 on Hopper (quoted, Fig. 10).",
    # How many samplers, which batch.
    "take_samplers": "Take {samplers:sampler} and train on batches of {batch}: {estimate:range}.",
    "fastest_pair": "Most records: {samplers:sampler} and batches of {batch}, {estimate:range}; the answer is the "
    "smallest batch near that.",
    "searching_apart": "The published search, samplers first and then the batch, ends at {samplers:sampler} and "
    "batches of {batch}: {loss:share} fewer records/s than the best of all {pairs:pair}.",
    "search_found": "The search of {search} tried {looks} of {values:value}; {best} was fastest.",
    "over_memory": "Larger values of {search} exceed the cap on memory.",
    "over_processor": "Larger values of {search} exceed the cap on the processor.",
    "not_one_peak": "The rates of {search} have more than one peak: {seen}.",
    "still_rising": "The rate of {search} still rises at {best}, the largest value tried.",
    "design_is_fixed": "{device} takes no part: its design is built for one batch.",
    "waits_are_not_counted": "Rates are upper bounds: waiting between parts is not counted.",
    "shares_of_the_most": "Records per second, as a share of the most: {shares:shares}.",
    # How many learners.
    "one_learner": "Stay with one learner ({by} on {device}): {estimate:range}.",
    "more_learners": "Take {learners:learner} ({by} on {device}) that average weights every {horizon:step}: "
    "{estimate:range}, instead of {single_hz} with one.",
    "other_learners": "{learners:learner} that average weights every {horizon:step} would make {estimate:range}.",
    "second_learner": "A second learner is {worth} worth it: {faster} times the gradient steps/s if the two average "
    "weights every {horizon:step}, {gathering_faster} times if they add up gradients at each step.",
    "learners_run_next_to": "Each learner ({by}) and each actor is a process of its own: {actors:actor}, on "
    "{cores:core} in all.",
    "formulas_alone": "Fanout does not run several learners on {device}: their times are from formulas alone.",
    "one_device_there": "The platform has one {device}; for each further learner another is assumed.",
    # Which tree.
    "use_tree": "Use {tree:tree}: {estimate:range} per step, {each_seconds:ns} per element.",
    "default_tree": "Use {tree:tree}, the default, for no other tree is surely faster: {estimate:range} per step.",
    "use_tree_on": "Use {tree:tree} on the {device} of {platform}: {estimate:range} per step, {each_seconds:ns} per "
    "element.",
    "tree_steps": "A step samples {batch} of {capacity} {dtype} leaves and makes {updates_per_sample:update} and "
    "{inserts:insert} per sample.",
    "tied_tree": "Maybe as fast: {tree:tree}, {pace:pace}.",
    "next_tree": "Next best: {tree:tree}, {pace:pace}.",
    "equal_tree": "Equally fast: {tree:tree}.",
    "undecided_tree": "Not told apart: {tree:tree}, {pace:pace}.",
    "fastest_modeled_tree": "By the model {tree:tree} on the {device} is the fastest, {estimate:range}; the answer "
    "takes fewer devices and threads.",
    "best_on_device": "Best on the {device}: {tree:tree}, {estimate:range}.",
    "batch_beyond_training": "a batch of {batch} is beyond what any training takes: at most {most} in a workload",
    "batch_of_most_leaves": "a batch of {batch} samples most of the {capacity} leaves more than once",
    "threads_never_measured": "{threads} threads are allowed, and more than {most} were never measured",
    "more_threads_than_cores": "{threads} threads are allowed, and {platform} has {cores:core}.",
    "outside_of_measured": "the question lies outside what was measured, by a factor of {outside} in N or B, so the "
    "range is wide",
    "input_is_unchecked": "this tree does not check its input (validate=False); pass contiguous int64 and float64 "
    "arrays within range",
    "batches_are_moved": "{name} takes and leaves its batches on {device}; moving a batch takes {moved:moves}.",
    "batches_are_elsewhere": "{name} takes and leaves its batches on {device}; moving them takes more.",
    "tree_is_untimed": "{name} has no times here: {reason}",
    "race_was_disturbed": "others had {busy_share:share} of the processor while the winner was timed; --again times "
    "it anew",
    "modeled_by": "The model: {told}.",
    "tree_is_modeled": "Modeled from the numbers of {platform}; nothing was timed there.",
    "race_to_decide": "This rests on earlier measurements; to time the trees here and now, ask without --no-race and "
    "--machine.",
    "raced_here": "Raced here: {raced:candidate} in {seconds:s}, {caches} caches; differences within "
    "{zone_share:share} count as equal.",
    "race_undecided": "The race ended before all were told apart ({ending}); --seconds gives more.",
    "faster_but_drifts": "{tree:tree} is faster, but its sums drift; the choice takes {pace} times as long; add "
    "--allow-drift to take it.",
    "race_is_kept": "The race is kept in {results}; --again races anew. Records of machine {prior} excluded "
    "{excluded:candidate}.",
    "race_is_not_kept": "The race is not kept.",
    "rests_on_cells": "Rests on {cells:cell} of machine {machine}; the same cell measured twice differs by up to "
    "{noise_share:share} in a run, between runs by {common_share:share} for all together and {own_share:share} "
    "for each.",
    # Which mapping.
    "train": "Train {workload} (B = {batch}) on {platform}, {arrangement:arranged}: {where:where}; {estimate:range}.",
    "train_over_nodes": "Train {workload} (B = {batch}) over {actor_nodes:node} of kind {kind_of_node}, "
    "{actors:actor} on each, {batches_a_call:batch} a call: {estimate:range}.",
    "one_machine": "One machine: {where:where}; {estimate:range}.",
    "bound_by_calling": "The process that learns limits the rate: more nodes gain nothing.",
    "bound_by_actors_of_nodes": "Actors limit the rate, on {nodes:node}.",
    "bound_by_node": "Nodes limit the rate, by the time that they take to answer a call.",
    "bound_by_network": "The network limits the rate, by what it carries.",
    "one_machine_is_enough": "One machine is enough: with {alone_actors:actor} it makes {alone_hz} gradient steps/s, "
    "and {nodes:node} would make {nodes_hz}. Nodes pay once an environment step takes about {break_even_seconds:us}; "
    "here it takes {env_seconds:us}.",
    "nodes_never_pay": "One machine is enough: with {alone_actors:actor} it makes {alone_hz} gradient steps/s, and "
    "{nodes:node} would make {nodes_hz}; all nodes together have no more cores for actors than this machine.",
    "nodes_pay": "Nodes pay: one machine makes {alone_hz} gradient steps/s with {alone_actors:actor}. They do from "
    "about {break_even_seconds:us} an environment step on; here it takes {env_seconds:us}.",
    "nodes_are_faster": "Nodes pay, though not for their actors: one machine makes {alone_hz} gradient steps/s with "
    "{alone_actors:actor}.",
    "nodes_hold_it": "One machine does not hold it.",
    "bound_by_part": "Slowest part: {parts:list} on {devices:list}.",
    "bound_by_parts": "The {device} limits the rate: it does {parts:list}, one after the other.",
    "bound_by_engine": "Slowest part: {engine}.",
    "bound_by_batches": "The learner waits for batches, with {depth:batch} sampled ahead.",
    "tied": "Maybe as good: {differs:differs} (expected {pace:worth}); of choices that are so close the answer has the "
    "fewest devices and cores.",
    "next_best": "Next best: {differs:differs}, {pace:worth}.",
    "decides_if_longer": "Another choice ({differs:differs}) would be {gain:share} better, but only if the {time_of} "
    "on {on} took {times:about} times as long as predicted.",
    "decides_if_shorter": "Another choice ({differs:differs}) would be {gain:share} better, but only if the {time_of} "
    "on {on} were {times:about} times faster than predicted.",
    "nothing_decides": "The choice is the same for each time anywhere within its range.",
    "more_are_tied": "{more:other choice} may be as good and are not listed.",
    "measure_to_decide": "To decide, measure the time of {of:list}: {how}",
    "measure_to_be_sure": "To be sure, measure the time of {of:list}: {how}",
    "measure_there": "To be surer of the time of {of:list}, run on the machine itself: {how}",
    "state_time": "Nothing here measures the time of {of:list}. If you know it, state it in a file for --times, such "
    "as this prints: python -m dse times --example",
    "measure_here": "To be surer of the rate, measure the time of {of:list} on this machine: {how}",
    "run_what_ties": "To decide, run it: {how}",
    "run_has_tree_at": "this rate needs the tree on the {device}, and Fanout's training keeps it on the {home} alone",
    "run_has_records_at": "this rate needs the records on the {device}, and Fanout's training keeps them on the {home} "
    "that acts",
    "tree_is_not_stated": "nothing runs this: the tree's implementation is not stated",
    "run_has_plain_tree": "the tree of a training run has one thread and no options",
    "run_shares_tree": "processes share the tree {shared} alone, not {contestant}",
    "run_has_one_device": "the learner of a training run is on one device",
    "run_has_whole_learner": "the learner of a training run has all layers on one device",
    "run_has_no_fpga": "Fanout models this design and cannot run it: the learner is on {device}",
    "learners_share_weights_at": "several learners share weights on the {home} alone, not on the {device}",
    "one_process_one_learner": "a training run in one process has one learner",
    "predicted_alone": "This is a prediction; to run the best candidates and compare them: {how}",
    "raced_runs": "Raced for {seconds:s} here: {ending}.",
    "not_raced": "Not raced: {ending}.",
    "race_kept_since": "The race is kept since {utc}; --again races anew.",
    "is_busy": "{load}: what is raced and measured is slower for it",
    "predicted_rate": "predicted: {predicted_hz} gradient steps/s ({low} to {high})",
    "predicted_rate_alone": "predicted: {predicted_hz} gradient steps/s",
    "raced_rate": "raced: {raced_hz} gradient steps/s ({raced_low_hz} to {raced_high_hz} in 95 % of its turns)",
    "ended_too_early": "measured: {updates:gradient step} in {steps:environment step}: the run ended before it had "
    "settled; give it more --seconds or --steps",
    "measured_rate": "measured: {hz} gradient steps/s ({updates:gradient step} in {seconds:s}), {pace} times the "
    "predicted",
    "measured_inside": "measured: {hz} gradient steps/s ({updates:gradient step} in {seconds:s}), {pace} times the "
    "predicted, within its range",
    "measured_outside": "measured: {hz} gradient steps/s ({updates:gradient step} in {seconds:s}), {pace} times the "
    "predicted, outside its range",
    "cores_were_shared": "The run had {percent} % of a core's time; load average {average} on {cores:core}.",
    "does_not_fit": "{workload} does not fit {platform}.",
    "repairs": "Each of these would be enough by itself:",
    "short_of": "{budget} are too few: there are {have}, the workload needs {need}.",
    "short_of_bytes": "{budget} is too small: it has {have:bytes}, the workload needs {need:bytes}.",
    "and_short_of": "and with it {budget}: have {have}, need {need}",
    "and_short_of_bytes": "and with it {budget}: have {have:bytes}, need {need:bytes}",
    "no_link": "No chain of links from {source} to {target}.",
    # What the rate of a mapping counts.
    "profile_differs": "the profile is of {workload} with other {differs:list}; what depends on these was interpolated "
    "or modeled",
    "slowdown": "Under load from other cores {part} on {device} takes {factor} times as long; this is counted.",
    "slowdown_of_other": "Under load from other cores {part} on {device} takes {factor} times as long, as timed with "
    "{timed_with}; this is counted.",
    "slowdown_quoted": "The tree on {device} slows {part} down {factor} times [Zhang2023, quoted].",
    "no_records": "No records of {platform}: each time is modeled, quoted, or from another machine.",
    "no_profile": "no profile of {workload}; {how}",
    "depth_gains_nothing": "Sampling {depth:batch} ahead gains nothing where everything takes turns.",
    "layers_are_split": "Layers lie on {layers:list}, in this order: a gradient step takes {split_seconds:us}, and by "
    "one learner {whole_seconds:us} on {device}.",
    "layers_are_whole": "The learner stays on one device: a gradient step takes {whole_seconds:us} on {device}, and by "
    "the fastest split of its layers, on {layers:list} in this order, {split_seconds:us}.",
    "layers_are_not_split": "No layers are split: that takes two devices that are no FPGA and linked, the execution "
    "mode pipelined, and one learner of torch that no --fix puts on a device.",
    "nothing_overlaps": "The workload samples no batch ahead, so nothing overlaps; --free presampled lifts that.",
    "whole_loop": "The complete loop measured {ratio} times the sum of its parts; the rate is the loop's.",
    "actors_have_processes": "Each of the workload's {actors:actor} has a process; --fix actor_count= takes others.",
    "tree_is_parted": "sampling and updating are on two devices: how sums travel between them is our model alone",
    "several_environments": "each actor steps {environments:environment} at once by the same weights; another number "
    "changes learning slightly",
    "watts_are_limits": "Watts are the limits of whole devices in use.",
    "rate_is_bound": "The rate is an upper bound: with D batches ahead, waiting takes at most {too_high:shares}.",
    "one_processor_tried": "Actors were tried on {cpu} alone, not on {others:list}.",
    "no_slowdowns": "How parts that share {cpu} slow each other down is not counted: no profile tells.",
    "no_slowdown": "How {other} slows {part} down on {cpu} is not counted: no profile tells.",
    "fixed_for_processor": "{key}={value} is for the processor's options, and {part} is on {device}",
    "batch_at_knee": "B = {batch} is the smallest that trains {least_share:share} of the most records per {unit}: "
    "{shares:shares}.",
    "batch_still_rising": "Records per {unit} still rise at the largest batch that fits, {largest}, so the "
    "workload's B = {batch} stays.",
    "batch_still_rising_measured": "Records per {unit} still rise at the largest batch measured, {largest}, so "
    "the workload's B = {batch} stays.",
    "worth_of_records": "A larger batch may need more records to learn as much; this is not in the model.",
    "tried_in_hardware": "Trees in hardware were tried with K = {fanouts:list}; with banks: {banks:list}; with bits "
    "of a leaf: {leaf_bits:list}.",
    "tried_depths": "Batches sampled ahead that were tried: {depths:list}.",
    # The front of rate, watts and bytes.
    "front": "Each row is a mapping of {workload} (B = {batch}) on {platform} that none of {configurations} beats in "
    "expected rate, watts or bytes over links without losing in another of these.",
    "front_of_rate": "Each row is a mapping of {workload} (B = {batch}) on {platform} that none of {configurations} "
    "beats in expected rate or bytes over links without losing in the other.",
    "front_has_no_watts": "The watts of {devices:list} are not stated, so rows are of rate and bytes alone.",
    "answer_is_off_front": "The answer, {rate:range}, is none of these: a row beats it by less than counts, and the "
    "answer takes fewer devices, cores or batches ahead; --epsilon 0 takes the highest rate.",
    "ask_for_row": "To ask for a row, add its last column to the question.",
    # Why another mapping loses.
    "loses": "{described:settings} is {loss:share} worse than the best choice, which makes {estimate:range}.",
    "ties_within_epsilon": "{described:settings} is as good as the best within {epsilon:share}: {estimate:range}.",
    "ties_unsure": "{described:settings} may be {gain:share} better, within what is known, than the answer, which "
    "takes fewer devices and cores: {estimate:range}.",
    "as_described": "As described: {where:where}; {rate:range}.",
    "takes_more_watts": "Its devices may take {watts} W, those of the best {best_watts} W.",
    "steps_in_flight": "A batch under way takes {seconds:us} a step, {best_seconds:us} in the best.",
    "busy_longer": "{engine} is busy for {seconds:us} of a gradient step, {best_seconds:us} in the best.",
    "busy_alone": "{engine} is busy for {seconds:us} of a gradient step; the best does without it.",
    "sending_takes": "Sending {sent} takes {seconds:us} of that.",
    "part_takes": "Its {part} takes {time:range} on {device} ({choice}); that of the best takes {best_time:range} on "
    "{best_device} ({best_choice}).",
    "may_be_no_worse": "The chance that the described choice is at least as good is {chance:share}.",
    "moves_too": "This setting also moves {parts:list} from {from} to {to}.",
    # What a changed machine changes.
    "fits_now": "With {changes:list}, {workload} fits {platform}: {estimate:range}.",
    "changes_nothing": "With {changes:list}, nothing in this answer changes: {estimate:range}.",
    "changes_rate": "With {changes:list}, the best choice is {pace:worth}: {estimate:range}, instead of {before}.",
    "changes_no_rate": "With {changes:list}, the best choice is {pace:worth}, which counts as equal: {estimate:range}.",
    "records_decide": "Measured records decide, and they are of the machine as it is.",
    # Designs for an FPGA.
    "design": "Take a learner with {pipelines:pipeline} and {mac_units} multipliers (MAC units), and a {memory} replay "
    "tree with K = {fanout}: {estimate:range}.",
    "bound_by_learner": "The learner limits the rate; its slowest stage is {slowest_stage} (FW forward, BW backward, "
    "with the number of the layer).",
    "bound_by_reading": "The learner limits the rate: its stages wait for weights from the card's memory.",
    "bound_by_rmm": "The replay tree limits the rate.",
    "streams_weights": "Weights that do not fit on the chip are read from the card's memory ({gb_per_s} GB/s, "
    "{origin}), for {samples:sample} at a time: {names:list}.",
    "nearly_full": "The design takes more than {share:share} of a resource; its clock is assumed, not that of a "
    "placed design.",
    "tree_in_turn": "The tree samples and updates in turn, in {cycles} cycles; at once, no step would be shorter.",
    "tree_at_once": "The tree samples and updates at once ({ports} memories), in {cycles} cycles; with the best in "
    "turn, of {in_turn} cycles, the design is {pace:pace}.",
    "tree_at_once_alone": "The tree samples and updates at once ({ports} memories), in {cycles} cycles; in turn "
    "none fits.",
    "other_pipelines": "Next best: {pipelines:pipeline} with {dsp} DSP blocks, {pace:pace}.",
    "greedy": "The greedy search of [Zhang2023] takes {pipelines:pipeline} with {dsp} DSP blocks and is {pace:pace}.",
    "greedy_does_not_fit": "The greedy search of [Zhang2023] finds no design: {reason}.",
    "no_other_pipelines": "No other number of pipelines fits.",
    "placed": "clock of {trees} trees of {leaves:list} leaves in {banks:list} banks, placed on an ECP5, a slower FPGA, "
    "where dual memories are copies: {low} to {high} MHz, modeled by nextpnr; of wide trees with K = {wide:list}: "
    "{wide_mhz:list} MHz",
    "basis": "{what}: {basis}, {source}",
}
"""What is said, by kind."""
ARRANGED = {"serial": "in one process", "apart": "actors in their own processes", "pipelined": "all parts at once"}
"""Execution modes, in a sentence."""
FACTS = {"cpu": "name of the processor", "vector_sets": "vector instructions"}
COUNTED = ("cores", "GPUs")  # facts that are whole numbers; of other numbers, of caches, each is in bytes
"""Facts of a machine whose key is no plain English."""
NO_DIFFERENCE = "nothing that both tell"
HEADS = {
    # Trees.
    "each_seconds": "us per element",
    "median_seconds": "median us",
    "transfer_seconds": "us to move batches",
    "pace": "rate / answer's",
    "distance": "log distance to cells",
    "own_sigma": "log deviation",
    "op": "call",
    # Mappings.
    "engine": "runs on",
    "charged_seconds": "us per step",
    "sent": "transfer",
    "by": "done by",
    "tried_for": "tried for",
    "options": "options",
    "simulated_with_deviation": "simulated; times' deviation / mean",
    "differs": "other mapping",
    "arrangement": "execution mode",
    "chance": "chance to be as good",
    "is_tied": "may be as fast",
    "time_of": "if the time of",
    "factor": "factor",
    "bytes": "bytes per step",
    "is_answer": "answer",
    "ask_by": "to ask for it",
    "times": "off by times",
    "value": "answer: gradient steps/s",
    "gain": "other is faster by",
    "rate_hz": "gradient steps/s",
    "low_hz": "from",
    "high_hz": "to",
    "rate_unit": "rate of",
    "seconds": "us",
    "step_of": "step of",
    # How many.
    "feed_hz": "actors: steps supplied/s",
    "take_hz": "learners: steps used/s",
    "in_turns": "take turns",
    "bottleneck": "slower side",
    "idle": "idle cores",
    "depth": "batches ahead",
    "cv": "deviation / mean",
    "full": "waited for room",
    "room": "room for",
    "bound_hz": "formula: steps/s",
    "loss": "below the formula's most",
    "horizon": "weights averaged every",
    "as_run": "efficiency in a run",
    "alone": "efficiency alone",
    "exact": "by exact formula",
    "printed": "by printed formula",
    "cores_are_shared": "cores shared",
    "acting_hz": "environment steps/s",
    "single_hz": "one learner: steps/s",
    "single_seconds": "one learner: us",
    "fixed_seconds": "fixed us",
    "per": "element",
    "rmm_rate": "RMM: records/s",
    "learner_rate": "learner: records/s",
    # Designs for an FPGA.
    "actor_nodes": "nodes",
    "batches_a_call": "batches a call",
    "learner_hz": "learner: steps/s",
    "actors_hz": "actors: steps/s",
    "node_hz": "answers: steps/s",
    "network_hz": "network: steps/s",
    "price_of_a_million": "price of a million steps",
    "front_cycles": "cycles per step",
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
