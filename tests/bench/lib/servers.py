"""A broker and a database of this run alone, and what they are set to."""
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
import time

from .process import output

ROOT = pathlib.Path(__file__).resolve().parents[3]
SUPPORT = ROOT / "tests" / "support"

SHOWN = ("server_version", "fsync", "synchronous_commit", "shared_buffers",
         "max_wal_size", "wal_compression", "autovacuum")


class Servers:
    def __init__(self, shared_buffers=None):
        # PostgreSQL runs as another account where we are root.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="idem-bench."))
        self.folder.chmod(0o711)
        self.artemis = self.folder / "artemis"
        self.postgres = self.folder / "postgres"
        more = {}
        if shared_buffers:
            more["POSTGRES_CONF"] = f"shared_buffers = {shared_buffers}"
        try:
            self.url = output(SUPPORT / "artemis.sh", "start", self.artemis,
                              env={**os.environ, "ARTEMIS_LARGE": "1"})
            self.dsn = output(SUPPORT / "postgres.sh", "start", self.postgres,
                              env={**os.environ, **more})
            # TLS for nobody: libpq's default would take it where the server
            # has it, on loopback too.
            self.dsn += " sslmode=disable"
            self.broker_pid = int(
                output(SUPPORT / "artemis.sh", "pid", self.artemis))
            self.database_pid = int(
                output(SUPPORT / "postgres.sh", "pid", self.postgres))
        except BaseException:
            self.stop()
            raise

    def stop(self):
        for script, folder in (("artemis.sh", self.artemis),
                               ("postgres.sh", self.postgres)):
            subprocess.run([SUPPORT / script, "destroy", folder], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, text):
        return output(
            "psql", self.dsn, "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-c",
            text, env={**os.environ,
                       "PGOPTIONS": "-c client_min_messages=warning"})

    def wait_alone(self):
        """Until the last client's server is gone. Only then are its counters
        complete: a server reports them at most once a second, and at its end."""
        end = time.monotonic() + 30
        while time.monotonic() < end and self.sql(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type ="
                " 'client backend' AND pid <> pg_backend_pid()") != "0":
            time.sleep(0.05)

    def set_commit_delay(self, milliseconds):
        """Every flush of a commit takes so much longer. commit_siblings 0
        makes the delay hold for a committer that is alone, too."""
        self.sql(f"ALTER SYSTEM SET commit_delay = {int(milliseconds * 1000)}")
        self.sql("ALTER SYSTEM SET commit_siblings = 0")
        self.sql("SELECT pg_reload_conf()")
        while self.sql("SHOW commit_delay") != str(int(milliseconds * 1000)):
            time.sleep(0.05)

    def settings(self):
        words = pathlib.Path(
            f"/proc/{self.broker_pid}/cmdline").read_text().split("\0")
        xml = (self.artemis / "etc" / "broker.xml").read_text()
        return {
            "postgresql": {
                name: self.sql(f"SHOW {name}") for name in SHOWN},
            "artemis": {
                "java": " ".join(
                    w for w in words
                    if w.startswith("-X") and not w.startswith(
                        ("-Xlog", "-Xshare", "-XX:SharedArchive"))),
                **{name: xml.split(f"<{name}>")[1].split("<")[0] for name in
                   ("persistence-enabled", "journal-type", "journal-datasync",
                    "journal-file-size")},
            },
        }


def machine():
    model = "unknown processor"
    memory = 0
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory = int(line.split()[1]) / 2**20
    return {
        "processor": model, "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
    }
