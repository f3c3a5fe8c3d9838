"""Tests that ``make test`` leaves to ``make test-slow``, beside those marked slow where they stand.

They are here because a case like each of them stays in ``make test``, which is to end within six minutes: a test takes
longer than its worth there where it compiles a tree for one more K, or asks the solver for one more platform.
Expressions match a test's whole name, parameters included.
"""

import re

NUMBA = r"numba(-.*)?"

LONG = {
    "advice": (
        r"test_advice_has_the_users_file_as_the_user_gave_it",
        r"test_answers_about_a_mapping\[(hopper_ddpg-.*|pong_dqn-(u200|edge))\]",
    ),
    "answers_as_text": (
        r"test_the_first_line_is_the_choice_in_one_sentence_and_the_second_can_be_pasted"
        r"\[(?!u200-cartpole_dqn|h200-pong_dqn|edge-(pong_dqn|hopper_ddpg)|.*d7dae63b89.*-cartpole_ddpg"
        r"|.*8fb834d50a.*-cartpole_dqn).*",
        r"test_the_line_of_a_tree_makes_that_tree_and_so_do_its_files\[asked0\]",
        r"test_a_mapping_is_emitted_as_files_that_read_back_the_same\[system[124]\]",
    ),
    "any_question": (r"test_every_question_is_answered_or_refused_in_a_sentence\[[12]\]",),
    "beside": (r"test_modelled_platforms_have_trees_that_nothing_shares",),
    "contract": (
        r"test_integer_priorities_give_the_oracles_bits\[(7|8|64)-numba\]",
        rf"test_rounding_past_the_last_child\[{NUMBA}layout=plain.*",
        rf"test_an_emptied_tree_has_nothing_to_sample_whatever_its_root_says\[{NUMBA}layout=plain.*",
        rf"test_distinct_leaves_are_those_drawn_by_hand_and_the_tree_is_as_it_was\[float64-3-{NUMBA}\]",
        rf"test_odd_shapes\[(301-300|100-4611686018427387904|10-1000000000)-{NUMBA}\]",
        rf"test_(a_root_that_drifted_below_zero_still_has_its_positive_leaf|mass_zero_skips_a_zero_leaf)\[{NUMBA}=.*",
        r"test_odd_shapes\[((1|5)-2-numba|.*-cupy)-.*",
        r"test_(priorities_that_vanish_beside_others_are_drawn_once_those_are_gone|pickles_and_deep_copies_stand_alone)"
        r"\[numba-layout=plain.*",
        r"test_a_million_leaves\[python\]",
        r"test_(such_a_rest_stays_in_its_group_where_rows_are_wider_than_groups|draws_in_a_group_that_deltas_left_empty)"
        r"\[numba-.*layout=plain.*",
        r"test_priorities_that_vanish_beside_others_are_drawn_once_those_are_gone\[numba-threads=2.*",
        r"test_integer_priorities_give_the_oracles_bits\[(2|7|8|32|64)-cupy\]",
        r"test_state_goes_from_every_layout_to_another_shape_and_back\[.*-cupy-.*",
    ),
    "cuda_kernels": (  # one fault of a search, one of an update and one of what is shared stay
        r"test_a_mutant_is_caught\[(?!no guard past the last child|the first duplicate wins|a sum that nobody).*",
    ),
    "estimates": (r"test_a_gradient_step_is_what_recommend_takes_where_nothing_is_measured\[(edge|h200)-.*-256\]",),
    "explain": (
        r"test_parts_and_transfers_of_an_engine_are_all_that_keeps_it_busy\[fix1-(?!u200).*",
        r"test_a_cause_is_the_engine_that_bounds_the_asked_one\[(.*-hopper_ddpg-training|edge|.*hopper_sac).*",
    ),
    "fpga_rtl": (r"test_.*\[(wide|scan)-(2-.*|1-contiguous)\]", r"test_a_law_that_is_off_by_one_is_caught\[-1-.*"),
    "help": (r"test_the_example_is_answered\[python -m dse run\]",),
    "learning_command": (r"test_a_run_has_a_point_an_evaluation_and_ends_when_it_may",),
    "modeled_numbers": (
        r"test_a_modeled_answer_shows_factors_and_never_95_percent\[(h200|edge)\]",
        r"test_a_gpu_that_lacks_a_number_is_refused_with_the_key_to_add\[missing[03].*",
    ),
    "numba_tree": (r"test_processors_without_avx512\[x86-64.*",),
    "options": (
        r"test_free_depths_fit_wherever_a_fixed_one_does_and_are_no_worse"
        r"\[(?!u200-hopper_ddpg|edge-pong_dqn|h200-cartpole_dqn).*",
    ),
    "parallel_loop": (
        r"test_a_run_ends_with_every_gradient_step_that_is_due\[.*-changes[23]\]",
        r"test_killed_actors_begin_anew_and_no_step_is_lost\[apart.*",
        r"test_no_record_is_torn_or_lost\[apart.*",
        r"test_frame_stacks_and_priorities_of_actors_own",
    ),
    "profile": (
        r"test_a_profile_killed_at_any_moment_keeps_what_it_has_and_repeats_nothing",
        r"test_what_takes_too_long_is_tried_again_and_what_lies_behind_the_end_is_left",
    ),
    "random_walk": (
        r"test_walk\[numba-(?!100-3).*(1-2|100-3|1000-7|5000-64)-.*",
        r"test_walk\[numba-(?!\d).*-(2|17)-16-.*",
        rf"test_walk_on_float64_leaves\[{NUMBA}layout=plain.*",
    ),
    "readmes": (
        r"test_what_is_shown_of_the_records_is_what_they_give",  # which .ci/run asks for by itself
        r"test_a_command_runs_as_printed\[python -m impls.training cartpole_dqn --(learner torch|arrangement apart).*",
        r"test_a_command_runs_as_printed\[python -m dse (explain|what-if|adapt|learners|fpga .*front).*",
        r"test_a_command_runs_as_printed\[python -m dse recommend .*(per_watt|--exclude fpga).*",
        r"test_a_command_runs_as_printed\[python -m benchmarks (sweep|list --export).*",
    ),
    "replay_kills": (r"test_twenty_kills_at_random_moments\[(global|owner)\]",),
    "replay_races": (
        r"test_a_tiny_replay_that_sleeps_at_its_points_shows_no_fault\[(.*rwlock|stacked-(global|owner))\]",
        r"test_a_million_rows_show_no_fault\[(global|owner)-processes\]",
    ),
    "run": (r"test_it_goes_on_with_a_file_of_the_shipped_format_wherever_that_was_cut_off\[0\.3-.*",),
    "schedules": (r"test_kernels_take_the_steps_of_the_model\[rwlock\]",),
    "solver_answer": (
        r"test_fewer_threads_are_asked_about_where_they_run_today",
        r"test_fixing_what_was_chosen_changes_nothing_and_anything_else_never_helps",
        r"test_a_batch_that_is_free_is_the_smallest_near_the_saturated_rate\[question[12]\]",
        r"test_objectives_differ_as_they_say",
        r"test_more_of_anything_never_hurts\[(h200|u200-change6|edge-change8).*",
        r"test_an_explanation_never_compares_two_workloads",
        r"test_an_answer_adds_up\[hopper_sac-.*",
    ),
    "solver_command": (
        r"test_json_has_the_tree_under_sampling_and_under_updating\[(fix0-(?!results)|fix1-(?!u200)|fix2-(?!h200)).*",
    ),
    "solver_inputs": (
        r"test_what_an_answer_rests_on_is_as_sure_as_what_it_chose\[fix1\]",
        r"test_what_is_done_in_turns_waits_for_its_transfers\[(12-serial|0.5-apart)\]",
        r"test_a_learner_beside_a_tree_is_the_fastest_that_the_tree_leaves_room_for\[u200-cartpole_dqn\]",
    ),
    "solver_reports": (r"test_a_machine_that_was_not_probed_has_no_answer_but_the_seeds_platform_has\[made-up\]",),
    "solver_search": (r"test_small_blocks_change_nothing\[7\]",),
    "statements": (r"test_statements_about_a_shipped_platform_hold\[(ratio|per_watt|fewest_devices)\]",),
    "syncs": (r"test_phases_make_up_the_step\[(ddpg|sac)-dense\]",),
    "terminal": (r"test_a_reader_that_has_seen_enough_ends_it_in_silence\[benchmarks list\]",),
    "threads": (
        r"test_a_search_of_rows_in_the_middle_of_a_change_stays_inside_the_tree\[.*plain.*",
        r"test_a_leaf_that_moves_in_a_large_compiled_tree_is_in_one_place_for_every_call\[\{'(layout|fanout)'.*",
    ),
    "tree_queries": (
        rf"test_a_walk_with_a_minimum_kept\[{NUMBA}-100-3\]",
        r"test_the_minimum_(survives_draws_states_copies_and_rebuilding|follows_every_update)"
        r"\[(16-)?numba-.*layout=plain.*-minimum\]",
    ),
    "training": (r"test_a_run_whose_disk_is_full_is_resumed_bit_for_bit\[-7-episodes\.csv\]",),
    "transports": (
        r"test_a_run_hands_over_by_it_and_nothing_is_under_way_in_a_pause\[apart-.*",
        r"test_an_actor_killed_by_a_queue_ends_the_run_with_a_sentence_and_by_a_pipe_begins_anew",
    ),
}


def is_long(module: str, name: str) -> bool:
    """Tell whether a test of ``test_<module>.py`` is one of them."""
    return any(re.fullmatch(one, name) for one in LONG.get(module, ()))
