"""Who is measured, what each has to do, and where it leaves its rows."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Work:
    """What a run consists of."""
    count: int
    body: int = 256
    prefetch: int = 1000
    concurrency: int = 1
    work_us: int = 0
    processes: int = 1
    known: int = 0  # percent of the keys that are confirmed before
    random_keys: bool = False
    table: str = "idem_message"
    keep_table: bool = False  # with the rows that are in it
    purge_ms: int = -1  # the store's default


@dataclasses.dataclass(frozen=True)
class Contender:
    mode: str  # of idem-bench, or of the Java program
    text: str
    is_java: bool = False
    workers: int = 1
    table: str = None  # its own, where it makes one
    known: int = 0
    is_slow: bool = False  # gets as many messages as it can do in some seconds
    has_rows: bool = False


CONTENDERS = {
    "raw": Contender("raw", "Proton C, accepts at once, no store"),
    "naive": Contender("naive", "Proton C, one committed INSERT and one "
                       "committed UPDATE per message", is_slow=True,
                       has_rows=True),
    "none": Contender("none", "idem without a store"),
    "lease": Contender("lease", "idem, claim and confirm", has_rows=True),
    "duplicates": Contender("lease", "idem, every id confirmed before",
                            known=100, has_rows=True),
    "java-plain": Contender("plain", "Qpid JMS, no store", is_java=True,
                            is_slow=True),
    "java-jdbc-1": Contender("jdbc", "Qpid JMS, claim and confirm over JDBC, "
                             "1 session", is_java=True, is_slow=True,
                             table="bench_java_claim", has_rows=True),
    "java-jdbc-8": Contender("jdbc", "Qpid JMS, claim and confirm over JDBC, "
                             "8 sessions", is_java=True, workers=8,
                             is_slow=True, table="bench_java_claim",
                             has_rows=True),
    "camel-1": Contender("camel", "Apache Camel, idempotentConsumer with its "
                         "JDBC repository, 1 consumer", is_java=True,
                         is_slow=True, table="bench_java_camel",
                         has_rows=True),
    "camel-8": Contender("camel", "Apache Camel, idempotentConsumer with its "
                         "JDBC repository, 8 consumers", is_java=True,
                         workers=8, is_slow=True, table="bench_java_camel",
                         has_rows=True),
}

# With a store, and as many sessions as the goal for them names.
JAVA_DEDUP = ("java-jdbc-8", "camel-8")

# What --short runs.
SHORT = ("raw", "naive", "none", "lease", "duplicates", "java-jdbc-8")
