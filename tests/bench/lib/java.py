"""The contenders in Java, built by Maven on first use."""
import pathlib
import shutil
import subprocess

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "java"


def missing():
    """The tools that are not there."""
    return [tool for tool in ("java", "javac", "mvn")
            if shutil.which(tool) is None]


class Java:
    def __init__(self, target):
        self.target = target
        self.classpath = None

    def build(self):
        listing = self.target / "classpath"
        sources = [SOURCES / "pom.xml", *SOURCES.rglob("*.java")]
        if not listing.exists() or any(
                s.stat().st_mtime > listing.stat().st_mtime for s in sources):
            listing.unlink(missing_ok=True)
            subprocess.run(
                ["mvn", "-q", "-B", "-Dstyle.color=never", "-f",
                 SOURCES / "pom.xml",
                 f"-Dbench.target={self.target}", "compile",
                 "dependency:build-classpath",
                 f"-Dmdep.outputFile={listing}"], check=True)
        self.classpath = f"{self.target / 'classes'}:{listing.read_text()}"

    def command(self, contender, work, servers, queue, warm_queue, warm_count):
        if self.classpath is None:
            self.build()
        dsn = dict(pair.split("=", 1) for pair in servers.dsn.split())
        return [
            "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp", self.classpath, "bench.Main", f"mode={contender.mode}",
            f"workers={contender.workers}", f"queue={queue}",
            f"count={work.count}", f"warm_queue={warm_queue}",
            f"warm_count={warm_count}", f"url={servers.url}",
            f"prefetch={work.prefetch}",
            f"jdbc=jdbc:postgresql://{dsn['host']}:{dsn['port']}/"
            f"{dsn['dbname']}?sslmode={dsn['sslmode']}",
            f"user={dsn['user']}", f"password={dsn['password']}"]
