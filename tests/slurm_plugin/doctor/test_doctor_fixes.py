"""What `gputopo doctor` advises depends on what is installed."""


def test_a_missing_plugin_is_put_in_by_the_command_where_the_package_has_it(site, monkeypatch):
    """Else it is to be installed, or built."""
    site.slurm.values["PluginDir"] = f"{site.folder}/stock"
    installed = (site.folder / "none", site.folder / "ours")
    monkeypatch.setattr("slurm_plugin.doctor.slurm_files.PLUGIN_DIRS", installed)
    fix = site.only("select plugin", "fail").fix
    assert fix == "gputopo enable --apply, then restart slurmctld"
    (site.folder / "ours" / "select_cons_tres.so").unlink()
    fix = site.only("select plugin", "fail").fix
    assert "slurm-gputopo-select" in fix
    assert "docs/select.md" in fix
