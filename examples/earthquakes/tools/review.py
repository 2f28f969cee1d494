"""Codon 4, the body of the loop: validate every row with the generated code, and fix the schema.

Each iteration writes reports/review-<n>.json. If rows fail because the schema is too narrow (an
unknown word, range, type or null), it is widened accordingly and the code is generated again; the
next iteration shows whether that was enough. A row with the wrong structure is only reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dataset import Row, json_type, read_rows
from generate import PACKAGE, generated_code, package_of, read_schema
from infer import SCHEMA_FILE, Schema, lower_bound, sorted_types, upper_bound
from transcript import Transcript

Problem = Any  # earthquakes.Problem; its module exists only once the code has been generated
Failure = tuple[int, Any, tuple[Problem, ...]]  # the row's number, its id, what is wrong with it
Finding = dict[str, Any]

EXAMPLES = 3  # rows named per finding


def failures_of(
    rows: list[Row], problems_of: Callable[[Row], tuple[Problem, ...]]
) -> list[Failure]:
    checked = ((number, row, problems_of(row)) for number, row in enumerate(rows))
    return [
        (number, row.get("id") if isinstance(row, dict) else None, problems)
        for number, row, problems in checked
        if problems
    ]


def findings_of(failures: list[Failure]) -> list[Finding]:
    """Group the problems by location and rule."""
    findings: dict[tuple[str, str], Finding] = {}
    for number, row_id, problems in failures:
        for problem in problems:
            finding = findings.setdefault(
                (problem.pointer, problem.rule),
                {
                    "pointer": problem.pointer,
                    "rule": problem.rule,
                    "count": 0,
                    "found": [],
                    "examples": [],
                },
            )
            finding["count"] += 1
            if problem.found not in finding["found"]:
                finding["found"].append(problem.found)
            if len(finding["examples"]) < EXAMPLES:
                finding["examples"].append({"row": number, "id": row_id})

    return [findings[key] for key in sorted(findings)]


def mend(schema: Schema, finding: Finding) -> bool:
    """Widen the schema by a finding and return True; return False if the rows are wrong."""
    parent, _, name = finding["pointer"].rpartition("/")
    found: list[Any] = finding["found"]
    match finding["rule"]:
        case "required":
            _node(schema, parent)["required"].remove(name)
        case "enum" if all(value is None or isinstance(value, str) for value in found):
            node = _node(schema, finding["pointer"])
            words = {*node["enum"], *found}
            node["enum"] = sorted(words - {None}) + [None] * (None in words)
        case "minimum":
            _node(schema, finding["pointer"])["minimum"] = lower_bound(min(found))
        case "maximum":
            _node(schema, finding["pointer"])["maximum"] = upper_bound(max(found))
        case "type" if _are_scalars(_node(schema, finding["pointer"]), found):
            node = _node(schema, finding["pointer"])
            known = [node["type"]] if isinstance(node["type"], str) else node["type"]
            node["type"] = sorted_types({*known, *map(json_type, found)})
        case _:
            return False

    return True


def _node(schema: Schema, pointer: str) -> Schema:
    """Return the part of the schema that describes the value at a pointer."""
    for step in pointer.split("/")[1:]:
        inside: Any = schema["properties"] if "properties" in schema else schema["prefixItems"]
        schema = inside[step] if isinstance(inside, dict) else inside[int(step)]

    return schema


def _are_scalars(node: Schema, found: list[Any]) -> bool:
    return (
        "properties" not in node
        and "prefixItems" not in node
        and not any(isinstance(value, (dict, list)) for value in found)
    )


def reports_so_far() -> int:
    """Count the reviews in the work tree, where a rollback removes them as well."""
    return len(list(Path("reports").glob("review-*.json")))


def main() -> None:
    iteration = reports_so_far()
    with Transcript(f"review {iteration}") as transcript:
        rows = read_rows()
        transcript.say(f"Iteration {iteration}: I will validate all {len(rows):,} rows.")
        failures = transcript.use(
            "Validate",
            {"rows": len(rows), "with": PACKAGE},
            lambda: failures_of(rows, generated_code().problems_of),
            lambda failures: f"{len(failures):,} of {len(rows):,} rows fail",
        )
        findings = findings_of(failures)
        schema = read_schema()
        for finding in findings:
            finding["mended"] = mend(schema, finding)

        report = {
            "iteration": iteration,
            "rows": len(rows),
            "failures": len(failures),
            "findings": findings,
        }
        transcript.write(f"reports/review-{iteration}.json", json.dumps(report, indent=2) + "\n")
        if any(finding["mended"] for finding in findings):
            schema["description"] = f"One seismic event, as far as {len(rows):,} rows tell."
            transcript.write(SCHEMA_FILE, json.dumps(schema, indent=2) + "\n")
            for path, content in package_of(schema).items():
                transcript.write(path, content)

        transcript.say(_conclusion(len(rows), len(failures), findings))


def _conclusion(rows: int, failures: int, findings: list[Finding]) -> str:
    if not findings:
        return f"All {rows:,} rows are valid."

    mended = sum(finding["mended"] for finding in findings)
    return (
        f"{failures:,} of {rows:,} rows fail for {len(findings)} reasons; "
        f"the schema is mended for {mended} of them and the code generated anew."
    )


if __name__ == "__main__":
    main()
