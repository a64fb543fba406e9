"""Which tests are run by what: the lanes.

- *pure*: models and bytes, no I/O. `make quick`.
- *contract*: protocols of stores, nodes and members, over every implementation.
- *REST*: requests to a service node, and the client, over data nodes in this process.
- *endure*: processes, kills, other libraries, browsers, campaigns.

`make test` is the first three, but for most cases of tests that have many, and, of each part of the fourth, the tests
that stand beside it below. `make endure` is the rest, campaigns at full length, and properties with all their examples.
`make check` has a few of its own. What is in no other lane is of REST. `pytest` without `--lane` runs all that it is
given.
"""

from __future__ import annotations

from functools import cache

import pytest

CHECK = ("test_english.py", "test_import_law.py", "test_names.py", "test_subjects.py")
PURE = ("model", "format", "wire", "concurrency", "test_errors.py", "test_config.py")
CONTRACT = (
    "cluster",
    "dn",
    "storage",
    "testing",
    "support",
    "stripes",
    "test_hsds_bucket.py",
)
ENDURE = {
    # Browsers.
    "web": (
        "test_browsing.py::test_from_the_top_level_to_a_dataset",
        "test_build.py::test_the_files_are_built_from_these_sources",
    ),
    "sn/virtual_file/test_changed_meanwhile.py": (
        "[file-deleted after 3]",
        "[ranges-replaced]",
        "[snapshot-deleted after 3]",
        "[snapshot values-deleted after 8]",
        "[kerchunk-shrunk]",
    ),
    "versions/test_clones.py::test_a_clone_of_clones_has_no_depth": ("[as it was]",),
    # Processes and kills.
    "attack/test_attack.py": ("test_attack[broken_requests]",),
    "attack/test_routes.py": ("test_every_route_with_a_body_has_one",),
    "cli/exporter/test_s3_export.py": (),
    "cli/exporter/test_command.py::test_a_domain_becomes_a_file": ("[embedded]",),
    "cli/exporter/test_command.py::test_the_size_of_a_large_file_is_said_before": ("[embedded]",),
    "cli/exporter/test_refiltered_file.py::test_a_domain_with_other_filters": ("[flags1]",),
    "cli/exporter/test_refiltered_file.py::test_what_is_in_sections_stays": ("[flags1",),
    "cli/importer/test_command.py": ("test_a_killed_import_goes_on", "test_signing_in"),
    "cli/importer/test_soma.py": ("test_an_experiment_is_what_tiledbsoma_reads[layers]",),
    "cli/importer/test_detector_files.py": (
        "test_counts_are_beside_the_columns",
        "test_frames_of_pyfai_are_what_fabio_reads",
        "test_frames_of_imaged11",
        "test_columns_that_do_not_fit_are_refused[imaged11-run",
    ),
    "cli/importer/test_sparsified_upload.py": (
        "test_what_is_not_the_fill_value_is_kept[filled-f4]",
        "test_what_is_above_a_threshold_is_kept[i8-2.5]",
        "test_what_cannot_be_is_refused[flags5",
    ),
    "cli/importer/test_zarr.py": (
        "test_an_anndata_is_what_its_h5ad_gives[layers-3]",
        "test_an_anndata_is_what_its_h5ad_gives[column_kinds-2]",
        "test_any_hierarchy[3]",
        "test_a_damaged_store_is_refused[<lambda>-/X: It is damaged",
        "test_a_damaged_store_is_refused[pickled-",
    ),
    "cli/test_serve.py": (
        "test_what_is_refused_says_what_to_do",
        "test_data_nodes_end_with_the_server_however_it_ends",
    ),
    "cli/test_main.py": ("test_every_command_is_listed_and_has_its_own_help",),
    "cli/test_read_only.py::test_a_public_bucket_is_read_whole_without_a_put_or_a_key": (),
    "cli/test_read_only.py::test_a_service_node_that_only_reads_leaves_the_store_alone": (),
    "cli/importer/test_s3_source.py": ("test_a_file_of_a_bucket", "test_ranges"),
    "cli/tree/test_cp.py": ("test_a_copy_has_all_of_its_source", "[put]"),
    "cli/tree/test_versions.py": ("test_snapshots_are_listed", "test_what_would_change"),
    "cli/test_stores.py::test_a_server_only_reads_a_store_it_cannot_write": ("[flags1]",),
    "cli/test_stores.py::test_a_server_refuses_a_store_it_cannot_read": (),
    "client/test_direct_elements.py::test_acknowledged_writes_are_seen": (),
    "client/test_direct_source.py::test_the_map_follows_the_writes_of_all_data_nodes": (),
    "client/http/test_connection_pool.py::test_threads_and_processes_share_a_client": (),
    "client/test_embedded.py": ("test_a_running_server_has_the_directory",),
    "client/test_versions.py": ("test_a_snapshot_is_only_read", "test_references_to_objects"),
    "sn/jobs/test_served_jobs.py": ("test_a_cancelled_import_leaves_no_domain",),
    "sn/in_place/test_remote_files.py": ("[objects.h5]", "[s3://served/none", "test_values_are_those"),
    "sn/in_place/test_served_matrices.py": (
        "test_of_damaged_events_the_columns_are_served[4]",
        "test_a_coo_matrix_in_the_order_of_rows_is_a_sparse_dataset[u8]",
        "test_another_coo_matrix_stays_a_group[unordered]",
    ),
    "sn/in_place/test_kinds_of_files.py::test_a_thousand_files_on_a_mount_for_reading": (),
    "sn/test_every_route.py": (
        "test_a_full_store_is_a_507[PUT /datasets/{id}/value]",
        "test_the_table_has_every_route_and_no_other",
        "[domain-C]",
    ),
    "sn/in_place/test_served_files.py::test_data_without_chunks_is_read_in_slabs": (),
    "sn/in_place/test_http_files.py::test_servers_that_are_refused": ("[NoState",),
    "sn/values/test_streamed_write.py::test_of_a_body_that_does_not_come_the_parts_that_came_are_there": (),
    "sn/in_place/test_http_files.py::test_faults_of_the_web_server_pass": ("[404 default backend]", "[cut]"),
    "sn/in_place/test_http_files.py::test_faults_that_stay_are_a_503": ("[503 ]",),
    "storage/test_store_faults.py": (
        "[404 of another-single writer]",
        "404 of another-get]",
        "404 empty-get an absent one]",
        "200 of another-list]",
        "412 of another-replace]",
        "204-delete]",
        "200 of a page with an etag-put]",
        "409 of another-put an absent one]",
        "403 of another-look]",
    ),
    "storage/test_posix.py::test_a_kill_leaves_no_torn_object": ("by a rename",),
    "storage/wal/test_wal_writer.py::test_a_disk_that_fails_at_any_call": ("[False]",),
    "storage/wal/test_wal_process.py": ("test_what_one_that_was_killed_has_left_is_recovered_by_the_next",),
    "test_client_install.py": ("test_the_base_install_is_numpy",),
    "test_two_owners.py::test_two_processes_on_one_directory": (),
    "versions/test_version_programs.py": ("test_every_snapshot_is_what_was_there[True-2]",),
    "versions/test_version_messages.py::test_a_snapshot_beside_writes_is_what_was_there": (),
    "versions/test_version_messages.py::test_a_write_of_a_node_that_was_evicted_is_in_no_snapshot_later": (),
    "versions/test_version_messages.py::test_restoring_a_deleted_one_loses_nothing": ("[sparse]",),
    "upgrade": ("test_upgrade.py::test_everything_is_read_as_it_was_written",),
    # Other libraries and their files.
    "client/anndata/test_cell_appender.py": (
        "test_a_failure_at_any_request_leaves_the_old_state[in place-refused",
        "test_an_append_costs_what_is_appended",
        "test_it_is_what_anndata_concatenates[csr-some missing-outer]",
        "test_many_append_at_once",
    ),
    "client/anndata/test_concatenation.py": ("[csr-some of both-outer-linked]",),
    "client/anndata/test_lazy_anndata.py": (
        "test_every_block_is_what_its_array_says[embedded-True]",
        "test_pbmc_in_today_s_encoding",
    ),
    "client/test_dask.py": (
        "test_every_block_is_what_its_array_says[embedded",
        "test_blocks_are_sparse",
        "[threads-",
        "test_what_a_worker_has_received",
        # Writing.
        "test_sparse_blocks_make_a",
        "test_numpy_blocks_make_a",
        "test_an_array_of_hsparse_goes_round",
        "test_duplicates_add_up",
        "test_blocks_are_written",
        "test_what_cannot_be_written",
    ),
    "clients": (
        "test_h5pyd.py::test_a_sparse_dataset_through_chunks",
        "test_h5pyd.py::test_walking_links_and_deleting",
        "test_h5pyd.py::test_compound_datasets",
        "test_h5pyd.py::test_changing_rows_by_a_condition",
        "test_hdf5_difference.py::test_a_change_is_found",
        "test_xarray.py",
    ),
    "demo/test_main.py": (
        "test_a_request_that_fails_is_named_and_fails",
        "test_flags_out_of_range_are_refused",
    ),
    "demo/test_cells.py": (),
    "deployment/test_supply.py": (),
    "examples": ("test_read_sparse.py::test_it_reads_what_was_written[all]",),
    "files_matrix": ("test_files_matrix.py::test_what_comes_out_is_what_went_in[/files]",),
    "interchange/test_recorded.py": (),
    "test_torch.py": (),
    "stripes/test_striped_server.py": (),
    "format/hdf5/test_domain_plan.py::test_an_index_of_several_leaves": (),
    # Campaigns and measurements, and ever more of the same.
    "sn/in_place/test_changes.py": (
        "[virtual-rewritten_with_its_time]",
        "[raw-replaced]",
        "[link-arrived]",
    ),
    "sn/virtual_dataset/test_virtual_files.py": (
        "test_a_sparse_one_has_its_elements[own grid-24-form0]",
        "test_what_others_may_read_is_not_in_the_file_of_a_reader",
    ),
    "cli/tree/test_signed_files.py": ("test_a_file_counts_from_0_and_an_import_from_the_bound[auto]",),
    "client/test_faults.py": (
        "test_opening",
        "test_reads[dense-",
        "test_reads[few-",
        "test_reads[scan-",
        "test_writes[",
        "test_files_of_fsspec",
        "test_commands[",
    ),
    "client/test_strange_names.py": ("-sample#1.h5]", "-x.h5?bucket=other]"),
    "client/test_signed_places.py": (
        "test_keys_are_places[sparse]",
        "test_both_ends_grow_and_the_oldest_rows_go[sparse]",
        "test_what_others_prepend_and_drop_shifts_nothing[sparse]",
    ),
    "benchmarks/test_cells.py": (),
    "benchmarks/test_scaling.py": (),
    "dn/test_payload_lifetime.py": ("[memory-",),
    "cli/importer/test_hdf5_import.py::test_contiguous_data_of_several_chunks": ("shape2-67108864]",),
    "cli/importer/test_server_source.py::test_a_format_is_known_by_the_name_of_the_file": ("[m.mtx.gz]",),
    "cli/importer/test_server_source.py::test_damaged_files_are_refused_or_imported_right": (),
    "client/anndata/test_anndata_part.py::test_a_new_column_is_one": ("[in the group",),
    "client/test_upload.py::test_112_megabytes_by_the_defaults": (),
    "client/test_upload.py::test_sparse_datasets_take_values_of_any_size": ("[from_csr]",),
    "client/test_types.py::test_an_element_that_has_no_room_is_named": (),
    "client/test_creation.py::test_nothing_is_left_of_one_that_is_not_filled": (
        "[Ctrl-C-/links",
        "-assign]",
    ),
    "format/hdf5/test_index_registry.py::test_far_chunks_of_an_extensible_array_are_in_pages": (),
    "format/hdf5/test_parsed_object.py::test_thousands": ("[earliest-True]", "[latest-False]"),
    "format/test_kinds.py::test_a_chunk_takes_no_more_memory_than_is_reserved": ("[rows-steps-sparse",),
    "sn/domains/test_domains.py::test_a_domain_of_any_size_in_one_answer": (),
    "sn/chunks/test_handlers.py::test_chunks_after_writes_and_erasures": (),
    "sn/chunks/test_map_handlers.py::test_a_map_of_many_chunks_is_whole": (),
    "sn/values/test_signed_appends.py": (
        "test_many_append_at_both_ends[sparse",
        "test_a_shrink_costs_what_it_drops[False-sparse-1000]",
        "test_new_chunks_below_are_not_looked_for",
        "test_the_end_that_has_died_holds_up_only_its_own",
        "test_a_program[dense-0]",
        "test_a_program[sparse-0]",
    ),
    "sn/values/test_element_query.py::test_a_band_of_chunks_larger_than_a_page": (),
    "storage/s3/test_s3_store.py::test_what_a_store_honours_is_found_out_whichever_is_lost": (),
    "storage/test_obstore_store.py::test_what_a_store_honours_is_found_out_whichever_is_lost": (),
    "simulation/test_simulation.py": (
        "test_messages_of_older_epochs_that_are_carried_out",
        "test_faults_of_any_kind",
        "test_whole_servers_that_share_a_store",
        "test_snapshots_and_clones[few]",
    ),
    "sn/test_co_tenant.py": (
        "test_no_right_but_read_tells_names_or_values",
        "test_every_body_is_that_of_a_route",
    ),
    "sn/test_openapi_fuzz.py": ("PUT /datasets/{id}/value",),
    "test_chaos.py": ("test_what_was_acknowledged_survives_kills",),
    "test_memory_bound.py": ("test_a_gigabyte_in_half_of_it[all]",),
    "test_stateful.py": (
        "test_one_node[memory",
        "test_two_nodes_that_own_the_same[memory",
        "test_lower_bounds[memory-False",
    ),
}
"""Files and folders of the fourth lane, with what `make test` runs of them."""
SAME = {
    "client": ("[s3", "[presigned", "[server", "-s3-", "-s3]"),
    "dn": ("[s3", "-s3-", "-s3]"),
    "storage": ("[az", "-az]", "-az-"),
    "test_two_owners.py": ("-s3-", "[s3", "-s3]", "[posix", "-posix-"),
}
"""Folders whose tests run over more stores, or ways to them, than `make test` needs: what the names of those have."""

