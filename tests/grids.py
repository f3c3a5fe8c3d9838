"""Reports without their grids of answers, for tests that are about all else."""


def without_grids(patch):
    """Leave hundreds of answers out of reports, which test_what_ifs.py and test_explorer.py ask for."""
    from reports.sections import explorer, what_ifs  # noqa: PLC0415

    patch.setattr(what_ifs, "WORKLOADS", ())
    for axis, name in (("CAPACITIES", "capacity"), ("BATCHES", "batch"), ("UPDATES", "updates_per_sample")):
        patch.setattr(explorer, axis, (explorer.USUAL[name],))
