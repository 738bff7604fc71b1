"""The check of reports itself: right ones pass, wrong ones do not."""
import json
import unittest

from keel_schemas import SCHEMAS, load_schema, problems_of_report

import jsonschema

WIRING = {
    "schema": "keel.analyze.wiring/1", "tool": "keel-analyze", "version": "0.1.0", "command": ["keel-analyze", "wiring"],
    "started": "2026-01-02T03:04:05Z", "finished": "2026-01-02T03:04:05.678Z",
    "host": {"cpu": "x", "cores": 2, "memory_bytes": 1, "gpus": []}, "config": {}, "inputs": [], "warnings": [],
    "results": {"scheme": "pre", "blocks": 1, "sublayers": 2, "final_norm": True, "final_norm_kind": "rms", "rows": [
        {"sublayer": l, "branch_kind": kind, "inner": "rms", "branch": "none", "outer": "none", "a": 1.0, "b": 1.0, "ns": 1.0,
         "qkv": "none", "in_scale": "none", "skip_scale": "none", "branch_scale": "none"}
        for l, kind in enumerate(("attention", "mlp"))]},
}


class Schemas(unittest.TestCase):
    def changed(self, change):
        report = json.loads(json.dumps(WIRING))
        change(report)
        return problems_of_report(json.dumps(report))

    def test_every_schema_is_one(self):
        names = sorted(path.name for path in SCHEMAS.glob("*.json"))
        self.assertIn("keel.train.1.json", names)
        for name in names:
            jsonschema.Draft202012Validator.check_schema(load_schema(name))

    def test_right_report_passes(self):
        self.assertEqual(problems_of_report(json.dumps(WIRING)), [])

    def test_wrong_reports_do_not(self):
        changes = {
            "missing member": lambda r: r.pop("finished"),
            "member nobody knows": lambda r: r.update(extra=1),
            "result nobody knows": lambda r: r["results"].update(extra=1),
            "missing result": lambda r: r["results"].pop("rows"),
            "wrong type": lambda r: r["results"].update(blocks="1"),
            "wrong word": lambda r: r["results"]["rows"][0].update(inner="RMS"),
            "other tool": lambda r: r.update(tool="keel-train"),
            "no time": lambda r: r.update(started="yesterday"),
            "unknown schema": lambda r: r.update(schema="keel.analyze.wiring/2"),
            "null where a number stands": lambda r: r["results"]["rows"][1].update(a=None),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.assertNotEqual(self.changed(change), [])

    def test_nan_is_not_json(self):
        with self.assertRaises(ValueError):
            self.changed(lambda r: r["results"]["rows"][0].update(a=float("nan")))