SAMPLED = {
    "cli/importer/test_defined_upload.py": ("test_it_is_imported_as_it_was",),
    "cli/importer/test_file_formats.py": (
        "test_a_file_with_other_bytes_is_refused_or_read_as_others_do",
        "test_an_import_that_was_stopped_goes_on",
        "test_parts_that_do_not_fit_are_named",
    ),
    "cli/importer/test_hdf5_import.py": (
        "test_a_domain_has_what_the_file_has",
        "test_a_file_comes_out_as_it_went_in",
        "test_every_index_of_chunks",
        "test_elements_with_gaps_and_padding",
        "test_random_types",
        "test_xarray_reads_a_domain_as_the_file",
    ),
    "cli/importer/test_matrix_chunks.py": (
        "test_an_import_that_was_stopped_sends_the_chunks_that_are_missing",
        "test_each_chunk_is_sent_once_as_the_server_encodes_it",
        "test_they_are_imported_as_they_were",
    ),
    "cli/importer/test_round_trips.py": ("test_netcdf_reads_the_same",),
    "cli/importer/test_sparse_matrix.py": ("test_matrix_market", "test_npz_of_scipy"),
    "cli/importer/test_structured_upload.py": ("test_every_revision",),
    "cli/importer/test_virtual_data.py": (
        "test_it_is_exported_as_a_virtual_dataset",
        "test_it_is_what_h5py_reads",
        "test_what_stays_virtual_is_what_h5py_reads",
    ),
    "cli/test_serve.py": ("test_what_is_refused_says_what_to_do",),
    "client/anndata/test_anndata_part.py": (
        "test_a_column_is_added_or_replaced_in_its_place",
        "test_an_element_of_a_part_is_added_or_replaced",
        "test_what_does_not_fit_a_part_is_named_and_changes_nothing",
    ),
    "client/anndata/test_anndata_reader.py": ("test_it_is_what_anndata_reads",),
    "client/anndata/test_element_writer.py": (
        "test_what_fails_leaves_what_mode_w_was_to_replace",
        "test_what_is_refused_makes_no_domain",
        "test_what_is_written_is_read_back_and_read_by_anndata",
    ),
    "client/anndata/test_query.py": (
        "test_an_anndata_of_a_query_is_a_copy_of_a_view",
        "test_reductions_are_those_of_the_matrix",
    ),
    "client/test_sparse_arrays.py": (
        "test_another_fill_value_gives_coo",
        "test_keys_return_what_scipy_and_numpy_return",
        "test_orthogonal_keys_return_products",
        "test_reductions_are_numpys",
    ),
    "client/test_creation.py": ("test_mode_w_replaces_a_file_once_all_is_stored",),
    "client/test_object_records.py": ("test_linked_elements_are_those_of_read_h5ad",),
    "client/test_public_names.py": ("test_examples_print_what_they_say",),
    "client/test_sparse_assignment.py": ("test_assignment_makes_the_region_equal",),
    "dn/test_payload_lifetime.py": ("test_nothing_outlives_its_request",),
    "format/test_filter_pipeline.py": ("test_libhdf5_reads_this", "test_this_reads_libhdf5"),
    "format/hdf5/test_index_registry.py": ("test_what_libhdf5_wrote_is_read_and_it_reads_ours",),
    "format/hdf5/test_parsed_object.py": ("test_everything",),
    "format/hdf5/test_damaged_file.py": ("test_changed_addresses", "test_changed_bytes"),
    "format/test_kinds.py": ("test_a_chunk_takes_no_more_memory_than_is_reserved",),
    "sn/virtual_file/test_file_addresses.py": ("test_a_change_meanwhile_is_refused",),
    "sn/in_place/file_backed/test_elements.py": ("test_every_selection",),
    "sn/virtual_file/test_matrix_pieces.py": (
        "test_any_range_is_that_part_of_the_whole",
        "test_scipy_reads_them",
        "test_types_fill_values_and_nothing_at_all",
    ),
    "sn/http/test_headers.py": ("test_every_kind_of_answer_decodes_to_the_same",),
    "sn/test_co_tenant.py": ("test_no_right_but_read_tells_names_or_values",),
    "sn/virtual_dataset/test_virtual_sparse.py": (
        "test_it_is_the_model",
        "test_sparse_over_sparse_is_sparse",
    ),
    "sn/values/test_append.py": ("test_many_append_while_others_read",),
    "sn/values/test_append_groups.py": ("test_appends_of_any_kind_by_two_nodes",),
    "sn/values/test_chunk_fanout.py": (
        "test_pieces_are_bounded_and_in_order",
        "test_pieces_are_within_a_page_and_in_order",
    ),
    "sn/values/test_element_query.py": ("test_many_chunks_of_which_few_are_stored",),
    "sn/values/test_streamed_write.py": ("test_a_part_is_in_memory_at_a_time",),
    "sn/values/test_reduce.py": ("test_results_are_those_of_numpy",),
    "storage/s3/test_s3_store.py": ("test_a_lossy_put_is_settled", "test_a_lossy_read_is_repeated"),
    "test_two_owners.py": ("test_shrinking_growing_and_writing_at_once",),
}
"""Files with tests of many cases: `make test` runs a fifth of each."""

