"""Checks files that the tools write against docs/schemas: NAME.1.json there describes schema "NAME/1"."""
import json
import pathlib

import jsonschema

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schemas"
LINES = {"metrics.jsonl": "metrics.json", "events.jsonl": "events.json", "samples.jsonl": "samples.json", "profile.jsonl": "profile.json"}


def load_schema(name):
    """A schema with report.json, where it refers to it, put in."""
    schema = json.loads((SCHEMAS / name).read_text())
    for i, part in enumerate(schema.get("allOf", [])):
        if part == {"$ref": "report.json"}:
            report = json.loads((SCHEMAS / "report.json").read_text())
            schema["$defs"] = {**report.pop("$defs"), **schema.get("$defs", {})}
            schema["allOf"][i] = report
    return schema


def _refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def _problems(where, text, schema):
    document = json.loads(text, parse_constant=_refuse_constant)
    errors = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{where}: {'/'.join(map(str, e.absolute_path))}: {e.message}" for e in errors]


def problems_of_report(text, where="report"):
    """What is wrong with the text of a report or another file that names its schema."""
    name = json.loads(text)["schema"].replace("/", ".") + ".json"
    if not (SCHEMAS / name).exists():
        return [f"{where}: docs/schemas has no {name}"]
    return _problems(where, text, load_schema(name))


def _names_a_schema(text):
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):  # a test may well have left a hostile file
        return False
    return isinstance(document, dict) and str(document.get("schema", "")).startswith("keel.")


def problems_below(folder):
    """What is wrong with the reports, run.json, metrics, events and samples below a folder."""
    problems = []
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        if path.is_file() and _names_a_schema(text := path.read_text(errors="replace")):
            problems += problems_of_report(text, path)
    for name, schema in LINES.items():
        for path in sorted(pathlib.Path(folder).rglob(name)):
            if path.is_file() and (path.parent / "run.json").exists():
                lines = path.read_text().split("\n")[:-1]  # a killed process may leave a torn last line
                for number, line in enumerate(lines, 1):
                    problems += _problems(f"{path}:{number}", line, load_schema(schema))
    return problems
