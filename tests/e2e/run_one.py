"""Runs one test method, MODULE.CLASS.METHOD, of this folder: exit code 0 passed, 77 skipped, 1 failed."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName(sys.argv[1]))
if result.testsRun == 0 and not result.skipped or not result.wasSuccessful():
    sys.exit(1)
sys.exit(77 if result.skipped else 0)
