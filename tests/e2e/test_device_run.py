"""A thousand steps on the emulated device beside the CPU's, and the same bits again where the run goes on from a checkpoint.

Two runs that round differently drift apart, the more the longer they train, so how far the device may be from the CPU is measured, not
chosen: by CPU runs that differ from the plain one in nothing but rounding, other instruction sets (which add in another order, and fuse
or not) and starts whose weights are each moved to a neighbouring float. The device is one more such run: its loss may be off by
FACTOR times the most that any of the others was off by then. Of five normal deviations one is more than four times the largest of the
other four in less than one of two hundred cases, and the largest over all steps so far hardly ever.
"""
import json
import math
import os
import random
import shutil
import struct
import unittest

from keel_files import read_safetensors, write_safetensors
from keel_tools import run
from test_train import TrainTest, config

STEPS, SAVED = 1000, 750
FACTOR = 4
FIRST = 50  # steps within which a deviation by then is that of all of them: at the first few it may be nothing by chance
NUDGED = 3


def doctor():
    return json.loads(run("keel-train", "--doctor", "--json").stdout)


def neighbour(x, up):
    """The float next to a float."""
    bits = struct.unpack("<i", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<i", bits + (1 if up == (x >= 0) else -1)))[0] if x else x


@unittest.skipUnless(doctor()["cuda_emulated"] == "built in", "this build has no emulated device")
class ThousandSteps(TrainTest):
    def losses(self, out):
        return [line["loss"] for line in self.metrics(out) if "loss" in line]

    def start_of(self, scheme):
        """A model folder with a run's weights after one step, from which all begin."""
        self.train("start", ["--steps", "1", "--set", f"model.residual_scheme={scheme}"])
        return self.dir / "start" / "checkpoints" / "step-00000001"

    def nudged(self, start, seed):
        folder = self.dir / f"nudged-{seed}"
        folder.mkdir()
        shutil.copy(start / "config.json", folder)
        draw = random.Random(seed)
        tensors = read_safetensors(start / "model.safetensors")
        write_safetensors(folder / "model.safetensors", {
            name: (shape, [neighbour(x, draw.random() < 0.5) for x in values]) for name, (shape, values) in tensors.items()})
        return folder

    def run_from(self, start, out, *extra, isa=None):
        environment = {**os.environ, **({"KEEL_ISA": isa} if isa else {})}
        self.train(out, ["--init", start, "--steps", str(STEPS), *extra], env=environment)
        return self.losses(out)

    def rounding(self, start, plain):
        """For each step the most that a CPU run's loss was off by then."""
        sets = doctor()["instruction_sets"]
        others = [self.run_from(start, f"cpu-{isa}", isa=isa) for isa in sets[:-1]]
        others += [self.run_from(self.nudged(start, seed), f"cpu-nudged-{seed}") for seed in range(NUDGED)]
        most, so_far = [], 0
        for step, loss in enumerate(plain):
            so_far = max(so_far, *(abs(other[step] - loss) for other in others))
            most.append(so_far)
        return [max(most[FIRST], m) for m in most]

    def follow(self, scheme):
        self.write_config(config(optimizer__learning_rate=0.003, checkpoint__every_steps=SAVED, validate__every_steps=STEPS,
                                 train__batch_sequences=1, train__micro_batch_sequences=1))
        start = self.start_of(scheme)
        plain = self.run_from(start, "cpu")
        self.assertLess(sum(plain[-50:]) / 50, 0.8 * plain[0], "the model learns")
        allowed = [FACTOR * m for m in self.rounding(start, plain)]
        found = self.run_from(start, "device", "--device", "cuda-emulated")
        self.assertEqual(len(found), STEPS)
        worst = max((abs(a - b) / limit, step) for step, (a, b, limit) in enumerate(zip(found, plain, allowed)))
        self.assertLess(worst[0], 1, f"loss of step {worst[1] + 1}: {found[worst[1]]}, on the CPU {plain[worst[1]]}")
        self.assertTrue(math.isfinite(worst[0]))
        print(f"{scheme}: at most {worst[0]:.3f} of what is allowed (step {worst[1] + 1}); "
              f"allowed at the end {allowed[-1]:.3g} of {plain[-1]:.4f}")
        return found

    def goes_on(self, out, losses):
        """From a checkpoint on the way the same run comes to the same end, bit for bit."""
        shutil.copytree(self.dir / out, self.dir / "again")
        shutil.rmtree(self.dir / "again" / "checkpoints" / f"step-{STEPS:08d}")
        self.train("again", ["--resume", "--steps", str(STEPS), "--device", "cuda-emulated"])
        self.assertEqual(self.losses("again"), losses)
        self.assertEqual(self.weights("again", STEPS), self.weights(out, STEPS))

    def test_keel(self):
        self.goes_on("device", self.follow("keel"))

    def test_pre(self):
        self.follow("pre")


if __name__ == "__main__":
    unittest.main()
