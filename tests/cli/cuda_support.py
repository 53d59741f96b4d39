"""What the tests of the CUDA backend over the stand-ins share."""

import json

from support import CommandLineTest, environment


class CudaTest(CommandLineTest):
    def env(self, **more):
        env = environment()
        env.update(DIFFUSE_STANDIN_DEVICES="4")
        env.update({k: str(v) for k, v in more.items()})
        return env

    def cuda(self, *arguments, ranks=0, code=0, **env):
        done = self.run_any(*arguments, ranks=ranks, env=self.env(**env))
        self.assertEqual(done.code, code, done)
        return done

    def verify(self, job, *flags, ranks, **env):
        done = self.cuda("verify", job, "-o", "report", "--device", "cuda", *flags, ranks=ranks, **env)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertTrue(report["rows"])
        self.assertTrue(all(row["identical"] for row in report["rows"]), report)
        return done, report
