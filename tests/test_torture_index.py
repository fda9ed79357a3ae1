"""Bad inputs and faults, and the test of each: the list of what clew must withstand, line by line.

E is a typed ClewError that names file, row or argument; the command ends with exit code 2 and has written nothing.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LEARNING, TRACKING, SIZES = (f"test_torture_{name}.py" for name in ("learning", "tracking", "sizes"))
MOVIE, CACHE, STAGING = (
    "tracking/test_movie.py",
    "tracking/measurement/test_cache.py",
    "tracking/formats/test_staging.py",
)
STORE, TORN, DAMAGE = (f"annotation/store/test_store{name}.py" for name in ("", "_torture", "_damage"))
SECURITY, ROUTES, WORKER = (f"app/test_{name}.py" for name in ("security", "routes", "worker"))

INDEX = {
    # numbers and learning
    "NaN or inf feature → E": (LEARNING, "test_nan_or_infinite_feature"),
    "no examples → E": (LEARNING, "test_no_examples"),
    "one example → fits": (LEARNING, "test_one_example"),
    "nothing annotated → E that says so": (LEARNING, "test_nothing_annotated"),
    "everything annotated → the ordinary structural SVM": (LEARNING, "test_everything_annotated"),
    "an annotation that no output satisfies → InfeasibleAnnotation": (
        LEARNING,
        "test_an_annotation_that_no_assignment_satisfies",
    ),
    "duplicate or constant features → finite w": (LEARNING, "test_duplicate_or_constant_features"),
    "features times 1e12 → a certified gap, or NotConverged": (LEARNING, "test_features_times_a_huge_or_tiny_number"),
    "one feature of 2**53 → no hang": (LEARNING, "test_one_feature_of_2_to_53"),
    "λ ≤ 0 or NaN → E": (LEARNING, "test_lambda_that_is_not_positive"),
    "wrong length of w → E": (LEARNING, "test_wrong_length"),
    "integer, float32, read-only, Fortran-ordered arrays → the same": (LEARNING, "test_types_and_orders_of_arrays"),
    "examples permuted → the same objective": (LEARNING, "test_permuted_examples"),
    "ties in the argmax → deterministic": (LEARNING, "test_ties"),
    "the argmax raises in mid-fit → it propagates": (LEARNING, "test_the_argmax_raises"),
    "the argmax is none → the negative gap is said": (LEARNING, "test_an_argmax_that_returns_less"),
    "singular master problem → solved": (LEARNING, "test_a_singular_master_problem"),
    "iteration or time limit → status, best w, gap": (LEARNING, "test_limits"),
    "limits hold while a fit stalls": (LEARNING, "test_model_updates_that_get_nowhere"),
    "Ctrl-C → the best iterate is kept": (LEARNING, "test_ctrl_c"),
    "1 thread or 2, here or on a cluster → the same w": (LEARNING, "test_one_thread_or_two"),
    # tracking
    "an empty frame → accepted": (TRACKING, "test_an_empty_frame_is_accepted"),
    "an empty movie → E": (TRACKING, "test_an_empty_movie"),
    "frames missing → E": (TRACKING, "test_frames_missing"),
    "frames out of order → E": (TRACKING, "test_frames_out_of_order"),
    "shape or dtype changes → E": (TRACKING, "test_shape_or_dtype_changes"),
    "duplicate track id → E": (TRACKING, "test_a_duplicate_track_id"),
    "a parent that is missing or itself → E": (TRACKING, "test_a_parent_that_is_missing_or_itself"),
    "parents in a cycle → E": (TRACKING, "test_parents_in_a_cycle"),
    "a child before its parent's end → E": (TRACKING, "test_a_child_that_begins_before_its_parent_ends"),
    "end before begin → E": (TRACKING, "test_an_end_before_its_begin"),
    "a label that the table lacks → E": (TRACKING, "test_a_label_in_a_mask_that_the_table_lacks"),
    "three daughters → a warning that names the rows": (TRACKING, "test_three_daughters"),
    "truncated TIFF → E": (TRACKING, "test_a_truncated_tiff"),
    "a TIFF of 10¹² pixels → E before memory": (TRACKING, "test_a_tiff_that_claims_a_million_million_pixels"),
    "50,000 detections in a frame → works": (TRACKING, "test_50000_detections_in_a_frame"),
    "CSV with BOM, CRLF, tabs, extra columns → the same": (TRACKING, "test_csv_with_bom_crlf_tabs"),
    # files and store
    "kill at any write of a file → a legal state": ("test_persist.py", "test_kill_at_any_moment"),
    "kill at any write of the store → a legal state": (
        "annotation/store/test_store_kill.py",
        "test_kill_at_random_moments",
    ),
    "disk full → E, old file intact": ("test_persist.py", "test_a_full_disk_leaves_the_old_file"),
    "disk full → E, store intact": (TORN, "test_a_full_drive_is_an_error_and_loses_nothing"),
    "read-only folder → E": (TORN, "test_a_read_only_folder"),
    "two writers → the second is refused": (TORN, "test_a_second_writer_is_refused_with_the_reason"),
    "a flipped byte in a model → noticed": ("test_persist.py", "test_every_flipped_byte"),
    "a flipped byte in a store → noticed": (DAMAGE, "test_a_flipped_byte_is_noticed_or_harmless"),
    "a newer schema → refused, untouched": (TORN, "test_a_newer_schema_is_refused_untouched"),
    "a pickle inside → refused": ("test_persist.py", "test_a_pickle_inside_is_refused_unopened"),
    "a zip with ../ → refused": ("test_persist.py", "test_foreign_members_are_refused"),
    "a model for other features → E": ("tracking/test_archive.py", "test_weights_for_other_features_are_refused"),
    "contradicting annotations → both named": (STORE, "test_a_contradiction_names_both_events"),
    "a corrected one keeps its history": (STORE, "test_a_correction_keeps_its_history"),
    "undo past the start → nothing": (STORE, "test_undo_and_redo_survive_reopening_without_limit"),
    # page and command line
    "no or wrong token → 403": (SECURITY, "test_no_or_a_wrong_token_is_refused"),
    "another host → 403": (SECURITY, "test_another_host_is_refused"),
    "cross-site POST → 403": (SECURITY, "test_another_site_is_refused"),
    "../, %2e%2e, NUL → 404": (SECURITY, "test_what_leads_elsewhere_is_not_found"),
    "a symlink that leads out → 404": (SECURITY, "test_a_link_that_leads_out_is_not_found"),
    "<script> as a name → text": (SECURITY, "test_a_script_as_a_name_is_text"),
    "CSP default-src 'self'": (SECURITY, "test_every_response_has_the_policy"),
    "a body of 100 MB → 413": (SECURITY, "test_a_body_that_says_it_is_too_large_is_not_read"),
    "a stale revision → 409": (ROUTES, "test_a_stale_revision_is_a_conflict"),
    "a POST sent twice → once": (ROUTES, "test_a_post_sent_twice_counts_once"),
    "malformed JSON → 400": (SECURITY, "test_malformed_json_is_refused"),
    "port taken → clear error": (WORKER, "test_mistakes_are_told_in_a_line"),
    "bound to loopback": (WORKER, "test_the_whole_page_in_a_process"),
    "closed pipe, no terminal, a path that is not UTF-8": (WORKER, "test_a_closed_pipe_no_terminal"),
    # more readers
    "one page of another dtype or size → E": (MOVIE, "test_one_page_unlike_the_others_is_refused"),
    "RGB, planar, several channels → E that names --channel": (MOVIE, "test_a_channel_of_frames_is_chosen_and_never"),
    "Zarr axes twice → E": (MOVIE, "test_an_axis_that_is_there_twice_is_refused"),
    "Zarr chunks missing → E": (MOVIE, "test_a_missing_chunk_is_refused"),
    "float, complex or NaN labels → E": (SIZES, "test_labels_that_are_no_integers"),
    "labels over 2⁵³ → exact, or E": (SIZES, "test_labels_that_no_float_can_hold"),
    "a FIFO among the frames → E": (MOVIE, "test_a_pipe_among_the_frames_is_refused_at_once"),
    "a folder among the frames → E": (MOVIE, "test_a_folder_among_the_frames_is_refused"),
    "a file without permission → E that says so": (MOVIE, "test_a_frame_without_permission_is_not_called_damaged"),
    "man_seg files with odd names → E or a warning": (SIZES, "test_a_segmentation_with_an_odd_name"),
    # more sizes
    "neighbours of 10⁹": (SIZES, "test_more_neighbours_than_can_matter"),
    "diameter of 10⁹": (SIZES, "test_cells_larger_than_the_image"),
    "jobs of 10⁵": ("test_parallel.py", "test_jobs_count_as_in_scikit_learn"),
    "states of 10⁹": ("test_estimator_inputs.py", "test_more_states_than_fit_are_refused"),
    "frames of 10⁹": (SIZES, "test_a_table_with_frames_far_apart"),
    "chunks of 10⁹": (MOVIE, "test_a_zarr_of_endless_frames_is_refused_at_once"),
    "a position of 1e300 → E": (SIZES, "test_a_position_out_of_this_world"),
    # results
    "another filesystem → works": (STAGING, "test_a_folder_on_another_file_system"),
    "a link → works": (STAGING, "test_a_folder_behind_a_link_stays_behind_it"),
    "killed at any moment → old, new or nothing": (STAGING, "test_killed_at_every_step"),
    "any command killed → the next run is right": (
        "faults/test_kills.py",
        "test_what_is_left_is_old_or_new_or_nothing",
    ),
    "files of an older run → gone": (STAGING, "test_new_files_replace_all_old_ones"),
    "files that do not fit the manifest → refused": (
        "tracking/formats/test_manifest.py",
        "test_a_folder_that_does_not_fit",
    ),
    "cache full → a warning": (CACHE, "test_a_folder_that_fills_up_is_no_obstacle"),
    "cache unwritable → a warning": (CACHE, "test_a_folder_that_cannot_be_written_to_is_no_obstacle"),
    "cache damaged → measured again": (CACHE, "test_a_damaged_entry_is_measured_again"),
    # answers
    "server gone or restarted → every answer arrives": (
        "app/browser/test_trouble.py",
        "test_answers_given_while_the_server",
    ),
    "another port → unsent answers find the page": (WORKER, "test_a_movies_page_is_where_it_was_last"),
    "another movie → no answer goes there": (
        "app/browser/test_honest.py",
        "test_an_answer_for_a_store_that_is_not_open",
    ),
    # any caller, any file
    "any argument of a call → an answer or E": ("test_hostile_calls.py", "test_an_answer_or_a_clew_error"),
    "files that are nearly right → an answer or E": ("faults/test_fuzz.py", "test_answers_or_a_clew_error"),
}


@cache
def names_of(file: str) -> list[str]:
    """The names of the tests in a file."""
    found = [node.name for node in ast.walk(ast.parse((HERE / file).read_text())) if isinstance(node, ast.FunctionDef)]
    return [name for name in found if name.startswith("test_")]


@pytest.mark.parametrize("line", INDEX)
def test_every_line_has_a_test(line):
    file, begin = INDEX[line]
    assert any(name.startswith(begin) for name in names_of(file)), f"{file} has no test {begin}…"
