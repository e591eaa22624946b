"""The recorded cases in samples/dumps stay readable and keep their verdicts."""

import pytest

import harness

DUMPS = harness.SOURCE / "samples/dumps"


@pytest.mark.sanitize
@pytest.mark.parametrize("name, kind, culprits", [
    ("healthy", "healthy", []),
    ("mismatch", "signature_mismatch", [1]),
    ("missing-rank", "stuck_outside_nccl", [2]),
    ("killed", "process_dead", [3]),
])
def test_verdict(name, kind, culprits):
    status, document = harness.analyze(DUMPS / name)
    assert (document["verdict"]["type"], document["verdict"]["culprit_ranks"]) == (kind, culprits)
    assert status == (kind != "healthy")
    assert harness.tool(harness.FR_DUMP, "--verify", DUMPS / name).returncode == 0


def test_nothing_of_the_machine_is_told():
    for path in DUMPS.rglob("*.frec"):
        assert path.name.startswith("node-")
        done = harness.tool(harness.FR_DUMP, "--json", path)
        assert done.returncode == 0 and '"host":"node-' in done.stdout
