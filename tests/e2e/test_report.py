"""The report as people read it: recorded jobs, at several widths."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

import harness

RECORDED = Path(__file__).parent / "screens"
SCHEMA = json.loads((harness.SOURCE / "docs/fr-verdict-1.schema.json").read_text())
JOBS = ["deadlock", "healthy", "order", "skip", "sleep", "wide", "wide-sleep"]


def report(job, columns=None):
    done = harness.tool(harness.FR_ANALYZE, "--no-live", RECORDED / job,
                        env={"COLUMNS": str(columns)} if columns else {"COLUMNS": ""})
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stdout


@pytest.mark.sanitize
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_is_wider_than_the_window(job, columns):
    assert [line for line in report(job, columns).splitlines() if len(line) > columns] == []


@pytest.mark.parametrize("job", JOBS)
def test_the_document_says_the_same(job):
    """Words in another layout are the same words."""
    done = harness.tool(harness.FR_ANALYZE, "--no-live", "--json", RECORDED / job)
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    text = " ".join(report(job, 60).split())
    assert document["verdict"]["summary"][1:] in text
    for evidence in document["verdict"]["evidence"]:
        assert " ".join(evidence["text"].split()) in text
    ranks = re.search(r"^hanging ranks: \[(.*)\]$", report(job), re.M)
    assert ranks and bool(ranks[1]) == bool(document["verdict"]["culprit_ranks"])


def test_hosts_of_several_culprits_have_a_line():
    assert "hanging ranks: [0-1]\non hosts: [node-a]\n" in report("order")
    assert "on hosts" not in report("sleep")


def test_the_job_has_a_date():
    assert "Job: job-order, 2026-11-30 05:40:03 to 05:40:07 UTC\nRead: 2 processes of 2 ranks, 2 files, " \
        in report("order")


def fields(schema):
    for name, field in schema.get("properties", {}).items():
        yield name, field
        yield from fields(field)
    parts = [schema["items"]] if "items" in schema else []
    for part in [*parts, *schema.get("oneOf", []), *schema.get("$defs", {}).values()]:
        yield from fields(part)


def test_every_field_is_documented():
    manual = (harness.SOURCE / "docs/man/fr-analyze.1").read_text()
    manual = manual.split(".SH THE JSON DOCUMENT")[1].split(".SH ")[0]
    told = set(re.findall(r"[a-z_]+", manual))
    for name, field in fields(SCHEMA):
        assert field.get("description") or "$ref" in field, f"{name} has no description"
        assert name in told, f"{name} is not in the manual"
