"""Programs that a measurement starts."""
import json
import pathlib
import subprocess
import sys
import time


def output(*command, **more):
    return subprocess.run(
        [str(c) for c in command], check=True, stdout=subprocess.PIPE,
        text=True, **more).stdout.strip()


class Part:
    """A program that prints a JSON line when it is ready, goes on at a line on
    its standard input, and prints its result as its last line."""

    def __init__(self, command, name):
        self.name = name
        self.rss = []  # of [seconds since it went on, kB]
        self.process = subprocess.Popen(
            [str(c) for c in command], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            sys.exit(f"{name}: ended before it began")
        self.ready = json.loads(line)

    def go(self):
        self.began = time.monotonic()
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def sample(self):
        try:
            status = pathlib.Path(
                f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                self.rss.append(
                    [time.monotonic() - self.began, int(line.split()[1])])

    def result(self, deadline):
        """Waits for the end. The memory is looked at meanwhile."""
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
                sys.exit(f"{self.name}: not done in time")
            time.sleep(0.05)
            if not self.rss or (time.monotonic() - self.began
                                - self.rss[-1][0] >= 0.5):
                self.sample()
        text = self.process.stdout.read()
        self.process.stdin.close()
        if self.process.returncode != 0:
            sys.exit(f"{self.name}: failed ({self.process.returncode})")
        return json.loads(text.strip().splitlines()[-1]) if text else {}

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
