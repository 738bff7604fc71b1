"""What programs of tests and NVIDIA's tools said, as results of steps."""

import json
import re

# Of lines by which a tool says that it cannot look at this device, or not by this user; the program itself runs nevertheless.
REFUSAL = re.compile(r"^(?:=+ Error:|==ERROR==) (.*(?:not supported|not compatible|ERR_NVGPUCTRPERM"
                     r"|before first instrumented API call).*)", re.M | re.I)
SANITIZER_FINDING = re.compile(r"^=+ ((?:Invalid|Misaligned|Uninitialized|Barrier|Error: Race|Warning: Race|Program hit"
                               r"|Internal Sanitizer Error).*)", re.M)
SANITIZER_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: ((\d+).*)", re.M)
TEST_MILLISECONDS = re.compile(r"^\[ .*\((\d+) ms\)$", re.M)
TEST_EVENT = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] ([^\s,]+)", re.M)


class Skip(Exception):
    pass


class Failed(Exception):
    def __init__(self, reason, **values):
        super().__init__(reason)
        self.values = values

    def described(self):
        return {"reason": str(self), **self.values}


class TimedOut(Failed):
    """For no other reason than its time limit."""


def last_words(output):
    return output.strip()[-400:]


def json_lines(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]


def test_endings(output):
    """{test: what it ended with, OK, FAILED or SKIPPED; RUN for one that did not} up to the first that failed."""
    endings = {}
    for event in TEST_EVENT.finditer(output):
        endings[event[2]] = event[1]
        if event[1] == "FAILED":
            break
    return endings


def words_of_test(output, test):
    """What came between its begin and its end."""
    begin = output.index("] " + test)
    end = output.find("[  FAILED  ] " + test, begin)
    return output[begin + 2:end if end >= 0 else None].strip()[:800]


class TestRun:
    """Tests of processes that each end with the first failure, as a device that has failed once fails whatever comes after it."""

    def __init__(self):
        self.endings, self.first_failed_said, self.running, self.processes = {}, None, {}, 0

    def add(self, code, output, cut, seconds):
        """Of one process; whether another has anything to do."""
        new = test_endings(output)
        bad = next((test for test, ending in new.items() if ending in ("FAILED", "RUN")), None)
        self.processes += 1
        if cut and bad:
            del new[bad]
            self.running = {"running": bad, "running_seconds": round(seconds - sum(map(int, TEST_MILLISECONDS.findall(output))) / 1000, 1)}
        elif code != 0 and bad is None and not cut:
            raise Failed(last_words(output), exit_code=code, **self.values())
        elif code != 0 and not cut:
            self.first_failed_said = self.first_failed_said or words_of_test(output, bad)
        self.endings.update(new)
        return code != 0 and not cut

    def having(self, *endings):
        return [test for test, ending in self.endings.items() if ending in endings]

    def values(self):
        failed = self.having("FAILED", "RUN")
        values = {"passed": len(self.having("OK")), "skipped": len(self.having("SKIPPED")), "failed": failed,
                  "processes": self.processes, **self.running}
        if failed:
            values.update(first_failed=failed[0], first_failed_said=self.first_failed_said, crashed=self.having("RUN"))
        return values


def refuse(output):
    """Skips what a tool refused to look at."""
    refusal = REFUSAL.search(output)
    if refusal:
        raise Skip(refusal[1].strip())


def of_sanitizer(code, output, cut):
    """Values of a run of compute-sanitizer on device_bench."""
    refuse(output)
    found, summaries = SANITIZER_FINDING.findall(output), SANITIZER_SUMMARY.findall(output)
    values = {"summary": [text for text, _ in summaries], "first": found[:5], "cut": cut,
              "operations": len({line["op"] for line in json_lines(output) if "op" in line})}
    if found or any(int(count) for _, count in summaries):
        raise Failed("errors were found", **values)
    if code != 0 and not cut:
        raise Failed(last_words(output), exit_code=code, **values)
    if values["operations"] == 0:
        raise (TimedOut if cut else Failed)("no operation ran to its end", **values)
    if not summaries and not cut:
        raise Failed("it has no summary", **values)
    return values


def of_profiler(code, output, cut):
    """Values of a run of ncu."""
    refuse(output)
    if cut:
        raise TimedOut("timed out")
    rows = [row for row in output.splitlines() if row.startswith('"')]
    if code != 0 or len(rows) < 2:
        raise Failed(last_words(output), exit_code=code)
    return {"csv": rows[:60]}
