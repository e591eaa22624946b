"""samples/monitoring: rules and dashboard speak of figures that fr-top really exports."""

import json
import re
import shutil
import subprocess
import time

import pytest
import yaml
from prometheus_client.openmetrics import parser

import harness

FR_TOP = harness.BUILD / "fr-top/fr-top"
PLACE = harness.SOURCE / "samples/monitoring"
OF_PROMETHEUS = {"instance"}  # labels that the scrape adds


@pytest.fixture(scope="module")
def exported():
    """Sample name -> its labels, from a real job."""
    with harness.Recording() as recording:
        script = recording.root / "job.script"
        script.write_text("init world name=world\nallreduce world 8 f32 sum\nsync\nrepeat 400 { allreduce world 8 f32 sum; sleep 50 }\n")
        command = [harness.LAUNCH, "-q", "-n", 2, "-t", 30, "--shim", harness.SHIM, "--", harness.FR_SCRIPT, script]
        job = subprocess.Popen([str(c) for c in command], env=recording.env(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                path = recording.root / "frec.prom"
                done = harness.tool(FR_TOP, "--once", "--openmetrics", path, recording.traces, env=recording.env())
                assert done.returncode == 0, done.stderr
                families = list(parser.text_string_to_metric_families(path.read_text()))
                samples = {s.name: set(s.labels) for family in families for s in family.samples}
                if {"frec_comm_front_ops", "frec_rank_up", "frec_fault", "frec_bus_bandwidth_bytes_per_second"} <= set(samples):
                    return samples
                time.sleep(0.1)
            raise AssertionError(f"no communicator: {samples}")
        finally:
            job.terminate()
            job.wait()


def expressions():
    rules = yaml.safe_load((PLACE / "frec-alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning") and rule["annotations"]["summary"]
            yield rule["alert"], rule["expr"], "".join(rule["annotations"].values())
    dashboard = json.loads((PLACE / "frec-dashboard.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 10
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"], ""
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"], annotation["titleFormat"]


@pytest.mark.parametrize("name, expression, legend", list(expressions()))
def test_figures_and_labels_exist(name, expression, legend, exported):
    figures = re.findall(r"\bfrec_[a-z_]+", expression)
    assert figures and set(figures) <= set(exported)
    labels = set.intersection(*(exported[figure] for figure in figures)) | OF_PROMETHEUS
    wanted = set(re.findall(r"(\w+)\s*=~?\s*\"", expression))
    for by in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        wanted.update(by.replace(",", " ").split())
    wanted.update(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend))
    assert wanted <= labels


def test_every_figure_is_shown(exported):
    shown = {figure for _, expression, _ in expressions() for figure in re.findall(r"\bfrec_[a-z_]+", expression)}
    assert shown == set(exported)


def test_panels_do_not_overlap():
    taken = set()
    for panel in json.loads((PLACE / "frec-dashboard.json").read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not here")
@pytest.mark.parametrize("command", [["check", "rules", "frec-alerts.yml"], ["test", "rules", "frec-alerts-test.yml"]])
def test_promtool(command):
    done = subprocess.run(["promtool", *command], cwd=PLACE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