LANES = ("pure", "contract", "REST", "test", "endure")


def is_of(item: pytest.Item, lane: str) -> bool:
    """Return whether a test is of the lane that is asked for: "test" is what `make test` runs."""
    name = item.nodeid.removeprefix("tests/")
    if lane in {"test", "endure"} and _is_left_out(item, name):
        return lane == "endure"
    path, own = name.partition("::")[0], _lane(name)
    short = any(
        form in name for place in _places(path) if _is_in(name, place) for form in ENDURE.get(place, ())
    )
    if lane == "test":
        return short or own not in {"endure", "check"}
    if lane != "endure":
        return own == lane
    # Campaigns and properties are of both, each at a length of its own.
    return (own == "endure" and not short) or any(
        item.get_closest_marker(mark) for mark in ("endurance", "hypothesis")
    )


def _is_left_out(item: pytest.Item, name: str) -> bool:
    """Say whether a case of a test in `SAMPLED` is left to `make endure`."""
    path, _, test = name.partition("::")
    if test.partition("[")[0].rpartition("::")[2] not in SAMPLED.get(path, ()):
        return False
    # Names that are given together count as often as there are: a prime tells their cases apart all the same.
    return sum(item.callspec.indices.values()) % 5 > 0  # type: ignore[attr-defined]  # of a test with cases


