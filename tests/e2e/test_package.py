"""Installs the build into a folder and uses it as somebody else would: programs, package, headers, completions."""
import os
import pathlib
import subprocess

from keel_tools import ToolTest

TESTS = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ["KEEL_BIN"]).parent


def cached(name):
    """A variable of the build."""
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split("=", 1)[1]
    return ""


class Package(ToolTest):
    def command(self, *arguments, code=0):
        result = subprocess.run([*map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def install(self):
        """The prefix is moved after installing: nothing in it may depend on where it was."""
        self.command("cmake", "--install", BUILD, "--prefix", self.dir / "first")
        prefix = self.dir / "prefix with space"
        (self.dir / "first").rename(prefix)
        return prefix

    def build_user(self, prefix, *arguments):
        build = self.dir / "build"
        sanitize = cached("KEEL_SANITIZE")
        flags = f"-fsanitize={sanitize}" if sanitize else ""
        self.command("cmake", "-G", "Ninja", "-S", TESTS / "package-user", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
                     f"-DCMAKE_CXX_FLAGS={flags}", *arguments)
        self.command("cmake", "--build", build)
        return build

    def test_user_builds_and_runs(self):
        prefix = self.install()
        build = self.build_user(prefix)
        rows = self.command(build / "wiring_rows", "keel", 2)
        self.assertEqual(rows.stdout, "1\n1\n4\n4\n")
        unknown = self.command(build / "wiring_rows", "kel", 2, code=2)
        self.assertIn("keel", unknown.stderr)
        tokenizer = TESTS.parent / "examples" / "quickstart" / "shakespeare.model"
        self.assertEqual(self.command(build / "count_tokens", tokenizer, "the father").stdout, "2\n")
        self.command(build / "count_tokens", self.dir / "none.model", "x", code=4)
        for program in (BUILD / "bin").glob("keel-*"):
            self.assertIn(program.name, self.command(prefix / "bin" / program.name, "--version").stdout)

    def test_every_installed_header_compiles(self):
        include = self.install() / "include"
        headers = sorted(str(path.relative_to(include)) for path in include.rglob("*.h"))
        self.assertIn("keel/base/error.h", headers)
        self.assertFalse([name for name in headers if name.endswith(("_internal.h", "_cpu.h", "_ref.h", "_test.h"))])
        source = self.dir / "every_header.cpp"
        # Backwards, so that a header that needs another before it shows it.
        source.write_text("".join(f'#include "{name}"\n' for name in reversed(headers)))
        self.build_user(include.parent, f"-DEVERY_HEADER={source}")

    def test_shells_and_readers_find_their_files(self):
        share = self.install() / "share"
        for name in ("bash-completion/completions/keel-train", "zsh/site-functions/_keel-train",
                     "fish/vendor_completions.d/keel-train.fish", "doc/keel/README.md", "doc/keel/schemas/keel.train.1.json"):
            self.assertTrue((share / name).is_file(), name)
