"""Runs the tools of the build in KEEL_BIN as a user's shell would."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from keel_schemas import problems_below

def tool(name):
    return str(pathlib.Path(os.environ["KEEL_BIN"]) / name)


def run(name, *arguments, timeout=600, **keywords):
    """CompletedProcess with text output."""
    command = [tool(name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **keywords)


def schemes():
    """Names of all residual schemes."""
    return [scheme["name"] for scheme in json.loads(run("keel-train", "--list-schemes", "--json").stdout)]


class ToolTest(unittest.TestCase):
    """A test with a folder of its own that knows how to run tools."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="keel-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.addCleanup(self.check_files)

    def check_files(self):
        """Every report that the test left agrees with its schema; one that a test damages is its own to remove."""
        self.assertEqual(problems_below(self.dir), [])

    def check(self, name, *arguments, code=0, **keywords):
        """Runs a tool and demands this exit code; an error must be one line that starts with the tool's name."""
        result = run(name, *arguments, **keywords)
        said = f"{name} {' '.join(map(str, arguments))}\nstdout: {result.stdout}\nstderr: {result.stderr}"
        self.assertEqual(result.returncode, code, said)
        if code in (1, 2, 3, 4, 6):
            errors = [line for line in result.stderr.splitlines() if ": error: " in line]
            self.assertEqual(len(errors), 1, said)
            self.assertTrue(errors[0].startswith(f"{name}: error: "), said)
        return result

    def data(self, *parts):
        """A path in KEEL_TEST_DATA; skips the test where that is not set."""
        base = os.environ.get("KEEL_TEST_DATA")
        if not base:
            self.skipTest("KEEL_TEST_DATA is not set")
        path = pathlib.Path(base).joinpath(*parts)
        if not path.exists():
            self.skipTest(f"KEEL_TEST_DATA has no {'/'.join(parts)}")
        return path