def is_passed_over(path: str, lane: str) -> bool:
    """Return whether a file has no test of the lane that is asked for, so that it need not be read."""
    own = _lane(path)
    if lane == "test" and own == "endure":
        forms = [form for place in _places(path) if _is_in(path, place) for form in ENDURE.get(place, ())]
        named = [form.partition("::")[0] for form in forms if "::" in form or form.endswith(".py")]
        return not forms or (bool(named) and not any(path.endswith(name) for name in named))
    return lane in {"pure", "contract", "REST"} and own not in {lane, "endure"}


def _lane(name: str) -> str:
    """Return the lane of a test or a file, by its name from `tests` on."""
    places = _places(name.partition("::")[0])
    if any(part in name for place in places for part in SAME.get(place, ())):
        return "endure"
    lanes = {"endure": ENDURE, "check": CHECK, "pure": PURE, "contract": CONTRACT}
    return next(
        (lane for lane, of in lanes.items() if any(place in of and _is_in(name, place) for place in places)),
        "REST",
    )


@cache
def _places(path: str) -> list[str]:
    """Return the places of all lanes that a file is in, or that are tests in it."""
    every = [*ENDURE, *CHECK, *PURE, *CONTRACT, *SAME]
    return [place for place in every if _is_in(path, place.partition("::")[0])]


def _is_in(name: str, place: str) -> bool:
    return name == place or (name.startswith(place) and name[len(place)] in "/:[")
