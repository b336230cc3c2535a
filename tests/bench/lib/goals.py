"""What is to be reached on a machine of two cores that broker, database and
consumer share."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Goal:
    name: str  # of a figure in the JSON file
    text: str
    least: float = None
    most: float = None
    fails_below: float = None  # ends the run with an error


GOALS = (
    Goal("lease_per_raw", "lease / raw", least=0.40),
    Goal("lease_per_naive", "lease / naive", least=25, fails_below=10),
    Goal("lease_per_java_dedup", "lease / the fastest of java-jdbc-8, camel-8",
         least=12),
    Goal("lease_per_java_plain", "lease / java-plain", least=3),
    Goal("none_per_raw", "none / raw", least=0.90),
    Goal("duplicates_per_raw", "duplicates / raw", least=0.60),
    Goal("lease_cpu_us", "consumer's own CPU, lease, us/message", most=8),
    Goal("commits_per_message", "commits per message, lease", most=0.01),
    Goal("row_versions_per_message", "row versions per message, lease",
         most=2.01),
    Goal("hot_share", "share of HOT updates, lease", least=0.99),
    Goal("scans", "sequential scans, lease and duplicates", most=0),
    # One for the claim's answer, one for the confirm.
    Goal("rows_read_per_key", "rows read per key, lease and duplicates",
         most=2.1),
    Goal("rows_read_per_key_full", "the same, at every size of the table",
         most=2.1),
    Goal("rss_mb", "consumer's peak memory, lease, MB", most=24),
    Goal("rss_growth", "memory / that after the first minute", most=1.05),
    Goal("ascending_10m_per_empty", "10 M rows / none, ascending keys",
         least=0.90),
    Goal("random_10m_per_empty", "10 M rows / none, random keys", least=0.50),
    Goal("random_10m_per_empty_2gb", "the same, shared_buffers 2 GB",
         least=0.70),
    Goal("lease_per_naive_commit_5ms", "lease / naive, commits 5 ms slower",
         least=100),
    Goal("latency_100_per_insert",
         "p50 at 100 messages/s / p50 of one INSERT", most=2.5),
)


def reached(goal, value):
    if goal.least is not None:
        return value >= goal.least
    return value <= goal.most


def report(figures):
    """Prints them; returns the names of those that fail the run."""
    form = "{:<20}{:>10}{:>11}  {}"
    failed = []
    print()
    print(form.format("", "is", "is to be", ""))
    for goal in GOALS:
        value = figures.get(goal.name)
        bound = (f">= {goal.least:g}" if goal.least is not None
                 else f"<= {goal.most:g}")
        if value is None:
            print(form.format("not measured", "", bound, goal.text))
            continue
        is_reached = reached(goal, value)
        print(form.format("reached" if is_reached else "NOT REACHED",
                          f"{value:.3g}" if value < 100 else f"{value:.0f}",
                          bound, goal.text))
        if goal.fails_below is not None and value < goal.fails_below:
            failed.append(f"{goal.name} (at least {goal.fails_below:g})")
    return failed
