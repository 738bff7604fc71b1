"""What the guides point at is there."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


class Documents(unittest.TestCase):
    def test_links_lead_somewhere(self):
        self.assertIn(ROOT / "README.md", GUIDES)
        for guide in GUIDES:
            for target in re.findall(r"\]\(([^)#]+)\)", guide.read_text()):
                if "://" not in target:
                    self.assertTrue((guide.parent / target).exists(), f"{guide.name}: {target}")

    def test_named_files_exist(self):
        """Paths in the guides that begin with a folder of the tree."""
        folders = "apps|lib|kernels|tokenizer|tests|examples|completions|cmake|docs|tools"
        for guide in GUIDES:
            for path in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w/.-]*\w)(?![\w*/.-]*\*)", guide.read_text()):
                if "<" not in path and not path.startswith("docs/keel"):
                    self.assertTrue((ROOT / path).exists(), f"{guide.name}: {path}")
