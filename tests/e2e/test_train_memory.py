"""The memory that --plan promises against what the system sees of the process: within 3 % for 500 MB and more."""
from train_memory import TrainMemoryTest


def model(width, blocks, **more):
    return {"hidden_size": width, "num_hidden_layers": blocks, "num_attention_heads": max(1, width // 32), **more}


class Memory(TrainMemoryTest):
    def test_mostly_parameters(self):
        self.check_plan(self.config(model(512, 6, vocab_size=16000, num_attention_heads=8), 64, 2, steps=3), threads=2)

    def test_mostly_activations(self):
        self.check_plan(self.config(model(64, 32), 128, 32), threads=2)

    def test_64_sublayers(self):
        for scheme in ("keel", "pre"):
            for threads in (1, 2):
                with self.subTest(scheme=scheme, threads=threads):
                    self.check_plan(self.config(model(256, 32, residual_scheme=scheme), 256, 4), threads, ["--force"])

    def test_recomputation(self):
        for mode in ("branch", "block", "every:8"):
            with self.subTest(mode=mode):
                self.check_plan(self.config(model(256, 32), 256, 8, recompute=mode), 2, ["--force"])

    def test_activations_in_bf16(self):
        for width, blocks, sequence_length, micro_batch in ((256, 32, 256, 8), (64, 64, 256, 16)):
            with self.subTest(width=width):
                self.check_plan(self.config(model(width, blocks), sequence_length, micro_batch, activations="bf16"), 2, ["--force"])

    def test_small_passes_that_add_up(self):
        self.check_plan(self.config(model(256, 32), 128, 2, batch=4))

    def test_512_narrow_sublayers(self):
        for threads in (1, 2):
            with self.subTest(threads=threads):
                self.check_plan(self.config(model(64, 256), 256, 2), threads, ["--force"])

    def test_a_large_vocabulary(self):
        for threads in (1, 2):
            with self.subTest(threads=threads):
                self.check_plan(self.config(model(128, 16, vocab_size=50304), 256, 8), threads, ["--force"])

    def test_many_small_tensors(self):
        """What the process keeps of each tensor's name and shape counts here."""
        self.check_plan(self.config(model(16, 4096, vocab_size=100), 64, 2, steps=1))

    def test_a_run_that_goes_on(self):
        config = self.config(model(256, 32), 128, 2)
        self.check_plan(config)
        self.check_plan(config, extra=["--resume", "--override", "train.steps=4"])

    def test_weights_from_a_run(self):
        config = self.config(model(256, 32), 128, 2)
        self.check_plan(config)
        (self.dir / "run").rename(self.dir / "first")
        self.check_plan(config, extra=["--init", self.dir / "first"])
