"""Tests that ``make test`` leaves to ``make test-slow``, beside those marked slow where they stand.

They are here because a case like each of them stays in ``make test``, which is to end within six minutes: a test takes
longer than its worth there where it compiles a tree for one more K, or asks the solver for one more platform.
Expressions match a test's whole name, parameters included.
"""

import re

NUMBA = r"numba(-.*)?"

LONG = {
    "advice": (r"test_advice_has_the_users_file_as_the_user_gave_it", r"test_answers_about_a_mapping\[hopper_ddpg-.*"),
    "answers_as_text": (
        r"test_the_first_line_is_the_choice_in_one_sentence_and_the_second_can_be_pasted\[u200-(?!cartpole_dqn).*",
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
        r"test_a_million_leaves\[python\]",
    ),
    "learning_command": (r"test_a_run_has_a_point_an_evaluation_and_ends_when_it_may",),
    "numba_tree": (r"test_processors_without_avx512\[x86-64.*",),
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
        r"test_walk\[numba-(?!1000-7).*(1-2|100-3|1000-7|5000-64)-.*",
        rf"test_walk_on_float64_leaves\[{NUMBA}layout=plain.*",
    ),
    "readmes": (
        r"test_what_is_shown_of_the_records_is_what_they_give",  # which .ci/run asks for by itself
        r"test_a_command_runs_as_printed\[python -m impls.training cartpole_dqn --(learner torch|arrangement apart).*",
    ),
    "solver_answer": (
        r"test_fewer_threads_are_asked_about_where_they_run_today",
        r"test_fixing_what_was_chosen_changes_nothing_and_anything_else_never_helps",
        r"test_a_batch_that_is_free_is_the_smallest_near_the_saturated_rate\[question[12]\]",
        r"test_objectives_differ_as_they_say",
        r"test_more_of_anything_never_hurts\[(h200|u200-change6).*",
        r"test_an_explanation_never_compares_two_workloads",
        r"test_an_answer_adds_up\[hopper_sac-.*",
    ),
    "statements": (r"test_statements_about_a_shipped_platform_hold\[(per_watt|fewest_devices)\]",),
    "syncs": (r"test_phases_make_up_the_step\[(ddpg|sac)-dense\]",),
    "threads": (r"test_a_search_of_rows_in_the_middle_of_a_change_stays_inside_the_tree\[.*plain.*",),
    "transports": (
        r"test_a_run_hands_over_by_it_and_nothing_is_under_way_in_a_pause\[apart-.*",
        r"test_an_actor_killed_by_a_queue_ends_the_run_with_a_sentence_and_by_a_pipe_begins_anew",
    ),
}


def is_long(module: str, name: str) -> bool:
    """Tell whether a test of ``test_<module>.py`` is one of them."""
    return any(re.fullmatch(one, name) for one in LONG.get(module, ()))
