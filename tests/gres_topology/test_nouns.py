"""Whether the hardware changed; CPU lists and PCI addresses in one spelling."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gres_topology import catalog, cpulist, difference, fingerprint, pci


class TestFingerprint:
    machine = dataclasses.replace(
        catalog.load("minsky"), pci=tuple(f"0000:0{i}:00.0" for i in range(4))
    )

    def test_names_cpus_and_nics_do_not_count(self):
        other = dataclasses.replace(self.machine, name="x", source="y", cpus=(None,) * 4, nics=())
        assert fingerprint(other) == fingerprint(self.machine)
        assert difference(self.machine, other) == []

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"model": "NVIDIA H200"}, "expected Tesla P100-SXM2-16GB GPUs, found NVIDIA H200"),
            ({"numa": (0, 1, 1, 1)}, "GPU1: expected on NUMA node 0, found 1"),
            (
                {"pci": ("0000:00:00.0", "0000:01:00.0", "0000:09:00.0", "0000:03:00.0")},
                "GPU2: expected at PCI address 0000:02:00.0, found 0000:09:00.0",
            ),
            ({"kinds": catalog.load("ac922").kinds}, "GPU0 and GPU1: expected NV2, found NV3"),
        ],
    )
    def test_other_hardware_is_noticed_and_described(self, change, sentence):
        other = dataclasses.replace(self.machine, **change)
        assert fingerprint(other) != fingerprint(self.machine)
        assert sentence in difference(self.machine, other)

    def test_a_lost_gpu_is_one_sentence(self):
        assert difference(catalog.load("dgx1v"), catalog.load("summit")) == [
            "expected 8 GPUs, found 6"
        ]

    def test_what_only_one_side_knows_is_no_difference(self):
        assert difference(catalog.load("minsky"), self.machine) == []

    def test_a_catalog_machine_stands_for_every_size_of_its_gpu(self):
        larger = dataclasses.replace(self.machine, model="Tesla P100-SXM2-32GB")
        assert difference(catalog.load("minsky"), larger) == []
        assert len(difference(self.machine, larger)) == 1

    def test_it_is_stable_over_runs(self):
        # A change here makes every site's stored fingerprints stale: say so in CHANGELOG.
        assert fingerprint(catalog.load("dgx1v")) == "e8b5c50663401c67"


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_survive_writing_and_reading(cpus):
    assert cpulist.parse_list(cpulist.format_list(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [("000000ff,00000000", tuple(range(32, 40))), ("0x0000000f,,0x1", (0, 64, 65, 66, 67)),
     ("0", ()), ("3", (0, 1))],
)  # fmt: skip
def test_masks_are_read(mask, cpus):
    assert cpulist.parse_mask(mask) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999999", "١"])
def test_bad_cpu_lists_are_refused(text):
    with pytest.raises(ValueError, match="is not a"):
        cpulist.parse_list(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [("00000000:0F:00.0", "0000:0f:00.0"), ("07:00.0", "0000:07:00.0"), ("gpu0", None),
     ("0000:C1:00", "0000:c1:00.0"), ("", None)],
)  # fmt: skip
def test_pci_addresses_have_one_spelling(text, address):
    assert pci.normalise(text) == address
