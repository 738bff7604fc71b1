"""The shipped completion files are what the programs print, and the shells can read them."""
import os
import pathlib
import shutil
import subprocess
import unittest

from keel_tools import run

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "completions"
NAMES = {"bash": "{}", "zsh": "_{}", "fish": "{}.fish"}
SYNTAX = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


class Completions(unittest.TestCase):
    def programs(self):
        names = sorted(path.name for path in pathlib.Path(os.environ["KEEL_BIN"]).glob("keel-*"))
        self.assertIn("keel-train", names)
        return names

    def test_files_are_current(self):
        for shell, name in NAMES.items():
            expected = {name.format(program): run(program, "--completions", shell).stdout for program in self.programs()}
            found = {path.name: path.read_text() for path in (FOLDER / shell).iterdir()}
            self.assertEqual(sorted(found), sorted(expected))
            for file, text in expected.items():
                self.assertEqual(found[file], text, f"{shell}/{file}: run completions/update.sh")

    def check_syntax(self, shell):
        if not shutil.which(shell):
            self.skipTest(f"{shell} is not installed")
        for path in sorted((FOLDER / shell).iterdir()):
            result = subprocess.run([*SYNTAX[shell], path], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""), path)

    def test_bash_reads_them(self):
        self.check_syntax("bash")

    def test_zsh_reads_them(self):
        self.check_syntax("zsh")

    def test_fish_reads_them(self):
        self.check_syntax("fish")
